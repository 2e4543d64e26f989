//! Confirm rounds: who was asked, who answered, what came of it.

use crate::Millis;
use crate::engine::contacts::Contacts;
use crate::engine::context::Context;
use crate::engine::due::Due;
use crate::roster::MemberId;
use crate::verdict::{Health, Link};
use crate::vote::{self, Vote};
use crate::wire::{self, Answer, Ballot, Challenge, ConfirmRequest, Facts, Nonce, RequestDigest, Suspect};
use evenkeel_api::zone::VerdictKind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A voter answers within this time of the request.
const ANSWER_MS: u16 = 1_000;
/// A confirm round is over after this time. A *no* is said 800 ms after the request came: so it has two more
/// attempts, and with 30 % loss counts in 87 of 100 rounds. Without them it would in 59.
const ROUND_MS: u64 = 1_500;
/// And after this time in a cell of two, whose only *no* is this agent's own and is not lost.
const ROUND_OF_TWO_MS: u64 = 1_000;
/// Members that have not answered are asked again after each such interval of a round.
const ASK_AGAIN_MS: u64 = 300;

/// The rounds under way.
#[derive(Default)]
pub(super) struct Rounds(Vec<Round>);

struct Round {
    request: ConfirmRequest,
    digest: RequestDigest,
    /// The request as a report carries it.
    text: Arc<str>,
    began: Millis,
    over_at: Millis,
    requested: Millis,
    /// Suspects about whom nothing is decided yet.
    open: BTreeSet<MemberId>,
    /// By voter: what it says of each suspect, and the signed datagram as text.
    ballots: BTreeMap<MemberId, (Vec<Vote>, Arc<str>)>,
    /// A ballot came since they were last counted.
    uncounted: bool,
    /// Voters whose ballots carry what was decided so far.
    carriers: BTreeSet<MemberId>,
}

/// What a round says of one suspect.
pub(super) struct Outcome {
    pub(super) suspect: MemberId,
    pub(super) kind: VerdictKind,
    pub(super) began: Millis,
    pub(super) challenge: Challenge,
    round: Nonce,
    text: Arc<str>,
    votes: BTreeMap<MemberId, (Vote, Arc<str>)>,
    /// Voters whose ballots are the evidence.
    carriers: BTreeSet<MemberId>,
}

/// The ballots of a round that carry a verdict, as a report shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Evidence {
    pub(in crate::engine) round: Nonce,
    /// The request.
    pub(in crate::engine) request: Arc<str>,
    pub(in crate::engine) began: Millis,
    /// What the ballots sign.
    pub(in crate::engine) challenge: Challenge,
    /// By voter.
    pub(in crate::engine) ballots: BTreeMap<MemberId, Arc<str>>,
}

