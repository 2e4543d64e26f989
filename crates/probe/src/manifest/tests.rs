use super::*;
use crate::core::{
    ContainerState, Handler, Phase, Pod, Port, RestartAction, RestartPolicy, Role, Scheme, Tls, Window,
};
use crate::lint::lint;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

fn parse(text: &str) -> Documents {
    Documents::parse("x.yaml", text).unwrap()
}

fn refused(text: &str) -> String {
    Documents::parse("x.yaml", text).unwrap_err().to_string()
}

/// A pod with one container that has these fields.
fn with(container: Value) -> Value {
    let mut base = json!({"name": "web", "image": "x"});
    for (name, value) in container.as_object().unwrap() {
        base[name] = value.clone();
    }
    json!({"metadata": {"name": "p"}, "spec": {"containers": [base]}})
}

fn problems(result: Result<Pod, ConvertError>) -> Vec<String> {
    result
        .unwrap_err()
        .problems
        .iter()
        .map(ToString::to_string)
        .collect()
}

const DEPLOYMENT: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, livenessProbe: {tcpSocket: {port: 80}}}]}
";

#[test]
fn a_workload_is_read_as_the_pod_it_makes_and_the_rest_is_named() {
    let found = parse(DEPLOYMENT);
    let [web] = found.workloads.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(web.title(), "Deployment shop/web");
    assert_eq!(
        (web.replicas, web.prefix, web.line),
        (Some(3), "spec.template.", 6)
    );
    assert_eq!(
        web.pod["metadata"],
        json!({"name": "web", "namespace": "shop", "labels": {"app": "web"}})
    );
    assert_eq!(web.pod["kind"], "Pod");
    assert_eq!(&*web.to_pod().unwrap().uid, "Deployment/shop/web");
    assert_eq!(found.skipped.len(), 1);
    assert_eq!(found.skipped[0].kind, "v1 Service");
}

#[rstest]
#[case("v1", "Pod", "", "")]
#[case("v1", "PodTemplate", "template", "template.")]
#[case("v1", "ReplicationController", "spec.template", "spec.template.")]
#[case("apps/v1", "Deployment", "spec.template", "spec.template.")]
#[case("apps/v1", "StatefulSet", "spec.template", "spec.template.")]
#[case("apps/v1", "DaemonSet", "spec.template", "spec.template.")]
#[case("apps/v1", "ReplicaSet", "spec.template", "spec.template.")]
#[case("batch/v1", "Job", "spec.template", "spec.template.")]
#[case(
    "batch/v1",
    "CronJob",
    "spec.jobTemplate.spec.template",
    "spec.jobTemplate.spec.template."
)]
fn every_kind_that_makes_pods_is_read(
    #[case] version: &str,
    #[case] kind: &str,
    #[case] at: &str,
    #[case] prefix: &str,
) {
    let mut object = json!({"spec": {"containers": [{"name": "c"}]}});
    for step in at.split_terminator('.').rev() {
        object = json!({step: object});
    }
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object["metadata"] = json!({"generateName": "n-"});
    let found = parse(&object.to_string());
    assert_eq!(found.workloads[0].prefix, prefix);
    assert_eq!(&*found.workloads[0].to_pod().unwrap().name, "n");
}

#[test]
fn lists_are_opened_typed_ones_and_nested_ones_too() {
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}});
    let text = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "PodList", "items": [pod("a"), pod("b")]},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
    ]});
    let found = parse(&text.to_string());
    assert_eq!(found.workloads.len(), 2);
    assert_eq!(found.skipped.len(), 1);
}

#[rstest]
#[case("", "x.yaml has no pod: it is empty")]
#[case(
    "apiVersion: v1\nkind: Service\nmetadata: {name: s}",
    "x.yaml has no pod: it has v1 Service \"s\" (line 1)"
)]
#[case("a: [", "x.yaml:1: ")]
#[case("a: 1\nb: 2\na: 3", "x.yaml:3: duplicate mapping key: a")]
#[case("just words", "x.yaml:1: a document must be a mapping")]
#[case("\n\nkind: Pod", "x.yaml:3: apiVersion is missing")]
#[case("apiVersion: v1\nkind: 5", "kind is missing, or no text")]
#[case(
    "apiVersion: v1\nkind: List\nitems: [5]",
    "items[0]: a document must be a mapping"
)]
#[case(
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: text",
    "Deployment default/d: spec.template is missing"
)]
fn what_is_wrong_with_a_file_is_said_with_its_line(#[case] text: &str, #[case] said: &str) {
    let error = refused(text);
    assert!(error.contains(said) && !error.contains('\n'), "{error}");
}

