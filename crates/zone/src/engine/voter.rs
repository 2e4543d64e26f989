//! A voter's answer to a confirm request: about each suspect yes on proof of identity, no on silence of
//! everything, else an abstention; about all of them in one ballot.

use super::contacts::Contacts;
use super::context::{Context, NEVER};
use super::own::Own;
use super::reach::Reach;
use super::watches::Watches;
use super::{CheckResult, Output, Question};
use crate::Millis;
use crate::roster::MemberId;
use crate::verdict::{Health, Link};
use crate::wire::{Answer, Ballot, Body, ConfirmRequest, Datagram, Facts, RequestDigest, Said, Voted};
use std::collections::BTreeMap;

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
/// At most this many suspects are looked for at a time, in all and for one asker; requests for more are left
/// to their repetition. No single member can use up what the others need. One asker may hold two rounds about
/// a whole cell.
const MAX_OPEN: usize = 512;
const MAX_OPEN_OF_ONE: usize = 128;
/// Requests that come within this time after a pause waited in the socket: their rounds are over, and whoever
/// still waits for an answer asks again.
const DRAINS_MS: u64 = 100;
/// At most this many answers to one asker are kept. Who keeps the rules begins fewer rounds in that time.
const MAX_GIVEN_OF_ONE: usize = 16;

/// Open requests and given answers.
#[derive(Default)]
pub(super) struct Voter {
    open: BTreeMap<Question, Open>,
    given: BTreeMap<(MemberId, RequestDigest), Given>,
    /// When the first of the open requests has to be looked at; never later than that.
    due: Millis,
    /// Until then requests of before a pause may come.
    drained: Millis,
    /// Ballots for which this agent asked itself.
    own: Vec<(Ballot, Datagram)>,
    /// Nothing bounds what it is asked for: tests show with that what the bounds are for.
    unbounded: bool,
}

/// Who asks.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) id: MemberId,
    /// It knows [`Voted`].
    pub(super) knows_voted: bool,
}

/// A request that is not answered yet.
struct Open {
    asker: Asker,
    digest: RequestDigest,
    since: Millis,
    deadline: Millis,
    probes: u8,
    /// The look is long enough, and this process ran all the time. Only then does silence mean something.
    whole: bool,
    /// In the order of the request.
    looks: Vec<Look>,
}

/// The look for one suspect.
enum Look {
    /// Nothing is decided yet.
    Open {
        suspect: MemberId,
        check: Option<CheckResult>,
    },
    /// What the ballot will say.
    Said(Said),
}

struct Given {
    at: Millis,
    bytes: Datagram,
}

/// What a voter needs to know and to use in order to look for a suspect.
pub(super) struct Sight<'a> {
    pub(super) own: &'a Own,
    pub(super) contacts: &'a mut Contacts,
    pub(super) watches: &'a Watches,
}

impl Open {
    /// A look at the suspects is due as often as a probe is, also when all are sent, so that a stall of this
    /// process is noticed, and at the latest when the vote is.
    fn due(&self, now: Millis) -> Millis {
        let looks = now.since(self.since) / PROBE_EVERY_MS + 1;
        let missed = u64::from(self.probes) < looks.min(u64::from(PROBES));
        let next = if missed {
            now
        } else {
            self.since.plus(looks * PROBE_EVERY_MS)
        };
        next.min(self.deadline)
    }

    /// Suspects about whom nothing is decided yet.
    fn undecided(&self) -> impl Iterator<Item = MemberId> {
        self.looks.iter().filter_map(|look| match look {
            Look::Open { suspect, .. } => Some(*suspect),
            Look::Said(_) => None,
        })
    }

    /// What the ballot says, once everything is decided.
    fn said(&self) -> Option<Vec<Said>> {
        let said = self.looks.iter().map(|look| match look {
            Look::Said(said) => Some(*said),
            Look::Open { .. } => None,
        });
        said.collect()
    }

    /// Decides about the suspects for whom that is possible by now.
    fn decide(&mut self, cx: &Context, own: &Own, contacts: &Contacts) {
        for index in 0..self.looks.len() {
            let Some(Look::Open { suspect, check }) = self.looks.get(index) else {
                continue;
            };
            if let Some((answer, facts, age)) = self.vote_on(cx, own, contacts, *suspect, *check)
                && let Some(look) = self.looks.get_mut(index)
            {
                *look = Look::Said(Said {
                    index: index as u8,
                    answer,
                    contact_age: u32::try_from(age).unwrap_or(u32::MAX),
                    facts,
                });
            }
        }
    }

