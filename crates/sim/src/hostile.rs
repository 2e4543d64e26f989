//! What a hostile member does with what it hears, sends and publishes.

use crate::api::build::{node_name, node_of_uid};
use crate::api::objects::Object;
use crate::event::Event;
use crate::malice::{Hostile, Kept, Malice};
use crate::script::{Fault, SECOND, Step};
use crate::sim::Sim;
use crate::zones::rules;
use evenkeel_api::zone::{ListedNode, Report, SignedRound, VerdictKind};
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::fixture;
use evenkeel_zone::keys::Signer;
use evenkeel_zone::roster::{MemberId, Roster};
use evenkeel_zone::verdict::{Health, Link};
use evenkeel_zone::wire::{
    self, Ack, Answer, Ballot, Body, Challenge, ConfirmRequest, Edge, EdgeState, Edges, Facts, Frame, Header,
    MAX_LIST, MAX_SUSPECTS, Nonce, Published, PublishedVerdict, Relay, Renewal, Said, Suspect,
};
use std::sync::Arc;

/// So many rounds are asked for at once.
const ROUNDS: usize = 64;
/// It keeps so many rounds, and shows so many at a time.
const KEEPS: usize = 300;
const SHOWS: usize = 8;

/// Two challenges stand for 20 s where somebody is listed.
const LONG: u64 = 25 * SECOND;

impl Sim {
    /// Whether a member stalled lately, of which another one had the others ask as often as they do. What
    /// they asked meanwhile waits in its socket, and comes at once.
    pub(crate) fn was_flooded(&self, node: usize) -> bool {
        let steps = || self.script.steps.iter();
        let lately = |step: &&Step| step.at <= self.now && self.now < step.ends() + 2 * SECOND;
        let asks = |step: &Step| matches!(step.fault, Fault::Hostile(_, Malice::Asks));
        let stalls = |step: &Step| step.fault == Fault::Stall(node);
        steps().filter(lately).any(asks) && steps().filter(lately).any(stalls)
    }

    /// A member turns hostile, or ceases to be.
    pub(crate) fn turn(&mut self, node: usize, malice: Option<Malice>) {
        if let Some(machine) = self.machines.get_mut(node - 1) {
            machine.hostile = malice.map(Hostile::new);
        }
        if malice.is_some() {
            self.after(SECOND, Event::Hostile { node });
        }
    }

    fn hostile(&mut self, node: usize) -> Option<&mut Hostile> {
        self.machines.get_mut(node.checked_sub(1)?)?.hostile.as_mut()
    }

    /// How a node is hostile now.
    pub(crate) fn malice(&self, node: usize) -> Option<Malice> {
        let machine = self.machines.get(node.checked_sub(1)?)?;
        machine.hostile.as_ref().map(|hostile| hostile.malice)
    }

    fn roster_at(&self, node: usize) -> Option<Arc<Roster>> {
        let agent = self.machines.get(node - 1)?.agent.as_ref()?;
        Some(Arc::clone(agent.engine.roster()))
    }

    /// Members of the node's cell but itself, as numbers and names.
    fn others(&self, node: usize) -> Vec<(usize, MemberId)> {
        let Some(roster) = self.roster_at(node) else {
            return Vec::new();
        };
        let members = roster.members().iter();
        let numbered = members.filter_map(|member| Some((node_of_uid(&member.uid)?, member.id)));
        numbered.filter(|(other, _)| *other != node).collect()
    }

    fn id_of(node: usize) -> MemberId {
        MemberId::of(&crate::api::build::node_uid(node))
    }

    fn key_of(&self, node: usize) -> Option<Arc<dyn Signer>> {
        Some(Arc::clone(&self.machines.get(node.checked_sub(1)?)?.signer))
    }

    /// A header as the agent itself would write it next.
    fn next_header(&mut self, node: usize, to: MemberId) -> Header {
        let machine = self.machines.get_mut(node - 1);
        let used = machine.as_ref().and_then(|machine| machine.agent.as_ref());
        let used = used.map_or(0, |agent| agent.engine.sequence());
        let mut header = Header {
            from: Self::id_of(node),
            to,
            ..Header::default()
        };
        if let Some(hostile) = machine.and_then(|machine| machine.hostile.as_mut()) {
            hostile.sequence = hostile.sequence.max(used) + 1;
            (header.sequence, header.incarnation) = (hostile.sequence, hostile.incarnation);
        }
        header
    }

