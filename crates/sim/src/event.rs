//! What happens in a run, and what is asked of the API server.

use crate::api::objects::Object;
use evenkeel_api::watch::Key;
use evenkeel_api::zone::{Report, RosterAcknowledgement};
use evenkeel_failover_rules::planner::action::Action;
use evenkeel_failover_rules::world::{Kind, LastSigns};
use evenkeel_zone::engine::{CheckResult, Question};
use evenkeel_zone::roster::MemberId;
use evenkeel_zone::wire::Renewal;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Index of a zone, and number of a cell in it.
pub(crate) type CellKey = (usize, u32);

/// Something that happens at its time. `life` counts the lives of a process; an event for a former life is
/// dropped.
#[derive(Debug)]
pub(crate) enum Event {
    /// A step of the script begins or ends.
    Step { index: usize, begins: bool },
    /// A datagram arrives.
    Datagram { from: usize, to: usize, payload: u32 },
    /// An event of an agent that is slow: it is its turn now.
    Late(Box<Event>),
    /// Something of an agent is due.
    Agent { node: usize, life: u64, due: AgentDue },
    /// Something of a kubelet is due.
    Kubelet { node: usize, life: u64, due: KubeletDue },
    /// Something of a replica is due.
    Replica {
        replica: usize,
        life: u64,
        due: ReplicaDue,
    },
    /// Something of the stock controllers is due.
    Stock { life: u64, due: StockDue },
    /// A request arrives at the API server.
    Arrive { from: Source, call: Call, sent: u64 },
    /// An answer arrives.
    Answer { to: Source, reply: Reply },
    /// A watch delivers.
    Deliver {
        watch: usize,
        epoch: u64,
        delivery: Delivery,
    },
    /// A watch is begun anew.
    Connect { watch: usize, epoch: u64 },
    /// The keeper of rosters publishes a cell's roster, in a run of zones alone.
    Roster(CellKey),
    /// The reader asks for rounds about the members of a cell that it holds dead, in a run of zones alone.
    Wanted(CellKey),
    /// Ballots of a cell have to sign another challenge, in a run of zones alone.
    Challenge(CellKey),
    /// A hostile member does what it does by itself.
    Hostile { node: usize },
    /// Somebody looks whether all promises are kept.
    Check,
}

#[derive(Clone, Debug)]
pub(crate) enum AgentDue {
    Tick,
    /// Begins to watch the objects of its cell; numbers are of connections.
    Follow(u64),
    Ping(u64),
    /// Its watch delivers.
    Sees(u64, Rc<Object>),
    /// Begins to watch another cell, or its watch of it delivers.
    FollowOther(u32),
    SeesOther(u32, Rc<Object>),
    Lease,
    OwnKubelet,
    Register,
    Checked(Question, MemberId, CheckResult),
    Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KubeletDue {
    Renew,
    Status,
    Pods,
    Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaDue {
    Tick,
    Gathered,
    Lease,
    Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StockDue {
    Pass,
    Taints,
    Evictions,
    Start,
}

/// Who asks, in which life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Agent(usize, u64),
    Kubelet(usize, u64),
    Replica(usize, u64),
}

/// A try to hold a Lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTry {
    pub(crate) name: String,
    pub(crate) me: String,
    /// The Lease as it stood when it ran out, by the candidate's own clock.
    pub(crate) expired: Option<LeaseSeen>,
    /// Give it back instead.
    pub(crate) release: bool,
}

/// Holder and `renewTime`.
pub(crate) type LeaseSeen = (String, Option<Timestamp>);

/// A step of an action.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub(crate) action: Box<Action>,
    pub(crate) signs: LastSigns,
    pub(crate) phase: Phase,
}

/// How far an action got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing was read.
    Begin,
    /// The consistent read found the node silent, at this version.
    Silent(Option<String>),
    /// The condition that says why was written.
    ReasonWritten,
}

