//! Builds and starts a candidate.

use crate::callbacks::Callbacks;
use crate::clock::{Clock, SystemClock};
use crate::core::{Compat, Config, ConfigError, Machine};
use crate::election::{Election, Request};
use crate::gate::{Claim, Gate, GateInUse};
use crate::health::{Health, HealthAdaptor};
use crate::lock::Lock;
use crate::metrics::Metrics;
use crate::shell::Shell;
use crate::terms::TermFile;
use crate::work::Works;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A candidate that has not been started yet.
pub struct Elector {
    lock: Arc<dyn Lock>,
    machine: Machine,
    clock: Arc<dyn Clock>,
    gate: Option<(Gate, Claim)>,
    request_timeout: Duration,
    metrics: Option<Metrics>,
    callbacks: Option<Callbacks>,
    watchdog: Option<HealthAdaptor>,
    terms: Option<TermFile>,
}

impl Elector {
    /// A candidate for `lock`.
    ///
    /// # Errors
    /// The configuration is refused with client-go's texts.
    pub fn new(lock: impl Lock, config: Config) -> Result<Self, ConfigError> {
        let request_timeout = config.request_timeout();
        Ok(Self {
            lock: Arc::new(lock),
            machine: Machine::new(config)?,
            clock: Arc::new(SystemClock),
            gate: None,
            request_timeout,
            metrics: None,
            callbacks: None,
            watchdog: None,
            terms: None,
        })
    }

    /// Lets this candidate open and close a gate for which clients exist already. Without this it makes a
    /// gate of its own ([`Election::gate`]).
    ///
    /// # Errors
    /// Another elector uses the gate.
    pub fn with_gate(mut self, gate: &Gate) -> Result<Self, GateInUse> {
        self.gate = Some((gate.clone(), gate.claim()?));
        Ok(self)
    }

    /// Uses another clock, for tests in virtual time. The gate must use the same one.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Limits the time of one request on the lock. The default is half of the renew deadline, so that two
    /// requests fit into it; under [`Compat::ClientGo`] it is at least 1 s, as in
    /// client-go's own lock client.
    #[must_use]
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Counts this election in the process's metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Calls these functions at changes, as client-go does. The stream of states works as well.
    #[must_use]
    pub fn with_callbacks(mut self, callbacks: Callbacks) -> Self {
        self.callbacks = Some(callbacks);
        self
    }

    /// Makes a health check report on this election.
    #[must_use]
    pub fn with_watchdog(mut self, watchdog: &HealthAdaptor) -> Self {
        self.watchdog = Some(watchdog.clone());
        self
    }

    /// Records the terms that this process holds. If it ends without releasing the lock, the next process of
    /// the same fixed identity can then take it at once. Has no effect under [`Compat::ClientGo`] and in
    /// coordinated elections. Do not use this if the guarded work may outlive the process.
    #[must_use]
    pub fn with_term_file(mut self, terms: &TermFile) -> Self {
        self.terms = Some(terms.clone());
        self
    }

    /// Starts the candidate, in the present tokio runtime. It campaigns until `shutdown`, or ends by itself
    /// as its configuration says ([`OnLoss`](crate::OnLoss)).
    pub fn run(self, shutdown: CancellationToken) -> Election {
        let (gate, claim) = self.gate.map_or_else(
            || {
                let gate = Gate::with_clock(Arc::clone(&self.clock));
                // This gate is new, so nobody else can have claimed it.
                let claim = gate.claim().ok();
                (gate, claim)
            },
            |(gate, claim)| (gate, Some(claim)),
        );
        let lock_name = self.lock.describe();
        let (states_in, states) = mpsc::unbounded_channel();
        let (latest_in, latest) = watch::channel(self.machine.state().clone());
        let (renewals_in, renewals) = watch::channel(());
        let (requests, asked) = mpsc::unbounded_channel();
        let config = self.machine.config();
        // There a record of our name is taken in any case, or by others' word.
        let terms = self
            .terms
            .filter(|_| config.compat == Compat::Evenkeel && !config.coordinated);
        let works = Works::new(terms.clone());
        let health = Health {
            machine: Arc::new(Mutex::new(self.machine)),
            clock: Arc::clone(&self.clock),
            lock: lock_name.as_str().into(),
        };
        if let Some(watchdog) = self.watchdog {
            watchdog.watch(health.clone());
        }
        let metrics = self
            .metrics
            .map(|metrics| metrics.of(&lock_name, &gate, &self.clock));
        let (notices, callbacks) = match self.callbacks {
            Some(callbacks) => {
                let (notices, heard) = mpsc::unbounded_channel();
                let requests = requests.clone();
                let hand_over = move || {
                    // A candidate that has ended does not lead either.
                    let _ = requests.send(Request::StepDown);
                };
                (
                    Some(notices),
                    Some(callbacks.run(works.clone(), heard, hand_over)),
                )
            }
            None => (None, None),
        };
        let shell = Shell::new(
            self.lock,
            health.clone(),
            gate.clone(),
            claim,
            works.clone(),
            metrics,
            self.request_timeout,
            terms,
            crate::shell::Observers {
                states: states_in,
                latest: latest_in,
                renewals: renewals_in,
                notices,
            },
        );
        let task = tokio::spawn(async move {
            // Callbacks run in a task of their own, so that one that blocks does not delay the candidate.
            let mut called = JoinSet::new();
            if let Some(callbacks) = callbacks {
                called.spawn(callbacks);
            }
            shell.run(asked, shutdown).await;
            while called.join_next().await.is_some() {}
        });
        Election {
            states,
            latest,
            renewals,
            gate,
            works,
            health,
            requests,
            task,
        }
    }
}

/// An identity that no other candidate has: the host name and a random number.
pub fn unique_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() {
        "unknown-host"
    } else {
        host.trim()
    };
    unique_identity_of(host)
}

/// An identity that no other candidate has: the given name and a random number.
pub fn unique_identity_of(name: &str) -> String {
    format!("{name}_{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests;
