//! Base pods, in this cluster or another.
//!
//! A watch with a label selector reports a pod as deleted also when only its labels have changed. Since a
//! pod's end is proof that its base is lost, it is made sure by asking for the pod.

use super::Hub;
use crate::core::registry::{Observation, PodSeen, PodState};
use crate::core::{Identity, PodRef};
use evenkeel_net::log::causes;
use evenkeel_net::watch::{Delta, Key, Unreadable, deltas, key};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Name of a base's container where nobody says another.
const CONTAINER: &str = "base";
/// Pause between two reads of whether a pod exists, doubled up to [`AGAIN_MOST`].
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(30);

/// A cluster in which bases run as pods.
#[derive(Clone)]
pub struct Cluster {
    /// Its client: may list, watch and get pods.
    pub client: Client,
    /// Where in it; everywhere without.
    pub namespace: Option<String>,
    /// Labels of base pods, as `kubectl -l` has them.
    pub selector: String,
    /// What pods declare of their bases.
    pub keys: Keys,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("namespace", &self.namespace)
            .field("selector", &self.selector)
            .finish_non_exhaustive()
    }
}

/// Annotations and labels by which pods declare what their bases are; annotations count first, and the first
/// that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Of the identity; none by default: a base says it itself, or it is the pod's address.
    pub identity: Vec<String>,
    pub name: Vec<String>,
    pub version: Vec<String>,
    /// Of the cluster of bases.
    pub cluster: Vec<String>,
    /// Of arklet's port.
    pub port: Vec<String>,
    /// Of the name of the container with the JVM.
    pub container: Vec<String>,
}

impl Default for Keys {
    fn default() -> Self {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        Self {
            identity: Vec::new(),
            name: keys(&["base.koupleless.io/name", "basement.koupleless.io/stack"]),
            version: keys(&["base.koupleless.io/version", "basement.koupleless.io/version"]),
            cluster: keys(&["base.koupleless.io/cluster-name"]),
            port: keys(&["base.koupleless.io/tunnel-port"]),
            container: keys(&["base.koupleless.io/container-name"]),
        }
    }
}

/// What a base pod declares; `None` before it has a UID.
pub fn seen(pod: &Pod, keys: &Keys) -> Option<PodSeen> {
    let declared = |keys: &[String]| {
        let of = |key: &String| pod.annotations().get(key).or_else(|| pod.labels().get(key));
        keys.iter()
            .find_map(of)
            .filter(|value| !value.trim().is_empty())
            .cloned()
    };
    let path = || format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let identity = declared(&keys.identity).and_then(|text| {
        let read = Identity::new(text.trim());
        read.inspect_err(
            |error| tracing::warn!(pod = path(), %error, "the identity that a base pod declares is not used"),
        )
        .ok()
    });
    let status = pod.status.as_ref();
    let address = status
        .and_then(|status| status.pod_ip.as_deref())
        .and_then(|ip| ip.parse().ok());
    Some(PodSeen {
        pod: PodRef {
            namespace: pod.namespace().unwrap_or_default().into(),
            name: pod.name_any().into(),
            uid: pod.uid()?.into(),
            container: container(pod, declared(&keys.container)).into(),
        },
        address,
        identity,
        name: declared(&keys.name),
        version: declared(&keys.version),
        cluster: declared(&keys.cluster),
        port: declared(&keys.port)
            .and_then(|port| port.trim().parse().ok())
            .filter(|port| *port != 0),
        state: state(pod),
    })
}

fn container(pod: &Pod, declared: Option<String>) -> String {
    let all = pod.spec.as_ref().map(|spec| &spec.containers[..]);
    let mut names = all.unwrap_or_default().iter().map(|container| &container.name);
    let first = names.clone().next();
    let wanted = declared.as_deref().unwrap_or(CONTAINER);
    let found = names.find(|name| *name == wanted).or(first);
    found.map_or_else(|| CONTAINER.to_owned(), Clone::clone)
}

fn state(pod: &Pod) -> PodState {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Succeeded" | "Failed") => PodState::Ended,
        Some("Running")
            if pod.metadata.deletion_timestamp.is_none()
                && conditions.any(|one| one.type_ == "Ready" && one.status == "True") =>
        {
            PodState::Ready
        }
        _ => PodState::NotReady,
    }
}

/// Watches the base pods of a cluster, for ever.
pub(super) async fn watch(hub: Arc<Hub>, cluster: Cluster, stop: CancellationToken) {
    let client = &cluster.client;
    let namespaced = |namespace: &str| Api::namespaced(client.clone(), namespace);
    let watched = cluster.namespace.as_deref();
    let watched = watched.map_or_else(
        || Api::all(client.clone()),
        |namespace| Api::namespaced(client.clone(), namespace),
    );
    let config = watcher::Config::default().labels(&cluster.selector);
    let mut pods = pin!(deltas::<Pod>(
        "base pods",
        watched,
        config,
        Unreadable::StaysAsKnown
    ));
    let mut known: HashMap<Key, Arc<str>> = HashMap::new();
    // Pods that have left the watch, and what ends the check whether they exist.
    let mut asked: HashMap<Key, (Arc<str>, CancellationToken)> = HashMap::new();
    while let Some(delta) = pods.next().await {
        let missing: Vec<Key> = match delta {
            Delta::Put(pod) => {
                let key = key(&*pod);
                if let Some(seen) = seen(&pod, &cluster.keys) {
                    let uid = seen.pod.uid.clone();
                    let missed = asked.remove(&key).map(|(uid, question)| {
                        question.cancel();
                        uid
                    });
                    let former = known.insert(key, uid.clone()).or(missed);
                    // A name is given again once its pod does not exist any more.
                    if let Some(former) = former.filter(|former| *former != uid) {
                        hub.report(Observation::PodDeleted(former));
                    }
                    hub.report(Observation::Pod(seen));
                }
                continue;
            }
            Delta::Gone(key) => vec![key],
            Delta::Listed(listed) => {
                let missing = known.keys().filter(|key| !listed.contains(key));
                missing.cloned().collect()
            }
            Delta::Broken => continue,
        };
        asked.retain(|_, (_, question)| !question.is_cancelled());
        for key in missing {
            let Some(uid) = known.remove(&key) else {
                continue;
            };
            let question = stop.child_token();
            asked.insert(key.clone(), (uid.clone(), question.clone()));
            let (hub, api): (_, Api<Pod>) = (hub.clone(), namespaced(&key.0));
            let tasks = hub.tasks.clone();
            tasks.spawn(async move {
                let asking = exists(api, &key.1, &uid);
                // Another pod of its name, or the same again: then the watch has shown it.
                let observation = match question.run_until_cancelled(asking).await {
                    Some(true) => Observation::PodForgotten(uid),
                    Some(false) => Observation::PodDeleted(uid),
                    None => return,
                };
                hub.report(observation);
                question.cancel();
            });
        }
    }
}

