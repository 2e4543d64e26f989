//! Faults that end by themselves, in a whole lab without Evenkeel's own processes.

use crate::running::{SOON, heal, kill, program, settings};
use evenkeel_lab::{
    SAMPLE,
    control::{Fault, Orders as _},
    running::Lab,
    scenario::{StockTimers, layout::Layout},
};
use evenkeel_testkit::{eventually, until};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longer than any test: these faults are ended by `heal`.
const LONG: u64 = 600_000;

async fn lab(place: &std::path::Path, layout: Layout) -> (Lab, tokio::net::TcpListener) {
    evenkeel_net::init_crypto();
    let (plan, claim) = crate::switch::subnet(u8::try_from(layout.len()).unwrap()).await;
    let program = program(place);
    let mut settings = settings(place, program, plan.subnet);
    settings.layout = layout;
    // Nothing is decided about nodes here.
    settings.stock = StockTimers {
        grace_period: "10m".parse().unwrap(),
        ..StockTimers::default()
    };
    let lab = Lab::start(settings, &|_| {}, &CancellationToken::new())
        .await
        .unwrap();
    lab.apply(SAMPLE, "sample").await.unwrap();
    let nodes = lab.node_names().len();
    let ready = lab
        .observer()
        .wait_for(SOON, |now| now.unready(nodes).is_empty())
        .await;
    assert!(ready.is_some(), "{:?}", lab.observer().now().unready(nodes));
    (lab, claim)
}

async fn client(lab: &Lab) -> kube::Client {
    let path = lab.directory().kubeconfig();
    let kubeconfig = kube::config::Kubeconfig::read_from(path).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    kube::Client::try_from(config).unwrap()
}

fn stall(node: &str, for_ms: u64) -> Fault {
    Fault::Stall {
        node: node.to_owned(),
        for_ms,
    }
}

fn restart_kubelet(node: &str, for_ms: u64) -> Fault {
    Fault::RestartKubelet {
        node: node.to_owned(),
        for_ms,
    }
}

fn trouble(lab: &Lab, node: usize) -> String {
    lab.status().nodes[node].trouble.clone()
}

