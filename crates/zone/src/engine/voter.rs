//! A voter's answer to a confirm request: yes on proof of identity, no on silence of everything, else an
//! abstention.

use super::watch::PERIOD_GRACE_MS;
use super::{CheckResult, Engine, Output};
use crate::Millis;
use crate::roster::MemberId;
use crate::verdict::{Health, Link};
use crate::wire::{Answer, Ballot, Body, ConfirmRequest, Facts, Nonce};
use std::collections::{BTreeMap, BTreeSet};

/// A voter answers at the latest this long after the request, whatever budget it names.
const ANSWER_WITHIN_MS: u64 = 800;
/// Part of the asker's time that is left for the answer to travel back.
const WAY_BACK_MS: u64 = 200;
/// Probes of the suspect's agent for one request, and the time between two.
const PROBES: u8 = 3;
const PROBE_EVERY_MS: u64 = 200;
/// An answer is kept for this long, so that a request sent again gets the same words.
const KEEP_ANSWER_MS: u64 = 3_000;
/// A look that is shorter than this finds nobody silent. Otherwise an asker could get a *no* by granting no
/// time.
const LEAST_LOOK_MS: u64 = 600;
/// For this long the vote waits for the suspect's agent although its kubelet has answered, because only the
/// agent knows its link to the cloud. It is the time that the probes take.
const AGENT_FIRST_MS: u64 = PROBES as u64 * PROBE_EVERY_MS;
/// At most this many questions are open at a time, in all and of one asker; more are left to the next round.
/// No single member can use up what the others need.
const MAX_OPEN: usize = 256;
const MAX_OPEN_OF_ONE: usize = 64;
/// At most this many answers are kept.
const MAX_GIVEN: usize = 1024;

type Question = (Nonce, MemberId);

/// Open questions and given answers.
#[derive(Debug, Default)]
pub(super) struct Voter {
    open: BTreeMap<Question, Open>,
    given: BTreeMap<Question, Given>,
}

#[derive(Debug)]
struct Open {
    asker: MemberId,
    since: Millis,
    deadline: Millis,
    probes: u8,
    check: Option<CheckResult>,
    /// The look is long enough, and this process ran all the time. Only then does silence mean something.
    whole: bool,
}

#[derive(Debug)]
struct Given {
    at: Millis,
    bytes: Vec<u8>,
}

impl Voter {
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// This process did not run for a moment, so what it did not hear proves nothing.
    pub(super) fn distrust_silence(&mut self) {
        for open in self.open.values_mut() {
            open.whole = false;
        }
    }
}

impl Engine {
    pub(super) fn take_request(&mut self, asker: MemberId, request: &ConfirmRequest) {
        let suspects: BTreeSet<MemberId> = request.suspects.iter().copied().collect();
        for suspect in suspects {
            self.take_question(asker, request.round, suspect, request.budget);
        }
    }

    fn take_question(&mut self, asker: MemberId, round: Nonce, suspect: MemberId, budget: u16) {
        let question = (round, suspect);
        if let Some(given) = self.voter.given.get(&question) {
            // The asker repeats its question because it has not received the answer. An answer to ourselves
            // is never lost.
            if asker != self.me {
                let bytes = given.bytes.clone();
                self.send_bytes(asker, bytes);
            }
            return;
        }
        if !self.roster.contains(suspect) || self.voter.open.contains_key(&question) {
            return;
        }
        if suspect == self.me {
            self.prove_when_requested();
            let facts = self.facts;
            self.cast(question, asker, Answer::Yes, facts, 0);
            return;
        }
        let of_asker = self.voter.open.values().filter(|open| open.asker == asker);
        if self.voter.open.len() >= MAX_OPEN || of_asker.count() >= MAX_OPEN_OF_ONE {
            return;
        }
        let within = u64::from(budget)
            .saturating_sub(WAY_BACK_MS)
            .min(ANSWER_WITHIN_MS);
        let deadline = self.now.plus(within);
        self.voter.open.insert(
            question,
            Open {
                asker,
                since: self.now,
                deadline,
                probes: 0,
                check: None,
                whole: within >= LEAST_LOOK_MS,
            },
        );
        self.out.push(Output::Check {
            round,
            suspect,
            within_ms: within.saturating_sub(50),
        });
        self.probe_suspect(question);
    }

