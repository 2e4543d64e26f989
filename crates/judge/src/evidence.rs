//! What is known of a node: signs of life by our own observation, the neighbours' verdict, the zone, the
//! agent's writes.

use crate::memory::DeadLatch;
use crate::sight::{Sight, WatchProof};
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::Verdict;
use evenkeel_zone::wire::Renewal;
use std::cmp::Ordering;

/// How long things may take before they mean something. All in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A Lease not seen renewed for this long is stale. Below the stock grace period of 50 s; 25 s.
    pub stale_after: u64,
    /// A dead node's last renewal must be older than this before anything irreversible: 1.5 renewal
    /// intervals, because one is too short for 10.4 s plus retries (hazard 21); 15 s.
    pub confirm_after: u64,
    /// A kubelet or runtime must be reported broken for this long to count as down; 60 s. Also how long the
    /// agent of a cut-off node must be seen to write before a kubelet that still does not renew counts as
    /// down: a kubelet notices a dead connection only after 30 to 45 s.
    pub kubelet_grace: u64,
    /// The stock node lifecycle controller waits for this long (`--node-monitor-grace-period`); 50 s.
    pub stock_grace: u64,
    /// A zone is silent when no signed report and no renewal of its Lease was seen for this long; 30 s.
    pub silent_after: u64,
    /// A replica that does not lead lets every one of these times pass for this much longer, so that the
    /// leader, which may see each event this much later, decides first; 0 for the leader.
    pub patience: u64,
}

/// How far the watches of two replicas may lie apart before they may disagree.
pub const SKEW_MS: u64 = 5_000;
/// An agent that was not seen to write for this long has to begin anew: three times its 10 s.
pub const WRITE_GAP_MS: u64 = 30_000;

impl Timing {
    /// A renewal that is not seen for this long is late: a fifth more than the renewal interval; 12 s.
    pub fn overdue_after(&self) -> u64 {
        self.confirm_after / 5 * 4
    }

    /// The defaults for a kubelet that renews its Lease every `renew_interval_ms`.
    pub fn for_renew_interval(renew_interval_ms: u64) -> Self {
        Self {
            stale_after: 25_000,
            confirm_after: renew_interval_ms.saturating_mul(3) / 2,
            kubelet_grace: 60_000,
            stock_grace: 50_000,
            silent_after: 30_000,
            patience: 0,
        }
    }

    /// The same for a replica that follows a leader.
    #[must_use]
    pub fn following(self) -> Self {
        Self {
            patience: SKEW_MS,
            ..self
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::for_renew_interval(10_000)
    }
}

/// Signs of life of a node's kubelet, by when *we* noticed them; remote clocks are never compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When the node's Lease (or, without one, its heartbeat) was first seen. Says nothing about its age.
    pub first_seen: Option<Millis>,
    /// When a renewal was last seen: the Lease or the heartbeat in the node's status changed under our eyes.
    pub renewed: Option<Millis>,
    /// The last renewal of the Lease that we know; `None` if the node has no Lease.
    pub renewal: Option<Renewal>,
    /// The last write to the Lease since, which left the time of the renewal as it was: somebody labelled it.
    pub touched: Option<Renewal>,
    /// When the stock controller's own mark (`Ready=Unknown`, `NodeStatusUnknown`) was seen, while it stands.
    pub stock_mark: Option<Millis>,
}

impl Life {
    /// The last write to the Lease that we know, by its kubelet or by anybody: rounds name it.
    pub fn written(&self) -> Option<Renewal> {
        self.touched.or(self.renewal)
    }

    /// The latest instant from which silence can be counted.
    pub fn known_since(&self) -> Option<Millis> {
        self.renewed.or(self.first_seen)
    }

    /// Whether a sign of life was seen at or after `instant`.
    pub fn seen_since(&self, instant: Millis) -> bool {
        self.renewed.is_some_and(|renewed| renewed >= instant)
    }

    /// How the renewal that a round names stands to the last one that we know: a later one is still on its
    /// way to us, and after an earlier one the node has written again.
    pub fn order(&self, named: Renewal) -> Ordering {
        let last = self.renewal.unwrap_or(Renewal::NO_LEASE);
        if named > last && self.touched.is_some_and(|touched| named <= touched) {
            return Ordering::Equal;
        }
        named.cmp(&last)
    }

    /// Whether the node was seen to renew after a death had been latched. Renewals are counted by the Lease
    /// itself: watches deliver in any order, so the time of receipt tells less. Without a Lease on either
    /// side, only the time is there.
    fn renewed_after(&self, death: &DeadLatch) -> bool {
        match (self.renewal, death.renewal) {
            (Some(last), Some(named)) => last > named,
            _ => self.seen_since(death.requested),
        }
    }

    /// Whether the stock controller's mark stands and is newer than the last renewal that we saw. That write
    /// proves that stock Kubernetes takes the Lease for stale, whatever its timers. A mark within [`SKEW_MS`]
    /// of a renewal proves nothing: it was made from an older Lease, and the two crossed on their way.
    /// `patience` is that of [`Timing`]: a replica that does not lead lets the leader say so first.
    pub fn is_marked(&self, patience: u64) -> bool {
        let apart = |mark: Millis| {
            self.renewed
                .is_none_or(|renewed| mark >= renewed.plus(SKEW_MS + patience))
        };
        self.stock_mark.is_some_and(apart)
    }

