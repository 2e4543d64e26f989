use super::*;
use crate::objects::Options;
use crate::rollout::Sight;
use rstest::rstest;
use serde_json::json;

const NOW: &str = "2026-11-28T02:00:00Z";

fn node(name: &str, more: Value) -> Value {
    let mut labels = json!({"topology.kubernetes.io/zone": "shore"});
    if let (Some(labels), Some(more)) = (labels.as_object_mut(), more.as_object()) {
        labels.extend(more.clone());
        labels.retain(|_, value| !value.is_null());
    }
    let ready = json!([{"type": "Ready", "status": "True"}]);
    json!({"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"conditions": ready}})
}

fn agent(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "creationTimestamp": "2026-11-28T01:00:00Z"},
        "spec": {
            "version": env!("CARGO_PKG_VERSION"), "kubelet": {"address": "10.0.0.1:10250"}, "nodeUid": name,
            "roster": {"cell": "shore", "cellUid": "c", "version": 6},
        },
    })
}

/// A cell with this roster, written at this time.
fn cell(members: &[&str], settled_voters: &[&str], written: &str) -> Value {
    let members: Vec<Value> = members
        .iter()
        .map(|name| json!({"name": name, "uid": name, "address": "10.0.0.1:7959", "publicKey": ""}))
        .collect();
    let roster = json!({"version": 7, "cell": "shore", "cellUid": "c", "members": members, "settledVoters": settled_voters});
    json!({
        "metadata": {"name": "shore", "managedFields": [{"time": written}]},
        "spec": {"zone": "shore", "signedRoster": {"text": roster.to_string()}},
    })
}

fn trouble(facts: &mut Facts, kind: &str, is_forbidden: bool) {
    let (what, why) = (format!("objects of kind {kind}"), "it is so".to_owned());
    let error = InstallError::Read {
        what,
        why,
        is_forbidden,
    };
    facts.troubles.push((kind.to_owned(), error));
}

fn part<'a>(facts: &'a mut Facts, kind: &str, of: &str) -> &'a mut Value {
    let mut parts = facts.parts.iter_mut();
    parts
        .find(|part| part["kind"] == kind && name(part) == of)
        .unwrap()
}

fn pod(component: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": component, "namespace": "evenkeel-system", "labels": {"app.kubernetes.io/component": component}},
        "spec": {"nodeName": node},
    })
}

fn replica(name: &str, renewed: &str) -> Value {
    let name = format!("evenkeel-controller-replica-{name}");
    json!({"metadata": {"name": name, "managedFields": [{"time": renewed}]}, "spec": {"renewTime": "2026-01-01T00:00:00Z"}})
}

/// The Lease of the cell's reporters, renewed at this time.
fn reporter(renewed: &str) -> Value {
    json!({"metadata": {"name": "evenkeel-zone-shore", "managedFields": [{"time": renewed}]}})
}

/// A learner in a settled cell, which has met so many of the two that have a vote.
fn learner(facts: &mut Facts, met: u32) {
    let mut roster: Value =
        serde_json::from_str(facts.cells[0]["spec"]["signedRoster"]["text"].as_str().unwrap()).unwrap();
    roster["members"][1]["learner"] = json!(true);
    facts.cells[0]["spec"]["signedRoster"]["text"] = json!(roster.to_string());
    facts.agents[1]["spec"]["roster"] = json!({"cellUid": "c", "version": 7, "met": met, "metVoters": met});
}

