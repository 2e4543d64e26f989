use super::report::{Found, Leader, Mode, Question, Report, Subject};
use super::scene::report;
use super::text::text;
use super::*;
use clap::Parser;
use evenkeel_api::crd::{FailoverPolicy, NodeIncident, ZoneChallenge, ZoneHealth, ZoneReport};
use evenkeel_api::names;
use evenkeel_api::zone::{RosterMember, RosterSpec};
use evenkeel_zone::roster::publish;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    status: StatusArgs,
}

const NOW: &str = "2026-03-01T12:00:00Z";

fn read<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn seconds_ago(seconds: i64) -> String {
    let now: Timestamp = NOW.parse().unwrap();
    Timestamp::from_second(now.as_second() - seconds)
        .unwrap()
        .to_string()
}

fn node(name: &str) -> Node {
    read(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"),
            "labels": {"topology.kubernetes.io/zone": "bay"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn lease(name: &str, holder: &str, renewed_seconds_ago: i64) -> Lease {
    read(json!({
        "metadata": {"name": name, "namespace": "evenkeel-system"},
        "spec": {
            "holderIdentity": holder, "acquireTime": seconds_ago(3600).replace('Z', ".000000Z"),
            "renewTime": seconds_ago(renewed_seconds_ago).replace('Z', ".000000Z"),
        },
    }))
}

/// The incident of a node, decided by the leader a minute ago.
fn incident(node: &str, state: &str, reason: &str) -> NodeIncident {
    read(json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "NodeIncident",
        "metadata": {"name": format!("{node}-1772366340"), "creationTimestamp": seconds_ago(62)},
        "spec": {"nodeName": node, "nodeUid": format!("uid-{node}"), "zone": "bay"},
        "status": {
            "state": state.split(',').next(), "stateSince": seconds_ago(62),
            "decision": {
                "state": state, "reason": reason,
                "evidence": ["Lease: stale; last seen renewed 25 s ago"],
                "changes": ["A renewal of its Lease makes it Healthy"],
                "decidedAt": seconds_ago(60), "by": "replica-a", "observedOnly": false,
            },
            "timeline": [{"time": seconds_ago(62), "event": "NodeDisconnected", "message": "it was cut off"}],
        },
    }))
}

fn change<K: serde::Serialize + DeserializeOwned>(object: &mut K, pointer: &str, value: Value) {
    let mut changed = serde_json::to_value(&*object).unwrap();
    *changed.pointer_mut(pointer).unwrap() = value;
    *object = read(changed);
}

/// Three nodes of one zone, of which the second is cut off; two replicas, the first leads.
fn found() -> Found {
    let member = |name: &str| RosterMember {
        name: name.into(),
        uid: format!("uid-{name}"),
        address: "10.0.0.1:7959".into(),
        public_key: "k".into(),
        ..RosterMember::default()
    };
    let roster = RosterSpec {
        version: 7,
        members: vec![member("shore-1"), member("shore-2")],
        ..RosterSpec::default()
    };
    let zone: ZoneHealth = read(json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "ZoneHealth", "metadata": {"name": "bay"},
        "spec": {
            "zone": "bay",
            "signedRoster": publish(&roster, None),
        },
    }));
    let challenge: ZoneChallenge = read(json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "ZoneChallenge", "metadata": {"name": "bay"},
        "spec": {
            "zone": "bay", "wanted": ["uid-shore-2", "uid-gone"],
            "current": {"value": "AAECAwQFBgcICQoLDA0ODw==", "createdAt": NOW},
        },
    }));
    let report: ZoneReport = read(json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "ZoneReport",
        "metadata": {"name": "bay.0.shore-1", "resourceVersion": "9"},
        "spec": {
            "zone": "bay", "reporter": "shore-1", "sequence": 9, "writtenAt": NOW,
            "nodes": [{"name": "shore-2", "uid": "uid-shore-2", "verdict": "Alive", "reason": "cloud link down"}],
        },
    }));
    Found {
        reports: vec![report],
        namespace: names::NAMESPACE.to_owned(),
        now: NOW.parse().unwrap(),
        nodes: vec![node("shore-10"), node("shore-2"), node("shore-1")],
        incidents: vec![incident(
            "shore-2",
            "Disconnected",
            "its Lease is stale, and a majority of its zone vouches for it",
        )],
        zones: vec![zone],
        challenges: vec![challenge],
        policies: Vec::new(),
        leases: vec![
            lease("evenkeel-controller", "replica-a", 1),
            lease("evenkeel-controller-replica-replica-a", "replica-a", 3),
            lease("evenkeel-controller-replica-replica-b", "replica-b", 4),
            lease("evenkeel-controller-replica-replica-c", "replica-c", 400),
            lease("evenkeel-zone-bay", "shore-1_x", 6),
        ],
        pause: None,
        troubles: Vec::new(),
    }
}