    /// It says something in its own name.
    fn says(&mut self, node: usize, to: usize, body: &Body) {
        let header = self.next_header(node, Self::id_of(to));
        if let (Some(own), Some(other)) = (self.key_of(node), self.key_of(to)) {
            let bytes = fixture::seal_for(&*own, other.public(), header, body);
            self.send(node, &self.address(to), bytes);
        }
    }

    /// A ballot of its own as evidence.
    fn evidence(&mut self, node: usize, request: &ConfirmRequest, answer: Answer) -> Option<String> {
        let uptime = self.forged_uptime(node);
        let ballot = ballot(request, answer, uptime);
        let header = self.next_header(node, Self::id_of(node));
        let key = self.key_of(node)?;
        Some(wire::to_evidence(&wire::sign(&header, ballot, &*key)))
    }

    fn forged_uptime(&self, node: usize) -> u16 {
        let young = self.malice(node) == Some(Malice::ForgesAges);
        if young { 0 } else { u16::MAX }
    }

    /// A datagram for a hostile member; whether its agent does not get to see it.
    pub(crate) fn hostile_hears(&mut self, node: usize, from: usize, bytes: &[u8]) -> bool {
        let Some(malice) = self.malice(node) else {
            return false;
        };
        let (Some(own), Some(author)) = (self.key_of(node), self.key_of(from)) else {
            return false;
        };
        let opened = fixture::open_for(&*own, author.public(), &*self.verifier, bytes);
        let Some(message) = opened else {
            return false;
        };
        let answers: &[Answer] = match malice {
            Malice::SaysNo | Malice::ForgesAges => &[Answer::No],
            Malice::SaysYes => &[Answer::Yes],
            Malice::SaysBoth => &[Answer::No, Answer::Yes],
            _ => &[],
        };
        match &message.body {
            Body::Confirm(request) if !answers.is_empty() => {
                let uptime = self.forged_uptime(node);
                for answer in answers {
                    let ballot = ballot(request, *answer, uptime);
                    self.says(node, from, &Body::Ballot(ballot));
                }
                true
            }
            Body::Relay(relay) if malice == Malice::LiesAsRelay => {
                self.answers_for(node, from, relay);
                true
            }
            Body::Voted(voted) => self.hostile_hears(node, from, &voted.ballot),
            Body::Ballot(ballot) => self.keeps(node, ballot, bytes),
            _ => false,
        }
    }

    /// Answers in the name of the member to which it should pass a heartbeat on, with the only key that it
    /// has; and passes on what it has changed. With the codes of datagrams not looked at, it is as if it had
    /// the other's key.
    fn answers_for(&mut self, node: usize, asker: usize, relay: &Relay) {
        let target = self.others(node).into_iter().find(|(_, id)| *id == relay.target);
        let Some((target, _)) = target else { return };
        let signer = if self.reader.rules.no_codes { target } else { node };
        let (Some(key), Some(other)) = (self.key_of(signer), self.key_of(asker)) else {
            return;
        };
        if let Some(asked) = fixture::claimed_header(&relay.inner) {
            let ack = Body::Ack(Ack {
                echo_incarnation: asked.incarnation,
                echo_sequence: asked.sequence,
                ..Ack::default()
            });
            let header = Header {
                from: relay.target,
                to: Self::id_of(asker),
                incarnation: asked.incarnation,
                sequence: asked.sequence,
            };
            let bytes = fixture::seal_for(&*key, other.public(), header, &ack);
            self.send(node, &self.address(asker), bytes);
        }
        let mut inner = relay.inner.clone();
        let at = inner.len() / 2;
        if let Some(byte) = inner.get_mut(at) {
            *byte ^= 1;
        }
        self.send(node, &self.address(target), inner);
    }

    /// A ballot for a round of its own.
    fn keeps(&mut self, node: usize, ballot: &Ballot, bytes: &[u8]) -> bool {
        let Some(hostile) = self.hostile(node) else {
            return false;
        };
        let mut own = hostile.kept.iter_mut();
        let Some(kept) = own.find(|kept| kept.digest == ballot.request) else {
            return false;
        };
        kept.accuses |= ballot.said.iter().any(|said| said.answer == Answer::No);
        kept.round.ballots.push(wire::to_evidence(bytes));
        true
    }

