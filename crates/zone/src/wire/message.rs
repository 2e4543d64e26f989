//! The kinds of datagrams and their fields.

use super::WireError;
use super::challenge::{Challenge, Renewal};
use super::codec::{Reader, Writer};
use crate::keys;
use crate::roster::{Epoch, MemberId, RosterRef};
use crate::verdict::{Health, Link};
use crate::vote::Vote;
use evenkeel_api::zone::VerdictKind;

/// Longest list in a datagram; longer ones are refused.
pub const MAX_LIST: usize = 64;
/// Most suspects of one request: a whole cell, which fits into a datagram of 1,200 bytes.
pub const MAX_SUSPECTS: usize = 64;
/// Kinds from this one on are signed, so that anybody can check them. The others carry a code that only the
/// member can check to which they are sent.
pub(super) const SIGNED: u8 = 128;

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
        write_request(&mut Writer(&mut bytes), self);
        bytes
    }

    /// Reads what [`ConfirmRequest::to_bytes`] wrote.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut input = Reader(bytes);
        let request = read_request(&mut input)?;
        if input.0.is_empty() {
            Ok(request)
        } else {
            Err(WireError::Truncated)
        }
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
            Self::Ack(_) => 2,
            Self::Relay(_) => 3,
            Self::Edges(_) => 4,
            Self::Confirm(_) => 5,
            Self::Published(_) => 6,
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
        }
    }
}

pub(super) fn encode(out: &mut Writer<'_>, header: &Header, body: &Body) {
    out.bytes(&header.from.0)
        .bytes(&header.to.0)
        .u64(header.incarnation)
        .u64(header.sequence);
    match body {
        Body::Heartbeat(body) => {
            out.u64(body.roster)
                .u8(body.doubt)
                .u8(facts_byte(body.facts))
                .u16(body.cloud_age)
                .bytes(&body.via.0);
        }
        Body::Ack(body) => {
            out.u64(body.echo_incarnation)
                .u64(body.echo_sequence)
                .u64(body.roster)
                .u8(body.doubt)
                .u8(facts_byte(body.facts))
                .u16(body.cloud_age);
        }
        Body::Relay(body) => {
            out.bytes(&body.target.0)
                .u16(body.inner.len() as u16)
                .bytes(&body.inner);
        }
        Body::Edges(body) => {
            out.u8(body.doubt)
                .u8(body.edges.len().min(MAX_LIST) as u8)
                .u8(EDGE_LEN);
            for edge in body.edges.iter().take(MAX_LIST) {
                out.bytes(&edge.subject.0)
                    .u8(edge.state as u8)
                    .u8(facts_byte(edge.facts));
            }
        }
        Body::Confirm(body) => write_request(out, body),
        Body::Published(body) => {
            out.u8(body.verdicts.len().min(MAX_LIST) as u8).u8(VERDICT_LEN);
            for verdict in body.verdicts.iter().take(MAX_LIST) {
                out.bytes(&verdict.subject.0).u8(match verdict.kind {
                    VerdictKind::None => 0,
                    VerdictKind::Alive => 1,
                    VerdictKind::Dead => 2,
                });
            }
        }
        Body::Ballot(body) => {
            out.bytes(&body.request.0);
            roster(out, body.roster);
            out.u16(body.uptime)
                .u8(body.said.len().min(MAX_LIST) as u8)
                .u8(SAID_LEN);
            for said in body.said.iter().take(MAX_LIST) {
                out.u8(said.index)
                    .u8(facts_byte(said.facts) | (said.answer as u8) << 6)
                    .u16(age_on_the_wire(said));
            }
        }
    }
}

fn write_request(out: &mut Writer<'_>, body: &ConfirmRequest) {
    out.bytes(&body.round.0);
    roster(out, body.roster);
    out.bytes(&body.challenge.0)
        .u16(body.budget)
        .u8(body.suspects.len().min(MAX_SUSPECTS) as u8);
    for suspect in body.suspects.iter().take(MAX_SUSPECTS) {
        let renewal = suspect.renewal.map_or(NOT_READ, |renewal| renewal.0);
        out.bytes(&suspect.member.0).u64(renewal);
    }
}

/// Tenths of a second; see [`Said::contact_age`].
fn age_on_the_wire(said: &Said) -> u16 {
    let tenths = match said.answer {
        Answer::Yes => said.contact_age.div_ceil(100),
        Answer::No | Answer::Abstain => said.contact_age / 100,
    };
    u16::try_from(tenths).unwrap_or(u16::MAX)
}

/// In the place of a renewal that was not read. No resourceVersion comes so far.
const NOT_READ: u64 = u64::MAX;
// Bytes of an entry, written before its list: a later minor version may append fields to each.
const VERDICT_LEN: u8 = 9;
const SAID_LEN: u8 = 4;
const EDGE_LEN: u8 = 10;

pub(super) fn decode(kind: u8, bytes: &[u8]) -> Result<Message, WireError> {
    let mut input = Reader(bytes);
    let header = Header {
        from: MemberId(input.array()?),
        to: MemberId(input.array()?),
        incarnation: input.u64()?,
        sequence: input.u64()?,
    };
    let input = &mut input;
    let body = match kind {
        1 => Body::Heartbeat(Heartbeat {
            roster: input.u64()?,
            doubt: input.u8()?,
            facts: read_facts(input.u8()?)?,
            cloud_age: input.u16()?,
            via: MemberId(input.array()?),
        }),
        2 => Body::Ack(Ack {
            echo_incarnation: input.u64()?,
            echo_sequence: input.u64()?,
            roster: input.u64()?,
            doubt: input.u8()?,
            facts: read_facts(input.u8()?)?,
            cloud_age: input.u16()?,
        }),
        3 => {
            let target = MemberId(input.array()?);
            let length = usize::from(input.u16()?);
            Body::Relay(Relay {
                target,
                inner: input.bytes(length)?.to_vec(),
            })
        }
        4 => Body::Edges(read_edges(input)?),
        5 => Body::Confirm(read_request(input)?),
        6 => Body::Published(read_published(input)?),
        SIGNED => Body::Ballot(read_ballot(input)?),
        other => return Err(WireError::Kind(other)),
    };
    Ok(Message { header, body })
}