fn lines(found: &Found) -> Vec<super::report::NodeLine> {
    match report(found, &Question::Nodes).subject {
        Subject::Nodes(lines) => lines,
        other => panic!("{other:?}"),
    }
}

fn story(found: &Found, name: &str) -> super::report::Story {
    match report(found, &Question::Node(name.to_owned())).subject {
        Subject::Node(story) => *story,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_line_per_node_says_what_the_leader_published() {
    let report = report(&found(), &Question::Nodes);
    assert_eq!(
        text(&report, false),
        "\
Controller: replica-a leads since 60m, and renewed its Lease 1s ago by this machine's clock; 2 replicas work.
NODE      STATE         SINCE  MODE  REASON
shore-1   Healthy       -      act   no open incident
shore-2   Disconnected  62s    act   its Lease is stale, and a majority of its zone vouches for it
shore-10  Healthy       -      act   no open incident
3 nodes: 1 Disconnected; 2 Healthy
The whole explanation of one: evenkeel status NODE
"
    );
    assert_eq!(report.exit_code(), 1);
    assert_eq!(
        text(&report, true).lines().nth(2).unwrap(),
        "shore-1   Healthy       -      act   bay   watched  True   -                   -        -          no open incident"
    );
    assert_eq!(
        text(&report, true).lines().nth(3).unwrap(),
        "shore-2   Disconnected  62s    act   bay   watched  True   shore-2-1772366340  60s      replica-a  its Lease is stale, \
         and a majority of its zone vouches for it"
    );
}

#[test]
fn the_whole_explanation_of_a_node() {
    let mut found = found();
    let policy: FailoverPolicy = read(json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "FailoverPolicy", "metadata": {"name": "all"},
        "spec": {"evictAfterSeconds": 60, "fencing": "enforce"},
    }));
    found.policies.push(policy);
    assert_eq!(
        text(&report(&found, &Question::Node("shore-2".to_owned())), false),
        "\
Controller: replica-a leads since 60m, and renewed its Lease 1s ago by this machine's clock; 2 replicas work.

Node shore-2: Disconnected, since 62s (2026-03-01T11:58:58Z)
Why: its Lease is stale, and a majority of its zone vouches for it.
Decided by replica-a 60s ago (2026-03-01T11:59:00Z).
Mode: act: Evenkeel decides and acts.
Zone: bay; its neighbours watch it.
Condition Ready: True
Incident: shore-2-1772366340

Evidence, as of the decision:
  - Lease: stale; last seen renewed 25 s ago

What would change the decision:
  - A renewal of its Lease makes it Healthy

Settings:
  mode               act                                          no policy: as the controller's --mode says
  autonomySeconds    0 (profile builtin) or 86400 (profile edge)  no policy: the controller's --profile
  evictAfterSeconds  60                                           FailoverPolicy all
  endpoints          keep                                         no policy: the controller's --profile
  isolated           report                                       no policy: the controller's --profile
  fencing            observe                                      FailoverPolicy all

Not in effect:
  - FailoverPolicy all: fencing: enforce is refused, and observe is used: no fencing method exists yet; set observe or off

Timeline:
  2026-03-01T11:58:58Z  NodeDisconnected  it was cut off
"
    );
}

#[test]
fn a_latch_is_told_in_words() {
    let mut found = found();
    let mut dead = incident("shore-2", "Dead, at stock pace", "its zone voted it dead");
    change(
        &mut dead,
        "/status/latch",
        json!({
            "firstDeadRoundAt": seconds_ago(62),
            "lastSignOfLifeAt": seconds_ago(80),
            "stockPace": "its zone has only two members",
        }),
    );
    found.incidents = vec![dead];
    assert_eq!(
        story(&found, "shore-2").latch,
        [
            "A round of votes first found it dead at 2026-03-01T11:58:58Z",
            "No later round has confirmed the death yet",
            "Its last sign of life was seen at 2026-03-01T11:58:40Z: its pods are kept from stock eviction until the \
             grace period of stock Kubernetes is over",
            "Its pods are evicted no sooner than by stock Kubernetes, because its zone has only two members",
        ]
    );
}

