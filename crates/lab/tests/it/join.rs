//! Which control planes a lab joins, and what it removes there. That a whole lab runs on one is tried on
//! Kubernetes' own (`cargo xtask prove`): the embedded server has no controllers of its own to join.

use evenkeel_lab::cluster::controllers;
use evenkeel_lab::join::{Cluster, JoinError, Joinable, LABEL};
use evenkeel_testkit::{Cluster as Objects, ServedApi};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use rstest::rstest;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

async fn server() -> (ServedApi, Objects) {
    evenkeel_net::init_crypto();
    let served = ServedApi::start().await;
    let objects = served.cluster("objects").await;
    (served, objects)
}

async fn reach(served: &ServedApi) -> Result<Joinable, JoinError> {
    Cluster::reach(&served.direct("joined"), None, None, false).await
}

/// As `lab clean` does, whatever else is there.
async fn find(served: &ServedApi) -> Cluster {
    Cluster::find(&served.direct("joined"), None).await.unwrap()
}

fn labels(ours: bool) -> Value {
    if ours {
        json!({LABEL.0: LABEL.1})
    } else {
        json!({})
    }
}

fn object(kind: &str, version: &str, name: &str, ours: bool) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels(ours)}})
}

fn placed(namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

#[tokio::test]
async fn an_empty_control_plane_is_joined_and_named() {
    let (served, _objects) = server().await;
    let Joinable {
        cluster,
        version,
        api,
        address,
    } = reach(&served).await.unwrap();
    assert_eq!(
        (cluster.context(), cluster.url()),
        ("evenkeel", served.url().as_str())
    );
    assert_eq!(
        (cluster.server_name(), api, address),
        ("127.0.0.1", served.address(), None)
    );
    assert_eq!(cluster.authority(), served.server.ca().certificate_pem());
    assert!(version.starts_with("v1.36."), "{version}");
}

/// What another one's cluster is known by, and the words that say so.
#[rstest]
#[case::nodes(object("Node", "v1", "prod-7", false), "nodes that are not a lab's (prod-7)")]
#[case::evenkeel(
    object("Namespace", "v1", "evenkeel-system", false),
    "Namespace evenkeel-system"
)]
#[case::a_role(
    object("ClusterRole", "rbac.authorization.k8s.io/v1", "evenkeel-vnode", false),
    "ClusterRole evenkeel-vnode"
)]
#[tokio::test]
async fn a_control_plane_in_use_is_refused_and_not_touched(#[case] there: Value, #[case] said: &str) {
    let (served, objects) = server().await;
    objects.create_any(there).await;
    let before = served.server.client();
    let version = |nodes: kube::core::ObjectList<Node>| nodes.metadata.resource_version;
    let nodes: kube::Api<Node> = kube::Api::all(before);
    let at = version(nodes.list(&Default::default()).await.unwrap());
    let error = reach(&served).await.unwrap_err().to_string();
    assert!(
        error.contains(said) && error.contains("context `evenkeel`"),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
    assert_eq!(
        version(nodes.list(&Default::default()).await.unwrap()),
        at,
        "nothing was written"
    );
}

#[tokio::test]
async fn what_a_lab_left_is_no_reason_to_refuse() {
    let (served, objects) = server().await;
    objects.create_any(object("Node", "v1", "shore-1", true)).await;
    objects
        .create_any(object("Namespace", "v1", "evenkeel-system", true))
        .await;
    reach(&served).await.unwrap();
}

#[tokio::test]
async fn a_lab_that_runs_there_is_left_alone() {
    let (served, objects) = server().await;
    objects.create_any(object("Node", "v1", "shore-1", true)).await;
    let leases = objects.namespaced("kube-node-lease");
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "shore-1"}});
    leases.create_any(placed("kube-node-lease", lease)).await;
    let renewing = tokio::spawn(async move {
        let mut turn = 0;
        loop {
            let patch = json!({"metadata": {"annotations": {"turn": turn.to_string()}}});
            leases.merge::<Lease>("shore-1", patch).await;
            turn += 1;
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    });
    let error = reach(&served).await.unwrap_err().to_string();
    assert!(
        error.contains("a lab runs on context `evenkeel` already: node shore-1"),
        "{error}"
    );
    renewing.abort();
    objects.get::<Node>("shore-1").await;
}

