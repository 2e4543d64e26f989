//! The canonical form of a state: versions, UIDs and time stamps become their rank, and transitions count
//! from those of the lock. States that differ only in these values are then equal.

use super::node::{Flight, Node, Reply, Request};
use super::state::{NOW, State};
use super::{Model, Mutation};
use crate::GateCheck;
use evenkeel_election::core::{Abstraction, FencingToken, Observation, Record};
use jiff::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// All values of one kind, in order.
#[derive(Default)]
struct Ranks(Vec<i64>);

impl Ranks {
    fn add(&mut self, value: i64) {
        if let Err(at) = self.0.binary_search(&value) {
            self.0.insert(at, value);
        }
    }

    /// The rank of a value, from 1; 0 for a value that was not added.
    fn of(&self, value: i64) -> i64 {
        self.0.binary_search(&value).map_or(0, |at| at as i64 + 1)
    }
}

#[derive(Default)]
struct Names {
    versions: Ranks,
    uids: Ranks,
    stamps: Ranks,
    /// Transitions of the lock in this state.
    base: i32,
    /// Whether this is the second pass, in which values are replaced; the first one collects them.
    giving: bool,
}

fn number(text: &str) -> i64 {
    text.parse().unwrap_or(0)
}

/// Not a whole second, as in a Lease: there a record that has not changed is no renewal. The rank 0 is that
/// of times that no record has any more.
fn stamp_of(rank: i64) -> Timestamp {
    let stamp = Timestamp::from_microsecond(rank * 1_000_000 + 1);
    stamp.ok().filter(|_| rank > 0).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Names {
    fn version(&mut self, version: &mut String) {
        if version.is_empty() {
            return;
        }
        if self.giving {
            *version = self.versions.of(number(version)).to_string();
        } else {
            self.versions.add(number(version));
        }
    }

    fn uid(&mut self, uid: &mut String) {
        if self.giving {
            *uid = self.uids.of(number(uid)).to_string();
        } else {
            self.uids.add(number(uid));
        }
    }

    fn request(&mut self, request: &mut Request) {
        match request {
            Request::Get => {}
            Request::Create(record) => self.times(record),
            Request::Update { record, version } => {
                self.record(record);
                self.version(version);
            }
        }
    }

    fn times(&mut self, record: &mut Record) {
        // The acquire time is only copied and shown; no rule depends on it.
        record.acquire_time = Some(Timestamp::UNIX_EPOCH);
        if let Some(stamp) = &mut record.renew_time {
            self.stamp(stamp);
        }
    }

    fn node(&mut self, node: &mut Node) {
        node.machine.abstract_with(self);
        if let Some(flight) = &mut node.flight {
            self.request(&mut flight.request);
            if let Some(Reply::Read(Ok(found)) | Reply::Written(Ok(found))) = &mut flight.reply {
                self.observation(found);
            }
        }
        if let Some(late) = &mut node.late {
            self.request(late);
        }
    }

    fn state(&mut self, state: &mut State) {
        if let Some(object) = state.register.object_mut() {
            self.observation(object);
        }
        if let Some(before) = &mut state.before {
            self.observation(before);
        }
        if let Some((token, _)) = &mut state.newest {
            self.token(token);
        }
        for node in &mut state.nodes {
            self.node(Arc::make_mut(node));
        }
    }
}

impl Abstraction for Names {
    fn time(&mut self, _: &mut Duration) {}

    fn until(&mut self, _: &mut Duration) {}

    fn seen(&mut self, _: &mut Duration, _: Duration) {}

    fn observation(&mut self, observation: &mut Observation) {
        self.record(&mut observation.record);
        self.version(&mut observation.version);
        self.uid(&mut observation.uid);
    }

    fn record(&mut self, record: &mut Record) {
        self.times(record);
        if self.giving {
            record.transitions -= self.base;
        }
    }

    fn stamp(&mut self, stamp: &mut Timestamp) {
        if self.giving {
            *stamp = stamp_of(self.stamps.of(stamp.as_second()));
        } else {
            self.stamps.add(stamp.as_second());
        }
    }

    fn written(&mut self, written: &mut VecDeque<Timestamp>) {
        if !self.giving || written.is_empty() {
            return;
        }
        for stamp in written.iter_mut() {
            *stamp = stamp_of(self.stamps.of(stamp.as_second()));
        }
        // Of the times that no record has any more, it matters only whether there was one.
        written.retain(|stamp| *stamp != Timestamp::UNIX_EPOCH);
        if written.is_empty() {
            written.push_back(Timestamp::UNIX_EPOCH);
        }
    }

    fn token(&mut self, token: &mut FencingToken) {
        self.uid(&mut token.lease_uid);
        if self.giving {
            token.transitions -= self.base;
        }
    }
}

/// Brings a state into its canonical form.
pub(super) fn settle(state: &mut State, model: &Model) {
    if state.gate_check() == GateCheck::Clock {
        for node in &mut state.nodes {
            if node.gate.is_some_and(|until| until <= NOW) {
                Arc::make_mut(node).gate = None;
            }
        }
    }
    if state.budget.stale_changes == 0 {
        state.before = None;
    }
    let anything = model.mutation == Mutation::NoVersionCheck;
    let version = state.register.get().ok().map(|object| object.version);
    for node in &mut state.nodes {
        let late = node
            .late
            .as_ref()
            .map(|late| late.may_succeed(version.as_deref(), state.budget, anything));
        if late == Some(false) {
            Arc::make_mut(node).late = None;
        }
        if let Some(Flight { request, reply: None }) = &node.flight
            && !request.may_succeed(version.as_deref(), state.budget, anything)
        {
            Arc::make_mut(node).flight = Some(Flight {
                request: Request::Update {
                    record: Record::default(),
                    version: String::new(),
                },
                reply: None,
            });
        }
    }
    let mut names = Names::default();
    names.state(state);
    names.base = state.register.get().map_or(0, |object| object.record.transitions);
    names.giving = true;
    names.state(state);
    state
        .register
        .count_from(names.versions.0.len() as u64, names.uids.0.len() as u64);
    // No two writes have the same wall clock.
    state.next_stamp = stamp_of(names.stamps.0.len() as i64 + 1);
}
