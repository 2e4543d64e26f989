//! What a pod's annotations say of how its containers are to be played. Pure.

pub(crate) mod amount;
mod read;
mod script;

pub(crate) use read::{admit, plan};
pub(crate) use script::{Answer, Script};

use std::time::Duration;

/// How one container is played. The default plays for ever and does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// Time that it takes to start; the fleet's where nothing is said.
    pub(crate) start_delay: Option<Duration>,
    /// When it ends by itself.
    pub(crate) end: Option<End>,
    /// Time that it takes to heed TERM; the fleet's where nothing is said.
    pub(crate) stop_delay: Option<Duration>,
    /// Code with which it ends when it heeds TERM.
    pub(crate) stop_code: i32,
    /// Answers of the readiness probe.
    pub(crate) readiness: Option<Script>,
    /// Answers of the liveness probe.
    pub(crate) liveness: Option<Script>,
    /// Answers of the startup probe.
    pub(crate) startup: Option<Script>,
    /// What it logs, line by line.
    pub(crate) log: Vec<String>,
    /// Time from one line to the next, beginning anew after the last; zero: all at the start, once.
    pub(crate) log_interval: Duration,
    /// Starts that fail for the image.
    pub(crate) pull_error: Option<Failing>,
    /// Starts that fail otherwise.
    pub(crate) start_error: Option<Failing>,
    /// Whether its command is run.
    pub(crate) runs: bool,
    pub(crate) serve: Option<Serve>,
    /// CPU in billionths of a core.
    pub(crate) cpu: Option<u64>,
    /// Memory in bytes.
    pub(crate) memory: Option<u64>,
}

/// An end that comes by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct End {
    /// So long after the start.
    pub(crate) after: Duration,
    pub(crate) code: i32,
    pub(crate) message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Failing {
    /// So many; for ever where `None`.
    pub(crate) times: Option<u32>,
    /// What is said of it; the provider's own words where empty.
    pub(crate) message: String,
}

/// Sockets of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Serve {
    /// Ports beside those that the container declares or that its probes name.
    pub(crate) ports: Vec<u16>,
    /// `/healthz` answers 500 so long after the start.
    pub(crate) healthy_for: Option<Duration>,
}

impl Plan {
    /// For how long an init container works where nothing is said.
    pub(crate) const MOMENT: Duration = Duration::from_millis(100);

    /// The script of a probe.
    pub(crate) fn script(&self, kind: evenkeel_probe::core::Kind) -> Option<&Script> {
        use evenkeel_probe::core::Kind;
        match kind {
            Kind::Readiness => self.readiness.as_ref(),
            Kind::Liveness => self.liveness.as_ref(),
            Kind::Startup => self.startup.as_ref(),
        }
    }
}
