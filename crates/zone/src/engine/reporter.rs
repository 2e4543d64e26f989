//! What the reporters do: tally the observers' edges, find suspects, hold confirm rounds.

use super::{Engine, Note, Output};
use crate::Millis;
use crate::keys;
use crate::roster::{MemberId, Roster};
use crate::verdict::ALIVE_TTL_MS;
use crate::vote::Vote;
use crate::wire::{self, Answer, Ballot, Body, ConfirmRequest, EdgeState, Facts, Nonce};
use evenkeel_api::zone::VerdictKind;
use std::collections::{BTreeMap, BTreeSet};

/// A confirm round is over after this time.
const ROUND_MS: u64 = 1_000;
/// Members that have not answered are asked again after each such interval of a round.
const ASK_AGAIN_MS: u64 = 300;
/// Suspects that come up within this time share a round.
const GATHER_MS: u64 = 100;
/// Evidence of life is renewed this often: three times within its time to live.
const RENEW_ALIVE_MS: u64 = 4_500;
/// While a death is young its round is repeated this often, counted from the start of the round. Readers need
/// two rounds whose requests lie at least 12 s apart. Three repeats make 12.75 s; the rest is for writes that
/// take differently long.
const REPEAT_YOUNG_DEATH_MS: u64 = 4_250;
/// A death is young for this long after this reporter first held it.
const YOUNG_DEATH_MS: u64 = 60_000;
/// Evidence of an older death is renewed this often, counted from the start of the round, so that it fits the
/// present roster and later renewals of the Lease.
const RENEW_DEAD_MS: u64 = 10_000;
/// A round without majority is repeated after 1, 2, 4, then every 5 s.
const RETRY_MS: [u64; 4] = [1_000, 2_000, 4_000, 5_000];
/// How long a node must be well before it is taken off the list: after suspicion, and after a cut cloud link.
const ACQUIT_SUSPECT_MS: u64 = 15_000;
const ACQUIT_TROUBLED_MS: u64 = 5_000;

/// What a reporter holds.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    pub(super) leading: bool,
    /// Rank among the reporters; `None` if it is not one of them.
    pub(super) rank: Option<usize>,
    pub(super) standing: bool,
    /// It has stood for the Lease before in this life.
    pub(super) stood: bool,
    pub(super) cases: BTreeMap<MemberId, Case>,
    rounds: Vec<Round>,
    pub(super) publication: super::report::Publication,
}

/// What is going on with one node.
#[derive(Debug, Default)]
pub(super) struct Case {
    unstable_since: Option<Millis>,
    pub(super) suspect_since: Option<Millis>,
    /// What its own agent or its observers say of it.
    pub(super) facts: Facts,
    troubled: bool,
    was_suspect: bool,
    next_round: Millis,
    failures: usize,
    well_since: Option<Millis>,
    pub(super) held: Option<Held>,
}

/// A verdict with its evidence.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) kind: VerdictKind,
    /// First time that this kind was held.
    pub(super) since: Millis,
    /// No later than `since`: of a verdict that another reporter published, when its round began by its
    /// published age.
    pub(super) known_since: Millis,
    pub(super) round_began: Millis,
    pub(super) made: Millis,
    pub(super) evidence: Vec<String>,
    pub(super) reason: String,
}

#[derive(Debug)]
struct Round {
    nonce: Nonce,
    began: Millis,
    requested: Millis,
    open: BTreeMap<MemberId, BTreeMap<MemberId, (Vote, String)>>,
}

impl Reporter {
    pub(super) fn is_busy(&self) -> bool {
        !self.rounds.is_empty()
    }

    /// The next time after `at` that a round about a death is due: what readers confirm should not wait for a
    /// tick.
    pub(super) fn next_dead_round_after(&self, at: Millis) -> Option<Millis> {
        let is_dead = |case: &&Case| {
            case.held
                .as_ref()
                .is_some_and(|held| held.kind == VerdictKind::Dead)
        };
        let times = self.cases.values().filter(is_dead).map(|case| case.next_round);
        times.filter(|time| *time > at).min()
    }

    pub(super) fn drop_rounds(&mut self) {
        self.rounds.clear();
    }

    pub(super) fn retain(&mut self, roster: &Roster) {
        self.cases.retain(|id, _| roster.contains(*id));
    }
}

impl Engine {
    pub(super) fn tick_reporter(&mut self) {
        let reporters = self.reporters();
        self.reporter.rank = reporters.iter().position(|id| *id == self.me);
        if self.reporter.rank.is_none() || self.doubting || self.on_smaller_side {
            self.reporter.cases.clear();
            self.reporter.rounds.clear();
        } else {
            self.tally_edges();
            self.judge_cases();
            self.finish_rounds();
            self.begin_round();
        }
        self.tick_publication();
    }