/// An installation on three nodes and one of the control plane, of which nothing is to be said.
fn healthy() -> Facts {
    let options = Options {
        mode: "act".to_owned(),
        ..Options::default()
    };
    let all = objects(&options);
    let of_kind = |kind: &str| {
        all.iter()
            .filter(|object| object["kind"] == kind)
            .cloned()
            .collect::<Vec<_>>()
    };
    let workload = |kind: &str, status: Value| {
        let mut object = of_kind(kind).remove(0);
        object["status"] = status;
        object
    };
    let members = ["shore-1", "shore-2", "shore-3"];
    let mut nodes: Vec<Value> = members.iter().map(|name| node(name, json!({}))).collect();
    for name in ["cloud-1", "cloud-2"] {
        nodes.push(node(name, json!({"node-role.kubernetes.io/control-plane": ""})));
    }
    let now: jiff::Timestamp = NOW.parse().unwrap();
    Facts {
        now,
        server_time: Some(now),
        nodes,
        agents: members.iter().map(|name| agent(name)).collect(),
        leases: vec![
            replica("a", "2026-11-28T01:59:58Z"),
            replica("b", "2026-11-28T01:59:50Z"),
            reporter("2026-11-28T01:59:50Z"),
        ],
        cells: vec![cell(&members, &[], "2026-11-28T01:00:00Z")],
        parts: all.clone(),
        webhook: Some(json!({"webhooks": [{"name": "pods.guard.evenkeel.io"}]})),
        reach: Reach::Answers,
        has_node_controller_account: true,
        sight: Sight {
            deployment: workload(
                "Deployment",
                json!({"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}),
            ),
            daemon_set: workload(
                "DaemonSet",
                json!({
                    "observedGeneration": 1, "desiredNumberScheduled": 5, "updatedNumberScheduled": 5, "numberAvailable": 5,
                }),
            ),
            pods: vec![pod("controller", "cloud-1"), pod("controller", "cloud-2")],
            events: Vec::new(),
        },
        options: Some(options),
        ..Facts::default()
    }
}

#[test]
fn nothing_is_said_of_an_installation_that_is_well() {
    assert_eq!(findings(&healthy()), []);
}

/// Nodes on which no agent runs, and pods that have ended.
#[rstest]
#[case(|f: &mut Facts| f.nodes.push(node("w", json!({"kubernetes.io/os": "windows"}))))]
#[case(|f: &mut Facts| f.nodes.push(node("f", json!({"eks.amazonaws.com/compute-type": "fargate"}))))]
#[case(|f: &mut Facts| {
    let mut ended = pod("controller", "cloud-1");
    ended["status"]["phase"] = json!("Failed");
    f.sight.pods.push(ended);
})]
fn nothing_is_said_of_what_is_as_it_should_be(#[case] change: fn(&mut Facts)) {
    let mut facts = healthy();
    change(&mut facts);
    assert_eq!(findings(&facts), []);
}

