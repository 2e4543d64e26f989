//! A backend that tests make to measure.

use super::{
    Backend, ContainerId, ContainerStats, Duplex, ExecIo, Fault, FaultKind, LogOptions, LogStream, Node,
    NodeStats, PodId, PodStats, Served, Settings, Term, Wanted, routes,
};
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::stream::{self, StreamExt as _};
use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;

/// How the provider behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mood {
    #[default]
    Good,
    Failing,
    Hanging,
    Panicking,
}

/// One node with one pod `default/web` of UID `u`: container `c` runs and ran before, `new` is being made.
#[derive(Default)]
pub(super) struct Fake {
    mood: Mood,
    ill: Option<String>,
    /// What logs were asked for.
    pub(super) asked: Mutex<Vec<(ContainerId, LogOptions)>>,
    /// Cancelled when a followed log is dropped.
    pub(super) log_dropped: CancellationToken,
}

impl Fake {
    pub(super) fn new(mood: Mood) -> Arc<Self> {
        Arc::new(Self {
            mood,
            ..Self::default()
        })
    }

    /// The node is not well.
    pub(super) fn ill(why: &str) -> Arc<Self> {
        Arc::new(Self {
            ill: Some(why.to_owned()),
            ..Self::default()
        })
    }

    /// The paths without authorization, asked as node `n`'s.
    pub(super) fn routes(self: &Arc<Self>) -> Router {
        let settings = Settings {
            call: Duration::from_secs(5),
            ..Settings::default()
        };
        let node = Node {
            name: "n".into(),
            term: Term::default(),
            streams: tokio_util::task::TaskTracker::new(),
        };
        routes(self.clone(), settings).layer(axum::Extension(node))
    }

    /// Status and body of an answer.
    pub(super) async fn answer(self: &Arc<Self>, method: &str, path: &str) -> (u16, String) {
        let response = self.response(method, path).await;
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(super) async fn response(self: &Arc<Self>, method: &str, path: &str) -> Response<Body> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::empty())
            .unwrap();
        self.routes().oneshot(request).await.unwrap()
    }

    async fn lasts<T>(&self, value: T) -> Result<T, Fault> {
        match self.mood {
            Mood::Good => Ok(value),
            Mood::Failing => Err(Fault::new(FaultKind::Later, "Broken", "the base does not answer")),
            Mood::Hanging => std::future::pending().await,
            Mood::Panicking => panic!("a defect"),
        }
    }

    fn pod() -> Pod {
        let status = |name: &str, state: serde_json::Value| json!({"name": name, "ready": false, "restartCount": 0, "image": "i:1", "imageID": "", "state": state});
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}, {"name": "new", "image": "i:1"}]},
            "status": {"containerStatuses": [
                status("c", json!({"running": {}})),
                status("new", json!({"waiting": {"reason": "ContainerCreating"}})),
            ]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn id() -> PodId {
        PodId {
            uid: "u".into(),
            namespace: "default".into(),
            name: "web".into(),
            node: "n".into(),
        }
    }
}

fn missing(what: &str) -> Fault {
    Fault::new(FaultKind::NotFound, "NotFound", what)
}

impl Backend for Fake {
    fn pods<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Vec<Arc<Pod>>> {
        Box::pin(ready(vec![Arc::new(Self::pod())]))
    }

    fn container<'a>(&'a self, wanted: &'a Wanted) -> Served<'a, (PodId, ContainerId)> {
        let this = wanted.uid.as_deref().is_none_or(|uid| uid == "u");
        let found = if wanted.container == "c" && this {
            let id = if wanted.previous { "fake://c0" } else { "fake://c1" };
            Ok((Self::id(), ContainerId(id.into())))
        } else {
            Err(missing("no such container"))
        };
        Box::pin(ready(found))
    }

    fn pod<'a>(
        &'a self,
        node: &'a str,
        namespace: &'a str,
        name: &'a str,
        _: Option<&'a str>,
    ) -> Served<'a, (PodId, Arc<Pod>)> {
        let known = (node, namespace, name) == ("n", "default", "web");
        let found = known.then(|| (Self::id(), Arc::new(Self::pod())));
        Box::pin(ready(found.ok_or_else(|| missing("no such pod"))))
    }

    fn ill(&self, _: &str) -> Option<String> {
        self.ill.clone()
    }

    fn logs<'a>(
        &'a self,
        _: &'a PodId,
        container: &'a ContainerId,
        options: &'a LogOptions,
    ) -> Served<'a, LogStream> {
        self.asked
            .lock()
            .unwrap()
            .push((container.clone(), options.clone()));
        let lines = stream::iter(["one\n", "two\n"]).map(|line| Ok(Bytes::from(line)));
        let stream = if options.follow {
            let guard: DropGuard = self.log_dropped.clone().drop_guard();
            lines
                .chain(stream::pending().map(move |chunk| {
                    let _ = &guard;
                    chunk
                }))
                .boxed()
        } else {
            lines.boxed()
        };
        Box::pin(self.lasts(stream))
    }

    fn exec<'a>(
        &'a self,
        _: &'a PodId,
        _: &'a ContainerId,
        command: &'a [String],
        mut io: ExecIo,
    ) -> Served<'a, i32> {
        Box::pin(async move {
            self.lasts(()).await?;
            let code = i32::from(command[0] == "false");
            let (mut stdout, mut stderr) = (io.stdout.take().unwrap(), io.stderr.take().unwrap());
            stdout.write_all(command.join("+").as_bytes()).await.unwrap();
            stderr.write_all(b" and errors").await.unwrap();
            Ok(code)
        })
    }

    fn attach<'a>(&'a self, _: &'a PodId, _: &'a ContainerId, _: ExecIo) -> Served<'a, i32> {
        Box::pin(self.lasts(0))
    }

    fn port_forward<'a>(&'a self, _: &'a PodId, _: u16) -> Served<'a, Box<dyn Duplex>> {
        let (near, _) = tokio::io::duplex(64);
        let near: Box<dyn Duplex> = Box::new(near);
        Box::pin(self.lasts(near))
    }

    fn stats<'a>(&'a self, _: &'a str) -> Served<'a, NodeStats> {
        let at = |text: &str| text.parse().unwrap();
        let container = |name: &str, cpu_nanoseconds| ContainerStats {
            name: name.to_owned(),
            since: at("2026-01-01T00:00:01.5Z"),
            cpu_nanoseconds,
            cpu_nanocores: 7,
            memory_working_set: 1_000,
        };
        let stats = NodeStats {
            at: at("2026-01-01T00:01:00.25Z"),
            since: at("2026-01-01T00:00:00Z"),
            cpu_nanoseconds: 9_500_000_000,
            cpu_nanocores: 20,
            memory_working_set: 3_000,
            memory_capacity: 10_000,
            pods: vec![PodStats {
                id: Self::id(),
                since: at("2026-01-01T00:00:01Z"),
                containers: vec![container("c", 1_000_000_000), container("new", 250_000_000)],
            }],
        };
        Box::pin(self.lasts(stats))
    }

    fn list<'a>(&'a self, _: &'a str) -> Served<'a, Vec<PodId>> {
        let stray = PodId {
            uid: "x".into(),
            name: "stray".into(),
            ..Self::id()
        };
        Box::pin(self.lasts(vec![Self::id(), stray]))
    }
}
