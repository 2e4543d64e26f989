//! Watches, one for each client and kind. A watch keeps the order of its events and has a delay of its own.
//! It breaks, comes back and falls silent independently of the others.

use crate::api::Change;
use crate::api::objects::{Word, say};
use crate::event::{Event, Said};
use crate::sim::Sim;
use evenkeel_failover_rules::world::Kind;

/// Somebody who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Replica(usize),
    Stock,
}

#[derive(Debug)]
pub(crate) struct Watch {
    client: Client,
    kind: Kind,
    /// Events of a former connection are void.
    epoch: u64,
    connected: bool,
    /// Open, and delivers nothing.
    silent: bool,
    /// Events up to this version are on their way or delivered.
    told: u64,
    /// The next event is not delivered before this.
    not_before: u64,
    /// Everything of this version or before was delivered.
    delivered: u64,
    /// A complete list was delivered in this life of the client.
    listed: bool,
}

/// Back-off of a watch is at most this long after its API server is back.
const BACK_WITHIN: u64 = 4_500;
/// In this many of a thousand cases a watch that comes back is answered with 410 and lists anew.
const GONE: u64 = 400;

impl Sim {
    /// Watches of a client that begins.
    pub(crate) fn open_watches(&mut self, client: Client, kinds: &[Kind]) {
        for kind in kinds {
            let known = self
                .watches
                .iter()
                .position(|watch| watch.client == client && watch.kind == *kind);
            let index = known.unwrap_or_else(|| {
                self.watches.push(Watch {
                    client,
                    kind: *kind,
                    epoch: 0,
                    connected: false,
                    silent: false,
                    told: 0,
                    not_before: 0,
                    delivered: 0,
                    listed: false,
                });
                self.watches.len() - 1
            });
            let delay = self.rng.between(20, 1_500);
            if let Some(watch) = self.watches.get_mut(index) {
                watch.epoch += 1;
                (watch.connected, watch.listed, watch.silent) = (false, false, false);
                let epoch = watch.epoch;
                self.after(delay, Event::Connect { watch: index, epoch });
            }
        }
    }

    /// A client ended.
    pub(crate) fn close_watches(&mut self, client: Client) {
        for watch in self.watches.iter_mut().filter(|watch| watch.client == client) {
            watch.epoch += 1;
            watch.connected = false;
        }
    }

    pub(crate) fn break_all_watches(&mut self) {
        for index in 0..self.watches.len() {
            if self.watches.get(index).is_some_and(|watch| watch.connected) {
                self.break_watch(index);
            }
        }
    }

    /// The client found that a watch does not deliver.
    pub(crate) fn restart_watch(&mut self, replica: usize, kind: Kind) {
        let of = |watch: &Watch| watch.client == Client::Replica(replica) && watch.kind == kind;
        if let Some(index) = self.watches.iter().position(of) {
            if let Some(watch) = self.watches.get_mut(index) {
                watch.listed = false;
            }
            self.break_watch(index);
        }
    }

    /// The connection ends, and the client learns it.
    fn break_watch(&mut self, index: usize) {
        let (notice, back) = (self.rng.below(300), self.rng.between(250, 500));
        let Some(watch) = self.watches.get_mut(index) else {
            return;
        };
        watch.epoch += 1;
        (watch.connected, watch.silent) = (false, false);
        watch.told = watch.delivered;
        let epoch = watch.epoch;
        self.after(
            notice,
            Event::Deliver {
                watch: index,
                epoch,
                said: Said::Broken,
            },
        );
        self.after(notice + back, Event::Connect { watch: index, epoch });
    }

    pub(crate) fn half_open(&mut self, replica: usize, kind: Kind, begins: bool) {
        let of = |watch: &Watch| watch.client == Client::Replica(replica) && watch.kind == kind;
        let Some(index) = self.watches.iter().position(of) else {
            return;
        };
        let Some(watch) = self.watches.get_mut(index) else {
            return;
        };
        if begins && watch.connected {
            watch.epoch += 1;
            watch.silent = true;
            watch.told = watch.delivered;
        } else if !begins && watch.silent {
            self.break_watch(index);
        }
    }