#[test]
fn one_name_twice_is_refused() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n";
    assert!(refused(&pod.repeat(2)).contains("Pod default/a is there twice; the other one is on line 1"));
}

#[test]
fn a_bomb_and_a_flood_end_in_an_error() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb = format!("{bomb}a{level}: &a{level} [{items}]\n");
    }
    refused(&bomb);
    refused(&"[".repeat(100_000));
    assert!(refused(&" ".repeat(Documents::BYTES + 1)).contains("split it"));
}

#[test]
fn files_are_read_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pod.yaml");
    std::fs::write(&path, DEPLOYMENT).unwrap();
    assert_eq!(Documents::read(&path).unwrap().workloads.len(), 1);
    std::fs::write(&path, b"a: b\nc: \xff").unwrap();
    let error = Documents::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("pod.yaml:2: this is not UTF-8"), "{error}");
    std::fs::write(&path, vec![0xff; Documents::BYTES + 1]).unwrap();
    assert!(matches!(
        Documents::read(&path),
        Err(ManifestError::TooLarge { .. })
    ));
    assert!(matches!(
        Documents::read(&dir.path().join("none")),
        Err(ManifestError::Read { .. })
    ));
}

#[test]
fn zero_and_absent_both_mean_the_default() {
    for probe in [
        json!({"httpGet": {"port": 80}}),
        json!({"httpGet": {"port": 80, "path": "", "scheme": ""}, "timeoutSeconds": 0, "periodSeconds": 0, "successThreshold": 0,
               "failureThreshold": 0, "initialDelaySeconds": 0, "exec": null}),
    ] {
        let pod = pod(&with(json!({"livenessProbe": probe}))).unwrap();
        let found = pod.containers[0].liveness.as_ref().unwrap();
        let expected = crate::core::Probe::new(Handler::HttpGet(crate::core::HttpGet {
            scheme: Scheme::Http,
            host: None,
            port: Port::Number(80),
            path: "/".to_owned(),
            headers: vec![],
        }));
        assert_eq!(**found, expected);
    }
}

#[test]
fn every_field_reaches_the_prober() {
    let value = json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"restartPolicy": "OnFailure", "containers": [{
            "name": "web", "restartPolicy": "Never",
            "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}},
                {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [4, 5]}}],
            "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 81}, {"name": "bad", "containerPort": 70000}],
            "env": [{"name": "A", "value": "a"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
            "startupProbe": {"exec": {"command": ["cat", "x"]}, "terminationGracePeriodSeconds": 7},
            "readinessProbe": {"httpGet": {"port": "http", "path": "/r?x", "scheme": "HTTPS", "host": "h",
                "httpHeaders": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
                "initialDelaySeconds": 1, "timeoutSeconds": 2, "periodSeconds": 3, "successThreshold": 4, "failureThreshold": 5},
            "livenessProbe": {"grpc": {"port": 90, "service": "s"}}}],
          "initContainers": [{"name": "init"}, {"name": "side", "restartPolicy": "Always", "livenessProbe": {"tcpSocket": {"port": "118", "host": "q"}}}]},
    });
    let pod = pod(&value).unwrap();
    assert_eq!((&*pod.uid, &*pod.namespace, pod.deleting), ("u", "n", true));
    assert_eq!(pod.restart_policy, RestartPolicy::OnFailure);
    let web = &pod.containers[0];
    assert_eq!(web.restart_policy, Some(RestartPolicy::Never));
    assert_eq!(web.restart_rules[1].action, RestartAction::RestartAllContainers);
    assert!(
        web.restart_rules[0].matches(3)
            && web.restart_rules[1].matches(3)
            && !web.restart_rules[1].matches(4)
    );
    assert_eq!(web.ports, [("http".to_owned(), 80)]);
    assert_eq!(
        web.env,
        [("A".to_owned(), "a".to_owned()), ("B".to_owned(), String::new())]
    );
    let startup = web.startup.as_ref().unwrap();
    assert_eq!(startup.termination_grace_period, Some(Duration::from_secs(7)));
    let readiness = web.readiness.as_ref().unwrap();
    let Handler::HttpGet(get) = &readiness.handler else {
        panic!()
    };
    assert_eq!(
        (get.scheme, get.host.as_deref(), get.headers.len()),
        (Scheme::Https, Some("h"), 2)
    );
    assert_eq!((readiness.success_threshold, readiness.failure_threshold), (4, 5));
    assert_eq!(
        (readiness.initial_delay, readiness.timeout, readiness.period).0,
        Duration::from_secs(1)
    );
    assert_eq!(
        web.liveness.as_ref().unwrap().handler,
        Handler::Grpc {
            port: 90,
            service: "s".to_owned()
        }
    );
    assert_eq!(pod.containers[1].role, Role::Init);
    assert_eq!(pod.containers[2].role, Role::Sidecar);
}

