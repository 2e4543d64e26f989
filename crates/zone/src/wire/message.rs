//! The kinds of datagrams and their fields.

use super::challenge::{Challenge, Renewal};
use super::codec::{Reader, Writer};
use super::{WireError, fields};
use crate::keys;
use crate::roster::{MemberId, RosterRef};
use crate::verdict::{Health, Link};
use crate::vote::Vote;
use evenkeel_api::zone::VerdictKind;
use std::net::SocketAddr;

/// The kind of answers to heartbeats.
pub(super) const ACK: u8 = 2;

/// Longest list in a datagram; longer ones are refused.
pub const MAX_LIST: usize = 64;
/// Most suspects of one request: a whole cell, which fits into a datagram of 1,200 bytes.
pub const MAX_SUSPECTS: usize = 64;
/// Most bytes of a roster or a report in one datagram.
pub const PART: usize = 1_024;
/// Most agents that one referral names.
pub const MAX_REFERRED: usize = 6;
/// Kinds from this one on are signed, so that anybody can check them. The others carry a code that only the
/// member can check to which they are sent.
pub(super) const SIGNED: u8 = 128;
/// The kind of [`HandOver`]. This one and those up to [`RenewalsRead`] pass between cells.
pub(super) const HAND_OVER: u8 = 9;
/// The last kind that passes between cells.
pub(super) const LAST_BETWEEN_CELLS: u8 = 15;

/// Random number that names a round of votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub [u8; 16]);

/// First fields of every body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The member that wrote it.
    pub from: MemberId,
    /// The member it is meant for.
    pub to: MemberId,
    /// Random number of the sender's present life.
    pub incarnation: u64,
    /// Grows with every datagram of the sender, also across its lives.
    pub sequence: u64,
}

/// A datagram's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The fields that every datagram has.
    pub header: Header,
    /// The fields of its kind.
    pub body: Body,
}

/// The kinds of datagrams, each with its number. 16 to 23 and 144 to 151 are reserved for the lease by which
/// a node proves to itself that it may run what must not run twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// 1: asks a peer for an answer, and says how the sender's node is.
    Heartbeat(Heartbeat),
    /// 2: answers a heartbeat.
    Ack(Ack),
    /// 3: asks a peer to pass on a datagram to a third member.
    Relay(Relay),
    /// 4: reports the sender's subjects, as far as they are not plainly well.
    Edges(Edges),
    /// 5: asks a member for its votes on suspects.
    Confirm(ConfirmRequest),
    /// 6: tells the other reporters what the sender has written to its report.
    Published(Published),
    /// 7: asks for the newer roster that an agent has.
    RosterAsked(PartAsked),
    /// 8: a part of a roster as it was published.
    RosterPart(Part),
    /// 9: offers an agent of another cell what the sender's cell reports.
    HandOver(HandOver),
    /// 10: says to who hands over what has been written for it, and what the controller asks of its cell.
    Carried(Carried),
    /// 11: names agents that may have a link, to who asked one that carries no more.
    Referral(Referral),
    /// 12: asks who hands over for its report.
    ReportAsked(PartAsked),
    /// 13: a part of a report.
    ReportPart(Part),
    /// 14: asks who carries for the last renewals of members' Leases.
    RenewalsAsked(RenewalsAsked),
    /// 15: the last renewals of members' Leases.
    RenewalsRead(RenewalsRead),
    /// 24: answers a request, since version 3.1.
    Voted(Voted),
    /// 128: answers a request; the signed datagram is the evidence that readers check.
    Ballot(Ballot),
}

/// What an agent says of its own node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its link to the API server.
    pub cloud: Link,
    /// Whether its kubelet answers.
    pub kubelet: Health,
    /// Whether its container runtime answers.
    pub runtime: Health,
}

/// Asks a peer for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Version of the sender's roster.
    pub roster: u64,
    /// 0 if the sender trusts its own view; any other value if it does not, so that it accuses nobody.
    pub doubt: u8,
    /// Of the sender's node.
    pub facts: Facts,
    /// Tenths of a second since the sender last reached the API server, saturating.
    pub cloud_age: u16,
    /// The member through which the answer goes back; [`MemberId::NOBODY`] if it goes directly.
    pub via: MemberId,
}

/// Answer to a heartbeat; echoing the asker's own fresh numbers proves that it is no replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Incarnation of the heartbeat.
    pub echo_incarnation: u64,
    /// Sequence of the heartbeat.
    pub echo_sequence: u64,
    /// Version of the sender's roster.
    pub roster: u64,
    /// As in [`Heartbeat`].
    pub doubt: u8,
    /// Of the sender's node.
    pub facts: Facts,
    /// As in [`Heartbeat`].
    pub cloud_age: u16,
}

