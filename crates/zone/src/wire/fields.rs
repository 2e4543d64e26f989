//! The fields of each kind of datagram as bytes, in the order of encoding.
//!
//! A value that means nothing here is one of a later version, and is read as the most careful one: nothing
//! follows from it (hazard 48).

use super::WireError;
use super::challenge::{Challenge, Renewal};
use super::codec::{Reader, Writer};
use super::message::{
    Ack, Answer, Ballot, Body, ConfirmRequest, Edge, EdgeState, Edges, Facts, HAND_OVER, Header, Heartbeat,
    MAX_LIST, MAX_SUSPECTS, Message, Nonce, PART, Part, PartAsked, Published, PublishedVerdict, Relay,
    RequestDigest, SIGNED, Said, Suspect, Voted,
};
use crate::roster::{Epoch, MemberId, RosterRef};
use crate::verdict::{Health, Link};
use evenkeel_api::zone::VerdictKind;

mod carrying;

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
        Body::Voted(body) => {
            out.u16(body.ballot.len() as u16).bytes(&body.ballot);
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
        Body::RosterAsked(body) | Body::ReportAsked(body) => {
            out.u64(body.version).u32(body.offset);
        }
        Body::HandOver(body) => carrying::write_hand_over(out, body),
        Body::Carried(body) => carrying::write_carried(out, body),
        Body::Referral(body) => carrying::write_referral(out, body),
        Body::RenewalsAsked(body) => carrying::write_members(out, &body.members),
        Body::RenewalsRead(body) => carrying::write_renewals(out, body),
        Body::RosterPart(body) | Body::ReportPart(body) => {
            let bytes = body.bytes.get(..PART).unwrap_or(&body.bytes);
            out.u64(body.version)
                .u32(body.length)
                .u32(body.offset)
                .u16(bytes.len() as u16)
                .bytes(bytes);
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

pub(super) fn write_request(out: &mut Writer<'_>, body: &ConfirmRequest) {
    out.bytes(&body.round.0);
    roster(out, body.roster);
    out.bytes(&body.challenge.0)
        .u16(body.budget)
        .u8(body.suspects.len().min(MAX_SUSPECTS) as u8);
    for suspect in body.suspects.iter().take(MAX_SUSPECTS) {
        let renewal = suspect.renewal.map_or(NOT_READ, |renewal| renewal.0);
        out.bytes(&suspect.member.0).u64(renewal);
    }
    out.bytes(&body.later);
}

/// Gives the facts in a body a state of the runtime that only a later version knows.
#[cfg(any(test, feature = "fixture"))]
pub(super) fn make_runtime_unknown(body: &Body, bytes: &mut [u8]) {
    let header = HEADER_LEN;
    let places: Vec<usize> = match body {
        Body::Heartbeat(_) => vec![header + 9],
        Body::Ack(_) => vec![header + 25],
        Body::Edges(edges) => (0..edges.edges.len())
            .map(|at| header + 3 + 10 * at + 9)
            .collect(),
        Body::Ballot(ballot) => (0..ballot.said.len())
            .map(|at| header + 52 + 4 * at + 1)
            .collect(),
        _ => Vec::new(),
    };
    for place in places {
        if let Some(facts) = bytes.get_mut(place) {
            *facts |= 0b11_00_00;
        }
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

/// Bytes of the fields that every body begins with.
pub(super) const HEADER_LEN: usize = 32;
/// In the place of a renewal that was not read. No resourceVersion comes so far.
const NOT_READ: u64 = u64::MAX;
// Bytes of an entry, written before its list: a later minor version may append fields to each.
const VERDICT_LEN: u8 = 9;
const SAID_LEN: u8 = 4;
const EDGE_LEN: u8 = 10;

pub(super) fn read_header(input: &mut Reader<'_>) -> Result<Header, WireError> {
    Ok(Header {
        from: MemberId(input.array()?),
        to: MemberId(input.array()?),
        incarnation: input.u64()?,
        sequence: input.u64()?,
    })
}

pub(super) fn decode(kind: u8, bytes: &[u8]) -> Result<Message, WireError> {
    let input = &mut Reader(bytes);
    let header = read_header(input)?;
    let body = match kind {
        1 => Body::Heartbeat(Heartbeat {
            roster: input.u64()?,
            doubt: input.u8()?,
            facts: read_facts(input.u8()?),
            cloud_age: input.u16()?,
            via: MemberId(input.array()?),
        }),
        2 => Body::Ack(Ack {
            echo_incarnation: input.u64()?,
            echo_sequence: input.u64()?,
            roster: input.u64()?,
            doubt: input.u8()?,
            facts: read_facts(input.u8()?),
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
        7 => Body::RosterAsked(read_part_asked(input)?),
        8 => Body::RosterPart(read_part(input)?),
        HAND_OVER => Body::HandOver(carrying::read_hand_over(input)?),
        10 => Body::Carried(carrying::read_carried(input)?),
        11 => Body::Referral(carrying::read_referral(input)?),
        12 => Body::ReportAsked(read_part_asked(input)?),
        13 => Body::ReportPart(read_part(input)?),
        14 => Body::RenewalsAsked(carrying::read_renewals_asked(input)?),
        15 => Body::RenewalsRead(carrying::read_renewals(input)?),
        24 => {
            let length = usize::from(input.u16()?);
            Body::Voted(Voted {
                ballot: input.bytes(length)?.to_vec(),
            })
        }
        SIGNED => Body::Ballot(read_ballot(input)?),
        other => return Err(WireError::Kind(other)),
    };
    Ok(Message { header, body })
}

fn read_part_asked(input: &mut Reader<'_>) -> Result<PartAsked, WireError> {
    Ok(PartAsked {
        version: input.u64()?,
        offset: input.u32()?,
    })
}

fn read_part(input: &mut Reader<'_>) -> Result<Part, WireError> {
    let (version, length, offset) = (input.u64()?, input.u32()?, input.u32()?);
    let count = usize::from(input.u16()?);
    if count > PART {
        return Err(WireError::Field("length of a part"));
    }
    Ok(Part {
        version,
        length,
        offset,
        bytes: input.bytes(count)?.to_vec(),
    })
}

pub(super) fn read_request(input: &mut Reader<'_>) -> Result<ConfirmRequest, WireError> {
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
        later: std::mem::take(&mut input.0).to_vec(),
    })
}

fn read_ballot(input: &mut Reader<'_>) -> Result<Ballot, WireError> {
    let (request, roster) = (RequestDigest(input.array()?), read_roster(input)?);
    let uptime = input.u16()?;
    let said = read_list(input, MAX_LIST, |entry| {
        let index = entry.u8()?;
        let bits = entry.u8()?;
        Ok(Said {
            index,
            answer: match bits >> 6 {
                1 => Answer::Yes,
                2 => Answer::No,
                _ => Answer::Abstain,
            },
            facts: read_facts(bits),
            contact_age: u32::from(entry.u16()?) * 100,
        })
    })?;
    Ok(Ballot {
        request,
        roster,
        uptime,
        said,
    })
}

fn read_published(input: &mut Reader<'_>) -> Result<Published, WireError> {
    let verdicts = read_list(input, MAX_LIST, |entry| {
        let subject = MemberId(entry.array()?);
        let kind = match entry.u8()? {
            1 => VerdictKind::Alive,
            2 => VerdictKind::Dead,
            _ => VerdictKind::None,
        };
        Ok(PublishedVerdict { subject, kind })
    })?;
    Ok(Published { verdicts })
}

fn read_edges(input: &mut Reader<'_>) -> Result<Edges, WireError> {
    let doubt = input.u8()?;
    let edges = read_list(input, MAX_LIST, |entry| {
        let subject = MemberId(entry.array()?);
        let state = match entry.u8()? {
            1 => EdgeState::Degraded,
            2 => EdgeState::OneWay,
            3 => EdgeState::Down,
            _ => EdgeState::Up,
        };
        Ok(Edge {
            subject,
            state,
            facts: read_facts(entry.u8()?),
        })
    })?;
    Ok(Edges { doubt, edges })
}

/// The entries of a list. Each is as long as its list says: what a later minor version appended is passed
/// over.
fn read_list<T>(
    input: &mut Reader<'_>,
    longest: usize,
    read: impl Fn(&mut Reader<'_>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let count = list_len(input, longest)?;
    let length = usize::from(input.u8()?);
    (0..count)
        .map(|_| read(&mut Reader(input.bytes(length)?)))
        .collect()
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

fn read_facts(byte: u8) -> Facts {
    let health = |bits| match bits & 3 {
        1 => Health::Ok,
        2 => Health::Failing,
        _ => Health::Unknown,
    };
    Facts {
        cloud: match byte & 3 {
            1 => Link::Up,
            2 => Link::Down,
            _ => Link::Unknown,
        },
        kubelet: health(byte >> 2),
        runtime: health(byte >> 4),
    }
}
