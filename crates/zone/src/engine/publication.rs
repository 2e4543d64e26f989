//! What this agent reports, and when.
//!
//! Each reporter has an object of its own, so that nobody overwrites what another one says, and readers merge
//! the reports of all. The holder of the cell's Lease writes what it holds at once, and tells the other
//! reporters what it has written. They write what a majority signed after as many seconds as their rank says,
//! and three later if they were told that it is written; what they have written themselves they renew seldom,
//! but for a death whose round signs a new challenge, because it may be the one that confirms the death.
//! So the death of the holder costs a second, one that lies keeps a verdict back for three more, and three
//! reporters cost hardly more than one. A holder that has just come within reach of a majority has no opinion
//! of every member yet, and writes like a reporter that is not the holder. If it waited instead, evidence of
//! life would run out wherever all agents restart at once, because they would wait for one another.

use super::context::{Context, NEVER};
use super::due::Due;
use super::own::Own;
use super::reporter::{Evidence, Held, Reporter, is_no_news};
use super::{Output, ReportDraft};
use crate::Millis;
use crate::roster::MemberId;
use crate::verdict::Link;
use crate::wire::{Body, Challenge, Nonce, Published, PublishedVerdict};
use evenkeel_api::zone::{ListedNode, Report, SignedRound, VerdictKind};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How much longer each rank waits before it writes what the holder should have written.
const STEP_MS: u64 = 1_000;
/// How much longer they wait for what the holder says that it has written: nobody but a reader knows whether
/// that is true.
const TOLD_MS: u64 = 3_000;
/// For so long such a word counts: the holder writes about a listed member every 4.5 s.
const TOLD_COUNTS_MS: u64 = 8_000;
/// Who does not hold the Lease renews what it has written after this time. Evidence of life counts for 15 s.
const RENEW_MS: u64 = 8_000;
/// For so long others go on to write for a cell of which somebody has a link again: who does may have begun
/// a new life, and holds evidence of all members after some 10 s.
const OVERLAPS_MS: u64 = 20_000;
/// A write that failed is tried again after this time, and from the third failure in a row on after up to
/// four times as long: an API server that refuses may be overloaded. Evidence of life counts for 15 s.
const TRY_AGAIN_MS: u64 = 1_000;
/// A write of which nothing is heard for this long has failed.
const GIVE_UP_MS: u64 = 10_000;

/// Bytes of evidence that a report holds at most, unless a single round has more. With what else it says of a
/// whole cell it stays below 40 KB.
const MOST_EVIDENCE: usize = 26_000;

/// What this agent writes, and what it was told that others have written.
pub(super) struct Publication {
    /// It holds the cell's Lease.
    leading: bool,
    standing: bool,
    /// Whether this agent would report if it had a link.
    ranked: bool,
    /// It reports, and others have to write for it.
    outside: bool,
    outside_until: Millis,
    /// It has stood for the Lease before in this life.
    stood: bool,
    write: Write,
    /// So many writes have failed in a row.
    failures: u32,
    /// What stands in this agent's object, as far as it knows; nothing before the first write of this life.
    written: Option<(Contents, Millis)>,
    /// Since when it has no link, and holds something of a member that is to be written.
    holds_since: Option<Millis>,
    /// By member: the newest word of another reporter on what it has written.
    told: BTreeMap<MemberId, (VerdictKind, Millis)>,
    /// Number of the last report.
    sequence: i64,
    due: Millis,
}

/// A write of the report.
enum Write {
    /// None is under way; the next may begin at this time.
    Idle {
        from: Millis,
    },
    UnderWay {
        since: Millis,
        contents: Contents,
    },
}

/// What a report says, but for ages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    roster_version: u64,
    listed: BTreeMap<MemberId, Listed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    kind: VerdictKind,
    reason: String,
    since: Millis,
    evidence: Option<Evidence>,
}

