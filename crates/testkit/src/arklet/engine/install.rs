//! Commands that change modules: installing one or many, uninstalling, switching.

use super::batch::Batch;
use super::biz::{Biz, BizState};
use super::input::{BizInput, malformed_url, not_found};
use super::{Command, Engine, Job, Output, Pause, Processed, Step, VALIDATION, thrown, wrapped};
use crate::arklet::bean::bean;
use crate::arklet::jar::{Download, Jar, Start, Thrown};
use crate::arklet::java::{INVOCATION_TARGET, Throwable};
use crate::arklet::world::{Carrier, Moment, World, clock_time};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How far a command has come.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// An installation by URL alone, whose jar is there and names the module.
    Refreshed(BizInput),
    /// Admitted, or about to be.
    Asked(BizInput),
    /// The jar is there.
    Fetched { input: BizInput, saved: i64 },
    /// `main` returned, or threw.
    Started {
        url: String,
        number: u64,
        begun: i64,
        throws: Option<Thrown>,
    },
    /// Of a batch.
    Batch(Batch),
}

impl Stage {
    /// Whose lock the command needs, and whether it is asynchronous. Batches have no name and are never
    /// asynchronous.
    pub(crate) fn input(&self) -> BizInput {
        match self {
            Self::Refreshed(input) | Self::Asked(input) | Self::Fetched { input, .. } => input.clone(),
            Self::Started { .. } | Self::Batch(_) => BizInput::default(),
        }
    }
}

/// sofa-ark's own answer.
#[derive(Clone, Debug)]
pub(crate) struct ClientResponse {
    infos: Value,
    pub(super) code: &'static str,
    message: String,
}

impl ClientResponse {
    pub(super) fn new(code: &'static str, message: String) -> Self {
        Self {
            infos: Value::Null,
            code,
            message,
        }
    }

    pub(super) fn json(self, elapsed_space: Value) -> Value {
        bean([
            ("bizInfos", self.infos),
            ("code", json!(self.code)),
            ("elapsedSpace", elapsed_space),
            ("message", json!(self.message)),
        ])
    }

    /// The output of the command's handler.
    fn output(self, elapsed_space: Value, failure: &str) -> Output {
        if self.code == SUCCESS {
            Output::Success(self.json(elapsed_space))
        } else {
            Output::Failed {
                data: self.json(elapsed_space),
                message: failure.to_owned(),
            }
        }
    }
}

pub(super) const SUCCESS: &str = "SUCCESS";

impl Engine {
    /// An installation that passed its checks, save for the one that needs the jar.
    pub(crate) fn install(&mut self, world: &mut dyn World, input: BizInput, carrier: Carrier) -> Step {
        if !input.both_blank() {
            return self.admit(world, Command::Install, Stage::Asked(input), carrier);
        }
        let job = Job {
            command: Command::Install,
            carrier,
            record: None,
            lock: None,
            before: 0,
            part: false,
            ticket: self.ticket(),
            stage: Stage::Refreshed(input.clone()),
        };
        match self.jar(world, input.url.as_deref().unwrap_or_default(), &job) {
            Err(error) => Step::Done(Err(Box::new(unrefreshed(world, &error, carrier)))),
            Ok(jar) => match fetching(&jar) {
                None => self.refreshed(world, job),
                Some(pause) => self.pause(job, pause),
            },
        }
    }

    /// The jar that names the module is there.
    pub(crate) fn refreshed(&mut self, world: &mut dyn World, job: Job) -> Step {
        let mut input = job.stage.input();
        match self.jar(world, input.url.as_deref().unwrap_or_default(), &job) {
            Err(error) => Step::Done(Err(Box::new(unrefreshed(world, &error, job.carrier)))),
            Ok(jar) => {
                input.name = Some(jar.name.clone());
                input.version = Some(jar.version.clone());
                self.admit(world, job.command, Stage::Asked(input), job.carrier)
            }
        }
    }

    /// Goes on as far as it can.
    pub(crate) fn run(&mut self, world: &mut dyn World, mut job: Job) -> Step {
        match (job.command, job.stage.clone()) {
            (Command::Uninstall, Stage::Asked(input)) => {
                let response = self.uninstall(world, &input, &job);
                self.end(world, &job, response, Value::Null, "uninstall biz not success!")
            }
            (Command::Switch, Stage::Asked(input)) => {
                let response = self.switch(world, &input);
                self.end(world, &job, Ok(response), Value::Null, "switch biz not success!")
            }
            (_, Stage::Refreshed(input) | Stage::Asked(input)) => self.fetch(world, job, input),
            (_, Stage::Fetched { input, saved }) => self.fetched(world, job, &input, saved),
            (
                _,
                Stage::Started {
                    url,
                    number,
                    begun,
                    throws,
                },
            ) => {
                let result = self.started(world, &job, &url, number, begun, throws);
                self.end_install(world, &job, result)
            }
            (_, Stage::Batch(mut batch)) => {
                let step = self.batch(world, &mut batch, &job);
                if let Step::Pause(..) | Step::All(..) = step {
                    job.stage = Stage::Batch(batch);
                    self.jobs.insert(job.ticket, job);
                    return step;
                }
                match step {
                    Step::Done(result) => self.finish(world, &job, result),
                    other => other,
                }
            }
        }
    }