impl Rounds {
    pub(super) fn drop_all(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a round about this suspect is under way.
    pub(super) fn has(&self, suspect: MemberId) -> bool {
        self.0.iter().any(|round| round.open.contains(&suspect))
    }

    /// Begins a round and returns what the voters are to be asked.
    pub(super) fn begin(&mut self, cx: &mut Context, suspects: &[Suspect], due: &mut Due) -> ConfirmRequest {
        let now = cx.now();
        let request = ConfirmRequest {
            round: Nonce(cx.nonce()),
            roster: cx.roster().reference(),
            challenge: cx.challenge(),
            budget: ANSWER_MS,
            suspects: suspects.to_vec(),
            later: cx.later_fields(),
        };
        let round = Round {
            digest: request.digest(),
            text: wire::to_evidence(&request.to_bytes()).into(),
            request: request.clone(),
            began: now,
            over_at: now.plus(if cx.roster().len() == 2 {
                ROUND_OF_TWO_MS
            } else {
                ROUND_MS
            }),
            requested: now,
            open: suspects.iter().map(|suspect| suspect.member).collect(),
            ballots: BTreeMap::new(),
            uncounted: false,
            carriers: BTreeSet::new(),
        };
        due.by(round.due());
        self.0.push(round);
        request
    }

    /// Whether a round of ours waits for the ballot of this voter.
    pub(super) fn awaits(&self, voter: MemberId, request: RequestDigest) -> bool {
        let mut asked = self.0.iter().filter(|round| round.digest == request);
        asked.any(|round| !round.ballots.contains_key(&voter))
    }

    /// When the newest round began to which more than half of the voters have answered.
    pub(super) fn answered_by_a_majority(&self, cx: &Context) -> Option<Millis> {
        let answered = |round: &&Round| {
            let voters = round.ballots.keys().filter(|voter| cx.roster().is_voter(**voter));
            voters.count() >= cx.roster().majority()
        };
        self.0.iter().filter(answered).map(|round| round.began).max()
    }

    /// Returns whether the ballot belongs to a round of ours.
    pub(super) fn take_ballot(&mut self, voter: MemberId, ballot: &Ballot, bytes: &[u8]) -> bool {
        let Some(round) = self.0.iter_mut().find(|round| round.digest == ballot.request) else {
            return false;
        };
        let votes = ballot.votes(voter, &round.request);
        round
            .ballots
            .insert(voter, (votes, wire::to_evidence(bytes).into()));
        round.uncounted = true;
        true
    }

    /// Counts the ballots, and takes out what is decided or has taken its time.
    pub(super) fn finish(&mut self, cx: &Context, contacts: &Contacts) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for round in &mut self.0 {
            let over = cx.now() >= round.over_at;
            if !std::mem::take(&mut round.uncounted) && !over {
                continue;
            }
            let open = std::mem::take(&mut round.open);
            let mut decided = Vec::new();
            for suspect in open {
                let index = cx.roster().position(suspect);
                let proved = index.and_then(|index| contacts.peer(index)?.proved());
                let answered = proved.is_some_and(|at| at >= round.began);
                let votes = round.votes_on(cx, suspect);
                let cast: Vec<Vote> = votes.values().map(|(vote, _)| *vote).collect();
                let kind = vote::tally(cx.roster(), suspect, &cast, answered);
                if !over && kind == VerdictKind::None {
                    round.open.insert(suspect);
                    continue;
                }
                decided.push(Outcome {
                    suspect,
                    kind,
                    began: round.began,
                    challenge: round.request.challenge,
                    round: round.request.round,
                    text: Arc::clone(&round.text),
                    votes,
                    carriers: BTreeSet::new(),
                });
            }
            round.choose_carriers(cx, &mut decided);
            outcomes.append(&mut decided);
        }
        self.0.retain(|round| !round.open.is_empty());
        outcomes
    }

    /// What is to be asked again, and who has answered.
    pub(super) fn ask_again(
        &mut self,
        cx: &Context,
        due: &mut Due,
    ) -> Vec<(ConfirmRequest, BTreeSet<MemberId>)> {
        let mut again = Vec::new();
        for round in &mut self.0 {
            if cx.now().since(round.requested) >= ASK_AGAIN_MS {
                round.requested = cx.now();
                again.push((round.request.clone(), round.ballots.keys().copied().collect()));
            }
            due.by(round.due());
        }
        again
    }
}

impl Round {
    fn due(&self) -> Millis {
        self.requested.plus(ASK_AGAIN_MS).min(self.over_at)
    }

    /// Chooses the ballots that carry the outcomes, and no more of them than a majority needs. A ballot is
    /// shown with all that it says, so those come first that carry other outcomes too, and the same ones for
    /// all. Of equals those come first that say no after the longest silence, and yes after the shortest.
    /// While a roster settles all are kept, because the voters of the last settled one have to agree by
    /// themselves.
    fn choose_carriers(&mut self, cx: &Context, decided: &mut [Outcome]) {
        let mut uses: BTreeMap<MemberId, (usize, u32, u32)> = BTreeMap::new();
        for vote in decided.iter().flat_map(|outcome| outcome.carrying(cx)) {
            let (count, silence, freshness) = uses.entry(vote.voter).or_insert((0, u32::MAX, 0));
            *count += 1;
            match vote.answer {
                Answer::Yes => *freshness = (*freshness).max(vote.contact_age),
                Answer::No | Answer::Abstain => *silence = (*silence).min(vote.contact_age),
            }
        }
        let needed = if cx.roster().is_settling() {
            usize::MAX
        } else {
            cx.roster().majority()
        };
        for outcome in decided {
            let mut voters: Vec<MemberId> = outcome.carrying(cx).map(|vote| vote.voter).collect();
            voters.sort_by_key(|voter| {
                let (count, silence, freshness) = uses.get(voter).copied().unwrap_or_default();
                let chosen = self.carriers.contains(voter);
                (Reverse((chosen, count, silence)), freshness, *voter)
            });
            voters.truncate(needed);
            outcome.carriers = voters.into_iter().collect();
            self.carriers.extend(&outcome.carriers);
        }
    }

