//! The search for the members that report now, in zones above all-pairs size.
//!
//! There a member knows of most others only that they answered within the last 30 s. When one is lost on
//! which it depends who reports, its observers say so to everybody. All then ask down the ranking, in each
//! period four times as far, until three have answered that can report. Who is asked in a search and stays
//! silent for three periods counts as lost: else the next ones of the ranking would be taken for living, and
//! nobody would report, until what they last said is too old.

use super::context::Context;
use crate::Millis;
use crate::roster::{CANDIDATES, MemberIndex, Roster};

/// A member that does not answer in so many periods is lost.
const PERIODS: u64 = 3;

#[derive(Default)]
pub(super) struct Search {
    /// When the last one began.
    since: Option<Millis>,
    begun: Vec<Begun>,
    /// Members that were asked in a search, and since when. Who was heard since is no longer among them.
    unheard: Vec<(MemberIndex, Millis)>,
    /// It depends on so many of the ranking who reports, as far as this agent knows.
    depth: usize,
}

/// What brought a search about.
#[derive(Clone, Copy)]
struct Begun {
    at: Millis,
    lost: MemberIndex,
    /// Who has lost it.
    by: MemberIndex,
}

impl Search {
    /// A member is lost, which was last heard at `contact`. Returns whether a search begins: not for a member
    /// that was not heard since the last one began, which does not count as found by it, and may be dead for
    /// days; that search goes on, and as far as it has come. Not again for the same observer as long as a
    /// link counts, so that a hostile one has few heartbeats sent.
    pub(super) fn begin(
        &mut self,
        cx: &Context,
        (lost, by): (MemberIndex, MemberIndex),
        contact: Option<Millis>,
    ) -> bool {
        let now = cx.now();
        self.begun.retain(|begun| now.since(begun.at) < cx.linked_ms());
        let known = self
            .begun
            .iter()
            .any(|begun| (begun.lost, begun.by) == (lost, by));
        let begins = self.matters(cx, lost) && self.has_found(contact) && !known;
        if begins {
            self.begun.push(Begun { at: now, lost, by });
            self.since = Some(now);
        }
        begins
    }

    /// Whether it depends on a member who reports: it is one of the reporters, ranks before them, or is one
    /// of the first candidates.
    fn matters(&self, cx: &Context, index: MemberIndex) -> bool {
        let mut first = cx.roster().rendezvous().iter().take(self.depth.max(CANDIDATES));
        !cx.roster().all_pairs() && first.any(|candidate| *candidate == index)
    }

    /// The first so many of the ranking are asked by now.
    pub(super) fn reach(&self, cx: &Context) -> usize {
        let periods = self.since.map(|since| cx.now().since(since) / cx.period_ms());
        // Cells have far less members than four to the power of ten.
        periods.map_or(usize::MAX, |periods| CANDIDATES << (2 * (periods + 1)).min(20))
    }

    /// Whether a member was heard since the last search began, by its last contact.
    pub(super) fn has_found(&self, contact: Option<Millis>) -> bool {
        contact >= self.since
    }

    /// From when on a member counts as lost that was asked in a search, if it stays silent.
    pub(super) fn missing_from(
        &self,
        index: MemberIndex,
        contact: Option<Millis>,
        period_ms: u64,
    ) -> Option<Millis> {
        let (_, since) = self.unheard.iter().find(|(asked, _)| *asked == index)?;
        (contact < Some(*since)).then(|| since.plus(PERIODS * period_ms))
    }

    /// Notes who is asked now, and how many of the ranking it depends on who reports. `contact` is when a
    /// member was last heard.
    pub(super) fn take_asked(
        &mut self,
        cx: &Context,
        (asked, candidates): (impl Iterator<Item = MemberIndex>, usize),
        contact: impl Fn(MemberIndex) -> Option<Millis>,
    ) {
        self.depth = candidates;
        // Who is asked no more, because three were found before it, is not lost for want of one answer.
        let asked: Vec<MemberIndex> = asked.collect();
        self.unheard
            .retain(|(index, since)| contact(*index) < Some(*since) && asked.contains(index));
        for index in asked {
            let is_known = self.unheard.iter().any(|(known, _)| *known == index);
            if contact(index) < self.since && !is_known {
                self.unheard.push((index, cx.now()));
            }
        }
    }

    /// Goes on with who is in the new roster.
    pub(super) fn take_roster(&mut self, before: &Roster, roster: &Roster) {
        let moved = |index: &mut MemberIndex| {
            let position = before
                .member(*index)
                .and_then(|member| roster.position(member.id));
            *index = position.unwrap_or(*index);
            position.is_some()
        };
        self.begun
            .retain_mut(|begun| moved(&mut begun.lost) && moved(&mut begun.by));
        self.unheard.retain_mut(|(index, _)| moved(index));
    }

    /// After a pause of this process, silence says nothing of others, and a search begins anew.
    pub(super) fn begin_anew(&mut self, now: Millis) {
        self.since = self.since.map(|_| now);
        self.unheard.clear();
    }
}
