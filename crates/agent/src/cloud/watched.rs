//! One object, watched for ever.
//!
//! A watch that begins with resourceVersion 0 first tells the object as it is, out of the API server's
//! cache, and then every change: one request, where a read and a watch would be two. A read would not help
//! either: it tells at which version the object was last written, which for a roster can be days ago, and
//! the history from there is gone. `sendInitialEvents` would tell that there is no such object, but not
//! every server has it (Kubernetes 1.33 does not by default). An end is resumed at the last version that was
//! told, which the bookmarks of a quiet watch keep young. What the cache tells may be old: its readers pass
//! over what is older than what they know.
//!
//! Written here instead of taken from kube-runtime, because its watcher needs the right to list, and because
//! the response itself is needed: its connection tells when the API server was last heard.

use super::BEGINS;
use super::back_off::BackOff;
use super::error::CloudError;
use bytes::{Buf as _, Bytes, BytesMut};
use evenkeel_net::client::Activity;
use http_body_util::{BodyExt as _, Limited};
use kube::api::WatchParams;
use kube::client::Body;
use kube::core::response::StatusSummary;
use kube::core::{Request, Status};
use kube::{Client, Resource};
use serde::Deserialize;
use serde_json::Value;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// A watch is ended by the server after this time and up to as much again, so that those of all agents do not
/// end together.
const LASTS: Duration = Duration::from_secs(300);
/// A watch that lasted this long was a success.
const STOOD: Duration = Duration::from_secs(5);
/// A watch that ends so much before its time has failed.
const EARLY: Duration = Duration::from_secs(5);
/// Longest event in bytes. etcd refuses objects above 1.5 MiB.
const LONGEST_EVENT: usize = 4 << 20;
/// Longest refusal in bytes.
const LONGEST_REFUSAL: usize = 64 << 10;

/// What became of a watch.
pub(super) enum Step {
    /// It stands. Where it began anew, what comes next is the object as it is, if there is one.
    Began { anew: bool },
    /// The object as it is now.
    Put(Value),
    /// The object was deleted.
    Gone,
    /// It failed, and begins again after a while.
    Failed(CloudError),
}

/// One object, watched.
pub(super) struct Watched {
    client: Client,
    what: &'static str,
    collection: Request,
    name: String,
    /// Version from which the next watch goes on; without one it begins anew.
    position: Option<String>,
    back_off: BackOff,
    state: State,
}

enum State {
    Waiting(Instant),
    Beginning {
        anew: bool,
        answer: Pin<Box<dyn Future<Output = Result<Standing, CloudError>> + Send>>,
    },
    Standing(Standing),
}

struct Standing {
    anew: bool,
    events: Lines,
    /// Of a connection on which pings are answered.
    connection: Option<Activity>,
    began: Instant,
    /// When the server is to end it.
    ends: Instant,
}

/// An event as the server sends it.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    object: Value,
}

impl Watched {
    /// Watches an object of kind `K`. `what` names that in messages.
    pub(super) fn new<K: Resource<DynamicType = ()>>(client: Client, what: &'static str, name: &str) -> Self {
        Self {
            client,
            what,
            collection: Request::new(K::url_path(&(), None)),
            name: name.to_owned(),
            position: None,
            back_off: BackOff::default(),
            state: State::Waiting(Instant::now()),
        }
    }

    /// Whether a watch stands.
    pub(super) fn stands(&self) -> bool {
        matches!(self.state, State::Standing(_))
    }

    /// Whether the API server was heard since then: a watch stands, and its connection answers. Only HTTP/2
    /// has pings; the connections of HTTP/1.1 are left to TCP, which ends them after 25 s of silence.
    pub(super) fn is_heard_since(&self, moment: Instant) -> bool {
        match &self.state {
            State::Standing(standing) => {
                let connection = standing.connection.as_ref();
                connection.is_none_or(|activity| activity.received_since(moment))
            }
            State::Waiting(_) | State::Beginning { .. } => false,
        }
    }

    /// The next watch tells the object as it is then, though it may not have changed.
    pub(super) fn begin_anew(&mut self) {
        self.position = None;
    }

    /// Shortens a wait after a failure, at random within `longest`.
    pub(super) fn hurry(&mut self, longest: Duration) {
        if let State::Waiting(until) = &mut self.state {
            *until = (*until).min(Instant::now() + longest.mul_f64(rand::random()));
        }
    }

    /// What becomes of the watch next. After a failure it waits for `longest` at most. Nothing is lost when
    /// this is dropped.
    pub(super) async fn next(&mut self, longest: Duration) -> Step {
        loop {
            let failed = match &mut self.state {
                State::Waiting(until) => {
                    sleep_until(*until).await;
                    self.begin();
                    continue;
                }
                State::Beginning { anew, answer } => match answer.await {
                    Ok(standing) => {
                        let anew = *anew;
                        self.state = State::Standing(standing);
                        return Step::Began { anew };
                    }
                    Err(error) => error,
                },
                State::Standing(standing) => match standing.events.next().await {
                    Ok(Some(line)) => match self.take(&line) {
                        Ok(Some(step)) => return step,
                        Ok(None) => continue,
                        Err(error) => error,
                    },
                    Ok(None) if Instant::now() + EARLY >= standing.ends => {
                        self.back_off.end();
                        self.state = State::Waiting(Instant::now());
                        continue;
                    }
                    Ok(None) => CloudError::Ended { what: self.what },
                    Err(source) => CloudError::request(self.what, source),
                },
            };
            if let Some(step) = self.fail(failed, longest) {
                return step;
            }
        }
    }