    /// The vote on a suspect with the age of the last contact, if it is time for one.
    fn vote_on(
        &self,
        cx: &Context,
        own: &Own,
        contacts: &Contacts,
        suspect: MemberId,
        check: Option<CheckResult>,
    ) -> Option<(Answer, Facts, u64)> {
        if suspect == cx.me() {
            return Some((Answer::Yes, own.facts(), 0));
        }
        let index = cx.roster().position(suspect);
        let Some(peer) = index.and_then(|index| contacts.peer(index)) else {
            return Some((Answer::Abstain, Facts::default(), 0));
        };
        let now = cx.now();
        if let Some(at) = peer.proved().filter(|at| *at >= self.since) {
            return Some((Answer::Yes, peer.facts(), now.since(at)));
        }
        let silent = peer.is_quiet(now, cx.period_ms());
        let over = now >= self.deadline;
        if check == Some(CheckResult::Identity) {
            if !silent {
                return Some((Answer::Yes, peer.facts(), 0));
            }
            // The machine and its kubelet live, its agent is silent: nothing is known of its link to the
            // cloud.
            let facts = Facts {
                cloud: Link::Unknown,
                kubelet: Health::Ok,
                runtime: Health::Unknown,
            };
            let waited = over || now >= self.since.plus(AGENT_FIRST_MS);
            return waited.then_some((Answer::Yes, facts, 0));
        }
        if !over {
            return None;
        }
        let heard_nothing = silent && self.whole && check == Some(CheckResult::Failed);
        let no = heard_nothing && peer.seen_alive() && peer.found() && !own.doubts();
        let kubelet = if check == Some(CheckResult::Failed) {
            Health::Failing
        } else {
            Health::Unknown
        };
        let facts = Facts {
            kubelet,
            ..Facts::default()
        };
        let answer = if no { Answer::No } else { Answer::Abstain };
        Some((answer, facts, peer.silent_for(now)))
    }
}

impl Voter {
    #[cfg(any(test, feature = "fixture"))]
    pub(super) fn unbind(&mut self) {
        self.unbounded = true;
    }

    /// Drops all open requests.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// After a pause, what was asked before it is stale.
    pub(super) fn resume(&mut self, now: Millis) {
        self.clear();
        self.drained = now.plus(DRAINS_MS);
    }

