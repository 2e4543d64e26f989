//! The network between nodes: how long a datagram takes, and what becomes of it.
//!
//! Every directed pair of nodes is a link with a latency of its own, which the seed decides. On top come
//! jitter, losses that are independent of each other, and bursts: a link is good or bad for a random time,
//! independently of all others, and a bad one loses most of what it carries (Gilbert and Elliott's model, in
//! time instead of in datagrams, because heartbeats are rare).

use crate::rng::Rng;
use crate::script::{Bursts, Fault, Network};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// A delayed datagram comes up to this much later than it would have come: others overtake it.
const OVERTAKEN_BY: u64 = 200;

/// Who does not reach whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// These and all others do not reach each other.
    Split(BTreeSet<usize>),
    /// Nothing gets from these to those.
    OneWay(BTreeSet<usize>, BTreeSet<usize>),
    /// These two do not reach each other.
    Pair(usize, usize),
}

impl Cut {
    /// Of a fault, if it cuts nodes from each other.
    pub(crate) fn of(fault: &Fault) -> Option<Self> {
        match fault {
            Fault::SplitLan(few) => Some(Self::Split(few.iter().copied().collect())),
            Fault::CutOneWay(from, to) => {
                let set = |nodes: &[usize]| nodes.iter().copied().collect();
                Some(Self::OneWay(set(from), set(to)))
            }
            Fault::CutPair(one, other) => Some(Self::Pair(*one, *other)),
            _ => None,
        }
    }

    /// Whether it stops what goes from one node to another.
    pub(crate) fn stops(&self, from: usize, to: usize) -> bool {
        match self {
            Self::Split(few) => few.contains(&from) != few.contains(&to),
            Self::OneWay(senders, hearers) => senders.contains(&from) && hearers.contains(&to),
            Self::Pair(one, other) => (from, to) == (*one, *other) || (to, from) == (*one, *other),
        }
    }
}

/// What becomes of a copy of a datagram that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) delay: u64,
    /// A byte of it is changed.
    pub(crate) corrupted: bool,
}

/// A sojourn of a link in one of its two states.
#[derive(Clone, Copy, Debug)]
struct Spell {
    bad: bool,
    until: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Links {
    network: Network,
    seed: u64,
    /// By step of the script.
    cuts: BTreeMap<usize, Cut>,
    /// Further losses in a thousand, by step of the script.
    losses: BTreeMap<usize, u64>,
    spells: HashMap<(u32, u32), Spell, BuildHasherDefault<DefaultHasher>>,
}

impl Links {
    pub(crate) fn new(network: Network, seed: u64) -> Self {
        Self {
            network,
            seed,
            ..Self::default()
        }
    }

    /// A cut of a step of the script begins.
    pub(crate) fn cut(&mut self, step: usize, cut: Cut) {
        self.cuts.insert(step, cut);
    }

    /// Further losses of a step of the script begin.
    pub(crate) fn lose(&mut self, step: usize, lost: u64) {
        self.losses.insert(step, lost);
    }

    /// A step of the script is over.
    pub(crate) fn mend(&mut self, step: usize) {
        self.cuts.remove(&step);
        self.losses.remove(&step);
    }

    /// Whether anything can get from one node to another.
    pub(crate) fn passes(&self, from: usize, to: usize) -> bool {
        !self.cuts.values().any(|cut| cut.stops(from, to))
    }

    /// The copies of a datagram that arrive: none, one or two.
    pub(crate) fn carry(&mut self, from: usize, to: usize, now: u64, rng: &mut Rng) -> [Option<Way>; 2] {
        if !self.passes(from, to) {
            return [None; 2];
        }
        let first = self.copy(from, to, now, rng);
        let second = rng
            .in_thousand(self.network.doubled)
            .then(|| self.copy(from, to, now, rng));
        [first, second.flatten()]
    }

