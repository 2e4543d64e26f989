//! The random numbers of a run. One seed decides everything that happens.

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A source that begins with a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A source of its own for one part of a run: what that part draws changes nothing for the others.
    #[must_use]
    pub fn fork(&self, label: &str) -> Self {
        // FNV-1a over the label.
        let label = label.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut fork = Self::new(self.state ^ label);
        fork.state = fork.draw();
        fork
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, but not including, `bound`; 0 where `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// From `low` up to and including `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// `true` in `cases` of a thousand cases.
    pub fn in_thousand(&mut self, cases: u64) -> bool {
        self.below(1000) < cases
    }

    /// One of a list.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(usize::try_from(self.below(list.len() as u64)).unwrap_or_default())
    }

    /// Puts a list into any order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for place in (1..list.len()).rev() {
            let other = usize::try_from(self.below(place as u64 + 1)).unwrap_or_default();
            list.swap(place, other);
        }
    }

    /// A time from an exponential distribution of this mean. Of a table, because a logarithm need not be the
    /// same on every machine: the quantiles -ln(1 - (i + 1/2)/32), in thousandths.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        const QUANTILES: [u64; 32] = [
            16, 48, 81, 116, 152, 189, 227, 267, 309, 352, 398, 445, 495, 548, 604, 662, 725, 792, 863, 940,
            1_023, 1_114, 1_214, 1_326, 1_451, 1_594, 1_761, 1_962, 2_213, 2_549, 3_060, 4_159,
        ];
        let quantile = self.pick(&QUANTILES).copied().unwrap_or(1_000);
        mean * quantile / 1_000
    }

    /// 32 random bytes.
    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_be_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_and_forks_differ() {
        let (mut one, mut again) = (Rng::new(7), Rng::new(7));
        assert_eq!(one.draw(), again.draw());
        assert_ne!(one.fork("a").draw(), one.fork("b").draw());
        assert!((0..1000).all(|_| (3..=5).contains(&one.between(3, 5))));
    }

    #[test]
    fn a_list_in_another_order_has_the_same_members() {
        let mut list: Vec<usize> = (0..20).collect();
        Rng::new(7).shuffle(&mut list);
        assert!(!list.is_sorted());
        list.sort_unstable();
        assert_eq!(list, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn exponential_times_have_their_mean() {
        let mut rng = Rng::new(9);
        let mean = (0..10_000).map(|_| rng.exponential(1_000)).sum::<u64>() / 10_000;
        assert!((950..1_050).contains(&mean), "{mean}");
    }
}
