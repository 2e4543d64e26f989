use super::*;
use crate::core::evidence::{Lease as Freshness, Timing};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn put<K: DeserializeOwned>(value: Value) -> Delta<K> {
    Delta::Put(Box::new(serde_json::from_value(value).unwrap()))
}

fn second(second: u64) -> Millis {
    Millis(1_000_000 + second * 1000)
}

fn lease(name: &str, renewed: u32) -> Seen {
    Seen::NodeLease(put(json!({
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"renewTime": format!("2026-01-01T00:00:{renewed:02}.000000Z")},
    })))
}

fn node(name: &str, uid: &str, heartbeat: u32, reason: &str) -> Seen {
    let status = if reason == "NodeStatusUnknown" {
        "Unknown"
    } else {
        "True"
    };
    Seen::Node(put(json!({
        "metadata": {"name": name, "uid": uid},
        "status": {"conditions": [{
            "type": "Ready", "status": status, "reason": reason,
            "lastHeartbeatTime": format!("2026-01-01T00:00:{heartbeat:02}Z"),
        }]},
    })))
}

fn listed(names: &[&str]) -> BTreeSet<Key> {
    names
        .iter()
        .map(|name| ("kube-node-lease".to_owned(), (*name).to_owned()))
        .collect()
}

fn with_node() -> Cache {
    let mut cache = Cache::default();
    cache.take(second(0), lease("n1", 0));
    cache.take(second(0), Seen::NodeLease(Delta::Listed(listed(&["n1"]))));
    cache.take(second(0), node("n1", "u1", 0, "KubeletReady"));
    cache
}

fn life(cache: &Cache) -> Life {
    cache.world.nodes["n1"].life
}

#[test]
fn the_first_sight_of_a_lease_is_no_renewal_and_a_change_is() {
    let mut cache = with_node();
    assert_eq!(
        life(&cache),
        Life {
            first_seen: Some(second(0)),
            renewed: None,
            stock_mark: None
        }
    );
    cache.take(second(5), lease("n1", 0));
    assert_eq!(life(&cache).renewed, None, "the same object again");
    cache.take(second(7), lease("n1", 10));
    assert_eq!(life(&cache).renewed, Some(second(7)));
}

#[test]
fn a_kubelets_heartbeat_is_a_sign_of_life_and_a_mark_is_not() {
    let mut cache = with_node();
    cache.take(second(5), node("n1", "u1", 0, "NodeStatusUnknown"));
    assert_eq!(
        (life(&cache).renewed, life(&cache).stock_mark),
        (None, Some(second(5)))
    );
    cache.take(second(6), node("n1", "u1", 0, "NodeStatusUnknown"));
    assert_eq!(life(&cache).stock_mark, Some(second(5)), "when it was first seen");
    cache.take(second(9), node("n1", "u1", 9, "KubeletReady"));
    assert_eq!(
        (life(&cache).renewed, life(&cache).stock_mark),
        (Some(second(9)), None)
    );
}

#[test]
fn another_machine_by_the_same_name_starts_unknown() {
    let mut cache = with_node();
    cache.take(second(7), lease("n1", 10));
    cache.take(second(8), node("n1", "u2", 50, "KubeletReady"));
    assert_eq!(
        life(&cache),
        Life {
            first_seen: Some(second(8)),
            renewed: None,
            stock_mark: None
        }
    );
}

#[test]
fn any_lease_proves_the_watch_and_silence_does_not() {
    let mut cache = with_node();
    cache.take(second(1), lease("n2", 0));
    assert_eq!(cache.world.watch.live_since(second(10)), Some(second(0)));
    assert_eq!(cache.world.watch.live_since(second(17)), None);
}

#[test]
fn a_consistent_list_proves_what_the_watch_did_not_deliver() {
    let mut cache = with_node();
    let Seen::NodeLease(Delta::Put(renewed)) = lease("n1", 20) else {
        panic!("a lease")
    };
    cache.audited(second(10), second(12), vec![*renewed]);
    assert_eq!(life(&cache).renewed, Some(second(12)));
    assert_eq!(cache.world.watch.live_since(second(20)), Some(second(0)));
    let fresh = life(&cache).lease(&cache.world.watch, &Timing::default(), second(20));
    assert_eq!(fresh, Freshness::Fresh);
}

#[test]
fn a_lease_that_is_gone_proves_nothing_any_more() {
    let mut cache = with_node();
    cache.take(second(7), lease("n1", 10));
    cache.take(second(8), Seen::NodeLease(Delta::Listed(listed(&[]))));
    assert_eq!(life(&cache).known_since(), None);
    assert_eq!(cache.last_signs("n1").lease, None);
}

fn pod(name: &str, uid: &str, node: &str) -> Seen {
    Seen::Pod(put(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": uid},
        "spec": {"nodeName": node, "containers": []},
    })))
}