    fn pause(&mut self, job: Job, pause: Pause) -> Step {
        let ticket = job.ticket;
        self.jobs.insert(ticket, job);
        Step::Pause(pause, ticket)
    }

    /// Opens a URL; `Err` is what Java throws.
    pub(super) fn jar(
        &self,
        world: &mut dyn World,
        url: &str,
        job: &Job,
    ) -> Result<Arc<Jar>, Box<Throwable>> {
        let (class, message) = if let Some(message) = malformed_url(url) {
            ("java.net.MalformedURLException", message)
        } else if let Some(jar) = self.ground.jars.get(url) {
            return Ok(jar);
        } else {
            ("java.io.FileNotFoundException", not_found(url))
        };
        Err(Box::new(Throwable {
            class: class.to_owned(),
            message: Some(message),
            frames: world.frames(class, &job.command.handler(), job.carrier, 1),
            cause: None,
        }))
    }

    fn fetch(&mut self, world: &mut dyn World, mut job: Job, input: BizInput) -> Step {
        if input.uninstalls_first()
            && let Err(error) = self.uninstall_all(world, &input, &job)
        {
            return self.end_install(world, &job, Err(error));
        }
        let url = input.url.clone().unwrap_or_default();
        match self.jar(world, &url, &job) {
            Err(error) => self.end_install(world, &job, Err(error)),
            Ok(jar) => {
                let saved = world.at(Moment::TempFile, &url);
                match fetching(&jar) {
                    None => self.fetched(world, job, &input, saved),
                    Some(pause) => {
                        job.stage = Stage::Fetched { input, saved };
                        self.pause(job, pause)
                    }
                }
            }
        }
    }

    fn fetched(&mut self, world: &mut dyn World, mut job: Job, input: &BizInput, saved: i64) -> Step {
        let url = input.url.clone().unwrap_or_default();
        let jar = match self.jar(world, &url, &job) {
            Ok(jar) => jar,
            Err(error) => return self.end_install(world, &job, Err(error)),
        };
        let begun = world.at(Moment::Begun, &url);
        let taken = self.registry.get(&jar.name, &jar.version).is_some();
        if taken || self.is_master(&jar.name, &jar.version) {
            let message = format!("Biz: {} has been installed or registered.", jar.identity());
            return self.end_install(world, &job, Ok(ClientResponse::new("REPEAT_BIZ", message)));
        }
        let created = world.at(Moment::Created, &url);
        let number = self.ticket().0;
        let asked = (input.name.as_deref(), input.version.as_deref());
        self.registry
            .register(Biz::created(jar.clone(), &url, asked, saved, created, number));
        if input.by_hand {
            self.registry.mark_by_hand(number);
        }
        let full = self.metaspace.max >= 0 && self.metaspace_used() > self.metaspace.max;
        let (pause, throws) = match jar.start.clone() {
            _ if full => (None, Some(Thrown::new("java.lang.OutOfMemoryError", "Metaspace"))),
            Start::Instant => (None, None),
            Start::Slow(time) => (Some(Pause::For(time)), None),
            Start::Held => (Some(Pause::Release(url.clone())), None),
            Start::Fails(thrown) => (None, Some(thrown)),
            Start::FailsAfter(time, thrown) => (Some(Pause::For(time)), Some(thrown)),
            Start::Hangs => (Some(Pause::Ever), None),
        };
        match pause {
            None => {
                let result = self.started(world, &job, &url, number, begun, throws);
                self.end_install(world, &job, result)
            }
            Some(pause) => {
                job.stage = Stage::Started {
                    url,
                    number,
                    begun,
                    throws,
                };
                self.pause(job, pause)
            }
        }
    }

    fn started(
        &mut self,
        world: &mut dyn World,
        job: &Job,
        url: &str,
        number: u64,
        begun: i64,
        throws: Option<Thrown>,
    ) -> Result<ClientResponse, Box<Throwable>> {
        let ended = world.at(Moment::Ended, url);
        if let Some(throws) = throws {
            let handler = job.command.handler();
            let error = Box::new(Throwable {
                class: INVOCATION_TARGET.to_owned(),
                message: None,
                frames: world.frames(INVOCATION_TARGET, &handler, job.carrier, 1),
                cause: Some(Box::new(Throwable {
                    frames: world.frames(&throws.class, &handler, job.carrier, 2),
                    class: throws.class,
                    message: throws.message,
                    cause: None,
                })),
            });
            self.registry.start_failed(number, &error.trace(), ended);
            return Err(error);
        }
        self.registry.started(number, ended);
        let biz = self.registry.numbered(number);
        let identity = biz.map(|biz| biz.jar.identity()).unwrap_or_default();
        Ok(ClientResponse {
            infos: Value::Array(biz.map(Biz::info).into_iter().collect()),
            code: SUCCESS,
            message: format!(
                "Install Biz: {identity} success, cost: {} ms, started at: {}",
                ended - begun,
                clock_time(begun)
            ),
        })
    }

