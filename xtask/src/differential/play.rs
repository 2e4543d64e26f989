//! Plays a case on both servers, up to the first step that they answer differently.

use super::case::{Case, Payload, Step, YAML, setup};
use super::compare::{Difference, differences};
use super::normal::normalise;
use super::server::{Answer, Server};
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The two servers.
pub(super) struct Pair {
    pub(super) real: Server,
    pub(super) ours: Server,
    /// Runs so far; each has a name of its own.
    runs: AtomicU64,
    started: u64,
    /// Requests that were compared.
    pub(super) compared: AtomicU64,
}

/// How a case went.
pub(super) struct Outcome {
    /// The step that differs, and how.
    pub(super) found: Option<(usize, Vec<Difference>)>,
    /// What the real server answered, normalised.
    pub(super) real: Vec<Answer>,
}

impl Pair {
    pub(super) fn new(real: Server, ours: Server) -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Self {
            real,
            ours,
            runs: AtomicU64::new(0),
            started: now,
            compared: AtomicU64::new(0),
        }
    }

    /// A name that no other run has, on either server: letters, so that it is in no number.
    fn name(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjkmnpqrstvwxz";
        let number = (self.started % 1_000_000) * 1_000_000 + self.runs.fetch_add(1, Ordering::Relaxed);
        let mut rest = number;
        let mut name = "q".to_owned();
        for _ in 0..10 {
            name.push(char::from(
                LETTERS[usize::try_from(rest % 19).unwrap_or_default()],
            ));
            rest /= 19;
        }
        name
    }

    /// Plays the whole case on both servers.
    pub(super) async fn play(&self, case: &Case) -> anyhow::Result<Outcome> {
        let run = self.name();
        let (real, ours) = tokio::join!(
            transcript(&self.real, case, &run),
            transcript(&self.ours, case, &run)
        );
        let (mut real, mut ours) = (real?, ours?);
        let prefixes = case.name_prefixes();
        normalise(&mut real, &prefixes, &run);
        normalise(&mut ours, &prefixes, &run);
        let mut found = None;
        for (at, (left, right)) in real.iter().zip(&ours).enumerate() {
            self.compared.fetch_add(1, Ordering::Relaxed);
            let differences = differences(left, right);
            if !differences.is_empty() {
                found = Some((at, differences));
                break;
            }
        }
        Ok(Outcome { found, real })
    }
}

/// What one server answers to the steps of a case.
async fn transcript(server: &Server, case: &Case, run: &str) -> anyhow::Result<Vec<Answer>> {
    let mut captured = Captured::default();
    for step in setup() {
        captured.send(server, &step, run).await?;
    }
    let mut answers = Vec::new();
    for step in &case.steps {
        let answer = captured.send(server, step, run).await?;
        captured.look_at(&answer);
        answers.push(answer);
    }
    if let Some(path) = &case.leaves {
        captured
            .send(server, &Step::new("DELETE", path.clone()), run)
            .await?;
    }
    Ok(answers)
}

/// What later requests take from earlier answers.
#[derive(Default)]
struct Captured {
    version: String,
    first: String,
    uid: String,
}

impl Captured {
    fn look_at(&mut self, answer: &Answer) {
        let text = |name: &str| {
            answer.body["metadata"][name]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        if answer.is_object() {
            self.version = text("resourceVersion");
            self.uid = text("uid");
            if self.first.is_empty() {
                self.first.clone_from(&self.version);
            }
        }
    }

    fn fill(&self, text: &str, run: &str) -> String {
        text.replace("{{run}}", run)
            .replace("{{cap:rv}}", &self.version)
            .replace("{{cap:old}}", &self.first)
            .replace("{{cap:uid}}", &self.uid)
    }

    async fn send(&self, server: &Server, step: &Step, run: &str) -> anyhow::Result<Answer> {
        let body = match &step.payload {
            // Filled in before it is written as YAML, where quotes depend on the text.
            Payload::Object(object) if step.content_type == YAML => {
                let filled: Value = serde_json::from_str(&self.fill(&object.to_string(), run))?;
                serde_saphyr::to_string(&filled)?
            }
            _ => self.fill(&step.text(), run),
        };
        let uri = self.fill(&step.uri(), run);
        server
            .send(step.method, &uri, step.content_type, body.into_bytes())
            .await
    }
}
