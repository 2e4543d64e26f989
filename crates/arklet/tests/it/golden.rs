//! Every line of the recordings of a real arklet is read, and means what it should.

use evenkeel_arklet::biz::ModuleList;
use evenkeel_arklet::command::Strategy;
use evenkeel_arklet::envelope::Envelope;
use evenkeel_arklet::heartbeat::Heartbeat;
use evenkeel_arklet::ops::{self, Lookup};
use evenkeel_arklet::outcome::accepted;
use evenkeel_arklet::{BatchOutcome, Command, Install, ModuleId, Outcome, Request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// One of the recordings.
pub(crate) fn recording(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A recorded exchange: what was asked, and the bytes of the answer; `None` if none came.
pub(crate) struct Exchange {
    pub(crate) asked: String,
    pub(crate) answer: Option<String>,
}

impl Exchange {
    pub(crate) fn all(file: &str) -> Vec<Self> {
        let text = format!("\n{}", recording(file));
        let exchanges = text.split("\n### ").skip(1).map(|part| {
            let (asked, answer) = part.split_once('\n').unwrap();
            Self {
                asked: asked.to_owned(),
                answer: answer
                    .starts_with("HTTP/")
                    .then(|| answer.trim_end_matches('\n').to_owned()),
            }
        });
        exchanges.collect()
    }

    /// Command and body, of those that were posted.
    fn posted(&self) -> Option<(&str, Value)> {
        let (command, body) = self.asked.strip_prefix("POST /")?.split_once(' ')?;
        Some((command, serde_json::from_str(body).unwrap_or_default()))
    }

    fn body(&self) -> &str {
        self.answer.as_deref().unwrap().split_once("\r\n\r\n").unwrap().1
    }
}

fn asked(body: &Value) -> Option<ModuleId> {
    Some(ModuleId::new(
        body.get("bizName")?.as_str()?,
        body.get("bizVersion")?.as_str()?,
    ))
}

fn installs(body: &Value) -> Vec<Install> {
    let list = body.as_array().or_else(|| body.get("bizList")?.as_array());
    let install = |entry: &Value| Install::new(asked(entry).unwrap(), entry["bizUrl"].as_str().unwrap());
    list.into_iter().flatten().map(install).collect()
}

pub(crate) fn modules(list: &ModuleList) -> String {
    assert_eq!(list.unreadable, []);
    let words = list.modules.iter().map(|module| {
        let records = module.records.iter().map(|record| record.reason.as_str());
        format!(
            "{} {} by {}",
            module.id,
            module.state,
            records.collect::<Vec<_>>().join("+")
        )
    });
    format!("modules [{}]", words.collect::<Vec<_>>().join(", "))
}

pub(crate) fn outcome(outcome: &Outcome) -> String {
    let kind = match outcome {
        Outcome::Done { .. } => return outcome.to_string(),
        Outcome::Mismatch { .. } => "mismatch",
        Outcome::Repeat { .. } => "repeat",
        Outcome::NotFound { .. } => "not found",
        Outcome::Conflict { .. } => "conflict",
        Outcome::IllegalState { .. } => "illegal state",
        Outcome::Failed(failure) => return format!("{}: {failure}", failure.code),
    };
    format!("{kind}: {outcome}")
}

pub(crate) fn batch(batch: &BatchOutcome) -> String {
    let each = batch.by_url.iter().map(|(url, one)| {
        let file = url.rsplit('/').next().unwrap();
        format!("{file} -> {}", outcome(one))
    });
    format!(
        "{}; {}",
        outcome(&batch.overall),
        each.collect::<Vec<_>>().join("; ")
    )
}

/// What an exchange means, in words.
fn meaning(exchange: &Exchange) -> String {
    if exchange.answer.is_none() {
        return "no answer".to_owned();
    }
    let Some((command, request)) = exchange.posted() else {
        return "no POST".to_owned();
    };
    let envelope = Envelope::decode(exchange.body().as_bytes()).unwrap();
    let id = asked(&request);
    match Command::from_id(command) {
        Some(Command::InstallBiz) if request["async"] == Value::Bool(true) => {
            match accepted(&envelope, id.as_ref()) {
                Ok(record) => format!(
                    "accepted {}, {:?}",
                    record.request_id.as_deref().unwrap(),
                    record.progress()
                ),
                Err(refused) => outcome(&refused),
            }
        }
        Some(Command::QueryAllBiz) => modules(&ModuleList::read(&envelope.data.unwrap()).unwrap()),
        Some(Command::QueryBizOps) => match ops::lookup(&envelope).unwrap() {
            Some(Lookup::Found(record)) => {
                let cause = record.cause.as_deref().or(record.message.as_deref());
                let took = record.ended_ms.map(|end| end - record.started_ms.unwrap());
                format!(
                    "{:?} after {took:?} ms: {}",
                    record.progress(),
                    cause.unwrap_or("-")
                )
            }
            Some(Lookup::Lost) => "lost".to_owned(),
            None => outcome(&Outcome::of(&envelope, None)),
        },
        Some(Command::BatchInstallBiz) => batch(&BatchOutcome::of(&envelope, &installs(&request))),
        _ => outcome(&Outcome::of(&envelope, id.as_ref())),
    }
}

fn check(file: &str, wanted: &[(&str, &str)]) {
    let found: Vec<(String, String)> = Exchange::all(file)
        .iter()
        .map(|exchange| {
            let command = exchange.asked.split(" {").next().unwrap();
            (command.to_owned(), meaning(exchange))
        })
        .collect();
    let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(found, wanted, "{file}");
}

#[test]
fn the_first_recording_over_http() {
    let both = "modules [biz1:0.0.2 activated by Created+Started+Switched, biz1:0.0.1 deactivated by Created+Started+Switched]";
    let second = "modules [biz1:0.0.2 activated by Created+Started+Switched]";
    let no_url = "CMD_PROCESS_INTERNAL_ERROR: CommandValidationException: bizUrl should not be blank";
    check(
        "arklet-http-1.txt",
        &[
            ("POST /installBiz", "done, biz1:0.0.1 is activated"),
            (
                "POST /queryAllBiz",
                "modules [biz1:0.0.1 activated by Created+Started]",
            ),
            (
                "POST /installBiz",
                "repeat: Biz: biz1:0.0.1 has been installed or registered.",
            ),
            // A success that does not serve.
            ("POST /installBiz", "done, biz1:0.0.2 is deactivated"),
            (
                "POST /queryAllBiz",
                "modules [biz1:0.0.2 deactivated by Created+Started, biz1:0.0.1 activated by Created+Started]",
            ),
            ("POST /switchBiz", "done"),
            ("POST /switchBiz", "not found: Switch biz: biz1:9 not found."),
            ("POST /queryAllBiz", both),
            ("POST /uninstallBiz", "done"),
            (
                "POST /uninstallBiz",
                "not found: Uninstall biz: biz1:0.0.1 not found.",
            ),
            (
                "POST /uninstallBiz",
                "FAILED: Master biz must not be uninstalled.",
            ),
            ("POST /queryAllBiz", second),
            (
                "POST /installBiz",
                "CMD_PROCESS_INTERNAL_ERROR: IllegalStateException: boom from bad",
            ),
            // A failed install leaves no trace.
            ("POST /queryAllBiz", second),
            (
                "POST /installBiz",
                "mismatch: asked for zzz:7, but the manifest of the jar says otherwise: biz2:0.0.1",
            ),
            (
                "POST /queryAllBiz",
                "modules [biz1:0.0.2 activated by Created+Started+Switched, biz2:0.0.1 activated by Created+Started]",
            ),
            (
                "POST /installBiz",
                "CMD_PROCESS_INTERNAL_ERROR: FileNotFoundException: /nope.jar (No such file or directory)",
            ),
            ("POST /installBiz", no_url),
            (
                "POST /installBiz",
                "CMD_PROCESS_INTERNAL_ERROR: CommandValidationException: bizName and bizVersion should be both blank or both not blank.",
            ),
            ("POST /installBiz", no_url),
            (
                "POST /uninstallBiz",
                "CMD_PROCESS_INTERNAL_ERROR: CommandValidationException: bizVersion should not be blank",
            ),
            ("POST /nosuch", "CMD_NOT_FOUND: please follow the doc"),
            ("GET health", "no POST"),
            ("bad json", "no answer"),
            ("array json", "no answer"),
            (
                "POST /uninstallBiz ",
                "CMD_PROCESS_INTERNAL_ERROR: NullPointerException: Cannot invoke \"com.alipay.sofa.koupleless.arklet.core.command.builtin.handler.UninstallBizHandler$Input.getBizName()\" because \"<parameter1>\" is null",
            ),
            (
                "POST /installBiz ",
                "CMD_PROCESS_INTERNAL_ERROR: NullPointerException: Cannot invoke \"com.alipay.sofa.koupleless.arklet.core.command.builtin.handler.InstallBizHandler$Input.isAsync()\" because \"<parameter1>\" is null",
            ),
        ],
    );
}

#[test]
fn the_second_recording_over_http() {
    check(
        "arklet-http-2.txt",
        &[
            ("POST /installBiz", "accepted r1, Running"),
            ("POST /queryBizOps", "Running after None ms: -"),
            (
                "POST /queryAllBiz",
                "modules [biz1:0.0.2 activated by Created+Started+Switched, biz2:0.0.1 activated by Created+Started, slow:0.0.1 resolved by Created]",
            ),
            (
                "POST /installBiz",
                "conflict: FAILED:slow:0.0.1 installBiz conflict, exist unfinished command(installBiz) for this biz",
            ),
            (
                "POST /uninstallBiz",
                "conflict: FAILED:slow:0.0.1 uninstallBiz conflict, exist unfinished command(installBiz) for this biz",
            ),
            (
                "POST /installBiz",
                "FAILED: The request corresponding to the requestId(r1) has been executed.",
            ),
            ("POST /installBiz", "accepted r2, Running"),
            // Stuck at INITIALIZED for ever; its end tells.
            (
                "POST /queryBizOps",
                "Failed after Some(0) ms: command conflict, exist unfinished command for this biz",
            ),
            ("POST /queryBizOps", "Succeeded after Some(8017) ms: -"),
            ("POST /queryBizOps", "lost"),
            (
                "POST /queryBizOps",
                "CMD_PROCESS_INTERNAL_ERROR: CommandValidationException: requestId is blank",
            ),
            (
                "POST /installBiz",
                "CMD_PROCESS_INTERNAL_ERROR: CommandValidationException: requestId should not be blank when async is true",
            ),
            ("POST /uninstallBiz", "done"),
            ("POST /installBiz", "accepted r3, Running"),
            (
                "POST /queryBizOps",
                "Failed after Some(39) ms: IllegalStateException: boom from bad",
            ),
            ("POST /installBiz", "done, biz1:0.0.1 is activated"),
            (
                "POST /queryAllBiz",
                "modules [biz1:0.0.1 activated by Created+Started, biz2:0.0.1 activated by Created+Started]",
            ),
            (
                "POST /installBiz",
                "repeat: Biz: biz2:0.0.1 has been installed or registered.",
            ),
            (
                "POST /batchInstallBiz",
                "FAILED: batch install failed; \
                 bad-0.0.1-ark-biz.jar -> FAILED: internal exception: null; \
                 biz1-0.0.2-ark-biz.jar -> done, biz1:0.0.2 is deactivated; \
                 biz2-0.0.1-ark-biz.jar -> repeat: Biz: biz2:0.0.1 has been installed or registered.",
            ),
            ("POST /batchInstallBiz", "done; "),
            (
                "POST /batchInstallBiz",
                "CMD_PROCESS_INTERNAL_ERROR: CommandValidationException: bizList is null; ",
            ),
            (
                "POST /batchInstallBiz",
                "CMD_PROCESS_INTERNAL_ERROR: FileNotFoundException: /nope.jar (No such file or directory); ",
            ),
            (
                "POST /queryAllBiz",
                "modules [biz1:0.0.2 deactivated by Created+Started, biz1:0.0.1 activated by Created+Started, biz2:0.0.1 activated by Created+Started]",
            ),
        ],
    );
}

#[test]
fn heartbeats_say_who_and_where() {
    let text = recording("arklet-heartbeat.txt");
    let mut count = 0;
    for line in text.lines() {
        // Time, path, headers in single quotes, body.
        let body = &line[line.find("} {").unwrap() + 2..];
        let heartbeat = Heartbeat::decode(body.as_bytes()).unwrap();
        assert_eq!(heartbeat.metadata.identity, "192.0.2.2");
        assert_eq!(heartbeat.metadata.name.as_deref(), Some("TO_BE_IMPLEMENTED"));
        assert_eq!(heartbeat.metadata.version.as_deref(), Some("1.0.0"));
        assert_eq!(heartbeat.metadata.cluster_name.as_deref(), Some("default"));
        assert_eq!(heartbeat.address(), Some("192.0.2.2:12380".parse().unwrap()));
        assert_eq!(heartbeat.host_name.as_deref(), Some("192.0.2.2"));
        assert!(heartbeat.is_active());
        count += 1;
    }
    assert_eq!(count, 5);
}

/// The typed request that a recorded one corresponds to.
fn typed(command: &str, body: &Value) -> Option<Value> {
    let install = |body: &Value| {
        let words = body["args"].as_array().into_iter().flatten();
        let strategy = body["installStrategy"].as_str();
        Some(Install {
            id: asked(body),
            url: body["bizUrl"].as_str()?.to_owned(),
            args: words.map(|word| word.as_str().unwrap().to_owned()).collect(),
            envs: BTreeMap::new(),
            strategy: strategy.map(|_| Strategy::UninstallThenInstall),
        })
    };
    let request_id = body["requestId"].as_str();
    let made = match Command::from_id(command)? {
        Command::InstallBiz => {
            let install = install(body)?;
            install.check().unwrap();
            Request::Install {
                install: &install,
                request_id,
            }
            .body()
        }
        Command::UninstallBiz => Request::Uninstall(&asked(body)?).body(),
        Command::SwitchBiz => Request::Switch(&asked(body)?).body(),
        Command::QueryAllBiz => Request::Modules.body(),
        Command::QueryBizOps => Request::Ops {
            request_id: request_id?,
        }
        .body(),
        Command::BatchInstallBiz => {
            body.get("bizList")?;
            Request::Batch(&installs(body)).body()
        }
        Command::Health | Command::Help => return None,
    };
    Some(made)
}

#[test]
fn the_recorded_requests_are_those_that_are_made_here() {
    let mut compared = 0;
    for file in ["arklet-http-1.txt", "arklet-http-2.txt"] {
        for exchange in Exchange::all(file) {
            let Some((command, body)) = exchange.posted() else {
                continue;
            };
            // Wrong on purpose: half an identity, asynchronous without a request's.
            let half = body.get("bizName").is_some() != body.get("bizVersion").is_some();
            let nameless = body.get("async").is_some() && body.get("requestId").is_none();
            if half || nameless {
                continue;
            }
            if let Some(made) = typed(command, &body) {
                assert_eq!(made, body, "{}", exchange.asked);
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 37);
}
