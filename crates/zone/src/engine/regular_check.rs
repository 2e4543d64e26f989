//! Regular checks of each member, which show that this agent's checks reach it (hazard 46).
//!
//! Heartbeats and checks take different ports. Where a firewall between nodes lets only heartbeats pass, a
//! check fails whether the machine lives or not, and an agent that restarts would look like a dead machine.
//! So this agent votes that a member is dead only if its checks find the member while it lives. To know that
//! before it matters, each member is checked as soon as it was met, and from time to time again: what passes
//! today may be closed tomorrow.

use super::contacts::{Contacts, Peer, kubelet_of};
use super::context::{Context, NEVER};
use super::own::Own;
use super::{CheckResult, Output, Question};
use crate::Millis;
use crate::roster::{MemberId, Roster};
use crate::wire::Nonce;
use std::collections::BTreeMap;

/// A check lasts for so long, as in a round.
const WITHIN_MS: u64 = 800;
/// The longest pause between two of them, of which a random part is waited: all members boot at once after a
/// power cut, and no kubelet shall be asked by 63 others within a moment.
const PAUSE_MS: u64 = 200;
/// A member that was not found is checked again after this time, doubled with each further check, and at once
/// when it is back.
const AGAIN_MS: u64 = 5_000;
const LONGEST_MS: u64 = 600_000;
/// A member that was found is checked again after this time for each member of the cell, by a random quarter
/// of it sooner or later, so that not all are checked together. A check costs 4 KB: these add 70 bytes a
/// second to the 1,600 that a member of a cell of 64 sends to its peers, and as many where it is checked
/// itself.
const RECHECK_MS: u64 = 60_000;
/// For so long an answer may come of a check that began before its member moved, or before checks were made
/// in another way.
const LATE_MS: u64 = WITHIN_MS + PAUSE_MS;
/// So many checks that do not find a member whose agent answers meanwhile, and none between that finds it,
/// show that checks do not reach it any more. With 30 % loss a check fails in one of five cases.
const MISSES: u32 = 3;

pub(super) struct RegularChecks {
    /// When the next check begins, or what became of the last one must be known.
    due: Millis,
    under_way: Option<UnderWay>,
    /// Of members that this life of the agent has checked.
    checked: BTreeMap<MemberId, Checked>,
}

#[derive(Clone, Copy)]
struct UnderWay {
    member: MemberId,
    since: Millis,
    /// It did not find the member. Until the time of a check is over its agent may answer.
    failed: bool,
}

#[derive(Clone, Copy, Default)]
struct Checked {
    /// When the next check is due.
    due: Millis,
    /// No check that was answered before this moment counts.
    counts_from: Millis,
    /// A check of this life has found it, and not missed it since.
    found: bool,
    /// How many in a row did not find it, since it is back.
    tries: u32,
    /// How many of these failed though its agent answered.
    misses: u32,
    /// During how many, to the last one, its agent did not answer.
    silent: u32,
}