/// One change of a healthy installation, how bad it is, its check, and words of what is said.
#[rstest]
#[case(|f: &mut Facts| trouble(f, "Pod", true), Severity::Warning, "reading", "cannot read objects of kind Pod: it is so")]
#[case(|f: &mut Facts| f.version_note = Some("1.40".to_owned()), Severity::Warning, "version", "1.40")]
#[case(|f: &mut Facts| f.version_refused = Some("1.20".to_owned()), Severity::Error, "version", "1.20")]
#[case(|f: &mut Facts| f.options.as_mut().unwrap().mode = "observe".to_owned(), Severity::Note, "mode", "observe")]
#[case(|f: &mut Facts| f.namespace = json!({"metadata": {"annotations": {"evenkeel.io/pause": "storm"}}}), Severity::Warning, "pause", "storm")]
#[case(|f: &mut Facts| f.sight.deployment = Value::Null, Severity::Error, "install", "without Deployment evenkeel-controller")]
#[case(|f: &mut Facts| { f.unread = vec!["--mode"]; f.options.as_mut().unwrap().mode = "observe".to_owned(); }, Severity::Warning, "install", "do not say what was set with --mode")]
#[case(|f: &mut Facts| f.parts.retain(|part| name(part) != "nodeincidents.evenkeel.io"), Severity::Error, "crds", "the cluster has no CustomResourceDefinition nodeincidents")]
#[case(|f: &mut Facts| part(f, "CustomResourceDefinition", "nodeincidents.evenkeel.io")["spec"]["versions"][0]["schema"] = json!({}), Severity::Warning, "crds", "not what this version of Evenkeel applies")]
#[case(|f: &mut Facts| f.parts.retain(|part| name(part) != "evenkeel-zonereport" || part["kind"] != "ValidatingAdmissionPolicy"), Severity::Error, "policies", "evenkeel-zonereport")]
#[case(|f: &mut Facts| part(f, "ValidatingAdmissionPolicy", "evenkeel-zonereport")["spec"]["failurePolicy"] = json!("Ignore"), Severity::Error, "policies", "evenkeel-zonereport")]
#[case(|f: &mut Facts| part(f, "ValidatingAdmissionPolicyBinding", "evenkeel-zonereport")["spec"]["validationActions"] = json!(["Audit"]), Severity::Error, "policies", "evenkeel-zonereport")]
#[case(|f: &mut Facts| part(f, "ClusterRole", "evenkeel-agent")["rules"][0]["verbs"] = json!(["*"]), Severity::Warning, "rights", "not what this version of Evenkeel applies: ClusterRole")]
#[case(|f: &mut Facts| part(f, "ClusterRoleBinding", "evenkeel-agent")["subjects"] = Value::Null, Severity::Warning, "rights", "evenkeel-agent")]
#[case(|f: &mut Facts| f.cells = vec![cell(&["shore-1", "shore-3"], &[], NOW)], Severity::Warning, "cells", "in no cell, so that nobody watches their nodes: shore-2")]
#[case(|f: &mut Facts| { f.cells = vec![cell(&["shore-1", "shore-2", "shore-3"], &["shore-1"], "2026-11-28T01:00:00Z")]; f.agents[1]["spec"]["roster"]["version"] = json!(7); }, Severity::Warning, "cells", "have not taken the present roster of their cell: shore-1, shore-3")]
#[case(|f: &mut Facts| f.leases[2] = reporter("2026-11-28T01:58:50Z"), Severity::Warning, "peers", "no member reports for these cells, so that no death in them is found early: shore")]
#[case(|f: &mut Facts| drop(f.leases.remove(2)), Severity::Warning, "peers", "no member reports")]
#[case(|f: &mut Facts| learner(f, 1), Severity::Warning, "peers", "hear half of their cell or less, and have no vote: shore-2")]
#[case(|f: &mut Facts| f.sight.daemon_set["status"]["numberAvailable"] = json!(3), Severity::Warning, "workloads", "3 of 5 agents")]
#[case(|f: &mut Facts| f.agents[0]["spec"]["version"] = json!("0.0.1"), Severity::Warning, "versions", "shore-1")]
#[case(|f: &mut Facts| drop(f.leases.drain(..2)), Severity::Error, "controllers", "no controller works")]
#[case(|f: &mut Facts| f.leases[1] = replica("b", "2026-11-28T01:50:00Z"), Severity::Warning, "controllers", "works alone")]
#[case(|f: &mut Facts| f.sight.pods[1]["spec"]["nodeName"] = json!("cloud-1"), Severity::Warning, "controllers", "several controllers")]
#[case(|f: &mut Facts| f.sight.pods[1]["spec"]["nodeName"] = json!("shore-1"), Severity::Warning, "controllers", "a node that it judges: shore-1")]
#[case(|f: &mut Facts| f.webhook = None, Severity::Error, "webhook", "not registered")]
#[case(|f: &mut Facts| f.webhook = Some(json!({})), Severity::Error, "webhook", "not registered")]
#[case(|f: &mut Facts| f.reach = Reach::Fails("timeout".to_owned()), Severity::Error, "webhook", "timeout")]
#[case(|f: &mut Facts| f.reach = Reach::Unknown, Severity::Warning, "webhook", "nobody could try")]
#[case(|f: &mut Facts| f.parts.retain(|part| full_name(part) != "kube-node-lease/evenkeel-agent" || part["kind"] != "Role"), Severity::Error, "rights", "the cluster has no Role kube-node-lease/evenkeel-agent")]
#[case(|f: &mut Facts| f.fail_open = Some(3), Severity::Note, "webhook", "3 times")]
#[case(|f: &mut Facts| f.fail_open = Some(101), Severity::Warning, "webhook", "101 times")]
#[case(|f: &mut Facts| drop(f.agents.remove(1)), Severity::Warning, "agents", "registered on shore-2")]
#[case(|f: &mut Facts| f.agents[0]["spec"]["checkProblem"] = json!("icmp"), Severity::Warning, "agents", "checks: shore-1")]
#[case(|f: &mut Facts| f.agents[0]["spec"]["kubelet"] = Value::Null, Severity::Warning, "agents", "the kubelet of shore-1")]
#[case(|f: &mut Facts| f.nodes.push(node("x", json!({"topology.kubernetes.io/zone": null}))), Severity::Warning, "zones", "in no zone")]
#[case(|f: &mut Facts| { f.nodes.remove(0); f.agents.remove(0); }, Severity::Warning, "zones", "two nodes")]
#[case(|f: &mut Facts| { f.nodes.drain(..2); f.agents.drain(..2); }, Severity::Warning, "zones", "one node")]
#[case(|f: &mut Facts| f.has_node_controller_account = false, Severity::Warning, "node-controller", "another user")]
#[case(|f: &mut Facts| f.now = "2026-11-28T02:00:09Z".parse().unwrap(), Severity::Warning, "clock", "9 s")]
#[case(|f: &mut Facts| f.node_leases = vec![lease("2026-11-28T02:03:00Z")], Severity::Note, "clock", "shore-1 by 180 s")]
#[case(|f: &mut Facts| f.pods = vec![taker()], Severity::Error, "ports", "UDP port 7959")]
#[case(|f: &mut Facts| f.pods = vec![tolerant(); 3], Severity::Warning, "tolerations", "for 60 s")]
fn what_is_wrong_is_found_alone(
    #[case] change: fn(&mut Facts),
    #[case] severity: Severity,
    #[case] check: &str,
    #[case] words: &str,
) {
    let mut facts = healthy();
    change(&mut facts);
    let found = findings(&facts);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].severity, found[0].check), (severity, check));
    assert!(found[0].problem.contains(words), "{found:?}");
    assert!(!found[0].fix.is_empty());
}

