//! What a voter says, and what nobody can make it say.

use super::{heard, met};
use crate::Millis;
use crate::engine::{CheckResult, Config, Engine, Identity, Input, Met, Output, Question};
use crate::fixture::Fixture;
use crate::roster::MemberId;
use crate::verdict::{Health, Link};
use crate::wire::{
    self, Ack, Answer, Ballot, Body, ConfirmRequest, Edge, EdgeState, Edges, Facts, Header, Heartbeat,
    MAX_SUSPECTS, Message, Nonce, Said, Suspect,
};
use proptest::prelude::*;
use proptest::sample::select;
use rstest::rstest;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const START: u64 = 50_000;
const SUSPECT: usize = 3;
const ASKER: usize = 2;
const FACTS: Facts = Facts {
    cloud: Link::Down,
    kubelet: Health::Ok,
    runtime: Health::Ok,
};

/// The agent of node 1 of three, which has met both others; node 2 asks about node 3.
struct Voter {
    zone: Fixture,
    engine: Engine,
    now: u64,
    sequence: u64,
}

impl Voter {
    fn new() -> Self {
        Self::among(3)
    }

    /// The agent of node 1 of so many, which has met all others.
    fn among(count: u8) -> Self {
        let others: Vec<usize> = (2..=usize::from(count)).collect();
        let zone = Fixture::new(count);
        let met = met(&zone.roster(), others.iter().copied());
        let mut voter = Self::started_in(zone, met);
        voter.run(2_000, &others);
        voter
    }

    /// A life that has just begun, after others that have met the suspect.
    fn started_with(seen_alive: bool, found: bool) -> Self {
        let zone = Fixture::new(3);
        let mut met = met(&zone.roster(), [SUSPECT]);
        met.seen_alive.retain(|_, _| seen_alive);
        met.found.retain(|_, _| found);
        Self::started_in(zone, met)
    }

    fn started_in(zone: Fixture, met: Met) -> Self {
        let identity = Identity {
            uid: Fixture::uid(1),
            key: zone.signer(1),
            incarnation: 77,
            sequence_base: 0,
            seed: [5; 32],
            uptime_ms: 3_600_000,
            met,
        };
        let engine = Engine::new(
            Config::default(),
            identity,
            Arc::new(zone.roster()),
            Millis(START),
        );
        Self {
            zone,
            engine,
            now: START,
            sequence: 0,
        }
    }

    /// How many suspects are looked for if these are asked about in each of the rounds.
    fn looks(&mut self, rounds: Range<u8>, suspects: &[usize]) -> usize {
        let suspects: Vec<MemberId> = suspects.iter().map(|suspect| Fixture::id(*suspect)).collect();
        let asked = rounds.map(|round| self.ask(round, suspects.clone(), 1_000));
        let outputs = asked.flatten().collect::<Vec<_>>();
        let looks = outputs
            .iter()
            .filter(|output| matches!(output, Output::Check { .. }));
        looks.count()
    }

    /// Lets time pass in steps of 50 ms; `living` answer each heartbeat at once.
    fn run(&mut self, ms: u64, living: &[usize]) -> Vec<Ballot> {
        let mut ballots = Vec::new();
        for _ in 0..ms / 50 {
            self.now += 50;
            ballots.extend(self.feed(Input::Tick, living));
        }
        ballots
    }

    fn feed(&mut self, input: Input<'_>, living: &[usize]) -> Vec<Ballot> {
        let outputs = self.engine.on(Millis(self.now), input);
        self.answer(&outputs, living)
    }

    /// Those that live answer the heartbeats among these outputs.
    fn answer(&mut self, outputs: &[Output], living: &[usize]) -> Vec<Ballot> {
        let mut ballots = Vec::new();
        for message in sent(&self.zone, outputs) {
            let to = (1..=64).find(|i| Fixture::id(*i) == message.header.to).unwrap();
            match message.body {
                Body::Ballot(ballot) => ballots.push(ballot),
                Body::Heartbeat(heartbeat) if living.contains(&to) && heartbeat.via == MemberId::NOBODY => {
                    let ack = Ack {
                        echo_incarnation: message.header.incarnation,
                        echo_sequence: message.header.sequence,
                        facts: FACTS,
                        ..Ack::default()
                    };
                    let bytes = self.say(to, Body::Ack(ack));
                    ballots.extend(self.feed(heard(&bytes), living));
                }
                _ => {}
            }
        }
        ballots
    }

