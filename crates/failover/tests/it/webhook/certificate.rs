//! The certificate that replicas serve the webhook with: one for all of them, in a Secret.

use crate::cluster::{Cluster, Setup, is_ready};
use crate::stock;
use evenkeel_testkit::until;
use k8s_openapi::api::core::v1::Secret;

fn replica(identity: &'static str, ip: &'static str) -> Setup {
    Setup {
        webhook: Some(ip),
        ..Setup::elected(identity)
    }
}

async fn secret(cluster: &Cluster) -> Secret {
    cluster.home().get("evenkeel-webhook").await
}

/// Waits until the webhook that the API server knows of keeps a pod of the cut-off `n3` ready.
async fn is_kept(cluster: &Cluster) {
    cluster.pod("n3", "a", None, None).await;
    cluster.cut("n3").await;
    until("the pod is kept ready", async || {
        is_ready(&stock::would_mark_pod(cluster, "a").await)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_one_certificate_and_the_last_to_come_is_reached() {
    let cluster = Cluster::start().await;
    let first = cluster.replica(replica("a", "127.0.0.1")).await;
    let before = secret(&cluster).await;
    let _second = cluster.replica(replica("b", "127.0.0.1")).await;
    let after = secret(&cluster).await;
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
    assert_eq!(before.type_.as_deref(), Some("kubernetes.io/tls"));
    let data = before.data.unwrap();
    assert!(
        ["tls.crt", "tls.key", "ca.crt"]
            .iter()
            .all(|key| data.contains_key(*key))
    );
    cluster.reports().await;
    first.stop().await;
    is_kept(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_address_is_replaced_by_one_that_the_api_server_trusts() {
    let cluster = Cluster::start().await;
    cluster.replica(replica("a", "127.0.0.1")).await.stop().await;
    let before = secret(&cluster).await;
    let _moved = cluster.replica(replica("a", "127.0.0.2")).await;
    let after = secret(&cluster).await;
    assert_eq!(before.metadata.uid, after.metadata.uid);
    assert_ne!(before.data.unwrap()["tls.crt"], after.data.unwrap()["tls.crt"]);
    cluster.reports().await;
    is_kept(&cluster).await;
}
