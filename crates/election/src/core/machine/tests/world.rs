//! One Lease behind an API that counts and can misbehave, candidates at it, and a virtual clock.

use super::*;
use std::collections::VecDeque;
use std::ops::Range;

const WALL: i64 = 1_790_000_000;

/// When each scene begins on the candidates' clock: not at zero, where mistakes would not show.
const START: Duration = Duration::from_secs(1_000);

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// `millis` after the start of the scene, on the candidates' clock.
pub(super) fn after(millis: u64) -> Duration {
    START + ms(millis)
}

/// Milliseconds after the start of the scene.
pub(super) fn since(at: Duration) -> u64 {
    u64::try_from(at.saturating_sub(START).as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn now(at: Duration, random: f64) -> Now {
    let wall = Timestamp::from_microsecond(WALL * 1_000_000 + at.as_micros() as i64).unwrap();
    Now { at, wall, random }
}

pub(super) fn taken_by(holder: &str, seconds: i32, transitions: i32) -> Record {
    Record {
        holder: holder.into(),
        lease_duration_seconds: seconds,
        transitions,
        ..Record::default()
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    /// It happens and is answered at once.
    Served,
    /// Nothing happens and an error comes back at once.
    Refused,
    /// Nothing happens and a conflict comes back at once.
    Conflict,
    /// It happens, and an error comes back at once.
    ReplyLost,
    /// It happens, and nothing comes back.
    Silent,
    /// Nothing happens and nothing comes back.
    Hangs,
    /// It happens and is answered after this time, whether anybody still waits or not.
    Delayed(Duration),
    /// It happens at once and is answered after this time.
    SlowAnswer(Duration),
}

/// All requests of one candidate within a time have one fate, and it sees nothing on its watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) who: usize,
    /// Milliseconds after the start.
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) fate: Fate,
}

impl Outage {
    pub(super) fn of(who: usize, time: Range<u64>, fate: Fate) -> Self {
        Self {
            who,
            from: time.start,
            until: time.end,
            fate,
        }
    }
}

#[derive(Clone, Debug)]
struct Request {
    number: u64,
    answer: Option<(Duration, Event)>,
}

/// A machine, and its shell reduced to the rules that the machine relies on.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) machine: Machine,
    pub(super) wake: Option<Duration>,
    request: Option<Request>,
    /// The client's own time-out of one request.
    pub(super) timeout: Option<Duration>,
    /// How long the guarded work takes to end; `None`: it does not.
    pub(super) drains_in: Option<Duration>,
    drained: Option<Duration>,
    pub(super) watches: bool,
    pub(super) random: f64,
    /// A process that does not run: nothing reaches it.
    pub(super) dead: bool,
    pub(super) log: Vec<(Duration, Action)>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) at: Duration,
    pub(super) lease: Option<Observation>,
    uids: u32,
    versions: u32,
    numbers: u64,
    /// Of the next requests, whoever makes them.
    pub(super) fates: VecDeque<Fate>,
    pub(super) outages: Vec<Outage>,
    /// What becomes of writes while reads are served.
    pub(super) read_only: Option<Fate>,
    late: Vec<(Duration, usize, u64, Action)>,
    pub(super) candidates: Vec<Candidate>,
}

impl World {
    pub(super) fn new(config: Config) -> Self {
        let mut world = Self {
            at: START,
            lease: None,
            uids: 0,
            versions: 0,
            numbers: 0,
            fates: VecDeque::new(),
            outages: vec![],
            read_only: None,
            late: vec![],
            candidates: vec![],
        };
        world.add(config);
        world
    }

    /// With a lock that somebody has.
    pub(super) fn with(config: Config, record: Record) -> Self {
        let mut world = Self::new(config);
        world.put(record);
        world
    }

    /// Another candidate, that starts now.
    pub(super) fn add(&mut self, config: Config) -> usize {
        self.candidates.push(Candidate {
            machine: Machine::new(config).unwrap(),
            wake: Some(self.at),
            request: None,
            timeout: None,
            drains_in: Some(Duration::ZERO),
            drained: None,
            watches: false,
            random: 0.5,
            dead: false,
            log: vec![],
        });
        self.candidates.len() - 1
    }

