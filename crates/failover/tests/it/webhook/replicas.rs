//! Several replicas, none of which leads.

use crate::cluster::{Cluster, ready};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::net::TcpListener;

#[tokio::test]
async fn replicas_share_one_certificate_and_the_last_to_come_is_reached() {
    let mut cluster = Cluster::start().await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), "evenkeel-system");
    let first = cluster.webhook().await;
    let before = secrets.get("evenkeel-webhook").await.unwrap();
    let second = cluster.webhook().await;
    let after = secrets.get("evenkeel-webhook").await.unwrap();
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
    assert_eq!(before.type_.as_deref(), Some("kubernetes.io/tls"));
    let data = before.data.unwrap();
    assert!(
        ["tls.crt", "tls.key", "ca.crt"]
            .iter()
            .all(|key| data.contains_key(*key))
    );
    first.stop.cancel();
    first.task.await.unwrap().unwrap();
    let pod = cluster.pod("a", "shore-2").await;
    cluster.cut_shore_2().await;
    assert_eq!(ready(&cluster.mark(&pod, false).await), "True");
    drop(second);
}

#[tokio::test]
async fn a_certificate_for_another_address_is_replaced_by_one_that_the_api_server_trusts() {
    let mut cluster = Cluster::start().await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), "evenkeel-system");
    drop(cluster.webhook().await);
    let before = secrets.get("evenkeel-webhook").await.unwrap();
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let _moved = cluster.webhook_at(listener, address).await;
    let after = secrets.get("evenkeel-webhook").await.unwrap();
    assert_eq!(before.metadata.uid, after.metadata.uid);
    assert_ne!(before.data.unwrap()["tls.crt"], after.data.unwrap()["tls.crt"]);
    let pod = cluster.pod("a", "shore-2").await;
    cluster.cut_shore_2().await;
    assert_eq!(ready(&cluster.mark(&pod, false).await), "True");
}