#[test]
fn pods_are_kept_by_node_and_replaced_by_name() {
    let mut cache = Cache::default();
    cache.take(second(0), pod("a", "u1", "n1"));
    cache.take(second(0), pod("b", "u2", "n1"));
    assert_eq!(cache.world.pods_of("n1").count(), 2);
    // A StatefulSet pod made again elsewhere, whose deletion the watch did not deliver.
    cache.take(second(1), pod("a", "u3", "n2"));
    assert_eq!(
        cache
            .world
            .pods_of("n1")
            .map(|pod| pod.pod.name.as_str())
            .collect::<Vec<_>>(),
        ["b"]
    );
    let keys = BTreeSet::from([("ns".to_owned(), "a".to_owned())]);
    cache.take(second(2), Seen::Pod(Delta::Listed(keys)));
    assert_eq!(cache.world.pods.keys().collect::<Vec<_>>(), ["n2"]);
    cache.take(
        second(3),
        Seen::Pod(Delta::Gone(("ns".to_owned(), "a".to_owned()))),
    );
    assert!(cache.world.pods.is_empty());
}

#[test]
fn a_zone_talks_once_it_advanced_and_is_silent_when_it_stops() {
    let zone = |sequence: i64| {
        Seen::Zone(put(json!({
            "metadata": {"name": "shore", "uid": "z"},
            "spec": {"zone": "shore", "roster": {"version": 1, "members": []}},
            "status": {"sequence": sequence, "rosterVersion": 1},
        })))
    };
    let mut cache = Cache::default();
    let mut at = |seconds: u64, sequence: Option<i64>| {
        if let Some(sequence) = sequence {
            assert!(cache.take(second(seconds), zone(sequence)), "a report is urgent");
        }
        cache.refresh(second(seconds));
        cache.world.zones["shore"].reporting
    };
    assert_eq!(at(0, Some(0)), Reporting::Never);
    assert_eq!(at(1, Some(3)), Reporting::Talking);
    assert_eq!(at(600, None), Reporting::Silent);
}

#[test]
fn a_zone_that_reported_before_our_time_is_silent_until_it_advances() {
    let mut cache = Cache::default();
    cache.take(
        second(0),
        Seen::Zone(put(json!({
            "metadata": {"name": "shore"},
            "spec": {"zone": "shore", "roster": {"version": 1, "members": []}},
            "status": {"sequence": 7, "rosterVersion": 1},
        }))),
    );
    cache.refresh(second(1));
    assert_eq!(cache.world.zones["shore"].reporting, Reporting::Silent);
}

#[test]
fn what_was_not_listed_yet_is_named() {
    let mut cache = with_node();
    cache.take(
        second(0),
        Seen::Node(Delta::Listed(BTreeSet::from([cluster_key("n1")]))),
    );
    let missing = cache.missing();
    assert!(
        !missing.contains(&"Node") && !missing.contains(&"node Lease"),
        "{missing:?}"
    );
    assert!(missing.contains(&"ZoneHealth"), "{missing:?}");
}

#[test]
fn a_list_that_the_watch_overtook_changes_nothing() {
    let mut cache = with_node();
    cache.take(second(12), lease("n1", 12));
    let Seen::NodeLease(Delta::Put(older)) = lease("n1", 2) else {
        unreachable!("made above");
    };
    cache.audited(second(11), second(13), vec![*older]);
    let seen = cache.last_signs("n1").lease.expect("a Lease");
    assert_eq!(seen.to_string(), "2026-01-01T00:00:12Z");
    assert_eq!(life(&cache).renewed, Some(second(12)));
}

fn report(sequence: i64, roster: i64) -> Seen {
    Seen::Zone(put(json!({
        "metadata": {"name": "shore", "uid": "z"},
        "spec": {"zone": "shore", "roster": {"version": roster, "members": []}},
        "status": {"reporter": "n1", "sequence": sequence, "epoch": "e", "rosterVersion": 1, "nodes": []},
    })))
}

#[test]
fn only_a_new_report_is_a_write_of_its_reporter() {
    let mut cache = with_node();
    cache.take(second(1), report(5, 1));
    cache.take(second(2), report(5, 2));
    assert_eq!(
        cache.world.nodes["n1"].agent_write, None,
        "the roster is the controller's"
    );
    cache.take(second(3), report(6, 2));
    assert_eq!(cache.world.nodes["n1"].agent_write, Some(second(3)));
}

#[test]
fn a_replica_called_like_a_node_is_not_that_nodes_agent() {
    let held = |name: &str, renewed: u32| {
        Seen::OwnLease(put(json!({
            "metadata": {"name": name, "namespace": "evenkeel-system"},
            "spec": {"holderIdentity": "n1", "renewTime": format!("2026-01-01T00:00:{renewed:02}.000000Z")},
        })))
    };
    let mut cache = with_node();
    for renewed in 1..4 {
        cache.take(second(renewed.into()), held("evenkeel-controller", renewed));
    }
    assert_eq!(cache.world.nodes["n1"].agent_write, None);
    for renewed in 4..6 {
        cache.take(second(renewed.into()), held("evenkeel-zone-shore", renewed));
    }
    assert_eq!(cache.world.nodes["n1"].agent_write, Some(second(5)));
}
