//! Kubernetes' end-to-end cases of container probes (`container_probe.go`), for regular containers and for
//! sidecars, with periods of a second. What upstream watches for minutes is watched here for a number of
//! probes that were really made.

use super::cluster::{Cluster, simulated};
use evenkeel_testkit::objects::{container_status, is_ready};
use evenkeel_testkit::{eventually, until};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::time::Duration;

/// Probes after which a container is believed to be left alone.
const ROUNDS: u64 = 4;
/// The container that is probed.
const IT: &str = "probed";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Regular,
    Sidecar,
}

const ROLES: [Role; 2] = [Role::Regular, Role::Sidecar];

impl Role {
    fn name(self, name: &str) -> String {
        format!("{name}-{self:?}").to_lowercase()
    }
}

/// A pod whose container `probed` has these fields, simulated like this.
fn pod(role: Role, simulation: &[(&str, &str)], fields: &Value) -> Value {
    let mut probed = json!({"name": IT, "image": "registry.example.com/app:1"});
    json_patch::merge(&mut probed, fields);
    let mut pod = match role {
        Role::Regular => json!({"spec": {"containers": [probed]}}),
        Role::Sidecar => {
            probed["restartPolicy"] = json!("Always");
            json!({"spec": {"initContainers": [probed]}})
        }
    };
    pod["metadata"] = json!({"annotations": simulated(IT, simulation)});
    pod
}