    fn say(&mut self, from: usize, body: Body) -> Vec<u8> {
        self.say_in(9, from, body)
    }

    fn say_in(&mut self, incarnation: u64, from: usize, body: Body) -> Vec<u8> {
        self.sequence += 1;
        let header = Header {
            from: Fixture::id(from),
            to: Fixture::id(1),
            incarnation,
            sequence: self.sequence,
        };
        self.zone.seal(self.zone.key(from), header, &body)
    }

    fn ask(&mut self, round: u8, suspects: Vec<MemberId>, budget: u16) -> Vec<Output> {
        let bytes = self.say(ASKER, Self::request(round, suspects, budget));
        self.engine.on(Millis(self.now), heard(&bytes))
    }

    fn request(round: u8, suspects: Vec<MemberId>, budget: u16) -> Body {
        Body::Confirm(ConfirmRequest {
            round: Nonce([round; 16]),
            roster: Fixture::new(3).roster().reference(),
            challenge: Fixture::CHALLENGE,
            budget,
            suspects: suspects
                .into_iter()
                .map(|member| Suspect {
                    member,
                    renewal: None,
                })
                .collect(),
            ..ConfirmRequest::default()
        })
    }

    fn checked(&mut self, round: u8, result: CheckResult, living: &[usize]) -> Vec<Ballot> {
        self.checked_for(ASKER, round, result, living)
    }

    fn checked_for(&mut self, asker: usize, round: u8, result: CheckResult, living: &[usize]) -> Vec<Ballot> {
        let input = Input::Checked {
            asked: Question {
                asker: Fixture::id(asker),
                round: Nonce([round; 16]),
            },
            suspect: Fixture::id(SUSPECT),
            result,
        };
        self.feed(input, living)
    }
}

fn sent(zone: &Fixture, outputs: &[Output]) -> Vec<Message> {
    let open = |output: &Output| match output {
        Output::Send { bytes, .. } => Some(zone.open(bytes).unwrap()),
        _ => None,
    };
    outputs.iter().filter_map(open).collect()
}

fn answers(ballots: &[Ballot]) -> Vec<Answer> {
    ballots.iter().map(|ballot| ballot.said[0].answer).collect()
}

#[rstest]
#[case::an_honest_question(1_000, Answer::No)]
#[case::no_time_to_look(250, Answer::Abstain)]
#[case::no_time_at_all(0, Answer::Abstain)]
fn silence_is_a_no_only_after_a_long_look(#[case] budget: u16, #[case] expected: Answer) {
    let mut voter = Voter::new();
    voter.run(4_000, &[ASKER]);
    let outputs = voter.ask(1, vec![Fixture::id(SUSPECT)], budget);
    let mut ballots = voter.answer(&outputs, &[ASKER]);
    ballots.extend(voter.checked(1, CheckResult::Failed, &[ASKER]));
    ballots.extend(voter.run(1_000, &[ASKER]));
    assert_eq!(answers(&ballots), vec![expected]);
}

#[test]
fn a_voter_that_stalled_while_it_looked_accuses_nobody() {
    let mut voter = Voter::new();
    voter.run(4_000, &[ASKER]);
    voter.ask(1, vec![Fixture::id(SUSPECT)], 1_000);
    voter.now += 900;
    let mut ballots = voter.checked(1, CheckResult::Failed, &[ASKER]);
    ballots.extend(voter.run(500, &[ASKER]));
    assert_eq!(answers(&ballots), vec![Answer::Abstain]);
}

/// The one ballot of a round in which neither agent nor kubelet of the suspect answers.
fn after_silence(voter: &mut Voter, round: u8) -> Said {
    voter.ask(round, vec![Fixture::id(SUSPECT)], 1_000);
    let mut ballots = voter.checked(round, CheckResult::Failed, &[ASKER]);
    ballots.extend(voter.run(1_000, &[ASKER]));
    assert_eq!(ballots.len(), 1);
    ballots[0].said[0]
}

#[rstest]
#[case::never_met(false, false, Answer::Abstain)]
#[case::never_found_by_a_check(true, false, Answer::Abstain)]
#[case::met_before_a_restart(true, true, Answer::No)]
fn a_voter_without_a_contact_vouches_for_its_own_life_alone(
    #[case] seen_alive: bool,
    #[case] found: bool,
    #[case] expected: Answer,
) {
    let mut voter = Voter::started_with(seen_alive, found);
    voter.run(10_000, &[ASKER]);
    let asked = voter.now;
    let ballot = after_silence(&mut voter, 1);
    let age = u64::from(ballot.contact_age);
    assert_eq!(ballot.answer, expected);
    assert!((asked - START..=voter.now - START).contains(&age), "{age} ms");
}

