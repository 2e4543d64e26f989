//! What watches deliver, and when: each breaks, comes back and falls silent independently of the others.

use crate::api::Change;
use crate::api::objects::{Notice, seen};
use crate::event::{Delivery, Event};
use crate::sim::Sim;
use crate::watch::{Client, Watch};
use evenkeel_failover_rules::world::Kind;

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
                self.watches.push(Watch::new(client, *kind));
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
        self.break_agents_watches();
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
        watch.sent = watch.delivered;
        let epoch = watch.epoch;
        self.after(
            notice,
            Event::Deliver {
                watch: index,
                epoch,
                delivery: Delivery::Broken,
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
            watch.sent = watch.delivered;
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
                self.send_change(index, &change);
            }
            return;
        }
        let had_list = watch.listed;
        watch.sent = newest;
        if had_list {
            self.schedule_delivery(index, Delivery::Broken);
        }
        let list: Vec<_> = self
            .store
            .list(kind)
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let keys = list.iter().map(|(key, _)| key.clone()).collect();
        for (_, object) in list {
            // Each is older than the list as a whole: the version moves on with its end.
            self.schedule_delivery(index, Delivery::Put(0, object));
        }
        self.schedule_delivery(index, Delivery::Listed(newest, keys));
    }

    /// Sends what was written to all watches that are open.
    pub(crate) fn notify_watches(&mut self) {
        for change in self.store.news() {
            self.ledger.wrote(&change);
            self.tell_agents(&change);
            if self.tracing {
                self.trace_change(&change);
            }
            for index in 0..self.watches.len() {
                let open = self.watches.get(index).is_some_and(|watch| {
                    watch.connected
                        && !watch.silent
                        && watch.kind == change.kind
                        && watch.sent < change.version
                });
                if open {
                    self.send_change(index, &change);
                }
            }
        }
    }

    fn send_change(&mut self, index: usize, change: &Change) {
        if let Some(watch) = self.watches.get_mut(index) {
            watch.sent = change.version;
        }
        let delivery = match &change.object {
            Some(object) => Delivery::Put(change.version, object.clone()),
            None => Delivery::Gone(change.version, change.key.clone()),
        };
        self.schedule_delivery(index, delivery);
    }

    /// Order within one watch is kept.
    fn schedule_delivery(&mut self, index: usize, delivery: Delivery) {
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
                    delivery,
                },
            );
        }
    }

    pub(crate) fn deliver(&mut self, index: usize, epoch: u64, delivery: Delivery) {
        let Some(watch) = self.watches.get_mut(index).filter(|watch| watch.epoch == epoch) else {
            return;
        };
        let version = match &delivery {
            Delivery::Put(version, _) | Delivery::Gone(version, _) | Delivery::Listed(version, _) => *version,
            Delivery::Broken => 0,
        };
        watch.delivered = watch.delivered.max(version);
        // A list that was cut short by a failure is no list.
        watch.listed |= matches!(delivery, Delivery::Listed(..));
        let (client, kind) = (watch.client, watch.kind);
        if let (Client::Replica(replica), Delivery::Broken | Delivery::Listed(..)) = (client, &delivery) {
            let what = if matches!(delivery, Delivery::Broken) {
                "is broken"
            } else {
                "has a complete list"
            };
            self.note(|| format!("replica {replica}: the watch of {} {what}", kind.name()));
        }
        match client {
            Client::Replica(replica) => {
                let seen = match delivery {
                    Delivery::Put(_, object) => object.seen(),
                    Delivery::Gone(_, key) => seen(kind, Notice::Gone(key)),
                    Delivery::Listed(_, keys) => seen(kind, Notice::Listed(keys)),
                    Delivery::Broken => seen(kind, Notice::Broken),
                };
                self.replica_sees(replica, seen);
            }
            Client::Stock => self.stock_sees(kind, delivery),
            Client::Reader => self.reader_sees(delivery),
        }
    }
}