/// The log of a pod on a node, which its kubelet is asked for.
async fn log_of_a_pod_on(client: &kube::Client, node: &str) -> kube::Result<String> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let name = pods
        .list(&of_node)
        .await?
        .items
        .first()
        .map(ResourceExt::name_any);
    pods.logs(&name.unwrap_or_default(), &Default::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_labelled_with_their_zones() {
    let place = tempfile::tempdir().unwrap();
    let zones = Layout::parse_zones("north=1,south=2").unwrap();
    let (lab, _claim) = lab(place.path(), zones).await;
    assert_eq!(lab.node_names(), ["north-1", "south-1", "south-2"]);
    let nodes: Api<Node> = Api::all(client(&lab).await);
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let name = node.name_any();
        let zone = node.labels().get("topology.kubernetes.io/zone");
        assert_eq!(zone.map(String::as_str), name.split('-').next(), "{name}");
    }
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_machine_answers_nobody_and_goes_on_where_it_was() {
    let place = tempfile::tempdir().unwrap();
    let (lab, _claim) = lab(place.path(), Layout::one("shore", 2)).await;
    let client = client(&lab).await;
    let before = lab.observer().now();
    log_of_a_pod_on(&client, "shore-2").await.unwrap();

    lab.inflict(&stall("shore-2", LONG)).await.unwrap();
    assert_eq!(trouble(&lab, 1), "frozen");
    let asked = log_of_a_pod_on(&client, "shore-2");
    // Neither an answer nor a refusal: the request is open as long as somebody waits for it.
    let asked = tokio::time::timeout(Duration::from_secs(2), asked).await;
    assert!(asked.is_err(), "{asked:?}");
    for refused in [stall("shore-2", 1), restart_kubelet("shore-2", 1)] {
        let reason = lab.inflict(&refused).await.unwrap_err();
        assert!(reason.contains("shore-2 is frozen"), "{reason}");
    }
    lab.inflict(&heal()).await.unwrap();
    assert_eq!(trouble(&lab, 1), "");
    eventually("it answers again", SOON, || async {
        log_of_a_pod_on(&client, "shore-2").await.ok()
    })
    .await;
    let now = lab.observer().now();
    assert!(
        before
            .pods()
            .all(|pod| now.pod(&pod.uid).is_some_and(|pod| pod.ready))
    );

    // By itself, too.
    lab.inflict(&stall("shore-1", 200)).await.unwrap();
    until("it goes on", async || trouble(&lab, 0).is_empty()).await;

    // A machine that loses its power while it stands still, and a lab that ends while one does.
    lab.inflict(&stall("shore-2", LONG)).await.unwrap();
    lab.inflict(&kill("shore-2")).await.unwrap();
    assert!(!lab.status().nodes[1].power);
    let reason = lab.inflict(&stall("shore-2", 1)).await.unwrap_err();
    assert!(reason.contains("no power"), "{reason}");
    lab.inflict(&heal()).await.unwrap();
    lab.inflict(&stall("shore-1", LONG)).await.unwrap();
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_kubelet_finds_its_containers_running() {
    let place = tempfile::tempdir().unwrap();
    let (lab, _claim) = lab(place.path(), Layout::one("shore", 2)).await;
    let client = client(&lab).await;
    let before = lab.observer().now();
    lab.inflict(&restart_kubelet("shore-1", LONG)).await.unwrap();
    assert_eq!(trouble(&lab, 0), "kubelet down");
    assert!(
        log_of_a_pod_on(&client, "shore-1").await.is_err(),
        "the kubelet is down"
    );
    lab.inflict(&Fault::Heal {
        node: Some("shore-1".to_owned()),
    })
    .await
    .unwrap();
    eventually("it answers again", SOON, || async {
        log_of_a_pod_on(&client, "shore-1").await.ok()
    })
    .await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let restarts: i32 = statuses.map(|status| status.restart_count).sum();
        assert_eq!(restarts, 0, "{}", pod.name_any());
    }
    let lost = lab.observer().now();
    assert!(
        before
            .pods()
            .all(|pod| lost.pod(&pod.uid).is_some_and(|pod| pod.ready))
    );
    lab.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_was_away_has_the_objects_and_no_past() {
    let place = tempfile::tempdir().unwrap();
    let (lab, _claim) = lab(place.path(), Layout::one("shore", 2)).await;
    let pods: Api<Pod> = Api::default_namespaced(client(&lab).await);
    let listed = pods.list(&ListParams::default()).await.unwrap();
    let names = |list: kube::core::ObjectList<Pod>| -> Vec<String> {
        list.items.iter().map(ResourceExt::name_any).collect()
    };
    let old = listed.metadata.resource_version.clone().unwrap();
    let before = names(listed);
    // Something is written after the list, so that whoever watches from there would have to be told of it.
    let written = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: later}\n";
    lab.apply(written, "a later object").await.unwrap();
    let outage = Fault::CrashApiServer {
        for_ms: LONG,
        stock: true,
    };
    lab.inflict(&outage).await.unwrap();
    let status = lab.status();
    assert_eq!(status.api_server, "down");
    let down = |status: evenkeel_lab::control::status::Status| (status.stock == "off").then_some(());
    eventually("the stock controllers are down", SOON, || async {
        down(lab.status())
    })
    .await;
    assert!(pods.list(&ListParams::default()).await.is_err());
    let reason = lab.inflict(&outage).await.unwrap_err();
    assert!(reason.contains("down already"), "{reason}");

    lab.inflict(&heal()).await.unwrap();
    let after = eventually("it answers again", SOON, || async {
        pods.list(&ListParams::default()).await.ok()
    })
    .await;
    assert_eq!(names(after), before);
    let events = pods.watch(&WatchParams::default(), &old).await.unwrap();
    let first = futures::TryStreamExt::try_next(&mut std::pin::pin!(events))
        .await
        .unwrap();
    let Some(WatchEvent::Error(refused)) = first else {
        panic!("{first:?}")
    };
    assert_eq!((refused.code, refused.reason.as_str()), (410, "Expired"));
    // Everybody lists again, and the lab is whole.
    let whole =
        |status: evenkeel_lab::control::status::Status| status.stock.starts_with("running").then_some(());
    eventually("the stock controllers are back", SOON, || async {
        whole(lab.status())
    })
    .await;
    let ready = lab
        .observer()
        .wait_for(SOON, |now| now.unready(2).is_empty())
        .await;
    assert!(ready.is_some(), "{:?}", lab.observer().now().unready(2));
    lab.stop().await.unwrap();
}
