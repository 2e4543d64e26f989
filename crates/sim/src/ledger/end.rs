//! What is looked at when a run is over.

use super::{
    Broken, CONVERGED, ENDPOINTS_OUT, EVICTED_BUILT_IN, EVICTED_EDGE, Ledger, Numbers, PodTrack,
    ROSTERS_SETTLE, UNFOUND, is_movable,
};
use crate::api::build::{node_name, node_number};
use crate::api::{Store, Writer};
use crate::found::unfound;
use crate::leftovers::{leftovers, unsettled};
use crate::script::{Group, Level};
use crate::sight::honest_suffice;
use evenkeel_failover_rules::world::Kind;
use evenkeel_judge::NodeState;

impl Ledger {
    /// The run is over.
    pub(crate) fn finish(&mut self, now: u64, store: &Store) {
        self.end = now;
        let since = self.script.last_fault_ends();
        let asked = self.script.group.level() == Level::System
            && self.promise.converges
            && self.broken.is_empty()
            && now >= since + CONVERGED;
        if asked && self.clean_since.is_none_or(|clean| clean > since + CONVERGED) {
            let what = leftovers(store);
            let text = match self.clean_since {
                Some(at) => format!("only {:.1} s after the last fault", (at - since) as f64 / 1000.0),
                None => what.join("; "),
            };
            self.breaks(now, "L1: not converged 30 s after the last fault", text);
        }
        if self.broken.is_empty() && now >= since + ROSTERS_SETTLE {
            let stuck = store.list(Kind::Zone).find_map(|(_, object)| unsettled(object));
            if let Some(stuck) = stuck {
                self.breaks(now, "L1: a roster does not settle", stuck);
            }
        }
        if let Some(node) = self.uncarried.unnamed(&self.votes, &self.states) {
            self.breaks(now, "59: a node that nobody speaks for is not named", node);
        }
        if self.broken.is_empty()
            && self.script.group.level() == Level::System
            && let Some(text) = unfound(&self.script, |node, from, to| self.is_found(node, from, to))
        {
            self.breaks(now, UNFOUND, text);
        }
        self.state_changes(now);
        self.goals(now);
        self.last_keeper(now);
    }

    /// Whether the leader called a node Dead between two instants.
    fn is_found(&self, node: usize, from: u64, to: u64) -> bool {
        let states = self.states.get(&node_name(node)).map_or(&[][..], Vec::as_slice);
        let before = states.iter().rev().find(|(at, _)| *at <= from);
        let meanwhile = states.iter().filter(|(at, _)| from < *at && *at <= to);
        let mut held = before.into_iter().chain(meanwhile);
        held.any(|(_, state)| matches!(state, NodeState::Dead(_)))
    }

    /// What is left over when the last replica is killed in mid-cut goes with the eviction of the stock
    /// controllers.
    fn last_keeper(&mut self, now: u64) {
        let Some(by) = self.promise.unkept_by.filter(|by| *by < now) else {
            return;
        };
        let is_late = |track: &&PodTrack| {
            let fate = self.fates.get(track.node.wrapping_sub(1));
            let killed = fate.is_some_and(|fate| fate.dies_for_good().is_some());
            killed && track.evicted.is_none_or(|(at, _)| at > by)
        };
        if let Some(track) = self.pods.values().find(is_late) {
            let text = format!(
                "a pod of node {} is evicted at {:?}, not by {by} (ms)",
                track.node, track.evicted
            );
            self.breaks(now, "52: what the last replica kept stays for too long", text);
        }
    }

    /// How fast a plain power-off is answered: endpoints out, and the pods of a controller evicted.
    fn goals(&mut self, now: u64) {
        let hostile = self.script.group == Group::Hostile;
        if self.script.group != Group::PowerOff && !hostile || !self.broken.is_empty() {
            return;
        }
        let evicts = if self.script.edge {
            EVICTED_EDGE
        } else {
            EVICTED_BUILT_IN
        };
        let mut late = None;
        for ((_, name), track) in &self.pods {
            let Some((died, back)) = self
                .fates
                .get(track.node.wrapping_sub(1))
                .and_then(|fate| fate.dead.first().copied())
            else {
                continue;
            };
            if hostile && !honest_suffice(&self.script, track.node) {
                continue;
            }
            let out = track.lost.first().map_or(now, |(at, _)| *at);
            if out > died + ENDPOINTS_OUT {
                late = Some(format!(
                    "the endpoint of {name} is out {} ms after the power-off",
                    out - died
                ));
            }
            let gone = track.evicted.map(|(at, _)| at);
            if is_movable(name) && back >= died + evicts && gone.is_none_or(|gone| gone > died + evicts) {
                late = Some(format!(
                    "{name} is evicted at {gone:?} ms, the power-off was at {died} ms"
                ));
            }
        }
        if let Some(text) = late {
            self.breaks(now, "goal: a power-off is answered in time", text);
        }
    }