impl RegularChecks {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            due: now,
            under_way: None,
            checked: BTreeMap::new(),
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        self.due
    }

    /// Members may have come, or be elsewhere.
    pub(super) fn take_roster(&mut self, cx: &Context, before: &Roster) {
        self.checked.retain(|id, _| cx.roster().contains(*id));
        for member in cx.roster().members() {
            let old = before.get(member.id);
            if old.is_some_and(|old| kubelet_of(old) != kubelet_of(member)) {
                self.begin_again(cx, member.id);
            }
        }
        self.look_again(cx);
    }

    /// A member was met, or is heard again. It is checked at once unless it was found last: who dies before
    /// it was found is called dead by nobody.
    pub(super) fn member_returned(&mut self, cx: &Context, member: MemberId) {
        match self.checked.get_mut(&member) {
            Some(checked) if checked.tries == 0 => return,
            Some(checked) => {
                checked.due = checked.due.min(cx.now());
                (checked.tries, checked.silent) = (0, 0);
            }
            None => {}
        }
        self.look_again(cx);
    }

    /// Its agent began anew, and its machine may have: what it lets pass may have changed. Many see that at
    /// once, so each waits for a random time.
    pub(super) fn member_began_anew(&mut self, cx: &mut Context, member: MemberId) {
        if let Some(checked) = self.checked.get_mut(&member) {
            *checked = Checked {
                due: checked.due.min(cx.now().plus(cx.draw(AGAIN_MS))),
                counts_from: checked.counts_from,
                ..Checked::default()
            };
        }
        self.look_again(cx);
    }

    /// A member is reached at another address, and so is its kubelet.
    pub(super) fn member_moved(&mut self, cx: &Context, member: MemberId) {
        self.begin_again(cx, member);
        self.look_again(cx);
    }

    /// Checks are made in another way from now on.
    pub(super) fn checks_changed(&mut self, cx: &Context) {
        for member in cx.roster().members() {
            self.begin_again(cx, member.id);
        }
        self.look_again(cx);
    }

    /// What checks of this member have shown holds no more. It gets no precedence by that: one that moves to
    /// and fro would keep others from being checked.
    fn begin_again(&mut self, cx: &Context, member: MemberId) {
        let due = cx.now().plus(LATE_MS);
        let anew = Checked {
            due,
            counts_from: due,
            ..Checked::default()
        };
        self.checked.insert(member, anew);
        self.under_way = self.under_way.filter(|check| check.member != member);
    }

    fn look_again(&mut self, cx: &Context) {
        if self.under_way.is_none() {
            self.due = self.due.min(cx.now());
        }
    }

    /// Whether a check was asked for here and not for a round.
    fn is_of(cx: &Context, asked: Question) -> bool {
        asked.asker == cx.me() && asked.round == Nonce::default()
    }

    /// What became of a check, for whomever it was made.
    pub(super) fn take(
        &mut self,
        cx: &mut Context,
        contacts: &mut Contacts,
        (asked, member, result): (Question, MemberId, CheckResult),
    ) {
        let known = self.checked.get(&member);
        let counts = known.is_none_or(|checked| checked.counts_from <= cx.now());
        if result.finds() && counts {
            let pace = RECHECK_MS * cx.roster().members().len() as u64;
            let checked = Checked {
                due: cx.now().plus(pace / 4 * 3 + cx.draw(pace / 2)),
                found: true,
                ..Checked::default()
            };
            self.checked.insert(member, checked);
            contacts.found(cx, member);
        }
        let under_way = self.under_way.as_mut();
        if let Some(check) = under_way.filter(|check| Self::is_of(cx, asked) && check.member == member) {
            if result == CheckResult::Failed {
                check.failed = true;
                self.due = check.since.plus(WITHIN_MS);
            } else {
                self.end(cx, contacts);
            }
        }
    }

    /// The check under way is over.
    fn end(&mut self, cx: &mut Context, contacts: &mut Contacts) {
        let now = cx.now();
        let under_way = self.under_way.take();
        self.due = now.plus(cx.draw(PAUSE_MS));
        let Some(check) = under_way.filter(|check| self.due_of(check.member) <= now) else {
            return;
        };
        let peer = contacts.of(cx, check.member);
        let answered = peer.and_then(Peer::proved) >= Some(check.since);
        let checked = self.checked.entry(check.member).or_default();
        checked.tries = checked.tries.saturating_add(1);
        checked.silent = if answered {
            0
        } else {
            checked.silent.saturating_add(1)
        };
        checked.misses = checked.misses.saturating_add(u32::from(check.failed && answered));
        let again = AGAIN_MS << (checked.tries - 1).min(8);
        checked.due = now.plus(again.min(LONGEST_MS));
        // What a former life found may not hold any more.
        if checked.misses >= if checked.found { MISSES } else { 1 } {
            checked.found = false;
            contacts.not_found(cx, check.member);
        }
    }

    /// Those that were not checked yet come first.
    fn due_of(&self, member: MemberId) -> Millis {
        self.checked.get(&member).map_or(Millis(0), |checked| checked.due)
    }

    pub(super) fn step(&mut self, cx: &mut Context, own: &Own, contacts: &mut Contacts) {
        let now = cx.now();
        if now < self.due {
            return;
        }
        if self.under_way.is_some() {
            return self.end(cx, contacts);
        }
        let met = contacts.met().filter_map(|index| cx.roster().member(index));
        let others = met.filter(|member| member.id != cx.me() && member.kubelet.is_some());
        let next = others.map(|member| (self.due_of(member.id), member.id)).min();
        let Some((_, suspect)) = next.filter(|(due, _)| *due <= now) else {
            self.due = next.map_or(NEVER, |(due, _)| due);
            return;
        };
        self.under_way = Some(UnderWay {
            member: suspect,
            since: now,
            failed: false,
        });
        self.due = now.plus(WITHIN_MS + PAUSE_MS);
        // Of its agent, nobody may have heard for long: in a large cell it is watched by few.
        contacts.send_heartbeat(cx, own, suspect, None);
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

    /// Members that checks do not find, though their agents answer.
    pub(super) fn not_found(&self) -> impl Iterator<Item = MemberId> {
        let is_missed = |checked: &Checked| checked.misses >= MISSES && checked.silent < MISSES;
        let missed = self.checked.iter().filter(move |(_, checked)| is_missed(checked));
        missed.map(|(member, _)| *member)
    }
}

impl CheckResult {
    /// Whether somebody answered at all.
    fn finds(self) -> bool {
        matches!(self, Self::Identity | Self::Inconclusive)
    }
}