    /// The same with a mark of the stock controller that counts, whenever the last renewal was.
    #[must_use]
    pub fn marked(self, patience: u64, now: Millis) -> Self {
        let counts = self
            .renewed
            .map_or(now, |renewed| renewed.plus(SKEW_MS + patience));
        Self {
            stock_mark: Some(counts.max(now)),
            ..self
        }
    }

    /// For how long the node has been silent on a watch that is proven live; `None` where that cannot be
    /// said.
    pub fn silent_for(&self, leases: &WatchProof, now: Millis) -> Option<u64> {
        let from = self.known_since()?.max(leases.live_since(now)?);
        Some(now.since(from))
    }

    /// Whether the Lease is stale at `now`: not seen renewed for `stale_after` (and the patience that a
    /// replica has which does not lead) on a watch that is proven live, or marked by the stock controller
    /// since.
    pub fn lease(&self, leases: &WatchProof, timing: &Timing, now: Millis) -> Lease {
        let stale_after = timing.stale_after + timing.patience;
        let recent = self
            .renewed
            .is_some_and(|renewed| now.since(renewed) < stale_after);
        let silent = self
            .silent_for(leases, now)
            .is_some_and(|silence| silence >= stale_after);
        match (self.is_marked(timing.patience), recent, silent) {
            (true, _, _) | (_, false, true) => Lease::Stale,
            (false, true, _) => Lease::Fresh,
            (false, false, false) => Lease::Unproven,
        }
    }
}

/// What can be said of a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// A renewal was seen within the time after which a Lease is stale.
    Fresh,
    /// Not renewed for too long, or the stock controller says so itself.
    Stale,
    /// We have not watched for long enough to say (start, gap of the watch, no Lease at all): act on nothing.
    Unproven,
}

/// What is known of the cell a node is in, and of its zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneEvidence {
    /// Whether anybody ever reported for the zone: a zone without agents is stock Kubernetes.
    pub reported: bool,
    /// When the zone was last seen to advance: signed evidence, or a renewal of its Lease by a member.
    pub advanced: Option<Millis>,
    /// Whether any member's Lease is fresh or not yet known to be stale: then the zone is not dark (hazard
    /// 17).
    pub some_member_fresh: bool,
    /// Whether any member's Lease is known to be fresh: a zone that was dark is not dark any more.
    pub some_member_renews: bool,
    /// More nodes of the zone died within a minute than a storm takes (hazard 24).
    pub storm: bool,
    /// Several cells of the zone convicted so many of their members within a minute that they may have
    /// convicted both sides of one split (hazard 42).
    pub may_be_split: bool,
    /// With members that fell silent lately, and of which their own cells have not said why, it would be so.
    /// A death that would be confirmed now keeps the stock pace (hazard 42).
    pub may_prove_split: bool,
    /// More than half of the cell's members booted shortly before, as after a power cut (hazard 43).
    pub is_returning: bool,
    /// The node is the only member of its cell: there is nobody who could ever vouch for it.
    pub is_alone: bool,
}

impl ZoneEvidence {
    /// Whether the zone used to report and is silent now, counted on a watch that is proven live.
    pub fn is_silent(&self, reports: &WatchProof, timing: &Timing, now: Millis) -> bool {
        let Some(live_since) = reports.live_since(now) else {
            return false;
        };
        let from = self.advanced.map_or(live_since, |at| at.max(live_since));
        self.reported && now.since(from) >= timing.silent_after + timing.patience
    }

    /// Whether the zone was seen to advance since the watch has been proven live. Where it was not, and is
    /// not silent for long enough either, nothing can be said: silence is counted anew at the start and after
    /// each gap.
    pub fn was_seen(&self, reports: &WatchProof, now: Millis) -> bool {
        let live_since = reports.live_since(now);
        self.advanced
            .zip(live_since)
            .is_some_and(|(at, since)| at >= since)
    }
}

/// The writes by which an agent proves that its node reaches the API server: those since its node's last
/// renewal, without a gap of more than [`WRITE_GAP_MS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentWrites {
    run: Option<(Millis, Millis)>,
    last: Option<Millis>,
}

impl AgentWrites {
    /// A write was seen.
    pub fn seen(&mut self, at: Millis) {
        self.run = Some(match self.run {
            Some((began, last)) if at.since(last) <= WRITE_GAP_MS => (began, last.max(at)),
            _ => (at, at),
        });
        self.last = Some(at);
    }

    /// Whether a write was seen at or after `instant`: the machine lived then, whatever its kubelet does.
    pub fn seen_since(&self, instant: Millis) -> bool {
        self.last.is_some_and(|last| last >= instant)
    }

    /// The kubelet renewed its Lease: what was written before says nothing about the time after.
    pub fn renewed(&mut self) {
        self.run = None;
    }

    /// Since when the agent has been writing, if it still is at `now`.
    pub fn since(&self, now: Millis) -> Option<Millis> {
        self.run
            .filter(|(_, last)| now.since(*last) <= WRITE_GAP_MS)
            .map(|(began, _)| began)
    }
}

/// Everything the decision about one node rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Signs of life of the kubelet.
    pub life: Life,
    /// How far we can see.
    pub sight: Sight,
    /// What the neighbours say.
    pub verdict: Verdict,
    /// What is known of the node's zone.
    pub zone: ZoneEvidence,
    /// The agent's own writes.
    pub agent: AgentWrites,
}

impl Evidence {
    /// Whether the node was seen to write after a death had been latched: its kubelet or its agent.
    pub fn lived_after(&self, death: &DeadLatch) -> bool {
        self.life.renewed_after(death) || self.agent.seen_since(death.requested)
    }
}