    /// Edges of live observers per subject: below L nothing, at H or above a suspect, in between a suspect
    /// after two periods. Fewer than two live observers cannot be outvoted: straight to the confirm round.
    fn tally_edges(&mut self) {
        let mut lost: BTreeMap<MemberId, BTreeSet<MemberId>> = BTreeMap::new();
        let mut bad_facts: BTreeMap<MemberId, Facts> = BTreeMap::new();
        for (id, peer) in &self.peers {
            if peer
                .watch
                .as_ref()
                .is_some_and(|watch| watch.state == EdgeState::Down)
            {
                lost.entry(*id).or_default().insert(self.me);
            }
            if self.is_live(peer) && !peer.facts.are_plain() {
                bad_facts.insert(*id, peer.facts);
            }
            let Some(reported) = peer
                .reported
                .as_ref()
                .filter(|reported| self.is_recent(reported.at))
            else {
                continue;
            };
            for (subject, (state, facts)) in &reported.edges {
                if *state == EdgeState::Down {
                    lost.entry(*subject).or_default().insert(*id);
                } else if !facts.are_plain()
                    && self.peers.get(subject).is_some_and(|peer| peer.watch.is_none())
                {
                    bad_facts.entry(*subject).or_insert(*facts);
                }
            }
        }
        if !self.facts.are_plain() {
            bad_facts.insert(self.me, self.facts);
        }
        for id in lost.keys().chain(bad_facts.keys()).chain(&self.wanted) {
            if self.roster.contains(*id) {
                self.reporter.cases.entry(*id).or_default();
            }
        }
        self.open_unwatched();
        let ids: Vec<MemberId> = self.reporter.cases.keys().copied().collect();
        for id in ids {
            let nobody = BTreeSet::new();
            let (down, live) = self.count(id, lost.get(&id).unwrap_or(&nobody));
            self.weigh(id, down, live, bad_facts.get(&id).copied());
        }
    }

    /// A node whose observers all died with it is missed by nobody. So a node that was watched by a suspect
    /// and has no live observer left is voted on as well (hazard 5).
    fn open_unwatched(&mut self) {
        if self.roster.all_pairs() {
            return;
        }
        let gone = |case: &Case| case.suspect_since.is_some();
        let gone: Vec<MemberId> = self
            .reporter
            .cases
            .iter()
            .filter(|(_, case)| gone(case))
            .map(|(id, _)| *id)
            .collect();
        let watched: BTreeSet<MemberId> = gone
            .iter()
            .flat_map(|observer| self.roster.subjects_of(*observer))
            .filter(|subject| *subject != self.me && !self.reporter.cases.contains_key(subject))
            .collect();
        for subject in watched {
            if self.count(subject, &BTreeSet::new()).1 == 0 {
                self.reporter.cases.entry(subject).or_default();
            }
        }
    }

    /// Live observers of a subject without contact, and all of them.
    fn count(&self, subject: MemberId, lost: &BTreeSet<MemberId>) -> (usize, usize) {
        let counts = |observer: &MemberId| {
            *observer == self.me
                || self.peers.get(observer).is_some_and(|peer| {
                    let told = peer
                        .reported
                        .as_ref()
                        .is_some_and(|reported| self.is_recent(reported.at));
                    !peer.doubt && (self.is_live(peer) || told)
                })
        };
        let live: Vec<MemberId> = self
            .roster
            .observers_of(subject)
            .into_iter()
            .filter(counts)
            .collect();
        (
            live.iter().filter(|observer| lost.contains(observer)).count(),
            live.len(),
        )
    }

    fn is_recent(&self, at: Millis) -> bool {
        self.now.since(at) <= self.config.period_ms * 5 / 2
    }

    fn weigh(&mut self, id: MemberId, down: usize, live: usize, bad: Option<Facts>) {
        let (now, period) = (self.now, self.config.period_ms);
        let subject = self.name(id);
        let wanted = self.wanted.contains(&id);
        let Some(case) = self.reporter.cases.get_mut(&id) else {
            return;
        };
        let (low, high) = ((3 * live).div_ceil(10).max(1), (7 * live).div_ceil(10).max(1));
        case.unstable_since = if down >= low {
            case.unstable_since.or(Some(now))
        } else {
            None
        };
        let ripe = case
            .unstable_since
            .is_some_and(|since| now.since(since) >= 2 * period);
        // No observer is left that could lose contact with it, so only a vote can tell.
        let unwatched = live == 0 && id != self.me;
        let suspect = unwatched || down > 0 && (live < 2 || down >= high || ripe);
        case.troubled = bad.is_some();
        case.facts = bad.unwrap_or_default();
        match (suspect, case.suspect_since) {
            (true, None) => {
                case.suspect_since = Some(now);
                case.was_suspect = true;
                case.failures = 0;
                case.next_round = now.plus(GATHER_MS);
                self.out.push(Output::Note(Note::Suspect { subject, down, live }));
            }
            (false, Some(_)) if down < low => {
                case.suspect_since = None;
                case.failures = 0;
                case.next_round = now;
            }
            _ => {}
        }
        // Well: 0.9 of the live observers have contact, nothing is known to be wrong, and the controller does
        // not want rounds about it.
        let contacts_suffice = 10 * (live - down) >= 9 * live;
        let well = !suspect && case.suspect_since.is_none() && bad.is_none() && contacts_suffice && !wanted;
        case.well_since = if well { case.well_since.or(Some(now)) } else { None };
    }

