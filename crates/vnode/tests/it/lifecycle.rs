//! Pods on simulated nodes from their creation to their end, as their containers see it.

use super::cluster::{Cluster, simulated};
use evenkeel_testkit::objects::{condition, container_status, is_ready, phase, waits};
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn from(kind: &str, name: &str, key: &str) -> Value {
    json!({kind: {"name": name, "key": key}})
}

fn field(path: &str) -> Value {
    json!({"fieldRef": {"fieldPath": path}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_sees_its_environment() {
    let node = "virtual-7201";
    let cluster = Cluster::new(&[node]).await;
    cluster
        .create::<ConfigMap>(
            json!({"metadata": {"name": "settings"}, "data": {"COLOUR": "green", "SIZE": "7", "1st": "x"}}),
        )
        .await;
    cluster
        .create::<Secret>(json!({"metadata": {"name": "vault"}, "stringData": {"password": "hunter2"}}))
        .await;
    let env = json!([
        {"name": "OWN", "value": "size $(S_SIZE), $$(S_SIZE), $(NOBODY)"},
        {"name": "PASSWORD", "valueFrom": from("secretKeyRef", "vault", "password")},
        {"name": "COLOUR", "valueFrom": from("configMapKeyRef", "settings", "COLOUR")},
        {"name": "POD", "valueFrom": field("metadata.name")},
        {"name": "UID", "valueFrom": field("metadata.uid")},
        {"name": "NODE", "valueFrom": field("spec.nodeName")},
        {"name": "POD_IP", "valueFrom": field("status.podIP")},
        {"name": "HOST_IP", "valueFrom": field("status.hostIP")},
        {"name": "TIER", "valueFrom": field("metadata.labels['tier']")},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
    ]);
    let made = cluster
        .pod(
            "web",
            node,
            json!({
                "metadata": {"labels": {"tier": "gold"}},
                "spec": {"containers": [{
                    "name": "app", "image": "i", "env": env,
                    "envFrom": [
                        {"prefix": "S_", "configMapRef": {"name": "settings"}},
                        {"configMapRef": {"name": "settings"}},
                    ],
                    "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "64Mi"}},
                }]},
            }),
        )
        .await;
    let pod = cluster.ready::<Pod>("web").await;
    let (code, output) = cluster.run(&pod, "app", &["env"]).await;
    assert_eq!(code, 0);
    let seen: BTreeMap<&str, &str> = output.lines().filter_map(|line| line.split_once('=')).collect();
    let uid = made.metadata.uid.unwrap();
    let status = pod.status.as_ref().unwrap();
    for (name, value) in [
        ("S_COLOUR", "green"),
        ("S_SIZE", "7"),
        ("OWN", "size 7, $(S_SIZE), $(NOBODY)"),
        ("PASSWORD", "hunter2"),
        ("COLOUR", "green"),
        ("POD", "web"),
        ("UID", &uid),
        ("NODE", node),
        ("POD_IP", status.pod_ip.as_deref().unwrap()),
        ("HOST_IP", "127.0.0.1"),
        ("TIER", "gold"),
        ("CPU", "1500"),
        ("MEMORY", "64"),
        ("KUBERNETES_SERVICE_PORT", "443"),
    ] {
        assert_eq!(seen.get(name), Some(&value), "{name} in {output}");
    }
    cluster
        .event("web", "InvalidEnvironmentVariableNames", "keys [1st] from")
        .await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projected_token_is_of_the_pods_service_account() {
    let node = "virtual-7202";
    let cluster = Cluster::new(&[node]).await;
    cluster
        .create::<ServiceAccount>(json!({"metadata": {"name": "robot"}}))
        .await;
    let sources = json!([
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]);
    cluster
        .pod(
            "web",
            node,
            json!({
                "metadata": {"labels": {"tier": "gold"}},
                "spec": {
                    "serviceAccountName": "robot",
                    "containers": [{"name": "app", "image": "i",
                        "volumeMounts": [{"name": "mine", "mountPath": "/var/run/mine"}]}],
                    "volumes": [{"name": "mine", "projected": {"sources": sources}}],
                },
            }),
        )
        .await;
    let pod = cluster.ready::<Pod>("web").await;
    let (code, token) = cluster.run(&pod, "app", &["cat", "/var/run/mine/token"]).await;
    assert_eq!(code, 0);
    let (_, labels) = cluster.run(&pod, "app", &["cat", "/var/run/mine/labels"]).await;
    assert_eq!(labels, "tier=\"gold\"");
    let review: TokenReview = serde_json::from_value(json!({"spec": {"token": token}})).unwrap();
    let review = cluster.add(&review).await;
    let user = review.status.unwrap().user.unwrap();
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:default:robot")
    );
    let extra = user.extra.unwrap();
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], ["web"]);
    cluster.end().await;
}

fn started(pod: &Pod, container: &str) -> jiff::Timestamp {
    let state = container_status(pod, container).unwrap().state.as_ref().unwrap();
    let running = state.running.as_ref().and_then(|state| state.started_at.clone());
    let ended = state
        .terminated
        .as_ref()
        .and_then(|state| state.started_at.clone());
    running.or(ended).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_and_sidecars_come_one_after_the_other() {
    let node = "virtual-7203";
    let cluster = Cluster::new(&[node]).await;
    let mount = json!([{"name": "shared", "mountPath": "/shared"}]);
    let mut annotations = simulated("waits", &[("run", "command")]);
    json_patch::merge(&mut annotations, &simulated("first", &[("run", "command")]));
    cluster
        .pod(
            "web",
            node,
            json!({
                "metadata": {"annotations": annotations},
                "spec": {
                    "initContainers": [
                        {"name": "waits", "image": "i", "command": ["sleep", "1"]},
                        {"name": "first", "image": "i", "volumeMounts": mount,
                            "command": ["cp", "/etc/hostname", "/shared/file"]},
                        {"name": "side", "image": "i", "restartPolicy": "Always", "volumeMounts": mount,
                            "startupProbe": {"exec": {"command": ["cat", "/shared/file"]}, "periodSeconds": 1}},
                        {"name": "second", "image": "i"},
                    ],
                    "containers": [{"name": "app", "image": "i", "volumeMounts": mount}],
                    "volumes": [{"name": "shared", "emptyDir": {}}],
                },
            }),
        )
        .await;
    let pod = cluster.ready::<Pod>("web").await;
    let (_, file) = cluster.run(&pod, "app", &["cat", "/shared/file"]).await;
    assert_eq!(file, "web\n");
    let order = ["waits", "first", "side", "second", "app"].map(|name| started(&pod, name));
    assert!(order.is_sorted(), "{order:?}");
    let of = |name: &str| container_status(&pod, name).unwrap().clone();
    for name in ["waits", "first", "second"] {
        let ended = of(name).state.unwrap().terminated.unwrap();
        assert_eq!(
            (ended.exit_code, ended.reason.as_deref()),
            (0, Some("Completed")),
            "{name}"
        );
    }
    assert!(of("side").state.unwrap().running.is_some());
    assert_eq!(of("side").started, Some(true));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_crashes_again_is_held_back_and_says_so() {
    let node = "virtual-7204";
    let cluster = Cluster::with(&[node], |options| {
        let pods = Arc::make_mut(&mut options.pods);
        // The first restart comes at once; the second one not during this test.
        pods.back_off = Duration::from_secs(3600);
        pods.back_off_max = Duration::from_secs(3600);
    })
    .await;
    let crash = simulated("app", &[("crash-after", "100ms"), ("exit-code", "3")]);
    cluster
        .pod("web", node, json!({"metadata": {"annotations": crash}}))
        .await;
    let pod = cluster.pod_waits("web", "app", "CrashLoopBackOff").await;
    let (_, message) = waits(&pod, "app").unwrap();
    let uid = pod.metadata.uid.as_deref().unwrap();
    assert_eq!(
        message,
        format!("back-off 1h0m0s restarting failed container=app pod=web_default({uid})")
    );
    let status = container_status(&pod, "app").unwrap();
    let last = status.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    assert_eq!(phase(&pod), "Running");
    cluster
        .event("web", "BackOff", "Back-off restarting failed container")
        .await;
    cluster.end().await;
}

/// The last that is seen of it is its terminal status, and nobody waits for the grace period.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_goes_as_soon_as_it_has_ended() {
    let node = "virtual-7205";
    let cluster = Cluster::new(&[node]).await;
    let slow = simulated("app", &[("stop-delay", "1s"), ("stop-code", "143")]);
    let more = json!({"metadata": {"annotations": slow}, "spec": {"terminationGracePeriodSeconds": 3600}});
    cluster.pod("web", node, more).await;
    let pod = cluster.ready::<Pod>("web").await;
    // The deadline is far shorter than the grace period.
    let last = cluster.last_seen(&pod, &DeleteParams::default()).await;
    assert_eq!(phase(&last), "Failed");
    let state = container_status(&last, "app").unwrap().state.as_ref().unwrap();
    assert_eq!(state.terminated.as_ref().unwrap().exit_code, 143);
    cluster.event("web", "Killing", "Stopping container app").await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_readiness_gate_is_waited_for() {
    let node = "virtual-7206";
    let cluster = Cluster::new(&[node]).await;
    let gate = "example.com/balanced";
    cluster
        .pod(
            "web",
            node,
            json!({"spec": {"readinessGates": [{"conditionType": gate}]}}),
        )
        .await;
    let pod = cluster
        .until("web", "its containers are ready", |pod: &Pod| {
            condition(pod, "ContainersReady").0 == "True"
        })
        .await;
    assert_eq!(condition(&pod, "Ready"), ("False", "ReadinessGatesNotReady"));
    let opened = json!({"status": {"conditions": [{"type": gate, "status": "True"}]}});
    cluster
        .pods()
        .patch_status("web", &PatchParams::default(), &Patch::Strategic(opened))
        .await
        .unwrap();
    let pod = cluster.ready::<Pod>("web").await;
    assert_ne!(condition(&pod, gate).0, "", "a foreign condition stays");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_needs_a_machine_waits_and_says_why() {
    let node = "virtual-7207";
    let cluster = Cluster::new(&[node]).await;
    cluster
        .pod("web", node, json!({"spec": {"hostNetwork": true}}))
        .await;
    let pod = cluster.pod_waits("web", "app", "UnsupportedPodSpec").await;
    assert_eq!(phase(&pod), "Pending");
    let (_, message) = waits(&pod, "app").unwrap();
    assert!(message.contains("spec.hostNetwork"), "{message}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_secret_is_missing_runs_once_it_appears() {
    let node = "virtual-7208";
    let cluster = Cluster::new(&[node]).await;
    let env = json!([{"name": "PASSWORD", "valueFrom": from("secretKeyRef", "vault", "password")}]);
    let spec = json!({"spec": {"containers": [{"name": "app", "image": "i", "env": env}]}});
    cluster.pod("web", node, spec).await;
    let pod = cluster
        .pod_waits("web", "app", "CreateContainerConfigError")
        .await;
    assert!(!is_ready(&pod));
    let (_, message) = waits(&pod, "app").unwrap();
    assert_eq!(message, "secret \"vault\" not found");
    cluster
        .create::<Secret>(json!({"metadata": {"name": "vault"}, "stringData": {"password": "hunter2"}}))
        .await;
    let pod = cluster.ready::<Pod>("web").await;
    let (_, password) = cluster.run(&pod, "app", &["printenv", "PASSWORD"]).await;
    assert_eq!(password, "hunter2\n");
    assert_eq!(container_status(&pod, "app").unwrap().restart_count, 0);
    let now = DeleteParams::default().grace_period(0);
    cluster.pods().delete("web", &now).await.unwrap();
    cluster.end().await;
}