    pub(super) fn me(&mut self) -> &mut Candidate {
        &mut self.candidates[0]
    }

    /// A write by somebody, told to all that watch.
    pub(super) fn put(&mut self, record: Record) {
        self.store(record);
        self.tell();
    }

    fn store(&mut self, record: Record) {
        let uid = self.lease.as_ref().map_or_else(
            || {
                self.uids += 1;
                format!("uid-{}", self.uids)
            },
            |lease| lease.uid.clone(),
        );
        self.versions += 1;
        let (version, raw) = (self.versions.to_string(), record.raw());
        self.lease = Some(Observation {
            record,
            uid,
            version,
            raw,
        });
    }

    pub(super) fn delete(&mut self) {
        self.lease = None;
        self.versions += 1;
        self.tell();
    }

    pub(super) fn record(&self) -> Record {
        self.lease.as_ref().unwrap().record.clone()
    }

    pub(super) fn holder(&self) -> &str {
        self.lease.as_ref().map_or("", |lease| &lease.record.holder)
    }

    pub(super) fn transitions(&self) -> i32 {
        self.lease.as_ref().map_or(-1, |lease| lease.record.transitions)
    }

    fn tell(&mut self) {
        for who in 0..self.candidates.len() {
            if self.candidates[who].watches && self.outage(who).is_none() {
                self.send_to(who, Event::Seen(self.lease.clone()));
            }
        }
    }

    fn outage(&self, who: usize) -> Option<Fate> {
        let mut outages = self.outages.iter();
        outages
            .find(|outage| outage.who == who && (after(outage.from)..after(outage.until)).contains(&self.at))
            .map(|outage| outage.fate)
    }

    /// Does a request now.
    fn serve(&mut self, action: &Action) -> Event {
        match action {
            Action::Get => Event::Read(match &self.lease {
                Some(lease) => ReadResult::Found(lease.clone()),
                None => ReadResult::Missing,
            }),
            Action::Create(record) if self.lease.is_none() => {
                self.store(record.clone());
                self.done()
            }
            Action::Update { record, version }
                if self.lease.as_ref().is_some_and(|lease| lease.version == *version) =>
            {
                self.store(record.clone());
                self.done()
            }
            _ => Event::Written(WriteResult::Conflict),
        }
    }

    fn done(&self) -> Event {
        Event::Written(WriteResult::Done(self.lease.clone().unwrap()))
    }

    /// Lets a request meet its fate. Returns what comes back at once.
    fn request(&mut self, who: usize, action: Action) -> Option<Event> {
        assert!(
            self.candidates[who].request.is_none(),
            "two requests at once: {action:?}"
        );
        self.numbers += 1;
        let number = self.numbers;
        let failed = failure(&action);
        let scripted = self.fates.pop_front();
        let writes = !matches!(action, Action::Get);
        let read_only = self.read_only.filter(|_| writes);
        let fate = scripted
            .or_else(|| self.outage(who))
            .or(read_only)
            .unwrap_or(Fate::Served);
        let timeout = self.candidates[who].timeout;
        let mut answer = timeout.map(|timeout| (self.at + timeout, failed.clone()));
        match fate {
            Fate::Served => {
                let event = self.serve(&action);
                return Some(event);
            }
            Fate::Refused => return Some(failed),
            Fate::Conflict if writes => return Some(Event::Written(WriteResult::Conflict)),
            Fate::Conflict => return Some(failed),
            Fate::ReplyLost => {
                self.serve(&action);
                return Some(failed);
            }
            Fate::Silent => drop(self.serve(&action)),
            Fate::Hangs => {}
            Fate::Delayed(delay) => self.late.push((self.at + delay, who, number, action)),
            Fate::SlowAnswer(delay) => {
                let event = self.serve(&action);
                if timeout.is_none_or(|timeout| delay < timeout) {
                    answer = Some((self.at + delay, event));
                }
            }
        }
        self.candidates[who].request = Some(Request { number, answer });
        None
    }

