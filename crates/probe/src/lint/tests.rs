use super::*;
use crate::manifest::Documents;
use serde_json::json;
use std::collections::BTreeSet;

fn findings(object: &Value) -> Vec<Finding> {
    lint(&Documents::parse("x.yaml", &object.to_string()).unwrap().workloads)
}

fn codes(object: &Value) -> BTreeSet<&'static str> {
    findings(object).iter().map(|finding| finding.code).collect()
}

/// A pod with one container that has these fields.
fn pod(container: Value) -> Value {
    let mut base = json!({"name": "web", "image": "x"});
    for (name, value) in container.as_object().unwrap() {
        base[name] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [base]}})
}

fn liveness(probe: Value) -> Value {
    pod(json!({"livenessProbe": probe}))
}

fn readiness(probe: Value) -> Value {
    pod(json!({"readinessProbe": probe}))
}

/// `object` with a member of its pod's spec.
fn with(mut object: Value, name: &str, value: Value) -> Value {
    object["spec"][name] = value;
    object
}

fn annotated(mut object: Value, text: &str) -> Value {
    object["metadata"]["annotations"] = json!({"evenkeel.io/probes": text});
    object
}

/// For each rule, what it finds and what it leaves alone.
fn cases() -> Vec<(&'static str, Value, Value)> {
    let get = |port: Value| json!({"httpGet": {"port": port, "path": "/healthz"}});
    let http = |extra: Value| {
        let mut get = json!({"port": 80, "path": "/healthz"});
        for (name, value) in extra.as_object().unwrap() {
            get[name] = value.clone();
        }
        readiness(json!({"httpGet": get}))
    };
    let exec = |command: &[&str], period: u32| {
        readiness(json!({"exec": {"command": command}, "periodSeconds": period}))
    };
    let deployment = |replicas: u32| {
        let pod = exec(&["true"], 10);
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": replicas, "template": {"spec": pod["spec"]}}})
    };
    let times = |mut probe: Value, times: Value| {
        for (name, value) in times.as_object().unwrap() {
            probe[name] = value.clone();
        }
        probe
    };
    let sidecar = |extra: Value| {
        let mut side = json!({"name": "side", "image": "x", "restartPolicy": "Always"});
        for (name, value) in extra.as_object().unwrap() {
            side[name] = value.clone();
        }
        with(pod(json!({})), "initContainers", json!([side]))
    };
    let variable = json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let stop = |hook: Value| pod(json!({"lifecycle": {"preStop": hook}}));
    let live = get(json!(80));
    vec![
        ("EK-P001", liveness(json!({})), liveness(live.clone())),
        (
            "EK-P002",
            annotated(readiness(live.clone()), "web: {readinessProbe: {perod: 1s}}"),
            annotated(
                readiness(live.clone()),
                "web: {readinessProbe: {period: 1s, timeout: 1s}}",
            ),
        ),
        ("EK-P003", annotated(deployment(1), "x: {}"), deployment(1)),
        (
            "EK-P004",
            readiness(get(json!("http"))),
            pod(
                json!({"ports": [{"name": "http", "containerPort": 80}], "readinessProbe": get(json!("http"))}),
            ),
        ),
        ("EK-P004", readiness(get(json!(0))), readiness(get(json!("8080")))),
        (
            "EK-P005",
            pod(json!({"ports": [{"containerPort": 81}], "readinessProbe": live})),
            pod(json!({"ports": [{"containerPort": 80}], "readinessProbe": live})),
        ),
        (
            "EK-P006",
            http(json!({"host": "127.0.0.1"})),
            http(json!({"host": "10.0.0.1"})),
        ),
        (
            "EK-P006",
            http(json!({"host": "LocalHost"})),
            with(http(json!({"host": "::1"})), "hostNetwork", json!(true)),
        ),
        (
            "EK-P007",
            http(json!({"host": "example.com"})),
            http(json!({"host": "[::1]"})),
        ),
        ("EK-P008", http(json!({"scheme": "HTTPS"})), http(json!({}))),
        (
            "EK-P009",
            http(json!({"httpHeaders": [{"name": "AUTHORIZATION", "value": "Bearer hush"}]})),
            http(json!({"httpHeaders": [{"name": "Accept", "value": "*/*"}]})),
        ),
        (
            "EK-P010",
            readiness(json!({"grpc": {"port": 80}})),
            http(json!({})),
        ),
        ("EK-P011", http(json!({"path": null})), http(json!({}))),
        (
            "EK-P012",
            liveness(json!({"tcpSocket": {"port": 80}})),
            readiness(json!({"tcpSocket": {"port": 80}})),
        ),
        (
            "EK-P013",
            liveness(json!({"httpGet": {"port": 80, "path": "/health/DB?full"}})),
            liveness(json!({"httpGet": {"port": 80, "path": "/already"}})),
        ),
        (
            "EK-P014",
            exec(&["sh", "-c", "ps | grep x"], 10),
            exec(&["/bin/bash", "-ec", "a && b"], 10),
        ),
        (
            "EK-P015",
            pod(json!({"env": variable, "readinessProbe": {"exec": {"command": ["x", "-n=$(A)"]}}})),
            pod(json!({"env": variable, "readinessProbe": {"exec": {"command": ["x", "-n=$$(A)"]}}})),
        ),
        ("EK-P016", exec(&["true"], 9), exec(&["true"], 10)),
        ("EK-P017", deployment(10), deployment(9)),
        (
            "EK-P018",
            readiness(times(live.clone(), json!({"timeoutSeconds": 11}))),
            readiness(times(live.clone(), json!({"timeoutSeconds": 10}))),
        ),
        (
            "EK-P019",
            pod(json!({"livenessProbe": live, "readinessProbe": live})),
            pod(
                json!({"livenessProbe": times(live.clone(), json!({"failureThreshold": 4})), "readinessProbe": live}),
            ),
        ),
        (
            "EK-P020",
            liveness(times(live.clone(), json!({"initialDelaySeconds": 30}))),
            pod(
                json!({"livenessProbe": times(live.clone(), json!({"initialDelaySeconds": 30})), "startupProbe": live}),
            ),
        ),
        (
            "EK-P021",
            pod(
                json!({"livenessProbe": times(live.clone(), json!({"initialDelaySeconds": 31})), "startupProbe": live}),
            ),
            pod(
                json!({"livenessProbe": times(live.clone(), json!({"initialDelaySeconds": 30})), "startupProbe": live}),
            ),
        ),
        (
            "EK-P022",
            liveness(times(live.clone(), json!({"failureThreshold": 1}))),
            readiness(times(live.clone(), json!({"failureThreshold": 1}))),
        ),
        (
            "EK-P022",
            liveness(times(live.clone(), json!({"periodSeconds": 3}))),
            liveness(times(
                live.clone(),
                json!({"periodSeconds": 3, "timeoutSeconds": 2}),
            )),
        ),
        (
            "EK-P023",
            readiness(times(live.clone(), json!({"periodSeconds": 21}))),
            readiness(times(live.clone(), json!({"periodSeconds": 20}))),
        ),
        (
            "EK-P024",
            readiness(times(live.clone(), json!({"successThreshold": 2}))),
            readiness(live.clone()),
        ),
        (
            "EK-P025",
            readiness(times(live.clone(), json!({"initialDelaySeconds": 10}))),
            readiness(times(live.clone(), json!({"initialDelaySeconds": 11}))),
        ),
        (
            "EK-P026",
            pod(json!({"ports": [{"containerPort": 80}]})),
            pod(json!({"ports": [{"containerPort": 80}], "readinessProbe": live})),
        ),
        (
            "EK-P027",
            liveness(live.clone()),
            pod(json!({"livenessProbe": live, "readinessProbe": live})),
        ),
        (
            "EK-P028",
            sidecar(json!({})),
            sidecar(json!({"startupProbe": live})),
        ),
        (
            "EK-P029",
            liveness(times(live.clone(), json!({"terminationGracePeriodSeconds": 31}))),
            with(
                liveness(times(live.clone(), json!({"terminationGracePeriodSeconds": 31}))),
                "terminationGracePeriodSeconds",
                json!(31),
            ),
        ),
        (
            "EK-P030",
            stop(json!({"sleep": {"seconds": 30}})),
            stop(json!({"sleep": {"seconds": 29}})),
        ),
        (
            "EK-P030",
            stop(json!({"exec": {"command": ["sh", "-c", "sleep 40; kill 1"]}})),
            stop(json!({"exec": {"command": ["sh", "-c", "kill 1; sleep 40"]}})),
        ),
        (
            "EK-P030",
            stop(json!({"exec": {"command": ["/bin/sleep", "40"]}})),
            stop(json!({"httpGet": {"port": 1}})),
        ),
        (
            "EK-P031",
            with(liveness(live.clone()), "restartPolicy", json!("Never")),
            with(readiness(live.clone()), "restartPolicy", json!("Never")),
        ),
    ]
}