#[test]
fn a_typed_pod_converts_like_its_json() {
    let value = with(json!({"livenessProbe": {"tcpSocket": {"port": 80}}}));
    let typed: k8s_openapi::api::core::v1::Pod = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(convert(&typed).unwrap(), pod(&value).unwrap());
    assert_eq!(status(&typed), status_of(&value));
}

#[rstest]
#[case(json!({}), "livenessProbe: Required value: must specify a handler type")]
#[case(json!({"exec": {"command": ["x"]}, "grpc": {"port": 1}}),
    "livenessProbe.grpc: Forbidden: may not specify more than 1 handler type")]
#[case(json!({"exec": {}}), "livenessProbe.exec.command: Required value")]
#[case(json!({"exec": {"command": ["a", 1]}}), "livenessProbe.exec.command[1]: must be a string")]
#[case(json!({"tcpSocket": {"port": 1}, "periodSeconds": -1}),
    "livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0")]
#[case(json!({"tcpSocket": {"port": 1}, "periodSeconds": 3_000_000_000_i64}),
    "livenessProbe.periodSeconds: must be a whole number of at most 2147483647")]
#[case(json!({"tcpSocket": {"port": 1}, "timeoutSeconds": "5"}),
    "livenessProbe.timeoutSeconds: must be a whole number of at most 2147483647")]
#[case(json!({"tcpSocket": {"port": 1}, "successThreshold": 2}), "livenessProbe.successThreshold: Invalid value: 2: must be 1")]
#[case(json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 0}),
    "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0")]
#[case(json!({"tcpSocket": {"port": 1.5}}), "livenessProbe.tcpSocket.port: must be a whole number or the name of a port")]
#[case(json!({"grpc": {"port": 0}}), "livenessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive")]
#[case(json!({"grpc": {"port": 65536}}), "livenessProbe.grpc.port: Invalid value: 65536: must be between 1 and 65535, inclusive")]
#[case(json!({"httpGet": {"port": 1, "scheme": "ftp"}}),
    "livenessProbe.httpGet.scheme: Unsupported value: \"ftp\": supported values: \"HTTP\", \"HTTPS\"")]
#[case(json!({"httpGet": {"port": 1, "httpHeaders": [5]}}), "livenessProbe.httpGet.httpHeaders[0]: must be a mapping")]
#[case(json!("text"), "livenessProbe: must be a mapping")]
fn what_cannot_be_probed_is_refused(#[case] probe: Value, #[case] said: &str) {
    let found = problems(pod(&with(json!({"livenessProbe": probe}))));
    assert_eq!(found, [format!("spec.containers[0].{said}")]);
}