fn lease(renewed: &str) -> Value {
    json!({"metadata": {"name": "shore-1", "managedFields": [{"time": NOW}]}, "spec": {"renewTime": renewed}})
}

fn taker() -> Value {
    json!({
        "metadata": {"name": "dns", "namespace": "theirs"},
        "spec": {"containers": [{"ports": [{"hostPort": 7959, "protocol": "UDP"}, {"hostPort": 9851, "protocol": "UDP"}]}]},
    })
}

fn tolerant() -> Value {
    json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unreachable", "tolerationSeconds": 60}]}})
}

/// From a list that could not be read nothing follows, and of what a trouble says its fix depends on.
#[rstest]
#[case("Node", true)]
#[case("AgentStatus", false)]
#[case("ZoneHealth", true)]
#[case("Lease", true)]
#[case("CustomResourceDefinition", true)]
#[case("ValidatingAdmissionPolicy", true)]
#[case("ClusterRole", true)]
#[case("MutatingWebhookConfiguration", true)]
#[case("ServiceAccount", true)]
#[case("Deployment", true)]
#[case("DaemonSet", true)]
fn what_could_not_be_read_is_said_and_no_more(#[case] kind: &str, #[case] is_forbidden: bool) {
    let mut facts = healthy();
    trouble(&mut facts, kind, is_forbidden);
    match kind {
        "Node" => facts.nodes.clear(),
        "AgentStatus" => facts.agents.clear(),
        "ZoneHealth" => facts.cells.clear(),
        "Lease" => facts.leases.clear(),
        "MutatingWebhookConfiguration" => facts.webhook = None,
        "ServiceAccount" => facts.has_node_controller_account = false,
        "Deployment" => facts.sight.deployment = Value::Null,
        "DaemonSet" => facts.sight.daemon_set = Value::Null,
        _ => facts.parts.retain(|part| part["kind"] != kind),
    }
    let found = findings(&facts);
    let fix = if is_forbidden {
        "rights of a cluster reader"
    } else {
        "see to the API server"
    };
    assert_eq!((found.len(), found[0].check), (1, "reading"), "{found:?}");
    assert!(found[0].fix.contains(fix), "{found:?}");
}