#[test]
fn each_rule_finds_what_bites_and_leaves_the_rest_alone() {
    for (code, bad, good) in cases() {
        assert!(codes(&bad).contains(code), "{code} misses {bad}");
        assert!(!codes(&good).contains(code), "{code} finds {good}");
    }
}

#[test]
fn every_rule_is_tested_and_codes_are_in_order() {
    let tested: BTreeSet<&str> = cases().iter().map(|case| case.0).collect();
    let codes: Vec<&str> = RULES.iter().map(|rule| rule.code).collect();
    assert_eq!(tested.into_iter().collect::<Vec<_>>(), codes);
}

#[test]
fn every_rule_is_documented_and_nothing_else_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/probe/lint.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == reference(),
        "docs/probe/lint.md should be:\n----8<----\n{}----8<----",
        reference()
    );
}

#[test]
fn a_quiet_manifest_has_no_findings() {
    let object = pod(json!({
        "ports": [{"name": "http", "containerPort": 80}],
        "startupProbe": {"httpGet": {"port": "http", "path": "/livez"}, "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {"httpGet": {"port": "http", "path": "/readyz"}, "timeoutSeconds": 2},
        "livenessProbe": {"httpGet": {"port": "http", "path": "/livez"}, "timeoutSeconds": 2, "failureThreshold": 6},
    }));
    assert_eq!(findings(&object), []);
}

#[test]
fn a_finding_says_where_in_the_object_it_is() {
    let spec = liveness(json!({"tcpSocket": {"port": 80}}))["spec"].clone();
    let object = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
        "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}});
    let found = findings(&object);
    let finding = found.iter().find(|finding| finding.code == "EK-P012").unwrap();
    assert_eq!(
        finding.path,
        "spec.jobTemplate.spec.template.spec.containers[0].livenessProbe.tcpSocket"
    );
    assert_eq!((finding.object.as_str(), finding.line), ("CronJob default/c", 1));
    let misplaced = annotated(
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"},
        "spec": {"template": {"spec": pod(json!({}))["spec"]}}}),
        "x",
    );
    assert_eq!(
        findings(&misplaced)[0].path,
        "metadata.annotations[evenkeel.io/probes]"
    );
}

#[test]
fn a_secret_is_never_shown() {
    let object = readiness(
        json!({"httpGet": {"port": 0, "host": "h", "scheme": "HTTPS", "httpHeaders": [
        {"name": "Authorization", "value": "hush-hush"}, {"name": "X-Api-Key", "value": "hush-hush"}]}}),
    );
    let found = findings(&object);
    assert!(!format!("{found:?}").contains("hush"), "{found:?}");
    let finding = found.iter().find(|finding| finding.code == "EK-P009").unwrap();
    assert_eq!(
        finding.message,
        "Authorization, X-Api-Key stands in the clear in the manifest"
    );
}
