//! Metrics of elections: client-go's under their own names, and further ones.

use crate::clock::Clock;
use crate::gate::Gate;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Label of an election: the name of its lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: String,
}

/// Labels of a request on a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    name: String,
    verb: &'static str,
    result: &'static str,
}

/// Metrics of all elections of a process. Cheap to clone.
///
/// Their list is `docs/metrics.md`.
#[derive(Clone, Debug)]
pub struct Metrics {
    master_status: Family<Name, Gauge>,
    slow_path: Family<Name, Counter>,
    transitions: Family<Name, Counter>,
    losses: Family<Name, Counter>,
    requests: Family<Request, Histogram>,
    gates: Gates,
}

type Watched = (String, Gate, Arc<dyn Clock>);

/// Gates whose values are read at each scrape.
#[derive(Clone, Default)]
struct Gates(Arc<Mutex<Vec<Watched>>>);

impl std::fmt::Debug for Gates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gates").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Registers the metrics, once per process.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            master_status: Family::default(),
            slow_path: Family::default(),
            transitions: Family::default(),
            losses: Family::default(),
            requests: Family::new_with_constructor(|| {
                Histogram::new([
                    0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
                ])
            }),
            gates: Gates::default(),
        };
        let all = registry.sub_registry_with_prefix("leader_election");
        all.register(
            "master_status",
            "1 while this candidate leads, else 0",
            metrics.master_status.clone(),
        );
        all.register(
            "slowpath",
            "Renewals of the lock that had to read it first; the others are a single write",
            metrics.slow_path.clone(),
        );
        all.register(
            "transitions",
            "Times that this candidate became leader",
            metrics.transitions.clone(),
        );
        all.register(
            "losses",
            "Times that this candidate lost leadership without having given it up",
            metrics.losses.clone(),
        );
        all.register_with_unit(
            "request_duration",
            "How long requests on the lock took",
            Unit::Seconds,
            metrics.requests.clone(),
        );
        registry.register_collector(Box::new(metrics.gates.clone()));
        metrics
    }

    /// The metrics of the election with this name.
    pub(crate) fn of(&self, name: &str, gate: &Gate, clock: &Arc<dyn Clock>) -> ElectionMetrics {
        let label = Name {
            name: name.to_owned(),
        };
        let watched = (name.to_owned(), gate.clone(), Arc::clone(clock));
        let mut gates = self.gates.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A candidate that campaigns anew under the same name takes the last one's place.
        gates.retain(|(other, ..)| other != name);
        gates.push(watched);
        self.master_status.get_or_create(&label).set(0);
        drop(self.slow_path.get_or_create(&label));
        ElectionMetrics {
            all: self.clone(),
            label,
        }
    }
}

impl Collector for Gates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "leader_election_write_gate_rejections",
            "Writes that were refused because it was no longer certain that this candidate leads",
            None,
            MetricType::Counter,
        )?;
        for (name, gate, _) in gates.iter() {
            let label = Name { name: name.clone() };
            ConstCounter::new(gate.rejections()).encode(family.encode_family(&label)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "leader_election_time_to_deadline",
            "For how long from now it is certain that this candidate leads; 0 when it is not",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for (name, gate, clock) in gates.iter() {
            let until = gate.valid_until().unwrap_or_default();
            let left = until.saturating_sub(clock.boot()).as_secs_f64();
            let label = Name { name: name.clone() };
            ConstGauge::new(left).encode(family.encode_family(&label)?)?;
        }
        Ok(())
    }
}

/// The metrics of one election.
#[derive(Clone, Debug)]
pub(crate) struct ElectionMetrics {
    all: Metrics,
    label: Name,
}

impl ElectionMetrics {
    pub(crate) fn leading(&self, leads: bool) {
        self.all
            .master_status
            .get_or_create(&self.label)
            .set(i64::from(leads));
    }

    pub(crate) fn slow_path(&self) {
        self.all.slow_path.get_or_create(&self.label).inc();
    }

    pub(crate) fn term_begun(&self) {
        self.all.transitions.get_or_create(&self.label).inc();
    }

    pub(crate) fn lost(&self) {
        self.all.losses.get_or_create(&self.label).inc();
    }

    pub(crate) fn request(&self, verb: &'static str, result: &'static str, took: Duration) {
        let request = Request {
            name: self.label.name.clone(),
            verb,
            result,
        };
        self.all
            .requests
            .get_or_create(&request)
            .observe(took.as_secs_f64());
    }
}