#[test]
fn a_new_key_of_the_suspect_starts_its_contact_age_anew() {
    let mut voter = Voter::new();
    voter.run(10_000, &[ASKER]);
    let mut rekeyed = Fixture::new(3);
    rekeyed.rekey(SUSPECT, 99);
    rekeyed.reissue();
    voter
        .engine
        .on(Millis(voter.now), Input::Roster(Arc::new(rekeyed.roster())));
    let rekeyed_at = voter.now;
    voter.zone = rekeyed;
    voter.run(5_000, &[ASKER]);
    let age = u64::from(after_silence(&mut voter, 1).contact_age);
    assert!(age <= voter.now - rekeyed_at, "{age} ms");
}

#[test]
fn a_kubelet_that_proved_itself_is_a_contact_that_later_votes_count_from() {
    let mut voter = Voter::new();
    voter.run(10_000, &[ASKER]);
    voter.ask(1, vec![Fixture::id(SUSPECT)], 1_000);
    voter.checked(1, CheckResult::Identity, &[ASKER]);
    let proved = voter.now;
    voter.run(3_000, &[ASKER]);
    let ballot = after_silence(&mut voter, 2);
    assert_eq!(ballot.answer, Answer::No);
    assert!(u64::from(ballot.contact_age) <= voter.now - proved, "{ballot:?}");
}

/// A voter that reaches half of its zone or less may be the one that is cut off.
#[rstest]
#[case::reaches_three_of_five(&[2, 4], Answer::No)]
#[case::reaches_two_of_five(&[2], Answer::Abstain)]
fn a_voter_that_reaches_no_majority_accuses_nobody(#[case] living: &[usize], #[case] expected: Answer) {
    let mut voter = Voter::among(5);
    voter.run(8_000, living);
    voter.ask(1, vec![Fixture::id(SUSPECT)], 1_000);
    let mut ballots = voter.checked(1, CheckResult::Failed, living);
    ballots.extend(voter.run(1_000, living));
    assert_eq!(answers(&ballots), vec![expected]);
}

#[test]
fn a_voter_that_was_paused_accuses_nobody_for_a_while() {
    let mut voter = Voter::new();
    voter.run(4_000, &[ASKER]);
    voter.now += 4_000;
    voter.run(1_000, &[ASKER]);
    assert_eq!(after_silence(&mut voter, 1).answer, Answer::Abstain);
    voter.run(5_000, &[ASKER]);
    assert_eq!(after_silence(&mut voter, 2).answer, Answer::No);
}

/// What was asked during the pause waited in the socket, and would use up what the asker may have looked for.
#[test]
fn requests_of_before_a_pause_are_void_and_heartbeats_are_answered() {
    let mut voter = Voter::new();
    voter.run(4_000, &[ASKER]);
    voter.now += 20_000;
    for round in 0..200 {
        let outputs = voter.ask(round, vec![Fixture::id(1), Fixture::id(SUSPECT)], 1_000);
        assert!(!outputs.contains(&Output::Refused("budget")));
        assert_eq!(voter.answer(&outputs, &[ASKER]), []);
    }
    let heartbeat = voter.say(ASKER, Body::Heartbeat(Heartbeat::default()));
    let outputs = voter.engine.on(Millis(voter.now), heard(&heartbeat));
    let answered = sent(&voter.zone, &outputs);
    assert!(
        answered
            .iter()
            .any(|message| matches!(message.body, Body::Ack(_)))
    );
    voter.run(300, &[ASKER]);
    let outputs = voter.ask(199, vec![Fixture::id(1)], 1_000);
    assert_eq!(
        answers(&voter.answer(&outputs, &[ASKER])),
        [Answer::Yes],
        "asked again"
    );
}