/// Addresses of RFC 5737 are of no machine.
#[rstest]
#[case::without_an_address(
    None,
    "https://192.0.2.2:6443 is not on this machine's loopback, so it cannot reach the lab's kubelets and webhook \
     there; name the address of this machine at which it can with --address IP"
)]
#[case::with_one_on_loopback(Some("127.0.0.1"), "so it cannot reach 127.0.0.1; name another address")]
#[case::with_one_of_another_machine(Some("192.0.2.1"), "--address 192.0.2.1: Cannot assign")]
#[tokio::test]
async fn a_server_elsewhere_is_refused_before_anybody_is_asked(
    #[case] address: Option<&str>,
    #[case] said: &str,
) {
    let (served, _objects) = server().await;
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("kubeconfig");
    let text = std::fs::read_to_string(served.direct("x")).unwrap();
    std::fs::write(&file, text.replace(&served.url(), "https://192.0.2.2:6443")).unwrap();
    let address = address.map(|address| address.parse().unwrap());
    let error = Cluster::reach(&file, None, address, false)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains(said) && !error.contains('\n'), "{error}");
    // What an earlier lab left can be removed all the same.
    let cluster = Cluster::find(&file, None).await.unwrap();
    assert_eq!(cluster.url(), "https://192.0.2.2:6443");
}

#[tokio::test]
async fn a_server_on_loopback_may_be_told_another_address() {
    let (served, _objects) = server().await;
    let address = "127.0.0.9".parse().ok();
    let joined = Cluster::reach(&served.direct("joined"), None, address, false)
        .await
        .unwrap();
    assert_eq!((joined.api, joined.address), (served.address(), address));
}

#[tokio::test]
async fn whatever_is_the_labs_is_removed_and_nothing_else() {
    let (served, objects) = server().await;
    // Who collects garbage and empties namespaces.
    let (users, stop) = (served.server.clone(), CancellationToken::new());
    let client_of = move |user: &str, groups: &[&str]| users.client_as(user, groups);
    let _ends = stop.clone().drop_guard();
    tokio::spawn(controllers::run(
        served.server.client(),
        client_of,
        String::new(),
        stop,
    ));
    let deployment = |name: &str, ours: bool| {
        let mut object = object("Deployment", "apps/v1", name, ours);
        object["spec"] = json!({
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        });
        object
    };
    for ours in [true, false] {
        let suffix = if ours { "ours" } else { "theirs" };
        objects
            .create_any(placed(
                "default",
                object("ConfigMap", "v1", &format!("map-{suffix}"), ours),
            ))
            .await;
        objects
            .create_any(object("Namespace", "v1", &format!("space-{suffix}"), ours))
            .await;
        objects
            .create_any(placed("default", deployment(&format!("web-{suffix}"), ours)))
            .await;
    }
    objects.create_any(object("Node", "v1", "shore-1", true)).await;
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "shore-1"}});
    objects
        .namespaced("kube-node-lease")
        .create_any(placed("kube-node-lease", lease))
        .await;
    // It is bound to a node of the lab, and nobody confirms its end any more.
    objects.pod("bound", "shore-1", json!({})).await;
    objects
        .merge::<k8s_openapi::api::core::v1::Pod>("bound", json!({"metadata": {"labels": labels(true)}}))
        .await;

    let removed = find(&served).await.clean().await.unwrap();
    for name in [
        "ConfigMap default/map-ours",
        "Deployment default/web-ours",
        "Namespace space-ours",
        "Node shore-1",
    ] {
        assert!(removed.iter().any(|line| line == name), "{name} in {removed:?}");
    }
    assert!(!removed.iter().any(|line| line.contains("theirs")), "{removed:?}");
    assert!(objects.find::<ConfigMap>("map-ours").await.is_none());
    assert!(objects.find::<Deployment>("web-ours").await.is_none());
    assert!(objects.find::<Node>("shore-1").await.is_none());
    assert!(
        objects
            .find::<k8s_openapi::api::core::v1::Pod>("bound")
            .await
            .is_none()
    );
    assert!(
        objects
            .namespaced("kube-node-lease")
            .find::<Lease>("shore-1")
            .await
            .is_none()
    );
    objects.get::<ConfigMap>("map-theirs").await;
    objects.get::<Deployment>("web-theirs").await;
    objects.get::<Namespace>("space-theirs").await;
    assert!(
        find(&served).await.clean().await.unwrap().is_empty(),
        "nothing is left"
    );
}
