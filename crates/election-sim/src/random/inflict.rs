//! Applies faults to a world.

use super::candidate::{Delivery, Link};
use super::fault::spell;
use super::script::What;
use super::world::{Coming, World};
use super::{Broken, Fault};
use evenkeel_election::core::Machine;
use rand::Rng as _;
use std::time::Duration;

const HOUR: i64 = 3_600_000_000;

impl World {
    pub(super) fn inflict(&mut self, fault: Fault) {
        let who = self.random.random_range(0..self.candidates.len());
        // Faults of a leader test more rules than those of a follower.
        let leader = self
            .candidates
            .iter()
            .position(|candidate| candidate.token().is_some());
        let who = leader.filter(|_| self.random.random_bool(0.6)).unwrap_or(who);
        let runs = self.candidates[who].machine.is_some();
        let life = self.candidates[who].life;
        let most = match fault {
            Fault::Pause => Duration::from_secs(120),
            Fault::Crash | Fault::Stop | Fault::SameName => Duration::from_secs(30),
            _ => Duration::from_secs(60),
        };
        let time = spell(&mut self.random, most);
        let happens = match fault {
            Fault::Pause | Fault::Crash | Fault::Stop | Fault::HandOver | Fault::SameName => runs,
            Fault::StaleChange => runs && !self.history.is_empty(),
            Fault::Delete => self.may_delete(),
            _ => true,
        };
        if !happens {
            return;
        }
        *self.tally.faults.entry(fault).or_default() += 1;
        self.note(Some(who), || What::Fault(fault, time));
        match fault {
            Fault::Pause => {
                self.candidates[who].paused = true;
                self.queue_in(time, Coming::Resume { who, life });
            }
            Fault::Crash => self.dies(who, most),
            Fault::Stop => self.queue_in(
                Duration::ZERO,
                Coming::Delivery {
                    who,
                    life,
                    what: Delivery::Cancel,
                },
            ),
            Fault::HandOver => {
                self.queue_in(
                    Duration::ZERO,
                    Coming::Delivery {
                        who,
                        life,
                        what: Delivery::StepDown,
                    },
                );
            }
            Fault::BlackHole => self.cut(who, Link::BlackHole, time),
            Fault::RepliesLost => self.cut(who, Link::RepliesLost, time),
            Fault::SlowLink => self.cut(who, Link::Slow, time),
            Fault::ApiErrors => self.cut(who, Link::Errors, time),
            Fault::Outage => {
                for each in 0..self.candidates.len() {
                    self.cut(each, Link::BlackHole, time);
                }
            }
            Fault::DeafWatch => {
                self.candidates[who].deaf = true;
                self.queue_in(time, Coming::Hear { who });
            }
            Fault::StaleChange => {
                let which = self.random.random_range(0..self.history.len());
                let what = Delivery::Change(self.history[which].clone());
                self.queue_in(Duration::ZERO, Coming::Delivery { who, life, what });
            }
            Fault::WallStep => {
                let by = self.random.random_range(-HOUR..=HOUR);
                self.candidates[who].clock.step_wall(by);
            }
            Fault::RateChange => {
                let rate = self.random.random_range(self.setup.rates.0..=self.setup.rates.1);
                let now = self.now;
                self.candidates[who].clock.set_rate(now, rate);
                self.queue_wake(who);
            }
            Fault::Delete => {
                let _gone = self.register.delete();
                self.changed();
                // The module `random` explains why no process may start for some time after a deletion.
                let rate = 1e6 / f64::from(self.setup.rates.0);
                let lease = Duration::from_millis(self.setup.timing.0 + 1_000);
                self.no_starts_before = self.now + lease.mul_f64(rate);
            }
            Fault::SameName => {
                let other = self.random.random_range(0..self.candidates.len());
                let identity = self.candidates[other].identity.clone();
                if other != who && !identity.is_empty() {
                    self.candidates[who].die();
                    self.start_later(who, identity, most);
                }
            }
        }
    }

    fn cut(&mut self, who: usize, link: Link, time: Duration) {
        let fault = self.number();
        self.candidates[who].link = link;
        self.candidates[who].link_fault = fault;
        self.queue_in(time, Coming::Heal { who, fault });
    }

    /// Whether every process has seen the lock that there is.
    fn may_delete(&self) -> bool {
        let uid = self.register.get().ok().map(|found| found.uid);
        let knows = |machine: &Machine| machine.observed().is_some();
        uid.is_some()
            && self
                .candidates
                .iter()
                .filter_map(|candidate| candidate.machine.as_ref())
                .all(knows)
    }

    /// Ends all faults.
    pub(super) fn calm_down(&mut self) -> Result<(), Broken> {
        self.calm = true;
        self.note(None, || What::Calm);
        for who in 0..self.candidates.len() {
            self.candidates[who].link = Link::Good;
            self.candidates[who].deaf = false;
            self.resume(who)?;
        }
        self.setup.loss = 0.0;
        Ok(())
    }
}