    /// This process did not run for a moment, so what it did not hear proves nothing.
    pub(super) fn distrust_silence(&mut self) {
        for open in self.open.values_mut() {
            open.whole = false;
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        if self.open.is_empty() { NEVER } else { self.due }
    }

    /// The ballots for which this agent asked itself since the last call.
    pub(super) fn take_own_ballots(&mut self) -> Vec<(Ballot, Datagram)> {
        std::mem::take(&mut self.own)
    }

    /// Somebody asks for votes. Returns whether the request is new and one of the suspects is this agent's
    /// node.
    pub(super) fn take_request(
        &mut self,
        cx: &mut Context,
        sight: &mut Sight<'_>,
        asker: Asker,
        request: &ConfirmRequest,
    ) -> bool {
        let (now, digest) = (cx.now(), request.digest());
        if now < self.drained {
            return false;
        }
        let kept = |given: &&Given| now.since(given.at) < KEEP_ANSWER_MS;
        if let Some(given) = self.given.get(&(asker.id, digest)).filter(kept) {
            // The asker repeats its request because it has not received the answer. An answer to ourselves
            // is never lost.
            if asker.id != cx.me() {
                answer_with(cx, asker, given.bytes.clone());
            }
            return false;
        }
        let asked = Question {
            asker: asker.id,
            round: request.round,
        };
        let looked_for = |open: &Open| open.looks.len();
        let of_asker = self.open.values().filter(|open| open.asker.id == asker.id);
        let more = request.suspects.len();
        let too_many = of_asker.map(looked_for).sum::<usize>() + more > MAX_OPEN_OF_ONE
            || self.open.values().map(looked_for).sum::<usize>() + more > MAX_OPEN;
        if more == 0 || self.open.contains_key(&asked) || too_many && !self.unbounded {
            return false;
        }
        let from = cx.roster().position(asker.id);
        let from = from.filter(|from| !cx.is_me(*from) && !self.unbounded);
        if from.is_some_and(|from| !sight.contacts.allows_suspects(from, now, more)) {
            cx.put(Output::Refused("budget"));
            return false;
        }
        let within = u64::from(request.budget)
            .saturating_sub(WAY_BACK_MS)
            .min(ANSWER_WITHIN_MS);
        let looks = request.suspects.iter().map(|suspect| Look::Open {
            suspect: suspect.member,
            check: None,
        });
        let mut open = Open {
            asker,
            digest,
            since: now,
            deadline: now.plus(within),
            probes: 0,
            whole: within >= LEAST_LOOK_MS,
            looks: looks.collect(),
        };
        open.decide(cx, sight.own, sight.contacts);
        for suspect in open.undecided() {
            cx.put(Output::Check {
                asked,
                suspect,
                within_ms: within.saturating_sub(50),
            });
        }
        probe(&mut open, cx, sight);
        self.open.insert(asked, open);
        self.answer(cx, asked);
        self.schedule(now);
        let mut suspects = request.suspects.iter();
        suspects.any(|suspect| suspect.member == cx.me())
    }

    /// The suspect's agent proved its life.
    pub(super) fn heard(&mut self, cx: &mut Context, own: &Own, contacts: &Contacts, suspect: MemberId) {
        let about = |open: &Open| open.undecided().any(|other| other == suspect);
        let rounds = self.open.iter().filter(|(_, open)| about(open));
        let rounds: Vec<Question> = rounds.map(|(asked, _)| *asked).collect();
        for asked in rounds {
            self.decide(cx, own, contacts, asked);
        }
    }

    /// The check plugins have an answer.
    pub(super) fn checked(
        &mut self,
        cx: &mut Context,
        own: &Own,
        contacts: &Contacts,
        (asked, checked, result): (Question, MemberId, CheckResult),
    ) {
        let looks = self.open.get_mut(&asked).map(|open| open.looks.iter_mut());
        for look in looks.into_iter().flatten() {
            if let Look::Open { suspect, check } = look
                && *suspect == checked
            {
                *check = Some(result);
            }
        }
        self.decide(cx, own, contacts, asked);
    }

    /// Sends the probes that are due, and votes where it is time.
    pub(super) fn step(&mut self, cx: &mut Context, sight: &mut Sight<'_>) {
        let now = cx.now();
        self.given.retain(|_, given| now.since(given.at) < KEEP_ANSWER_MS);
        if now < self.deadline() {
            return;
        }
        let rounds: Vec<Question> = self.open.keys().copied().collect();
        for asked in rounds {
            if let Some(open) = self.open.get_mut(&asked) {
                probe(open, cx, sight);
            }
            self.decide(cx, sight.own, sight.contacts, asked);
        }
        self.schedule(now);
    }

    fn schedule(&mut self, now: Millis) {
        self.due = self
            .open
            .values()
            .map(|open| open.due(now))
            .min()
            .unwrap_or(NEVER);
    }

    fn decide(&mut self, cx: &mut Context, own: &Own, contacts: &Contacts, asked: Question) {
        if let Some(open) = self.open.get_mut(&asked) {
            open.decide(cx, own, contacts);
            self.answer(cx, asked);
        }
    }

    /// Sends the ballot if everything is decided.
    fn answer(&mut self, cx: &mut Context, asked: Question) {
        let Some(said) = self.open.get(&asked).and_then(Open::said) else {
            return;
        };
        let Some(open) = self.open.remove(&asked) else {
            return;
        };
        let ballot = Ballot {
            request: open.digest,
            roster: cx.roster().reference(),
            uptime: cx.uptime_s(),
            said,
        };
        let Some((_, bytes)) = cx.seal(open.asker.id, &Body::Ballot(ballot.clone())) else {
            return;
        };
        let to_asker = self.given.keys().filter(|(asker, _)| *asker == open.asker.id);
        if to_asker.count() < MAX_GIVEN_OF_ONE {
            let given = Given {
                at: cx.now(),
                bytes: bytes.clone(),
            };
            self.given.insert((open.asker.id, open.digest), given);
        }
        if open.asker.id == cx.me() {
            self.own.push((ballot, bytes));
        } else {
            answer_with(cx, open.asker, bytes);
        }
    }
}

fn answer_with(cx: &mut Context, asker: Asker, ballot: Datagram) {
    if asker.knows_voted {
        let ballot = ballot.to_vec();
        cx.send(asker.id, &Body::Voted(Voted { ballot }));
    } else {
        cx.send_bytes(asker.id, ballot);
    }
}

/// Sends the next probe, directly and through another member, to each suspect about whom nothing is decided.
/// Whoever was heard lately is asked directly at first, because most likely it answers: so a round about
/// members that live costs half as much.
fn probe(open: &mut Open, cx: &mut Context, sight: &mut Sight<'_>) {
    let due = open.since.plus(u64::from(open.probes) * PROBE_EVERY_MS);
    if open.probes >= PROBES || cx.now() < due {
        return;
    }
    open.probes += 1;
    for suspect in open.undecided() {
        let Some(index) = cx.roster().position(suspect) else {
            continue;
        };
        sight.contacts.send_heartbeat(cx, sight.own, suspect, None);
        let peer = sight.contacts.peer(index);
        let is_heard = peer.is_some_and(|peer| !peer.is_quiet(cx.now(), cx.period_ms()));
        if open.probes == 1 && is_heard {
            continue;
        }
        let relay = Reach::new(cx, sight.contacts, sight.watches).relay_for(cx, index);
        if relay.is_some() {
            sight.contacts.send_heartbeat(cx, sight.own, suspect, relay);
        }
    }
}