#[test]
fn zones_show_who_reports_who_is_listed_and_who_is_wanted() {
    let report = report(&found(), &Question::Zones(None));
    assert_eq!(
        text(&report, true).lines().skip(1).collect::<Vec<_>>().join("\n"),
        "\
ZONE  MEMBERS  REPORTERS  RENEWED  LISTED         WANTED                 ROSTER     LEASE HELD BY  WITHOUT AGENT  MEMBER NAMES
bay   2        shore-1    6s       shore-2 alive  UID uid-gone, shore-2  version 7  shore-1_x      shore-10       shore-1, shore-2"
    );
}

#[rstest]
#[case::settled(false, &[], "2")]
#[case::a_learner(true, &[], "2 (1 learner)")]
#[case::unsettled(false, &["uid-shore-1", "uid-shore-2"], "2 (not settled)")]
#[case::both(true, &["uid-shore-1", "uid-shore-2"], "2 (1 learner, not settled)")]
fn zones_show_who_has_no_vote_and_what_is_not_settled(
    #[case] learner: bool,
    #[case] settled_voters: &[&str],
    #[case] members: &str,
) {
    let mut found = found();
    let mut roster = found.zones[0].spec.read_roster().unwrap();
    roster.members[1].learner = learner;
    roster.settled_voters = settled_voters.iter().map(|uid| (*uid).to_owned()).collect();
    found.zones[0].spec.signed_roster = Some(publish(&roster, None));
    let text = text(&report(&found, &Question::Zones(None)), false);
    assert!(text.contains(&format!("bay   {members} ")), "{text}");
}

#[test]
fn a_zone_whose_lease_is_not_renewed_is_called_silent() {
    let mut found = found();
    found
        .leases
        .retain(|lease| lease.metadata.name.as_deref() != Some("evenkeel-zone-bay"));
    found.leases.push(lease("evenkeel-zone-bay", "shore-1_x", 30));
    assert!(text(&report(&found, &Question::Zones(Some("bay".to_owned()))), false).contains("30s (silent)"));
}

#[test]
fn incidents_come_open_ones_first() {
    let mut found = found();
    let mut over = incident("shore-1", "Dead, confirmed", "two rounds");
    change(&mut over, "/status/state", json!("Healthy"));
    let mut status = serde_json::to_value(&over).unwrap();
    status["status"]["closedAt"] = json!(seconds_ago(30));
    found.incidents.insert(0, read(status));
    let report = report(&found, &Question::Incidents(None));
    assert_eq!(
        text(&report, false).lines().skip(1).collect::<Vec<_>>(),
        [
            "INCIDENT            NODE     STATE         OPENED  ENDED",
            "shore-2-1772366340  shore-2  Disconnected  62s     open",
            "shore-1-1772366340  shore-1  Healthy       62s     30s",
            "1 open, 1 ended",
        ]
    );
    let earlier = story(&found, "shore-1");
    assert_eq!((earlier.earlier.len(), earlier.evidence.len()), (1, 0));
    assert!(earlier.present.unwrap().is_healthy());
}

#[test]
fn a_pause_is_shown_first_and_stands_in_every_line() {
    let mut found = found();
    found.pause = Some("moving the control plane".to_owned());
    let report = report(&found, &Question::Nodes);
    assert!(text(&report, false).starts_with(
        "PAUSED: moving the control plane. Evenkeel decides and records, and changes nothing. To resume: kubectl annotate \
         namespace evenkeel-system evenkeel.io/pause-\n"
    ));
    assert!(lines(&found).iter().all(|line| line.mode == Mode::Paused));
}

#[test]
fn a_policy_or_the_leaders_record_makes_a_node_observed() {
    let mut found = found();
    change(
        &mut found.incidents[0],
        "/status/decision/observedOnly",
        json!(true),
    );
    let modes: Vec<Mode> = lines(&found).iter().map(|line| line.mode).collect();
    assert_eq!(modes, [Mode::Act, Mode::Observe, Mode::Act]);
    // What the leader tells of itself holds where no policy speaks.
    let mut observing = found.clone();
    let replicas = observing.leases.iter_mut();
    for lease in replicas.filter(|lease| lease.name_any().starts_with(names::REPLICA_LEASE_PREFIX)) {
        lease
            .annotations_mut()
            .insert(names::annotations::MODE.to_owned(), "observe".to_owned());
    }
    assert!(lines(&observing).iter().all(|line| line.mode == Mode::Observe));
    observing.policies.push(read(json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "FailoverPolicy", "metadata": {"name": "act"}, "spec": {"mode": "act"},
    })));
    let modes: Vec<Mode> = lines(&observing).iter().map(|line| line.mode).collect();
    assert_eq!(modes, [Mode::Act, Mode::Observe, Mode::Act]);
    found.policies.push(read(json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "FailoverPolicy", "metadata": {"name": "look"},
        "spec": {"nodeLabels": {"topology.kubernetes.io/zone": "bay"}, "mode": "observe"},
    })));
    assert!(lines(&found).iter().all(|line| line.mode == Mode::Observe));
}