    fn judge_cases(&mut self) {
        let now = self.now;
        for case in self.reporter.cases.values_mut() {
            let expired =
                |held: &Held| held.kind == VerdictKind::Alive && now.since(held.made) >= ALIVE_TTL_MS;
            if let Some(held) = case.held.as_mut().filter(|held| expired(held)) {
                held.kind = VerdictKind::None;
                (held.since, held.known_since) = (now, now);
                held.evidence.clear();
                held.reason = String::from("evidence of life ran out");
            }
        }
        self.reporter.cases.retain(|_, case| {
            let hold = match (&case.held, case.was_suspect) {
                (None, _) => 0,
                (Some(_), true) => ACQUIT_SUSPECT_MS,
                (Some(_), false) => ACQUIT_TROUBLED_MS,
            };
            // A death is left only on evidence of life: an alive verdict, or health for the whole time.
            case.well_since.is_none_or(|since| now.since(since) < hold)
        });
    }

    /// The agent of a node proved its life: whoever is held dead is looked at again at once.
    pub(super) fn reporter_heard(&mut self, id: MemberId) {
        let now = self.now;
        if let Some(case) = self.reporter.cases.get_mut(&id)
            && case
                .held
                .as_ref()
                .is_some_and(|held| held.kind == VerdictKind::Dead)
            && case.next_round > now.plus(RETRY_MS[0])
        {
            case.next_round = now;
        }
    }

    fn begin_round(&mut self) {
        let now = self.now;
        let in_round = |id: &MemberId| {
            self.reporter
                .rounds
                .iter()
                .any(|round| round.open.contains_key(id))
        };
        let due: Vec<MemberId> = self
            .reporter
            .cases
            .iter()
            .filter(|(id, case)| {
                let listed = case.suspect_since.is_some()
                    || case.troubled
                    || case.held.is_some()
                    || self.wanted.contains(id);
                listed && now >= case.next_round && !in_round(id)
            })
            .map(|(id, _)| *id)
            .take(wire::MAX_LIST)
            .collect();
        if due.is_empty() {
            return;
        }
        let nonce = Nonce(keys::prefix(&self.random()));
        let open = due.iter().map(|id| (*id, BTreeMap::new())).collect();
        self.reporter.rounds.push(Round {
            nonce,
            began: now,
            requested: now,
            open,
        });
        self.request_ballots(nonce, &due, &BTreeSet::new());
    }

    /// Asks all members, the suspects and this agent itself too.
    fn request_ballots(&mut self, round: Nonce, suspects: &[MemberId], answered: &BTreeSet<MemberId>) {
        let voters: Vec<MemberId> = self.roster.members().iter().map(|member| member.id).collect();
        let roster = self.roster.reference();
        let request = ConfirmRequest {
            round,
            roster,
            budget: ROUND_MS as u16,
            suspects: suspects.to_vec(),
        };
        for voter in voters.iter().filter(|voter| !answered.contains(voter)) {
            if *voter == self.me {
                self.take_request(*voter, &request);
            } else {
                self.send(*voter, Body::Confirm(request.clone()));
            }
        }
    }

    pub(super) fn take_ballot(&mut self, voter: MemberId, ballot: Ballot, bytes: &[u8]) {
        let Some(round) = self
            .reporter
            .rounds
            .iter_mut()
            .find(|round| round.nonce == ballot.round)
        else {
            return;
        };
        let Some(votes) = round.open.get_mut(&ballot.suspect) else {
            return;
        };
        votes.insert(voter, (Vote { voter, ballot }, wire::to_evidence(bytes)));
    }