    /// Its agent sends something: so it knows its own life.
    pub(crate) fn hostile_sends(&mut self, node: usize, bytes: &[u8]) {
        // Asked first: of nearly all datagrams the sender keeps the rules.
        let Some(hostile) = self.hostile(node) else { return };
        let own = Frame::parse(bytes).is_ok_and(|frame| frame.from() == Self::id_of(node));
        if let (true, Some(header)) = (own, fixture::claimed_header(bytes)) {
            hostile.incarnation = header.incarnation;
        }
    }

    /// What a hostile member does of itself, every second.
    pub(crate) fn hostile_acts(&mut self, node: usize) {
        let Some(malice) = self.malice(node) else { return };
        self.after(SECOND, Event::Hostile { node });
        let powered = self.machines.get(node - 1).is_some_and(|machine| machine.powered);
        if !powered || self.roster_at(node).is_none() {
            return;
        }
        match malice {
            Malice::Asks => (0..ROUNDS).for_each(|_| self.asks(node)),
            Malice::Hoards | Malice::HoardsLong | Malice::Swaps | Malice::NamesRenewals => self.asks(node),
            Malice::LiesAsRelay => self.says_that_all_are_lost(node),
            Malice::Omits => self.says_that_all_is_published(node),
            _ => {}
        }
        if malice.keeps() {
            self.reads_reports(node);
        }
        if self.has_link(node) && self.api_down == 0 {
            let draft = self.hostile(node).map(|hostile| hostile.draft.clone());
            let report = self.altered(node, draft.unwrap_or_default());
            self.publish(node, self.cell_of(node), report);
        }
    }

    /// A request about all others, as a reporter writes it.
    fn request_about_all(&mut self, node: usize) -> Option<ConfirmRequest> {
        let makes_up = self.malice(node) == Some(Malice::NamesRenewals);
        let second = self.now / SECOND;
        let suspects = self.others(node).into_iter().take(MAX_SUSPECTS);
        let suspects: Vec<Suspect> = suspects
            .map(|(_, member)| Suspect {
                member,
                renewal: match (makes_up, second % 3) {
                    (false, _) => Some(self.renewal_of(member)),
                    (true, 0) => None,
                    (true, 1) => Some(Renewal(self.renewal_of(member).0.wrapping_add(1))),
                    (true, _) => Some(Renewal(u64::MAX)),
                },
            })
            .collect();
        let challenge = self.challenge_at(node);
        let roster = self.roster_at(node)?.reference();
        let hostile = self.hostile(node)?;
        hostile.rounds += 1;
        let mut round = [0xee; 16];
        round[..8].copy_from_slice(&hostile.rounds.to_be_bytes());
        Some(ConfirmRequest {
            round: Nonce(round),
            roster,
            challenge,
            budget: 1_000,
            suspects,
            ..ConfirmRequest::default()
        })
    }

    /// The challenge of the node's cell, as it stands.
    pub(crate) fn challenge_at(&self, node: usize) -> Challenge {
        let object = self.cell_object(Kind::Challenge, node, 0);
        let value = object.as_deref().and_then(|object| match object {
            Object::Challenge(challenge) => Challenge::from_base64(&challenge.spec.current.value),
            _ => None,
        });
        value.unwrap_or_default()
    }

    fn asks(&mut self, node: usize) {
        let Some(request) = self.request_about_all(node) else {
            return;
        };
        for (other, _) in self.others(node) {
            self.says(node, other, &Body::Confirm(request.clone()));
        }
        self.keep(node, &request, Vec::new(), false);
    }

    fn keep(&mut self, node: usize, request: &ConfirmRequest, ballots: Vec<String>, accuses: bool) {
        let since = self.now;
        let Some(hostile) = self.hostile(node).filter(|hostile| hostile.malice.keeps()) else {
            return;
        };
        let digest = request.digest();
        let known = hostile.kept.iter_mut().find(|kept| kept.digest == digest);
        if let Some(known) = known {
            let new = ballots.into_iter();
            let new: Vec<String> = new.filter(|text| !known.round.ballots.contains(text)).collect();
            known.round.ballots.extend(new);
            known.accuses |= accuses;
            return;
        }
        let request = wire::to_evidence(&request.to_bytes());
        let round = SignedRound {
            age_ms: 0,
            request,
            ballots,
        };
        hostile.kept.push(Kept {
            digest,
            round,
            accuses,
            since,
        });
        if hostile.kept.len() > KEEPS {
            hostile.kept.remove(0);
        }
    }

