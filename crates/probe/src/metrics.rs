//! Numbers of probes: upstream's by their names, and ours.

use crate::core::Reading;
use crate::core::engine::Histogram;
use crate::manager::{Row, Shared};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How late attempts were. Finer than [`Histogram`] where it matters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lags {
    counts: [u64; Lags::BOUNDS.len() + 1],
    sum: Duration,
}

impl Lags {
    /// In seconds. A timer is good for 1 ms; beyond 20 ms a prober has too much to do.
    const BOUNDS: [f64; 11] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

    pub(crate) fn observe(&mut self, lag: Duration) {
        let seconds = lag.as_secs_f64();
        let bucket = Self::BOUNDS.partition_point(|bound| *bound < seconds);
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.sum = self.sum.saturating_add(lag);
    }

    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        let counted = Self::BOUNDS.into_iter().zip(self.counts);
        histogram(encoder, counted, self.counts.iter().sum(), self.sum)
    }
}

/// Writes counts by upper bound; those above the last bound are in `count` alone.
fn histogram(
    mut encoder: MetricEncoder<'_>,
    buckets: impl Iterator<Item = (f64, u64)>,
    count: u64,
    sum: Duration,
) -> fmt::Result {
    let mut buckets: Vec<(f64, u64)> = buckets.collect();
    // They may come from a state file, with any numbers in it.
    let bounded = buckets
        .iter()
        .fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    buckets.push((f64::INFINITY, count.saturating_sub(bounded)));
    encoder.encode_histogram::<NoLabelSet>(sum.as_secs_f64(), count, &buckets, None)
}

/// Metrics of a manager, made when somebody asks: series end with their worker.
///
/// Their list is `docs/metrics.md`.
pub struct ProbeMetrics {
    shared: Weak<Shared>,
}

impl fmt::Debug for ProbeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeMetrics").finish_non_exhaustive()
    }
}

impl ProbeMetrics {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::downgrade(shared),
        }
    }
}

impl Row {
    fn labels(&self) -> [(&'static str, &str); 5] {
        let [kind, container, pod, namespace] = self.duration_labels();
        [kind, container, pod, namespace, ("pod_uid", &self.key.pod)]
    }

    fn duration_labels(&self) -> [(&'static str, &str); 4] {
        [
            ("probe_type", self.key.kind.name()),
            ("container", &self.key.container),
            ("pod", &self.pod),
            ("namespace", &self.namespace),
        ]
    }

    fn result_labels(&self, result: &'static str) -> [(&'static str, &str); 6] {
        let [kind, container, pod, namespace, uid] = self.labels();
        [kind, ("result", result), container, pod, namespace, uid]
    }
}

fn result(reading: Reading) -> &'static str {
    match reading {
        Reading::Success => "successful",
        Reading::Failure => "failed",
        Reading::Unknown => "unknown",
    }
}

fn count(mut encoder: MetricEncoder<'_>, value: &impl EncodeCounterValue) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
}

impl Collector for ProbeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(());
        };
        let mut sample = shared.sample();
        sample.rows.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let rows = &sample.rows;

        let mut family = encoder.encode_descriptor(
            "prober_probe",
            "Attempts of probes by result, as the kubelet counts them; unknown is counted in strict mode only",
            None,
            MetricType::Counter,
        )?;
        for row in rows {
            for (name, value) in [
                ("successful", row.tally.successful),
                ("failed", row.tally.failed),
                ("unknown", row.tally.unknown),
            ] {
                if value > 0 {
                    count(family.encode_family(&row.result_labels(name))?, &value)?;
                }
            }
        }
        let mut family = encoder.encode_descriptor(
            "prober_probe_duration",
            "How long attempts took, whatever their end (the kubelet leaves failures out)",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        // Upstream's labels do not tell a pod from its successor of the same name, and no series may be there
        // twice.
        let mut durations: BTreeMap<_, Histogram> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.tally.durations.count > 0) {
            durations
                .entry(row.duration_labels())
                .or_default()
                .add(&row.tally.durations);
        }
        for (labels, Histogram { buckets, count, sum }) in durations {
            let counted = Histogram::BOUNDS.into_iter().zip(buckets);
            histogram(family.encode_family(&labels)?, counted, count, sum)?;
        }
        let mut family = encoder.encode_descriptor(
            "evenkeel_probe_errors",
            "Attempts that could not be made, and so say nothing about the container",
            None,
            MetricType::Counter,
        )?;
        for row in rows {
            count(family.encode_family(&row.labels())?, &row.tally.errored)?;
        }
        let mut family = encoder.encode_descriptor(
            "evenkeel_probe_state",
            "What is published about a container: 0 success, 1 failure, -1 unknown; absent before the container is known",
            None,
            MetricType::Gauge,
        )?;
        for row in rows {
            if let Some(published) = row.published {
                family
                    .encode_family(&row.labels())?
                    .encode_gauge(&published.gauge())?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "evenkeel_probe_run",
            "How many of the latest attempts in a row had the same result",
            None,
            MetricType::Gauge,
        )?;
        for row in rows {
            if let (Some(last), run) = row.run {
                family
                    .encode_family(&row.result_labels(result(last)))?
                    .encode_gauge(&i64::from(run))?;
            }
        }
        let lags = encoder.encode_descriptor(
            "evenkeel_probe_lag",
            "How much later than planned attempts began; more than 0.02 says that this process has too much to do",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        sample.lags.encode(lags)?;
        for (name, help, value) in [
            (
                "evenkeel_probe_attempts_in_flight",
                "Attempts that are being made now",
                sample.in_flight,
            ),
            (
                "evenkeel_probe_attempts_waiting",
                "Attempts that are due and wait, because as many are being made as may be",
                sample.waiting,
            ),
            (
                "evenkeel_probe_workers",
                "Probes of containers that are being made again and again",
                rows.len(),
            ),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&(value as i64))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