    fn begin(&mut self) {
        let lasts = LASTS.mul_f64(1.0 + rand::random::<f64>());
        let params = WatchParams::default()
            .fields(&format!("metadata.name={}", self.name))
            .timeout(u32::try_from(lasts.as_secs()).unwrap_or(u32::MAX));
        let (anew, position) = match &self.position {
            Some(position) => (false, position.as_str()),
            None => (true, "0"),
        };
        let request = self.collection.watch(&params, position);
        let (client, what) = (self.client.clone(), self.what);
        let answer = async move {
            let request = request.map_err(kube::Error::BuildRequest);
            let request = request.map_err(|source| CloudError::request(what, source))?;
            let began = timeout(BEGINS, stand(client, request, anew, lasts)).await;
            let began = began.map_err(|_| CloudError::Timeout { what, after: BEGINS })?;
            began.map_err(|source| CloudError::request(what, source))
        };
        self.state = State::Beginning {
            anew,
            answer: Box::pin(answer),
        };
    }

    /// What an event says; nothing where it only moves the position.
    fn take(&mut self, line: &[u8]) -> Result<Option<Step>, CloudError> {
        let what = self.what;
        let garbled = |source| CloudError::Garbled { what, source };
        let Event { kind, object } = serde_json::from_slice(line).map_err(garbled)?;
        if kind == "ERROR" {
            let status: Status = serde_json::from_value(object).map_err(garbled)?;
            return Err(CloudError::request(what, kube::Error::Api(Box::new(status))));
        }
        let version = object
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str);
        if let Some(version) = version {
            self.position = Some(version.to_owned());
        }
        Ok(match kind.as_str() {
            "ADDED" | "MODIFIED" => Some(Step::Put(object)),
            "DELETED" => Some(Step::Gone),
            // A bookmark, or what a later server tells.
            _ => None,
        })
    }

    /// Has the watch begin again: after a while, or at once where only its history is gone. A server that
    /// refuses what it has just told itself is waited for, or an agent could ask it without a pause.
    fn fail(&mut self, error: CloudError, longest: Duration) -> Option<Step> {
        let now = Instant::now();
        let (anew, stood) = match &self.state {
            State::Waiting(_) => (true, false),
            State::Beginning { anew, .. } => (*anew, false),
            State::Standing(standing) => (standing.anew, now >= standing.began + STOOD),
        };
        if stood {
            self.back_off.end();
        }
        // Whatever the server refuses, or says in words that are not understood, may be about the version.
        if error.status().is_some() || matches!(error, CloudError::Garbled { .. }) {
            self.position = None;
        }
        if error.is_expired() && (stood || !anew) {
            self.state = State::Waiting(now);
            return None;
        }
        let wait = self.back_off.next(longest, rand::random());
        self.state = State::Waiting(now + wait);
        Some(Step::Failed(error))
    }
}

async fn stand(
    client: Client,
    request: http::Request<Vec<u8>>,
    anew: bool,
    lasts: Duration,
) -> Result<Standing, kube::Error> {
    let response = client.send(request.map(Body::from)).await?;
    if !response.status().is_success() {
        return Err(kube::Error::Api(Box::new(refusal(response).await)));
    }
    let pinged = response.version() == http::Version::HTTP_2;
    let connection = response.extensions().get::<Activity>().filter(|_| pinged);
    let began = Instant::now();
    Ok(Standing {
        anew,
        connection: connection.cloned(),
        events: Lines {
            body: response.into_body(),
            received: BytesMut::new(),
            searched: 0,
        },
        began,
        ends: began + lasts,
    })
}

/// What a server says that refuses, which need not be the API server. Where that refuses for want of time,
/// its words are no object, but it names the request in its audit log, as always.
async fn refusal(response: http::Response<Body>) -> Status {
    let code = response.status();
    let audited = response.headers().contains_key("audit-id");
    let body = Limited::new(response.into_body(), LONGEST_REFUSAL)
        .collect()
        .await;
    let said = body.ok().map(http_body_util::Collected::to_bytes);
    let status = said.and_then(|said| serde_json::from_slice::<Status>(&said).ok());
    let status = status.unwrap_or_else(|| Status {
        message: code.to_string(),
        ..Status::default()
    });
    Status {
        code: code.as_u16(),
        status: status.status.or(audited.then_some(StatusSummary::Failure)),
        ..status
    }
}

/// The lines of a body.
struct Lines {
    body: Body,
    received: BytesMut,
    /// So many bytes of it hold no end of a line.
    searched: usize,
}

impl Lines {
    /// The next line without its end, `None` at the end of the body. Nothing is lost when this is dropped.
    async fn next(&mut self) -> Result<Option<Bytes>, kube::Error> {
        loop {
            let unsearched = self.received.get(self.searched..).unwrap_or_default();
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let line = self.received.split_to(self.searched + end);
                self.received.advance(1);
                self.searched = 0;
                return Ok(Some(line.freeze()));
            }
            self.searched = self.received.len();
            if self.received.len() > LONGEST_EVENT {
                return Err(kube::Error::LinesCodecMaxLineLengthExceeded);
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame?.into_data() {
                self.received.extend_from_slice(&data);
            }
        }
    }
}

#[cfg(test)]
mod decoder_tests;
#[cfg(test)]
mod tests;
