//! What becomes of an event: a new object, a higher count of one that exists, or nothing.
//!
//! The rules are those of client-go's recorder, with its numbers, so that probes cost an API server no more
//! than a kubelet's do: equal events raise a count; from the tenth on, events about an object for one reason
//! that differ in their message are combined into one; and an object has 25 events at once and one per five
//! minutes in the long run. Pure: times are parameters.

use super::EventAbout;
use crate::core::{Event, Now};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::time::Duration;

/// Entries of each memory; those not used for longest go first.
const ENTRIES: usize = 4096;
/// Messages for one reason that differ, until they are combined.
const SIMILAR: usize = 10;
/// After this long without an event the count of [`SIMILAR`] begins anew.
const INTERVAL: Duration = Duration::from_secs(600);
/// Events about an object, at once.
const BURST: u32 = 25;
/// One more, each.
const REFILL: Duration = Duration::from_secs(300);
/// Bytes of a message that Kubernetes accepts.
const MESSAGE: usize = 1024;
/// Bytes of an object's name that Kubernetes accepts.
const NAME: usize = 253;

/// An event as it is to be in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Name of the object, unique in the namespace of `about`.
    pub name: String,
    /// The container that the event is about.
    pub about: EventAbout,
    /// With its message as it is to be shown, at most 1024 bytes.
    pub event: Event,
    /// How often so far.
    pub count: u32,
    /// Wall time of the first, since the Unix epoch.
    pub first: Duration,
    /// Wall time of this one.
    pub last: Duration,
}

/// What to do about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a new object.
    Create(Record),
    /// Raise the count of the object of this name; make it if it is not there.
    Patch(Record),
    /// Nothing: there were too many about this object.
    Drop,
}

/// Remembers which events were recorded. Its size is bounded.
#[derive(Debug, Default)]
pub struct Correlator {
    hasher: RandomState,
    similar: Memory<Similar>,
    recorded: Memory<Recorded>,
    allowances: Memory<Allowance>,
    /// The last name given, so that each is given once.
    serial: u128,
}

/// Events about one object for one reason.
#[derive(Clone, Debug, Default)]
struct Similar {
    /// Hashes of messages, fewer than [`SIMILAR`].
    messages: Vec<u64>,
    last: Duration,
}

#[derive(Clone, Debug)]
struct Recorded {
    name: String,
    count: u32,
    first: Duration,
}

/// A bucket of events, as time: each takes [`REFILL`] out of it.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: Duration,
    at: Duration,
}

impl Correlator {
    /// What to do about an event that happened `now`.
    pub fn correlate(&mut self, about: EventAbout, mut event: Event, now: Now) -> Action {
        cut(&mut event.message, MESSAGE);
        // Neither object nor reason tell two containers of a pod apart, as in client-go; the full key does.
        let object = (&about.namespace, &about.name, &about.uid, event.warning);
        let allowance_key = self.hash(&object);
        let similar_key = self.hash(&(object, event.reason));
        let message = self.hash(&event.message);
        let full_key = self.hash(&(similar_key, about.field_path(), message));

        let key = if self.is_combined(similar_key, message, now.mono) {
            event.message.insert_str(0, "(combined from similar events): ");
            cut(&mut event.message, MESSAGE);
            similar_key
        } else {
            full_key
        };
        let known = self.recorded.get(key).cloned();
        let first = known.is_none();
        let recorded = match known {
            Some(recorded) => Recorded {
                count: recorded.count.saturating_add(1),
                ..recorded
            },
            None => Recorded {
                name: self.name(&about.name, now.wall),
                count: 1,
                first: now.wall,
            },
        };
        self.recorded.put(key, recorded.clone());
        if !self.is_allowed(allowance_key, now.mono) {
            return Action::Drop;
        }
        let record = Record {
            name: recorded.name,
            about,
            event,
            count: recorded.count,
            first: recorded.first,
            last: now.wall,
        };
        if first {
            Action::Create(record)
        } else {
            Action::Patch(record)
        }
    }

    fn hash(&self, value: &impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    /// Whether there were so many for this reason that this one does not stand for itself. The first nine
    /// messages do, for as long as they come.
    fn is_combined(&mut self, key: u64, message: u64, now: Duration) -> bool {
        let mut similar = self.similar.take(key).unwrap_or_default();
        if now.saturating_sub(similar.last) > INTERVAL {
            similar.messages.clear();
        }
        similar.last = now;
        let known = similar.messages.contains(&message);
        let combined = !known && similar.messages.len() + 1 >= SIMILAR;
        if !known && !combined {
            similar.messages.push(message);
        }
        self.similar.put(key, similar);
        combined
    }

    fn is_allowed(&mut self, key: u64, now: Duration) -> bool {
        let full = REFILL * BURST;
        let before = self.allowances.take(key);
        let filled = before.map_or(full, |Allowance { left, at }| {
            left.saturating_add(now.saturating_sub(at)).min(full)
        });
        let left = filled.checked_sub(REFILL);
        let allowance = Allowance {
            left: left.unwrap_or(filled),
            at: now,
        };
        self.allowances.put(key, allowance);
        left.is_some()
    }

    /// The pod's name and the time in nanoseconds, as client-go names events.
    fn name(&mut self, pod: &str, wall: Duration) -> String {
        self.serial = wall.as_nanos().max(self.serial.saturating_add(1));
        let suffix = format!(".{:x}", self.serial);
        let mut name = pod.to_owned();
        cut(&mut name, NAME.saturating_sub(suffix.len()));
        name.truncate(name.trim_end_matches(['.', '-']).len());
        name + &suffix
    }
}

/// Cuts a text at a character's border.
fn cut(text: &mut String, bytes: usize) {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// Values by hash of their key; the latest used [`ENTRIES`].
#[derive(Debug)]
struct Memory<V> {
    entries: HashMap<u64, (u64, V)>,
    /// Keys by when they were put.
    order: BTreeMap<u64, u64>,
    clock: u64,
}

impl<V> Default for Memory<V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
        }
    }
}

impl<V> Memory<V> {
    fn get(&self, key: u64) -> Option<&V> {
        self.entries.get(&key).map(|(_, value)| value)
    }

    fn take(&mut self, key: u64) -> Option<V> {
        let (at, value) = self.entries.remove(&key)?;
        self.order.remove(&at);
        Some(value)
    }

    fn put(&mut self, key: u64, value: V) {
        self.take(key);
        self.clock += 1;
        self.entries.insert(key, (self.clock, value));
        self.order.insert(self.clock, key);
        if self.entries.len() > ENTRIES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