impl Contents {
    /// What this agent holds of the members.
    fn of(cx: &Context, reporter: &Reporter) -> Self {
        let listed = reporter.held().map(|(id, held)| {
            let listed = Listed {
                kind: held.kind,
                reason: held.reason.clone(),
                since: held.since,
                evidence: held.evidence.clone(),
            };
            (id, listed)
        });
        Self {
            roster_version: cx.roster().reference().version,
            listed: listed.collect(),
        }
    }

    /// Whether it says something that the other one does not, and does not only renew it.
    fn has_news_after(&self, written: &Self) -> bool {
        let mut listed = self.listed.iter();
        listed.any(|(id, listed)| written.lacks(*id, listed))
    }

    /// Whether what is said of a member is news after this.
    fn lacks(&self, id: MemberId, listed: &Listed) -> bool {
        let before = self.listed.get(&id);
        before
            .is_none_or(|before| !is_no_news((listed.kind, listed.signed()), (before.kind, before.signed())))
    }
}

impl Listed {
    fn signed(&self) -> Option<Challenge> {
        self.evidence.as_ref().map(|evidence| evidence.challenge)
    }
}

impl Publication {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            leading: false,
            standing: false,
            ranked: false,
            outside: false,
            outside_until: now,
            holds_since: None,
            stood: false,
            write: Write::Idle { from: now },
            failures: 0,
            written: None,
            told: BTreeMap::new(),
            sequence: 0,
            due: now,
        }
    }

    /// This agent holds the cell's Lease from now on, or no longer.
    pub(super) fn lead(&mut self, cx: &Context, leading: bool) {
        self.leading = leading;
        self.look_again(cx);
    }

    /// Something that decides about a report has changed.
    pub(super) fn look_again(&mut self, cx: &Context) {
        self.due = cx.now();
    }

    pub(super) fn deadline(&self) -> Millis {
        self.due
    }

    /// What became of the write that is under way.
    pub(super) fn take_written(&mut self, cx: &mut Context, reporters: &[MemberId], written: bool) {
        let now = cx.now();
        let after = std::mem::replace(&mut self.write, Write::Idle { from: now });
        let Write::UnderWay { contents, .. } = after else {
            self.write = after;
            return;
        };
        if written {
            let verdicts = contents.listed.iter().map(|(id, listed)| PublishedVerdict {
                subject: *id,
                kind: listed.kind,
            });
            let body = Body::Published(Published {
                verdicts: verdicts.collect(),
            });
            let me = cx.me();
            for reporter in reporters.iter().filter(|reporter| **reporter != me) {
                cx.send(*reporter, &body);
            }
            self.written = Some((contents, now));
            self.failures = 0;
        } else {
            let wait = TRY_AGAIN_MS << self.failures.saturating_sub(1).min(2);
            self.write = Write::Idle { from: now.plus(wait) };
            self.failures = self.failures.saturating_add(1);
        }
        self.look_again(cx);
    }

    /// Another reporter says what it has written.
    pub(super) fn take_told(&mut self, cx: &Context, published: &Published) {
        for verdict in &published.verdicts {
            self.told.insert(verdict.subject, (verdict.kind, cx.now()));
        }
        self.look_again(cx);
    }

    /// Whether another reporter said lately that it has written.
    pub(super) fn is_told(&self, now: Millis) -> bool {
        self.told.values().any(|(_, at)| now.since(*at) < TOLD_COUNTS_MS)
    }

    /// Stands for the Lease or releases it, and writes a report, as far as that is due. `needed`:
    /// this agent has no link, and an agent of another cell may write for it; it does while it is `alone`,
    /// because nobody of the cell has one, and while those that have one write nothing.
    pub(super) fn step(
        &mut self,
        cx: &mut Context,
        own: &Own,
        reporter: &Reporter,
        (needed, alone): (bool, bool),
    ) {
        if cx.now() < self.due {
            return;
        }
        let mut due = Due::never();
        self.told.retain(|id, _| cx.roster().contains(*id));
        self.stand(cx, own, reporter.rank(), &mut due);
        let unwritten = self.is_unwritten(cx, reporter, needed, &mut due);
        if alone || unwritten {
            self.outside_until = cx.now().plus(OVERLAPS_MS);
        }
        let outside = needed && cx.now() < self.outside_until;
        self.outside = outside && reporter.rank().is_some() && own.sees_the_zone();
        self.publish(cx, own, reporter, &mut due);
        self.due = due.at();
    }

    /// Whether a carrier is looked for beside those of the cell that have a link. A member that has one and
    /// hears too few of the others reports nothing, and only its silence tells. Words that all is written are
    /// believed once: who has a link and lies could repeat them for as long as the others have none. Where
    /// they are true, the carrier costs a second report, and gives way to cells that nobody writes for.
    fn is_unwritten(&mut self, cx: &Context, reporter: &Reporter, needed: bool, due: &mut Due) -> bool {
        let now = cx.now();
        if !needed || !reporter.held().any(|(_, held)| held.kind != VerdictKind::None) {
            self.holds_since = None;
            return false;
        }
        let since = *self.holds_since.get_or_insert(now);
        let told = self.told.values().any(|(_, at)| *at >= since);
        let from = since.plus(if told { 2 * TOLD_COUNTS_MS } else { TOLD_COUNTS_MS });
        if now < from {
            due.by(from);
        }
        now >= from
    }

    fn stand(&mut self, cx: &mut Context, own: &Own, rank: Option<usize>, due: &mut Due) {
        // The first time in a life an agent stands at once. Later it waits until it is settled, so that the
        // cell's Lease does not change hands each time a link flickers.
        let may_stand = self.standing || !self.stood || is_settled(cx, own, due);
        // A rank takes a link within the last 30 s, and of a cell without any link nobody stands.
        let linked_until = own.cloud_contact().map(|at| at.plus(cx.linked_ms() + 1));
        let linked = linked_until.is_some_and(|until| cx.now() < until);
        linked_until
            .filter(|_| linked)
            .into_iter()
            .for_each(|at| due.by(at));
        // Who has lost its zone, too, keeps what it was: where one switch carries everything, each member
        // ranks itself first, and all at once would ask the API server often.
        let reports = rank.is_some() && own.sees_the_zone();
        let ranked = reports || rank.is_some() && self.ranked;
        if std::mem::replace(&mut self.ranked, ranked) != ranked {
            cx.put(Output::Ranked(ranked));
        }
        let stands = reports && may_stand && linked;
        self.stood |= stands;
        if stands != self.standing {
            self.standing = stands;
            cx.put(Output::Stand(stands));
        }
    }

    fn publish(&mut self, cx: &mut Context, own: &Own, reporter: &Reporter, due: &mut Due) {
        let now = cx.now();
        match &self.write {
            Write::Idle { from } if now < *from => return due.by(*from),
            Write::Idle { .. } => {}
            Write::UnderWay { since, .. } if now < since.plus(GIVE_UP_MS) => {
                return due.by(since.plus(GIVE_UP_MS));
            }
            Write::UnderWay { .. } => self.write = Write::Idle { from: now },
        }
        // The next contact brings another look.
        if own.facts().cloud != Link::Up && !self.outside {
            return;
        }
        let contents = Contents::of(cx, reporter);
        if !self.is_to_be_written(cx, own, reporter, &contents, due) {
            return;
        }
        self.sequence = self.sequence.saturating_add(1);
        let written = self.written.as_ref().map(|(written, _)| written);
        let draft = draft(cx, &contents, written, self.sequence);
        cx.put(Output::Report(Box::new(draft)));
        due.by(now.plus(GIVE_UP_MS));
        self.write = Write::UnderWay { since: now, contents };
    }

    fn is_to_be_written(
        &self,
        cx: &Context,
        own: &Own,
        reporter: &Reporter,
        contents: &Contents,
        due: &mut Due,
    ) -> bool {
        let Some((written, _)) = &self.written else {
            // The first report of a life comes before there is anything to say, so that readers know how old
            // the next one can be, and replaces what a former life left.
            return self.standing || self.outside;
        };
        if *written == *contents {
            return false;
        }
        // What is over is taken back by whoever has written it.
        if contents.listed.is_empty() && own.sees_the_zone() {
            return true;
        }
        if !self.standing && !self.outside {
            return false;
        }
        // Of a cell without a link nobody holds the Lease.
        let first = self.leading || self.outside && reporter.rank() == Some(0);
        if first && is_settled(cx, own, due) {
            // What only renews a report waits until all of it is there: the next look comes when the rounds
            // are over.
            return contents.has_news_after(written) || !reporter.is_asking();
        }
        let patience = STEP_MS * (reporter.rank().unwrap_or_default() as u64).max(1);
        let mut overdue = false;
        // One of two that is a vote short is the controller's evidence, though it is no verdict.
        let counts = |held: &Held| held.kind != VerdictKind::None || held.evidence.is_some();
        for (id, held) in reporter.held().filter(|(_, held)| counts(held)) {
            let at = self.late_at(cx, id, held).plus(patience);
            overdue |= cx.now() >= at;
            if cx.now() < at {
                due.by(at);
            }
        }
        overdue
    }

    /// From when on this agent writes what it holds of a member, though it does not hold the Lease.
    fn late_at(&self, cx: &Context, id: MemberId, held: &Held) -> Millis {
        let own = self.written.as_ref();
        let own = own.and_then(|(written, at)| Some((written.listed.get(&id)?, *at)));
        match own.filter(|(own, _)| is_no_news((held.kind, held.signed()), (own.kind, own.signed()))) {
            Some((own, _)) if own.evidence == held.evidence => NEVER,
            Some((_, at)) => at.plus(RENEW_MS),
            None => {
                // Words from before a challenge say nothing of the round that signs it; the holder's own may
                // have been a little earlier.
                let of_this =
                    |at: Millis| held.news_since == held.since || at.plus(STEP_MS) >= held.news_since;
                let is_told = self.told.get(&id).is_some_and(|(kind, at)| {
                    *kind == held.kind && cx.now().since(*at) < TOLD_COUNTS_MS && of_this(*at)
                });
                held.news_since.plus(if is_told { TOLD_MS } else { 0 })
            }
        }
    }
}

