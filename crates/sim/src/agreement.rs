//! Checks that two replicas agree. Two Worlds get the same events in different order, up to 5 s apart, while
//! the order within one watch is kept. The leader's planner writes incidents, which come back to both.
//! Replicas are restarted at random.
//!
//! Two promises: where nothing happened for 5 s, both protect the same; and what the leader has protected for
//! 5 s, the follower's webhook lets nobody take. A replica that has not got all lists is not ready and is not
//! asked. The first promise does not hold for a replica that was restarted and has not watched a node's Lease
//! for long enough to say whether it is renewed. It then says nothing, or decides by a mark of the stock
//! controller, while the other replica saw a renewal that crossed with the mark. To the second promise there
//! is no exception.

mod game;

use crate::rng::Rng;
use crate::script::SECOND;
use evenkeel_api::names::NAMESPACE;
use evenkeel_failover_rules::world::Config;
use evenkeel_judge::{Profile, Timing};
use game::Game;
use std::fmt;

const LEADER: &str = "replica-0";

/// Something that happens in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The kubelet of a node falls silent.
    Silent(usize),
    /// It writes again.
    Speaks(usize),
    /// The stock controller marks a node that is silent.
    Marked(usize),
    /// The whole site loses its cloud link: no kubelet writes.
    SiteSilent,
    /// It has it again.
    SiteSpeaks,
    /// A report that a node lives; whether its kubelet is well.
    Alive(usize, bool),
    /// A report that a node is dead.
    Dead(usize),
    /// A node's agent writes.
    AgentWrites(usize),
    /// A policy for all nodes: endpoints as stock has them, and so many seconds of autonomy; or none.
    Policy(Option<i64>),
    /// A replica is restarted.
    Restart(usize),
}

#[derive(Clone, Debug)]
pub struct History {
    /// Seed of delays.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// What happens, and when.
    pub happenings: Vec<(u64, Happening)>,
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "history {} with {} nodes", self.seed, self.nodes)?;
        for (at, what) in &self.happenings {
            writeln!(f, "  at {:>7.3} s  {what:?}", *at as f64 / 1000.0)?;
        }
        Ok(())
    }
}

impl History {
    /// The history of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed).fork("agreement");
        let nodes = usize::try_from(rng.between(3, 5)).unwrap_or(3);
        let mut happenings = Vec::new();
        let mut at = 15 * SECOND;
        for _ in 0..rng.between(3, 12) {
            at += rng.below(15 * SECOND);
            let node = 1 + usize::try_from(rng.below(2)).unwrap_or_default();
            let what = match rng.below(14) {
                0..=2 => Happening::Silent(node),
                3 => Happening::Speaks(node),
                4 => Happening::Marked(node),
                5 | 6 => Happening::Alive(node, rng.in_thousand(700)),
                7 | 8 => Happening::Dead(node),
                9 => Happening::AgentWrites(node),
                10 => Happening::Policy(
                    rng.in_thousand(700)
                        .then(|| *rng.pick(&[0_i64, 20, 3_600]).unwrap_or(&0)),
                ),
                11 => Happening::SiteSilent,
                12 => Happening::SiteSpeaks,
                _ => Happening::Restart(usize::try_from(rng.below(2)).unwrap_or_default()),
            };
            // What is said once is seldom all that is said.
            let times = if matches!(what, Happening::Alive(..) | Happening::Dead(_)) {
                rng.between(1, 8)
            } else {
                1
            };
            for time in 0..times {
                happenings.push((at + time * 4_500, what.clone()));
            }
        }
        happenings.sort_by_key(|(at, _)| *at);
        Self {
            seed,
            nodes,
            happenings,
        }
    }

    /// Plays it; what the replicas disagreed about, if they did.
    pub fn play(&self) -> Option<String> {
        self.play_beside(&config())
    }

    /// The same with a follower that has other settings than the leader.
    pub fn play_beside(&self, follower: &Config) -> Option<String> {
        Game::new(self, [config(), follower.clone()]).play()
    }

    /// Leaves out what is not needed for a disagreement.
    pub fn shrink(&self) -> Option<(Self, String)> {
        let mut best = (self.clone(), self.play()?);
        loop {
            let smaller = (0..best.0.happenings.len()).find_map(|index| {
                let mut history = best.0.clone();
                history.happenings.remove(index);
                let text = history.play()?;
                Some((history, text))
            });
            match smaller {
                Some(smaller) => best = smaller,
                None => return Some(best),
            }
        }
    }
}

/// The settings of both replicas.
pub fn config() -> Config {
    Config {
        timing: Timing::default(),
        profile: Profile::Edge,
        default_zone: None,
        default_toleration_seconds: 300,
        namespace: NAMESPACE.to_owned(),
        identity: LEADER.to_owned(),
        life: LEADER.to_owned(),
        mode: Default::default(),
    }
}