/// A datagram to be passed on unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relay {
    /// The member it is for.
    pub target: MemberId,
    /// The datagram.
    pub inner: Vec<u8>,
}

/// The answer to a request: a signed ballot of the sender. The receiver checks the code first, so that who
/// has no key of the cell cannot have it check signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voted {
    /// The datagram of kind 128.
    pub ballot: Vec<u8>,
}

/// State of the edge from an observer to a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EdgeState {
    /// The subject answers directly.
    #[default]
    Up,
    /// The subject answers only through other members.
    Degraded,
    /// The subject's own datagrams arrive, but it does not answer ours.
    OneWay,
    /// The subject does not answer, neither directly nor through others, and sends nothing.
    Down,
}

/// What an observer sees of one subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// The member that is watched.
    pub subject: MemberId,
    /// Whether it answers.
    pub state: EdgeState,
    /// What the subject last said of itself.
    pub facts: Facts,
}

/// What an observer sees of those subjects that are not plainly well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// As in [`Heartbeat`].
    pub doubt: u8,
    /// At most [`MAX_LIST`].
    pub edges: Vec<Edge>,
}

/// A reporter asks for votes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfirmRequest {
    /// Name of the round.
    pub round: Nonce,
    /// Roster the round is held under.
    pub roster: RosterRef,
    /// The newest challenge that the asker knows. A voter signs it and need not know it.
    pub challenge: Challenge,
    /// Milliseconds after which an answer is of no use.
    pub budget: u16,
    /// At most [`MAX_SUSPECTS`].
    pub suspects: Vec<Suspect>,
    /// Fields that a later version appended, as they came: they are part of what ballots sign.
    pub later: Vec<u8>,
}

/// A member that a round is held about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suspect {
    /// The member.
    pub member: MemberId,
    /// The last renewal of its Lease, as the asker read it just before the round. Without a reading votes
    /// of no count as abstentions, because the node may have renewed since.
    pub renewal: Option<Renewal>,
}

/// What a voter says of a suspect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// The voter cannot tell; this counts for neither side.
    #[default]
    Abstain,
    /// It lives: its agent or its kubelet answered with its identity.
    Yes,
    /// It was seen alive before, and now neither agent nor kubelet answers.
    No,
}

/// A voter's answer to one request: about all suspects, under one signature. The signed datagram is the
/// evidence that readers check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ballot {
    /// Digest of the request that it answers.
    pub request: RequestDigest,
    /// Roster of the voter.
    pub roster: RosterRef,
    /// For how many seconds the voter's machine has been up, saturating.
    pub uptime: u16,
    /// At most one of each suspect.
    pub said: Vec<Said>,
}

/// What a ballot says of one suspect: 4 bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Position of the suspect in the request.
    pub index: u8,
    /// The vote.
    pub answer: Answer,
    /// Milliseconds between the last contact that proved the suspect's identity (a datagram of its agent, or
    /// its kubelet's pinned certificate) and this vote. A voter whose present life had no such contact states
    /// for how long it has been listening for one, which is at most the time since its agent started. 0 in
    /// the suspect's own voice. The wire carries tenths of a second up to 109 minutes, rounded so that
    /// nothing follows that was not so: up with a yes, which a fresh contact makes count, and down else.
    pub contact_age: u32,
    /// What the suspect says of itself, and the voter's check of its kubelet.
    pub facts: Facts,
}

/// What a reporter has written to its report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// At most [`MAX_LIST`].
    pub verdicts: Vec<PublishedVerdict>,
}

/// What a reporter has written about one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishedVerdict {
    /// The member.
    pub subject: MemberId,
    /// What is written.
    pub kind: VerdictKind,
}

/// Asks for a roster or a report, from a place in its bytes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartAsked {
    /// Version of the roster, where a later one will do, or number of the report.
    pub version: u64,
    /// The first byte that is missing.
    pub offset: u32,
}

/// A part of a signed roster (the bytes of its signature and its text, one after the other) or of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Version of the roster, or number of the report.
    pub version: u64,
    /// Bytes of the whole.
    pub length: u32,
    /// Where this part begins.
    pub offset: u32,
    /// At most [`PART`].
    pub bytes: Vec<u8>,
}

/// Offers what a cell reports. The datagram is as long as the longest referral: an answer is no longer than
/// what it answers, so that nobody can have more sent to somebody else than he sends himself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandOver {
    /// Public key of the sender, under which its code was made. It counts where the cell's roster, as the
    /// API server shows it, has it.
    pub key: [u8; 32],
    /// Number of the sender's cell in its zone.
    pub cell: u32,
    /// Number of the report that is to be written: grows within a life of the sender.
    pub report: u64,
    /// Milliseconds since the report was drafted.
    pub age_ms: u32,
    /// Another reporter of the cell has somebody who writes for it.
    pub spare: bool,
}

