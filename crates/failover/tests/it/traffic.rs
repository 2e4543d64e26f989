//! What a replica asks of the API server, written down; and watches that keep something to themselves.

use axum::body::Body as Answer;
use futures::StreamExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tower::BoxError;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// A watch, which costs one request and then none.
    pub(crate) watch: bool,
    /// Names and versions alone: the audit of a quiet watch.
    pub(crate) metadata_only: bool,
}

/// The traffic of one replica.
#[derive(Clone, Default)]
pub(crate) struct Traffic(Arc<State>);

#[derive(Default)]
struct State {
    cut: AtomicBool,
    asked: Mutex<Vec<Asked>>,
    /// Resource and name of the objects of which watches show nothing new.
    withheld: Mutex<BTreeSet<(String, String)>>,
}

impl Traffic {
    /// The same client, seen by this.
    pub(crate) fn of(&self, inner: Client) -> Client {
        let state = Arc::clone(&self.0);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (inner, state) = (inner.clone(), Arc::clone(&state));
            async move {
                if state.cut.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                let asked = Asked::from(&request);
                state.asked.lock().unwrap().push(asked.clone());
                let answer = inner.send(request).await.map_err(BoxError::from)?;
                Ok::<_, BoxError>(answer.map(|body| {
                    if asked.watch {
                        sieve(body, asked.path, state)
                    } else {
                        Answer::new(body)
                    }
                }))
            }
        });
        Client::new(service, "default")
    }

    /// From now on no request of this replica is heard: its machine lost power.
    pub(crate) fn cut(&self) {
        self.0.cut.store(true, Ordering::SeqCst);
    }

    /// From now on watches of this resource show no change of that object. They go on showing the others, so
    /// that they count as proven live: a cache between us and etcd that lags behind.
    pub(crate) fn withhold(&self, resource: &str, name: &str) {
        let object = (resource.to_owned(), name.to_owned());
        self.0.withheld.lock().unwrap().insert(object);
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.0.asked.lock().unwrap().clone()
    }
}

impl From<&http::Request<Body>> for Asked {
    fn from(request: &http::Request<Body>) -> Self {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        Self {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            watch: request.uri().query().unwrap_or_default().contains("watch="),
            metadata_only: header("accept").is_some_and(|accept| accept.contains("PartialObjectMetadata")),
        }
    }
}

/// The lines of a watch without those that are withheld.
fn sieve(body: Body, path: String, state: Arc<State>) -> Answer {
    let mut rest = Vec::new();
    let chunks = Answer::new(body).into_data_stream();
    let passed = chunks.map(move |chunk| {
        chunk.map(|bytes| {
            rest.extend_from_slice(&bytes);
            let mut lines = Vec::new();
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                if !state.withholds(&path, &line) {
                    lines.extend(line);
                }
            }
            lines
        })
    });
    Answer::from_stream(passed)
}

impl State {
    fn withholds(&self, path: &str, line: &[u8]) -> bool {
        let withheld = self.withheld.lock().unwrap();
        let resource = path.rsplit('/').next().unwrap_or_default();
        if !withheld.iter().any(|(kept, _)| kept == resource) {
            return false;
        }
        let event: Value = serde_json::from_slice(line).unwrap_or_default();
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        withheld.contains(&(resource.to_owned(), name.to_owned()))
    }
}
