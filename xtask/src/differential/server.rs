//! A server that is compared: requests go to it as they are, answers come back unread.

use anyhow::Context as _;
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The headers that clients act on; others are the business of proxies, or tell one server from another.
const COMPARED: [&str; 4] = ["content-type", "warning", "retry-after", "location"];

/// Longer than the 30 s that a server takes to look for what does not come, so that its own answer is seen.
const PATIENCE: Duration = Duration::from_secs(40);

/// One of the two servers.
#[derive(Clone)]
pub(super) struct Server(Client);

/// What a server answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Those that are compared, in the order of `COMPARED`.
    pub(super) headers: Vec<(&'static str, String)>,
    /// JSON, or a text where it is none.
    pub(super) body: Value,
}

impl Answer {
    /// Whether it is a stored object, whose version and UID later requests may name.
    pub(super) fn is_object(&self) -> bool {
        self.status < 300 && self.body["metadata"]["uid"].is_string()
    }
}

impl Server {
    /// Connects as the current user of a kubeconfig.
    pub(super) async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .with_context(|| format!("{} names no server", kubeconfig.display()))?;
        config.read_timeout = Some(PATIENCE);
        Ok(Self(Client::try_from(config).context("cannot build a client")?))
    }

    /// Sends one request.
    pub(super) async fn send(
        &self,
        method: &str,
        uri: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<Answer> {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("accept", "application/json")
            .header("content-type", content_type)
            // What stands before the slash is the manager of fields that the request writes.
            .header("user-agent", "golden/1.0")
            .body(Body::from(body))
            .with_context(|| format!("{uri} is no URI"))?;
        let response = self
            .0
            .send(request)
            .await
            .with_context(|| format!("{method} {uri}"))?;
        let status = response.status().as_u16();
        let headers = compared(response.headers());
        let bytes = response
            .into_body()
            .collect()
            .await
            .with_context(|| format!("cannot read the answer of {method} {uri}"))?
            .to_bytes();
        let body = decoded(&bytes);
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    /// The body of a GET that has to succeed.
    pub(super) async fn read(&self, uri: &str) -> anyhow::Result<Value> {
        let answer = self.send("GET", uri, "application/json", Vec::new()).await?;
        anyhow::ensure!(answer.status == 200, "GET {uri} answers {}", answer.status);
        Ok(answer.body)
    }
}

/// One value, the events of a watch, or text.
fn decoded(bytes: &[u8]) -> Value {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) if value["type"].is_string() && value["object"].is_object() => {
            return Value::Array(vec![value]);
        }
        Ok(value) => return value,
        Err(_) => {}
    }
    let events: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(bytes).into_iter().collect();
    match events {
        Ok(events) if !events.is_empty() => Value::Array(events),
        _ => Value::String(String::from_utf8_lossy(bytes).into_owned()),
    }
}

fn compared(headers: &HeaderMap) -> Vec<(&'static str, String)> {
    COMPARED
        .iter()
        .flat_map(|name| headers.get_all(*name).iter().map(move |value| (*name, value)))
        .map(|(name, value)| (name, String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect()
}