    /// Everybody may read what the others publish.
    fn reads_reports(&mut self, node: usize) {
        let own = node_name(node);
        let reports = self.store.list(Kind::Report);
        let rounds = reports.filter_map(|(_, object)| match &**object {
            Object::Report(report) if report.spec.reporter != own => Some(&report.spec.report),
            _ => None,
        });
        let accuses = |report: &Report| {
            let mut nodes = report.nodes.iter();
            nodes.any(|node| node.verdict == VerdictKind::Dead)
        };
        let rounds: Vec<(SignedRound, bool)> = rounds
            .flat_map(|report| {
                report
                    .rounds
                    .iter()
                    .map(move |round| (round.clone(), accuses(report)))
            })
            .collect();
        for (round, accuses) in rounds {
            if let Some(request) = rules::request(&round) {
                self.keep(node, &request, round.ballots, accuses);
            }
        }
    }

    fn says_that_all_are_lost(&mut self, node: usize) {
        let others = self.others(node);
        let lost = others.iter().take(MAX_LIST).map(|(_, subject)| Edge {
            subject: *subject,
            state: EdgeState::Down,
            facts: Facts {
                cloud: Link::Down,
                kubelet: Health::Failing,
                runtime: Health::Failing,
            },
        });
        let edges = lost.collect();
        let body = Body::Edges(Edges { doubt: 0, edges });
        for (other, _) in others {
            self.says(node, other, &body);
        }
    }

    fn says_that_all_is_published(&mut self, node: usize) {
        let others = self.others(node);
        for kind in [VerdictKind::Dead, VerdictKind::Alive] {
            let verdicts = others.iter().take(MAX_LIST);
            let verdicts = verdicts.map(|(_, subject)| PublishedVerdict {
                subject: *subject,
                kind,
            });
            let verdicts = verdicts.collect();
            let body = Body::Published(Published { verdicts });
            for (other, _) in &others {
                self.says(node, *other, &body);
            }
        }
    }

    /// What its agent would publish.
    pub(crate) fn hostile_publishes(&mut self, node: usize, report: Report) -> Report {
        if let Some(hostile) = self.hostile(node) {
            hostile.draft = report.clone();
        }
        self.altered(node, report)
    }

    /// The report that it publishes instead.
    fn altered(&mut self, node: usize, mut report: Report) -> Report {
        let (Some(malice), Some(roster)) = (self.malice(node), self.roster_at(node)) else {
            return report;
        };
        let second = self.now / SECOND;
        report.sequence = i64::try_from(self.now).unwrap_or_default();
        let mut verdict = VerdictKind::Dead;
        let rounds = match malice {
            Malice::LiesAsRelay | Malice::Asks => return report,
            Malice::SaysNo | Malice::ForgesAges => self.own_round(node, &[Answer::No]),
            Malice::SaysYes => {
                verdict = VerdictKind::Alive;
                self.own_round(node, &[Answer::Yes])
            }
            Malice::SaysBoth => self.own_round(node, &vec![Answer::No; roster.majority()]),
            Malice::Hoards | Malice::HoardsLong if second.is_multiple_of(2) => self.shows(node, Answer::No),
            Malice::Hoards | Malice::HoardsLong => {
                verdict = VerdictKind::Alive;
                self.shows(node, Answer::Yes)
            }
            Malice::Swaps => {
                let (kept, me) = (self.kept(node, true), Self::id_of(node));
                kept.into_iter()
                    .filter_map(|round| swapped(round, &roster, me))
                    .collect()
            }
            Malice::NamesRenewals => self.shows(node, Answer::No),
            Malice::Omits => return self.omitted(node, report),
        };
        for (other, _) in self.others(node) {
            report.nodes.push(ListedNode {
                name: node_name(other),
                uid: crate::api::build::node_uid(other),
                verdict,
                ..ListedNode::default()
            });
        }
        report.rounds.extend(rounds);
        let (rules, challenge) = (self.reader.rules, self.challenge_at(node));
        let renewal = |member| self.renewal_of(member);
        for round in &mut report.rounds {
            rules::unbind(round, rules, (&roster, challenge), renewal, &self.machines);
        }
        report
    }