/// Whether this agent has reached a majority for long enough to have an opinion of every member.
fn is_settled(cx: &Context, own: &Own, due: &mut Due) -> bool {
    let at = own.settles_at(cx.period_ms());
    if cx.now() < at {
        due.by(at);
    }
    cx.now() >= at && at != NEVER
}

/// What a report shows of a round.
struct Shown {
    evidence: Evidence,
    /// It says something of a member that was not written before.
    is_news: bool,
}

impl Shown {
    fn bytes(&self) -> usize {
        let ballots = self.evidence.ballots.values().map(|text| text.len());
        self.evidence.request.len() + ballots.sum::<usize>()
    }
}

/// The rounds of these contents, each once, with the ballots that any of its members needs, as far as there
/// is room: news first, and then what is youngest. Whoever has its evidence in another round is left out,
/// which says nothing of it; the next common round is about all.
fn shown(contents: &Contents, written: Option<&Contents>) -> BTreeMap<Nonce, Evidence> {
    let mut rounds: BTreeMap<Nonce, Shown> = BTreeMap::new();
    for (id, listed) in &contents.listed {
        let Some(evidence) = &listed.evidence else {
            continue;
        };
        let shown = rounds.entry(evidence.round).or_insert_with(|| Shown {
            evidence: evidence.clone(),
            is_news: false,
        });
        shown.is_news |= written.is_none_or(|written| written.lacks(*id, listed));
        let ballots = evidence.ballots.iter();
        let ballots = ballots.map(|(voter, text)| (*voter, text.clone()));
        shown.evidence.ballots.extend(ballots);
    }
    let mut rounds: Vec<(Nonce, Shown)> = rounds.into_iter().collect();
    rounds.sort_by_key(|(_, shown)| Reverse((shown.is_news, shown.evidence.began)));
    let mut room = MOST_EVIDENCE;
    rounds.retain(|(_, shown)| {
        let fits = shown.bytes() <= room || room == MOST_EVIDENCE;
        if fits {
            room = room.saturating_sub(shown.bytes());
        }
        fits
    });
    rounds
        .into_iter()
        .map(|(round, shown)| (round, shown.evidence))
        .collect()
}

