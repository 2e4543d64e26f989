//! When a listed agent writes to prove its link.

use crate::Millis;
use crate::engine::{Config, Engine, Identity, Input, Output};
use crate::fixture::Fixture;
use evenkeel_api::zone::ZoneHealthStatus;
use rstest::rstest;
use std::collections::BTreeSet;

const START: u64 = 50_000;
/// The longest time between two ticks of an engine.
const TICK_MS: u64 = 200;

/// The agent of node 1 of three, and what its writes come to.
struct Agent {
    engine: Engine,
    now: u64,
    answer: Option<bool>,
}

impl Agent {
    fn new(seed: u8) -> Self {
        let zone = Fixture::new(3);
        let identity = Identity {
            uid: Fixture::uid(1),
            key: zone.signer(1),
            incarnation: 77,
            sequence_base: 0,
            seed: [seed; 32],
            seen_alive: BTreeSet::new(),
        };
        Self {
            engine: Engine::new(Config::default(), identity, zone.roster(), Millis(START)),
            now: START,
            answer: Some(true),
        }
    }

    fn tell(&mut self, input: Input<'_>) {
        self.engine.handle(Millis(self.now), input);
    }

    fn list(&mut self, nodes: &[usize]) {
        let nodes = nodes.iter().map(|node| Fixture::undecided(*node)).collect();
        let status = ZoneHealthStatus {
            nodes,
            ..ZoneHealthStatus::default()
        };
        self.tell(Input::Published(&status));
    }

    /// Lets time pass; returns when writes began, counted from now.
    fn run(&mut self, ms: u64) -> Vec<u64> {
        let began = self.now;
        let mut writes = Vec::new();
        while self.now < began + ms {
            self.now += 50;
            let outputs = self.engine.handle(Millis(self.now), Input::Tick);
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

#[rstest]
#[case::listed(true)]
#[case::wanted(false)]
fn a_listed_agent_writes_within_three_seconds_and_then_every_ten(#[case] listed: bool) {
    let mut agent = Agent::new(5);
    if listed {
        agent.list(&[1]);
    } else {
        agent.tell(Input::Wanted([Fixture::id(1)].into()));
    }
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
    agent.tell(Input::Wanted([Fixture::id(2)].into()));
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