/// A probe each second whose first failure counts.
fn probe(handler: Value, more: Value) -> Value {
    let mut probe = json!({"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10});
    json_patch::merge(&mut probe, &handler);
    json_patch::merge(&mut probe, &more);
    probe
}

fn exec(command: &[&str]) -> Value {
    json!({"exec": {"command": command}})
}

fn http(path: &str) -> Value {
    json!({"httpGet": {"path": path, "port": 8080}})
}

/// Files of a pod that begins with these in a volume at `/shared`: an init container makes them.
fn with_files(mut pod: Value, files: &[&str]) -> Value {
    let mounts = json!([{"name": "shared", "mountPath": "/shared"}]);
    let command: Vec<&str> = [&["touch"], files].concat();
    let makes = json!({"name": "makes", "image": "i", "command": command, "volumeMounts": mounts});
    json_patch::merge(&mut pod["metadata"]["annotations"], &simulated("makes", &[RUN]));
    pod["spec"]["volumes"] = json!([{"name": "shared", "emptyDir": {}}]);
    for list in ["containers", "initContainers"] {
        // Indexing would add the list that is missing.
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers
            .into_iter()
            .flatten()
            .filter(|container| container["name"] == IT)
        {
            container["volumeMounts"] = mounts.clone();
        }
    }
    match pod["spec"]
        .get_mut("initContainers")
        .and_then(Value::as_array_mut)
    {
        Some(containers) => containers.insert(0, makes),
        None => pod["spec"]["initContainers"] = json!([makes]),
    }
    pod
}

fn restarts(pod: &Pod) -> i32 {
    container_status(pod, IT).map_or(0, |status| status.restart_count)
}

/// A case: name, simulation, fields of the container.
type Case = (&'static str, Vec<(&'static str, &'static str)>, Value);

/// All cases in all roles at the same time.
async fn in_each_role(cases: impl Fn() -> Vec<Case>, one: impl AsyncFn(Role, Case)) {
    let one = &one;
    let all = ROLES
        .into_iter()
        .flat_map(|role| cases().into_iter().map(move |case| one(role, case)));
    join_all(all).await;
}

/// The container is killed and started again, and events say for which probe.
async fn is_restarted(cluster: &Cluster, node: &str, role: Role, case: Case, kind: &str) -> Pod {
    let (name, simulation, fields) = case;
    let name = role.name(name);
    cluster.pod(&name, node, pod(role, &simulation, &fields)).await;
    will_be_restarted(cluster, role, &name, kind).await
}

/// The same of a pod that is there.
async fn will_be_restarted(cluster: &Cluster, role: Role, name: &str, kind: &str) -> Pod {
    let restarted = cluster
        .until(name, "is restarted", |pod: &Pod| restarts(pod) > 0)
        .await;
    cluster
        .event(name, "Unhealthy", &format!("{kind} probe failed"))
        .await;
    let probe = format!("failed {} probe", kind.to_lowercase());
    let killing = match role {
        Role::Regular => format!("Container {IT} {probe}, will be restarted"),
        Role::Sidecar => format!("Init container {IT} {probe}"),
    };
    cluster.event(name, "Killing", &killing).await;
    restarted
}

const RUN: (&str, &str) = ("run", "command");
const SERVE: (&str, &str) = ("serve", "8080");

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_liveness_fails_is_restarted() {
    let cluster = Cluster::new(&["virtual-7101"]).await;
    let after = json!({"initialDelaySeconds": 1});
    let cases = || -> Vec<Case> {
        vec![
            (
                "http",
                vec![SERVE, ("healthy-for", "2s")],
                json!({"livenessProbe": probe(http("/healthz"), after.clone())}),
            ),
            (
                "exec-timeout",
                vec![],
                json!({
                    "livenessProbe": probe(exec(&["/bin/sh", "-c", "sleep 10"]), json!({"timeoutSeconds": 1})),
                }),
            ),
            (
                "local-redirect",
                vec![SERVE, ("healthy-for", "2s")],
                json!({"livenessProbe": probe(http("/redirect?/healthz"), after.clone())}),
            ),
            (
                // Upstream asks at a port where nobody listens; simulated containers listen wherever they are
                // probed.
                "grpc",
                vec![("serve", "5000"), ("liveness", "ok 2s, fail")],
                json!({"livenessProbe": probe(json!({"grpc": {"port": 5000}}), after.clone())}),
            ),
        ]
    };
    let all = ROLES.into_iter().flat_map(|role| {
        let cluster = &cluster;
        cases()
            .into_iter()
            .map(move |case| is_restarted(cluster, "virtual-7101", role, case, "Liveness"))
    });
    join_all(all).await;
    cluster.end().await;
}

/// The test takes the file away, as upstream's container does after a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_file_for_liveness_goes_away_is_restarted() {
    let cluster = Cluster::new(&["virtual-7113"]).await;
    let all = ROLES.map(async |role| {
        let name = role.name("exec-cat");
        let after = json!({"initialDelaySeconds": 1});
        let fields = json!({"livenessProbe": probe(exec(&["cat", "/shared/health"]), after)});
        let pod = with_files(pod(role, &[], &fields), &["/shared/health"]);
        let pod = cluster.pod(&name, "virtual-7113", pod).await;
        until("it is alive", async || {
            cluster.probes(&pod, IT, "Liveness", "successful") > 0
        })
        .await;
        let pod = cluster.get::<Pod>(&name).await;
        assert_eq!(restarts(&pod), 0, "{name}");
        let (code, _) = cluster.run(&pod, IT, &["rm", "-rf", "/shared/health"]).await;
        assert_eq!(code, 0, "{name}");
        will_be_restarted(&cluster, role, &name, "Liveness").await;
    });
    join_all(all).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_restart_count_grows_from_failure_to_failure() {
    let cluster = Cluster::new(&["virtual-7102"]).await;
    let all = ROLES.map(async |role| {
        let name = role.name("growing");
        let fields = json!({"livenessProbe": probe(http("/healthz"), json!({}))});
        let pod = pod(role, &[SERVE, ("healthy-for", "500ms")], &fields);
        cluster.pod(&name, "virtual-7102", pod).await;
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| *last < 5) {
            let least = seen.last().copied().unwrap_or(0);
            let pod = cluster
                .until(&name, "its restart count changes", |pod: &Pod| {
                    restarts(pod) != least
                })
                .await;
            assert!(restarts(&pod) > least, "{} after {seen:?}", restarts(&pod));
            seen.push(restarts(&pod));
        }
    });
    join_all(all).await;
    cluster.end().await;
}

/// Probes of a kind are made and end like this, again and again, while the pod never is what it must not be.
async fn rounds(cluster: &Cluster, pod: &Pod, kind: &str, result: &str, never: impl Fn(&Pod) -> bool) {
    let name = pod.metadata.name.as_deref().unwrap();
    let what = format!("{ROUNDS} {kind} probes of {name} are {result}");
    until(&what, async || {
        let now = cluster.get::<Pod>(name).await;
        assert!(!never(&now), "{name}: {:?}", now.status);
        cluster.probes(pod, IT, kind, result) >= ROUNDS
    })
    .await;
    let now = cluster.get::<Pod>(name).await;
    assert!(!never(&now), "{name}: {:?}", now.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_liveness_is_well_is_left_alone() {
    let cluster = Cluster::new(&["virtual-7103"]).await;
    let cases = || -> Vec<Case> {
        let after = json!({"initialDelaySeconds": 1});
        vec![
            (
                "exec-cat",
                vec![],
                json!({"livenessProbe": probe(exec(&["cat", "/shared/health"]), after.clone())}),
            ),
            (
                "tcp",
                vec![SERVE, ("healthy-for", "1s")],
                json!({"livenessProbe": probe(json!({"tcpSocket": {"port": 8080}}), after.clone())}),
            ),
            (
                "http",
                vec![SERVE],
                json!({"livenessProbe": probe(http("/"), after.clone())}),
            ),
            (
                "elsewhere",
                vec![SERVE],
                json!({"livenessProbe": probe(http("/redirect?http://0.0.0.0/"), after.clone())}),
            ),
            (
                "grpc",
                vec![("serve", "5000")],
                json!({"livenessProbe": probe(json!({"grpc": {"port": 5000}}), after.clone())}),
            ),
        ]
    };
    let one = async |role: Role, (name, simulation, fields): Case| {
        let name = role.name(name);
        let made = cluster
            .pod(
                &name,
                "virtual-7103",
                with_files(pod(role, &simulation, &fields), &["/shared/health"]),
            )
            .await;
        rounds(&cluster, &made, "Liveness", "successful", |pod| restarts(pod) > 0).await;
        assert_eq!(cluster.probes(&made, IT, "Liveness", "failed"), 0, "{name}");
        if name.starts_with("elsewhere") {
            cluster
                .event(&name, "ProbeWarning", "Probe terminated redirects")
                .await;
        }
    };
    in_each_role(cases, one).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_ready_after_its_initial_delay_and_not_before() {
    let cluster = Cluster::new(&["virtual-7104"]).await;
    let all = ROLES.map(async |role| {
        let name = role.name("delayed");
        let fields = json!({"readinessProbe": probe(http("/"), json!({"initialDelaySeconds": 3}))});
        cluster
            .pod(&name, "virtual-7104", pod(role, &[SERVE], &fields))
            .await;
        let pod = cluster.ready::<Pod>(&name).await;
        let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
        let mut conditions = conditions.iter();
        let ready = conditions.find(|condition| condition.type_ == "Ready").unwrap();
        let ready = ready.last_transition_time.as_ref().unwrap().0;
        let state = container_status(&pod, IT).unwrap().state.as_ref().unwrap();
        let started = state.running.as_ref().unwrap().started_at.as_ref().unwrap().0;
        let delay = ready.duration_since(started);
        assert!(delay.as_secs() >= 3, "{delay:?}");
        assert_eq!(restarts(&pod), 0);
    });
    join_all(all).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_readiness_fails_is_never_ready_and_never_restarted() {
    let cluster = Cluster::new(&["virtual-7105"]).await;
    let cases = || -> Vec<Case> {
        vec![
            (
                "failing",
                vec![SERVE, ("healthy-for", "0s")],
                json!({"readinessProbe": probe(http("/healthz"), json!({}))}),
            ),
            (
                "exec-timeout",
                vec![],
                json!({
                    "readinessProbe": probe(exec(&["/bin/sh", "-c", "sleep 10"]), json!({"timeoutSeconds": 1})),
                }),
            ),
        ]
    };
    let one = async |role: Role, (name, simulation, fields): Case| {
        let name = role.name(name);
        let made = cluster
            .pod(&name, "virtual-7105", pod(role, &simulation, &fields))
            .await;
        let never = |pod: &Pod| is_ready(pod) || restarts(pod) > 0;
        rounds(&cluster, &made, "Readiness", "failed", never).await;
        cluster.event(&name, "Unhealthy", "Readiness probe failed").await;
    };
    in_each_role(cases, one).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn startup_that_fails_restarts_a_container_that_is_alive() {
    let cluster = Cluster::new(&["virtual-7106"]).await;
    let all = ROLES.map(async |role| {
        let fields = json!({
            "startupProbe": probe(exec(&["/bin/false"]), json!({"failureThreshold": 3})),
            "livenessProbe": probe(exec(&["/bin/true"]), json!({})),
        });
        let case = ("unstarted", vec![], fields);
        let pod = is_restarted(&cluster, "virtual-7106", role, case, "Startup").await;
        assert!(cluster.probes(&pod, IT, "Startup", "failed") >= 3);
        assert_eq!(cluster.probes(&pod, IT, "Liveness", "successful"), 0);
    });
    join_all(all).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn liveness_waits_for_startup() {
    let cluster = Cluster::new(&["virtual-7107"]).await;
    let all = ROLES.map(async |role| {
        let name = role.name("held");
        let fields = json!({
            "startupProbe": probe(exec(&["/bin/false"]), json!({"failureThreshold": 60})),
            "livenessProbe": probe(exec(&["/bin/false"]), json!({})),
        });
        let made = cluster.pod(&name, "virtual-7107", pod(role, &[], &fields)).await;
        rounds(&cluster, &made, "Startup", "failed", |pod| restarts(pod) > 0).await;
        assert_eq!(cluster.probes(&made, IT, "Liveness", "failed"), 0);
    });
    join_all(all).await;
    cluster.end().await;
}

/// The file that the startup probe looks for is made after so many failures, as upstream's container does
/// after as many seconds.
async fn starts_after(cluster: &Cluster, pod: &Pod, failures: u64) {
    let name = pod.metadata.name.as_deref().unwrap();
    until(&format!("{name} is not started"), async || {
        cluster.probes(pod, IT, "Startup", "failed") >= failures
    })
    .await;
    let pod = cluster.get::<Pod>(name).await;
    let (code, _) = cluster.run(&pod, IT, &["touch", "/tmp/startup"]).await;
    assert_eq!(code, 0, "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn liveness_that_fails_after_startup_restarts_the_container() {
    let cluster = Cluster::new(&["virtual-7108"]).await;
    let all = ROLES.map(async |role| {
        let fields = json!({
            "startupProbe": probe(exec(&["cat", "/tmp/startup"]), json!({"failureThreshold": 60})),
            "livenessProbe": probe(exec(&["/bin/false"]), json!({})),
        });
        let name = role.name("enabled");
        let pod = cluster.pod(&name, "virtual-7108", pod(role, &[], &fields)).await;
        starts_after(&cluster, &pod, 3).await;
        let pod = will_be_restarted(&cluster, role, &name, "Liveness").await;
        assert!(cluster.probes(&pod, IT, "Startup", "failed") > 0);
        assert!(cluster.probes(&pod, IT, "Startup", "successful") > 0);
    });
    join_all(all).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_ready_at_once_after_startup() {
    let cluster = Cluster::new(&["virtual-7109"]).await;
    let one = async |role: Role, number: u32| {
        let name = role.name(&format!("prompt-{number}"));
        let fields = json!({
            "startupProbe": probe(exec(&["cat", "/tmp/startup"]), json!({"failureThreshold": 120})),
            // As the kubelet's, a prober that has just started spreads first probes over the period, which is
            // over when the container has started. Without being asked at once, each would be ready half a
            // period later on average.
            "readinessProbe": probe(exec(&["cat", "/shared/health"]), json!({"periodSeconds": 20})),
        });
        let pod = with_files(pod(role, &[], &fields), &["/shared/health"]);
        let pod = cluster.pod(&name, "virtual-7109", pod).await;
        starts_after(&cluster, &pod, 21).await;
        let started =
            |pod: &Pod| container_status(pod, IT).is_some_and(|status| status.started == Some(true));
        let now = cluster.until(&name, "has started", started).await;
        assert!(cluster.probes(&now, IT, "Startup", "failed") > 0);
        let promptly = Duration::from_secs(8);
        let pod = eventually(&format!("{name} is ready"), promptly, async || {
            let pod = cluster.get::<Pod>(&name).await;
            is_ready(&pod).then_some(pod)
        })
        .await;
        assert_eq!(cluster.probes(&pod, IT, "Readiness", "failed"), 0);
    };
    let one = &one;
    let all = ROLES
        .into_iter()
        .flat_map(|role| (0..3).map(move |number| one(role, number)));
    join_all(all).await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probes_own_grace_period_overrides_the_pods() {
    let cluster = Cluster::new(&["virtual-7110"]).await;
    // The container never heeds TERM, and the pod would let it.
    let one = async |role: Role, kind: &str, field: &str| {
        let name = role.name(&format!("grace-{kind}")).to_lowercase();
        let own = json!({"terminationGracePeriodSeconds": 1});
        let mut fields = json!({
            "livenessProbe": probe(exec(&["/bin/true"]), json!({})),
        });
        fields[field] = probe(exec(&["cat", "/tmp/startup"]), own);
        let mut pod = pod(role, &[("stop-delay", "1h")], &fields);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(3000);
        cluster.pod(&name, "virtual-7110", pod).await;
        let pod = cluster
            .until(&name, "is restarted", |pod: &Pod| restarts(pod) > 0)
            .await;
        let last = container_status(&pod, IT).unwrap().last_state.as_ref().unwrap();
        assert_eq!(last.terminated.as_ref().unwrap().exit_code, 137);
        cluster
            .event(&name, "Unhealthy", &format!("{kind} probe failed"))
            .await;
    };
    let one = &one;
    let all = ROLES.into_iter().flat_map(|role| {
        [("Liveness", "livenessProbe"), ("Startup", "startupProbe")]
            .into_iter()
            .map(move |(kind, field)| one(role, kind, field))
    });
    join_all(all).await;
    cluster.end().await;
}

/// A pod that ends slowly, and whose files the test takes away as upstream's handler of TERM does.
async fn terminates(cluster: &Cluster, role: Role, alive: bool) {
    let name = role.name(if alive { "ending-alive" } else { "ending" });
    let after = json!({"initialDelaySeconds": 1});
    let mut fields = json!({
        "readinessProbe": probe(exec(&["cat", "/shared/ready"]), after.clone()),
    });
    if alive {
        fields["livenessProbe"] = probe(exec(&["cat", "/shared/liveness"]), after);
    }
    let files = ["/shared/ready", "/shared/liveness"];
    let pod = with_files(pod(role, &[("stop-delay", "8s")], &fields), &files);
    cluster.pod(&name, "virtual-7111", pod).await;
    let pod = cluster.ready::<Pod>(&name).await;
    cluster.delete::<Pod>(&name).await;
    cluster
        .event(&name, "Killing", &format!("Stopping container {IT}"))
        .await;
    let failed = cluster.probes(&pod, IT, "Readiness", "failed");
    assert_eq!(failed, 0, "{name}");
    let (code, _) = cluster
        .run(&pod, IT, &["rm", "/shared/ready", "/shared/liveness"])
        .await;
    assert_eq!(code, 0);
    let unready = cluster
        .until(&name, "is ready no more", |pod: &Pod| !is_ready(pod))
        .await;
    assert!(unready.metadata.deletion_timestamp.is_some());
    cluster.event(&name, "Unhealthy", "Readiness probe failed").await;
    // Liveness would have failed as often by then.
    until("readiness goes on", async || {
        cluster.probes(&pod, IT, "Readiness", "failed") >= 3
    })
    .await;
    cluster.gone::<Pod>(&name).await;
    for event in cluster.events(&name).await {
        let message = event.message.unwrap_or_default();
        assert!(!message.contains("failed liveness probe"), "{name}: {message}");
        assert!(
            role == Role::Sidecar || !message.contains("Liveness probe failed"),
            "{name}: {message}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_becomes_false_while_a_pod_terminates_and_liveness_is_off() {
    let cluster = Cluster::new(&["virtual-7111"]).await;
    let all = ROLES
        .into_iter()
        .flat_map(|role| [false, true].map(|alive| terminates(&cluster, role, alive)));
    join_all(all).await;
    cluster.end().await;
}

/// Upstream's `probe_stress`.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_pods_that_are_probed_each_second_are_left_alone() {
    let cluster = Cluster::new(&["virtual-7112"]).await;
    let patient = || json!({"failureThreshold": 3, "initialDelaySeconds": 2});
    let one = async |number: u32| {
        let name = format!("stressed-{number}");
        let fields = json!({
            "livenessProbe": match number % 2 {
                0 => probe(exec(&["cat", "/shared/health"]), patient()),
                _ => probe(http("/healthz"), patient()),
            },
            "readinessProbe": probe(http("/"), patient()),
        });
        let pod = with_files(pod(Role::Regular, &[SERVE], &fields), &["/shared/health"]);
        cluster.pod(&name, "virtual-7112", pod).await
    };
    let made = join_all((0..100).map(one)).await;
    until("all are probed", async || {
        let counts = cluster.all_probes(IT, "Liveness", "successful");
        let probed = |pod: &Pod| {
            let count = counts.get(pod.metadata.uid.as_deref().unwrap());
            count.is_some_and(|count| *count >= ROUNDS)
        };
        made.iter().all(probed)
    })
    .await;
    let failed = cluster.all_probes(IT, "Liveness", "failed");
    for pod in &made {
        let name = pod.metadata.name.as_deref().unwrap();
        let now = cluster.ready::<Pod>(name).await;
        assert_eq!(restarts(&now), 0, "{name}");
        if failed.contains_key(pod.metadata.uid.as_deref().unwrap()) {
            let events = cluster.events(name).await;
            let messages = events.into_iter().filter_map(|event| event.message);
            panic!("{name}: {:?}", messages.collect::<Vec<_>>());
        }
    }
    cluster.end().await;
}
