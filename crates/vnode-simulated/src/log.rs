//! Output of containers: lines that are computed from the clock, which nobody stores, and lines that a
//! command wrote, of which the last are kept. Pure.

use super::shape::Shape;
use jiff::{SignedDuration, Timestamp};
use std::collections::VecDeque;
use std::time::Duration;

/// The last lines that a command wrote.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    lines: VecDeque<(Timestamp, Box<[u8]>)>,
    /// Number of the first that is still there.
    first: u64,
    bytes: usize,
    /// What has no end of line yet.
    rest: Vec<u8>,
}

impl Ring {
    /// What is kept of a container's output.
    pub(crate) const BYTES: usize = 256 << 10;
    /// A longer line is divided, as container runtimes do.
    pub(crate) const LINE: usize = 16 << 10;

    pub(crate) fn write(&mut self, at: Timestamp, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut part = part;
            while self.rest.len() + part.len() > Self::LINE {
                let (head, tail) = part.split_at(Self::LINE.saturating_sub(self.rest.len()).min(part.len()));
                self.rest.extend_from_slice(head);
                self.end_line(at);
                part = tail;
            }
            self.rest.extend_from_slice(part);
            if self.rest.ends_with(b"\n") {
                self.end_line(at);
            }
        }
    }

    /// There will be no more output: what has no end of line is a line, too.
    pub(crate) fn end_line(&mut self, at: Timestamp) {
        if self.rest.is_empty() {
            return;
        }
        if !self.rest.ends_with(b"\n") {
            self.rest.push(b'\n');
        }
        let line = std::mem::take(&mut self.rest).into_boxed_slice();
        self.bytes += line.len();
        self.lines.push_back((at, line));
        while self.bytes > Self::BYTES
            && let Some((_, line)) = self.lines.pop_front()
        {
            self.bytes -= line.len();
            self.first += 1;
        }
    }

    fn end(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    fn get(&self, number: u64) -> Option<&(Timestamp, Box<[u8]>)> {
        self.lines
            .get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

/// The whole output of a container at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<'a> {
    pub(crate) shape: &'a Shape,
    /// Name of its pod.
    pub(crate) pod: &'a str,
    /// Since when it runs.
    pub(crate) started: Timestamp,
    /// Up to when there are lines: now, or its end.
    pub(crate) until: Timestamp,
    /// What a command wrote.
    pub(crate) ring: Option<&'a Ring>,
}

/// Where a reader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    computed: u64,
    written: u64,
}

impl Output<'_> {
    /// Where to begin for lines from a time on, and so many of the end at the most.
    pub(crate) fn begin(&self, since: Option<Timestamp>, tail: Option<u64>) -> Cursor {
        let end = Cursor {
            computed: self.count(),
            written: self.ring.map_or(0, Ring::end),
        };
        let mut from = Cursor {
            computed: since.map_or(0, |since| self.before(since)).min(end.computed),
            written: self.ring.map_or(0, |ring| {
                let older = ring
                    .lines
                    .iter()
                    .take_while(|(at, _)| since.is_some_and(|since| *at < since));
                ring.first + older.count() as u64
            }),
        };
        let Some(tail) = tail else {
            return from;
        };
        // Back from one written line to the one before it: of computed lines there can be billions, so that
        // those between two written ones are counted at once.
        let mut last = end;
        let mut left = tail;
        while left > 0 && last.written > from.written {
            let written = self.ring.and_then(|ring| ring.get(last.written - 1));
            let older = written.map_or(0, |(at, _)| self.through(*at));
            let later = last.computed.saturating_sub(older.max(from.computed)).min(left);
            last.computed -= later;
            left -= later;
            if left > 0 {
                last.written -= 1;
                left -= 1;
            }
        }
        from.computed = from.computed.max(last.computed.saturating_sub(left));
        from.written = last.written;
        from
    }

    /// Where a reader begins who wants what comes from now on.
    #[cfg(test)]
    fn end(&self) -> Cursor {
        Cursor {
            computed: self.count(),
            written: self.ring.map_or(0, Ring::end),
        }
    }

    /// The next line with its time, end of line included.
    pub(crate) fn next(&self, cursor: &mut Cursor) -> Option<(Timestamp, Vec<u8>)> {
        if let Some(ring) = self.ring {
            // Lines that were dropped before they were read are lost to the reader, as in a log that was
            // rotated.
            cursor.written = cursor.written.max(ring.first);
        }
        let computed = (cursor.computed < self.count())
            .then(|| self.at(cursor.computed))
            .flatten();
        let written = self.ring.and_then(|ring| ring.get(cursor.written));
        match (computed, written) {
            (Some(at), written) if written.is_none_or(|(other, _)| at <= *other) => {
                let line = self.line(cursor.computed);
                cursor.computed += 1;
                Some((at, line.into_bytes()))
            }
            (_, Some((at, line))) => {
                cursor.written += 1;
                Some((*at, line.to_vec()))
            }
            (_, None) => None,
        }
    }

    /// When the next line is computed, if none is missing before.
    pub(crate) fn due(&self, cursor: &Cursor) -> Option<Timestamp> {
        let more = !self.interval().is_zero() || cursor.computed < self.lines();
        more.then(|| self.at(cursor.computed)).flatten()
    }

    fn interval(&self) -> Duration {
        self.shape.plan.log_interval
    }

    /// Lines before they repeat.
    fn lines(&self) -> u64 {
        if self.shape.plan.log.is_empty() {
            u64::from(!self.shape.plan.runs)
        } else {
            self.shape.plan.log.len() as u64
        }
    }

    /// Lines that were computed so far.
    fn count(&self) -> u64 {
        self.through(self.until)
    }

    /// Lines that were computed up to a time, that time included.
    fn through(&self, at: Timestamp) -> u64 {
        if at < self.started || self.lines() == 0 {
            return 0;
        }
        let passed = self
            .elapsed(at)
            .as_nanos()
            .checked_div(self.interval().as_nanos());
        passed.map_or(self.lines(), |intervals| {
            u64::try_from(intervals + 1).unwrap_or(u64::MAX)
        })
    }

    /// Lines that were computed before a time.
    fn before(&self, at: Timestamp) -> u64 {
        if at <= self.started || self.lines() == 0 {
            return 0;
        }
        match self.interval().as_nanos() {
            0 => self.lines(),
            interval => u64::try_from(self.elapsed(at).as_nanos().div_ceil(interval)).unwrap_or(u64::MAX),
        }
    }

    fn elapsed(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.started)).unwrap_or_default()
    }

    fn at(&self, index: u64) -> Option<Timestamp> {
        let nanos = self.interval().as_nanos().checked_mul(u128::from(index))?;
        let nanos = i64::try_from(nanos).ok()?;
        self.started.checked_add(SignedDuration::from_nanos(nanos)).ok()
    }

    fn line(&self, index: u64) -> String {
        let log = &self.shape.plan.log;
        let mut line = if log.is_empty() {
            if self.interval().is_zero() {
                format!(
                    "{} of {} runs {:?}, simulated",
                    self.shape.name, self.pod, self.shape.image
                )
            } else {
                format!("line {}", index + 1)
            }
        } else {
            let line = usize::try_from(index % log.len() as u64)
                .ok()
                .and_then(|at| log.get(at));
            line.map(String::as_str)
                .unwrap_or_default()
                .replace("{n}", &(index + 1).to_string())
                .replace("{pod}", self.pod)
                .replace("{container}", &self.shape.name)
        };
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests;
