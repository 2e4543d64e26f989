//! What goes into the engine, and what comes out of it.

use crate::keys::Signer;
use crate::roster::{MemberId, Roster};
use crate::verdict::Health;
use crate::wire::{Challenge, Datagram, EdgeState, Nonce, Renewal};
pub use evenkeel_api::zone::ReportDraft;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// What the caller reports to the engine.
#[derive(Debug)]
pub enum Input<'a> {
    /// A datagram arrived from this address.
    Datagram(&'a [u8], SocketAddr),
    /// The deadline is reached. A call that comes too early does nothing.
    Tick,
    /// State of the node's own kubelet and runtime.
    Facts {
        /// Whether the kubelet answers.
        kubelet: Health,
        /// Whether the container runtime answers.
        runtime: Health,
    },
    /// The API server answered just now.
    CloudContact,
    /// Result of an [`Output::Check`].
    Checked {
        /// For whom and which round it was made.
        asked: Question,
        /// The member that was checked.
        suspect: MemberId,
        /// What the check plugins found.
        result: CheckResult,
    },
    /// The roster that ZoneHealth shows. It counts where it is later than the one in force; where it is
    /// earlier, and stays so, the API server was restored from a backup.
    Roster(Arc<Roster>),
    /// What the controller asks of the cell, in full: this replaces what it asked before.
    Challenge {
        /// What ballots have to sign.
        challenge: Challenge,
        /// The members about which it needs rounds.
        wanted: BTreeSet<MemberId>,
    },
    /// The roster of another cell of the zone that [`Output::Follow`] names, as the API server shows it.
    OtherRoster {
        /// Number of the cell.
        cell: u32,
        /// Its roster.
        roster: Arc<Roster>,
    },
    /// What the controller asks of such a cell, in full.
    OtherChallenge {
        /// Number of the cell.
        cell: u32,
        /// What ballots have to sign.
        challenge: Challenge,
        /// The members about which it needs rounds.
        wanted: BTreeSet<MemberId>,
    },
    /// What became of an [`Output::Carry`].
    CarriedWritten {
        /// Number of the cell.
        cell: u32,
        /// Of the report.
        sequence: i64,
        /// The API server took the write.
        written: bool,
    },
    /// Result of an [`Output::ReadOtherLease`].
    OtherLeaseRead {
        /// Number of the cell.
        cell: u32,
        /// Whose Lease was read.
        member: MemberId,
        /// The Lease's last renewal; nothing where it could not be read.
        renewal: Option<Renewal>,
    },
    /// Result of an [`Output::ReadLease`].
    LeaseRead {
        /// Whose Lease was read.
        member: MemberId,
        /// The Lease's last renewal; nothing where it could not be read.
        renewal: Option<Renewal>,
    },
    /// This agent's keys from now on: the one that it proves with what it says, and its next or former one,
    /// by which others may still prove what they say to it.
    Keys {
        /// The key.
        key: Arc<dyn Signer>,
        /// The other one.
        other: Option<Arc<dyn Signer>>,
    },
    /// Checks are made in another way from now on: each member is checked anew.
    ChecksChanged,
    /// What became of an [`Output::Report`].
    ReportWritten {
        /// The API server took the write.
        written: bool,
    },
    /// Whether this agent holds the cell's Lease.
    Leading(bool),
    /// What became of an [`Output::ProveLink`].
    LinkProof {
        /// The API server took the write.
        written: bool,
    },
    /// What became of an [`Output::Acknowledge`].
    Acknowledged {
        /// The API server took the write.
        written: bool,
    },
}

/// Who asks for a look at suspects, and in which round. Another member can repeat a request as its own: it
/// gets a look of its own, and what comes of that changes no answer to the one who made the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The member that asks.
    pub asker: MemberId,
    /// The name that it has given the round.
    pub round: Nonce,
}

/// What the check plugins say of a suspect's kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// It answered as that node: with the pinned certificate.
    Identity,
    /// Nothing answered in time.
    Failed,
    /// Something answered without proving to be that node, or actively refused: somebody is there (hazard
    /// 10).
    Inconclusive,
    /// There is nothing that could be checked.
    Unavailable,
}

