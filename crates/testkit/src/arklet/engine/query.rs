//! Commands that only ask: the modules, the health, the records of asynchronous commands, the commands.

use super::biz::{self, BizState};
use super::input::{Command, HealthInput};
use super::{Engine, Output};
use crate::arklet::java::Throwable;
use crate::arklet::json::{Json, bucket};
use crate::arklet::world::{Machine, World};

/// The record of an asynchronous command. It is never forgotten.
#[derive(Clone, Debug)]
pub(crate) struct ProcessRecord {
    request_id: String,
    meta: Json,
    status: &'static str,
    thread: Option<String>,
    start: i64,
    end: Option<i64>,
    message: Option<String>,
    throwable: Option<Box<Throwable>>,
}

impl ProcessRecord {
    pub(crate) fn new(request_id: &str, meta: Json, start: i64) -> Self {
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

    fn json(&self) -> Json {
        let throwable = self
            .throwable
            .as_ref()
            .map_or(Json::Null, |thrown| thrown.bean("$.data.throwable"));
        Json::bean([
            ("arkBizMeta", self.meta.clone()),
            (
                "elapsedTime",
                Json::Int(self.end.map_or(0, |end| end - self.start)),
            ),
            ("endTime", self.end.map_or(Json::Null, Json::Int)),
            ("endTimestamp", Json::Int(self.end.unwrap_or(0))),
            ("message", Json::maybe(self.message.as_deref())),
            ("requestId", Json::text(&self.request_id)),
            ("startTime", Json::Int(self.start)),
            ("startTimestamp", Json::Int(self.start)),
            ("status", Json::text(self.status)),
            ("threadName", Json::maybe(self.thread.as_deref())),
            ("throwable", throwable),
        ])
    }
}

/// `help`: commands in the order of the table that arklet made for 16 of them.
pub(crate) fn help() -> Output {
    let mut commands = Command::ALL;
    commands.sort_by_key(|command| bucket(command.id(), 32));
    let models = commands.map(|command| {
        Json::bean([
            ("desc", Json::text(command.description())),
            ("id", Json::text(command.id())),
        ])
    });
    Output::Success(Json::List(models.into()))
}

impl Engine {
    pub(crate) fn query_all(&self) -> Output {
        Output::Success(Json::List(
            self.registry
                .in_order()
                .into_iter()
                .map(super::biz::Biz::entry)
                .collect(),
        ))
    }

    /// `queryAllBiz` in the short form of the MQTT tunnel.
    pub(crate) fn simple_all(&self) -> Json {
        Json::List(
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
                data: Json::Null,
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
                data: Json::Null,
                message: message.to_owned(),
            })
        };
        let (name, version) = (input.name.as_deref(), input.version.as_deref());
        let mut data = Vec::new();
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
                    data.push(("bizListInfo", Json::List(listed)));
                }
            }
        }
        if kind.is_none_or(|kind| kind == "plugin") {
            if kind.is_some() && name.is_some() {
                return failed("can not find plugin");
            }
            data.push(("pluginListInfo", Json::List(Vec::new())));
        }
        let data = data
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        Ok(Output::Success(Json::bean([(
            "healthData",
            Json::hash_map(data, 16),
        )])))
    }

    fn master_health(&self) -> Json {
        let (name, version) = &self.ground.master;
        biz::health(name, version, BizState::Activated, "/")
    }

    fn one_health(&self, name: &str, version: &str) -> Option<Json> {
        if self.is_master(name, version) {
            return Some(self.master_health());
        }
        self.registry.get(name, version).map(biz::Biz::health)
    }

    /// The master biz first, then the modules; or those of one name.
    fn health_list(&self, name: Option<&str>) -> Vec<Json> {
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

    fn jvm(&self, machine: &Machine) -> Json {
        let used = self.metaspace_used();
        let [total, max, free] = machine.memory.map(Json::Float);
        let [heap_init, heap_used, heap_committed, heap_max] = machine.heap.map(Json::Float);
        let [other_init, other_used, other_committed, other_max] = machine.non_heap.map(Json::Float);
        let [loaded, unloaded, classes] = machine.classes.map(Json::Int);
        let entries = [
            ("java version", Json::text(&machine.java_version)),
            ("java home", Json::text(&machine.java_home)),
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
            ("java used metaspace", Json::Int(used)),
            (
                "java committed metaspace",
                Json::Int(self.metaspace.committed.max(used)),
            ),
            ("java max metaspace", Json::Int(self.metaspace.max)),
            ("run time(s)", Json::Float(machine.run_time)),
        ];
        Json::hash_map(entries.map(|(key, value)| (key.to_owned(), value)).into(), 32)
    }
}

fn cpu(machine: &Machine) -> Json {
    let [total, user, system, free] = machine.cpu.map(Json::Float);
    let entries = [
        ("count", Json::Int(machine.cpus)),
        ("type", Json::text(&machine.cpu_type)),
        ("total used (%)", total),
        ("user used (%)", user),
        ("system used (%)", system),
        ("free (%)", free),
    ];
    Json::hash_map(entries.map(|(key, value)| (key.to_owned(), value)).into(), 8)
}