    fn copy(&mut self, from: usize, to: usize, now: u64, rng: &mut Rng) -> Option<Way> {
        let bad = self
            .network
            .bursts
            .filter(|bursts| self.is_bad(from, to, now, *bursts, rng));
        let further = self.losses.values().max().copied().unwrap_or_default();
        let lost = self
            .network
            .lost
            .max(further)
            .max(bad.map_or(0, |bursts| bursts.lost));
        if rng.in_thousand(lost) {
            return None;
        }
        let (low, high) = self.network.latency;
        let spread = high.saturating_sub(low) / 2;
        let base = low + self.link(from, to) % (spread + 1);
        let late = if rng.in_thousand(self.network.delayed) {
            rng.below(OVERTAKEN_BY)
        } else {
            0
        };
        Some(Way {
            delay: base + rng.below(high.saturating_sub(low) - spread + 1) + late,
            corrupted: rng.in_thousand(self.network.corrupted),
        })
    }

    /// A number that belongs to the directed pair.
    fn link(&self, from: usize, to: usize) -> u64 {
        let pair = ((from as u64) << 32) | to as u64;
        Rng::new(self.seed ^ pair.wrapping_mul(0x9e37_79b9_7f4a_7c15)).draw()
    }

    /// Whether the link is in a bad spell. It is looked at only when something is sent, so the spells up to
    /// now are drawn then.
    fn is_bad(&mut self, from: usize, to: usize, now: u64, bursts: Bursts, rng: &mut Rng) -> bool {
        let pair = (
            u32::try_from(from).unwrap_or(u32::MAX),
            u32::try_from(to).unwrap_or(u32::MAX),
        );
        let spell = self.spells.entry(pair).or_insert_with(|| Spell {
            bad: false,
            until: now + rng.exponential(bursts.every),
        });
        while spell.until <= now {
            spell.bad = !spell.bad;
            let mean = if spell.bad { bursts.lasts } else { bursts.every };
            spell.until += rng.exponential(mean).max(1);
        }
        spell.bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Network = Network {
        latency: (5, 25),
        lost: 0,
        doubled: 0,
        delayed: 0,
        corrupted: 0,
        bursts: None,
    };

    fn delays(links: &mut Links, from: usize, to: usize) -> (u64, u64) {
        let mut rng = Rng::new(1);
        let mut delay = || {
            links.carry(from, to, 0, &mut rng)[0]
                .map(|way| way.delay)
                .unwrap()
        };
        let all: Vec<u64> = (0..500).map(|_| delay()).collect();
        (*all.iter().min().unwrap(), *all.iter().max().unwrap())
    }

    #[test]
    fn each_direction_has_a_latency_of_its_own_within_the_bounds() {
        let mut links = Links::new(NETWORK, 7);
        let found: Vec<_> = [(1, 2), (2, 1), (1, 3), (3, 1)]
            .map(|(from, to)| delays(&mut links, from, to))
            .into();
        assert!(
            found
                .iter()
                .all(|(low, high)| *low >= 5 && *high <= 25 && high - low == 10)
        );
        assert!(found.windows(2).any(|pair| pair[0] != pair[1]), "{found:?}");
    }

    #[test]
    fn a_cut_stops_what_it_names_and_nothing_else() {
        let one_way = Cut::OneWay([1, 2].into(), [3].into());
        assert!(one_way.stops(1, 3) && one_way.stops(2, 3));
        assert!(!one_way.stops(3, 1) && !one_way.stops(1, 2));
        let pair = Cut::Pair(1, 2);
        assert!(pair.stops(1, 2) && pair.stops(2, 1) && !pair.stops(1, 3));
        let split = Cut::Split([1, 2].into());
        assert!(split.stops(1, 3) && split.stops(3, 2) && !split.stops(1, 2) && !split.stops(3, 4));
    }

    #[test]
    fn bursts_lose_in_runs_and_each_direction_by_itself() {
        let bursts = Bursts {
            every: 4_000,
            lasts: 1_000,
            lost: 1_000,
        };
        let mut links = Links::new(
            Network {
                bursts: Some(bursts),
                ..NETWORK
            },
            7,
        );
        let mut rng = Rng::new(3);
        let mut carried = |from, to| -> Vec<bool> {
            (0..200_000)
                .step_by(100)
                .map(|at| links.carry(from, to, at, &mut rng)[0].is_some())
                .collect()
        };
        let (there, back) = (carried(1, 2), carried(2, 1));
        let lost = there.iter().filter(|arrived| !**arrived).count();
        assert!((200..600).contains(&lost), "a fifth of 2,000, roughly: {lost}");
        let changes = there.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(
            changes < 150,
            "independent losses would change 640 times: {changes}"
        );
        assert_ne!(there, back);
    }
}
