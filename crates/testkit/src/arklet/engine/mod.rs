//! arklet and sofa-ark as a pure machine: requests and instants in, answers and pauses out. Who drives it
//! waits the pauses and comes back with the ticket.

mod batch;
mod biz;
mod input;
mod install;
mod query;
mod registry;

pub use biz::BizState;
pub(crate) use biz::name_constants;
pub(crate) use input::Command;
pub use registry::Flags;

use super::jar::Jars;
use super::java::Throwable;
use super::world::{Carrier, Moment, World};
use batch::Batch;
use input::{BizInput, HealthInput};
use install::{ClientResponse, Stage};
use query::ProcessRecord;
use registry::Registry;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a handler returned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    Success(Value),
    /// With `Value::Null` for no data.
    Failed {
        data: Value,
        message: String,
    },
}

/// What became of a command: an output, or what was thrown.
pub(crate) type Processed = Result<Output, Box<Throwable>>;

/// Names a command under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// What to wait for before a command can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    For(Duration),
    /// Until the test releases this URL.
    Release(String),
    Ever,
}

/// What to do next about a command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Done(Processed),
    /// Wait, then [`Engine::advance`].
    Pause(Pause, Ticket),
    /// Drive all of these to their end, at the same time, then advance the last.
    All(Vec<Ticket>, Ticket),
    /// Answer this, and advance the ticket beside.
    Background(Output, Ticket),
}

/// What is below all modules.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// Name and version of the master biz.
    pub(crate) master: (String, String),
    pub(crate) flags: Flags,
    pub(crate) jars: Jars,
    pub(crate) metaspace: Metaspace,
}

/// Metaspace of a base in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metaspace {
    /// Used before any module is installed.
    pub used: i64,
    /// Committed; never reported as less than what is used.
    pub committed: i64,
    /// `-XX:MaxMetaspaceSize`; −1 without it.
    pub max: i64,
}

impl Default for Metaspace {
    fn default() -> Self {
        Self {
            used: 16_754_816,
            committed: 16_973_824,
            max: 268_435_456,
        }
    }
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct Job {
    command: Command,
    carrier: Carrier,
    /// Request id, if it is asynchronous.
    record: Option<String>,
    /// The lock that ends with it, whoever took it.
    lock: Option<String>,
    /// Metaspace when it began.
    before: i64,
    /// Part of a batch, which collects its result.
    part: bool,
    ticket: Ticket,
    stage: Stage,
}

/// A base's arklet.
#[derive(Debug)]
pub(crate) struct Engine {
    ground: Ground,
    pub(crate) metaspace: Metaspace,
    /// `health` lacks `jvm` and `cpu`, as where the system's figures cannot be read.
    pub(crate) partial_health: bool,
    pub(crate) registry: Registry,
    boot: i64,
    /// Identities with an unfinished command.
    locks: BTreeMap<String, Command>,
    records: BTreeMap<String, ProcessRecord>,
    jobs: BTreeMap<Ticket, Job>,
    /// Results of parts of batches.
    parts: BTreeMap<Ticket, Result<ClientResponse, Box<Throwable>>>,
    next: u64,
    threads: u64,
}

const VALIDATION: &str = "com.alipay.sofa.koupleless.arklet.core.common.exception.CommandValidationException";
const RUNTIME: &str = "com.alipay.sofa.koupleless.arklet.core.common.exception.ArkletRuntimeException";

/// Core threads of the pool: each task up to this number gets a new one.
const POOL: u64 = 20;

impl Engine {
    /// A base that has just started: no modules, no records.
    pub(crate) fn new(ground: Ground, world: &mut dyn World, identity: &str) -> Self {
        Self {
            metaspace: ground.metaspace,
            partial_health: false,
            registry: Registry::new(ground.flags, &ground.master.0),
            boot: world.at(Moment::Boot, identity),
            ground,
            locks: BTreeMap::new(),
            records: BTreeMap::new(),
            jobs: BTreeMap::new(),
            parts: BTreeMap::new(),
            next: 0,
            threads: 0,
        }
    }