/// Version 3.0 of the format knows ballots alone.
#[rstest]
#[case::both_know(false, 1, 24)]
#[case::the_asker_does_not(false, 0, 128)]
#[case::the_voter_does_not(true, 1, 128)]
fn votes_carry_a_code_where_both_know_it(#[case] is_former: bool, #[case] asker: u8, #[case] expected: u8) {
    let mut voter = Voter::new();
    voter.run(4_000, &[ASKER]);
    if is_former {
        voter.engine = voter.engine.of_former_version();
    }
    let header = Header {
        from: Fixture::id(ASKER),
        to: Fixture::id(1),
        incarnation: 9,
        sequence: voter.sequence + 1,
    };
    let body = Voter::request(1, vec![Fixture::id(1)], 1_000);
    let key = voter.zone.key(ASKER);
    let shared = key.shared_with(voter.zone.key(1).public());
    let bytes = wire::seal_as_version(asker, &header, &body, key, &*shared);
    let outputs = voter.engine.on(Millis(voter.now), heard(&bytes));
    let kinds: Vec<u8> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Send { bytes, .. } => bytes.get(4).copied(),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [expected]);
}

/// Hazard 7: the loss that somebody else saw is looked into at once, and not when the next heartbeat is due.
#[test]
fn an_observer_that_is_told_of_a_lost_edge_probes_at_once_directly_and_through_others() {
    let everybody = [ASKER, SUSPECT];
    let (zone, mut voter) = (Fixture::new(3), Voter::new());
    let probes = |outputs: &[Output]| {
        let of = |message: &Message| match &message.body {
            Body::Heartbeat(_) if message.header.to == Fixture::id(SUSPECT) => (1, 0),
            Body::Relay(relay) if relay.target == Fixture::id(SUSPECT) => (0, 1),
            _ => (0, 0),
        };
        let all = sent(&zone, outputs);
        all.iter()
            .map(of)
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    };
    // A moment in which nothing is due for longer than the test takes.
    let mut quiet_for = 0;
    while quiet_for < 600 {
        voter.now += 50;
        let outputs = voter.engine.on(Millis(voter.now), Input::Tick);
        quiet_for = if probes(&outputs) == (0, 0) {
            quiet_for + 50
        } else {
            0
        };
        voter.answer(&outputs, &everybody);
    }
    let lost = Edge {
        subject: Fixture::id(SUSPECT),
        state: EdgeState::Down,
        ..Edge::default()
    };
    let told = voter.say(
        ASKER,
        Body::Edges(Edges {
            edges: vec![lost],
            ..Edges::default()
        }),
    );
    voter.engine.on(Millis(voter.now), heard(&told));
    assert!(voter.engine.deadline() <= Millis(voter.now + 50));
    voter.now += 50;
    let outputs = voter.engine.on(Millis(voter.now), Input::Tick);
    assert_eq!(probes(&outputs), (1, 1));
}

/// Hazard 12: without a clock, only an answer to a fresh number of ours proves which life of a member is the
/// present one. What was recorded of a former life, or of one that never answered, is no sign of life.
#[test]
fn datagrams_of_a_former_or_unproven_life_keep_no_dead_member_alive() {
    let heartbeat = || Body::Heartbeat(Heartbeat::default());
    let mut voter = Voter::new();
    // Recorded: a life that is over before the present one (9) is proven, the present one, and one without
    // proof.
    let ack = Ack {
        echo_incarnation: 77,
        echo_sequence: 3,
        facts: FACTS,
        ..Ack::default()
    };
    let former = [
        voter.say_in(8, SUSPECT, heartbeat()),
        voter.say_in(8, SUSPECT, Body::Ack(ack)),
    ];
    let present = voter.say(SUSPECT, heartbeat());
    voter.feed(heard(&present), &[ASKER]);
    let died = voter.now;
    let mut recorded = former.to_vec();
    recorded.push(present);
    for _ in 0..100 {
        recorded.push(voter.say_in(10, SUSPECT, heartbeat()));
    }
    let mut ballots = Vec::new();
    for (turn, replayed) in recorded.iter().cycle().take(160).enumerate() {
        ballots.extend(voter.feed(heard(replayed), &[ASKER]));
        if turn == 140 {
            voter.ask(1, vec![Fixture::id(SUSPECT)], 1_000);
            ballots.extend(voter.checked(1, CheckResult::Failed, &[ASKER]));
        }
        ballots.extend(voter.run(50, &[ASKER]));
    }
    assert_eq!(answers(&ballots), vec![Answer::No]);
    let age = u64::from(ballots[0].said[0].contact_age);
    assert!(age > 7_000 && age <= voter.now - died, "{age} ms");
}

/// What reaches a voter first when it runs again.
#[derive(Clone, Copy, Debug)]
enum Awakening {
    Tick,
    CheckFailed,
    AskedAgain,
    Heartbeat,
}