#[rstest]
#[case::works(14, true)]
#[case::silent(15, false)]
#[case::ahead_of_our_clock(-40, true)]
fn a_leader_is_at_work_for_15_s_after_a_renewal(#[case] ago: i64, #[case] works: bool) {
    let mut found = found();
    found.incidents.clear();
    found.leases[0] = lease("evenkeel-controller", "replica-a", ago);
    let report = report(&found, &Question::Nodes);
    assert_eq!(
        (report.controller.leader.works(), report.exit_code()),
        (works, u8::from(!works))
    );
    let text = text(&report, false);
    assert!(text.contains("this machine's clock"), "{text}");
    assert_eq!(text.contains("clocks differ"), ago < 0, "{text}");
    assert_eq!(
        text.starts_with("NO CONTROLLER WORKS: replica-a holds the Lease"),
        !works,
        "{text}"
    );
    assert_eq!(text.contains("but no controller looks at it"), !works, "{text}");
}

#[rstest]
#[case::given_back(Some(""))]
#[case::never_taken(None)]
fn without_a_holder_no_controller_works(#[case] holder: Option<&str>) {
    let mut found = found();
    found.incidents.clear();
    match holder {
        Some(holder) => found.leases[0] = lease("evenkeel-controller", holder, 1),
        None => drop(found.leases.remove(0)),
    }
    let report = report(&found, &Question::Nodes);
    assert_eq!(
        (&report.controller.leader, report.exit_code()),
        (&Leader::None, 1)
    );
    assert!(
        text(&report, false)
            .contains("nobody holds the Lease evenkeel-system/evenkeel-controller; 2 replicas work")
    );
}

#[rstest]
#[case::by_another("by", json!("replica-b"))]
#[case::before_its_term("decidedAt", json!(seconds_ago(3601)))]
fn a_decision_older_than_the_leader_is_called_so(#[case] field: &str, #[case] value: Value) {
    let mut found = found();
    assert!(!lines(&found)[1].older_than_leader);
    change(
        &mut found.incidents[0],
        &format!("/status/decision/{field}"),
        value,
    );
    assert!(lines(&found)[1].older_than_leader);
    let text = text(&report(&found, &Question::Nodes), false);
    assert!(text.contains("(decided before the present leader led)"), "{text}");
}

#[test]
fn all_nodes_healthy_and_a_leader_at_work_is_success() {
    let mut found = found();
    found.incidents.clear();
    assert_eq!(report(&found, &Question::Nodes).exit_code(), 0);
    found
        .troubles
        .push("NodeIncident x cannot be understood".to_owned());
    let report = report(&found, &Question::Nodes);
    assert_eq!(report.exit_code(), 1);
    let text = text(&report, false);
    assert!(
        text.ends_with("\nNot read, or not as it should be:\n  NodeIncident x cannot be understood\n"),
        "{text}"
    );
}

#[test]
fn a_node_that_is_asked_for_answers_for_itself_alone() {
    let found = found();
    let code = |name: &str| report(&found, &Question::Node(name.to_owned())).exit_code();
    assert_eq!((code("shore-1"), code("shore-2"), code("shore-3")), (0, 1, 2));
}