    fn own_round(&mut self, node: usize, answers: &[Answer]) -> Vec<SignedRound> {
        let Some(request) = self.request_about_all(node) else {
            return Vec::new();
        };
        let ballots = answers
            .iter()
            .filter_map(|answer| self.evidence(node, &request, *answer));
        let ballots = ballots.collect();
        vec![SignedRound {
            age_ms: 0,
            request: wire::to_evidence(&request.to_bytes()),
            ballots,
        }]
    }

    /// Rounds that it has kept, of those that accuse somebody or of the others: the newest ones, and of the
    /// older ones another part each time.
    fn kept(&mut self, node: usize, accusing: bool) -> Vec<SignedRound> {
        let (now, second) = (self.now, usize::try_from(self.now / SECOND).unwrap_or_default());
        let Some(hostile) = self.hostile(node) else {
            return Vec::new();
        };
        let least = if hostile.malice == Malice::HoardsLong {
            LONG
        } else {
            0
        };
        let kept = hostile.kept.iter().filter(|kept| kept.since + least <= now);
        let kept: Vec<&Kept> = kept.filter(|kept| kept.accuses == accusing).collect();
        let newest = kept.iter().rev().take(SHOWS / 2);
        let older = kept.iter().cycle().skip(second * SHOWS / 2 % kept.len().max(1));
        let older = older.take(SHOWS / 2);
        newest.chain(older).map(|kept| kept.round.clone()).collect()
    }

    /// The rounds that it has kept, each with a new ballot of its own instead of an earlier one.
    fn shows(&mut self, node: usize, answer: Answer) -> Vec<SignedRound> {
        let me = Self::id_of(node);
        let mut rounds = self.kept(node, answer == Answer::No);
        for round in &mut rounds {
            round.ballots.retain(|text| rules::voter(text) != Some(me));
            if let Some(request) = rules::request(round) {
                round.ballots.extend(self.evidence(node, &request, answer));
            }
        }
        rounds
    }

    fn omitted(&mut self, node: usize, mut report: Report) -> Report {
        let second = usize::try_from(self.now / SECOND).unwrap_or_default();
        match second % 3 {
            0 => {
                report.nodes.clear();
                report.rounds.clear();
            }
            1 => {
                let others = self.others(node);
                let left_out = others
                    .get(second % others.len().max(1))
                    .map(|(other, _)| node_name(*other));
                report
                    .nodes
                    .retain(|listed| Some(&listed.name) != left_out.as_ref());
                report.rounds.truncate(1);
            }
            _ => {
                let old = self
                    .hostile(node)
                    .map(|hostile| &hostile.kept[..hostile.kept.len().min(SHOWS)]);
                let old = old.unwrap_or_default().iter();
                report.rounds = old.map(|kept| kept.round.clone()).collect();
            }
        }
        report
    }
}

/// What it says to a request, whatever it sees.
fn ballot(request: &ConfirmRequest, answer: Answer, uptime: u16) -> Ballot {
    let said = (0..).zip(&request.suspects).map(|(index, _)| Said {
        index,
        answer,
        contact_age: if answer == Answer::No { u32::MAX } else { 0 },
        facts: Facts::default(),
    });
    Ballot {
        request: request.digest(),
        roster: request.roster,
        uptime,
        said: said.collect(),
    }
}

/// The same ballots under a request that names the next other member of the roster in each place.
fn swapped(mut round: SignedRound, roster: &Roster, me: MemberId) -> Option<SignedRound> {
    let mut request = rules::request(&round)?;
    for suspect in &mut request.suspects {
        let members = roster.members().iter().map(|member| member.id);
        let from = members.clone().position(|id| id == suspect.member)?;
        suspect.member = members
            .clone()
            .chain(members)
            .skip(from + 1)
            .find(|id| *id != me)?;
    }
    round.request = wire::to_evidence(&request.to_bytes());
    Some(round)
}
