//! Zones, and how disrupted they are.

use std::collections::BTreeMap;

/// Labels of region and zone; the older one wins where both are set.
const REGION: [&str; 2] = [
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/region",
];
const ZONE: [&str; 2] = [
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
];

/// `REGION:\0:ZONE`, empty if the node has neither.
pub fn zone_key(labels: Option<&BTreeMap<String, String>>) -> String {
    let label = |keys: [&str; 2]| {
        keys.into_iter()
            .find_map(|key| labels?.get(key).filter(|value| !value.is_empty()))
            .map_or("", String::as_str)
    };
    match (label(REGION), label(ZONE)) {
        ("", "") => String::new(),
        (region, zone) => format!("{region}:\0:{zone}"),
    }
}

/// State of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Not looked at yet.
    Initial,
    /// Nothing unusual: the eviction rate applies.
    Normal,
    /// More than two nodes and at least the threshold are not ready: evictions slow down or stop.
    Partial,
    /// No node is ready.
    Full,
}

/// Rates and thresholds, as kube-controller-manager's flags name them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// `--node-eviction-rate`: nodes tainted per second and zone.
    pub eviction: f64,
    /// `--secondary-node-eviction-rate`: in a large zone that is partially disrupted.
    pub secondary: f64,
    /// `--large-cluster-size-threshold`: larger zones are large; in others the secondary rate is 0.
    pub large_zone: usize,
    /// `--unhealthy-zone-threshold`: share of nodes not ready that makes a partial disruption.
    pub unhealthy_share: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            eviction: 0.1,
            secondary: 0.01,
            large_zone: 50,
            unhealthy_share: 0.55,
        }
    }
}

impl Rates {
    /// State of a zone with so many nodes ready and not ready.
    pub fn state(&self, ready: usize, not_ready: usize) -> ZoneState {
        let share = not_ready as f64 / (ready + not_ready).max(1) as f64;
        if ready == 0 && not_ready > 0 {
            ZoneState::Full
        } else if not_ready > 2 && share >= self.unhealthy_share {
            ZoneState::Partial
        } else {
            ZoneState::Normal
        }
    }

    /// Taints per second in a zone of `size` nodes. A full disruption keeps the normal rate: where every zone
    /// is fully disrupted, the caller stops them all.
    pub fn rate(&self, state: ZoneState, size: usize) -> f64 {
        match state {
            ZoneState::Initial | ZoneState::Normal | ZoneState::Full => self.eviction,
            ZoneState::Partial if size > self.large_zone => self.secondary,
            ZoneState::Partial => 0.0,
        }
    }
}
