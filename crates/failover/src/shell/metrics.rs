//! What the controller measures.

use evenkeel_failover_rules::planner::action::Measure;
use evenkeel_net::admin::Admin;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Bounds in seconds: from the goals (5 s, 8 s, 30 s) to what stock Kubernetes takes (50 s, 345 s).
const SECONDS: [f64; 14] = [
    0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 15.0, 30.0, 45.0, 60.0, 120.0, 345.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ActionLabels {
    action: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StateLabels {
    state: &'static str,
}

evenkeel_net::metrics! {
    pub(super) struct Metrics {
        detection: Histogram =
            "detection_seconds",
            "Time from the last sign of life of a node that was seen to the verdict that the node is dead",
            Histogram::new(SECONDS);
        endpoints_out: Histogram =
            "endpoints_out_seconds",
            "Time from that verdict until no pod of the node is in endpoints any more",
            Histogram::new(SECONDS);
        marks_passed: Counter =
            "stock_marks_passed",
            "Pods of living nodes that Kubernetes marked not ready while no webhook corrected it, as when a single replica \
             restarts; each gets its readiness back";
        eviction: Histogram =
            "eviction_seconds",
            "Time from the verdict that a node is dead to the deletion of a pod of it",
            Histogram::new(SECONDS);
        actions: Family<ActionLabels, Counter> = "actions", "Writes of the controller to the API server, by kind and outcome";
        nodes: Family<StateLabels, Gauge> = "nodes", "Nodes by state, as this replica sees them; Dead counts the nodes in every phase of a death";
        pub(super) without_cell: Gauge =
            "nodes_without_cell",
            "Nodes with an agent for which no cell of their zone has room, so that Kubernetes alone cares for them";
        pub(super) unchecked: Gauge =
            "members_without_kubelet_check",
            "Members whose kubelet the other agents cannot check, so that no vote finds them dead; the log names them";
        pub(super) unable_to_check: Gauge =
            "members_unable_to_check",
            "Members whose agents lack something for the checks of --check (docs/agent.md); the log names one";
        pub(super) leading: Gauge = "leading", "1 while this replica leads, else 0";
        pub(super) watch_live: Gauge =
            "lease_watch_live", "1 while every watch that decisions rest on is proven to deliver, else 0: the controller is blind";
    }
}

impl Metrics {
    pub(super) fn register(admin: &Admin) -> Self {
        let metrics = Self::default();
        admin
            .register(|registry| metrics.register_in(registry.sub_registry_with_prefix("evenkeel_failover")));
        metrics
    }

    pub(super) fn measured(&self, measure: Measure) {
        let seconds = |millis: u64| millis as f64 / 1000.0;
        match measure {
            Measure::Detection(millis) => self.detection.observe(seconds(millis)),
            Measure::EndpointsOut(millis) => self.endpoints_out.observe(seconds(millis)),
            Measure::MarksPassed(pods) => {
                self.marks_passed.inc_by(u64::try_from(pods).unwrap_or(u64::MAX));
            }
        }
    }

    pub(super) fn evicted(&self, millis: u64) {
        self.eviction.observe(millis as f64 / 1000.0);
    }

    pub(super) fn acted(&self, action: &'static str, outcome: &'static str) {
        self.actions
            .get_or_create(&ActionLabels { action, outcome })
            .inc();
    }

    pub(super) fn states<'a>(&self, counts: impl Iterator<Item = (&'a &'static str, &'a i64)>) {
        for (state, count) in counts {
            self.nodes.get_or_create(&StateLabels { state }).set(*count);
        }
    }
}