proptest! {
    /// Hazard 36: what a voter did not hear while it did not run is no silence.
    #[test]
    fn a_voter_that_stalls_for_two_to_ten_seconds_in_a_round_casts_no_no_in_it(
        looked in 0_u64..=14,
        stall in 2_000_u64..=10_000,
        checked_before in any::<bool>(),
        awakenings in proptest::collection::vec(
            select(vec![Awakening::Tick, Awakening::CheckFailed, Awakening::AskedAgain, Awakening::Heartbeat]),
            0..6,
        ),
    ) {
        let mut voter = Voter::new();
        voter.run(4_000, &[ASKER]);
        voter.ask(1, vec![Fixture::id(SUSPECT)], 1_000);
        let mut ballots = voter.run(looked * 50, &[ASKER]);
        if checked_before {
            ballots.extend(voter.checked(1, CheckResult::Failed, &[ASKER]));
        }
        voter.now += stall;
        for awakening in awakenings {
            match awakening {
                Awakening::Tick => ballots.extend(voter.feed(Input::Tick, &[ASKER])),
                Awakening::CheckFailed => ballots.extend(voter.checked(1, CheckResult::Failed, &[ASKER])),
                Awakening::AskedAgain => {
                    let outputs = voter.ask(1, vec![Fixture::id(SUSPECT)], 1_000);
                    ballots.extend(voter.answer(&outputs, &[ASKER]));
                }
                Awakening::Heartbeat => {
                    let bytes = voter.say(ASKER, Body::Heartbeat(Heartbeat::default()));
                    ballots.extend(voter.feed(heard(&bytes), &[ASKER]));
                }
            }
        }
        ballots.extend(voter.run(700, &[ASKER]));
        ballots.extend(voter.checked(1, CheckResult::Failed, &[ASKER]));
        ballots.extend(voter.run(1_000, &[ASKER]));
        prop_assert!(!answers(&ballots).contains(&Answer::No), "{ballots:?}");
    }
}

#[test]
fn a_kubelet_that_answers_first_does_not_hide_what_the_agent_says() {
    let mut voter = Voter::new();
    voter.ask(1, vec![Fixture::id(SUSPECT)], 1_000);
    let ballots = voter.checked(1, CheckResult::Identity, &[]);
    assert_eq!(
        (ballots[0].said[0].answer, ballots[0].said[0].facts),
        (Answer::Yes, FACTS)
    );

    // Not heard of for a while: its agent gets the time of three probes to speak for itself.
    let mut voter = Voter::new();
    voter.run(4_000, &[ASKER]);
    voter.ask(1, vec![Fixture::id(SUSPECT)], 1_000);
    assert_eq!(voter.checked(1, CheckResult::Identity, &[ASKER]), vec![]);
    let ballots = voter.run(250, &[ASKER, SUSPECT]);
    assert_eq!(
        (ballots[0].said[0].answer, ballots[0].said[0].facts),
        (Answer::Yes, FACTS)
    );
}

#[test]
fn a_kubelet_alone_speaks_for_a_silent_agent_in_time() {
    let mut voter = Voter::new();
    voter.run(4_000, &[ASKER]);
    voter.ask(1, vec![Fixture::id(SUSPECT)], 1_000);
    voter.checked(1, CheckResult::Identity, &[ASKER]);
    let ballots = voter.run(700, &[ASKER]);
    assert_eq!(
        (ballots[0].said[0].answer, ballots[0].said[0].facts.cloud),
        (Answer::Yes, Link::Unknown)
    );
}

#[test]
fn one_asker_cannot_use_up_the_places_of_the_others() {
    let mut voter = Voter::started_in(Fixture::stand_in(64), Met::default());
    voter.run(4_000, &[ASKER]);
    let others = [SUSPECT; MAX_SUSPECTS];
    assert_eq!(
        voter.looks(0..250, &others),
        2 * MAX_SUSPECTS,
        "two rounds about a whole cell"
    );
}

/// However long it asks, it gets 64 suspects looked for in ten seconds, or the cell eight times.
#[test]
fn one_asker_has_nobody_looked_for_without_end() {
    let mut voter = Voter::among(5);
    let others = [SUSPECT; 4];
    let mut looks = 0;
    for second in 0..12 {
        looks += voter.looks(second * 20..second * 20 + 20, &others);
        voter.run(1_000, &[]);
    }
    assert_eq!(looks, 2 * 64, "ten seconds have begun twice");
}

