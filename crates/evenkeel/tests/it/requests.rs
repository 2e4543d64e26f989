//! What an incident costs the API server, on Kubernetes' own control plane: which requests its controllers
//! and Evenkeel's make, by the audit log, with Evenkeel and without.

#![allow(clippy::print_stdout, reason = "with --nocapture it says what was counted")]

use crate::support::evenkeel;
use evenkeel_testkit::real::Kubernetes;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;

const AUDIT: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"], "rules": [{"level": "Metadata"}]}"#;

/// Some ten on each node.
const PODS: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
    "spec": {"replicas": 30, "selector": {"matchLabels": {"app": "web"}}, "template": {
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]}}}}
---
{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}"#;

/// Words of the scenario that say when the incident begins and ends.
const BEGINS: &str = "# the incident begins";
const ENDS: &str = "# the incident is over";

fn scenario(fault: &str) -> String {
    format!(
        r#"{{"name": "requests", "nodes": 3, "profile": "edge", "apply": [{{"file": "pods.yaml"}}], "steps": [
            {{"wait": {{"until": "clean", "within": "120s"}}}}, {{"hold": {{"for": "30s"}}}},
            {{"note": {begins:?}}}, {fault}, {{"heal": {{}}}},
            {{"wait": {{"until": "clean", "within": "120s"}}}}, {{"note": {ends:?}}}]}}"#,
        begins = &BEGINS[2..],
        ends = &ENDS[2..],
    )
}

#[test]
#[ignore = "plays four incidents in their real length, a quarter of an hour, for docs/benchmarks.md"]
fn what_an_incident_costs_the_api_server() {
    let home = TempDir::new().expect("a temporary directory");
    let path = |name: &str| home.path().join(name);
    let (policy, log) = (path("policy.json"), path("audit.log"));
    fs::write(&policy, AUDIT).expect("the directory is writable");
    fs::write(path("pods.yaml"), PODS).expect("the directory is writable");
    let flags = [
        format!("kube-apiserver=--audit-policy-file={}", policy.display()),
        format!("kube-apiserver=--audit-log-path={}", log.display()),
    ];
    let flags = flags.each_ref().map(String::as_str);
    let Some(kubernetes) = Kubernetes::start_with("what_an_incident_costs_the_api_server", &flags) else {
        return;
    };
    let faults = [
        (
            "a node is cut off for 60 s",
            r#"{"cut": {"node": "shore-2"}}, {"hold": {"for": "60s"}}"#,
        ),
        (
            "a node loses its power until its pods run elsewhere",
            r#"{"kill": {"node": "shore-2"}}, {"expect": {"replaced": "420s"}}"#,
        ),
    ];
    for (what, fault) in faults {
        for agents in [true, false] {
            let file = path("scenario.yaml");
            fs::write(&file, scenario(fault)).expect("the directory is writable");
            let incident = play(&kubernetes.kubeconfig(), &file, &path("lab"), agents);
            let asked = asked(
                &fs::read_to_string(&log).expect("the audit log is there"),
                incident,
            );
            let side = if agents {
                "with Evenkeel"
            } else {
                "Kubernetes alone"
            };
            println!("{what}, {side}: {:.0} s", seconds(incident));
            for (who, requests) in &asked {
                println!("  {who}: {}", told(requests));
            }
            let deleted: usize = asked
                .values()
                .filter_map(|requests| requests.get("delete pods"))
                .sum();
            let is_cut = what.contains("cut off");
            assert_eq!(deleted == 0, is_cut, "{deleted} pods were deleted");
        }
    }
}

/// Plays the scenario in a lab that joins the cluster. When the incident began, and when it was over.
fn play(kubeconfig: &Path, scenario: &Path, dir: &Path, agents: bool) -> (Timestamp, Timestamp) {
    let mut lab = evenkeel()
        .args(["lab", "run", "--yes", "--subnet", "119", "--join"])
        .arg(kubeconfig)
        .arg("--dir")
        .arg(dir)
        .args((!agents).then_some("--without-agents"))
        .arg(scenario)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the lab starts");
    let (mut began, mut over, mut said) = (None, None, String::new());
    for line in BufReader::new(lab.stdout.take().expect("it is piped")).lines() {
        let line = line.expect("the lab writes text");
        if line.ends_with(BEGINS) {
            began = Some(Timestamp::now());
        }
        if line.ends_with(ENDS) {
            over = Some(Timestamp::now());
        }
        said = said + &line + "\n";
    }
    let ended = lab.wait().expect("it is our child");
    assert!(ended.success(), "{ended}: {said}");
    began
        .zip(over)
        .unwrap_or_else(|| unreachable!("the incident has no begin or no end: {said}"))
}

fn seconds((began, over): (Timestamp, Timestamp)) -> f64 {
    over.duration_since(began).as_secs_f64()
}

/// How often each asked for what, as in `patch nodes/status`, between two times.
fn asked(
    log: &str,
    (began, over): (Timestamp, Timestamp),
) -> BTreeMap<&'static str, BTreeMap<String, usize>> {
    let mut asked: BTreeMap<_, BTreeMap<String, usize>> = BTreeMap::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).expect("the audit log has an event on each line");
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let at: Timestamp = text("/requestReceivedTimestamp").parse().expect("a time");
        if at < began || at > over {
            continue;
        }
        let Some(who) = who(text("/user/username"), text("/userAgent")) else {
            continue;
        };
        // What is no resource, as which versions the server speaks, nobody asks for because of an incident.
        if text("/objectRef/resource").is_empty() {
            continue;
        }
        let mut what = format!("{} {}", text("/verb"), text("/objectRef/resource"));
        let subresource = text("/objectRef/subresource");
        if !subresource.is_empty() {
            what = format!("{what}/{subresource}");
        }
        // Leases of elections and replicas, which are renewed whatever happens.
        if what.ends_with(" leases") && text("/objectRef/namespace") != "kube-node-lease" {
            "its own Leases".clone_into(&mut what);
        }
        *asked.entry(who).or_default().entry(what).or_default() += 1;
    }
    asked
}

fn who(user: &str, program: &str) -> Option<&'static str> {
    if program.starts_with("evenkeel-controller/") || program.starts_with("evenkeel-leader-election/") {
        return Some("Evenkeel's controller");
    }
    match user.strip_prefix("system:serviceaccount:kube-system:") {
        Some("node-controller") => Some("Kubernetes' node controllers"),
        Some(account) if account.ends_with("-controller") => Some("other controllers of Kubernetes"),
        _ if user == "system:kube-scheduler" => Some("other controllers of Kubernetes"),
        _ => None,
    }
}

/// As `7 writes (patch nodes 2, …), 3 reads (…), and 60 of its own Leases`.
fn told(requests: &BTreeMap<String, usize>) -> String {
    let (reads, writes): (Vec<_>, Vec<_>) = requests
        .iter()
        .filter(|(what, _)| !what.starts_with("its own"))
        .partition(|(what, _)| {
            ["get ", "list ", "watch "]
                .iter()
                .any(|verb| what.starts_with(verb))
        });
    let sum = |list: &[(&String, &usize)]| list.iter().map(|(_, count)| **count).sum::<usize>();
    let each = |list: &[(&String, &usize)]| {
        let each: Vec<String> = list
            .iter()
            .map(|(what, count)| format!("{what} {count}"))
            .collect();
        each.join(", ")
    };
    format!(
        "{} writes ({}), {} reads ({}), and {} of its own Leases",
        sum(&writes),
        each(&writes),
        sum(&reads),
        each(&reads),
        requests.get("its own Leases").copied().unwrap_or_default()
    )
}
