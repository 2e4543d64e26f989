//! What a worker has done so far, in a few hundred bytes.

use crate::core::{Outcome, Verdict};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a worker has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Attempts that ended in success or warning.
    pub successful: u64,
    /// Attempts that ended in failure.
    pub failed: u64,
    /// Attempts that say nothing: starved.
    pub unknown: u64,
    /// Attempts that ended in an error after all tries.
    pub errored: u64,
    /// How long attempts took, retries included, whatever their end.
    pub durations: Histogram,
    /// How late the last attempt started.
    pub lag: Duration,
    /// What the last attempt found, in one line of at most 200 bytes.
    pub last: Option<Box<str>>,
    /// The latest attempts.
    pub history: History,
}

impl Tally {
    /// Most that is kept of an answer, in bytes.
    const LINE: usize = 200;

    pub(super) fn record(
        &mut self,
        outcome: &Outcome,
        starved: bool,
        took: Duration,
        lag: Duration,
        wall: Duration,
    ) {
        let ending = Ending::of(outcome, starved);
        let counter = match ending {
            Ending::Success | Ending::Warning => &mut self.successful,
            Ending::Failure => &mut self.failed,
            Ending::Starved => &mut self.unknown,
            Ending::Error => &mut self.errored,
        };
        *counter = counter.saturating_add(1);
        self.durations.observe(took);
        self.lag = lag;
        self.history.push(wall, ending);
        let line = one_line(text(outcome), Self::LINE);
        if self.last.as_deref() != Some(&*line) {
            self.last = Some(line.into_boxed_str());
        }
    }
}

/// What an outcome says: the error if there is one, else the output.
pub(super) fn text(outcome: &Outcome) -> &str {
    outcome.error.as_deref().unwrap_or(&outcome.output)
}

/// `text` without line breaks and control characters, cut to at most `most` bytes.
pub(super) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    for word in text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
    {
        let gap = usize::from(!line.is_empty());
        if line.len() + gap >= most {
            break;
        }
        if gap == 1 {
            line.push(' ');
        }
        let end = floor_char_boundary(word, most - line.len());
        line.push_str(&word[..end]);
        if end < word.len() {
            break;
        }
    }
    line
}

/// The last place at or before `most` where `word` may be cut.
fn floor_char_boundary(word: &str, most: usize) -> usize {
    if most >= word.len() {
        return word.len();
    }
    (0..=most)
        .rev()
        .find(|end| word.is_char_boundary(*end))
        .unwrap_or(0)
}

/// Durations in Prometheus' default buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// How many were at most the bound of the same place in [`Histogram::BOUNDS`] and more than the one
    /// before it.
    pub buckets: [u64; 11],
    /// How many there were, those above the last bound included.
    pub count: u64,
    /// All of them together.
    pub sum: Duration,
}

impl Histogram {
    /// Upper bounds of the buckets, in seconds.
    pub const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

    /// Takes what another one counted into this one.
    pub(crate) fn add(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket = bucket.saturating_add(more);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
    }

    fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bounds = Self::BOUNDS.iter().zip(&mut self.buckets);
        if let Some((_, bucket)) = bounds.into_iter().find(|(bound, _)| seconds <= **bound) {
            *bucket = bucket.saturating_add(1);
        }
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(took);
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The attempt succeeded.
    Success,
    /// It works, but.
    Warning,
    /// It does not work.
    Failure,
    /// The prober was starved; strict mode.
    Starved,
    /// The attempt itself went wrong.
    Error,
}

impl Ending {
    const ALL: [Self; 5] = [
        Self::Success,
        Self::Warning,
        Self::Failure,
        Self::Starved,
        Self::Error,
    ];

    fn of(outcome: &Outcome, starved: bool) -> Self {
        match (&outcome.error, outcome.verdict) {
            _ if starved => Self::Starved,
            (Some(_), _) => Self::Error,
            (None, Verdict::Success) => Self::Success,
            (None, Verdict::Warning) => Self::Warning,
            (None, Verdict::Failure | Verdict::Unknown) => Self::Failure,
        }
    }
}

/// The latest attempts of a worker: when each ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Newest first; milliseconds since the Unix epoch, times 8, plus the ending's place in [`Ending::ALL`],
    /// plus 1. 0 for none.
    packed: [u64; Self::LENGTH],
}

impl History {
    /// How many are kept.
    pub const LENGTH: usize = 8;

    fn push(&mut self, wall: Duration, ending: Ending) {
        let millis = u64::try_from(wall.as_millis())
            .unwrap_or(u64::MAX)
            .min(u64::MAX >> 3);
        self.packed.rotate_right(1);
        self.packed[0] = millis << 3 | (ending as u64 + 1);
    }

    /// When each ended, since the Unix epoch in whole milliseconds, and how; newest first.
    pub fn iter(&self) -> impl Iterator<Item = (Duration, Ending)> + '_ {
        self.packed.iter().filter_map(|packed| {
            let place = (packed & 7).checked_sub(1)? as usize;
            Some((Duration::from_millis(packed >> 3), *Ending::ALL.get(place)?))
        })
    }
}