    fn state_changes(&mut self, now: u64) {
        let Some(allowed) = self.promise.changes else {
            return;
        };
        let mut most = None;
        for (name, list) in &self.states {
            let rows: Vec<&str> = list.iter().map(|(_, state)| state.name()).collect();
            let rows = rows.windows(2).filter(|pair| pair.first() != pair.last()).count()
                + usize::from(!rows.is_empty());
            let node = node_number(name).unwrap_or_default();
            let faults = self.promise.faults_of(&self.script, node);
            if rows > allowed * faults + self.promise.ends {
                most = Some(format!("{name}: {rows} changes of state for {faults} faults"));
            }
        }
        if let Some(text) = most {
            self.breaks(
                now,
                "flapping: more than 2 changes of state per node and fault",
                text,
            );
        }
    }

    /// What is left of a comparison with the same run of stock Kubernetes alone (S7).
    pub fn compare(&mut self, stock: &Ledger) {
        for (key, control) in &stock.pods {
            let Some(fate) = self.fates.get(control.node.wrapping_sub(1)) else {
                continue;
            };
            let own = self.pods.get(key);
            let Some(dies) = fate.dies_for_good() else {
                continue;
            };
            let after = |list: &[(u64, Writer)]| {
                list.iter()
                    .map(|(at, _)| *at)
                    .find(|at| *at >= dies || own.is_some())
            };
            let (out, control_out) = (own.and_then(|own| after(&own.lost)), after(&control.lost));
            let slack = self.promise.later_than_stock;
            let late = |own: Option<u64>, control: Option<u64>| {
                control.is_some_and(|control| {
                    control + slack < self.end && own.is_none_or(|own| own > control + slack)
                })
            };
            let (gone, control_gone) = (own.and_then(|own| own.evicted), control.evicted);
            let text = if self.promise.compares_endpoints && late(out, control_out) {
                format!(
                    "the endpoint of {} is out at {out:?}, with stock at {control_out:?} (ms)",
                    key.1
                )
            } else if late(gone.map(|gone| gone.0), control_gone.map(|gone| gone.0)) {
                format!(
                    "{} is evicted at {gone:?}, with stock at {control_gone:?} (ms)",
                    key.1
                )
            } else {
                continue;
            };
            self.broken.push(Broken {
                at: self.end,
                promise: "S7: later than stock",
                text,
            });
            return;
        }
    }

    /// Numbers for the table.
    pub fn numbers(&self) -> Numbers {
        let mut numbers = Numbers {
            evicted: self.pods.values().filter(|track| track.evicted.is_some()).count(),
            rounds: self.votes.rounds(),
            spoken_for: (self.uncarried.spoken_for(&self.votes), self.votes.cells()),
            ..Numbers::default()
        };
        for track in self.pods.values() {
            let Some(fate) = self.fates.get(track.node.wrapping_sub(1)) else {
                continue;
            };
            for (lost, _) in &track.lost {
                if let Some(died) = fate.death_before(*lost) {
                    numbers.worst_out = numbers.worst_out.max(lost - died);
                } else if let Some(back) = track.back.iter().find(|back| *back > lost) {
                    numbers.worst_back = numbers.worst_back.max(back - lost);
                }
            }
        }
        numbers.changes = self.states.values().map(Vec::len).max().unwrap_or_default();
        let most = self.writes.values().max().copied().unwrap_or_default();
        let hours = self.end as f64 / 3_600_000.0;
        numbers.writes_per_hour = most as f64 / hours.max(1.0);
        numbers.converged = self
            .clean_since
            .map_or(0, |at| at.saturating_sub(self.script.last_fault_ends()));
        numbers
    }
}