    /// What voters say of a suspect, and what it says of itself. Other learners have no vote, and a ballot of
    /// theirs would take the place of one that readers count.
    fn votes_on(&self, cx: &Context, suspect: MemberId) -> BTreeMap<MemberId, (Vote, Arc<str>)> {
        let of_ballot = |(voter, (votes, text)): (&MemberId, &(Vec<Vote>, Arc<str>))| {
            let vote = votes.iter().find(|vote| vote.suspect == suspect)?;
            Some((*voter, (*vote, Arc::clone(text))))
        };
        let ballots = self
            .ballots
            .iter()
            .filter(|(voter, _)| vote::has_a_word(cx.roster(), **voter, suspect));
        ballots.filter_map(of_ballot).collect()
    }
}

impl Outcome {
    fn count(&self, answer: Answer) -> usize {
        let votes = self.votes.values();
        votes.filter(|(vote, _)| vote.answer == answer).count()
    }

    /// Votes yes, no, abstain.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (
            self.count(Answer::Yes),
            self.count(Answer::No),
            self.count(Answer::Abstain),
        )
    }

    pub(super) fn words(&self) -> &'static str {
        match self.kind {
            VerdictKind::Dead => "dead",
            VerdictKind::Alive => "alive",
            VerdictKind::None => "no majority",
        }
    }

    /// Why, in a cell of so many members; `facts` are what is known of the node otherwise.
    pub(super) fn reason(&self, of: usize, facts: Facts) -> String {
        let (yes, no, abstain) = self.counts();
        match self.kind {
            VerdictKind::Dead => format!("{no} of {of} members say no, agent and kubelet are silent"),
            VerdictKind::Alive => self.living(facts),
            VerdictKind::None => format!("no majority of {of}: {yes} yes, {no} no, {abstain} abstain"),
        }
    }

    /// What is wrong with a living node, in words.
    fn living(&self, facts: Facts) -> String {
        let said = |test: fn(&Facts) -> bool| {
            let votes = self.votes.values().map(|(vote, _)| vote);
            let yes = votes.filter(|vote| vote.answer == Answer::Yes);
            test(&facts) || 2 * yes.clone().filter(|vote| test(&vote.facts)).count() > yes.count()
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

    /// The votes that make the outcome. Without a majority there are none, but in a cell of two voters, where
    /// the peer's no counts as one vote of two.
    fn carrying(&self, cx: &Context) -> impl Iterator<Item = Vote> {
        let carrying = match self.kind {
            VerdictKind::Dead => Some(Answer::No),
            VerdictKind::Alive => Some(Answer::Yes),
            VerdictKind::None => Some(Answer::No).filter(|_| cx.roster().voters() == 2),
        };
        let votes = self.votes.values().map(|(vote, _)| *vote);
        votes.filter(move |vote| Some(vote.answer) == carrying && cx.roster().is_voter(vote.voter))
    }

    /// The signed ballots that carry the outcome, if it has evidence.
    pub(super) fn into_evidence(self, cx: &Context) -> Option<Evidence> {
        if self.kind == VerdictKind::None && cx.roster().voters() != 2 {
            return None;
        }
        let votes = self.votes.into_iter();
        let shown = votes.filter(|(voter, _)| self.carriers.contains(voter));
        Some(Evidence {
            round: self.round,
            request: self.text,
            began: self.began,
            challenge: self.challenge,
            ballots: shown.map(|(voter, (_, text))| (voter, text)).collect(),
        })
    }
}
