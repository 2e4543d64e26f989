use super::facts::Shown;
use super::take::cluster_key;
use super::*;
use evenkeel_api::watch::Delta;
use evenkeel_api::zone::RosterSpec;
use evenkeel_judge::evidence::Life;
use evenkeel_judge::{Dead, Latch, NodeState, View};
use evenkeel_zone::fixture::Fixture;
use evenkeel_zone::roster::{RosterKeys, publish};
use evenkeel_zone::verdict::{Health, Link};
use evenkeel_zone::wire::{Challenge, Facts, Renewal};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(super) fn put<K: DeserializeOwned>(value: Value) -> Delta<K> {
    Delta::Put(Box::new(serde_json::from_value(value).unwrap()))
}

pub(super) fn second(second: u64) -> Millis {
    Millis(1_767_225_600_000 + second * 1000)
}

pub(super) fn time_of(second: u64) -> String {
    let minutes = second / 60;
    format!(
        "2026-01-01T{:02}:{:02}:{:02}.000000Z",
        minutes / 60,
        minutes % 60,
        second % 60
    )
}

pub(super) fn lease(name: &str, renewed: u64) -> Seen {
    Seen::NodeLease(put(json!({
        "metadata": {"name": name, "namespace": "kube-node-lease", "resourceVersion": renewed.to_string()},
        "spec": {"renewTime": time_of(renewed)},
    })))
}

pub(super) fn node(name: &str, uid: &str, heartbeat: u64, reason: &str) -> Seen {
    let status = if reason == "NodeStatusUnknown" {
        "Unknown"
    } else {
        "True"
    };
    Seen::Node(put(json!({
        "metadata": {"name": name, "uid": uid},
        "status": {"conditions": [{
            "type": "Ready", "status": status, "reason": reason,
            "lastHeartbeatTime": time_of(heartbeat), "lastTransitionTime": time_of(heartbeat),
        }]},
    })))
}

fn lease_keys(names: &[&str]) -> BTreeSet<Key> {
    names
        .iter()
        .map(|name| ("kube-node-lease".to_owned(), (*name).to_owned()))
        .collect()
}

fn config() -> Config {
    Config {
        default_zone: Some("shore".to_owned()),
        identity: "me".to_owned(),
        ..Config::default()
    }
}

/// Every kind was listed; one node.
fn with_node() -> World {
    let mut world = World::new(config(), second(0));
    world.take(second(0), lease("n1", 0));
    world.take(second(0), Seen::NodeLease(Delta::Listed(lease_keys(&["n1"]))));
    world.take(second(0), node("n1", "u1", 0, "KubeletReady"));
    world.take(second(0), Seen::Node(Delta::Listed([cluster_key("n1")].into())));
    for seen in [
        Seen::Pod(Delta::Listed(BTreeSet::new())),
        Seen::Claim(Delta::Listed(BTreeSet::new())),
        Seen::Zone(Delta::Listed(BTreeSet::new())),
        Seen::Challenge(Delta::Listed(BTreeSet::new())),
        Seen::Report(Delta::Listed(BTreeSet::new())),
        Seen::OwnLease(Delta::Listed(BTreeSet::new())),
        Seen::Agent(Delta::Listed(BTreeSet::new())),
        Seen::Policy(Delta::Listed(BTreeSet::new())),
        Seen::Incident(Delta::Listed(BTreeSet::new())),
        Seen::Home(Delta::Listed(BTreeSet::new())),
    ] {
        world.take(second(0), seen);
    }
    world
}

fn life(world: &World) -> Life {
    world.cluster().nodes["n1"].life
}

fn agent_writes(world: &World, at: Millis) -> Option<Millis> {
    world.signs["n1"].agent.since(at)
}

#[test]
fn the_first_sight_of_a_lease_is_no_renewal_and_a_change_is() {
    let mut world = with_node();
    assert_eq!(
        life(&world),
        Life {
            first_seen: Some(second(0)),
            renewed: None,
            renewal: Some(Renewal(0)),
            touched: None,
            stock_mark: None
        }
    );
    world.take(second(5), lease("n1", 0));
    assert_eq!(life(&world).renewed, None, "the same object again");
    world.take(second(7), lease("n1", 10));
    assert_eq!(life(&world).renewed, Some(second(7)));
}

