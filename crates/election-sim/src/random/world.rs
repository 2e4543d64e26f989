//! A world: its candidates, its lock, and the queue of coming events.

use super::candidate::{Candidate, Delivery, Link, Request};
use super::clock::SimClock;
use super::script::{Line, What};
use super::setup::{Rules, Setup};
use super::{Broken, Fault, Tally};
use crate::GateCheck;
use crate::register::Register;
use evenkeel_election::core::{
    Action, Compat, ConfigError, Event, FencingToken, Machine, Now, Observation, ReadResult, State, Term,
    WriteResult,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How many lines of a script are kept.
const LINES: usize = 80;

/// An event in the queue.
#[derive(Debug)]
pub(super) enum Coming {
    /// A request reaches the lock.
    Arrival {
        who: usize,
        life: u32,
        id: u64,
        request: Request,
    },
    /// Something reaches a process.
    Delivery { who: usize, life: u32, what: Delivery },
    /// The time of the next fault has come.
    Fault,
    /// A pause ends.
    Resume { who: usize, life: u32 },
    /// A link fault ends.
    Heal { who: usize, fault: u64 },
    /// A silent watch works again.
    Hear { who: usize },
    /// A process starts.
    Start { who: usize, identity: String },
}

/// A world and its state.
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) random: StdRng,
    pub(super) now: Duration,
    queue: BTreeMap<(Duration, u64), Coming>,
    /// The last number given to a queued event, a request, a wait, a fault or a name.
    count: u64,
    pub(super) register: Register,
    pub(super) history: VecDeque<Option<Observation>>,
    pub(super) candidates: Vec<Candidate>,
    gate_check: GateCheck,
    /// The newest term: its token, its candidate, and the number of the process.
    newest: Option<(FencingToken, usize, u32)>,
    /// No process starts before this time, because it could not know of the lock that was deleted.
    pub(super) no_starts_before: Duration,
    pub(super) calm: bool,
    pub(super) tally: Tally,
    pub(super) script: Option<VecDeque<Line>>,
}

