//! The decision table: evidence about a node, and what was decided before, to the state of the node.
//!
//! | lease | verdict | state |
//! |---|---|---|
//! | fresh | alive or none, no Dead latched | Healthy |
//! | stale | alive; kubelet or runtime broken for 60 s, or the agent reaches the API server | KubeletDown |
//! | stale | alive; cloud link down | Disconnected |
//! | any | dead, round begun after the last renewal | Dead, until evidence of life |
//! | renewed after the verdict | dead | Isolated |
//! | stale | none, zone still reports (or never did) | Unknown |
//! | stale | none, the zone that used to report is silent, every member stale | Dark |
//!
//! The table is total, first match wins, and it is latched (hazard 16): *Dead* is left only on evidence of life, and
//! a verdict that ran out only pauses new irreversible steps. Where the watch is not proven live, or has not seen
//! enough to tell, the former state is held and nothing is acted upon (hazard 20).

use super::evidence::{Evidence, Lease, Reporting, Timing, WATCH_SILENCE_MS};
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::{Health, Link, NoVerdict, Verdict};
use std::fmt;

/// State of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// The kubelet renews its Lease: everything we added is removed.
    Healthy,
    /// The machine is up and its kubelet is not: stock behaviour and timing.
    KubeletDown,
    /// Cut off from the cloud while its neighbours vouch for it: nothing moves.
    Disconnected,
    /// Its neighbours confirmed its death.
    Dead(Dead),
    /// Its neighbours cannot reach it, the API server can: reported, never evicted.
    Isolated,
    /// No evidence either way: stock behaviour and timing.
    #[default]
    Unknown,
    /// The whole zone went silent: evictions are held for the policy's autonomy, then stock.
    Dark,
}

/// How far a death may be acted upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dead {
    /// Reversible steps only: the last renewal is too young, or was not watched for long enough.
    Announced,
    /// Irreversible steps too, each after one more look at the Lease and the Node.
    Confirmed,
    /// The verdict ran out, or its zone fell silent, without evidence of life: what was done stays, nothing irreversible is begun.
    Paused,
}

impl NodeState {
    /// The name that objects and people use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::KubeletDown => "KubeletDown",
            Self::Disconnected => "Disconnected",
            Self::Dead(_) => "Dead",
            Self::Isolated => "Isolated",
            Self::Unknown => "Unknown",
            Self::Dark => "Dark",
        }
    }

    /// Whether both are the same row of the table.
    pub fn same_row(self, other: Self) -> bool {
        self.name() == other.name()
    }
}

/// Why a node is in its state; reads as the rest of a sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// Nothing has been looked at yet.
    #[default]
    NotLookedAt,
    /// The watch of Leases is not proven live.
    WatchNotProven,
    /// The Lease was not watched for long enough.
    LeaseNotProven,
    /// The Lease is renewed.
    Renewing,
    /// A majority vouches for the node, and its kubelet or runtime has been broken for the grace time.
    KubeletBroken,
    /// A majority vouches for the node, and its agent reaches the API server while the kubelet does not renew.
    AgentReachesApi,
    /// A majority vouches for the node, and its agent has no link to the API server.
    LinkDown,
    /// The link is back, the kubelet has not noticed yet.
    LinkJustBack,
    /// A majority voted no.
    MajorityVotedDead,
    /// In a zone of two, the peer and the cloud side voted no.
    PeerAndCloudVotedDead,
    /// Dead before, and no evidence of life since, but the verdict ran out.
    VerdictRanOut,
    /// A majority cannot reach it, and its Lease is renewed.
    RenewedAfterVerdict,
    /// The Lease is stale and there is no verdict.
    NoVerdict(NoVerdict),
    /// The Lease is stale, a majority vouches for the node, and nobody says what is wrong.
    AliveWithoutCause,
    /// Nobody of the zone renews anything.
    ZoneSilent,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NotLookedAt => "not looked at yet",
            Self::WatchNotProven => "the watch of node Leases is not proven live; nothing is acted upon",
            Self::LeaseNotProven => "its Lease has not been watched for long enough; nothing is acted upon",
            Self::Renewing => "its Lease is renewed",
            Self::KubeletBroken => {
                "a majority of its zone vouches for it; its kubelet or container runtime is broken"
            }
            Self::AgentReachesApi => "its agent reaches the API server, its kubelet does not renew the Lease",
            Self::LinkDown => "a majority of its zone vouches for it; its link to the API server is down",
            Self::LinkJustBack => {
                "its link to the API server is back, its kubelet has not renewed the Lease yet"
            }
            Self::MajorityVotedDead => "a majority of its zone voted it dead after its last renewal",
            Self::PeerAndCloudVotedDead => "its only peer voted it dead, and its Lease stays unrenewed",
            Self::VerdictRanOut => "it was voted dead, gave no sign of life since, and the verdict ran out",
            Self::RenewedAfterVerdict => "a majority of its zone voted it dead, yet its Lease is renewed",
            Self::NoVerdict(why) => match why {
                NoVerdict::NotListed => "its Lease is stale, and its zone reports nothing unusual about it",
                NoVerdict::NotAMember => "its Lease is stale, and no agent of its zone watches it",
                NoVerdict::ZoneSilent => "its Lease is stale, and nobody reports for its zone",
                NoVerdict::Expired => "its Lease is stale, and the evidence that it lives ran out",
                NoVerdict::NoMajority => "its Lease is stale, and its zone has no majority either way",
                NoVerdict::Refused => "its Lease is stale, and its zone's report was refused",
            },
            Self::AliveWithoutCause => {
                "its Lease is stale, a majority vouches for it, and the cause is not known"
            }
            Self::ZoneSilent => {
                "its whole zone, which used to report, is silent, and every member's Lease is stale"
            }
        };
        f.write_str(text)
    }
}

