//! What is longer than a datagram, fetched from another agent part by part: whoever wants it asks for it, so
//! that nobody can fill an agent's memory with what it has not asked for.

use crate::Millis;
use crate::wire::{PART, Part, PartAsked};
use std::collections::BTreeMap;

/// So many parts answer one question.
const AT_ONCE: usize = 8;
/// After this time the first missing part is asked for again, so often without any answer.
const ASKS_AGAIN_MS: u64 = 500;
const MOST_UNANSWERED: u8 = 6;
/// All parts have come within this time, also where a third of them are lost.
const LONGEST_MS: u64 = 30_000;

/// What is being fetched, and what there is of it.
pub(super) struct Parts {
    version: u64,
    /// Bytes of the whole, once a part came.
    length: Option<usize>,
    /// By their place in the whole.
    come: BTreeMap<usize, Vec<u8>>,
    /// No whole is longer.
    longest: usize,
    began: Millis,
    asked: Millis,
    unanswered: u8,
}

/// What comes of a part.
pub(super) enum Taken {
    /// It fits nowhere.
    Refused,
    /// Others are under way.
    Waits,
    /// These are to be asked for.
    Asks(PartAsked),
    /// It was the last one that was missing: the whole.
    Whole(Vec<u8>),
}

/// What to do where nothing comes.
pub(super) enum Turn {
    Waits,
    /// Ask again.
    Asks(PartAsked),
    GivesUp,
}

impl Parts {
    /// Begins to fetch something of this version or a later one. The parts are to be asked for.
    pub(super) fn new(version: u64, longest: usize, now: Millis) -> Self {
        Self {
            version,
            length: None,
            come: BTreeMap::new(),
            longest,
            began: now,
            asked: now,
            unanswered: 0,
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// When it is to be looked whether something came. An agent that answers for ever is given up in time:
    /// otherwise it would keep what it does not have from being fetched elsewhere.
    pub(super) fn deadline(&self) -> Millis {
        self.asked.plus(ASKS_AGAIN_MS).min(self.began.plus(LONGEST_MS))
    }

    /// Asks for what is missing.
    pub(super) fn ask(&mut self, now: Millis) -> PartAsked {
        self.asked = now;
        PartAsked {
            version: self.version,
            offset: u32::try_from(self.missing()).unwrap_or(u32::MAX),
        }
    }

    /// The first byte that is missing.
    fn missing(&self) -> usize {
        let mut end = 0;
        for (place, part) in &self.come {
            if *place != end {
                break;
            }
            end += part.len();
        }
        end
    }

    pub(super) fn take(&mut self, part: &Part, now: Millis) -> Taken {
        let (Ok(length), Ok(place)) = (usize::try_from(part.length), usize::try_from(part.offset)) else {
            return Taken::Refused;
        };
        let is_other = self.length.is_some_and(|known| known != length);
        if part.version > self.version || part.version == self.version && is_other {
            // The other agent has got a newer one meanwhile.
            (self.version, self.length) = (part.version, None);
            self.come.clear();
        }
        let end = place.saturating_add(part.bytes.len());
        let fits = part.version == self.version && length <= self.longest && end <= length;
        let whole_part = end == length || part.bytes.len() == PART;
        if !fits || !whole_part || !place.is_multiple_of(PART) || part.bytes.is_empty() {
            return Taken::Refused;
        }
        self.length = Some(length);
        let is_new = self.come.insert(place, part.bytes.clone()).is_none();
        if is_new {
            self.unanswered = 0;
        }
        let missing = self.missing();
        if missing >= length {
            return Taken::Whole(self.come.values().flatten().copied().collect());
        }
        // After the last part of an answer the next ones are asked for at once.
        if is_new && missing == end && (end / PART).is_multiple_of(AT_ONCE) {
            Taken::Asks(self.ask(now))
        } else {
            Taken::Waits
        }
    }

    pub(super) fn step(&mut self, now: Millis) -> Turn {
        if now < self.deadline() {
            return Turn::Waits;
        }
        self.unanswered += 1;
        if self.unanswered > MOST_UNANSWERED || now.since(self.began) >= LONGEST_MS {
            Turn::GivesUp
        } else {
            Turn::Asks(self.ask(now))
        }
    }
}

/// The parts that answer a question; none where what there is is older than what is asked for. Of a newer one
/// nothing has come yet, and it may be shorter than what has come of the older one.
pub(super) fn answer((version, bytes): (u64, &[u8]), asked: &PartAsked) -> impl Iterator<Item = Part> {
    let missing = if version == asked.version { asked.offset } else { 0 };
    let first = usize::try_from(missing).unwrap_or(usize::MAX) / PART;
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let count = if version < asked.version { 0 } else { AT_ONCE };
    let parts = bytes.chunks(PART).enumerate().skip(first).take(count);
    parts.map(move |(place, part)| Part {
        version,
        length,
        offset: u32::try_from(place * PART).unwrap_or(u32::MAX),
        bytes: part.to_vec(),
    })
}

#[cfg(test)]
mod decoder_tests;
