//! The states of a node, and why a node is in one.

use evenkeel_zone::verdict::NoVerdict;
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
    /// Its neighbours voted it dead, and it gave no sign of life since.
    Dead(Dead),
    /// Its neighbours cannot reach it, the API server can: reported, never evicted before stock time.
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
    /// One round of votes: reversible steps only.
    Announced,
    /// A second round, far enough from the first, found it dead too, and its Lease has been silent for long
    /// enough: irreversible steps as well, each after one more look at the Lease and the Node.
    Confirmed,
    /// Reversible steps now; evicted when stock Kubernetes evicts, never sooner.
    AtStockPace,
    /// Nobody could tell us any more that it lives. What was done stays, nothing new is begun.
    Paused,
}

impl NodeState {
    /// Every state, for metrics and for reading.
    pub const ALL: [Self; 10] = [
        Self::Healthy,
        Self::KubeletDown,
        Self::Disconnected,
        Self::Dead(Dead::Announced),
        Self::Dead(Dead::Confirmed),
        Self::Dead(Dead::AtStockPace),
        Self::Dead(Dead::Paused),
        Self::Isolated,
        Self::Unknown,
        Self::Dark,
    ];

    /// The name that objects and people use: the row of the decision table.
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

    /// The name with the phase of a death.
    pub fn label(self) -> &'static str {
        match self {
            Self::Dead(Dead::Announced) => "Dead, announced",
            Self::Dead(Dead::Confirmed) => "Dead, confirmed",
            Self::Dead(Dead::AtStockPace) => "Dead, at stock pace",
            Self::Dead(Dead::Paused) => "Dead, paused",
            other => other.name(),
        }
    }

    /// Reads [`NodeState::label`]; a name alone (as former versions wrote it) reads as the most careful
    /// phase.
    pub fn parse(text: &str) -> Option<Self> {
        let exact = Self::ALL.into_iter().find(|state| state.label() == text);
        exact.or_else(|| (text == "Dead").then_some(Self::Dead(Dead::Paused)))
    }

    /// Whether both are the same row of the table.
    pub fn same_row(self, other: Self) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Why a death is not accelerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// Its Lease was stale already when the first round found it dead: it was cut off, and a cut-off node
    /// that stalls looks like a dead one (hazard 36).
    LeaseWasStale,
    /// It was Isolated: its peers could not reach it before either (hazard 38).
    WasIsolated,
    /// Its zone has two members: one peer and this controller are no majority of the zone (hazard 13).
    Pair,
    /// Several cells of its zone convicted members at once: the zone may be split, and each side may hold the
    /// majority of some cell (hazard 42).
    SeveralCells,
    /// Members of other cells fell silent with it, and their cells did not say why: its own cell may be on
    /// the smaller side of a split, and the only one that is heard (hazard 42).
    OthersSilent,
    /// Most of its cell booted shortly before, and it had not been back for long enough: after a power cut
    /// some machines come back later than others, or not at the first attempt (hazard 43).
    Returning,
    /// It was found dead several times in the last minutes, and came back each time (hazard 14).
    Flapping,
}

impl Slow {
    /// As objects hold it; reads as the rest of a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::LeaseWasStale => "its Lease was stale already when its peers first lost it",
            Self::WasIsolated => "it was Isolated before",
            Self::Pair => "its zone has only two members",
            Self::OthersSilent => "nodes of other cells fell silent with it, and their cells did not say why",
            Self::SeveralCells => "several cells of its zone convicted members at once, as in a split",
            Self::Returning => {
                "most of its neighbours booted shortly before, and it was not back for a minute"
            }
            Self::Flapping => "it was found dead several times in the last minutes",
        }
    }

    /// Reads [`Slow::text`]; another text reads as the first reason, since any of them forbids the same.
    pub fn parse(text: &str) -> Option<Self> {
        let known = [
            Self::LeaseWasStale,
            Self::WasIsolated,
            Self::Pair,
            Self::SeveralCells,
            Self::OthersSilent,
            Self::Returning,
            Self::Flapping,
        ];
        let exact = known.into_iter().find(|slow| slow.text() == text);
        exact.or((!text.is_empty()).then_some(Self::LeaseWasStale))
    }
}

