//! The first check of each member, which shows that this agent's checks reach it at all (hazard 46).
//!
//! Heartbeats and checks take different ports. Where a firewall between nodes lets only heartbeats pass, a
//! check fails whether the machine lives or not, and an agent that restarts would look like a dead machine.
//! So this agent votes that a member is dead only if one of its checks has found the member since the machine
//! booted. To know that before it matters, each member is checked as soon as it was met.

use super::contacts::Contacts;
use super::context::{Context, NEVER};
use super::{CheckResult, Output, Question};
use crate::Millis;
use crate::roster::MemberId;
use crate::wire::Nonce;
use std::collections::BTreeMap;

/// A check lasts for so long, as in a round.
const WITHIN_MS: u64 = 800;
/// The longest pause between two of them, of which a random part is waited: all members boot at once after a
/// power cut, and no kubelet shall be asked by 63 others within a moment.
const PAUSE_MS: u64 = 200;
/// While a member was not found, it is looked this often for one that is due.
const LOOK_MS: u64 = 1_000;
/// A member that was not found is checked again after this time, doubled with each further check.
const AGAIN_MS: u64 = 5_000;
const LONGEST_MS: u64 = 600_000;
/// After so many checks that did not find it, a member is named to people.
const NAMED: u32 = 3;

pub(super) struct FirstChecks {
    /// When the next check begins, or what became of the last one must be known.
    due: Millis,
    under_way: Option<MemberId>,
    /// Members that were not found: by how many checks, and when the next one is due.
    missed: BTreeMap<MemberId, (u32, Millis)>,
}

impl FirstChecks {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            due: now,
            under_way: None,
            missed: BTreeMap::new(),
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        self.due
    }

    /// Members may have come, or be elsewhere.
    pub(super) fn take_roster(&mut self, cx: &Context) {
        self.missed.retain(|member, _| cx.roster().contains(*member));
        self.look_again(cx);
    }

    /// A member was met. It is checked at once: who dies before it was found is called dead by nobody.
    pub(super) fn look_again(&mut self, cx: &Context) {
        if self.under_way.is_none() {
            self.due = self.due.min(cx.now());
        }
    }

    /// Whether a check was asked for here and not for a round.
    fn is_of(asked: Question) -> bool {
        asked.round == Nonce::default()
    }

    /// What became of a check, for whomever it was made.
    pub(super) fn take(&mut self, cx: &mut Context, asked: Question, member: MemberId, found: bool) {
        if found {
            self.missed.remove(&member);
        }
        if Self::is_of(asked) && self.under_way == Some(member) {
            self.end(cx, found);
        }
    }

    fn end(&mut self, cx: &mut Context, found: bool) {
        let now = cx.now();
        if let Some(member) = self.under_way.take().filter(|_| !found) {
            let (checks, again) = self.missed.entry(member).or_default();
            *checks = checks.saturating_add(1);
            *again = now.plus((AGAIN_MS << (*checks - 1).min(8)).min(LONGEST_MS));
        }
        self.due = now.plus(cx.draw(PAUSE_MS));
    }

    pub(super) fn step(&mut self, cx: &mut Context, contacts: &Contacts) {
        let now = cx.now();
        if now < self.due {
            return;
        }
        if self.under_way.is_some() {
            // Its answer did not come.
            return self.end(cx, false);
        }
        let (mut open, mut next) = (false, None);
        for (index, peer) in contacts.iter() {
            let member = cx.roster().member(index).filter(|member| member.id != cx.me());
            let Some(member) = member.filter(|member| member.kubelet.is_some() && !peer.found()) else {
                continue;
            };
            open = true;
            let due = self.missed.get(&member.id).map_or(now, |(_, due)| *due);
            if peer.seen_alive() && due <= now && next.is_none_or(|(first, _)| due < first) {
                next = Some((due, member.id));
            }
        }
        let Some((_, suspect)) = next else {
            self.due = if open { now.plus(LOOK_MS) } else { NEVER };
            return;
        };
        self.under_way = Some(suspect);
        self.due = now.plus(WITHIN_MS + PAUSE_MS);
        let asked = Question {
            asker: cx.me(),
            round: Nonce::default(),
        };
        cx.put(Output::Check {
            asked,
            suspect,
            within_ms: WITHIN_MS,
        });
    }

    /// Members that several checks did not find, though they were met.
    pub(super) fn not_found(&self) -> impl Iterator<Item = MemberId> {
        let named = self.missed.iter().filter(|(_, (checks, _))| *checks >= NAMED);
        named.map(|(member, _)| *member)
    }
}

impl CheckResult {
    /// Whether somebody answered at all.
    pub(super) fn finds(self) -> bool {
        matches!(self, Self::Identity | Self::Inconclusive)
    }
}
