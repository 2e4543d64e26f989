//! The queue of events: a calendar with one page per millisecond.
//!
//! Times are whole milliseconds, and nearly everything lies less than eight seconds ahead. A ring of pages
//! therefore takes an event in and gives it out without comparing anything. What lies further ahead waits in
//! a map, and is moved to its page at the moment at which the ring reaches that far. Events of one
//! millisecond come out in the order in which they went in.
//!
//! Entries are small and are copied. The two frequent events, a datagram and an agent's tick, are entries as
//! they stand; others lie in a slab. The bytes of a datagram lie in another slab, once for all its copies.

use crate::event::{AgentDue, Event};
use std::collections::BTreeMap;

/// Pages of the ring: a power of two above the longest heartbeat interval, retry and Lease.
const PAGES: u64 = 8_192;

#[derive(Clone, Copy)]
enum Entry {
    Datagram { from: u16, to: u16, payload: u32 },
    Tick { node: u32, life: u32 },
    Other(u32),
}

pub(crate) struct Queue {
    ring: Vec<Vec<Entry>>,
    /// The millisecond of the page that is being read, and how many of its entries were read.
    now: u64,
    read: usize,
    /// Entries in the ring.
    near: usize,
    far: BTreeMap<u64, Vec<Entry>>,
    /// The first time in the map. It is asked for at each millisecond.
    next_far: u64,
    events: Slab<Event>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            ring: (0..PAGES).map(|_| Vec::new()).collect(),
            now: 0,
            read: 0,
            near: 0,
            far: BTreeMap::new(),
            next_far: u64::MAX,
            events: Slab::default(),
        }
    }
}

impl Queue {
    /// Puts an event in. A time that has passed means now.
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        let at = at.max(self.now);
        let entry = match event {
            Event::Datagram { from, to, payload } => Entry::Datagram {
                from: short_index(from),
                to: short_index(to),
                payload,
            },
            Event::Agent {
                node,
                life,
                due: AgentDue::Tick,
            } => Entry::Tick {
                node: index(node),
                life: u32::try_from(life).unwrap_or(u32::MAX),
            },
            other => Entry::Other(self.events.put(other)),
        };
        if at < self.now + PAGES {
            self.near += 1;
            if let Some(page) = self.ring.get_mut(page_of(at)) {
                page.push(entry);
            }
        } else {
            self.next_far = self.next_far.min(at);
            self.far.entry(at).or_default().push(entry);
        }
    }

    /// Takes the next event out, with its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        loop {
            let page = self.ring.get_mut(page_of(self.now))?;
            if let Some(entry) = page.get(self.read).copied() {
                self.read += 1;
                self.near -= 1;
                return Some((self.now, self.unpack(entry)?));
            }
            page.clear();
            self.read = 0;
            if self.near == 0 {
                // Nothing lies within the ring: go on where the map begins.
                let (first, _) = self.far.first_key_value()?;
                self.now = *first;
                self.turn_over(*first, self.now + PAGES);
            } else {
                self.now += 1;
                self.turn_over(self.now + PAGES - 1, self.now + PAGES);
            }
        }
    }

    /// Moves what the ring has come to reach from the map to its pages.
    fn turn_over(&mut self, from: u64, until: u64) {
        while self.next_far < until {
            let Some((at, entries)) = self.far.pop_first() else {
                return;
            };
            self.next_far = self.far.first_key_value().map_or(u64::MAX, |(at, _)| *at);
            self.near += entries.len();
            if let Some(page) = self.ring.get_mut(page_of(at.max(from))) {
                page.extend(entries);
            }
        }
    }

    fn unpack(&mut self, entry: Entry) -> Option<Event> {
        Some(match entry {
            Entry::Datagram { from, to, payload } => Event::Datagram {
                from: usize::from(from),
                to: usize::from(to),
                payload,
            },
            Entry::Tick { node, life } => Event::Agent {
                node: node as usize,
                life: u64::from(life),
                due: AgentDue::Tick,
            },
            Entry::Other(slot) => return self.events.take(slot),
        })
    }
}

fn page_of(at: u64) -> usize {
    usize::try_from(at % PAGES).unwrap_or_default()
}

/// Most events are datagrams, and their entries are small.
fn short_index(node: usize) -> u16 {
    u16::try_from(node).unwrap_or(u16::MAX)
}

fn index(node: usize) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

/// Values by their slot; slots are used again.
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    fn put(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            if let Some(place) = self.slots.get_mut(slot as usize) {
                *place = Some(value);
            }
            return slot;
        }
        self.slots.push(Some(value));
        index(self.slots.len() - 1)
    }

    fn take(&mut self, slot: u32) -> Option<T> {
        let value = self.slots.get_mut(slot as usize)?.take();
        self.free.push(slot);
        value
    }
}

/// Datagrams under way: each once, however many copies of it travel.
#[derive(Default)]
pub(crate) struct Payloads {
    slab: Slab<(Vec<u8>, u32)>,
}

impl Payloads {
    /// Keeps the bytes until they were taken `copies` times.
    pub(crate) fn put(&mut self, bytes: Vec<u8>, copies: u32) -> u32 {
        self.slab.put((bytes, copies))
    }

    /// The bytes of one copy.
    pub(crate) fn take(&mut self, slot: u32) -> Option<Vec<u8>> {
        let (bytes, copies) = self.slab.slots.get_mut(slot as usize)?.as_mut()?;
        if *copies > 1 {
            *copies -= 1;
            return Some(bytes.clone());
        }
        self.slab.take(slot).map(|(bytes, _)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn events_come_out_by_time_and_of_one_millisecond_in_their_order() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut queue = Queue::default();
            let mut pushed = Vec::new();
            let mut popped = Vec::new();
            let mut now = 0;
            for id in 0..2_000_usize {
                let ahead = match rng.below(4) {
                    0 => rng.below(4),
                    1 => rng.below(20_000),
                    2 => rng.below(100_000),
                    _ => rng.below(300),
                };
                let event = match rng.below(3) {
                    0 => Event::Datagram {
                        from: id,
                        to: id,
                        payload: 0,
                    },
                    1 => Event::Agent {
                        node: id,
                        life: 1,
                        due: AgentDue::Tick,
                    },
                    _ => Event::Step {
                        index: id,
                        begins: true,
                    },
                };
                pushed.push((now + ahead, id));
                queue.push(now + ahead, event);
                if rng.in_thousand(400)
                    && let Some((at, event)) = queue.pop()
                {
                    now = at;
                    popped.push((at, number(&event)));
                }
            }
            while let Some((at, event)) = queue.pop() {
                popped.push((at, number(&event)));
            }
            pushed.sort_by_key(|(at, _)| *at);
            assert_eq!(pushed, popped, "seed {seed}");
        }
    }

    fn number(event: &Event) -> usize {
        match event {
            Event::Datagram { to: id, .. }
            | Event::Agent { node: id, .. }
            | Event::Step { index: id, .. } => *id,
            other => panic!("{other:?} was not pushed"),
        }
    }

    #[test]
    fn the_bytes_of_a_datagram_are_there_once_for_each_copy() {
        let mut payloads = Payloads::default();
        let slot = payloads.put(vec![1, 2], 2);
        assert_eq!(payloads.take(slot), Some(vec![1, 2]));
        assert_eq!(payloads.take(slot), Some(vec![1, 2]));
        assert_eq!(payloads.take(slot), None);
        assert_eq!(payloads.put(vec![3], 1), slot, "the slot is used again");
    }
}
