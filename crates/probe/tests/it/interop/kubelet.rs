//! The kubelet's handlers as a process.

use evenkeel_probe::core::{Handler, Port, Probe, Target};
use evenkeel_testkit::interop::build_kubeletprobe;
use evenkeel_testkit::skipped;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Mutex, watch};

/// What a handler of the kubelet's returned.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    id: u64,
    pub(crate) result: String,
    pub(crate) output: String,
    pub(crate) error: String,
}

/// The process. Killed when it is dropped.
pub(crate) struct Kubelet {
    _process: Child,
    questions: Mutex<ChildStdin>,
    answers: watch::Receiver<HashMap<u64, Answer>>,
    next: AtomicU64,
}

impl Kubelet {
    /// Starts it; `None`, and said so, where Go is missing.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let Some(program) = program() else {
            skipped(test, "no go on PATH");
            return None;
        };
        let mut process = Command::new(program)
            // A proxy of the environment must not be asked.
            .env("HTTP_PROXY", "http://127.0.0.1:9")
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let questions = process.stdin.take().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (publish, answers) = watch::channel(HashMap::new());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let answer: Answer = serde_json::from_str(&line).unwrap();
                publish.send_modify(|answers| {
                    answers.insert(answer.id, answer);
                });
            }
        });
        Some(Self {
            _process: process,
            questions: Mutex::new(questions),
            answers,
            next: AtomicU64::new(1),
        })
    }

    /// Asks once, without retries.
    pub(crate) async fn ask(&self, target: &Target, probe: &Probe) -> Answer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut line = question(id, target, probe).to_string();
        line.push('\n');
        self.questions
            .lock()
            .await
            .write_all(line.as_bytes())
            .await
            .unwrap();
        let mut answers = self.answers.clone();
        let answered = answers.wait_for(|answers| answers.contains_key(&id));
        let answered = tokio::time::timeout(probe.timeout + Duration::from_secs(60), answered).await;
        answered
            .expect("the kubelet's handlers keep their timeout")
            .unwrap()[&id]
            .clone()
    }
}

fn program() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let go = evenkeel_testkit::go()?;
            let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
            Some(build_kubeletprobe(&go, directory).unwrap_or_else(|why| panic!("{why}")))
        })
        .clone()
}

fn question(id: u64, target: &Target, probe: &Probe) -> Value {
    let mut question = match &probe.handler {
        Handler::HttpGet(get) => json!({
            "kind": "http",
            "scheme": get.scheme.as_str().to_uppercase(),
            "host": get.host.as_deref().unwrap_or_default(),
            "port": port(&get.port),
            "path": get.path,
            "headers": get.headers,
        }),
        Handler::TcpSocket { host, port: to } => json!({
            "kind": "tcp",
            "host": host.as_deref().unwrap_or_default(),
            "port": port(to),
        }),
        Handler::Grpc { port, service } => json!({"kind": "grpc", "port": port, "service": service}),
        Handler::Exec { command } => json!({
            "kind": "exec",
            "port": 0,
            "command": command,
            "env": target.container.env,
        }),
    };
    question["id"] = json!(id);
    question["podIP"] = json!(
        target
            .address
            .map(|address| address.to_string())
            .unwrap_or_default()
    );
    question["ports"] = target.container.ports.iter().cloned().collect();
    question["timeoutMillis"] = json!(u64::try_from(probe.timeout.as_millis()).unwrap());
    question
}

fn port(port: &Port) -> Value {
    match port {
        Port::Number(number) => json!(number),
        Port::Name(name) => json!(name),
    }
}
