//! Requests, replies and changes between the candidates and the lock.

use super::candidate::{Delivery, Link, Request};
use super::script::What;
use super::world::{Coming, World};
use evenkeel_election::core::{Event, ReadResult, WriteResult};
use rand::Rng as _;
use std::time::Duration;

/// How many old states of the lock a watch may still deliver.
const HISTORY: usize = 6;

impl World {
    pub(super) fn send(&mut self, who: usize, name: &'static str, request: Request) {
        let id = self.number();
        self.note(Some(who), || What::Sends(name, id));
        let reads = matches!(request, Request::Get);
        let candidate = &mut self.candidates[who];
        let life = candidate.life;
        candidate.request = Some((id, reads));
        let timeout = candidate
            .clock
            .when(candidate.clock.boot(self.now) + self.setup.timeout());
        let failed = Delivery::Answer {
            request: id,
            event: failed(reads),
        };
        let link = candidate.link;
        let failed = Coming::Delivery {
            who,
            life,
            what: failed,
        };
        if link == Link::Errors {
            let wait = self.latency(Link::Good);
            return self.queue_in(wait, failed);
        }
        self.queue_at(timeout, failed);
        if link != Link::BlackHole && !self.random.random_bool(self.setup.loss) {
            let wait = self.latency(link);
            let arrival = Coming::Arrival {
                who,
                life,
                id,
                request,
            };
            self.queue_in(wait, arrival);
        }
    }

    pub(super) fn arrive(&mut self, who: usize, life: u32, id: u64, request: Request) {
        self.tally.requests += 1;
        let event = match request {
            Request::Get => Event::Read(self.register.get().map_or(ReadResult::Missing, ReadResult::Found)),
            Request::Create(record) => Event::Written(
                self.register
                    .create(record)
                    .map_or(WriteResult::Conflict, WriteResult::Done),
            ),
            Request::Update { record, version } => {
                let result = self.register.update(record, &version);
                Event::Written(result.map_or(WriteResult::Conflict, WriteResult::Done))
            }
        };
        let done = !matches!(event, Event::Written(WriteResult::Conflict));
        if self.script.is_some() {
            let lock = self.lock();
            self.note(None, || What::Arrives(id, done, lock));
        }
        if matches!(event, Event::Written(WriteResult::Done(_))) {
            self.changed();
        }
        let link = self.candidates[who].link;
        let passes = matches!(link, Link::Good | Link::Slow) && !self.random.random_bool(self.setup.loss);
        if passes {
            let wait = self.latency(link);
            let what = Delivery::Answer { request: id, event };
            self.queue_in(wait, Coming::Delivery { who, life, what });
        }
    }

    /// Delivers a change of the lock to all watches, in time or late.
    pub(super) fn changed(&mut self) {
        let now = self.register.get().ok();
        self.history.push_back(now.clone());
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        for who in 0..self.candidates.len() {
            let candidate = &self.candidates[who];
            let (life, link) = (candidate.life, candidate.link);
            let hears =
                candidate.machine.is_some() && !candidate.deaf && matches!(link, Link::Good | Link::Slow);
            if hears && !self.random.random_bool(self.setup.loss) {
                let wait = self.latency(link);
                let what = Delivery::Change(now.clone());
                self.queue_in(wait, Coming::Delivery { who, life, what });
            }
        }
    }

    fn latency(&mut self, link: Link) -> Duration {
        if !self.calm && link == Link::Slow {
            return Duration::from_micros(self.random.random_range(0..6_000_000));
        }
        if !self.calm && self.random.random_bool(self.setup.late) {
            return super::fault::spell(&mut self.random, Duration::from_secs(20));
        }
        self.setup.latency.mul_f64(self.random.random_range(0.5..2.0))
    }

    fn lock(&self) -> String {
        match self.register.get() {
            Ok(found) => format!(
                "the lock: `{}`, version {}, {} s",
                found.record.holder, found.version, found.record.lease_duration_seconds
            ),
            Err(_) => "no lock".to_owned(),
        }
    }
}

fn failed(reads: bool) -> Event {
    if reads {
        Event::Read(ReadResult::Failed)
    } else {
        Event::Written(WriteResult::Failed)
    }
}