    fn finish_rounds(&mut self) {
        let mut rounds = std::mem::take(&mut self.reporter.rounds);
        for round in &mut rounds {
            let over = self.now.since(round.began) >= ROUND_MS;
            let open: Vec<MemberId> = round.open.keys().copied().collect();
            for suspect in &open {
                self.finish(round, *suspect, over);
            }
            if !round.open.is_empty() && self.now.since(round.requested) >= ASK_AGAIN_MS {
                round.requested = self.now;
                let open: Vec<MemberId> = round.open.keys().copied().collect();
                let all = |voter: &MemberId| round.open.values().all(|votes| votes.contains_key(voter));
                let answered = self
                    .roster
                    .members()
                    .iter()
                    .map(|member| member.id)
                    .filter(all)
                    .collect();
                self.request_ballots(round.nonce, &open, &answered);
            }
        }
        rounds.retain(|round| !round.open.is_empty());
        self.reporter.rounds.append(&mut rounds);
    }

    fn finish(&mut self, round: &mut Round, suspect: MemberId, over: bool) {
        let Some(votes) = round.open.get(&suspect) else {
            return;
        };
        let cast: Vec<Vote> = votes.values().map(|(vote, _)| *vote).collect();
        let answered = self
            .peers
            .get(&suspect)
            .and_then(|peer| peer.proved)
            .is_some_and(|at| at >= round.began);
        let kind = self.council().tally(suspect, round.nonce, &cast, answered);
        if kind == VerdictKind::None && !over {
            return;
        }
        let Some(votes) = round.open.remove(&suspect) else {
            return;
        };
        let count = |answer| cast.iter().filter(|vote| vote.ballot.answer == answer).count();
        let counts = (count(Answer::Yes), count(Answer::No), count(Answer::Abstain));
        let of = self.roster.len();
        let (carrying, words) = match kind {
            VerdictKind::Dead => (Some(Answer::No), "dead"),
            VerdictKind::Alive => (Some(Answer::Yes), "alive"),
            VerdictKind::None => (None, "no majority"),
        };
        let subject = self.name(suspect);
        let now = self.now;
        let Some(case) = self.reporter.cases.get_mut(&suspect) else {
            return;
        };
        let former = case.held.as_ref().map(|held| held.kind);
        if former != Some(kind) {
            self.out.push(Output::Note(Note::Round {
                subject,
                outcome: words,
                votes: counts,
                of,
            }));
        }
        let same_kind = case.held.as_ref().filter(|held| held.kind == kind);
        let (since, known_since) = same_kind.map_or((now, now), |held| (held.since, held.known_since));
        case.next_round = match kind {
            VerdictKind::Dead if now.since(known_since) < YOUNG_DEATH_MS => {
                round.began.plus(REPEAT_YOUNG_DEATH_MS)
            }
            VerdictKind::Dead => round.began.plus(RENEW_DEAD_MS),
            VerdictKind::Alive => now.plus(RENEW_ALIVE_MS),
            VerdictKind::None => now.plus(RETRY_MS.get(case.failures).copied().unwrap_or(RETRY_MS[3])),
        };
        case.failures = if kind == VerdictKind::None {
            case.failures + 1
        } else {
            0
        };
        // Death stays until evidence of life, life until it runs out: no majority changes neither.
        if kind == VerdictKind::None && matches!(former, Some(VerdictKind::Dead | VerdictKind::Alive)) {
            return;
        }
        let evidence = votes
            .into_values()
            .filter(|(vote, _)| carrying.is_none_or(|carrying| vote.ballot.answer == carrying));
        let evidence: Vec<String> = evidence.map(|(_, text)| text).collect();
        let reason = match kind {
            VerdictKind::Dead => format!(
                "{} of {of} members say no, agent and kubelet are silent",
                counts.1
            ),
            VerdictKind::Alive => living(&cast, case.facts),
            VerdictKind::None => {
                format!(
                    "no majority of {of}: {} yes, {} no, {} abstain",
                    counts.0, counts.1, counts.2
                )
            }
        };
        case.held = Some(Held {
            kind,
            since,
            known_since,
            round_began: round.began,
            made: now,
            evidence,
            reason,
        });
    }
}

/// What is wrong with a living node, in words.
fn living(votes: &[Vote], facts: Facts) -> String {
    use crate::verdict::{Health, Link};
    let said = |test: fn(&Facts) -> bool| {
        let yes = votes.iter().filter(|vote| vote.ballot.answer == Answer::Yes);
        test(&facts) || 2 * yes.clone().filter(|vote| test(&vote.ballot.facts)).count() > yes.count()
    };
    let mut words = Vec::new();
    if said(|facts| facts.cloud == Link::Down) {
        words.push("cloud link down");
    }
    if said(|facts| facts.kubelet == Health::Failing) {
        words.push("kubelet failing");
    }
    if said(|facts| facts.runtime == Health::Failing) {
        words.push("runtime failing");
    }
    if words.is_empty() && said(|facts| facts.cloud == Link::Unknown) {
        words.push("agent silent, kubelet answers");
    }
    if words.is_empty() {
        words.push("recovering");
    }
    words.join(", ")
}