    /// Ends an installation.
    fn end_install(
        &mut self,
        world: &mut dyn World,
        job: &Job,
        result: Result<ClientResponse, Box<Throwable>>,
    ) -> Step {
        if job.part {
            self.parts.insert(job.ticket, result);
            return Step::Done(Ok(Output::Success(Value::Null)));
        }
        let space = match &result {
            Ok(_) => world.elapsed_space(self.registry.metaspace() - job.before),
            Err(_) => 0,
        };
        self.end(world, job, result, json!(space), "install biz not success!")
    }

    fn end(
        &mut self,
        world: &mut dyn World,
        job: &Job,
        result: Result<ClientResponse, Box<Throwable>>,
        elapsed_space: Value,
        failure: &str,
    ) -> Step {
        let result: Processed = match result {
            Ok(response) => Ok(response.output(elapsed_space, failure)),
            Err(cause) => Err(Box::new(wrapped(
                world,
                cause,
                &job.command.handler(),
                job.carrier,
            ))),
        };
        self.finish(world, job, result)
    }

    pub(super) fn is_master(&self, name: &str, version: &str) -> bool {
        self.ground.master.0 == name && self.ground.master.1 == version
    }

    fn uninstall_all(
        &mut self,
        world: &mut dyn World,
        input: &BizInput,
        job: &Job,
    ) -> Result<(), Box<Throwable>> {
        let name = input.name.clone().unwrap_or_default();
        for version in self.registry.versions(&name) {
            let one = BizInput {
                name: Some(name.clone()),
                version: Some(version),
                ..BizInput::default()
            };
            self.uninstall(world, &one, job)?;
        }
        Ok(())
    }

    fn uninstall(
        &mut self,
        world: &mut dyn World,
        input: &BizInput,
        job: &Job,
    ) -> Result<ClientResponse, Box<Throwable>> {
        let identity = input.identity();
        let name = input.name.as_deref().unwrap_or_default();
        let version = input.version.as_deref().unwrap_or_default();
        if name == self.ground.master.0 {
            return Ok(ClientResponse::new(
                "FAILED",
                "Master biz must not be uninstalled.".to_owned(),
            ));
        }
        let Some(biz) = self.registry.get(name, version) else {
            return Ok(ClientResponse::new(
                "NOT_FOUND_BIZ",
                format!("Uninstall biz: {identity} not found."),
            ));
        };
        let (state, stop_fails) = (biz.state, biz.jar.stop_fails.clone());
        let throws = |world: &mut dyn World, thrown: Thrown| {
            Box::new(Throwable {
                frames: world.frames(&thrown.class, &job.command.handler(), job.carrier, 1),
                class: thrown.class,
                message: thrown.message,
                cause: None,
            })
        };
        if state == BizState::Resolved {
            let thrown = Thrown::new(
                "java.lang.IllegalArgumentException",
                "BizState must be ACTIVATED, DEACTIVATED or BROKEN.",
            );
            return Err(throws(world, thrown));
        }
        let time = world.at(Moment::Stopped, &identity);
        let error = stop_fails.map(|thrown| throws(world, thrown));
        let trace = error.as_ref().map(|error| error.trace());
        self.registry.stop(name, version, trace.as_deref(), time);
        match error {
            Some(error) => Err(error),
            None => Ok(ClientResponse::new(
                SUCCESS,
                format!("Uninstall biz: {identity} success."),
            )),
        }
    }

    fn switch(&mut self, world: &mut dyn World, input: &BizInput) -> ClientResponse {
        let identity = input.identity();
        let name = input.name.as_deref().unwrap_or_default();
        let version = input.version.as_deref().unwrap_or_default();
        let state = match self.registry.get(name, version) {
            Some(biz) => biz.state,
            None if self.is_master(name, version) => BizState::Activated,
            None => {
                let message = format!("Switch biz: {identity} not found.");
                return ClientResponse::new("NOT_FOUND_BIZ", message);
            }
        };
        match state {
            BizState::Activated | BizState::Deactivated => {
                let time = world.at(Moment::Switched, &identity);
                self.registry.switch(name, version, time);
                ClientResponse::new(SUCCESS, format!("Switch biz: {identity} is activated."))
            }
            other => ClientResponse::new(
                "ILLEGAL_STATE_BIZ",
                format!("Switch Biz: {identity}'s state must not be {other}."),
            ),
        }
    }
}

/// The pause while a jar is fetched.
pub(super) fn fetching(jar: &Jar) -> Option<Pause> {
    match jar.download {
        Download::Takes(Duration::ZERO) => None,
        Download::Takes(time) => Some(Pause::For(time)),
        Download::Hangs => Some(Pause::Ever),
    }
}

/// The manifest that was to name the module cannot be read.
fn unrefreshed(world: &mut dyn World, error: &Throwable, carrier: Carrier) -> Throwable {
    let message = format!(
        "refresh biz info from jar failed: {}",
        error.message.as_deref().unwrap_or("null")
    );
    thrown(world, VALIDATION, &message, &Command::Install.handler(), carrier)
}