/// What the engine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send a datagram.
    Send {
        /// The member it is for.
        to: MemberId,
        /// Where it was last reached, or shall be looked for.
        address: SocketAddr,
        /// The datagram.
        bytes: Datagram,
    },
    /// Run the check plugins against a member and come back with [`Input::Checked`].
    Check {
        /// To be returned with the result.
        asked: Question,
        /// The member to check.
        suspect: MemberId,
        /// Milliseconds after which the result is of no use.
        within_ms: u64,
    },
    /// Read a member's node Lease from the API server, past any cache, and come back with
    /// [`Input::LeaseRead`].
    ReadLease(MemberId),
    /// Write this to the agent's own ZoneReport, whatever stands there, and come back with
    /// [`Input::ReportWritten`].
    Report(Box<ReportDraft>),
    /// Follow ZoneHealth and ZoneChallenge of these cells of the zone, and of no others but the agent's own:
    /// come with [`Input::OtherRoster`] and [`Input::OtherChallenge`] as they are, and whenever they change.
    Follow(BTreeSet<u32>),
    /// Write this to this agent's ZoneReport of another cell, and come back with
    /// [`Input::CarriedWritten`].
    Carry {
        /// Number of the cell.
        cell: u32,
        /// The report.
        draft: Box<ReportDraft>,
    },
    /// Read the Lease of a node of another cell from the API server, past any cache, and come back with
    /// [`Input::OtherLeaseRead`].
    ReadOtherLease {
        /// Number of the cell.
        cell: u32,
        /// To be returned with the result.
        member: MemberId,
        /// Name of the node.
        node: String,
    },
    /// Write this agent's own AgentStatus, past any cache and so that the object changes, and come back with
    /// [`Input::LinkProof`].
    ProveLink,
    /// Write into this agent's own AgentStatus which roster it has in force and how many of the other members
    /// it has met, and come back with [`Input::Acknowledged`].
    Acknowledge {
        /// Version of the roster.
        version: u64,
        /// Members that have proven their life to this agent.
        met: usize,
        /// How many of these have a vote.
        met_voters: usize,
    },
    /// Remember this roster across restarts: another member passed it on, and it is in force.
    Roster(Arc<Roster>),
    /// Stand for the cell's Lease, or release it.
    Stand(bool),
    /// This agent is one of those that report as soon as they have a link, or no longer. While it has none,
    /// it must be back soon after the cut, because nobody else may hold the evidence.
    Ranked(bool),
    /// Remember across restarts whom the agent has met: [`Engine::met`](super::Engine::met) has changed.
    Met,
    /// A line for the log.
    Note(Note),
    /// A datagram was refused; the reason is for metrics.
    Refused(&'static str),
}

/// Something worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The edge to a subject changed.
    Edge {
        /// Name of the subject's node.
        subject: String,
        /// The state that it has now.
        state: EdgeState,
    },
    /// A subject became a suspect.
    Suspect {
        /// Name of the subject's node.
        subject: String,
        /// Live observers that have lost contact.
        down: usize,
        /// All live observers.
        live: usize,
    },
    /// A confirm round ended.
    Round {
        /// Name of the subject's node.
        subject: String,
        /// The outcome in words.
        outcome: &'static str,
        /// Votes yes, no, abstain.
        votes: (usize, usize, usize),
        /// Members of the roster.
        of: usize,
    },
    /// This process did not run for so many milliseconds.
    Paused(u64),
    /// This agent began or ceased to doubt its own view.
    Doubt(bool),
    /// A peer knows a newer roster.
    NewerRoster(u64),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Edge { subject, state } => write!(f, "edge to {subject} is {state:?}"),
            Self::Suspect { subject, down, live } => {
                write!(f, "{subject} is suspect: {down} of {live} live observers lost it")
            }
            Self::Round {
                subject,
                outcome,
                votes: (yes, no, abstain),
                of,
            } => {
                write!(
                    f,
                    "confirm round on {subject}: {outcome} ({yes} yes, {no} no, {abstain} abstain of {of})"
                )
            }
            Self::Paused(ms) => write!(
                f,
                "this process did not run for {ms} ms: its votes have no weight for a while"
            ),
            Self::Doubt(true) => f.write_str("half of the zone or more is out of reach: accusing nobody"),
            Self::Doubt(false) => f.write_str("more than half of the zone is within reach"),
            Self::NewerRoster(version) => write!(f, "a peer has roster version {version}"),
        }
    }
}
