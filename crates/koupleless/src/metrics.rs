//! Metrics of bases, and of the calls that are made to them.

use crate::discovery::{Census, Discovery};
use evenkeel_api::names::koupleless::metrics as names;
use evenkeel_arklet::health::Health;
use evenkeel_arklet::{
    Answer, Base, BatchOutcome, Command, ErrorKind, Install, ModuleId, ModuleList, Outcome, Tunnel,
    TunnelError,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::future::Future;
use std::sync::Arc;
use tokio::time::Instant;

/// How a call of a base ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum CallResult {
    /// The base has done it.
    Ok,
    /// The base answered that it could not do it.
    Failed,
    /// No answer came, or none that can be read.
    Unanswered,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    command: &'static str,
    result: CallResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    command: &'static str,
}

/// Whether a base is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Life {
    /// The base was heard of lately.
    Alive,
    /// Nothing was heard of the base for too long.
    Silent,
    /// The base is gone, and its node is still there.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Living {
    life: Life,
}

evenkeel_net::metrics! {
    /// Numbers of one process. Clones are the same ones.
    pub(crate) struct Metrics {
        calls: Family<Called, Counter> = names::CALLS, "Calls of bases by arklet's command and by result";
        durations: Family<Named, Histogram> =
            names::CALL_DURATION,
            "How long calls of bases took; the time of an install includes waiting for its end",
            // Up to 5 min, which an install may take.
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.005, 3.0, 11)));
    }
}

impl Metrics {
    /// Registers the metrics, among them the bases that `discovery` knows at the time of each scrape.
    pub(crate) fn register(&self, discovery: &Discovery, registry: &mut Registry) {
        self.register_in(registry);
        registry.register_collector(Box::new(Lives(discovery.clone())));
    }

    /// A way to bases on which each operation is counted.
    pub(crate) fn counting(&self, inner: Arc<dyn Tunnel>) -> Arc<dyn Tunnel> {
        Arc::new(Counted {
            inner,
            metrics: self.clone(),
        })
    }

    async fn count<T>(
        &self,
        command: Command,
        is_well: impl FnOnce(&T) -> bool,
        call: impl Future<Output = Result<T, TunnelError>>,
    ) -> Result<T, TunnelError> {
        let begun = Instant::now();
        let answer = call.await;
        let result = match &answer {
            Ok(answer) if is_well(answer) => CallResult::Ok,
            Ok(_) => CallResult::Failed,
            Err(error) if matches!(error.kind, ErrorKind::Refused { .. }) => CallResult::Failed,
            Err(_) => CallResult::Unanswered,
        };
        let command = command.id();
        self.calls.get_or_create(&Called { command, result }).inc();
        let took = begun.elapsed().as_secs_f64();
        self.durations.get_or_create(&Named { command }).observe(took);
        answer
    }
}

/// Bases by life, of nodes that this replica serves: over all replicas each is counted once.
#[derive(Debug)]
struct Lives(Discovery);

impl Collector for Lives {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Census { alive, silent, lost } = self.0.census();
        let mut family = encoder.encode_descriptor(
            names::BASES,
            "Bases of the nodes that this replica serves; summed over all replicas each base counts once",
            None,
            MetricType::Gauge,
        )?;
        for (life, count) in [(Life::Alive, alive), (Life::Silent, silent), (Life::Lost, lost)] {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&Living { life })?)?;
        }
        Ok(())
    }
}

struct Counted {
    inner: Arc<dyn Tunnel>,
    metrics: Metrics,
}

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done { .. })
}

impl Tunnel for Counted {
    fn health<'a>(&'a self, base: &'a Base) -> Answer<'a, Health> {
        let call = self.inner.health(base);
        Box::pin(self.metrics.count(Command::Health, |_| true, call))
    }

    fn modules<'a>(&'a self, base: &'a Base) -> Answer<'a, ModuleList> {
        let call = self.inner.modules(base);
        Box::pin(self.metrics.count(Command::QueryAllBiz, |_| true, call))
    }

    fn install<'a>(&'a self, base: &'a Base, install: &'a Install) -> Answer<'a, Outcome> {
        let call = self.inner.install(base, install);
        Box::pin(self.metrics.count(Command::InstallBiz, is_done, call))
    }

    fn uninstall<'a>(&'a self, base: &'a Base, module: &'a ModuleId) -> Answer<'a, Outcome> {
        let call = self.inner.uninstall(base, module);
        Box::pin(self.metrics.count(Command::UninstallBiz, Outcome::is_gone, call))
    }

    fn switch<'a>(&'a self, base: &'a Base, module: &'a ModuleId) -> Answer<'a, Outcome> {
        let call = self.inner.switch(base, module);
        Box::pin(self.metrics.count(Command::SwitchBiz, is_done, call))
    }

    fn batch<'a>(&'a self, base: &'a Base, installs: &'a [Install]) -> Answer<'a, BatchOutcome> {
        let call = self.inner.batch(base, installs);
        let is_done = |batch: &BatchOutcome| is_done(&batch.overall);
        Box::pin(self.metrics.count(Command::BatchInstallBiz, is_done, call))
    }
}

#[cfg(test)]
mod tests;