    /// A watch is begun: it goes on where it was, or lists anew.
    pub(crate) fn connect(&mut self, index: usize, epoch: u64) {
        let (wait, gone) = (self.rng.between(250, BACK_WITHIN), self.rng.in_thousand(GONE));
        let down = self.api_down > 0;
        let newest = self.store.version();
        let Some(watch) = self.watches.get_mut(index).filter(|watch| watch.epoch == epoch) else {
            return;
        };
        if down {
            return self.after(wait, Event::Connect { watch: index, epoch });
        }
        watch.connected = true;
        let kind = watch.kind;
        if watch.listed && !gone {
            let from = watch.delivered;
            for change in self.store.since(kind, from) {
                self.tell(index, &change);
            }
            return;
        }
        let told = watch.listed;
        watch.told = newest;
        if told {
            self.put_on_its_way(index, Said::Broken);
        }
        let list: Vec<_> = self
            .store
            .list(kind)
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let keys = list.iter().map(|(key, _)| key.clone()).collect();
        for (_, object) in list {
            // Each is older than the list as a whole: the version moves on with its end.
            self.put_on_its_way(index, Said::Put(0, object));
        }
        self.put_on_its_way(index, Said::Listed(newest, keys));
    }

    /// Tells all watches what was written.
    pub(crate) fn tell_watches(&mut self) {
        for change in self.store.news() {
            self.ledger.wrote(&change);
            if self.tracing {
                self.trace_change(&change);
            }
            for index in 0..self.watches.len() {
                let open = self.watches.get(index).is_some_and(|watch| {
                    watch.connected
                        && !watch.silent
                        && watch.kind == change.kind
                        && watch.told < change.version
                });
                if open {
                    self.tell(index, &change);
                }
            }
        }
    }

    fn tell(&mut self, index: usize, change: &Change) {
        if let Some(watch) = self.watches.get_mut(index) {
            watch.told = change.version;
        }
        let said = match &change.object {
            Some(object) => Said::Put(change.version, object.clone()),
            None => Said::Gone(change.version, change.key.clone()),
        };
        self.put_on_its_way(index, said);
    }

    /// Order within one watch is kept.
    fn put_on_its_way(&mut self, index: usize, said: Said) {
        let slow = if self.rng.in_thousand(20) { 400 } else { 60 };
        let delay = self.rng.between(2, slow);
        let now = self.now;
        if let Some(watch) = self.watches.get_mut(index) {
            let at = (now + delay).max(watch.not_before);
            watch.not_before = at;
            let epoch = watch.epoch;
            self.at(
                at,
                Event::Deliver {
                    watch: index,
                    epoch,
                    said,
                },
            );
        }
    }

    pub(crate) fn deliver(&mut self, index: usize, epoch: u64, said: Said) {
        let Some(watch) = self.watches.get_mut(index).filter(|watch| watch.epoch == epoch) else {
            return;
        };
        let version = match &said {
            Said::Put(version, _) | Said::Gone(version, _) | Said::Listed(version, _) => *version,
            Said::Broken => 0,
        };
        watch.delivered = watch.delivered.max(version);
        // A list that was cut short by a failure is no list.
        watch.listed |= matches!(said, Said::Listed(..));
        let (client, kind) = (watch.client, watch.kind);
        if let (Client::Replica(replica), Said::Broken | Said::Listed(..)) = (client, &said) {
            let what = if matches!(said, Said::Broken) {
                "is broken"
            } else {
                "has a complete list"
            };
            self.note(|| format!("replica {replica}: the watch of {} {what}", kind.name()));
        }
        match client {
            Client::Replica(replica) => {
                let seen = match said {
                    Said::Put(_, object) => object.seen(),
                    Said::Gone(_, key) => say(kind, Word::Gone(key)),
                    Said::Listed(_, keys) => say(kind, Word::Listed(keys)),
                    Said::Broken => say(kind, Word::Broken),
                };
                self.replica_sees(replica, seen);
            }
            Client::Stock => self.stock_sees(kind, said),
        }
    }
}