/// What is remembered of a node from one decision to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// State as last decided.
    pub state: NodeState,
    /// When that state began.
    pub since: Millis,
    /// Start of the newest confirm round that found the node dead, until evidence of life.
    pub dead: Option<Millis>,
    /// Since when a majority has said without a break that kubelet or runtime is broken.
    pub broken_since: Option<Millis>,
    /// Since when the agent of a cut-off node has said without a break that its link is back.
    pub link_up_since: Option<Millis>,
}

impl Memory {
    /// What a controller that takes over knows of a node from its open incident.
    ///
    /// A latched death has no round of its own any more: any renewal seen from now on is evidence of life, and
    /// until a verdict arrives the death is paused.
    pub fn restored(state: &str, since: Millis) -> Self {
        let state = match state {
            "Dead" => NodeState::Dead(Dead::Paused),
            "Disconnected" => NodeState::Disconnected,
            "KubeletDown" => NodeState::KubeletDown,
            "Isolated" => NodeState::Isolated,
            "Dark" => NodeState::Dark,
            _ => NodeState::Unknown,
        };
        let dead = matches!(state, NodeState::Dead(_)).then_some(Millis(0));
        Self {
            state,
            since,
            dead,
            ..Self::default()
        }
    }
}

/// What was decided about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The state, with what to remember.
    pub memory: Memory,
    /// Why.
    pub reason: Reason,
    /// Nothing may be done about this node now: the state is only held.
    pub held: bool,
}

/// The decision table. Total: every evidence has an answer.
pub fn decide(evidence: &Evidence, memory: &Memory, timing: &Timing, now: Millis) -> Decision {
    let lease = evidence.life.lease(&evidence.watch, timing, now);
    let mut next = remember(evidence, memory, now);
    let (state, reason) = match row(evidence, &mut next, lease, timing, now) {
        Row::Decided(state, reason) => (state, reason),
        Row::Held(reason) => {
            return Decision {
                memory: Memory {
                    state: memory.state,
                    ..next
                },
                reason,
                held: true,
            };
        }
    };
    if !state.same_row(memory.state) || memory.since == Millis(0) {
        next.since = now;
    }
    next.state = state;
    Decision {
        memory: next,
        reason,
        held: false,
    }
}

enum Row {
    Decided(NodeState, Reason),
    Held(Reason),
}

