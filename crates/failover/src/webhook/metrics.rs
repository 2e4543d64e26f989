//! Metrics of the webhook.

use evenkeel_failover_rules::admission::{Decision, Request};
use evenkeel_net::admin::Admin;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    kind: &'static str,
    result: &'static str,
}

evenkeel_net::metrics! {
    /// `evenkeel_webhook_decisions_total{kind,result}` and `evenkeel_webhook_duration_seconds`.
    pub(crate) struct Metrics {
        decisions: Family<DecisionLabels, Counter> =
            "evenkeel_webhook_decisions", "Writes that the API server asked the webhook about, by kind of object and by what became of them";
        // 0.1 ms to 0.4 s: the goal is a p99 of 2 ms, the API server waits for 2 s.
        duration: Histogram =
            "evenkeel_webhook_duration_seconds",
            "Time from the complete request of the API server to the answer of the webhook",
            Histogram::new(exponential_buckets(0.000_1, 2.0, 13));
    }
}

impl Metrics {
    pub(crate) fn register(admin: &Admin) -> Self {
        let metrics = Self::default();
        admin.register(|registry| metrics.register_in(registry));
        metrics
    }

    pub(crate) fn decided(&self, request: &Request, decision: &Decision, took: Duration) {
        let result = match decision {
            Decision::Pass(reason) => reason.label(),
            Decision::Patch(_) => "patched",
        };
        self.decisions
            .get_or_create(&DecisionLabels {
                kind: kind(request),
                result,
            })
            .inc();
        self.duration.observe(took.as_secs_f64());
    }

    pub(crate) fn refused(&self) {
        self.decisions
            .get_or_create(&DecisionLabels {
                kind: "unknown",
                result: "malformed",
            })
            .inc();
    }
}

/// A closed set: label values never come from a request.
fn kind(request: &Request) -> &'static str {
    match request.resource.resource.as_str() {
        "pods" => "pods",
        "nodes" => "nodes",
        "endpointslices" => "endpointslices",
        "endpoints" => "endpoints",
        _ => "other",
    }
}