#[test]
fn a_kubelets_heartbeat_is_a_sign_of_life_and_a_mark_is_not() {
    let mut world = with_node();
    world.take(second(5), node("n1", "u1", 0, "NodeStatusUnknown"));
    assert_eq!(
        (life(&world).renewed, life(&world).stock_mark),
        (None, Some(second(5)))
    );
    world.take(second(6), node("n1", "u1", 0, "NodeStatusUnknown"));
    assert_eq!(life(&world).stock_mark, Some(second(5)), "when it was first seen");
    world.take(second(9), node("n1", "u1", 9, "KubeletReady"));
    assert_eq!(
        (life(&world).renewed, life(&world).stock_mark),
        (Some(second(9)), None)
    );
}

#[test]
fn another_machine_by_the_same_name_starts_unknown() {
    let mut world = with_node();
    world.take(second(7), lease("n1", 10));
    world.take(second(8), node("n1", "u2", 50, "KubeletReady"));
    assert_eq!(
        life(&world),
        Life {
            first_seen: Some(second(8)),
            renewed: None,
            renewal: Some(Renewal(10)),
            touched: None,
            stock_mark: None
        }
    );
}

#[test]
fn a_lease_that_is_gone_proves_nothing_any_more() {
    let mut world = with_node();
    world.take(second(7), lease("n1", 10));
    world.take(second(8), Seen::NodeLease(Delta::Listed(lease_keys(&[]))));
    assert_eq!(life(&world).known_since(), None);
    assert_eq!(world.last_signs("n1").lease, None);
}

/// Whoever may make Nodes and Leases of any name fills no memory.
#[test]
fn of_a_node_without_node_and_lease_nothing_is_kept() {
    let mut world = with_node();
    world.take(second(7), lease("n1", 10));
    world.take(second(8), Seen::Node(Delta::Listed(lease_keys(&[]))));
    assert!(world.signs.contains_key("n1"), "its Lease is there");
    world.take(second(9), Seen::NodeLease(Delta::Listed(lease_keys(&[]))));
    assert!(world.signs.is_empty());
}