fn row(evidence: &Evidence, next: &mut Memory, lease: Lease, timing: &Timing, now: Millis) -> Row {
    if evidence.watch.live_since(now).is_none() {
        return Row::Held(Reason::WatchNotProven);
    }
    let silent_long_enough = evidence
        .life
        .silent_for(&evidence.watch, now)
        .is_some_and(|silence| silence >= timing.confirm_after);
    if let Some((began, reason)) = confirm_round(evidence, silent_long_enough) {
        if evidence.life.seen_since(began) {
            next.dead = None;
            return Row::Decided(NodeState::Isolated, Reason::RenewedAfterVerdict);
        }
        let watched_since_before = evidence.life.known_since().is_some_and(|known| known < began);
        if watched_since_before || silent_long_enough || next.dead.is_some() {
            next.dead = Some(next.dead.map_or(began, |latched| latched.max(began)));
            if evidence.zone.reporting == Reporting::Silent {
                // Nobody could tell us any more that it lives: the last word stands, and starts nothing.
                return Row::Decided(NodeState::Dead(Dead::Paused), Reason::VerdictRanOut);
            }
            let phase = if silent_long_enough {
                Dead::Confirmed
            } else {
                Dead::Announced
            };
            return Row::Decided(NodeState::Dead(phase), reason);
        }
        return Row::Held(Reason::LeaseNotProven);
    }
    if next.dead.is_some() {
        return Row::Decided(NodeState::Dead(Dead::Paused), Reason::VerdictRanOut);
    }
    match (lease, evidence.verdict) {
        (Lease::Fresh, _) => Row::Decided(NodeState::Healthy, Reason::Renewing),
        (Lease::Unproven, _) => Row::Held(Reason::LeaseNotProven),
        (Lease::Stale, Verdict::Alive { cloud, .. }) => alive_but_stale(evidence, next, cloud, timing, now),
        // A dead verdict was handled above; it cannot come here.
        (Lease::Stale, Verdict::Dead { .. }) => Row::Held(Reason::LeaseNotProven),
        (Lease::Stale, Verdict::None(why)) => {
            // A node that no agent watches was never vouched for: it is stock, whatever its zone does.
            let member = why != NoVerdict::NotAMember;
            if member && evidence.zone.reporting == Reporting::Silent && !evidence.zone.some_member_fresh {
                Row::Decided(NodeState::Dark, Reason::ZoneSilent)
            } else {
                Row::Decided(NodeState::Unknown, Reason::NoVerdict(why))
            }
        }
    }
}

/// Start of the confirm round that condemns the node, if there is one.
fn confirm_round(evidence: &Evidence, silent_long_enough: bool) -> Option<(Millis, Reason)> {
    match evidence.verdict {
        Verdict::Dead { round_began } => Some((round_began, Reason::MajorityVotedDead)),
        // The cloud side votes no by the same rule that lets it act: silence of 1.5 renewal intervals, and no
        // renewal since the round began.
        Verdict::None(_) if silent_long_enough => evidence
            .one_short
            .filter(|round_began| !evidence.life.seen_since(*round_began))
            .map(|round_began| (round_began, Reason::PeerAndCloudVotedDead)),
        Verdict::None(_) | Verdict::Alive { .. } => None,
    }
}

fn alive_but_stale(evidence: &Evidence, next: &mut Memory, cloud: Link, timing: &Timing, now: Millis) -> Row {
    if next
        .broken_since
        .is_some_and(|since| now.since(since) >= timing.kubelet_grace)
    {
        return Row::Decided(NodeState::KubeletDown, Reason::KubeletBroken);
    }
    if reaches_api(evidence, cloud, now) {
        let waited = next
            .link_up_since
            .is_some_and(|since| now.since(since) >= timing.kubelet_grace);
        if next.state == NodeState::Disconnected && !waited {
            return Row::Decided(NodeState::Disconnected, Reason::LinkJustBack);
        }
        return Row::Decided(NodeState::KubeletDown, Reason::AgentReachesApi);
    }
    if cloud == Link::Down {
        return Row::Decided(NodeState::Disconnected, Reason::LinkDown);
    }
    Row::Decided(NodeState::Unknown, Reason::AliveWithoutCause)
}

/// Whether the node's own agent reaches the API server: by its word to its peers, or by a write that we saw.
fn reaches_api(evidence: &Evidence, cloud: Link, now: Millis) -> bool {
    let wrote = evidence.agent_write.is_some_and(|at| {
        now.since(at) < WATCH_SILENCE_MS && evidence.life.renewed.is_none_or(|renewed| at > renewed)
    });
    cloud == Link::Up || wrote
}

/// Carries the latches over: how long things have lasted, and whether a death still stands.
fn remember(evidence: &Evidence, memory: &Memory, now: Millis) -> Memory {
    let mut next = *memory;
    match evidence.verdict {
        Verdict::Alive {
            cloud,
            kubelet,
            runtime,
        } => {
            let broken = kubelet == Health::Failing || runtime == Health::Failing;
            next.broken_since = broken.then(|| memory.broken_since.unwrap_or(now));
            let up = reaches_api(evidence, cloud, now);
            next.link_up_since = up.then(|| memory.link_up_since.unwrap_or(now));
            // A majority in fresh contact with the node's own agent is evidence of life.
            next.dead = None;
        }
        Verdict::None(_) | Verdict::Dead { .. } => {
            next.broken_since = None;
            next.link_up_since = None;
        }
    }
    if next.dead.is_some_and(|began| evidence.life.seen_since(began)) {
        next.dead = None;
    }
    next
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
