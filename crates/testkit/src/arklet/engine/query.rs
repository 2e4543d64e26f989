//! Commands that only ask: the modules, the health, the records of asynchronous commands, the commands.

use super::biz::{self, BizState};
use super::input::{Command, HealthInput};
use super::{Engine, Output};
use crate::arklet::bean::bean;
use crate::arklet::java::Throwable;
use crate::arklet::world::{Machine, World};
use serde_json::{Value, json};

/// The record of an asynchronous command. It is never forgotten.
#[derive(Clone, Debug)]
pub(crate) struct ProcessRecord {
    request_id: String,
    meta: Value,
    status: &'static str,
    thread: Option<String>,
    start: i64,
    end: Option<i64>,
    message: Option<String>,
    throwable: Option<Box<Throwable>>,
}

impl ProcessRecord {
    pub(crate) fn new(request_id: &str, meta: Value, start: i64) -> Self {
        Self {
            request_id: request_id.to_owned(),
            meta,
            status: "INITIALIZED",
            thread: None,
            start,
            end: None,
            message: None,
            throwable: None,
        }
    }

    /// Whether a thread has taken the command.
    pub(crate) fn entered(&self) -> bool {
        self.thread.is_some()
    }

    pub(crate) fn enter(&mut self, thread: String, executes: bool) {
        self.thread = Some(thread);
        if executes {
            self.status = "EXECUTING";
        }
    }

    pub(crate) fn succeed(&mut self) {
        if self.status == "EXECUTING" {
            self.status = "SUCCEEDED";
        }
    }

    /// Only what executes can fail: a command that never got its lock keeps its status.
    pub(crate) fn fail(&mut self, message: &str, throwable: Option<Box<Throwable>>) {
        if self.status == "EXECUTING" {
            self.status = "FAILED";
        }
        self.message = Some(message.to_owned());
        self.throwable = throwable;
    }

    pub(crate) fn finish(&mut self, time: i64) {
        self.end = Some(time);
    }

    fn json(&self) -> Value {
        let throwable = self
            .throwable
            .as_ref()
            .map_or(Value::Null, |thrown| thrown.bean("$.data.throwable"));
        bean([
            ("arkBizMeta", self.meta.clone()),
            ("elapsedTime", json!(self.end.map_or(0, |end| end - self.start))),
            ("endTime", self.end.map_or(Value::Null, Value::from)),
            ("endTimestamp", json!(self.end.unwrap_or(0))),
            ("message", json!(self.message.as_deref())),
            ("requestId", json!(self.request_id)),
            ("startTime", json!(self.start)),
            ("startTimestamp", json!(self.start)),
            ("status", json!(self.status)),
            ("threadName", json!(self.thread.as_deref())),
            ("throwable", throwable),
        ])
    }
}

/// `help`: the commands.
pub(crate) fn help() -> Output {
    let models = Command::ALL.map(|command| {
        bean([
            ("desc", json!(command.description())),
            ("id", json!(command.id())),
        ])
    });
    Output::Success(Value::Array(models.into()))
}

impl Engine {
    pub(crate) fn query_all(&self) -> Output {
        Output::Success(Value::Array(
            self.registry
                .in_order()
                .into_iter()
                .map(super::biz::Biz::entry)
                .collect(),
        ))
    }

    /// `queryAllBiz` in the short form of the MQTT tunnel.
    pub(crate) fn simple_all(&self) -> Value {
        Value::Array(
            self.registry
                .in_order()
                .into_iter()
                .map(super::biz::Biz::simple)
                .collect(),
        )
    }

    pub(crate) fn query_ops(&self, request_id: &str) -> Output {
        match self.records.get(request_id) {
            Some(record) => Output::Success(record.json()),
            None => Output::Failed {
                data: Value::Null,
                message: "Not found the corresponding ops record.".to_owned(),
            },
        }
    }