    pub(super) fn send(&mut self, event: Event) {
        self.send_to(0, event);
    }

    /// Sends an event, does what is asked, and tells those that watch.
    pub(super) fn send_to(&mut self, who: usize, event: Event) {
        let version = self.versions;
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let candidate = &mut self.candidates[who];
            if candidate.dead {
                return;
            }
            if matches!(event, Event::Read(_) | Event::Written(_)) {
                candidate.request = None;
            }
            let now = now(self.at, candidate.random);
            for action in candidate.machine.step(now, event) {
                let candidate = &mut self.candidates[who];
                candidate.log.push((self.at, action.clone()));
                match action {
                    Action::Wait { until } => candidate.wake = Some(until),
                    Action::Abort => candidate.request = None,
                    Action::Drain => candidate.drained = candidate.drains_in.map(|time| self.at + time),
                    request @ (Action::Get | Action::Create(_) | Action::Update { .. }) => {
                        events.extend(self.request(who, request));
                    }
                    _ => {}
                }
            }
        }
        if self.versions != version {
            self.tell();
        }
    }

    /// One attempt of the first candidate: goes to the time of its wake, and sends it.
    pub(super) fn attempt(&mut self) {
        let wake = self.candidates[0].wake.take();
        self.at = self.at.max(wake.unwrap_or(self.at));
        self.send(Event::Wake);
    }

    fn next(&self) -> Option<Duration> {
        let healed = self.outages.iter().map(|outage| after(outage.until));
        let healed = healed.filter(|until| *until > self.at);
        let late = self.late.iter().map(|(at, ..)| *at);
        let living = self.candidates.iter().filter(|candidate| !candidate.dead);
        let answer = |candidate: &Candidate| {
            let request = candidate.request.as_ref()?;
            request.answer.as_ref().map(|(at, _)| *at)
        };
        let timers = living.flat_map(|candidate| [candidate.wake, candidate.drained, answer(candidate)]);
        healed.chain(late).chain(timers.flatten()).min()
    }

    /// Does all that is due at this moment.
    fn tick(&mut self) {
        let (due, late) = self.late.drain(..).partition(|(at, ..)| *at <= self.at);
        self.late = late;
        let due: Vec<(Duration, usize, u64, Action)> = due;
        for (_, who, number, action) in due {
            let event = self.serve(&action);
            let waits = self.candidates[who].request.as_ref();
            if waits.is_some_and(|request| request.number == number) {
                self.send_to(who, event);
            }
        }
        let healed = |outage: &Outage| after(outage.until) == self.at;
        if self.outages.iter().any(healed) {
            self.tell();
        }
        for who in 0..self.candidates.len() {
            let at = self.at;
            let candidate = &mut self.candidates[who];
            let answer = candidate
                .request
                .as_ref()
                .and_then(|request| request.answer.clone());
            if let Some((_, event)) = answer.filter(|(due, _)| *due <= at) {
                self.send_to(who, event);
            }
            let candidate = &mut self.candidates[who];
            if candidate.drained.take_if(|due| *due <= at).is_some() {
                self.send_to(who, Event::Drained);
            }
            let candidate = &mut self.candidates[who];
            if candidate.wake.take_if(|due| *due <= at).is_some() {
                self.send_to(who, Event::Wake);
            }
        }
    }

    /// Lets time pass, up to `millis` after the start and what happens then.
    pub(super) fn until(&mut self, millis: u64) {
        let end = after(millis);
        let mut turns = 0;
        while let Some(next) = self.next().filter(|next| *next <= end) {
            turns = if next > self.at { 0 } else { turns + 1 };
            let machines = || self.candidates.iter().map(|candidate| &candidate.machine);
            assert!(
                turns < 50,
                "busy at {:?}: {:#?}",
                self.at,
                machines().collect::<Vec<_>>()
            );
            self.at = self.at.max(next);
            self.tick();
        }
        self.at = end;
    }
}

fn failure(action: &Action) -> Event {
    match action {
        Action::Get => Event::Read(ReadResult::Failed),
        _ => Event::Written(WriteResult::Failed),
    }
}