    /// Takes a request. `content` is its body, or `None` for an empty one.
    pub(crate) fn process(
        &mut self,
        world: &mut dyn World,
        command: Command,
        content: Option<&Value>,
        carrier: Carrier,
    ) -> Step {
        let content = content.and_then(Value::as_object);
        let throws = |world: &mut dyn World, class: &str, message: &str| {
            Step::Done(Err(Box::new(thrown(
                world,
                class,
                message,
                &command.handler(),
                carrier,
            ))))
        };
        match (command, content) {
            (Command::Help, _) => Step::Done(Ok(query::help())),
            (Command::QueryAll, _) => Step::Done(Ok(self.query_all())),
            (Command::Health, content) => {
                let input = content.map(HealthInput::read).unwrap_or_default();
                match self.health(world, &input) {
                    Ok(output) => Step::Done(Ok(output)),
                    Err(message) => throws(world, VALIDATION, &message),
                }
            }
            (_, None) => throws(world, "java.lang.NullPointerException", &command.null_input()),
            (Command::QueryOps, Some(content)) => {
                match input::text(content, "requestId").filter(|id| !input::blank(Some(id))) {
                    Some(id) => Step::Done(Ok(self.query_ops(&id))),
                    None => throws(world, VALIDATION, "requestId is blank"),
                }
            }
            (Command::Install, Some(content)) => {
                let input = BizInput::read(content);
                match input.check_install() {
                    Err(message) => throws(world, VALIDATION, message),
                    Ok(()) => self.install(world, input, carrier),
                }
            }
            (Command::Uninstall | Command::Switch, Some(content)) => {
                let input = BizInput::read(content);
                match input.check_identity() {
                    Err(message) => throws(world, VALIDATION, message),
                    Ok(()) => self.admit(world, command, Stage::Asked(input), carrier),
                }
            }
            (Command::Batch, Some(content)) => match Batch::read(content) {
                Err(message) => throws(world, VALIDATION, message),
                Ok(batch) => self.admit(world, command, Stage::Batch(batch), carrier),
            },
        }
    }

    /// Installs what is at a URL as somebody on the machine would.
    pub(crate) fn install_by_hand(&mut self, world: &mut dyn World, url: &str) -> Step {
        let input = BizInput {
            by_hand: true,
            ..BizInput::of_url(url)
        };
        self.install(world, input, Carrier::Pool)
    }

    /// Goes on with a command whose pause is over.
    pub(crate) fn advance(&mut self, world: &mut dyn World, ticket: Ticket) -> Step {
        let Some(mut job) = self.jobs.remove(&ticket) else {
            let nothing = Output::Failed {
                data: Value::Null,
                message: format!("no command under way has number {}", ticket.0),
            };
            return Step::Done(Ok(nothing));
        };
        if matches!(job.stage, Stage::Refreshed(_)) {
            return self.refreshed(world, job);
        }
        if let Some(id) = job.record.clone()
            && self.records.get(&id).is_some_and(|record| !record.entered())
            && !self.enter(&id, &mut job)
        {
            return self.conflict(world, job, &id);
        }
        self.run(world, job)
    }