/// What an agent does for a cell without a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Incarnation of the agent to whom this is said: numbers of reports begin anew with each life.
    pub incarnation: u64,
    /// Number of the last report of this sender that was written; 0 for none.
    pub written: u64,
    /// Version of the cell's roster as the API server shows it.
    pub roster: u64,
    /// What ballots have to sign; [`Challenge::NONE`] if that is not known yet.
    pub challenge: Challenge,
    /// Members about which the controller needs rounds. At most [`MAX_LIST`].
    pub wanted: Vec<MemberId>,
}

/// Agents that may carry, or know who does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referral {
    /// At most [`MAX_REFERRED`].
    pub others: Vec<Referred>,
}

/// An agent that is named in a referral.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referred {
    /// Its name in datagrams.
    pub id: MemberId,
    /// Where it is reached.
    pub address: SocketAddr,
    /// Its public key.
    pub key: [u8; 32],
}

/// Asks for the last renewals of members' Leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenewalsAsked {
    /// At most [`MAX_LIST`].
    pub members: Vec<MemberId>,
}

/// The last renewals of members' Leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenewalsRead {
    /// At most [`MAX_LIST`]; without a renewal where it could not be read.
    pub renewals: Vec<(MemberId, Option<Renewal>)>,
}

/// Digest of a request: what a ballot is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestDigest(pub [u8; 32]);

impl ConfirmRequest {
    /// Digest of the request as it is asked and published.
    pub fn digest(&self) -> RequestDigest {
        RequestDigest(keys::hash("evenkeel round", &[&self.to_bytes()]))
    }

    /// The request as bytes, as a report carries it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        fields::write_request(&mut Writer(&mut bytes), self);
        bytes
    }

    /// Reads what [`ConfirmRequest::to_bytes`] wrote.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        fields::read_request(&mut Reader(bytes))
    }
}

impl Ballot {
    /// The single votes of a ballot that `voter` signed as its answer to `request`. A no about a suspect
    /// whose Lease the asker did not read is an abstention.
    pub fn votes(&self, voter: MemberId, request: &ConfirmRequest) -> Vec<Vote> {
        let vote = |said: &Said| {
            let suspect = request.suspects.get(usize::from(said.index))?;
            let answer = match (said.answer, suspect.renewal) {
                (Answer::No, None) => Answer::Abstain,
                (answer, _) => answer,
            };
            Some(Vote {
                voter,
                suspect: suspect.member,
                roster: self.roster,
                answer,
                contact_age: said.contact_age,
                facts: said.facts,
            })
        };
        self.said.iter().filter_map(vote).collect()
    }
}

impl Facts {
    /// Nothing is known to be wrong.
    pub fn are_plain(self) -> bool {
        self.cloud != Link::Down && self.kubelet != Health::Failing && self.runtime != Health::Failing
    }
}

impl Body {
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Heartbeat(_) => 1,
            Self::Ack(_) => ACK,
            Self::Relay(_) => 3,
            Self::Edges(_) => 4,
            Self::Confirm(_) => 5,
            Self::Published(_) => 6,
            Self::RosterAsked(_) => 7,
            Self::RosterPart(_) => 8,
            Self::HandOver(_) => HAND_OVER,
            Self::Carried(_) => 10,
            Self::Referral(_) => 11,
            Self::ReportAsked(_) => 12,
            Self::ReportPart(_) => 13,
            Self::RenewalsAsked(_) => 14,
            Self::RenewalsRead(_) => 15,
            Self::Voted(_) => 24,
            Self::Ballot(_) => SIGNED,
        }
    }

    /// Name of the kind, for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Heartbeat(_) => "heartbeat",
            Self::Ack(_) => "ack",
            Self::Relay(_) => "relay",
            Self::Edges(_) => "edges",
            Self::Confirm(_) => "confirm",
            Self::Ballot(_) => "ballot",
            Self::Published(_) => "published",
            Self::RosterAsked(_) => "roster-asked",
            Self::RosterPart(_) => "roster-part",
            Self::HandOver(_) => "hand-over",
            Self::Carried(_) => "carried",
            Self::Referral(_) => "referral",
            Self::ReportAsked(_) => "report-asked",
            Self::ReportPart(_) => "report-part",
            Self::RenewalsAsked(_) => "renewals-asked",
            Self::RenewalsRead(_) => "renewals-read",
            Self::Voted(_) => "voted",
        }
    }
}