    /// `Err` is the message of a check that failed.
    pub(crate) fn health(&self, world: &mut dyn World, input: &HealthInput) -> Result<Output, String> {
        let kind = input.kind.as_deref();
        if let Some(kind) = kind
            && !["system", "biz", "plugin"].contains(&kind)
        {
            return Err(format!("type: {kind} can not be found"));
        }
        let failed = |message: &str| {
            Ok(Output::Failed {
                data: Value::Null,
                message: message.to_owned(),
            })
        };
        let (name, version) = (input.name.as_deref(), input.version.as_deref());
        let mut data: Vec<(&str, Value)> = Vec::new();
        if kind.is_none() {
            data.push(("masterBizInfo", self.master_health()));
        }
        if kind.is_none_or(|kind| kind == "system") {
            let known = |metric: &String| !self.partial_health && (metric == "jvm" || metric == "cpu");
            if !input.metrics.iter().all(known) {
                return failed("indicator not registered");
            }
            let wanted = |metric: &str| {
                !self.partial_health
                    && (input.metrics.is_empty() || input.metrics.iter().any(|asked| asked == metric))
            };
            let machine = world.machine(self.boot);
            if wanted("jvm") {
                data.push(("jvm", self.jvm(&machine)));
            }
            if wanted("cpu") {
                data.push(("cpu", cpu(&machine)));
            }
        }
        if kind.is_none_or(|kind| kind == "biz") {
            match (name, version) {
                (name, Some(version)) => match self.one_health(name.unwrap_or_default(), version) {
                    Some(found) => data.push(("bizInfo", found)),
                    None => return failed("can not find biz"),
                },
                (name, None) => {
                    let listed = self.health_list(name);
                    if name.is_some() && listed.is_empty() {
                        return failed("can not find biz");
                    }
                    data.push(("bizListInfo", Value::Array(listed)));
                }
            }
        }
        if kind.is_none_or(|kind| kind == "plugin") {
            if kind.is_some() && name.is_some() {
                return failed("can not find plugin");
            }
            data.push(("pluginListInfo", Value::Array(Vec::new())));
        }
        let data: Value = data.into_iter().collect();
        Ok(Output::Success(json!({ "healthData": data })))
    }

    fn master_health(&self) -> Value {
        let (name, version) = &self.ground.master;
        biz::health(name, version, BizState::Activated, "/")
    }

    fn one_health(&self, name: &str, version: &str) -> Option<Value> {
        if self.is_master(name, version) {
            return Some(self.master_health());
        }
        self.registry.get(name, version).map(biz::Biz::health)
    }

    /// The master biz first, then the modules; or those of one name.
    fn health_list(&self, name: Option<&str>) -> Vec<Value> {
        let mut list = Vec::new();
        if name.is_none_or(|name| name == self.ground.master.0) {
            list.push(self.master_health());
        }
        list.extend(
            self.registry
                .in_order()
                .into_iter()
                .filter(|biz| name.is_none_or(|name| name == biz.jar.name))
                .map(biz::Biz::health),
        );
        list
    }

    fn jvm(&self, machine: &Machine) -> Value {
        let used = self.metaspace_used();
        let [total, max, free] = machine.memory.map(Value::from);
        let [heap_init, heap_used, heap_committed, heap_max] = machine.heap.map(Value::from);
        let [other_init, other_used, other_committed, other_max] = machine.non_heap.map(Value::from);
        let [loaded, unloaded, classes] = machine.classes.map(Value::from);
        bean([
            ("java version", json!(machine.java_version)),
            ("java home", json!(machine.java_home)),
            ("total memory(M)", total),
            ("max memory(M)", max),
            ("free memory(M)", free),
            ("init heap memory(M)", heap_init),
            ("used heap memory(M)", heap_used),
            ("committed heap memory(M)", heap_committed),
            ("max heap memory(M)", heap_max),
            ("init non heap memory(M)", other_init),
            ("used non heap memory(M)", other_used),
            ("committed non heap memory(M)", other_committed),
            ("max non heap memory(M)", other_max),
            ("loaded class count", loaded),
            ("unload class count", unloaded),
            ("total class count", classes),
            ("java used metaspace", json!(used)),
            (
                "java committed metaspace",
                json!(self.metaspace.committed.max(used)),
            ),
            ("java max metaspace", json!(self.metaspace.max)),
            ("run time(s)", json!(machine.run_time)),
        ])
    }
}

fn cpu(machine: &Machine) -> Value {
    let [total, user, system, free] = machine.cpu.map(Value::from);
    bean([
        ("count", json!(machine.cpus)),
        ("type", json!(machine.cpu_type)),
        ("total used (%)", total),
        ("user used (%)", user),
        ("system used (%)", system),
        ("free (%)", free),
    ])
}