    /// The suspect's agent proved its life.
    pub(super) fn voter_heard(&mut self, suspect: MemberId) {
        let questions: Vec<Question> = self
            .voter
            .open
            .keys()
            .filter(|question| question.1 == suspect)
            .copied()
            .collect();
        for question in questions {
            self.decide(question);
        }
    }

    pub(super) fn checked(&mut self, round: Nonce, suspect: MemberId, result: CheckResult) {
        if result == CheckResult::Identity
            && let Some(peer) = self.peers.get_mut(&suspect)
        {
            peer.kubelet_proved = Some(self.now);
        }
        if let Some(open) = self.voter.open.get_mut(&(round, suspect)) {
            open.check = Some(result);
            self.decide((round, suspect));
        }
    }

    pub(super) fn tick_votes(&mut self) {
        let now = self.now;
        self.voter
            .given
            .retain(|_, given| now.since(given.at) < KEEP_ANSWER_MS);
        let questions: Vec<Question> = self.voter.open.keys().copied().collect();
        for question in questions {
            self.probe_suspect(question);
            self.decide(question);
        }
    }

    fn probe_suspect(&mut self, question: Question) {
        let now = self.now;
        let Some(open) = self.voter.open.get_mut(&question) else {
            return;
        };
        if open.probes >= PROBES || now < open.since.plus(u64::from(open.probes) * PROBE_EVERY_MS) {
            return;
        }
        open.probes += 1;
        let suspect = question.1;
        self.send_heartbeat(suspect, None);
        let relay = self.relay_for(suspect);
        if relay.is_some() {
            self.send_heartbeat(suspect, relay);
        }
    }

    fn decide(&mut self, question: Question) {
        let suspect = question.1;
        let Some(open) = self.voter.open.get(&question) else {
            return;
        };
        let Some(peer) = self.peers.get(&suspect) else {
            self.voter.open.remove(&question);
            return;
        };
        let asker = open.asker;
        if let Some(at) = peer.proved.filter(|at| *at >= open.since) {
            let (facts, age) = (peer.facts, self.now.since(at));
            return self.cast(question, asker, Answer::Yes, facts, age);
        }
        let silent = peer
            .contact
            .is_none_or(|at| self.now.since(at) > self.config.period_ms + PERIOD_GRACE_MS);
        let over = self.now >= open.deadline;
        if open.check == Some(CheckResult::Identity) {
            let facts = if !silent {
                peer.facts
            } else if over || self.now >= open.since.plus(AGENT_FIRST_MS) {
                // The machine and its kubelet live, its agent is silent: nothing is known of its link to the
                // cloud.
                Facts {
                    cloud: Link::Unknown,
                    kubelet: Health::Ok,
                    runtime: Health::Unknown,
                }
            } else {
                return;
            };
            return self.cast(question, asker, Answer::Yes, facts, 0);
        }
        if !over {
            return;
        }
        let heard_nothing = silent && open.whole && open.check == Some(CheckResult::Failed);
        let no = heard_nothing && peer.seen_alive && !self.doubting;
        let age = peer.silent_for(self.now);
        let kubelet = if open.check == Some(CheckResult::Failed) {
            Health::Failing
        } else {
            Health::Unknown
        };
        let facts = Facts {
            kubelet,
            ..Facts::default()
        };
        self.cast(
            question,
            asker,
            if no { Answer::No } else { Answer::Abstain },
            facts,
            age,
        );
    }

    fn cast(&mut self, question: Question, asker: MemberId, answer: Answer, facts: Facts, age: u64) {
        let (round, suspect) = question;
        self.voter.open.remove(&question);
        let life = self.peers.get(&suspect).and_then(|peer| peer.life.as_ref());
        let incarnation = life.map_or(0, |life| life.incarnation);
        let ballot = Ballot {
            round,
            suspect,
            suspect_incarnation: if suspect == self.me {
                self.identity.incarnation
            } else {
                incarnation
            },
            roster: self.roster.reference(),
            answer,
            contact_age: u32::try_from(age).unwrap_or(u32::MAX),
            facts,
        };
        let (_, bytes) = self.seal(asker, Body::Ballot(ballot));
        if self.voter.given.len() < MAX_GIVEN {
            let given = Given {
                at: self.now,
                bytes: bytes.clone(),
            };
            self.voter.given.insert(question, given);
        }
        if asker == self.me {
            self.take_ballot(self.me, ballot, &bytes);
        } else {
            self.send_bytes(asker, bytes);
        }
    }
}
