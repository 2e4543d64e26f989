//! Base pods, in another cluster than the virtual nodes.

use super::*;
use evenkeel_koupleless::core::registry::Evidence;
use evenkeel_koupleless::discovery::pods::{Cluster, Keys};
use evenkeel_testkit::cluster::Objects as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

const LABEL: &str = "app=base";

/// Two clusters, and a replica that looks for base pods in the second.
struct Bench {
    _apis: [ServedApi; 2],
    pods: Api<Pod>,
    replica: Replica,
}

impl Bench {
    async fn start(keys: Keys, announcement: u64) -> Self {
        let ((one, client), (other, bases)) = (api().await, api().await);
        let settings = Settings {
            announcement: Duration::from_secs(announcement),
            late: Duration::ZERO,
            ..Settings::default()
        };
        let cluster = Cluster {
            client: bases.clone(),
            namespace: None,
            selector: LABEL.to_owned(),
            keys,
        };
        let sources = Sources {
            heartbeats: Some(listener(Auth::default()).await),
            pods: vec![cluster],
            ..Sources::default()
        };
        let setup = Setup {
            settings,
            serves: true,
            sources,
        };
        Self {
            _apis: [one, other],
            pods: Api::default_namespaced(bases),
            replica: Replica::start(&client, setup),
        }
    }

    /// A pod that runs and is ready.
    async fn run(&self, name: &str, ip: &str) -> Pod {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "base", "identity": "shop-1"}},
            "spec": {"containers": [{"name": "proxy", "image": "x"}, {"name": "base", "image": "x"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods.add(&pod).await;
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status =
            json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": ready}});
        self.pods
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap()
    }

    async fn is_ours(&self, node: &str) {
        until("the node is ours", async || self.replica.discovery.judges(node)).await;
    }

    async fn delete(&self, name: &str) {
        let now = DeleteParams::default().grace_period(0);
        self.pods.delete(name, &now).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_base_pod_is_a_base_and_its_deletion_is_proof() {
    let mut bench = Bench::start(Keys::default(), 0).await;
    let pod = bench.run("web-0", "192.0.2.2").await;
    assert_eq!(bench.replica.next().await.change, Change::Online);
    let base = bench.replica.base("192.0.2.2").unwrap();
    assert_eq!(base.port(), Some(1238));
    let found = base.pod.clone().unwrap();
    assert_eq!(Some(&*found.uid), pod.metadata.uid.as_deref());
    assert_eq!((&*found.name, &*found.container), ("web-0", "base"));
    bench.is_ours("vnode.192.0.2.2.dev").await;
    bench.delete("web-0").await;
    let lost = Change::Lost(Evidence::PodDeleted("default/web-0".to_owned()));
    assert_eq!(bench.replica.next_change().await, lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_only_loses_its_label_proves_nothing() {
    let mut bench = Bench::start(Keys::default(), 0).await;
    bench.run("web-0", "192.0.2.2").await;
    bench.run("web-1", "192.0.2.3").await;
    for _ in 0..2 {
        assert_eq!(bench.replica.next().await.change, Change::Online);
    }
    let unlabelled = json!({"metadata": {"labels": {"app": null}}});
    bench.pods.merge("web-0", unlabelled.clone()).await;
    // What is known of its pod is forgotten.
    let event = bench.replica.next().await;
    assert!(matches!(event.change, Change::Changed { .. }), "{event:?}");
    assert_eq!(event.base.pod, None);
    bench.delete("web-1").await;
    let lost = Change::Lost(Evidence::PodDeleted("default/web-1".to_owned()));
    assert_eq!(bench.replica.next_change().await, lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_identity_belongs_to_its_pod_and_the_pods_address_may_speak_through_others() {
    let keys = Keys {
        identity: vec!["identity".to_owned()],
        ..Keys::default()
    };
    let mut bench = Bench::start(keys, 0).await;
    bench.run("web-0", "192.0.2.2").await;
    let event = bench.replica.next().await;
    assert_eq!(&*event.node, "vnode.shop-1.dev");
    let through_a_proxy = heartbeat("shop-1", 1238).replace("127.0.0.1", "192.0.2.2");
    assert_eq!(bench.replica.beat(&through_a_proxy).await.0, 200);
    let (status, text) = bench
        .replica
        .beat(&through_a_proxy.replace("shop-1", "shop-2"))
        .await;
    assert_eq!(status, 403);
    assert!(text.contains("default/web-0"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_pod_is_the_end_of_the_one_before() {
    let keys = Keys {
        identity: vec!["identity".to_owned()],
        ..Keys::default()
    };
    let mut bench = Bench::start(keys, 0).await;
    bench.run("web-0", "192.0.2.2").await;
    assert_eq!(bench.replica.next().await.change, Change::Online);
    bench.is_ours("vnode.shop-1.dev").await;
    bench.delete("web-0").await;
    bench.run("web-0", "192.0.2.3").await;
    let lost = Change::Lost(Evidence::PodDeleted("default/web-0".to_owned()));
    assert_eq!(bench.replica.next_change().await, lost);
    assert_eq!(bench.replica.next_change().await, Change::Back);
    let base = bench.replica.base("shop-1").unwrap();
    assert_eq!(base.endpoint.address.to_string(), "192.0.2.3");
}
