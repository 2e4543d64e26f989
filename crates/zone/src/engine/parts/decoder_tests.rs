//! Parts as another agent may send them: any of them, in any order, again and again, at any time.

use super::*;
use crate::fixture::fuzz::target;

/// No whole of these is longer.
const LONGEST: usize = 12 * PART + 100;
/// One part: the milliseconds before it, its fields as in a datagram, and how many bytes it has. The number
/// of the part stands for its bytes, so that each part has other ones.
const RECORD: usize = 20;

fn record(wait: u16, version: u64, (length, offset, count): (u32, u32, u16)) -> Vec<u8> {
    [
        &wait.to_be_bytes()[..],
        &version.to_be_bytes(),
        &length.to_be_bytes(),
        &offset.to_be_bytes(),
        &count.to_be_bytes(),
    ]
    .concat()
}

/// So many milliseconds, and the part after them. Nothing where a datagram with it is refused.
fn part(number: usize, record: &[u8; RECORD]) -> Option<(u64, Part)> {
    let field = |from: usize, to: usize| {
        record[from..to]
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let count = field(18, 20) as usize;
    let part = Part {
        version: field(2, 10),
        length: field(10, 14) as u32,
        offset: field(14, 18) as u32,
        bytes: vec![number as u8; count.min(PART)],
    };
    (count <= PART).then_some((field(0, 2), part))
}

fn whole(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place / 7) as u8).collect()
}

/// What who has these bytes answers to whom this one is missing.
fn answered(version: u64, bytes: &[u8], offset: usize) -> Vec<Part> {
    let offset = offset as u32;
    answer((version, bytes), &PartAsked { version, offset }).collect()
}

fn records(version: u64, length: usize, wait: u16) -> Vec<Vec<u8>> {
    let bytes = whole(length);
    let offsets = [0, 8 * PART].into_iter();
    let parts = offsets.flat_map(|offset| answered(version, &bytes, offset));
    parts
        .map(|part| record(wait, version, (part.length, part.offset, part.bytes.len() as u16)))
        .collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let (short, long) = (records(1, 2 * PART + 9, 20), records(2, 11 * PART, 450));
    let backwards: Vec<_> = long.iter().rev().cloned().collect();
    let newer = [&short[..2], &long[..5], &records(3, 9 * PART + 1, 0)].concat();
    let late = [&long[..4], &records(2, 11 * PART, 2_900)].concat();
    let again = [long[..8].to_vec(), vec![long[7].clone(); 80]].concat();
    [
        short.clone(),
        long,
        backwards,
        newer,
        late,
        again,
        records(1, 1, 60_000),
    ]
    .map(|records| records.concat())
    .to_vec()
}

/// A fetch, with all that was sent to it.
struct Fetch {
    parts: Parts,
    sent: Vec<Part>,
    now: Millis,
}

impl Fetch {
    fn begin(now: Millis) -> Self {
        let (parts, sent) = (Parts::new(1, LONGEST, now), Vec::new());
        Self { parts, sent, now }
    }

    /// Time passes, and what is due is done at each deadline. Returns whether the fetch goes on.
    fn wait(&mut self, ms: u64) -> bool {
        let until = self.now.plus(ms);
        while self.parts.deadline() <= until {
            self.now = self.parts.deadline();
            match self.parts.step(self.now) {
                Turn::Waits => panic!("nothing is due at the deadline"),
                Turn::Asks(asked) => self.asks_for_what_is_missing(&asked),
                Turn::GivesUp => return false,
            }
        }
        self.now = until;
        let lasted = self.now.since(self.parts.began);
        assert!(lasted < LONGEST_MS, "a fetch has lasted {lasted} ms");
        true
    }

    fn asks_for_what_is_missing(&self, asked: &PartAsked) {
        let length = self.parts.length.unwrap_or(1);
        assert!(asked.version == self.parts.version && (asked.offset as usize) < length);
        assert!((asked.offset as usize).is_multiple_of(PART));
    }

