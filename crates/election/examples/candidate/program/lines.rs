//! Lines of standard output, as `interop/clientgo` prints them.

use evenkeel_election::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Prints one event at a time; times grow from line to line.
#[derive(Clone, Debug)]
pub(crate) struct Printer {
    identity: String,
    turn: Arc<Mutex<()>>,
}

impl Printer {
    pub(crate) fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            turn: Arc::default(),
        }
    }

    /// The gate is open.
    pub(crate) fn started(&self, lease: &str, transitions: i32) {
        self.print(json!({"event": "started", "lease": lease, "transitions": transitions}));
    }

    /// The gate is closed; it was last seen open at `acted_until`.
    pub(crate) fn stopped(&self, lease: &str, transitions: i32, acted_until: Duration) {
        let nanos = nanos(acted_until);
        self.print(
            json!({"event": "stopped", "lease": lease, "transitions": transitions, "acted_until_ns": nanos}),
        );
    }

    /// Somebody else leads, or nobody.
    pub(crate) fn leader(&self, lease: &str, leader: &str) {
        self.print(json!({"event": "leader", "lease": lease, "leader": leader}));
    }

    pub(crate) fn requests(&self, lease: &str, requests: u64) {
        self.print(json!({"event": "requests", "lease": lease, "requests": requests}));
    }

    pub(crate) fn exit(&self) {
        self.print(json!({"event": "exit"}));
    }

    fn print(&self, mut line: Value) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        line["identity"] = json!(self.identity);
        line["at_boot_ns"] = json!(nanos(boot_time()));
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            tracing::warn!(%line, "standard output is closed");
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Time since boot, the time asleep included.
pub(crate) fn boot_time() -> Duration {
    SystemClock.boot()
}
