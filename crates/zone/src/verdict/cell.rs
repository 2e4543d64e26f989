//! What a reader holds of one cell.

use super::evidence::{self, Refusal, Round};
use super::{ALIVE_TTL_MS, Alive, Death, Deaths, Issued, NoVerdict, STORM_WINDOW_MS, Verdict, YOUNG_BOOT_MS};
use crate::Millis;
use crate::keys::Verifier;
use crate::roster::{MemberId, Roster};
use crate::vote::{self, Vote};
use crate::wire::{Answer, Challenge, ConfirmRequest, Nonce, Renewal, Suspect};
use evenkeel_api::zone::{Report, SignedRound, VerdictKind};
use std::collections::BTreeMap;

/// What a reader remembers of one cell.
#[derive(Debug, Default)]
pub(super) struct Cell {
    roster: Option<Roster>,
    /// What ballots have to sign: the current challenge, and the one before.
    challenges: Vec<Issued>,
    /// The newest report of each reporter. It is looked at again when the roster or the challenge changes:
    /// they and the reports come on watches of their own, in any order.
    reports: BTreeMap<String, Kept>,
    /// Whether a heartbeat was seen at all.
    lease_seen: bool,
    /// Last time that signed evidence or the Lease were seen to advance.
    advanced: Option<Millis>,
    nodes: BTreeMap<MemberId, Held>,
    /// Newest sequence that carried accepted evidence, by (voter, subject).
    newest: BTreeMap<(MemberId, MemberId), u64>,
    /// For how many seconds a member's machine had been up, by its last ballot that counted, and when that
    /// came.
    uptimes: BTreeMap<MemberId, (u16, Millis)>,
}

/// What the reader itself brings to its evidence.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) verifier: &'a dyn Verifier,
    /// The renewals that it has seen last.
    pub(super) renewals: &'a BTreeMap<MemberId, Renewal>,
}

/// Ballots of one report that are checked. A report that agents write has at most 40 KB, in which there are
/// some 170; a check takes about 50 microseconds, and whoever reads reports does nothing else meanwhile.
const MOST_BALLOTS: usize = 512;

/// A report as it was received.
#[derive(Debug)]
struct Kept {
    received: Millis,
    /// It is the first one of its reporter: when it was written, nobody knows.
    is_first: bool,
    report: Report,
}

/// What is held of one node. Newer evidence replaces older; nothing else takes evidence away (hazard 40).
#[derive(Debug, Default)]
struct Held {
    conclusion: Conclusion,
    /// What the ballots of its evidence sign.
    signed: Challenge,
    /// When this death began, for storms.
    died: Option<Millis>,
    /// The newest round about it was refused; for people, where there is no evidence.
    refused: bool,
    /// Its newest round signs neither the current challenge nor the one before; for people, likewise.
    unchallenged: bool,
    /// Reporters say that no majority exists; for people, likewise.
    undecided: bool,
}