fn draft(cx: &Context, contents: &Contents, written: Option<&Contents>, sequence: i64) -> ReportDraft {
    let rounds = shown(contents, written);
    let mut held_for_ms = BTreeMap::new();
    let mut nodes = Vec::new();
    for (id, listed) in &contents.listed {
        let evidence = listed.evidence.as_ref();
        let is_shown = evidence.is_none_or(|evidence| rounds.contains_key(&evidence.round));
        let Some(member) = cx.roster().get(*id).filter(|_| is_shown) else {
            continue;
        };
        held_for_ms.insert(member.uid.clone(), cx.now().since(listed.since));
        nodes.push(ListedNode {
            name: member.name.clone(),
            uid: member.uid.clone(),
            verdict: listed.kind,
            reason: listed.reason.clone(),
            since: None,
        });
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let rounds = rounds.into_values().map(|evidence| SignedRound {
        age_ms: i64::try_from(cx.now().since(evidence.began)).unwrap_or(i64::MAX),
        request: evidence.request.to_string(),
        ballots: evidence.ballots.values().map(ToString::to_string).collect(),
    });
    let report = Report {
        roster_version: contents.roster_version as i64,
        sequence,
        written_at: None,
        members: cx.roster().len() as i32,
        summary: summary(&nodes),
        rounds: rounds.collect(),
        nodes,
    };
    ReportDraft { report, held_for_ms }
}

fn summary(nodes: &[ListedNode]) -> String {
    let word = |node: &ListedNode| {
        let kind = match node.verdict {
            VerdictKind::None => "undecided",
            VerdictKind::Alive => "alive",
            VerdictKind::Dead => return format!("{} dead", node.name),
        };
        format!("{} {kind} ({})", node.name, node.reason)
    };
    nodes.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// A round about one member: its number, when it began, and its size in bytes.
    type Sized = (u8, u64, usize);

    fn contents(rounds: &[Sized]) -> Contents {
        let listed = |(number, began, bytes): &Sized| {
            let voter = MemberId([0; 8]);
            let evidence = Evidence {
                round: Nonce([*number; 16]),
                request: "".into(),
                began: Millis(*began),
                challenge: Challenge::NONE,
                ballots: BTreeMap::from([(voter, "x".repeat(*bytes).into())]),
            };
            let listed = Listed {
                kind: VerdictKind::Alive,
                reason: String::new(),
                since: Millis(0),
                evidence: Some(evidence),
            };
            (MemberId([*number; 8]), listed)
        };
        Contents {
            roster_version: 1,
            listed: rounds.iter().map(listed).collect(),
        }
    }

    #[rstest]
    #[case::all_fit(&[(1, 5, 8_000), (2, 6, 8_000)], &[], &[1, 2])]
    #[case::the_youngest_first(&[(1, 7, 14_000), (2, 5, 14_000), (3, 6, 14_000)], &[1, 2, 3], &[1])]
    #[case::news_before_what_is_younger(&[(1, 7, 14_000), (2, 5, 14_000)], &[1], &[2])]
    #[case::what_does_not_fit_stops_nobody(&[(1, 7, 14_000), (2, 6, 14_000), (3, 5, 11_000)], &[1, 2, 3], &[1, 3])]
    #[case::one_round_is_shown_whatever_its_size(&[(1, 5, 35_000), (2, 4, 10)], &[1, 2], &[1])]
    fn there_is_room_for_news_and_then_for_what_is_young(
        #[case] rounds: &[Sized],
        #[case] written: &[u8],
        #[case] expected: &[u8],
    ) {
        let contents = contents(rounds);
        let mut before = contents.clone();
        before.listed.retain(|id, _| written.contains(&id.0[0]));
        let shown: Vec<u8> = shown(&contents, Some(&before))
            .keys()
            .map(|round| round.0[0])
            .collect();
        assert_eq!(shown, expected);
    }
}