/// Whether this very pod exists, asked until there is an answer.
async fn exists(api: Api<Pod>, name: &str, uid: &str) -> bool {
    let mut pause = AGAIN;
    loop {
        match api.get_metadata_opt(name).await {
            Ok(found) => return found.is_some_and(|pod| pod.uid().as_deref() == Some(uid)),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                tracing::warn!(
                    name,
                    "base pods cannot be asked for, so that their end proves nothing; allow the verb get on pods"
                );
                return true;
            }
            Err(error) => {
                let error = causes(&error);
                tracing::warn!(
                    name,
                    error,
                    ?pause,
                    "cannot ask whether a base pod exists, trying again"
                );
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN_MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn pod(meta: &Value, containers: &[&str], status: &Value) -> Pod {
        let mut metadata = json!({"name": "web-0", "namespace": "shop", "uid": "u"});
        for (key, value) in meta.as_object().unwrap() {
            metadata[key] = value.clone();
        }
        let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
        serde_json::from_value(
            json!({"metadata": metadata, "spec": {"containers": containers}, "status": status}),
        )
        .unwrap()
    }

    fn running(ready: &str) -> Value {
        json!({"phase": "Running", "podIP": "192.0.2.2", "conditions": [{"type": "Ready", "status": ready}]})
    }

    #[rstest]
    #[case(json!({}), running("True"), PodState::Ready)]
    #[case(json!({}), running("False"), PodState::NotReady)]
    #[case(json!({}), running("Unknown"), PodState::NotReady)]
    #[case(json!({}), json!({"phase": "Pending"}), PodState::NotReady)]
    #[case(json!({}), json!({}), PodState::NotReady)]
    #[case(json!({}), json!({"phase": "Failed"}), PodState::Ended)]
    #[case(json!({}), json!({"phase": "Succeeded"}), PodState::Ended)]
    #[case(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), running("True"), PodState::NotReady)]
    fn what_a_pod_does(#[case] meta: Value, #[case] status: Value, #[case] state: PodState) {
        let pod = pod(&meta, &["base"], &status);
        assert_eq!(seen(&pod, &Keys::default()).unwrap().state, state);
    }

    #[rstest]
    #[case(&["base", "proxy"], json!({}), "base")]
    #[case(&["proxy", "base"], json!({}), "base")]
    #[case(&["web", "proxy"], json!({}), "web")]
    #[case(&["base", "jvm"], json!({"labels": {"base.koupleless.io/container-name": "jvm"}}), "jvm")]
    #[case(&["web", "proxy"], json!({"labels": {"base.koupleless.io/container-name": "none"}}), "web")]
    #[case(&[], json!({}), "base")]
    fn the_container_with_the_jvm(#[case] names: &[&str], #[case] meta: Value, #[case] container: &str) {
        let pod = pod(&meta, names, &running("True"));
        assert_eq!(&*seen(&pod, &Keys::default()).unwrap().pod.container, container);
    }

    #[test]
    fn what_a_pod_declares_is_read_annotations_first() {
        let meta = json!({
            "labels": {"id": "label", "base.koupleless.io/name": "web", "base.koupleless.io/tunnel-port": "1300"},
            "annotations": {"id": "annotation", "base.koupleless.io/version": "2", "base.koupleless.io/cluster-name": "c"},
        });
        let keys = Keys {
            identity: vec!["id".to_owned()],
            ..Keys::default()
        };
        let seen = seen(&pod(&meta, &["base"], &running("True")), &keys).unwrap();
        assert_eq!(seen.identity.unwrap().as_str(), "annotation");
        let texts = [&seen.name, &seen.version, &seen.cluster].map(|text| text.as_deref().unwrap());
        assert_eq!(texts, ["web", "2", "c"]);
        assert_eq!(seen.port, Some(1300));
        assert_eq!(seen.address, Some("192.0.2.2".parse().unwrap()));
    }

    #[test]
    fn a_declaration_that_cannot_be_is_none() {
        let meta = json!({"labels": {"id": "a b", "base.koupleless.io/tunnel-port": "many"}});
        let keys = Keys {
            identity: vec!["id".to_owned()],
            ..Keys::default()
        };
        let seen = seen(&pod(&meta, &["base"], &running("True")), &keys).unwrap();
        assert_eq!((seen.identity, seen.port), (None, None));
    }
}
