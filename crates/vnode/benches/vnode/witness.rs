//! A provider that writes down when it was asked about which node, so that it can be proven that no node was
//! served by two. The file outlives a process that is killed.

use evenkeel_election::clock::{Clock as _, SystemClock};
use evenkeel_probe::core::{Attempt, Outcome};
use evenkeel_vnode::Provider;
use evenkeel_vnode::provider::{
    ContainerId, Duplex, ExecIo, Exit, Host, LogOptions, LogStream, NodeHealth, NodeStats, NodeTemplate,
    PodId, PodRequest, PodState, Refusal, Runtime, Sandbox, Served, StartRequest, Started,
};
use evenkeel_vnode_simulated::Simulated;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The provider of one replica.
pub(crate) struct Witness {
    inner: Simulated,
    file: File,
}

/// One entry of the record.
pub(crate) struct Entry {
    /// Since the machine's start.
    pub(crate) at: Duration,
    pub(crate) node: String,
    /// The node was given back, else something was asked for it.
    pub(crate) is_release: bool,
}

/// The time of entries, the same in all processes.
pub(crate) fn now() -> Duration {
    SystemClock.boot()
}

/// What a process has written down so far.
pub(crate) fn read(file: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(file).unwrap();
    // A process that was killed may have left half a line.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let entries = whole.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        Entry {
            at: Duration::from_nanos(words[0].parse().unwrap()),
            node: words[2].to_owned(),
            is_release: words[1] == "release",
        }
    });
    entries.collect()
}

impl Witness {
    pub(crate) fn new(inner: Simulated, file: &Path) -> Self {
        let file = File::options().create(true).append(true).open(file).unwrap();
        Self { inner, file }
    }

    fn note(&self, what: &str, node: &str) {
        let line = format!("{} {what} {node}\n", now().as_nanos());
        // One write of a file that is opened for appending is not torn by others.
        (&self.file).write_all(line.as_bytes()).unwrap();
    }
}

impl Provider for Witness {
    fn runtime(&self) -> Runtime {
        self.inner.runtime()
    }

    fn connect(&self, host: Arc<dyn Host>) {
        self.inner.connect(host);
    }

    fn node(&self, name: &str) -> NodeTemplate {
        self.inner.node(name)
    }

    fn ping<'a>(&'a self, node: &'a str) -> Served<'a, NodeHealth> {
        self.note("ping", node);
        self.inner.ping(node)
    }

    fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        self.inner.admit(pod)
    }

    fn list<'a>(&'a self, node: &'a str) -> Served<'a, Vec<PodId>> {
        self.note("list", node);
        self.inner.list(node)
    }

    fn status<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Option<PodState>> {
        self.note("status", &pod.id.node);
        self.inner.status(pod)
    }

    fn create<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Sandbox> {
        self.note("create", &pod.id.node);
        self.inner.create(pod)
    }

    fn update<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, ()> {
        self.note("update", &pod.id.node);
        self.inner.update(pod)
    }

    fn start<'a>(&'a self, request: &'a StartRequest) -> Served<'a, Started> {
        self.note("start", &request.pod.id.node);
        self.inner.start(request)
    }

    fn stop<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, grace: Duration) -> Served<'a, Exit> {
        self.note("stop", &pod.node);
        self.inner.stop(pod, container, grace)
    }

    fn release(&self, node: &str) {
        self.note("release", node);
        self.inner.release(node);
    }

    fn delete<'a>(&'a self, pod: &'a PodId) -> Served<'a, ()> {
        self.note("delete", &pod.node);
        self.inner.delete(pod)
    }

    fn logs<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        options: &'a LogOptions,
    ) -> Served<'a, LogStream> {
        self.inner.logs(pod, container, options)
    }

    fn exec<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        command: &'a [String],
        io: ExecIo,
    ) -> Served<'a, i32> {
        self.note("exec", &pod.node);
        self.inner.exec(pod, container, command, io)
    }

    fn attach<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, io: ExecIo) -> Served<'a, i32> {
        self.note("attach", &pod.node);
        self.inner.attach(pod, container, io)
    }

    fn port_forward<'a>(&'a self, pod: &'a PodId, port: u16) -> Served<'a, Box<dyn Duplex>> {
        self.note("port-forward", &pod.node);
        self.inner.port_forward(pod, port)
    }

    fn stats<'a>(&'a self, node: &'a str) -> Served<'a, NodeStats> {
        self.inner.stats(node)
    }

    fn probe<'a>(&'a self, pod: &'a PodId, attempt: &'a Attempt) -> Option<BoxFuture<'a, Outcome>> {
        self.note("probe", &pod.node);
        self.inner.probe(pod, attempt)
    }
}