impl World {
    pub(super) fn new(rules: Rules, seed: u64, recorded: bool) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let setup = Setup::draw(rules, &mut random);
        let candidates = (0..setup.candidates)
            .map(|_| {
                let boot = Duration::from_millis(random.random_range(0..1_000_000_000));
                let rate = random.random_range(setup.rates.0..=setup.rates.1);
                // Wall clocks differ by up to a day.
                let wall = 1_790_000_000_000_000 + random.random_range(0..86_400_000_000);
                Candidate::new(SimClock::new(boot, rate, wall))
            })
            .collect();
        Self {
            random,
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            count: 0,
            register: match setup.compat() {
                Compat::ClientGo => Register::with_text(),
                Compat::Evenkeel => Register::default(),
            },
            history: VecDeque::new(),
            candidates,
            gate_check: match rules {
                Rules::NoDeadlineCheck => GateCheck::TaskOnly,
                _ => GateCheck::Clock,
            },
            newest: None,
            no_starts_before: Duration::ZERO,
            calm: false,
            tally: Tally::default(),
            script: recorded.then(VecDeque::new),
            setup,
        }
    }

    /// Runs the world to its end: with faults, and then without until somebody leads.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        for who in 0..self.candidates.len() {
            let identity = format!("c{who}");
            let at = Duration::from_millis(self.random.random_range(0..1_000));
            self.queue_at(at, Coming::Start { who, identity });
        }
        self.queue_at(self.setup.fault_every, Coming::Fault);
        let chaos = self.setup.chaos;
        self.run_until(chaos)?;
        self.calm_down()?;
        let end = self.now + self.setup.settles_within();
        while !(0..self.candidates.len()).any(|who| self.candidates[who].may_write(self.now, self.gate_check))
        {
            if !self.next_before(end)? {
                self.tally.time += self.now;
                return Err(Broken::NobodyLeads);
            }
        }
        self.tally.time += self.now;
        self.tally.worlds += 1;
        Ok(())
    }

    fn run_until(&mut self, end: Duration) -> Result<(), Broken> {
        while self.next_before(end)? {}
        self.now = end;
        Ok(())
    }

    /// Handles the next event if it is before `end`. Returns whether there was one.
    fn next_before(&mut self, end: Duration) -> Result<bool, Broken> {
        let Some(entry) = self.queue.first_entry() else {
            return Ok(false);
        };
        if entry.key().0 > end {
            return Ok(false);
        }
        let ((at, _), coming) = entry.remove_entry();
        self.now = at;
        match coming {
            Coming::Arrival {
                who,
                life,
                id,
                request,
            } => self.arrive(who, life, id, request),
            Coming::Delivery { who, life, what } if life == self.candidates[who].life => {
                self.deliver(who, what)?;
            }
            Coming::Delivery { .. } => {}
            Coming::Fault if self.calm => {}
            Coming::Fault => {
                let wait = self.setup.fault_every.mul_f64(self.random.random_range(0.0..2.0));
                self.queue_in(wait, Coming::Fault);
                let mut fault = Fault::draw(&mut self.random);
                while !self.setup.has(fault) {
                    fault = Fault::draw(&mut self.random);
                }
                self.inflict(fault);
            }
            Coming::Resume { who, life } if life == self.candidates[who].life => self.resume(who)?,
            Coming::Resume { .. } => {}
            Coming::Heal { who, fault } if fault == self.candidates[who].link_fault => {
                self.candidates[who].link = Link::Good;
            }
            Coming::Heal { .. } => {}
            Coming::Hear { who } => self.candidates[who].deaf = false,
            Coming::Start { who, identity } => self.start(who, identity)?,
        }
        Ok(true)
    }

    fn start(&mut self, who: usize, identity: String) -> Result<(), Broken> {
        if self.now < self.no_starts_before {
            let at = self.no_starts_before;
            self.queue_at(at, Coming::Start { who, identity });
            return Ok(());
        }
        let machine =
            Machine::new(self.setup.config(&identity)).map_err(|ConfigError(text)| Broken::Config(text))?;
        let candidate = &mut self.candidates[who];
        candidate.life += 1;
        if candidate.identity != identity {
            candidate.held = None;
        }
        candidate.identity = identity;
        candidate.machine = Some(machine);
        self.note(Some(who), || What::Starts);
        if let Some(term) = self.candidates[who].held.clone()
            && self.random.random_bool(0.5)
        {
            self.feed(who, Event::Ended(term))?;
        }
        self.feed(who, Event::Wake)
    }

    /// Ends the process of a candidate. Another one starts later.
    pub(super) fn dies(&mut self, who: usize, most: Duration) {
        self.candidates[who].die();
        let same = self.random.random_bool(0.5);
        let identity = if same {
            self.candidates[who].identity.clone()
        } else {
            format!("c{who}-{}", self.number())
        };
        self.start_later(who, identity, most);
    }

    pub(super) fn start_later(&mut self, who: usize, identity: String, most: Duration) {
        // Events that are queued for the old process do not reach the next one.
        self.candidates[who].life += 1;
        let most = if self.calm { Duration::from_secs(1) } else { most };
        let wait = super::fault::spell(&mut self.random, most);
        self.queue_in(wait, Coming::Start { who, identity });
    }

    fn deliver(&mut self, who: usize, what: Delivery) -> Result<(), Broken> {
        let now = self.now;
        let candidate = &mut self.candidates[who];
        if candidate.paused {
            candidate.backlog.push(what);
            return Ok(());
        }
        let event = match what {
            Delivery::Wake { wait } if wait == candidate.wait_number => match candidate.wait {
                Some(until) if candidate.clock.boot(now) >= until => Event::Wake,
                // The clock was slowed down meanwhile.
                Some(_) => {
                    self.queue_wake(who);
                    return Ok(());
                }
                None => return Ok(()),
            },
            Delivery::Wake { .. } => return Ok(()),
            Delivery::Answer { request, event } => match candidate.request {
                Some((waited, _)) if waited == request => {
                    candidate.request = None;
                    event
                }
                _ => return Ok(()),
            },
            Delivery::Change(change) => Event::Seen(change),
            Delivery::Drained => Event::Drained,
            Delivery::Cancel => Event::Cancel,
            Delivery::StepDown => Event::StepDown,
        };
        self.feed(who, event)
    }

    /// Ends a pause. What reached the process meanwhile is handled in random order.
    pub(super) fn resume(&mut self, who: usize) -> Result<(), Broken> {
        if !std::mem::take(&mut self.candidates[who].paused) {
            return Ok(());
        }
        self.note(Some(who), || What::Over(Fault::Pause));
        let mut backlog = std::mem::take(&mut self.candidates[who].backlog);
        let life = self.candidates[who].life;
        while !backlog.is_empty() && self.candidates[who].life == life {
            let next = self.random.random_range(0..backlog.len());
            self.deliver(who, backlog.swap_remove(next))?;
        }
        Ok(())
    }

    fn feed(&mut self, who: usize, event: Event) -> Result<(), Broken> {
        self.note(Some(who), || What::Hears(brief(&event)));
        let candidate = &mut self.candidates[who];
        let Some(machine) = &mut candidate.machine else {
            return Ok(());
        };
        let now = Now {
            at: candidate.clock.boot(self.now),
            wall: candidate.clock.wall(self.now),
            random: self.random.random_range(0.0..1.0),
        };
        for action in machine.step(now, event) {
            self.act(who, action)?;
        }
        if let Some(State::Stopped { reason }) = self.candidates[who]
            .machine
            .as_ref()
            .map(|machine| machine.state().clone())
        {
            self.note(Some(who), || What::Ends(reason.to_string()));
            self.dies(who, Duration::from_secs(30));
        }
        Ok(())
    }

    fn act(&mut self, who: usize, action: Action) -> Result<(), Broken> {
        match action {
            Action::Get => self.send(who, "get", Request::Get),
            Action::Create(record) => self.send(who, "create", Request::Create(record)),
            Action::Update { record, version } => {
                self.send(who, "update", Request::Update { record, version });
            }
            Action::Abort => self.candidates[who].request = None,
            Action::Wait { until } => {
                self.candidates[who].wait = Some(until);
                self.candidates[who].wait_number = self.number();
                self.queue_wake(who);
            }
            Action::OpenGate { token, valid_until } => {
                let candidate = &mut self.candidates[who];
                candidate.gate = Some(valid_until);
                let observed = candidate.machine.as_ref().and_then(Machine::observed);
                candidate.held = observed.map(|(record, _)| Term {
                    token: token.clone(),
                    acquired: record.acquire_time,
                });
                self.note(Some(who), || What::Opens(token.clone(), valid_until));
                return self.opened(who, token);
            }
            Action::CloseGate => {
                self.candidates[who].gate = None;
                self.note(Some(who), || What::Closes);
            }
            Action::Drain => {
                let life = self.candidates[who].life;
                let wait = super::fault::spell(&mut self.random, Duration::from_secs(10));
                let what = Delivery::Drained;
                self.queue_in(wait, Coming::Delivery { who, life, what });
            }
            Action::Lost(loss) => self.note(Some(who), || What::Loses(loss)),
            Action::Publish(State::Recovered { .. }) => self.tally.recoveries += 1,
            Action::CountSlowPath | Action::Announce(_) | Action::NewLeader(_) | Action::Publish(_) => {}
        }
        Ok(())
    }

    /// Checks that no other gate is open, and that the token is in order. Gates only close between two
    /// openings, so it is enough to check when one opens.
    fn opened(&mut self, who: usize, token: FencingToken) -> Result<(), Broken> {
        if !self.candidates[who].may_write(self.now, self.gate_check) {
            return Ok(());
        }
        for (other, candidate) in self.candidates.iter().enumerate() {
            if other != who && candidate.may_write(self.now, self.gate_check) {
                return Err(Broken::TwoOpenGates {
                    opened: self.candidates[who].identity.clone(),
                    open: candidate.identity.clone(),
                });
            }
        }
        let life = self.candidates[who].life;
        if let Some((newest, leader, its_life)) = &self.newest {
            if (newest, leader, its_life) == (&token, &who, &life) {
                return Ok(());
            }
            let fences = self.setup.fences();
            if fences && newest.lease_uid == token.lease_uid && token.transitions <= newest.transitions {
                let newest = newest.clone();
                return Err(Broken::StaleToken {
                    opened: token,
                    newest,
                });
            }
            self.tally.take_overs += u64::from((*leader, *its_life) != (who, life));
        }
        self.tally.elections += 1;
        self.newest = Some((token, who, life));
        Ok(())
    }

    pub(super) fn queue_wake(&mut self, who: usize) {
        let candidate = &self.candidates[who];
        let Some(until) = candidate.wait else { return };
        let at = candidate.clock.when(until).max(self.now);
        let (life, wait) = (candidate.life, candidate.wait_number);
        self.queue_at(
            at,
            Coming::Delivery {
                who,
                life,
                what: Delivery::Wake { wait },
            },
        );
    }

    pub(super) fn queue_in(&mut self, wait: Duration, coming: Coming) {
        self.queue_at(self.now + wait, coming);
    }

    pub(super) fn queue_at(&mut self, at: Duration, coming: Coming) {
        let number = self.number();
        self.queue.insert((at, number), coming);
    }

    pub(super) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn note(&mut self, who: Option<usize>, what: impl FnOnce() -> What) {
        let Some(script) = &mut self.script else { return };
        if script.len() >= LINES {
            script.pop_front();
        }
        let who = who.map(|who| {
            let candidate = &self.candidates[who];
            (candidate.identity.clone(), candidate.clock.boot(self.now))
        });
        script.push_back(Line {
            at: self.now,
            who,
            what: what(),
        });
    }

    /// Returns the last lines of the script.
    pub(super) fn script(self) -> Vec<Line> {
        self.script.unwrap_or_default().into()
    }
}

fn brief(event: &Event) -> String {
    let lock = |found: &Observation| format!("`{}`, version {}", found.record.holder, found.version);
    match event {
        Event::Read(ReadResult::Found(found)) => format!("the answer: {}", lock(found)),
        Event::Written(WriteResult::Done(found)) => format!("it is written: {}", lock(found)),
        Event::Seen(Some(found)) => format!("of a change: {}", lock(found)),
        other => format!("{other:?}"),
    }
}
