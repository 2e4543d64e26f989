//! The fields of what passes between cells.

use super::{NOT_READ, list_len, read_list};
use crate::roster::MemberId;
use crate::wire::WireError;
use crate::wire::challenge::{Challenge, Renewal};
use crate::wire::codec::{Reader, Writer};
use crate::wire::message::{
    Carried, HandOver, MAX_LIST, MAX_REFERRED, Referral, Referred, RenewalsAsked, RenewalsRead,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of an entry, written before its list: a later minor version may append fields to each.
const REFERRED_LEN: u8 = 8 + 16 + 2 + 32;
const RENEWAL_LEN: u8 = 8 + 8;
/// Bytes of the longest referral.
const LONGEST_REFERRAL: usize = 2 + MAX_REFERRED * REFERRED_LEN as usize;
/// Bytes of a hand-over without what makes it as long as a referral.
const HAND_OVER_LEN: usize = 32 + 4 + 8 + 4 + 1;

pub(super) fn write_hand_over(out: &mut Writer<'_>, body: &HandOver) {
    out.bytes(&body.key)
        .u32(body.cell)
        .u64(body.report)
        .u32(body.age_ms)
        .u8(body.spare.into())
        .bytes(&[0; LONGEST_REFERRAL - HAND_OVER_LEN]);
}

pub(super) fn read_hand_over(input: &mut Reader<'_>) -> Result<HandOver, WireError> {
    let body = HandOver {
        key: input.array()?,
        cell: input.u32()?,
        report: input.u64()?,
        age_ms: input.u32()?,
        spare: input.u8()? != 0,
    };
    // A shorter one could have a longer answer.
    input.bytes(LONGEST_REFERRAL - HAND_OVER_LEN)?;
    Ok(body)
}

pub(super) fn write_carried(out: &mut Writer<'_>, body: &Carried) {
    out.u64(body.incarnation)
        .u64(body.written)
        .u64(body.roster)
        .bytes(&body.challenge.0);
    write_members(out, &body.wanted);
}

pub(super) fn read_carried(input: &mut Reader<'_>) -> Result<Carried, WireError> {
    Ok(Carried {
        incarnation: input.u64()?,
        written: input.u64()?,
        roster: input.u64()?,
        challenge: Challenge(input.array()?),
        wanted: read_members(input)?,
    })
}

pub(super) fn write_referral(out: &mut Writer<'_>, body: &Referral) {
    out.u8(body.others.len().min(MAX_REFERRED) as u8).u8(REFERRED_LEN);
    for other in body.others.iter().take(MAX_REFERRED) {
        let ip = match other.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        out.bytes(&other.id.0)
            .bytes(&ip.octets())
            .u16(other.address.port())
            .bytes(&other.key);
    }
}

pub(super) fn read_referral(input: &mut Reader<'_>) -> Result<Referral, WireError> {
    let others = read_list(input, MAX_REFERRED, |entry| {
        let id = MemberId(entry.array()?);
        let ip = Ipv6Addr::from(entry.array::<16>()?).to_canonical();
        let address = SocketAddr::new(ip, entry.u16()?);
        let key = entry.array()?;
        Ok(Referred { id, address, key })
    })?;
    Ok(Referral { others })
}

pub(super) fn write_members(out: &mut Writer<'_>, members: &[MemberId]) {
    out.u8(members.len().min(MAX_LIST) as u8);
    for member in members.iter().take(MAX_LIST) {
        out.bytes(&member.0);
    }
}

fn read_members(input: &mut Reader<'_>) -> Result<Vec<MemberId>, WireError> {
    let count = list_len(input, MAX_LIST)?;
    (0..count).map(|_| Ok(MemberId(input.array()?))).collect()
}

pub(super) fn read_renewals_asked(input: &mut Reader<'_>) -> Result<RenewalsAsked, WireError> {
    let members = read_members(input)?;
    Ok(RenewalsAsked { members })
}

pub(super) fn write_renewals(out: &mut Writer<'_>, body: &RenewalsRead) {
    out.u8(body.renewals.len().min(MAX_LIST) as u8).u8(RENEWAL_LEN);
    for (member, renewal) in body.renewals.iter().take(MAX_LIST) {
        out.bytes(&member.0)
            .u64(renewal.map_or(NOT_READ, |renewal| renewal.0));
    }
}

pub(super) fn read_renewals(input: &mut Reader<'_>) -> Result<RenewalsRead, WireError> {
    let renewals = read_list(input, MAX_LIST, |entry| {
        let member = MemberId(entry.array()?);
        let renewal = Some(entry.u64()?).filter(|read| *read != NOT_READ);
        Ok((member, renewal.map(Renewal)))
    })?;
    Ok(RenewalsRead { renewals })
}