/// Hazard 44.
#[test]
fn one_ballot_answers_for_all_suspects_of_a_request_and_again_when_asked_again() {
    let mut voter = Voter::among(5);
    voter.run(4_000, &[2, 4]);
    let suspects: Vec<MemberId> = [1, SUSPECT, 4].map(Fixture::id).into();
    let outputs = voter.ask(1, suspects.clone(), 1_000);
    let mut ballots = voter.answer(&outputs, &[2, 4]);
    ballots.extend(voter.checked(1, CheckResult::Failed, &[2, 4]));
    assert_eq!(ballots, vec![], "one of the three is still looked for");
    ballots.extend(voter.run(1_000, &[2, 4]));
    let said: Vec<(u8, Answer)> = ballots[0]
        .said
        .iter()
        .map(|said| (said.index, said.answer))
        .collect();
    assert_eq!(said, [(0, Answer::Yes), (1, Answer::No), (2, Answer::Yes)]);
    assert_eq!(ballots.len(), 1);
    let outputs = voter.ask(1, suspects, 1_000);
    assert_eq!(voter.answer(&outputs, &[]), ballots, "the same words");
}

/// Node 4 hears of the request before the voter does, and asks the same in its own name. The check for it has
/// no time, or is refused, and so finds nothing: that says nothing about the suspect.
#[rstest]
#[case::the_suspect_is_silent(CheckResult::Failed, CheckResult::Unavailable, Answer::No)]
#[case::nobody_could_check_it(CheckResult::Unavailable, CheckResult::Failed, Answer::Abstain)]
fn who_repeats_a_request_as_its_own_changes_no_vote_for_the_one_who_made_it(
    #[case] found: CheckResult,
    #[case] found_for_the_other: CheckResult,
    #[case] expected: Answer,
) {
    const REPEATS: usize = 4;
    let mut voter = Voter::among(5);
    voter.run(4_000, &[ASKER, REPEATS]);
    let mut outputs = Vec::new();
    for (asker, budget) in [(REPEATS, 1_000), (ASKER, 1_000), (REPEATS, 210)] {
        let request = Voter::request(1, vec![Fixture::id(SUSPECT)], budget);
        let bytes = voter.say(asker, request);
        outputs.extend(voter.engine.on(Millis(voter.now), heard(&bytes)));
    }
    let checks = outputs
        .iter()
        .filter(|output| matches!(output, Output::Check { .. }));
    assert_eq!(checks.count(), 2, "each look has a check of its own");
    voter.checked(1, found, &[]);
    voter.checked_for(REPEATS, 1, found_for_the_other, &[]);
    let mut outputs = Vec::new();
    for _ in 0..20 {
        voter.now += 50;
        outputs.extend(voter.engine.on(Millis(voter.now), Input::Tick));
    }
    let ballots = sent(&voter.zone, &outputs)
        .into_iter()
        .filter_map(|message| match message.body {
            Body::Ballot(ballot) => Some((message.header.to, ballot.said[0].answer)),
            _ => None,
        });
    let ballots: BTreeMap<MemberId, Answer> = ballots.collect();
    assert_eq!(ballots.get(&Fixture::id(ASKER)), Some(&expected));
    assert!(ballots.contains_key(&Fixture::id(REPEATS)));
}

/// It asks much that costs no look. What it makes the voter keep takes no room from the answers to others.
#[test]
fn who_asks_much_takes_no_answer_from_others_that_is_asked_for_again() {
    let mut voter = Voter::started_in(Fixture::stand_in(64), Met::default());
    voter.run(4_000, &[ASKER, 4]);
    for round in 0..=u8::MAX {
        let request = Voter::request(round, vec![Fixture::id(1)], 0);
        let bytes = voter.say(4, request);
        voter.engine.on(Millis(voter.now), heard(&bytes));
    }
    let outputs = voter.ask(201, vec![Fixture::id(1)], 1_000);
    let ballots = voter.answer(&outputs, &[]);
    voter.now += 100;
    let request = Voter::request(201, vec![Fixture::id(1)], 1_000);
    voter.engine.on(Millis(voter.now), Input::CloudContact);
    let bytes = voter.say(ASKER, request);
    let outputs = voter.engine.on(Millis(voter.now), heard(&bytes));
    assert_eq!(
        voter.answer(&outputs, &[]),
        ballots,
        "the same words, though its link is back"
    );
}

#[test]
fn the_same_question_many_times_is_one_answer() {
    let mut voter = Voter::new();
    let outputs = voter.ask(1, vec![Fixture::id(1); 24], 1_000);
    assert_eq!(sent(&voter.zone, &outputs).len(), 1);
}