impl Held {
    fn died_lately(&self, now: Millis) -> bool {
        self.died.is_some_and(|died| now.since(died) < STORM_WINDOW_MS)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Conclusion {
    #[default]
    Nothing,
    Alive(Nonce, Alive),
    Dead(Death),
    OneShort(Death),
}

impl Conclusion {
    /// Whether both say that the suspect lives, or both do not.
    fn agrees(self, other: Self) -> bool {
        let lives = |conclusion| matches!(conclusion, Self::Alive(..));
        lives(self) == lives(other)
    }
}

impl Conclusion {
    fn round(&self) -> Option<Nonce> {
        match self {
            Self::Nothing => None,
            Self::Alive(round, _) => Some(*round),
            Self::Dead(death) | Self::OneShort(death) => Some(death.round),
        }
    }
}

impl Cell {
    pub(super) fn has_member(&self, id: MemberId) -> bool {
        self.roster.as_ref().is_some_and(|roster| roster.contains(id))
    }

    pub(super) fn advanced(&self) -> Option<Millis> {
        self.advanced
    }

    pub(super) fn deaths(&self, now: Millis) -> Deaths {
        let lately = self.nodes.values().filter(|held| held.died_lately(now));
        Deaths {
            recent: lately.count(),
            members: self.roster.as_ref().map_or(0, Roster::len),
        }
    }

    pub(super) fn died_lately(&self, id: MemberId, now: Millis) -> bool {
        self.nodes.get(&id).is_some_and(|held| held.died_lately(now))
    }

    /// Whether more than half of the members whose ballots were seen booted less than [`YOUNG_BOOT_MS`] ago.
    /// A report shows the ballots of a majority, and seldom those of all.
    pub(super) fn is_returning(&self, now: Millis) -> bool {
        let is_young = |(uptime, at): &&(u16, Millis)| {
            let uptime = u64::from(*uptime) * 1_000;
            uptime.saturating_add(now.since(*at)) < YOUNG_BOOT_MS
        };
        2 * self.uptimes.values().filter(is_young).count() > self.uptimes.len()
    }

    pub(super) fn heartbeat(&mut self, now: Millis, holder: &str) {
        let member = |roster: &Roster| roster.members().iter().any(|member| member.name == holder);
        if !self.roster.as_ref().is_some_and(member) {
            return;
        }
        if self.lease_seen {
            self.advanced = Some(now);
        }
        self.lease_seen = true;
    }

    pub(super) fn verdict(&self, id: MemberId) -> Verdict {
        if self.advanced.is_none() {
            return Verdict::None(NoVerdict::Void);
        }
        let Some(held) = self.nodes.get(&id) else {
            return Verdict::None(NoVerdict::NotListed);
        };
        match held.conclusion {
            Conclusion::Alive(_, alive) => Verdict::Alive(alive),
            Conclusion::Dead(death) => Verdict::Dead(death),
            Conclusion::OneShort(death) => Verdict::OneShort(death),
            Conclusion::Nothing if held.refused => Verdict::None(NoVerdict::Refused),
            Conclusion::Nothing if held.unchallenged => Verdict::None(NoVerdict::OtherChallenge),
            Conclusion::Nothing if held.undecided => Verdict::None(NoVerdict::NoMajority),
            Conclusion::Nothing => Verdict::None(NoVerdict::NotListed),
        }
    }

    /// Takes in what a reporter published. Returns what was refused.
    pub(super) fn report(
        &mut self,
        reader: Reader<'_>,
        now: Millis,
        reporter: &str,
        report: &Report,
    ) -> Vec<Refusal> {
        let before = self.reports.remove(reporter);
        let kept = Kept {
            received: now,
            is_first: before.is_none(),
            report: report.clone(),
        };
        let before = before.map(|before| before.report.rounds).unwrap_or_default();
        // What was checked once is not checked again; its age alone makes it no other round.
        let is_new = |round: &SignedRound, _: Challenge| {
            let same =
                |known: &SignedRound| (&known.request, &known.ballots) == (&round.request, &round.ballots);
            !before.iter().any(same)
        };
        let refusals = self.count(reader, now, &kept, is_new);
        self.reports.insert(reporter.to_owned(), kept);
        refusals
    }

    /// A reporter's object is gone. What it has published stands until it runs out.
    pub(super) fn forget_report(&mut self, reporter: &str) {
        self.reports.remove(reporter);
    }

    /// Nothing is known of it: it was named by reports alone, and they are gone.
    pub(super) fn is_blank(&self) -> bool {
        self.roster.is_none() && self.reports.is_empty() && self.challenges.is_empty() && !self.lease_seen
    }

    /// Takes in what ballots have to sign, and counts again what signs a challenge that was not known before.
    /// Returns what was refused.
    pub(super) fn challenges(
        &mut self,
        reader: Reader<'_>,
        now: Millis,
        challenges: &[Issued],
    ) -> Vec<Refusal> {
        let before = std::mem::replace(&mut self.challenges, challenges.to_vec());
        let is_new = |_: &SignedRound, signed| !before.iter().any(|known| known.challenge == signed);
        self.count_all(reader, now, is_new)
    }

    /// Takes in a roster, and counts again what was published. Returns what was refused.
    pub(super) fn roster(&mut self, reader: Reader<'_>, now: Millis, roster: Roster) -> Vec<Refusal> {
        match self.take_roster(roster) {
            Ok(false) => return Vec::new(),
            Ok(true) => {}
            Err(refusal) => return vec![refusal],
        }
        self.count_all(reader, now, |_, _| true)
    }

    fn count_all(
        &mut self,
        reader: Reader<'_>,
        now: Millis,
        is_new: impl Fn(&SignedRound, Challenge) -> bool,
    ) -> Vec<Refusal> {
        let reports = std::mem::take(&mut self.reports);
        let kept = reports.values();
        let refusals = kept
            .flat_map(|kept| self.count(reader, now, kept, &is_new))
            .collect();
        self.reports = reports;
        refusals
    }

    /// Counts those rounds of a report that are new, by themselves and by the challenge that they sign.
    fn count(
        &mut self,
        reader: Reader<'_>,
        now: Millis,
        Kept {
            received,
            is_first,
            report,
        }: &Kept,
        is_new: impl Fn(&SignedRound, Challenge) -> bool,
    ) -> Vec<Refusal> {
        let Some(roster) = self.roster.take() else {
            return Vec::new();
        };
        for node in report
            .nodes
            .iter()
            .filter(|node| node.verdict == VerdictKind::None)
        {
            let id = MemberId::of(&node.uid);
            if roster.contains(id) {
                self.nodes.entry(id).or_default().undecided = true;
            }
        }
        let waited = now.since(*received);
        let (mut refusals, mut left) = (Vec::new(), MOST_BALLOTS);
        for signed in &report.rounds {
            // Without having seen an earlier report of this reporter, nobody knows when this one was written:
            // as old as can be, which is as old as the challenge that its ballots sign.
            let stated = u64::try_from(signed.age_ms).ok().filter(|_| !is_first);
            let stated = stated.map_or(u64::MAX, |age| age.saturating_add(waited));
            let request = match evidence::request(signed) {
                Ok(request) if is_new(signed, request.challenge) => request,
                Ok(_) => continue,
                Err(refusal) => {
                    refusals.push(refusal);
                    continue;
                }
            };
            let issued = self
                .challenges
                .iter()
                .find(|known| known.challenge == request.challenge);
            match issued.copied() {
                Some(_) if left == 0 => {
                    refusals.push(Refusal::TooManyBallots(MOST_BALLOTS));
                    break;
                }
                Some(issued) => {
                    let round = Round::open(reader.verifier, &roster, request, &signed.ballots, &mut left);
                    let drawn = issued.drawn.map_or(u64::MAX, |drawn| now.since(drawn));
                    let when = When {
                        age: stated.min(drawn),
                        received: *received,
                        issued,
                    };
                    self.take_round((now, reader), &roster, when, &round, &mut refusals);
                }
                // It may be one that is still on its way to us. Then the report is counted again.
                None => self.not_challenged(&roster, &request),
            }
        }
        self.roster = Some(roster);
        refusals
    }

    fn not_challenged(&mut self, roster: &Roster, request: &ConfirmRequest) {
        let members = request.suspects.iter().map(|suspect| suspect.member);
        for id in members.filter(|id| roster.contains(*id)) {
            self.nodes.entry(id).or_default().unchallenged = true;
        }
    }

    fn take_roster(&mut self, roster: Roster) -> Result<bool, Refusal> {
        if let Some(current) = &self.roster {
            let (seen, known) = (roster.reference(), current.reference());
            if seen.version < known.version || seen == known {
                return Ok(false);
            }
            if seen.version == known.version {
                return Err(Refusal::TwoRosters(seen.version));
            }
        }
        self.nodes.retain(|id, _| roster.contains(*id));
        self.uptimes.retain(|id, _| roster.contains(*id));
        // With another key a voter is another agent, and counts from where it likes.
        let before = self.roster.take();
        let goes_on = |voter: MemberId| {
            let known = before.as_ref().and_then(|before| before.get(voter));
            known.is_some_and(|known| roster.get(voter).is_some_and(|later| known.goes_on_as(later)))
        };
        self.newest
            .retain(|(voter, subject), _| goes_on(*voter) && roster.contains(*subject));
        self.roster = Some(roster);
        Ok(true)
    }

    fn take_round(
        &mut self,
        (now, reader): (Millis, Reader<'_>),
        roster: &Roster,
        when: When,
        round: &Round,
        refusals: &mut Vec<Refusal>,
    ) {
        let mut counts = false;
        for suspect in &round.request.suspects {
            let id = suspect.member;
            let Some(member) = roster.get(id) else {
                refusals.push(Refusal::NotAMember(format!("{id:?}")));
                continue;
            };
            let taken = self.take_suspect((now, reader), roster, when, round, *suspect);
            let held = self.nodes.entry(id).or_default();
            held.unchallenged = false;
            match taken {
                Taken::Concluded => {
                    counts = true;
                    (held.refused, held.undecided) = (false, false);
                    if when.age < u64::MAX {
                        self.advanced = self.advanced.max(Some(when.received));
                    }
                }
                Taken::Known | Taken::Superseded => {}
                Taken::Nothing(valid) => {
                    held.refused = true;
                    refusals.push(round.no_majority(&member.name, valid));
                }
            }
        }
        if counts {
            let told = round.uptimes().filter(|(voter, _)| roster.is_voter(*voter));
            self.uptimes
                .extend(told.map(|(voter, uptime)| (voter, (uptime, when.received))));
        }
    }

    /// What a round says of one suspect. A round decides about it if a majority of new enough votes agrees.
    ///
    /// The last renewal of a suspect is named by who asked, and no voter vouches for it. A round that names
    /// another one than the reader has seen therefore takes nothing from one that names that one.
    fn take_suspect(
        &mut self,
        (now, reader): (Millis, Reader<'_>),
        roster: &Roster,
        when: When,
        round: &Round,
        Suspect {
            member: suspect,
            renewal,
        }: Suspect,
    ) -> Taken {
        let name = round.request.round;
        let stands = self.nodes.get(&suspect).map(|held| held.conclusion);
        let stands = stands.unwrap_or_default();
        if stands.round() == Some(name) {
            return Taken::Known;
        }
        // Newer than anything seen of this voter about this member.
        let newest = &self.newest;
        let fresh = |voter: MemberId, sequence: u64| {
            newest.get(&(voter, suspect)).is_none_or(|seen| sequence > *seen)
        };
        let ballots = round.votes_on(suspect, fresh);
        let votes = ballots.values().map(|(_, vote)| *vote);
        let votes: Vec<Vote> = votes
            .filter(|vote| vote::has_a_word(roster, vote.voter, suspect))
            .collect();
        let needed = roster.majority();
        let conclusion = match vote::tally(roster, suspect, &votes, false) {
            VerdictKind::Dead => Conclusion::Dead(death(now, when, needed, (name, renewal), &votes)),
            VerdictKind::Alive => Conclusion::Alive(name, alive(now, when.age, needed, &votes)),
            VerdictKind::None => {
                let Some(death) = one_short(now, roster, suspect, when, (name, renewal), &votes) else {
                    let all = round.votes_on(suspect, |_, _| true);
                    let all: Vec<Vote> = all.into_values().map(|(_, vote)| vote).collect();
                    let decided = vote::tally(roster, suspect, &all, false) != VerdictKind::None;
                    return if decided {
                        Taken::Superseded
                    } else {
                        Taken::Nothing(votes.len())
                    };
                };
                Conclusion::OneShort(death)
            }
        };
        let seen = reader.renewals.get(&suspect).copied();
        let is_seen = |conclusion: Conclusion| match conclusion {
            Conclusion::Dead(death) => seen.is_none_or(|seen| seen == death.renewal),
            Conclusion::Nothing | Conclusion::Alive(..) | Conclusion::OneShort(_) => true,
        };
        let is_dead = matches!(stands, Conclusion::Dead(_)) && is_seen(stands);
        if self.is_outdated(suspect, when.issued.challenge, conclusion) || is_dead && !is_seen(conclusion) {
            return Taken::Superseded;
        }
        let newest = self.newest_signed(suspect, when.issued.challenge, conclusion);
        let held = self.nodes.entry(suspect).or_default();
        held.signed = newest;
        held.died = match conclusion {
            Conclusion::Dead(_) => held.died.or(Some(now)),
            _ => None,
        };
        held.conclusion = match (&held.conclusion, conclusion) {
            // Evidence whose age is not known takes nothing from what was shown before.
            (Conclusion::Alive(_, known), Conclusion::Alive(name, new)) => {
                let until = new.until.max(known.until);
                Conclusion::Alive(name, Alive { until, ..new })
            }
            (_, conclusion) => conclusion,
        };
        // Nor does it make void what others ask for with the renewal that was seen.
        if is_seen(conclusion) {
            let sequences = ballots.iter();
            self.newest
                .extend(sequences.map(|(voter, (sequence, _))| ((*voter, suspect), *sequence)));
        }
        Taken::Concluded
    }

    /// Whether the contrary stands by ballots that sign a later challenge. Challenges have one order for all,
    /// sequences one for each voter: an older round may be carried by others than the newer one, and by one
    /// that signs it whenever it likes (41).
    fn is_outdated(&self, suspect: MemberId, signed: Challenge, conclusion: Conclusion) -> bool {
        self.nodes.get(&suspect).is_some_and(|held| {
            let contrary = held.conclusion != Conclusion::Nothing && !held.conclusion.agrees(conclusion);
            contrary && self.is_older(signed, held.signed)
        })
    }

    /// Whether one challenge came before another one that still stands.
    fn is_older(&self, signed: Challenge, than: Challenge) -> bool {
        let place = |signed| self.challenges.iter().position(|known| known.challenge == signed);
        // The current one comes first.
        place(than).is_some_and(|stands| place(signed) > Some(stands))
    }

    /// The newest challenge by which a conclusion stands: who says the same again under an older one takes
    /// nothing from it.
    fn newest_signed(&self, suspect: MemberId, signed: Challenge, conclusion: Conclusion) -> Challenge {
        let held = self.nodes.get(&suspect);
        let newer =
            held.filter(|held| held.conclusion.agrees(conclusion) && self.is_older(signed, held.signed));
        newer.map_or(signed, |held| held.signed)
    }
}

/// What became of a round as far as it concerns one suspect.
enum Taken {
    /// It decided.
    Concluded,
    /// It has decided before.
    Known,
    /// Newer ballots of the same voters are known: another reporter's round was published sooner.
    Superseded,
    /// It decides nothing, with so many votes that count.
    Nothing(usize),
}

/// How old a round can be.
#[derive(Clone, Copy)]
struct When {
    /// Milliseconds since its start, as its reporter states it, and not before its challenge was drawn;
    /// `u64::MAX` if neither is known.
    age: u64,
    /// When the report that shows it came.
    received: Millis,
    /// The challenge that its ballots sign.
    issued: Issued,
}

fn death(
    now: Millis,
    when: When,
    needed: usize,
    (round, renewal): (Nonce, Option<Renewal>),
    votes: &[Vote],
) -> Death {
    Death {
        round,
        // Votes of no count only where the Lease was read.
        renewal: renewal.unwrap_or(Renewal::NO_LEASE),
        challenged: when.issued.drawn,
        requested: Millis(now.0.saturating_sub(when.age)),
        received: now,
        silence_ms: shared_age(votes, Answer::No, needed, std::cmp::Reverse).unwrap_or_default(),
    }
}

/// With two voters: the peer's no, unless the suspect itself speaks.
fn one_short(
    now: Millis,
    roster: &Roster,
    suspect: MemberId,
    when: When,
    named: (Nonce, Option<Renewal>),
    votes: &[Vote],
) -> Option<Death> {
    let peers_no = votes
        .iter()
        .all(|vote| vote.voter != suspect && vote.answer == Answer::No);
    let pair = roster.voters() == 2 && roster.is_voter(suspect) && !votes.is_empty();
    (pair && peers_no).then(|| death(now, when, 1, named, votes))
}

fn alive(now: Millis, round_age: u64, needed: usize, votes: &[Vote]) -> Alive {
    let yes: Vec<&Vote> = votes.iter().filter(|vote| vote.answer == Answer::Yes).collect();
    // A majority is fresh as long as the `needed`-th best of the contacts is.
    let age = shared_age(votes, Answer::Yes, needed, |age| age).unwrap_or(ALIVE_TTL_MS);
    let left = ALIVE_TTL_MS.saturating_sub(age).saturating_sub(round_age);
    Alive {
        received: now,
        until: now.plus(left),
        cloud: most(yes.iter().map(|vote| vote.facts.cloud)),
        kubelet: most(yes.iter().map(|vote| vote.facts.kubelet)),
        runtime: most(yes.iter().map(|vote| vote.facts.runtime)),
    }
}

/// The `needed`-th of the ages of contact of those who gave this answer, in the order of `key`.
fn shared_age<K: Ord>(votes: &[Vote], answer: Answer, needed: usize, key: impl Fn(u64) -> K) -> Option<u64> {
    let votes = votes.iter().filter(|vote| vote.answer == answer);
    let mut ages: Vec<u64> = votes.map(|vote| u64::from(vote.contact_age)).collect();
    ages.sort_unstable_by_key(|age| key(*age));
    ages.get(needed.checked_sub(1)?).copied()
}

/// What most voters say; a tie, or nobody who knows, is the default: unknown.
fn most<T: Copy + Default + Ord>(values: impl Iterator<Item = T>) -> T {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values.filter(|value| *value != T::default()) {
        *counts.entry(value).or_default() += 1;
    }
    let best = counts.values().copied().max().unwrap_or_default();
    let mut leaders = counts
        .into_iter()
        .filter(|(_, count)| *count == best)
        .map(|(value, _)| value);
    match (leaders.next(), leaders.next()) {
        (Some(value), None) => value,
        _ => T::default(),
    }
}
