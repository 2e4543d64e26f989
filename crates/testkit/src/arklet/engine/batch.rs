//! Installing many modules at once.

use super::input::BizInput;
use super::install::{ClientResponse, SUCCESS, Stage, fetching};
use super::{Command, Engine, Job, Output, Step, Ticket, wrapped};
use crate::arklet::bean::bean;
use crate::arklet::world::{Carrier, World};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};

/// A batch under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    inputs: Vec<BizInput>,
    /// How many jars were fetched for their priority.
    read: usize,
    /// What is not begun, in order; modules of one group run at the same time.
    groups: VecDeque<Vec<BizInput>>,
    grouped: bool,
    running: Vec<(String, Ticket)>,
    /// By URL, the latest last.
    responses: Vec<(String, ClientResponse)>,
}

impl Batch {
    pub(crate) fn read(content: &Map<String, Value>) -> Result<Self, &'static str> {
        let list = content
            .get("bizList")
            .and_then(Value::as_array)
            .ok_or("bizList is null")?;
        let mut inputs = Vec::new();
        for entry in list {
            let mut input = entry.as_object().map(BizInput::read).unwrap_or_default();
            input.asynchronous = false;
            input.check_install()?;
            inputs.push(input);
        }
        Ok(Self {
            inputs,
            ..Self::default()
        })
    }
}

impl Engine {
    /// Goes on with a batch. `Step::Done` is its result, not yet told to its record and lock.
    pub(super) fn batch(&mut self, world: &mut dyn World, batch: &mut Batch, job: &Job) -> Step {
        // Every jar is fetched once to read its priority, one after the other.
        while batch.read < batch.inputs.len() {
            let url = batch.inputs[batch.read].url.clone().unwrap_or_default();
            batch.read += 1;
            match self.jar(world, &url, job) {
                Err(cause) => {
                    let error = wrapped(world, cause, &job.command.handler(), job.carrier);
                    return Step::Done(Err(Box::new(error)));
                }
                Ok(jar) => {
                    if let Some(pause) = fetching(&jar) {
                        return Step::Pause(pause, job.ticket);
                    }
                }
            }
        }
        if !batch.grouped {
            let mut groups: BTreeMap<i64, Vec<BizInput>> = BTreeMap::new();
            for input in &batch.inputs {
                let jar = input.url.as_deref().and_then(|url| self.ground.jars.get(url));
                let priority = jar.map_or(1000, |jar| jar.priority);
                groups.entry(priority).or_default().push(input.clone());
            }
            batch.groups = groups.into_values().collect();
            batch.grouped = true;
        }
        for (url, ticket) in std::mem::take(&mut batch.running) {
            let response = match self.parts.remove(&ticket) {
                Some(Ok(response)) => response,
                Some(Err(error)) => {
                    let message = error.message.as_deref().unwrap_or("null");
                    ClientResponse::new("FAILED", format!("internal exception: {message}"))
                }
                None => ClientResponse::new("FAILED", "internal exception: null".to_owned()),
            };
            batch.responses.retain(|(other, _)| *other != url);
            batch.responses.push((url, response));
        }
        if let Some(group) = batch.groups.pop_front() {
            for input in group {
                let ticket = self.ticket();
                let _thread = self.thread();
                batch
                    .running
                    .push((input.url.clone().unwrap_or_default(), ticket));
                let part = Job {
                    command: Command::Install,
                    carrier: Carrier::Pool,
                    record: None,
                    lock: None,
                    before: 0,
                    part: true,
                    ticket,
                    stage: Stage::Asked(input),
                };
                self.jobs.insert(ticket, part);
            }
            let parts = batch.running.iter().map(|(_, ticket)| *ticket).collect();
            return Step::All(parts, job.ticket);
        }
        let space = world.elapsed_space(self.registry.metaspace() - job.before);
        Step::Done(Ok(batch_output(std::mem::take(&mut batch.responses), space)))
    }
}

fn batch_output(responses: Vec<(String, ClientResponse)>, space: i64) -> Output {
    let failed = responses.iter().any(|(_, response)| response.code != SUCCESS);
    let by_url: Value = responses
        .into_iter()
        .map(|(url, response)| (url, response.json(Value::Null)))
        .collect();
    let data = |code: &str, message: &str| {
        bean([
            ("bizUrlToResponse", by_url),
            ("code", json!(code)),
            ("elapsedSpace", json!(space)),
            ("message", json!(message)),
        ])
    };
    if failed {
        Output::Failed {
            data: data("FAILED", "batch install failed"),
            message: "install biz not success!".to_owned(),
        }
    } else {
        Output::Success(data(SUCCESS, "batch install success"))
    }
}