    /// Takes the lock of a command and runs it; or makes a record of it and lets the pool run it.
    fn admit(&mut self, world: &mut dyn World, command: Command, stage: Stage, carrier: Carrier) -> Step {
        let input = stage.input();
        let key = input.identity();
        let mut job = Job {
            command,
            carrier,
            record: None,
            lock: Some(key.clone()),
            before: self.registry.metaspace(),
            part: false,
            ticket: self.ticket(),
            stage,
        };
        if !input.asynchronous {
            if let Some(running) = self.locks.get(&key) {
                return Step::Done(Ok(Output::Failed {
                    data: Value::Null,
                    message: format!(
                        "FAILED:{key} {} conflict, exist unfinished command({}) for this biz",
                        command.id(),
                        running.id()
                    ),
                }));
            }
            self.locks.insert(key, command);
            return self.run(world, job);
        }
        let id = input.request_id.clone().unwrap_or_default();
        if self.records.contains_key(&id) {
            return Step::Done(Ok(Output::Failed {
                data: Value::Null,
                message: format!("The request corresponding to the requestId({id}) has been executed."),
            }));
        }
        let start = world.at(Moment::Accepted, &id);
        self.records
            .insert(id.clone(), ProcessRecord::new(&id, input.meta(command), start));
        job.carrier = Carrier::Pool;
        job.record = Some(id.clone());
        // Which is first, the thread of the pool or the answer, is a matter of luck.
        let at_once = world.begins_at_once(&id);
        let conflicts = at_once && !self.enter(&id, &mut job);
        let ticket = job.ticket;
        if conflicts {
            let ended = self.conflict(world, job, &id);
            debug_assert!(matches!(ended, Step::Done(_)));
        } else {
            self.jobs.insert(ticket, job);
        }
        Step::Background(self.query_ops(&id), ticket)
    }

    /// A thread of the pool takes the command. False if its lock is taken.
    fn enter(&mut self, id: &str, job: &mut Job) -> bool {
        let thread = self.thread();
        let key = job.lock.clone().unwrap_or_default();
        let free = !self.locks.contains_key(&key);
        if let Some(record) = self.records.get_mut(id) {
            record.enter(thread, free);
        }
        if free {
            self.locks.insert(key, job.command);
        }
        free
    }

    /// An asynchronous command that does not get its lock. Two faults of arklet are here: its record keeps
    /// the status INITIALIZED, and it releases the lock that the other command holds.
    fn conflict(&mut self, world: &mut dyn World, job: Job, id: &str) -> Step {
        let message = "command conflict, exist unfinished command for this biz";
        let time = world.at(Moment::Finished, id);
        if let Some(record) = self.records.get_mut(id) {
            record.fail(message, None);
            record.finish(time);
        }
        self.unlock(&job);
        Step::Done(Ok(Output::Failed {
            data: Value::Null,
            message: message.to_owned(),
        }))
    }

    /// Ends a command: its record is closed, its lock released.
    fn finish(&mut self, world: &mut dyn World, job: &Job, result: Processed) -> Step {
        if let Some(id) = &job.record {
            let time = world.at(Moment::Finished, id);
            if let Some(record) = self.records.get_mut(id) {
                match &result {
                    Ok(Output::Success(_)) => record.succeed(),
                    Ok(Output::Failed { message, .. }) => record.fail(message, None),
                    Err(thrown) => {
                        let message = thrown.message.clone().unwrap_or_default();
                        record.fail(&message, Some(thrown.clone()));
                    }
                }
                record.finish(time);
            }
        }
        self.unlock(job);
        Step::Done(result)
    }

    fn unlock(&mut self, job: &Job) {
        if let Some(key) = &job.lock {
            self.locks.remove(key);
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    /// The next thread of the pool.
    fn thread(&mut self) -> String {
        let number = self.threads % POOL + 1;
        self.threads += 1;
        format!("ARKLET-ark-biz-ops-0-T{number}")
    }

    /// Metaspace in use.
    pub(crate) fn metaspace_used(&self) -> i64 {
        self.metaspace.used + self.registry.metaspace()
    }
}

/// A throwable without a cause.
fn thrown(world: &mut dyn World, class: &str, message: &str, handler: &str, carrier: Carrier) -> Throwable {
    Throwable {
        class: class.to_owned(),
        message: Some(message.to_owned()),
        frames: world.frames(class, handler, carrier, 0),
        cause: None,
    }
}

/// What a handler throws when what it called did.
fn wrapped(world: &mut dyn World, cause: Box<Throwable>, handler: &str, carrier: Carrier) -> Throwable {
    Throwable {
        class: RUNTIME.to_owned(),
        message: Some(cause.head()),
        frames: world.frames(RUNTIME, handler, carrier, 0),
        cause: Some(cause),
    }
}
