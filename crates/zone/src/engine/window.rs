//! Which datagrams of a sender were seen.

/// Which sequences of a life were seen: those from the highest down to at least 960 below it, as bits in a
/// ring (RFC 6479). Datagrams may overtake each other, none counts twice.
///
/// Sequences count what a sender sends to all. In a round about a cell of 64 it sends 126 probes at once, and
/// as many again after 250 ms, so that on a LAN whose delays differ by 100 ms a few hundred come between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    highest: u64,
    seen: [u64; WORDS],
}

const WORDS: usize = 16;
const BITS: u64 = u64::BITS as u64;
/// One word less than there are: the newest one is filled bit by bit.
const BELOW: u64 = (WORDS as u64 - 1) * BITS;

impl Window {
    /// Whether this sequence is new.
    pub(super) fn is_new(&self, sequence: u64) -> bool {
        let bits = self.seen.get((sequence / BITS) as usize % WORDS);
        let unseen = bits.is_some_and(|bits| bits & (1 << (sequence % BITS)) == 0);
        sequence > self.highest || self.highest - sequence <= BELOW && unseen
    }

    /// Whether this sequence is new; it is not, from then on.
    pub(super) fn accept(&mut self, sequence: u64) -> bool {
        let (last, word) = (self.highest / BITS, sequence / BITS);
        if sequence > self.highest {
            // The words that are entered hold bits of long ago.
            for entered in last + 1..=word.min(last + WORDS as u64) {
                if let Some(bits) = self.seen.get_mut(entered as usize % WORDS) {
                    *bits = 0;
                }
            }
            self.highest = sequence;
        } else if self.highest - sequence > BELOW {
            return false;
        }
        let Some(bits) = self.seen.get_mut(word as usize % WORDS) else {
            return false;
        };
        let mask = 1 << (sequence % BITS);
        let new = *bits & mask == 0;
        *bits |= mask;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_window_takes_each_sequence_once_also_out_of_order() {
        let mut window = Window::default();
        let taken: Vec<bool> = [
            5, 7, 6, 7, 5, 1_000, 40, 39, 40, 999, 1_000, 5_000, 1_001, 4_040, 5_001,
        ]
        .map(|sequence| window.accept(sequence))
        .into();
        assert_eq!(
            taken,
            [
                true, true, true, false, false, true, true, false, false, true, false, true, false, true,
                true
            ]
        );
    }

    proptest! {
        /// Compared with a list of all that was taken.
        #[test]
        fn what_is_young_is_taken_once_and_what_is_old_never(
            steps in proptest::collection::vec((1_u64..400, 0_u64..1_100), 0..300),
        ) {
            let (mut window, mut taken, mut highest) = (Window::default(), BTreeSet::new(), 0_u64);
            for (ahead, behind) in steps {
                let sequence = (highest + ahead).saturating_sub(behind).max(1);
                let young = sequence > highest || highest - sequence <= BELOW;
                let new = young && taken.insert(sequence);
                prop_assert_eq!(window.is_new(sequence), new);
                prop_assert_eq!(window.accept(sequence), new);
                highest = highest.max(sequence);
            }
        }
    }
}
