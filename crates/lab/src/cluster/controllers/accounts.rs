//! What every namespace gets: the `default` ServiceAccount, and the cluster's certificate authority.

use super::owned::{as_json, patch, replacement};
use crate::cluster::{
    action::{Action, Kind, execute},
    view::{Refused, Snapshot, View},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CA_CONFIG_MAP: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
/// What the ConfigMap says of itself, in upstream's words.
const CA_DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

/// `default` ServiceAccounts that are missing.
pub fn reconcile(view: &Snapshot, _now: Timestamp) -> Vec<Action> {
    active(view)
        .filter(|namespace| {
            !view.service_accounts.iter().any(|account| {
                account.metadata.name.as_deref() == Some("default")
                    && account.metadata.namespace.as_deref() == Some(namespace)
            })
        })
        .map(|namespace| Action::Create {
            kind: Kind::ServiceAccount,
            namespace: namespace.to_owned(),
            object: json!({"metadata": {"name": "default"}}),
        })
        .collect()
}

/// ConfigMaps with the authority that are missing or differ.
pub fn missing_ca(view: &Snapshot, ca_pem: &str) -> Vec<Action> {
    active(view)
        .filter_map(|namespace| {
            let found = view.config_maps.iter().find(|map| {
                map.metadata.name.as_deref() == Some(CA_CONFIG_MAP)
                    && map.metadata.namespace.as_deref() == Some(namespace)
            });
            let Some(map) = found else {
                return Some(Action::Create {
                    kind: Kind::ConfigMap,
                    namespace: namespace.to_owned(),
                    object: json!({
                        "metadata": {"name": CA_CONFIG_MAP, "annotations": {DESCRIPTION: CA_DESCRIPTION}},
                        "data": {"ca.crt": ca_pem},
                    }),
                });
            };
            let annotations = map.metadata.annotations.as_ref();
            let described =
                annotations.is_some_and(|all| all.get(DESCRIPTION).is_some_and(|text| !text.is_empty()));
            let data = replacement(&as_json(&map.data), json!({"ca.crt": ca_pem}));
            (data.is_some() || !described).then(|| {
                let data = data.unwrap_or_else(|| json!({}));
                let change =
                    json!({"metadata": {"annotations": {DESCRIPTION: CA_DESCRIPTION}}, "data": data});
                patch(Kind::ConfigMap, &map.metadata, change)
            })
        })
        .collect()
}

/// Keeps the authority's ConfigMaps until `shutdown`.
pub async fn publish_ca(client: Client, view: View, ca_pem: String, shutdown: CancellationToken) {
    let mut changes = view.changes();
    loop {
        changes.mark_unchanged();
        let actions = missing_ca(&view.snapshot(), &ca_pem);
        execute(&client, &view, "root-ca", actions, &mut Refused::new()).await;
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = tokio::time::timeout(Duration::from_secs(1), changes.changed()) => {}
        }
    }
}

fn active(view: &Snapshot) -> impl Iterator<Item = &str> {
    view.namespaces
        .iter()
        .filter(|namespace| !is_terminating(namespace))
        .filter_map(|namespace| namespace.metadata.name.as_deref())
}

fn is_terminating(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}