#[test]
fn everything_wrong_with_a_pod_is_said_at_once() {
    let value = json!({"metadata": {}, "spec": {
        "containers": [{"name": "a", "readinessProbe": {"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 3}}],
        "initContainers": [{"name": "a", "livenessProbe": {"tcpSocket": {"port": 1}}}, {"restartPolicy": "Perhaps"}]}});
    assert_eq!(
        problems(pod(&value)),
        [
            "metadata.name: Required value: name or generateName is required",
            "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 3: must not be set for readinessProbes",
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            "spec.initContainers[0].name: Duplicate value: \"a\"",
            "spec.initContainers[1].name: Required value",
            "spec.initContainers[1].restartPolicy: Unsupported value: \"Perhaps\": supported values: \"Always\", \"Never\", \"OnFailure\"",
        ]
    );
}

#[test]
fn status_is_read_as_far_as_it_goes() {
    let pod = json!({"status": {"phase": "Running", "podIP": "fd00::1",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "AllContainersRestarting", "status": "False"}],
        "containerStatuses": [
            {"name": "a", "containerID": "c://1", "ready": true, "started": true, "state": {"running": {"startedAt": "1970-01-01T00:01:40Z"}}},
            {"name": "b", "state": {"terminated": {"exitCode": 137}}}],
        "initContainerStatuses": [{"name": "c", "state": {"running": {"startedAt": "soon"}}}, {"name": "d"}]}});
    let status = status_of(&pod);
    assert_eq!(status.phase, Phase::Running);
    assert_eq!(status.address, Some("fd00::1".parse().unwrap()));
    assert!(status.ready && !status.restarting_all);
    let states: Vec<ContainerState> = status.containers.iter().map(|one| one.state).collect();
    assert_eq!(
        states,
        [
            ContainerState::Running {
                started_at: Duration::from_secs(100)
            },
            ContainerState::Terminated { exit_code: 137 },
            ContainerState::Running {
                started_at: Duration::ZERO
            },
            ContainerState::Waiting,
        ]
    );
    assert_eq!(status.containers[0].started, Some(true));
    assert_eq!(status_of(&json!(5)), crate::core::PodStatus::default());
}

/// A pod with an HTTPS readiness probe, a gRPC liveness probe and this annotation.
fn annotated(annotation: Value) -> Value {
    let mut value = with(json!({
        "readinessProbe": {"httpGet": {"port": 1, "scheme": "HTTPS"}},
        "livenessProbe": {"grpc": {"port": 1}},
    }));
    value["metadata"]["annotations"] = json!({"evenkeel.io/probes": annotation});
    value
}

fn no_file(path: &Path) -> Result<String, String> {
    Err(format!("no {}", path.display()))
}

fn strictly(annotation: &str) -> Result<Pod, ConvertError> {
    let value = annotated(json!(annotation));
    strict(pod(&value).unwrap(), &value, &no_file)
}

#[test]
fn strict_settings_override_the_whole_seconds() {
    let pod = strictly(
        "web:\n  readinessProbe:\n    initialDelay: 1.5s\n    timeout: 100ms\n    period: 250ms\n    errorThreshold: 2\n    window: {failures: 3, of: 5}\n    \
         failOnRedirect: true\n    bodySnippet: 100\n  livenessProbe: {grpcTLS: true}\n",
    )
    .unwrap();
    let ready = pod.containers[0].readiness.as_ref().unwrap();
    assert_eq!(ready.initial_delay, Duration::from_millis(1500));
    assert_eq!(ready.timeout, Duration::from_millis(100));
    assert_eq!(ready.period, Duration::from_millis(250));
    assert_eq!(ready.extras.error_threshold, Some(2));
    assert_eq!(ready.extras.window, Some(Window { failures: 3, of: 5 }));
    assert!(ready.extras.fail_on_redirect);
    assert_eq!(ready.extras.body_snippet, 100);
    assert!(pod.containers[0].liveness.as_ref().unwrap().extras.grpc_tls);
}

#[test]
fn kubelet_mode_does_not_read_the_annotation() {
    let value = annotated(json!("web: {readinessProbe: {period: 1ms}}"));
    assert_eq!(
        pod(&value).unwrap().containers[0]
            .readiness
            .as_ref()
            .unwrap()
            .period,
        Duration::from_secs(10)
    );
}

#[rstest]
#[case("[", "line 1: ")]
#[case("- a", "must be a mapping")]
#[case("other: {}", "other: no container of the pod has this name")]
#[case(
    "web: {startupProbe: {}}",
    "web.startupProbe: the container has no such probe"
)]
#[case("web: {probe: {}}", "web.probe: is none of startupProbe")]
#[case(
    "web: {readinessProbe: {perod: 1s}}",
    "web.readinessProbe.perod: is no setting; there are initialDelay"
)]
#[case(
    "web: {readinessProbe: {period: 0s}}",
    "web.readinessProbe.period: 0s is not between 1ms and 24h"
)]
#[case(
    "web: {readinessProbe: {period: 25h}}",
    "web.readinessProbe.period: 25h is not between"
)]
#[case(
    "web: {readinessProbe: {period: 5}}",
    "web.readinessProbe.period: must be a duration"
)]
#[case(
    "web: {readinessProbe: {timeout: -5s}}",
    "web.readinessProbe.timeout: \"-5s\" is negative"
)]
#[case(
    "web: {readinessProbe: {errorThreshold: 0}}",
    "web.readinessProbe.errorThreshold: must be a whole number from 1 to"
)]
#[case(
    "web: {readinessProbe: {window: {failures: 3, of: 2}}}",
    "window.failures: 3 is more than the 2 of the window"
)]
#[case(
    "web: {readinessProbe: {window: {failures: 3, of: 65}}}",
    "window.of: must be a whole number from 1 to 64"
)]
#[case(
    "web: {readinessProbe: {window: {failures: 1, of: 1, x: 1}}}",
    "window.x: is no setting"
)]
#[case(
    "web: {readinessProbe: {bodySnippet: 1025}}",
    "bodySnippet: must be a whole number from 0 to 1024"
)]
#[case(
    "web: {readinessProbe: {failOnRedirect: 1}}",
    "failOnRedirect: must be true or false"
)]
#[case("web: {readinessProbe: {grpcTLS: true}}", "grpcTLS: is for grpc alone")]
#[case("web: {livenessProbe: {bodySnippet: 1}}", "bodySnippet: is for httpGet alone")]
#[case(
    "web: {livenessProbe: {tls: {verify: true}}}",
    "tls: needs an httpGet with scheme HTTPS"
)]
#[case(
    "web: {readinessProbe: {tls: {verify: true}}}",
    "tls: verify: true needs either ca (PEM) or caFile"
)]
#[case(
    "web: {readinessProbe: {tls: {verify: false, ca: x}}}",
    "tls.ca: needs verify: true"
)]
#[case(
    "web: {readinessProbe: {tls: {verify: true, ca: x}}}",
    "tls.ca: holds no certificate"
)]
#[case(
    "web: {readinessProbe: {tls: {verify: true, caFile: /x}}}",
    "tls.caFile: cannot read /x: no /x"
)]
#[case(
    "web: {readinessProbe: {tls: {verify: true, caFile: /x, serverName: 'a b'}}}",
    "tls.serverName: \"a b\" is neither"
)]
#[case(
    "web: {readinessProbe: {tls: {verify: true, insecure: 1}}}",
    "tls.insecure: is no setting"
)]
fn a_bad_annotation_is_refused_with_its_path(#[case] annotation: &str, #[case] said: &str) {
    let found = problems(strictly(annotation));
    let start = "metadata.annotations[evenkeel.io/probes]: ";
    assert!(
        found
            .iter()
            .any(|one| one.starts_with(start) && one.contains(said)),
        "{found:?}"
    );
}

