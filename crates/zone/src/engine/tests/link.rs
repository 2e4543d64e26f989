//! When a listed agent writes to prove its link.

use super::heard;
use crate::Millis;
use crate::engine::{Config, Engine, Identity, Input, Met, Output};
use crate::fixture::Fixture;
use crate::roster::MemberId;
use crate::wire::{Ack, Body, ConfirmRequest, Header, Nonce};
use std::collections::BTreeSet;
use std::sync::Arc;

const START: u64 = 50_000;
/// The longest time between two ticks of an engine.
const TICK_MS: u64 = 200;

/// The agent of node 1, and what its writes come to.
struct Agent {
    members: u8,
    engine: Engine,
    now: u64,
    answer: Option<bool>,
    rounds: u8,
    sequence: u64,
    peers_live: bool,
    answers: Vec<(usize, Ack)>,
}

impl Agent {
    /// One of three.
    fn new(seed: u8) -> Self {
        Self::of(3, seed)
    }

    fn of(members: u8, seed: u8) -> Self {
        let zone = Fixture::new(members);
        let identity = Identity {
            uid: Fixture::uid(1),
            key: zone.signer(1),
            incarnation: 77,
            sequence_base: 0,
            seed: [seed; 32],
            uptime_ms: 3_600_000,
            met: Met::default(),
        };
        Self {
            members,
            engine: Engine::new(
                Config::default(),
                identity,
                Arc::new(zone.roster()),
                Millis(START),
            ),
            now: START,
            answer: Some(true),
            rounds: 0,
            sequence: 0,
            peers_live: false,
            answers: Vec::new(),
        }
    }

    fn tell(&mut self, input: Input<'_>) {
        self.engine.on(Millis(self.now), input);
    }

    fn list(&mut self, nodes: &[usize]) {
        let wanted: BTreeSet<MemberId> = nodes.iter().map(|node| Fixture::id(*node)).collect();
        let challenge = Fixture::CHALLENGE;
        self.tell(Input::Challenge { challenge, wanted });
    }

    /// Node 2 asks for votes about these nodes, as a reporter does that lists them.
    fn asked(&mut self, nodes: &[usize]) {
        self.rounds += 1;
        let zone = Fixture::new(self.members);
        let request = ConfirmRequest {
            round: Nonce([self.rounds; 16]),
            ..zone.request(nodes, 0)
        };
        self.say(2, Body::Confirm(request));
    }

    fn say(&mut self, from: usize, body: Body) {
        self.sequence += 1;
        let header = Header {
            from: Fixture::id(from),
            to: Fixture::id(1),
            incarnation: 9,
            sequence: self.sequence,
        };
        let zone = Fixture::new(self.members);
        let bytes = zone.seal(zone.key(from), header, &body);
        self.tell(heard(&bytes));
    }

    /// The others answer heartbeats, so that their lives are proven and their words count.
    fn peers_answer(&mut self, outputs: &[Output]) {
        let zone = Fixture::new(self.members);
        for output in outputs.iter().filter(|_| self.peers_live) {
            let Output::Send { bytes, .. } = output else {
                continue;
            };
            let message = zone.open(bytes).unwrap();
            let Some(peer) = (2..=usize::from(self.members)).find(|i| Fixture::id(*i) == message.header.to)
            else {
                continue;
            };
            if matches!(message.body, Body::Heartbeat(_)) {
                let ack = Ack {
                    echo_incarnation: message.header.incarnation,
                    echo_sequence: message.header.sequence,
                    ..Ack::default()
                };
                self.answers.push((peer, ack));
            }
        }
        for (peer, ack) in std::mem::take(&mut self.answers) {
            self.say(peer, Body::Ack(ack));
        }
    }

    /// Lets time pass; returns when writes began, counted from now.
    fn run(&mut self, ms: u64) -> Vec<u64> {
        let began = self.now;
        let mut writes = Vec::new();
        while self.now < began + ms {
            self.now += 50;
            if self.peers_live && self.now.is_multiple_of(2_000) {
                self.tell(Input::CloudContact);
            }
            let outputs = self.engine.on(Millis(self.now), Input::Tick);
            self.peers_answer(&outputs);
            if outputs.contains(&Output::ProveLink) {
                writes.push(self.now - began);
                if let Some(written) = self.answer {
                    self.tell(Input::LinkProof { written });
                }
            }
        }
        writes
    }
}

