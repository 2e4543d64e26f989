//! Metrics, under the names of kube-controller-manager.

use evenkeel_net::admin::Admin;
use evenkeel_stock_rules::lifecycle::ZoneFigures;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Zone {
    zone: String,
}

evenkeel_net::metrics! {
    struct Figures {
        evictions: Family<Zone, Counter> =
            "node_collector_evictions", "Nodes that got a NoExecute taint since this process started";
        health: Family<Zone, Gauge> = "node_collector_zone_health", "Percentage of the nodes of a zone that are ready";
        size: Family<Zone, Gauge> = "node_collector_zone_size", "Nodes of a zone that count";
        unhealthy: Family<Zone, Gauge> =
            "node_collector_unhealthy_nodes_in_zone", "Nodes of a zone that are not ready";
        pass: Histogram =
            "node_collector_update_all_nodes_health_duration_seconds",
            "How long a look at all nodes took",
            Histogram::new(exponential_buckets(0.01, 4.0, 10));
        deletions: Counter =
            "taint_eviction_controller_pod_deletions", "Pods deleted because of NoExecute taints";
    }
}

#[derive(Debug, Default)]
pub(super) struct Metrics {
    all: Figures,
    zones: Mutex<BTreeSet<String>>,
}

impl Metrics {
    pub(super) fn register(admin: &Admin) -> Self {
        let metrics = Self::default();
        admin.register(|registry| metrics.all.register_in(registry));
        metrics
    }

    pub(super) fn tainted(&self, zone: &str) {
        self.all.evictions.get_or_create(&label(zone)).inc();
    }

    pub(super) fn deleted(&self) {
        self.all.deletions.inc();
    }

    /// Figures of every zone that has nodes; a zone that has none any more is shown as empty and healthy.
    pub(super) fn passed(&self, figures: &BTreeMap<String, ZoneFigures>, took: Duration) {
        self.all.pass.observe(took.as_secs_f64());
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        zones.extend(figures.keys().cloned());
        for zone in zones.iter() {
            let (size, unhealthy) = figures
                .get(zone)
                .map_or((0, 0), |figures| (figures.size, figures.unhealthy));
            let health = (100 * (size - unhealthy)).checked_div(size).unwrap_or(100);
            let set = |family: &Family<Zone, Gauge>, value: usize| {
                family
                    .get_or_create(&label(zone))
                    .set(i64::try_from(value).unwrap_or(i64::MAX));
            };
            set(&self.all.health, health);
            set(&self.all.size, size);
            set(&self.all.unhealthy, unhealthy);
        }
    }
}

fn label(zone: &str) -> Zone {
    Zone {
        zone: zone.to_owned(),
    }
}
