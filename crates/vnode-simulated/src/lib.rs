//! A provider without containers: pods start, log, serve, crash and end as their annotations say
//! ([`evenkeel_api::names::simulated`]); without any, they run for ever and cost next to nothing.
//!
//! | annotation `simulated.evenkeel.io/…` | value | meaning |
//! |---|---|---|
//! | `start-delay` | `800ms` | time that a container takes to start |
//! | `crash-after`, `exit-after` | `30s` | it ends by itself, badly or well |
//! | `exit-code`, `exit-message` | `3`, text | how it ends then |
//! | `stop-delay`, `stop-code` | `5s`, `143` | how it heeds TERM; the grace period is kept |
//! | `readiness`, `liveness`, `startup` | `not-ready 5s, ready 10s, not-ready` | what probes find (`ok`, `fail`, `broken`, `silent` too) |
//! | `log`, `log-interval` | lines, `1s` | what it logs; `{n}`, `{pod}` and `{container}` are filled in |
//! | `pull-error`, `start-error` | `2`, `always: MESSAGE` | starts that fail |
//! | `run` | `command` | the container's own command is run, if it is one of the built-in programs (`sh` runs one command a line) |
//! | `serve` | `true`, `8080,9090` | real sockets: HTTP, gRPC health, TCP, on an address in 127/8 |
//! | `healthy-for` | `1m` | with sockets: `/healthz` answers 500 from then on |
//! | `cpu`, `memory` | `250m`, `64Mi` | what statistics tell |
//!
//! Each may be followed by `.CONTAINER` to mean one container alone. A container's ID tells its node's boot:
//! who adopts a pod takes up its containers where the API server last saw them, unless the node has booted
//! since.
//!
//! ```no_run
//! use evenkeel_vnode::{Fleet, Options};
//! use evenkeel_vnode_simulated::{Settings, Simulated};
//! use std::sync::Arc;
//!
//! async fn nodes(client: kube::Client) -> Fleet {
//!     let provider = Arc::new(Simulated::new(Settings::default()));
//!     let options = Options::new("example", &*provider, vec![[10, 0, 0, 7].into()]);
//!     let fleet = Fleet::start(client, provider, options, Default::default());
//!     fleet.add("example-0");
//!     fleet
//! }
//! ```
#![allow(
    missing_docs,
    reason = "a provider for the lab and for tests, no library: names say what most fields are"
)]

pub mod address;
mod adopt;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
mod commands;
mod fs;
mod identity;
mod life;
mod live;
mod log;
mod output;
mod plan;
mod probe;
mod provider;
mod remote;
mod serve;
mod shape;
mod stats;
mod table;
mod timers;

use address::Cidr;
use clock::Clock;
use evenkeel_vnode::provider::{Fault, FaultKind, Host, NodeTemplate, PodId, Report};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use table::Table;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How simulated nodes are.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Time that a container takes to start where no annotation gives it.
    pub start_delay: Duration,
    /// Time that a container takes to heed TERM where no annotation gives it.
    pub stop_delay: Duration,
    /// What is published of every node; capacity and boot are filled in where they are empty.
    pub template: NodeTemplate,
    /// What single nodes have of their own.
    pub nodes: BTreeMap<String, NodeSettings>,
    /// Most bytes that files of all pods take together; else 1 GiB.
    pub files: Option<u64>,
    /// What time it is.
    pub clock: Clock,
}

/// What a node has of its own.
#[derive(Clone, Debug, Default)]
pub struct NodeSettings {
    /// Addresses of its pods; else a /24 of 10.64.0.0/10 by the number at the end of its name.
    pub range: Option<Cidr>,
    /// Its boot; else derived from its name. A new one says that all containers are gone.
    pub boot: Option<String>,
}

/// The provider. Cheap to clone: all clones are one.
#[derive(Clone)]
pub struct Simulated(Arc<Inner>);

struct Inner {
    settings: Settings,
    host: OnceLock<Arc<dyn Host>>,
    table: Mutex<Table>,
    shapes: shape::Shapes,
    timers: Arc<timers::Timers>,
    /// What files of all pods take.
    files: Arc<fs::Pool>,
    /// Ends the task that waits for deadlines, with the provider.
    shutdown: CancellationToken,
    _ends: DropGuard,
}

impl Simulated {
    /// A provider of nodes that have nothing yet.
    pub fn new(settings: Settings) -> Self {
        let shutdown = CancellationToken::new();
        Self(Arc::new(Inner {
            files: fs::Pool::new(settings.files.unwrap_or(fs::Pool::MOST)),
            settings,
            host: OnceLock::new(),
            table: Mutex::default(),
            shapes: shape::Shapes::default(),
            timers: Arc::default(),
            _ends: shutdown.clone().drop_guard(),
            shutdown,
        }))
    }

    /// From now on pings of the node fail with this message; `None`: it is well again. Its pods run on.
    pub fn fail_node(&self, node: &str, message: Option<String>) {
        let now = self.0.now();
        self.0.table().node(node, &self.0.settings, now).ailment = message;
        self.0.report(Report::Node { name: node.into() });
    }

    /// The node loses power and comes back at once, with a new boot: all its containers vanish.
    pub fn power_off(&self, node: &str) {
        for report in self.0.lose(node) {
            self.0.report(report);
        }
        self.0.report(Report::Node { name: node.into() });
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every operation leaves the table whole, so a panic elsewhere says nothing of it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> jiff::Timestamp {
        self.settings.clock.now()
    }

    fn report(&self, report: Report) {
        if let Some(host) = self.host.get() {
            host.report(report);
        }
    }
}

fn no_pod(pod: &PodId) -> Fault {
    Fault::new(
        FaultKind::NotFound,
        "NotFound",
        format!("pod {pod} ({}) is not on node {}", pod.uid, pod.node),
    )
}

fn no_container(pod: &PodId, id: &str) -> Fault {
    Fault::new(
        FaultKind::NotFound,
        "NotFound",
        format!("pod {pod} has no container {id}: it was removed or its node was powered off"),
    )
}

#[cfg(test)]
mod tests;