/// It is not there yet, or the node is not Ready, and either explains it.
#[test]
fn a_cell_that_changes_is_given_its_time() {
    let mut facts = healthy();
    facts.cells = vec![cell(
        &["shore-1", "shore-2", "shore-3"],
        &["shore-1"],
        "2026-11-28T01:59:00Z",
    )];
    assert_eq!(findings(&facts), []);
    facts.cells = vec![cell(&["shore-1", "shore-3"], &[], NOW)];
    facts.agents[1]["metadata"]["creationTimestamp"] = json!("2026-11-28T01:59:00Z");
    assert_eq!(findings(&facts), []);
    facts.agents[1]["metadata"]["creationTimestamp"] = json!("2026-11-28T01:00:00Z");
    facts.nodes[1]["status"] = json!({});
    assert_eq!(findings(&facts), []);
    let mut facts = healthy();
    learner(&mut facts, 2);
    assert_eq!(findings(&facts), []);
}

/// Nobody has begun to report in a cell that is new, and nobody can where most nodes are not Ready.
#[test]
fn a_cell_may_be_without_a_reporter() {
    let mut facts = healthy();
    facts.leases.truncate(2);
    facts.cells = vec![cell(
        &["shore-1", "shore-2", "shore-3"],
        &[],
        "2026-11-28T01:59:00Z",
    )];
    assert_eq!(findings(&facts), []);
    let mut facts = healthy();
    facts.leases.truncate(2);
    for node in &mut facts.nodes[..2] {
        node["status"] = json!({});
    }
    assert_eq!(findings(&facts), []);
}

#[test]
fn a_setting_in_the_environment_of_the_controller_counts() {
    let mut facts = healthy();
    facts.pods = vec![tolerant(); 3];
    let container = facts
        .sight
        .deployment
        .pointer_mut("/spec/template/spec/containers/0/env")
        .unwrap();
    let set = json!({"name": "EVENKEEL_DEFAULT_UNREACHABLE_TOLERATION_SECONDS", "value": "60"});
    container.as_array_mut().unwrap().push(set);
    assert_eq!(findings(&facts), []);
}

#[test]
fn before_an_installation_it_is_said_whether_one_would_be_taken() {
    let mut facts = Facts {
        nodes: healthy().nodes,
        has_node_controller_account: true,
        ..Facts::default()
    };
    let found = findings(&facts);
    assert_eq!(
        (found.len(), found[0].severity, found[0].check),
        (1, Severity::Note, "install")
    );
    facts.unclear = Some(("several installations".to_owned(), "uninstall".to_owned()));
    let found = findings(&facts);
    assert_eq!((found.len(), found[0].severity), (1, Severity::Error));
    assert_eq!(found[0].problem, "several installations");
    facts.unclear = None;
    facts.refused = Some("you may not apply ClusterRole x".to_owned());
    let found = findings(&facts);
    assert_eq!(
        (found.len(), found[0].severity, found[0].check),
        (1, Severity::Error, "install")
    );
}

#[test]
fn the_worst_comes_first_and_long_lists_are_cut() {
    let mut facts = healthy();
    facts.options.as_mut().unwrap().mode = "observe".to_owned();
    drop(facts.leases.drain(..2));
    for number in 0..9 {
        facts.nodes.push(node(
            &format!("x-{number}"),
            json!({"topology.kubernetes.io/zone": null}),
        ));
    }
    let found = findings(&facts);
    let order: Vec<Severity> = found.iter().map(|finding| finding.severity).collect();
    assert_eq!(order, [Severity::Error, Severity::Warning, Severity::Note]);
    assert!(
        found[1].problem.ends_with("x-0, x-1, x-2 and 6 more"),
        "{found:?}"
    );
}
