//! What is known of a node at a time: signs of life by our own observation, and how far the watch can be trusted.

use evenkeel_zone::Millis;
use evenkeel_zone::verdict::Verdict;

/// A watch without progress for this long counts as dead: nothing is acted upon (hazard 20).
pub const WATCH_SILENCE_MS: u64 = 15_000;

/// How long things may take before they mean something. All in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A Lease not seen renewed for this long is stale. Below the stock grace of 50 s; 25 s.
    pub stale_after: u64,
    /// A dead node's last renewal must be older than this before anything irreversible: 1.5 renewal intervals,
    /// because one is too short for 10.4 s plus retries (hazard 21); 15 s.
    pub confirm_after: u64,
    /// A kubelet or runtime must be reported broken for this long to count as down; 60 s. Also how long a
    /// Disconnected node's own word that its link is back is waited upon, before a kubelet that still does not
    /// renew counts as down: a kubelet notices a dead connection only after 30 to 45 s.
    pub kubelet_grace: u64,
    /// Isolation is reported after this long: peers need up to 15 s to acquit a node that came back.
    pub isolated_grace: u64,
}

impl Timing {
    /// The defaults for a kubelet that renews its Lease every `renew_interval_ms`.
    pub fn for_renew_interval(renew_interval_ms: u64) -> Self {
        Self {
            stale_after: 25_000,
            confirm_after: renew_interval_ms.saturating_mul(3) / 2,
            kubelet_grace: 60_000,
            isolated_grace: 15_000,
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::for_renew_interval(10_000)
    }
}

/// Proof that a watch delivers: continuous progress, with the instant since when there was no gap.
///
/// Progress is anything that shows that all earlier changes have arrived: an event of any object of the watch, or a
/// consistent list that agrees with what the watch delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchProof {
    unbroken: Option<(Millis, Millis)>,
}

impl WatchProof {
    /// Progress at `at`. After a gap the unbroken stretch starts over.
    pub fn progress(&mut self, at: Millis) {
        self.unbroken = Some(match self.unbroken {
            Some((since, last)) if at.since(last) < WATCH_SILENCE_MS => (since, last.max(at)),
            _ => (at, at),
        });
    }

    /// The watch is known to have missed something: it has to prove itself anew.
    pub fn broken(&mut self) {
        self.unbroken = None;
    }

    /// When the watch last made progress.
    pub fn last_progress(&self) -> Option<Millis> {
        self.unbroken.map(|(_, last)| last)
    }

    /// Since when the watch has delivered without a gap; `None` if it is not proven live at `now`.
    pub fn live_since(&self, now: Millis) -> Option<Millis> {
        self.unbroken
            .filter(|(_, last)| now.since(*last) < WATCH_SILENCE_MS)
            .map(|(since, _)| since)
    }
}

/// Signs of life of a node's kubelet, by when *we* noticed them; remote clocks are never compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// When the node's Lease (or, without one, its heartbeat) was first seen. Says nothing about its age.
    pub first_seen: Option<Millis>,
    /// When a renewal was last seen: the Lease or the heartbeat in the node's status changed under our eyes.
    pub renewed: Option<Millis>,
    /// When the stock controller's own mark (`Ready=Unknown`, `NodeStatusUnknown`) was seen, while it stands.
    pub stock_mark: Option<Millis>,
}

impl Life {
    /// The latest instant from which silence can be counted.
    pub fn known_since(&self) -> Option<Millis> {
        self.renewed.or(self.first_seen)
    }

    /// Whether a sign of life was seen at or after `instant`.
    pub fn seen_since(&self, instant: Millis) -> bool {
        self.renewed.is_some_and(|renewed| renewed >= instant)
    }

    /// For how long the node has been silent under a watch proven live; `None` where that cannot be said.
    pub fn silent_for(&self, watch: &WatchProof, now: Millis) -> Option<u64> {
        let from = self.known_since()?.max(watch.live_since(now)?);
        Some(now.since(from))
    }

    /// Freshness of the Lease by the rule of ARCHITECTURE.md.
    pub fn lease(&self, watch: &WatchProof, timing: &Timing, now: Millis) -> Lease {
        let marked = self
            .stock_mark
            .is_some_and(|mark| self.renewed.is_none_or(|renewed| mark > renewed));
        if watch.live_since(now).is_none() {
            return Lease::Unproven;
        }
        if marked
            || self
                .silent_for(watch, now)
                .is_some_and(|silence| silence >= timing.stale_after)
        {
            return Lease::Stale;
        }
        match self.renewed {
            Some(renewed) if now.since(renewed) < timing.stale_after => Lease::Fresh,
            _ => Lease::Unproven,
        }
    }
}

/// What can be said of a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Seen renewed lately.
    Fresh,
    /// Not renewed for too long, or the stock controller says so itself.
    Stale,
    /// We have not watched for long enough to say (start, gap of the watch, no Lease at all): act on nothing.
    Unproven,
}

/// What is known of the zone a node is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneEvidence {
    /// Whether anybody reports for the zone.
    pub reporting: Reporting,
    /// Whether any member's Lease is fresh or not yet known to be stale: then the zone is not dark (hazard 17).
    pub some_member_fresh: bool,
}

/// Reports of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reporting {
    /// No report was ever made: a zone without agents is stock Kubernetes.
    #[default]
    Never,
    /// It used to report and does not any more.
    Silent,
    /// Reports are seen to advance.
    Talking,
}

/// Everything the decision on one node rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Signs of life of the kubelet.
    pub life: Life,
    /// The watch that delivers them.
    pub watch: WatchProof,
    /// What the neighbours say.
    pub verdict: Verdict,
    /// The zone.
    pub zone: ZoneEvidence,
    /// In a roster of two: the peer's valid no, one short of the majority, by the start of its round. The planner
    /// itself is the third voter (hazard 13).
    pub one_short: Option<Millis>,
    /// When the node's agent was last seen to write to the API server.
    pub agent_write: Option<Millis>,
}
