//! Objects that others write, changed at random: none panics where it is read and judged, and what was read
//! is written and read again as the same.

use super::corpus_tests::VERSION_3_0;
use super::facts::TaintRef;
use super::tests::{lease, node, second};
use super::{Config, Kind, Role, Seen, World};
use evenkeel_api::watch::Delta;
use evenkeel_zone::fixture::fuzz::target;
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

fn config() -> Config {
    Config {
        default_zone: Some("shore".to_owned()),
        identity: "evenkeel-0".to_owned(),
        life: "evenkeel-0/1".to_owned(),
        ..Config::default()
    }
}

/// Reads an object and judges a world that holds it, as a leader and as a follower.
fn fuzz<K: DeserializeOwned + Serialize>(name: &str, seeds: &[Vec<u8>], seen: fn(Delta<K>) -> Seen) {
    target(name, seeds, (4, 1_000), |bytes| {
        let object: K = serde_json::from_slice(bytes).ok()?;
        let written = serde_json::to_vec(&object).unwrap();
        // Times are written in whole seconds, so that what was written is compared.
        let again: K = serde_json::from_slice(&written).unwrap();
        assert_eq!(serde_json::to_vec(&again).unwrap(), written);
        let mut world = World::new(config(), second(0));
        world.take(second(0), node("node-3", "uid-3", 0, "KubeletReady"));
        world.take(second(0), lease("node-3", 0));
        for seen in [
            Seen::NodeLease(Delta::Listed(BTreeSet::new())),
            Seen::Report(Delta::Listed(BTreeSet::new())),
        ] {
            world.take(second(0), seen);
        }
        world.take(second(1), seen(Delta::Put(Box::new(object))));
        world.look(second(1), Role::Follows);
        world.look(second(400), Role::Leads);
        world.audited(second(401), Kind::Report, None);
        Some(written.len())
    });
}

fn corpus(kind: &str) -> Vec<Vec<u8>> {
    let all = VERSION_3_0.iter().filter(|(name, _)| *name == kind);
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    all.map(|(_, text)| value(text).to_string().into_bytes())
        .collect()
}

#[test]
fn zone_healths_are_borne() {
    fuzz("ZoneHealths", &corpus("ZoneHealth"), Seen::Zone);
}

#[test]
fn zone_challenges_are_borne() {
    fuzz("ZoneChallenges", &corpus("ZoneChallenge"), Seen::Challenge);
}

#[test]
fn zone_reports_are_borne() {
    fuzz("ZoneReports", &corpus("ZoneReport"), Seen::Report);
}

#[test]
fn agent_statuses_are_borne() {
    fuzz("AgentStatuses", &corpus("AgentStatus"), Seen::Agent);
}

#[test]
fn node_incidents_are_borne() {
    fuzz("NodeIncidents", &corpus("NodeIncident"), Seen::Incident);
}

/// With the annotations that the judge reads.
#[test]
fn nodes_are_borne() {
    let seed = serde_json::json!({
        "metadata": {
            "name": "node-3", "uid": "uid-3", "resourceVersion": "7",
            "labels": {"topology.kubernetes.io/zone": "shore"},
            "annotations": {
                "evenkeel.io/added-taints": "node.kubernetes.io/unreachable:NoExecute, evenkeel.io/dead:NoSchedule",
                "superedgehealth/node-health": "false",
            },
        },
        "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute",
            "timeAdded": "2026-01-01T00:00:00Z"}]},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:01Z"}]},
    });
    fuzz::<Node>("Nodes", &[seed.to_string().into_bytes()], Seen::Node);
}

#[test]
fn added_taints_are_borne() {
    let seed = b"node.kubernetes.io/unreachable:NoExecute, evenkeel.io/dead:NoSchedule";
    target("added taints", &[seed.to_vec()], (1, 0), |text| {
        let list = TaintRef::parse_list(std::str::from_utf8(text).ok()?);
        let written = TaintRef::format_list(&list);
        assert_eq!(TaintRef::parse_list(&written), list);
        Some(written.len())
    });
}