    /// Takes a part. Nothing of it but what was sent is in a whole.
    fn take(&mut self, part: Part) -> Option<Taken> {
        self.sent.push(part.clone());
        let taken = self.parts.take(&part, self.now);
        let held: usize = self.parts.come.values().map(Vec::len).sum();
        assert!(held <= LONGEST && self.parts.come.len() <= LONGEST.div_ceil(PART));
        match &taken {
            Taken::Refused => return None,
            Taken::Waits => {}
            Taken::Asks(asked) => self.asks_for_what_is_missing(asked),
            Taken::Whole(bytes) => self.was_sent(bytes),
        }
        Some(taken)
    }

    /// Each piece came as a part of this whole, in this place.
    fn was_sent(&self, bytes: &[u8]) {
        for (place, piece) in bytes.chunks(PART).enumerate() {
            let is_it = |part: &Part| {
                part.version == self.parts.version()
                    && part.length as usize == bytes.len()
                    && part.offset as usize == place * PART
                    && part.bytes == piece
            };
            assert!(self.sent.iter().any(is_it), "nobody sent what is at {place}");
        }
    }

    /// Whatever came before: who has a newer one and answers is heard to the end.
    fn ends_well(mut self) {
        let Some(version) = self.parts.version().checked_add(1) else {
            return;
        };
        let bytes = whole(9 * PART + 17);
        for _ in 0..4 {
            let asked = self.parts.ask(self.now);
            let parts: Vec<_> = answer((version, &bytes), &asked).collect();
            assert!(parts.len() <= AT_ONCE);
            for part in parts {
                if let Some(Taken::Whole(whole)) = self.take(part) {
                    return assert_eq!(whole, bytes);
                }
            }
        }
        panic!("it did not come to an end");
    }

    fn ends_in_silence(mut self) {
        assert!(!self.wait(LONGEST_MS), "nothing came, and it goes on");
    }
}

#[test]
fn parts_are_borne() {
    target("parts", &seeds(), (0, LONGEST), |script| {
        let mut fetch = Fetch::begin(Millis(7));
        let mut largest = None;
        for (number, record) in script.as_chunks::<RECORD>().0.iter().enumerate() {
            let (wait, part) = part(number, record)?;
            if !fetch.wait(wait) {
                fetch = Fetch::begin(fetch.now);
            }
            let taken = fetch.take(part);
            let length = taken
                .as_ref()
                .map(|_| fetch.parts.come.values().map(Vec::len).sum());
            largest = largest.max(length);
            if matches!(taken, Some(Taken::Whole(_))) {
                fetch = Fetch::begin(fetch.now);
            }
        }
        if script.len().is_multiple_of(2) {
            fetch.ends_well();
        } else {
            fetch.ends_in_silence();
        }
        largest
    });
}

#[test]
fn who_repeats_a_part_is_not_asked_again_and_given_up() {
    let mut fetch = Fetch::begin(Millis(0));
    let parts = answered(1, &whole(11 * PART), 0);
    for part in &parts[..7] {
        assert!(matches!(fetch.take(part.clone()), Some(Taken::Waits)));
    }
    assert!(matches!(fetch.take(parts[7].clone()), Some(Taken::Asks(_))));
    while fetch.wait(ASKS_AGAIN_MS - 1) {
        assert!(matches!(fetch.take(parts[7].clone()), Some(Taken::Waits)));
    }
}

#[test]
fn who_always_has_a_newer_one_is_given_up() {
    let mut fetch = Fetch::begin(Millis(0));
    for part in (1..).flat_map(|version| answered(version, &whole(11 * PART), 0)) {
        if !fetch.wait(50) {
            break;
        }
        assert!(fetch.take(part).is_some());
    }
    assert_eq!(fetch.now, Millis(LONGEST_MS));
}

#[test]
fn a_newer_one_that_is_shorter_than_what_has_come_is_told_from_its_beginning() {
    let mut fetch = Fetch::begin(Millis(0));
    for part in answered(1, &whole(11 * PART), 0) {
        fetch.take(part);
    }
    let asked = fetch.parts.ask(fetch.now);
    let newer: Vec<_> = answer((2, &whole(PART)), &asked).collect();
    let [part] = &newer[..] else { panic!("{newer:?}") };
    assert!(matches!(fetch.take(part.clone()), Some(Taken::Whole(bytes)) if bytes == whole(PART)));
}