/// Why a node is in its state; reads as the rest of a sentence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// Nothing has been looked at yet.
    #[default]
    NotLookedAt,
    /// Some watch is not proven live.
    Blind,
    /// The Lease was not watched for long enough.
    LeaseNotProven,
    /// A round names a renewal of the Lease that we have not seen.
    RenewalNotSeen,
    /// The Lease is renewed.
    Renewing,
    /// A majority vouches for the node, and its kubelet or runtime has been broken for the grace time.
    KubeletBroken,
    /// A majority vouches for the node, and its agent reaches the API server while the kubelet does not
    /// renew.
    AgentReachesApi,
    /// A majority vouches for the node, whose Lease is stale.
    VouchedFor,
    /// This replica has just started, and the node was Disconnected before.
    VouchedForBefore,
    /// A majority vouches for a node that was dead; its Lease was not watched for long enough.
    VouchedForAgain,
    /// A majority voted no.
    VotedDead,
    /// A majority voted no twice, far enough apart.
    VotedDeadTwice,
    /// A majority voted no; its eviction is not accelerated.
    VotedDeadSlowly(Slow),
    /// Dead before, and no evidence of life since, but nobody reports any more.
    NobodyReports,
    /// A majority cannot reach it, and its Lease is renewed.
    RenewedAfterVerdict,
    /// The Lease is stale and there is no verdict.
    NoVerdict(NoVerdict),
    /// The evidence that it lives ran out.
    EvidenceRanOut,
    /// Nobody of the zone renews anything.
    ZoneSilent,
    /// The zone was Dark, and silence is being counted anew.
    ZoneSilentBefore,
    /// The zone was Dark, others of it are back, and nothing was heard of this node yet.
    ZoneReturns,
    /// The leading replica says so.
    LeaderSays,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NotLookedAt => "not looked at yet",
            Self::Blind => {
                "the watch of node Leases or of ZoneHealth is not proven live; nothing is done that could harm a node"
            }
            Self::LeaseNotProven => "its Lease has not been watched for long enough; nothing is acted upon",
            Self::RenewalNotSeen => {
                "a majority of its zone voted it dead after a renewal of its Lease that has not been seen here yet"
            }
            Self::Renewing => "its Lease is renewed",
            Self::KubeletBroken => {
                "a majority of its zone vouches for it; its kubelet or container runtime is broken"
            }
            Self::AgentReachesApi => "its agent reaches the API server, its kubelet does not renew the Lease",
            Self::VouchedFor => "its Lease is stale, and a majority of its zone vouches for it",
            Self::VouchedForBefore => {
                "it was Disconnected when this controller started, and new evidence is still awaited"
            }
            Self::VouchedForAgain => {
                "it was dead, and a majority of its zone vouches for it again; its Lease has not been watched for long enough"
            }
            Self::VotedDead => "a majority of its zone voted it dead after its last renewal",
            Self::VotedDeadTwice => {
                "a majority of its zone voted it dead in two rounds, and its Lease stays unrenewed"
            }
            Self::VotedDeadSlowly(slow) => {
                return write!(
                    f,
                    "its zone voted it dead; its pods are evicted no sooner than by stock Kubernetes, because {}",
                    slow.text()
                );
            }
            Self::NobodyReports => {
                "it was voted dead, gave no sign of life since, and nobody reports any more"
            }
            Self::RenewedAfterVerdict => {
                "a majority of its zone voted it dead, yet it writes to the API server"
            }
            Self::NoVerdict(why) => match why {
                NoVerdict::NotListed => "its Lease is stale, and its zone reports nothing about it",
                NoVerdict::NotAMember => "its Lease is stale, and no agent of its zone watches it",
                NoVerdict::Void => "its Lease is stale, and its zone has not been seen to report yet",
                NoVerdict::NoMajority => "its Lease is stale, and its zone has no majority either way",
                NoVerdict::Refused => "its Lease is stale, and its zone's report was refused",
                NoVerdict::OtherChallenge => {
                    "its Lease is stale, and its zone's votes do not answer the present challenge"
                }
            },
            Self::EvidenceRanOut => "its Lease is stale, and the evidence that it lives ran out",
            Self::ZoneSilent => {
                "its whole zone, which used to report, is silent, and every member's Lease is stale"
            }
            Self::ZoneSilentBefore => {
                "its whole zone was silent before this controller started or lost sight, and nothing was seen of it since"
            }
            Self::ZoneReturns => {
                "its whole zone was silent, others of it are back for less than 20 s, and nothing was heard of it yet"
            }
            Self::LeaderSays => "the leading controller says so",
        };
        f.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_read_back_and_former_names_read_as_the_most_careful_phase() {
        for state in NodeState::ALL {
            assert_eq!(NodeState::parse(state.label()), Some(state));
        }
        assert_eq!(NodeState::parse("Dead"), Some(NodeState::Dead(Dead::Paused)));
        assert_eq!(NodeState::parse("Sleeping"), None);
    }

    #[test]
    fn reasons_for_the_stock_pace_read_back_and_an_unknown_one_forbids_the_same() {
        for slow in [
            Slow::LeaseWasStale,
            Slow::WasIsolated,
            Slow::Pair,
            Slow::SeveralCells,
            Slow::Returning,
            Slow::Flapping,
        ] {
            assert_eq!(Slow::parse(slow.text()), Some(slow));
        }
        assert_eq!(Slow::parse(""), None);
        assert_eq!(Slow::parse("of another version"), Some(Slow::LeaseWasStale));
    }
}