fn pod(name: &str, uid: &str, node: &str, ready: &str) -> Seen {
    Seen::Pod(put(json!({
        "metadata": {"namespace": "ns", "name": name, "uid": uid},
        "spec": {"nodeName": node, "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })))
}

#[test]
fn pods_are_kept_by_node_and_replaced_by_name() {
    let mut world = with_node();
    world.take(second(0), pod("a", "u1", "n1", "True"));
    world.take(second(0), pod("b", "u2", "n1", "True"));
    assert_eq!(world.cluster().pods_of("n1").count(), 2);
    world.take(second(1), pod("b", "u2", "n1", "False"));
    assert!(world.cluster().pods_of("n1").all(|pod| pod.seen == second(0)));
    // A StatefulSet pod made again elsewhere, whose deletion the watch did not deliver.
    world.take(second(1), pod("a", "u3", "n2", "True"));
    let names = |world: &World| -> Vec<String> {
        let pods = world.cluster().pods_of("n1");
        pods.map(|pod| pod.pod.name.clone()).collect()
    };
    assert_eq!(names(&world), ["b"]);
    let keys = BTreeSet::from([("ns".to_owned(), "a".to_owned())]);
    world.take(second(2), Seen::Pod(Delta::Listed(keys)));
    assert_eq!(world.cluster().pods.keys().collect::<Vec<_>>(), ["n2"]);
    world.take(
        second(3),
        Seen::Pod(Delta::Gone(("ns".to_owned(), "a".to_owned()))),
    );
    assert!(world.cluster().pods.is_empty());
}

#[test]
fn when_a_pod_became_ready_under_our_eyes_is_remembered_while_it_stays_so() {
    let mut world = with_node();
    let became = |world: &World| world.cluster().pods["n1"]["u1"].became_ready;
    world.take(second(0), pod("a", "u1", "n1", "True"));
    assert_eq!(became(&world), None, "nobody knows since when it is ready");
    world.take(second(1), pod("a", "u1", "n1", "False"));
    world.take(second(2), pod("a", "u1", "n1", "True"));
    world.take(second(3), pod("a", "u1", "n1", "True"));
    assert_eq!(became(&world), Some(second(2)));
    world.take(second(4), pod("a", "u1", "n1", "False"));
    assert_eq!(became(&world), None);
}

#[test]
fn what_was_not_listed_yet_is_named() {
    let mut world = World::new(config(), second(0));
    world.take(
        second(0),
        Seen::Node(Delta::Listed(BTreeSet::from([cluster_key("n1")]))),
    );
    let missing = world.missing();
    assert!(!missing.contains(&"Node"), "{missing:?}");
    assert!(missing.contains(&"ZoneHealth"), "{missing:?}");
    assert!(with_node().missing().is_empty());
}

pub(super) fn agent(node: &str, proofs: i64) -> Seen {
    Seen::Agent(put(json!({
        "metadata": {"name": node},
        "spec": {"nodeUid": "u1", "publicKey": "", "address": "", "version": "1", "linkProofs": proofs},
    })))
}

/// Names in Leases are nobody's identity; who may write an AgentStatus is.
#[test]
fn only_writes_of_its_own_object_show_that_an_agent_reaches_the_api_server() {
    let mut world = with_node();
    for renewed in 1..4 {
        world.take(
            second(renewed),
            Seen::OwnLease(put(json!({
                "metadata": {"name": "evenkeel-zone-shore", "namespace": "evenkeel-system"},
                "spec": {"holderIdentity": "n1", "renewTime": time_of(renewed)},
            }))),
        );
    }
    assert_eq!(agent_writes(&world, second(4)), None);
    world.take(second(5), agent("n1", 0));
    assert_eq!(
        agent_writes(&world, second(5)),
        None,
        "the first sight shows no write"
    );
    world.take(second(6), agent("n1", 1));
    world.take(second(16), agent("n1", 2));
    assert_eq!(agent_writes(&world, second(20)), Some(second(6)));
    world.take(second(21), lease("n1", 21));
    assert_eq!(agent_writes(&world, second(21)), None, "a renewal begins anew");
    let writes = world.signs["n1"].agent;
    assert!(writes.seen_since(second(16)) && !writes.seen_since(second(17)));
}

#[test]
fn a_quiet_watch_is_audited_and_one_that_does_not_deliver_is_begun_anew() {
    let mut world = with_node();
    let wants = world.look(second(1), Role::Leads);
    assert_eq!(wants, Wants::default(), "both have just been listed");
    let wants = world.look(second(3), Role::Leads);
    assert_eq!(wants.audits, [Kind::NodeLease, Kind::Report]);
    let key = ("kube-node-lease".to_owned(), "n1".to_owned());
    let found = BTreeMap::from([(key.clone(), "0".to_owned())]);
    world.audited(second(3), Kind::NodeLease, Some(&found));
    world.audited(second(3), Kind::Report, Some(&BTreeMap::new()));
    world.look(second(4), Role::Leads);
    assert_eq!(world.sight().at(second(7)), View::Full);
    // The watch does not show a renewal that the read shows.
    let wants = world.look(second(6), Role::Leads);
    assert!(wants.audits.contains(&Kind::NodeLease));
    let found = BTreeMap::from([(key, "10".to_owned())]);
    world.audited(second(6), Kind::NodeLease, Some(&found));
    assert_eq!(world.look(second(6), Role::Leads).restart, []);
    assert_eq!(world.look(second(7), Role::Leads).restart, [Kind::NodeLease]);
    assert_eq!(world.sight().at(second(7)), View::Held);
    // What controllers write for each other is read less often, and its silence says nothing of nodes.
    let wants = world.look(second(11), Role::Leads);
    assert_eq!(wants.audits, [Kind::Zone, Kind::Challenge, Kind::Incident]);
    world.audited(second(11), Kind::Zone, Some(&BTreeMap::new()));
    world.audited(second(11), Kind::Challenge, None);
    let found = BTreeMap::from([((String::new(), "n1-1".to_owned()), "1".to_owned())]);
    world.audited(second(11), Kind::Incident, Some(&found));
    let wants = world.look(second(12), Role::Leads);
    assert_eq!(wants.restart, [Kind::Incident]);
    assert!(
        !wants.audits.contains(&Kind::Challenge),
        "that of challenges failed"
    );
    assert!(
        world
            .look(second(15), Role::Leads)
            .audits
            .contains(&Kind::Challenge)
    );
}

pub(super) const CUT: Facts = Facts {
    cloud: Link::Down,
    kubelet: Health::Ok,
    runtime: Health::Ok,
};

/// The challenge that a zone's requests sign, drawn at a second by this name.
pub(super) fn challenge(zone: &Fixture, drawn: u64, by: &str) -> Seen {
    Seen::Challenge(put(json!({
        "metadata": {"name": "shore"},
        "spec": {
            "zone": "shore", "wanted": [Fixture::uid(3)],
            "current": {
                "value": zone.challenge.to_base64(), "createdAt": time_of(drawn), "createdBy": by,
            },
        },
    })))
}

/// Three nodes of a zone whose agents report; n3's kubelet is silent after second 0.
pub(super) struct Shore {
    pub(super) world: World,
    pub(super) zone: Fixture,
    round: u8,
}

impl Shore {
    pub(super) fn new(identity: &str) -> Self {
        let mut world = with_node();
        world.config.identity = identity.to_owned();
        for number in 1..=3 {
            world.take(second(0), lease(&format!("node-{number}"), 0));
            let (name, uid) = (format!("node-{number}"), Fixture::uid(number));
            world.take(second(0), node(&name, &uid, 0, "KubeletReady"));
            world.take(second(0), lease(&name, 1));
        }
        let zone = Fixture::new(3);
        world.take(second(0), challenge(&zone, 0, "another"));
        Self {
            world,
            zone,
            round: 0,
        }
    }

    pub(super) fn report(&mut self, at: u64, alive: bool) {
        self.round = self.round.wrapping_add(1);
        let round = if alive {
            self.zone.alive(3, &[1, 2], self.round, CUT)
        } else {
            self.zone.dead(3, &[1, 2], self.round)
        };
        let report = self.zone.report(vec![round]);
        let object = json!({
            "metadata": {"name": "shore", "uid": "z", "resourceVersion": "1"},
            "spec": {"zone": "shore", "signedRoster": publish(&self.zone.spec(), None)},
        });
        self.world.take(second(at), Seen::Zone(put(object)));
        let mut spec = serde_json::to_value(report).unwrap();
        spec["zone"] = json!("shore");
        spec["reporter"] = json!("node-1");
        let object = json!({
            "metadata": {"name": "shore.0.node-1", "uid": "r", "resourceVersion": at.to_string()},
            "spec": spec,
        });
        assert!(
            self.world.take(second(at), Seen::Report(put(object))),
            "a report is urgent"
        );
    }

    /// The others renew, the zone reports that node-3 lives, and everybody looks.
    fn cut_until(&mut self, from: u64, to: u64, role: Role) {
        for at in from..=to {
            for name in ["n1", "node-1", "node-2"] {
                self.world.take(second(at), lease(name, at));
            }
            if at.is_multiple_of(4) {
                self.report(at, true);
            }
            self.world.look(second(at), role);
        }
    }

    pub(super) fn judged(&self) -> &Judged {
        &self.world.decisions().nodes["node-3"]
    }

    fn incident(&mut self, at: u64, state: &str, by: &str, closed: bool) {
        self.world.take(
            second(at),
            Seen::Incident(put(json!({
                "metadata": {"name": "node-3-1"},
                "spec": {"nodeName": "node-3", "nodeUid": Fixture::uid(3), "zone": "shore"},
                "status": {
                    "state": state, "stateSince": "2026-01-01T00:00:01Z",
                    "closedAt": closed.then_some("2026-01-01T00:00:09Z"),
                    "decision": {"state": state, "by": by},
                },
            }))),
        );
    }

    fn leader(&mut self, at: u64, holder: &str) {
        self.world.take(
            second(at),
            Seen::OwnLease(put(json!({
                "metadata": {"name": "evenkeel-controller", "namespace": "evenkeel-system"},
                "spec": {"holderIdentity": holder, "renewTime": time_of(at)},
            }))),
        );
    }
}

#[test]
fn a_write_that_proves_the_lease_stale_is_answered_before_the_lease_is_seen_to_be() {
    let mut shore = Shore::new("me");
    shore.cut_until(1, 20, Role::Leads);
    let judged = shore.judged();
    assert_eq!(judged.decision.state(), NodeState::Healthy);
    assert_eq!(judged.protection, Protection::default());
    assert!(judged.if_stale.evictions && judged.if_stale.readiness);
    shore.cut_until(21, 40, Role::Leads);
    let judged = shore.judged();
    assert_eq!(judged.decision.state(), NodeState::Disconnected);
    assert!(judged.protection.evictions && judged.protection.readiness);
}

#[test]
fn a_replica_that_does_not_lead_follows_the_leader_as_long_as_it_is_seen_to_work() {
    let mut shore = Shore::new("me");
    shore.cut_until(1, 40, Role::Follows);
    shore.incident(40, "KubeletDown", "other", false);
    for at in 41..60 {
        shore.leader(at, "other");
        shore.cut_until(at, at, Role::Follows);
    }
    assert_eq!(shore.judged().decision.state(), NodeState::KubeletDown);
    assert_eq!(shore.judged().protection, Protection::default());
    shore.cut_until(60, 75, Role::Follows);
    assert_eq!(
        shore.judged().decision.state(),
        NodeState::Disconnected,
        "nobody leads any more"
    );
    shore.leader(76, "me");
    shore.cut_until(76, 76, Role::Leads);
    assert_eq!(
        shore.judged().decision.state(),
        NodeState::Disconnected,
        "it decides itself"
    );
}

#[test]
fn a_replica_that_starts_in_mid_cut_starts_from_the_incident() {
    let mut shore = Shore::new("me");
    let marked = node("node-3", &Fixture::uid(3), 0, "NodeStatusUnknown");
    shore.world.take(second(6), marked);
    shore.incident(6, "Disconnected", "other", false);
    for at in 7..20 {
        shore.world.take(second(at), lease("n1", at));
        let _ = shore.world.look(second(at), Role::Leads);
        shore
            .world
            .audited(second(at), Kind::Report, Some(&BTreeMap::new()));
    }
    assert_eq!(shore.judged().decision.state(), NodeState::Disconnected);
    assert!(shore.judged().protection.readiness);
}

/// A list shows closed incidents, too.
#[test]
fn the_end_of_an_open_incident_takes_its_latch_back_and_one_that_ended_long_ago_does_not() {
    let mut shore = Shore::new("me");
    shore.cut_until(1, 40, Role::Follows);
    let uid = Fixture::uid(3);
    let latch = Latch::Isolated { since: second(1) };
    shore
        .world
        .memories
        .get_mut(&uid)
        .expect("it was looked at")
        .latch = latch;
    shore.incident(40, "Isolated", "other", true);
    assert_eq!(shore.world.memories[&uid].latch, latch);
    shore.incident(41, "Isolated", "other", false);
    shore.incident(42, "Isolated", "other", true);
    let memory = shore.world.memories[&uid];
    assert_eq!((memory.latch, memory.state), (Latch::Open, NodeState::Healthy));
}

/// The Lease of node-3 is written.
fn touch(renewed: u64, version: u64) -> Seen {
    Seen::NodeLease(put(json!({
        "metadata": {"name": "node-3", "namespace": "kube-node-lease", "resourceVersion": version.to_string()},
        "spec": {"renewTime": time_of(renewed)},
    })))
}

/// A tool labels the Lease of a dead node again and again: its kubelet has written nothing.
#[test]
fn a_label_on_the_lease_of_a_dead_node_is_no_sign_of_life() {
    let mut shore = Shore::new("me");
    shore.zone.renewal = Some(Renewal(1));
    shore.world.take(second(0), lease("node-3", 1));
    let mut at = 1;
    let mut go = |shore: &mut Shore, until: u64| {
        while at < until {
            for name in ["n1", "node-1", "node-2"] {
                shore.world.take(second(at), lease(name, at));
            }
            shore.world.look(second(at), Role::Leads);
            at += 1;
        }
    };
    let nothing = shore.zone.renewal.take();
    shore.report(1, false);
    shore.zone.renewal = nothing;
    go(&mut shore, 5);
    shore.report(5, false);
    go(&mut shore, 10);
    assert_eq!(shore.judged().decision.state(), NodeState::Dead(Dead::Announced));
    shore.world.take(second(10), touch(1, 77));
    let late = shore.world.take(second(10), touch(1, 76));
    assert!(!late, "an earlier label is no news");
    let life = shore.world.cluster().nodes["node-3"].life;
    assert_eq!(
        (life.renewal, life.touched),
        (Some(Renewal(1)), Some(Renewal(77)))
    );
    go(&mut shore, 12);
    assert_eq!(shore.judged().decision.state(), NodeState::Dead(Dead::Announced));
    shore.world.take(second(12), touch(12, 78));
    go(&mut shore, 14);
    assert_eq!(shore.judged().decision.state(), NodeState::Isolated);
}

/// Hazard 36: only who drew a challenge knows when that was.
#[rstest]
#[case::drawn_12_s_after_the_first_round("this life", 17, false, true)]
#[case::drawn_sooner("this life", 16, false, false)]
#[case::drawn_by_another_process("another life", 17, false, false)]
#[case::while_somebody_labels_its_lease("this life", 17, true, true)]
fn a_death_is_confirmed_by_a_challenge_of_our_own(
    #[case] by: &str,
    #[case] drawn: u64,
    #[case] labels: bool,
    #[case] confirmed: bool,
) {
    let mut shore = Shore::new("me");
    shore.world.take(second(0), lease("node-3", 1));
    shore.world.config.life = "this life".to_owned();
    shore.zone.renewal = Some(Renewal(1));
    let alive = |shore: &mut Shore, from: u64, to: u64| {
        for at in from..=to {
            for name in ["n1", "node-1", "node-2"] {
                shore.world.take(second(at), lease(name, at));
            }
            shore.world.look(second(at), Role::Leads);
        }
    };
    // Evidence counts once the cell is seen to advance: by the second report of its reporter.
    let nothing = shore.zone.renewal.take();
    shore.report(1, false);
    shore.zone.renewal = nothing;
    alive(&mut shore, 1, 4);
    shore.report(5, false);
    alive(&mut shore, 5, 17);
    assert_eq!(
        shore.judged().decision.state(),
        NodeState::Dead(Dead::Announced),
        "its first round was received at second 5"
    );
    shore.zone.challenge = Challenge([9; 16]);
    let issued = challenge(&shore.zone, drawn, by);
    shore.world.take(second(18), issued);
    let facts = &shore.world.cluster().challenges["shore"];
    assert_eq!(facts.current.drawn.is_some(), by == "this life");
    assert_eq!(facts.wanted, [Fixture::uid(3)]);
    if labels {
        shore.world.take(second(18), touch(1, 77));
        shore.zone.renewal = Some(Renewal(77));
    }
    shore.report(18, false);
    alive(&mut shore, 18, 19);
    let expected = if confirmed {
        Dead::Confirmed
    } else {
        Dead::Announced
    };
    assert_eq!(shore.judged().decision.state(), NodeState::Dead(expected));
}

/// Whoever writes another cell's challenge would make its votes worthless.
#[test]
fn a_challenge_that_is_not_named_after_its_cell_is_passed_over() {
    let mut shore = Shore::new("me");
    let before = shore.world.cluster().challenges.clone();
    let foreign = json!({
        "metadata": {"name": "shore.1"},
        "spec": {"zone": "shore", "current": {"value": "AAAA", "createdAt": time_of(1)}},
    });
    shore.world.take(second(1), Seen::Challenge(put(foreign)));
    assert_eq!(shore.world.cluster().challenges, before);
    // What cannot be read, and the challenge of an agent that knows none, are signed by nobody.
    for value in ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAAA=="] {
        let spec = serde_json::from_value(json!({
            "zone": "shore", "current": {"value": value, "createdAt": time_of(1)},
        }))
        .unwrap();
        assert_eq!(read::challenges(&spec, "").1, [], "{value:?}");
    }
}

#[test]
fn a_pause_and_the_mode_observe_protect_nothing_and_decide_as_before() {
    let mut shore = Shore::new("me");
    shore.cut_until(1, 40, Role::Leads);
    assert!(shore.judged().protection.readiness);
    let home = |annotations: Value| {
        Seen::Home(put(
            json!({"metadata": {"name": "evenkeel-system", "annotations": annotations}}),
        ))
    };
    shore
        .world
        .take(second(41), home(json!({"evenkeel.io/pause": "switches"})));
    shore.cut_until(41, 41, Role::Leads);
    assert_eq!(shore.world.cluster().paused.as_deref(), Some("switches"));
    assert_eq!(shore.judged().decision.state(), NodeState::Disconnected);
    assert_eq!(shore.judged().protection, Protection::default());
    assert_eq!(shore.judged().settings.mode, ModePolicy::Observe);
    shore.world.take(second(42), home(json!({})));
    shore.cut_until(42, 42, Role::Leads);
    assert!(shore.judged().protection.readiness);
    shore.world.stand_down();
    shore.cut_until(43, 43, Role::Leads);
    assert_eq!(shore.judged().protection, Protection::default());
}

#[test]
fn replicas_are_counted_by_leases_that_are_seen_to_change() {
    let mut world = with_node();
    world.config.namespace = "pier".to_owned();
    let replica = |name: &str, holder: &str, renewed: u64| {
        Seen::OwnLease(put(json!({
            "metadata": {"name": format!("evenkeel-controller-replica-{name}"), "namespace": "evenkeel-system"},
            "spec": {"holderIdentity": holder, "renewTime": time_of(renewed)},
        })))
    };
    world.take(second(0), replica("me", "me", 0));
    assert_eq!(world.other_replicas(second(1)), 0);
    world.take(second(1), replica("two", "two", 1));
    assert_eq!(world.other_replicas(second(15)), 1);
    assert_eq!(world.silent_replicas(second(15)), [].into());
    assert_eq!(
        world.other_replicas(second(16)),
        0,
        "it has not renewed its Lease"
    );
    let silent = ("pier".to_owned(), "two".to_owned());
    assert_eq!(world.silent_replicas(second(99)), [silent].into());
    let key = |name: &str| {
        (
            "evenkeel-system".to_owned(),
            format!("evenkeel-controller-replica-{name}"),
        )
    };
    for goes in [Delta::Gone(key("two")), Delta::Listed([key("me")].into())] {
        world.take(second(17), replica("two", "two", 17));
        world.take(
            second(18),
            Seen::OwnLease(Delta::Listed([key("me"), key("two")].into())),
        );
        assert!(world.knows_other_replicas(second(18)));
        world.take(second(18), Seen::OwnLease(goes));
        assert!(!world.knows_other_replicas(second(18)));
    }
}

/// Whoever may write the object without having the key changes neither who votes nor the version.
#[test]
fn a_roster_that_does_not_count_leaves_the_last_one_that_did() {
    let zone = Fixture::new(3);
    let (key, foreign) = (zone.roster_key(), Fixture::new(4));
    let spec = |version: i64, uid: &str| RosterSpec {
        version,
        cell: "shore".into(),
        cell_uid: uid.into(),
        ..zone.spec()
    };
    let signed = |spec: &RosterSpec| json!(publish(spec, Some(&*key)));
    let take = |world: &mut World, spec: Value| {
        let object = json!({
            "metadata": {"name": "shore", "uid": "u", "resourceVersion": "1"}, "spec": spec,
        });
        world.take(second(0), Seen::Zone(put(object)));
        let facts = &world.cluster().cells["shore"];
        (facts.roster.version, facts.shown)
    };
    let keys = || RosterKeys::new(vec![key.public().clone()]);
    let world = || World::new(config(), second(0)).trusting(keys());
    let stranger = foreign.key(4);
    let table = [
        ("unsigned", json!({"signedRoster": publish(&spec(9, "u"), None)})),
        (
            "signed by a stranger",
            json!({"signedRoster": publish(&spec(9, "u"), Some(stranger))}),
        ),
        ("an older one", json!({"signedRoster": signed(&spec(4, "u"))})),
        (
            "of another object",
            json!({"signedRoster": signed(&spec(9, "v"))}),
        ),
        ("version 0", json!({"signedRoster": signed(&spec(0, "u"))})),
        (
            "too large a version",
            json!({"signedRoster": signed(&spec(i64::MAX, "u"))}),
        ),
        (
            "garbage",
            json!({"signedRoster": {"text": "{", "signature": "AA=="}}),
        ),
        ("of a former version", json!({"roster": spec(9, "")})),
        ("none", json!({})),
    ];
    for (what, mut shown) in table {
        let mut world = world();
        let first = json!({"zone": "shore", "signedRoster": signed(&spec(5, "u"))});
        assert_eq!(take(&mut world, first), (5, Shown::Roster));
        shown["zone"] = json!("shore");
        assert_eq!(take(&mut world, shown), (5, Shown::Other), "{what}");
        let next = json!({"zone": "shore", "signedRoster": signed(&spec(6, "u"))});
        assert_eq!(take(&mut world, next), (6, Shown::Roster), "after {what}");
    }
    // Where nothing else is known, what was signed once is where to go on.
    for (what, mut shown, expected) in [
        (
            "of another object",
            json!({"signedRoster": signed(&spec(9, "v"))}),
            (9, Shown::Other),
        ),
        (
            "of a former version",
            json!({"roster": spec(9, "")}),
            (0, Shown::Foreign),
        ),
        (
            "unsigned",
            json!({"signedRoster": publish(&spec(9, "u"), None)}),
            (0, Shown::Foreign),
        ),
        ("none", json!({}), (0, Shown::Other)),
    ] {
        shown["zone"] = json!("shore");
        assert_eq!(take(&mut world(), shown), expected, "{what}");
    }
}

/// While a key is replaced, what the former one signed counts, and is signed anew.
#[test]
fn a_roster_of_the_former_key_counts_and_is_signed_anew() {
    let zone = Fixture::new(3);
    let (former, present) = (zone.roster_key(), Fixture::new(4).signer(4));
    let keys = RosterKeys::new(vec![present.public().clone(), former.public().clone()]);
    let mut world = World::new(config(), second(0)).trusting(keys);
    for (key, shown) in [(&former, Shown::Other), (&present, Shown::Roster)] {
        let spec = RosterSpec {
            version: 5,
            cell: "shore".into(),
            cell_uid: "u".into(),
            ..zone.spec()
        };
        let object = json!({
            "metadata": {"name": "shore", "uid": "u", "resourceVersion": "1"},
            "spec": {"zone": "shore", "signedRoster": publish(&spec, Some(&**key))},
        });
        world.take(second(0), Seen::Zone(put(object)));
        let facts = &world.cluster().cells["shore"];
        assert_eq!((facts.roster.version, facts.shown), (5, shown));
    }
}

/// After a restart nobody has seen what the kubelet said before it fell silent, and lists come in any order.
#[rstest]
fn what_the_kubelet_said_before_the_silence_is_recalled(#[values(true, false)] incident_first: bool) {
    let incident = |closed: Option<&str>| {
        Seen::Incident(put(json!({
            "metadata": {"name": "node-3-1"},
            "spec": {"nodeName": "node-3", "nodeUid": "u3", "zone": "shore"},
            "status": {"state": "Disconnected", "saidNotReady": true, "closedAt": closed},
        })))
    };
    let says = |closed| {
        let mut world = Shore::new("me").world;
        let mut seen = [incident(closed), node("node-3", "u3", 1, "NodeStatusUnknown")];
        if !incident_first {
            seen.reverse();
        }
        for seen in seen {
            world.take(second(1), seen);
        }
        world.cluster.nodes["node-3"].says_not_ready
    };
    assert_eq!(says(None), Some(true));
    assert_eq!(says(Some("2026-01-01T00:00:09Z")), None);
}

/// The clock of this replica is ten minutes behind the leader's. What it was told counts from when it was
/// told so, not from each look, or no time that is counted from there would ever be over.
#[test]
fn times_of_the_leader_do_not_slide_where_our_clock_is_behind() {
    let mut shore = Shore::new("me");
    let mut word = |at: u64, state: &str| {
        let status = json!({"state": state, "stateSince": "2026-01-01T00:10:00Z", "decision": {"state": state, "by": "x"}});
        let spec = json!({"nodeName": "node-3", "nodeUid": Fixture::uid(3), "zone": "shore"});
        let incident = json!({"metadata": {"name": "node-3-1"}, "spec": spec, "status": status});
        shore.world.take(second(at), Seen::Incident(put(incident)));
        shore.world.leaders_words()[&Fixture::uid(3)].since
    };
    assert_eq!(word(10, "Dark"), second(10));
    assert_eq!(word(50, "Dark"), second(10), "listed once more");
    assert_eq!(word(60, "Disconnected"), second(60));
}
