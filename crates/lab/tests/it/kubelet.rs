//! The kubelets of a lab: reached across the switch by the API server, and lost with their machines.

use crate::running::{SOON, heal, kill, program, settings};
use evenkeel_lab::{control::Fault, running::Lab, switch::links::Way};
use evenkeel_net::client::ClientArgs;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{eventually, until};
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::{Api, api::LogParams};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: talker
  namespace: default
  annotations: {simulated.evenkeel.io/log: "hello from {pod}"}
spec:
  nodeName: shore-2
  containers: [{name: main, image: registry.example/talker:1}]
---
apiVersion: v1
kind: Pod
metadata:
  name: sick
  namespace: default
  annotations: {simulated.evenkeel.io/readiness: not-ready, simulated.evenkeel.io/start-delay: 100ms}
spec:
  nodeName: shore-2
  containers:
    - name: main
      image: registry.example/sick:1
      readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
"#;

fn main_of(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

fn runs(pod: &Pod) -> bool {
    let state = main_of(pod).and_then(|status| status.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

fn is_ready(pod: &Pod) -> bool {
    main_of(pod).is_some_and(|status| status.ready)
}

fn boot(node: &Node) -> String {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.unwrap().boot_id.clone()
}

async fn log(pods: &Api<Pod>) -> kube::Result<String> {
    pods.logs("talker", &LogParams::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubelet_is_reached_across_its_cloud_link_and_its_containers_go_with_the_power() {
    evenkeel_net::init_crypto();
    let place = tempfile::tempdir().unwrap();
    let (plan, _claim) = crate::switch::subnet(3).await;
    let settings = settings(place.path(), program(place.path()), plan.subnet);
    let lab = Lab::start(settings, &|_| {}, &CancellationToken::new()).await;
    let lab = Arc::new(lab.unwrap());
    let args = ClientArgs {
        kubeconfig: Some(lab.directory().kubeconfig()),
        ..ClientArgs::default()
    };
    let client = args.client("test").await.unwrap();
    let (pods, nodes): (Api<Pod>, Api<Node>) = (Api::default_namespaced(client.clone()), Api::all(client));
    let (pods, nodes) = (&pods, &nodes);
    lab.apply(PODS, "pods").await.unwrap();
    let when = |name: &'static str, wanted: fn(&Pod) -> bool| {
        eventually(name, SOON, move || async move {
            pods.get(name).await.ok().filter(wanted)
        })
    };
    let before = when("talker", is_ready).await;
    assert_eq!(main_of(&before).unwrap().restart_count, 0);
    let address = before.status.unwrap().pod_ip.unwrap();
    assert!(address.starts_with("10.244.2."), "{address}");
    assert_eq!(log(pods).await.unwrap(), "hello from talker\n");
    let sick = when("sick", runs).await;
    assert!(!is_ready(&sick));

    // What the API server asks a kubelet crosses the node's cloud link, and waits while that is cut.
    let cut = Fault::Cut {
        node: "shore-2".to_owned(),
        link: "cloud".to_owned(),
        way: Way::Both,
        delay_ms: None,
        drop_percent: None,
    };
    lab.inflict(&cut).await.unwrap();
    let mut asked = std::pin::pin!(log(pods));
    let silent = tokio::time::timeout(Duration::from_millis(500), &mut asked).await;
    assert!(silent.is_err(), "{silent:?}");
    lab.inflict(&heal()).await.unwrap();
    assert_eq!(asked.await.unwrap(), "hello from talker\n");

    // A machine that lost its power comes back with another boot, and its containers are other ones in the
    // same pods.
    let first = boot(&nodes.get("shore-2").await.unwrap());
    lab.inflict(&kill("shore-2")).await.unwrap();
    lab.inflict(&heal()).await.unwrap();
    let again = when("talker", |pod| {
        is_ready(pod) && main_of(pod).is_some_and(|status| status.restart_count == 1)
    })
    .await;
    assert_eq!(again.status.as_ref().unwrap().pod_ip, Some(address));
    let last = main_of(&again).unwrap().last_state.as_ref().unwrap();
    assert!(last.terminated.is_some(), "{last:?}");
    assert_ne!(boot(&nodes.get("shore-2").await.unwrap()), first);
    assert_eq!(log(pods).await.unwrap(), "hello from talker\n");

    // Half a second, as a well-behaved container needs, and not its grace period of 30 s.
    let began = Instant::now();
    pods.remove("talker").await;
    until("the pod is gone", async || {
        pods.get_opt("talker").await.unwrap().is_none()
    })
    .await;
    assert!(began.elapsed() >= Duration::from_millis(500));
    lab.stop().await.unwrap();
}