fn read_request(input: &mut Reader<'_>) -> Result<ConfirmRequest, WireError> {
    let (round, roster) = (Nonce(input.array()?), read_roster(input)?);
    let (challenge, budget) = (Challenge(input.array()?), input.u16()?);
    let count = list_len(input, MAX_SUSPECTS)?;
    let mut suspects = Vec::with_capacity(count);
    for _ in 0..count {
        suspects.push(Suspect {
            member: MemberId(input.array()?),
            renewal: Some(input.u64()?).filter(|read| *read != NOT_READ).map(Renewal),
        });
    }
    Ok(ConfirmRequest {
        round,
        roster,
        challenge,
        budget,
        suspects,
    })
}

fn read_ballot(input: &mut Reader<'_>) -> Result<Ballot, WireError> {
    let (request, roster) = (RequestDigest(input.array()?), read_roster(input)?);
    let uptime = input.u16()?;
    let count = list_len(input, MAX_LIST)?;
    let length = usize::from(input.u8()?);
    let mut said = Vec::with_capacity(count);
    for _ in 0..count {
        let mut entry = Reader(input.bytes(length)?);
        let index = entry.u8()?;
        let bits = entry.u8()?;
        said.push(Said {
            index,
            answer: match bits >> 6 {
                0 => Answer::Abstain,
                1 => Answer::Yes,
                2 => Answer::No,
                _ => return Err(WireError::Field("answer")),
            },
            facts: read_facts(bits)?,
            contact_age: u32::from(entry.u16()?) * 100,
        });
    }
    Ok(Ballot {
        request,
        roster,
        uptime,
        said,
    })
}

fn read_published(input: &mut Reader<'_>) -> Result<Published, WireError> {
    let count = list_len(input, MAX_LIST)?;
    let length = usize::from(input.u8()?);
    let mut verdicts = Vec::with_capacity(count);
    for _ in 0..count {
        let mut entry = Reader(input.bytes(length)?);
        let subject = MemberId(entry.array()?);
        let kind = match entry.u8()? {
            0 => VerdictKind::None,
            1 => VerdictKind::Alive,
            2 => VerdictKind::Dead,
            _ => return Err(WireError::Field("verdict")),
        };
        verdicts.push(PublishedVerdict { subject, kind });
    }
    Ok(Published { verdicts })
}

fn read_edges(input: &mut Reader<'_>) -> Result<Edges, WireError> {
    let doubt = input.u8()?;
    let count = list_len(input, MAX_LIST)?;
    let length = usize::from(input.u8()?);
    let mut edges = Vec::with_capacity(count);
    for _ in 0..count {
        let mut entry = Reader(input.bytes(length)?);
        let subject = MemberId(entry.array()?);
        let state = match entry.u8()? {
            0 => EdgeState::Up,
            1 => EdgeState::Degraded,
            2 => EdgeState::OneWay,
            3 => EdgeState::Down,
            _ => return Err(WireError::Field("edge state")),
        };
        edges.push(Edge {
            subject,
            state,
            facts: read_facts(entry.u8()?)?,
        });
    }
    Ok(Edges { doubt, edges })
}

fn list_len(input: &mut Reader<'_>, longest: usize) -> Result<usize, WireError> {
    let count = usize::from(input.u8()?);
    if count > longest {
        Err(WireError::Field("list length"))
    } else {
        Ok(count)
    }
}

fn roster(out: &mut Writer<'_>, reference: RosterRef) {
    out.u64(reference.version).bytes(&reference.epoch.0);
}

fn read_roster(input: &mut Reader<'_>) -> Result<RosterRef, WireError> {
    Ok(RosterRef {
        version: input.u64()?,
        epoch: Epoch(input.array()?),
    })
}

/// Bits 0-1 cloud, 2-3 kubelet, 4-5 runtime; each 0 unknown, 1 good, 2 bad. Bits 6-7 are of a later version.
fn facts_byte(facts: Facts) -> u8 {
    let health = |health| match health {
        Health::Unknown => 0,
        Health::Ok => 1,
        Health::Failing => 2,
    };
    let cloud = match facts.cloud {
        Link::Unknown => 0,
        Link::Up => 1,
        Link::Down => 2,
    };
    cloud | health(facts.kubelet) << 2 | health(facts.runtime) << 4
}

fn read_facts(byte: u8) -> Result<Facts, WireError> {
    let health = |bits| match bits & 3 {
        0 => Ok(Health::Unknown),
        1 => Ok(Health::Ok),
        2 => Ok(Health::Failing),
        _ => Err(WireError::Field("facts")),
    };
    let cloud = match byte & 3 {
        0 => Link::Unknown,
        1 => Link::Up,
        2 => Link::Down,
        _ => return Err(WireError::Field("facts")),
    };
    Ok(Facts {
        cloud,
        kubelet: health(byte >> 2)?,
        runtime: health(byte >> 4)?,
    })
}