#[derive(Debug)]
pub(crate) enum Call {
    /// Watches ZoneHealth and ZoneChallenge of the agent's cell.
    WatchCell {
        epoch: u64,
    },
    /// On a connection that stands: no request of the API.
    Ping {
        epoch: u64,
    },
    ReadLease(MemberId),
    /// Watches ZoneHealth and ZoneChallenge of another cell of the agent's zone.
    WatchOther {
        cell: u32,
    },
    ReadOtherLease {
        cell: u32,
        member: MemberId,
    },
    Publish(Box<Report>),
    /// Writes a report for another cell.
    Carry {
        cell: u32,
        sequence: i64,
        report: Box<Report>,
    },
    ProveLink {
        count: Option<i64>,
    },
    /// Says which roster the agent has in force.
    Acknowledge(RosterAcknowledgement),
    /// Says who the agent is: version, address and key.
    Register,
    Lease(LeaseTry),
    RenewNodeLease,
    PostStatus,
    SyncPods,
    Audit(Kind),
    Act(Act),
}

#[derive(Debug)]
pub(crate) enum Reply {
    /// ZoneHealth and ZoneChallenge as they stand.
    Cell(u64, [Option<Rc<Object>>; 2]),
    Pong(u64),
    Registered,
    LeaseRead(MemberId, Renewal),
    OtherCell(u32, [Option<Rc<Object>>; 2]),
    OtherLeaseRead(u32, MemberId, Renewal),
    CarriedWritten(u32, i64),
    /// A report was written.
    Published,
    Proven(i64),
    Acknowledged,
    Lease {
        held: bool,
        seen: LeaseSeen,
        sent: u64,
    },
    Renewed {
        sent: u64,
    },
    Done(&'static str),
    Versions(Kind, BTreeMap<Key, String>),
    Acted(Act, Acted),
    /// No answer, or none from the API server.
    Lost(Box<Call>),
}

/// What became of a step of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acted {
    Next(Phase),
    Done,
    Stale,
    Refused,
}

/// What a watch delivers; numbers are versions.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    Put(u64, Rc<Object>),
    Gone(u64, Key),
    Listed(u64, BTreeSet<Key>),
    Broken,
}

impl Call {
    /// The same question without its contents, for the notice to the asker that there is no answer.
    pub(crate) fn husk(&self) -> Self {
        match self {
            Self::WatchCell { epoch } => Self::WatchCell { epoch: *epoch },
            Self::Ping { epoch } => Self::Ping { epoch: *epoch },
            Self::ReadLease(member) => Self::ReadLease(*member),
            Self::WatchOther { cell } => Self::WatchOther { cell: *cell },
            Self::ReadOtherLease { cell, member } => Self::ReadOtherLease {
                cell: *cell,
                member: *member,
            },
            Self::Publish(_) => Self::Publish(Box::default()),
            Self::Carry { cell, sequence, .. } => Self::Carry {
                cell: *cell,
                sequence: *sequence,
                report: Box::default(),
            },
            Self::ProveLink { count } => Self::ProveLink { count: *count },
            Self::Acknowledge(acknowledged) => Self::Acknowledge(acknowledged.clone()),
            Self::Register => Self::Register,
            Self::Lease(attempt) => Self::Lease(attempt.clone()),
            Self::RenewNodeLease => Self::RenewNodeLease,
            Self::PostStatus => Self::PostStatus,
            Self::SyncPods => Self::SyncPods,
            Self::Audit(kind) => Self::Audit(*kind),
            Self::Act(act) => Self::Act(act.clone()),
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::WatchCell { .. }
                | Self::WatchOther { .. }
                | Self::Ping { .. }
                | Self::ReadLease(_)
                | Self::ReadOtherLease { .. }
                | Self::Audit(_)
        )
    }

    /// Requests of an agent that it stands for. Candidates for a Lease watch it: only who holds it asks.
    pub(crate) fn requests(&self) -> u64 {
        match self {
            Self::Ping { .. } | Self::Lease(_) => 0,
            Self::WatchCell { .. } | Self::WatchOther { .. } | Self::Register => 2,
            _ => 1,
        }
    }
}