#[test]
fn authorities_come_from_the_annotation_or_a_file() {
    let pem = some_pem();
    let inline =
        json!({"web": {"readinessProbe": {"tls": {"verify": true, "ca": pem, "serverName": "a.b"}}}});
    let file = json!({"web": {"readinessProbe": {"tls": {"verify": true, "caFile": "/ca"}}}});
    for (settings, name) in [(inline, Some("a.b".to_owned())), (file, None)] {
        let value = annotated(json!(settings.to_string()));
        let read = |_: &Path| Ok(pem.clone());
        let pod = strict(pod(&value).unwrap(), &value, &read).unwrap();
        assert_eq!(
            pod.containers[0].readiness.as_ref().unwrap().extras.tls,
            Tls::Verified {
                ca_pem: pem.clone(),
                server_name: name
            }
        );
    }
}

/// What looks like a certificate from outside; nobody here looks inside.
fn some_pem() -> String {
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned()
}

fn json_value() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "metadata",
        "spec",
        "template",
        "name",
        "containers",
        "initContainers",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "httpGet",
        "exec",
        "grpc",
        "tcpSocket",
        "port",
        "ports",
        "command",
        "periodSeconds",
        "timeoutSeconds",
        "failureThreshold",
        "initialDelaySeconds",
        "successThreshold",
        "terminationGracePeriodSeconds",
        "httpHeaders",
        "value",
        "annotations",
        "evenkeel.io/probes",
        "env",
        "restartPolicy",
        "restartPolicyRules",
        "lifecycle",
        "preStop",
        "status",
        "items",
        "path",
        "host",
        "web",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!("web")),
        Just(json!("Always")),
        Just(json!("web: {livenessProbe: {period: 1s}}")),
    ];
    leaf.prop_recursive(8, 128, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..6).prop_map(|members| Value::Object(
                members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_objects_never_panic(spec in json_value(), metadata in json_value(), container in json_value(), kind in 0..4_usize) {
        let head = [("v1", "Pod"), ("apps/v1", "Deployment"), ("batch/v1", "CronJob"), ("v1", "List")][kind];
        for spec in [spec.clone(), json!({"containers": [container]})] {
            let object = json!({"apiVersion": head.0, "kind": head.1, "metadata": metadata, "spec": spec.clone(), "items": [spec]});
            exercise(&object);
            if let Ok(found) = Documents::parse("x", &object.to_string()) {
                lint(&found.workloads);
                for workload in &found.workloads {
                    exercise(&workload.pod);
                }
            }
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in "([a-zA-Z0-9:{}\\[\\]&*!|>\"'#%@,?\\- \n\t]|apiVersion: v1|kind: Pod|spec:|---|\\PC){0,64}") {
        if let Ok(found) = Documents::parse("x", &text) {
            lint(&found.workloads);
            for workload in &found.workloads {
                exercise(&workload.pod);
            }
        }
    }
}

fn exercise(value: &Value) {
    status_of(value);
    if let Ok(pod) = pod(value) {
        check_extras(&pod, value);
        // Whether it is accepted does not matter here.
        drop(strict(pod, value, &no_file));
    }
}