#[test]
fn an_unknown_name_is_met_with_the_closest_ones() {
    let found = found();
    for (question, closest) in [
        (Question::Node("shroe-2".to_owned()), vec!["shore-2"]),
        (Question::Zones(Some("bya".to_owned())), vec!["bay"]),
        (
            Question::Incidents(Some("shore-3".to_owned())),
            vec!["shore-1", "shore-2", "shore-10"],
        ),
    ] {
        match report(&found, &question).subject {
            Subject::Unknown(unknown) => assert_eq!(unknown.closest, closest),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_node_that_is_gone_is_told_of_by_its_incidents() {
    let mut found = found();
    found
        .nodes
        .retain(|node| node.metadata.name.as_deref() != Some("shore-2"));
    let gone = report(&found, &Question::Node("shore-2".to_owned()));
    let text = text(&gone, false);
    assert!(text.contains("Node shore-2 does not exist any more."), "{text}");
    assert!(text.contains("it was cut off"), "{text}");
    assert!(
        gone.troubles[0].contains("the leading controller closes it"),
        "{:?}",
        gone.troubles
    );
    assert_eq!(gone.exit_code(), 1);
}

#[test]
fn a_machine_that_was_registered_anew_has_no_part_in_its_predecessors_incident() {
    let mut found = found();
    found.nodes[1].metadata.uid = Some("uid-of-another".to_owned());
    assert!(lines(&found)[1].is_healthy());
}

#[test]
fn programs_get_the_same_in_json_and_yaml() {
    let report: Report = report(&found(), &Question::Nodes);
    let json: Value = serde_json::from_str(&Format::Json.of(&report, text).unwrap()).unwrap();
    assert_eq!(json["controller"]["leader"]["state"], "works");
    assert_eq!(json["controller"]["leader"]["renewedAt"], "2026-03-01T11:59:59Z");
    assert_eq!(json["nodes"][1]["state"], "Disconnected");
    assert_eq!(
        (&json["healthy"], &json["nodes"][1]["olderThanLeader"]),
        (&json!(false), &json!(false))
    );
    let yaml: Value = serde_saphyr::from_str(&Format::Yaml.of(&report, text).unwrap()).unwrap();
    assert_eq!(yaml, json);
}

#[rstest]
#[case("", Question::Nodes)]
#[case("shore-2", Question::Node("shore-2".to_owned()))]
#[case("node/zones", Question::Node("zones".to_owned()))]
#[case("zones", Question::Zones(None))]
#[case("zones bay -o wide", Question::Zones(Some("bay".to_owned())))]
#[case("incidents shore-2 --context prod", Question::Incidents(Some("shore-2".to_owned())))]
fn a_command_line_asks_a_question(#[case] line: &str, #[case] expected: Question) {
    let args = Cli::try_parse_from(std::iter::once("status").chain(line.split_whitespace()))
        .unwrap()
        .status;
    assert_eq!(question(args.what.as_deref(), args.name).unwrap(), expected);
}

#[test]
fn two_nodes_are_refused_with_what_to_write() {
    let refused = question(Some("shore-1"), Some("shore-2".to_owned()))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("one node at a time"), "{refused}");
}

/// Against the embedded API server, with the rights of a reader.
mod api {
    use super::super::read;
    use super::*;
    use evenkeel_testkit::Cluster;
    use k8s_openapi::api::core::v1::Namespace;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    #[tokio::test]
    async fn a_readers_rights_are_enough_and_what_cannot_be_decoded_is_named() {
        let cluster = Cluster::new();
        cluster.install().await;
        for name in ["shore-1", "shore-2"] {
            cluster.node(name).await;
        }
        let home = cluster.namespaced("evenkeel-system");
        home.renew("evenkeel-controller", "replica-a").await;
        let pause = json!({"metadata": {"annotations": {"evenkeel.io/pause": "why"}}});
        cluster.merge::<Namespace>("evenkeel-system", pause).await;
        // Something that another version wrote: the schema of this one would refuse it.
        let loose = json!({"spec": {"versions": [{
            "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        }]}});
        cluster
            .merge::<CustomResourceDefinition>("nodeincidents.evenkeel.io", loose)
            .await;
        let strange = json!({
            "apiVersion": "evenkeel.io/v1alpha1", "kind": "NodeIncident", "metadata": {"name": "strange"},
            "spec": {"nodeName": 7},
        });
        cluster.create_any(strange).await;
        let rules = json!([
            {"apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": ["get", "list"]},
            {"apiGroups": ["evenkeel.io"], "resources": ["*"], "verbs": ["get", "list"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list"]},
        ]);
        cluster.grant("alice", rules).await;

        let reader = cluster.server().client_as("alice", &["system:authenticated"]);
        let found = read::found(&reader, names::NAMESPACE).await.unwrap();
        assert_eq!((found.nodes.len(), found.pause.as_deref()), (2, Some("why")));
        let report = report(&found, &Question::Nodes);
        assert!(report.controller.leader.works());
        assert_eq!(report.exit_code(), 1);
        let [trouble] = report.troubles.as_slice() else {
            panic!("{:?}", report.troubles)
        };
        assert!(
            trouble.starts_with("NodeIncident strange cannot be understood ("),
            "{trouble}"
        );
        assert!(
            trouble.contains("kubectl get nodeincidents strange -o yaml"),
            "{trouble}"
        );

        let stranger = cluster.server().client_as("mallory", &["system:authenticated"]);
        let refused = read::found(&stranger, names::NAMESPACE)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("cannot read nodes") && refused.contains("ask for the right"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn a_cluster_without_our_kinds_is_told_how_to_install_them() {
        let cluster = Cluster::new();
        let error = read::found(&cluster.client, names::NAMESPACE)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot read nodeincidents.evenkeel.io"), "{error}");
        assert!(error.contains("kubectl apply -f deploy/crds.yaml"), "{error}");
    }
}