fn gaps(times: &[u64]) -> Vec<u64> {
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn a_wanted_agent_writes_within_three_seconds_and_then_every_ten() {
    let mut agent = Agent::new(5);
    agent.list(&[1]);
    let writes = agent.run(60_000);
    assert!(writes[0] <= 3_000 + TICK_MS, "{writes:?}");
    assert!(
        gaps(&writes)
            .iter()
            .all(|gap| (10_000..=10_000 + TICK_MS).contains(gap))
            && writes.len() >= 5,
        "{writes:?}"
    );
}

#[test]
fn an_agent_that_is_not_listed_writes_nothing_and_stops_when_it_is_listed_no_longer() {
    let mut agent = Agent::new(5);
    agent.list(&[2, 3]);
    assert_eq!(agent.run(30_000), Vec::<u64>::new());
    agent.list(&[1]);
    assert_eq!(agent.run(5_000).len(), 1);
    agent.list(&[]);
    assert_eq!(agent.run(30_000), Vec::<u64>::new());
}

#[test]
fn agents_that_are_listed_together_do_not_write_together() {
    let first = |seed| {
        let mut agent = Agent::new(seed);
        agent.list(&[1]);
        agent.run(5_000)[0]
    };
    let times: BTreeSet<u64> = (0..20).map(first).collect();
    assert!(times.len() >= 10, "{times:?}");
}

#[test]
fn writes_that_fail_are_repeated_more_and_more_slowly_but_at_least_every_five_seconds() {
    let mut agent = Agent::new(5);
    agent.list(&[1]);
    agent.answer = Some(false);
    let gaps = gaps(&agent.run(60_000));
    let bounds = [1_000, 2_000, 4_000, 5_000, 5_000, 5_000, 5_000, 5_000];
    for (gap, most) in gaps.iter().zip(bounds) {
        assert!((most / 2..=most + TICK_MS).contains(gap), "{gaps:?}");
    }
    assert!(gaps.len() >= bounds.len(), "{gaps:?}");
    // The next success brings back the usual pace.
    agent.answer = Some(true);
    let writes = agent.run(40_000);
    assert!(
        writes[0] <= 5_000 + TICK_MS && writes[1] - writes[0] >= 10_000,
        "{writes:?}"
    );
}

#[test]
fn a_write_of_which_nothing_is_heard_has_failed() {
    let mut agent = Agent::new(5);
    agent.list(&[1]);
    agent.answer = None;
    assert!(agent.run(40_000).len() >= 3);
}

/// As all are asked about after an outage of the API server.
#[test]
fn agents_that_are_asked_about_together_do_not_write_together() {
    let first = |about: usize| {
        let times = (0..20).map(|seed| {
            let mut agent = Agent::of(9, seed);
            agent.peers_live = true;
            agent.run(4_000);
            agent.asked(&(1..=about).collect::<Vec<_>>());
            agent.run(5_000)[0]
        });
        times.max().unwrap()
    };
    assert!(first(1) <= 500 + TICK_MS, "alone, an agent may be stalling");
    let (last, most) = (first(9), 3_000 + TICK_MS);
    assert!(
        (1_500..=most).contains(&last),
        "the last one writes after {last} ms"
    );
}

/// A reporter that lists a member asks about it every few seconds.
#[test]
fn an_agent_that_is_asked_about_again_and_again_writes_until_nobody_asks_any_more() {
    let mut agent = Agent::new(5);
    agent.peers_live = true;
    agent.run(4_000);
    let mut writes = 0;
    for _ in 0..12 {
        agent.asked(&[1]);
        writes += agent.run(4_500).len();
    }
    assert!(writes >= 6, "{writes} writes in 54 s");
    agent.run(30_000);
    assert_eq!(agent.run(60_000), Vec::<u64>::new());
}
