//! Nodes of bases: left by earlier processes, registered by other replicas.
//!
//! All that is known of a base stands in an annotation of its Node, so that whoever serves it next begins
//! with it. A Node without it (the released controller's) is read from its labels, addresses and name.

use super::Hub;
use crate::core::identity::IdentityError;
use crate::core::registry::Observation;
use crate::core::{Base, Connection, Endpoint, Identity};
use evenkeel_api::names::koupleless::{BASE, COMPONENT_LABEL, ENV_LABEL, VNODE};
use evenkeel_net::watch::{Delta, Unreadable, deltas};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use std::collections::HashSet;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

/// The released controller's labels about the base.
const NAME: &str = "base.koupleless.io/name";
const VERSION: &str = "base.koupleless.io/version";
const CLUSTER: &str = "base.koupleless.io/cluster-name";
const HOST: &str = "base.koupleless.io/host-name";
const PORT: &str = "base.koupleless.io/tunnel-port";

/// Why the base of a Node cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unrecorded {
    /// Its name is none that the released controller makes.
    #[error("its name is not vnode.IDENTITY.{0}, and it has no annotation {annotation}", annotation = BASE)]
    Name(String),
    /// Its name holds no identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Neither its identity nor its addresses say where its base is.
    #[error("it has no address")]
    Address,
}

/// The annotation by which a Node records its base: key and value.
pub fn annotation(base: &Base) -> (String, String) {
    // A base has texts, numbers and addresses: all of them are JSON.
    let value = serde_json::to_string(base).unwrap_or_default();
    (BASE.to_owned(), value)
}

/// What a Node records of its base. `by_mqtt`: one without a port is reached by way of the broker.
pub fn record(node: &Node, env: &str, by_mqtt: bool) -> Result<Base, Unrecorded> {
    if let Some(text) = node.annotations().get(BASE) {
        match serde_json::from_str(text) {
            Ok(base) => return Ok(base),
            Err(error) => {
                let node = node.name_any();
                tracing::warn!(node, %error, "the annotation {BASE} cannot be read, the labels count");
            }
        }
    }
    let name = node.name_any();
    let identity = name
        .strip_prefix("vnode.")
        .and_then(|rest| rest.strip_suffix(env)?.strip_suffix('.'))
        .ok_or_else(|| Unrecorded::Name(env.to_owned()))?;
    let label = |key: &str| node.labels().get(key).cloned();
    // An identity that is an address is the base's; the Node's own may be that of a proxy.
    let address = identity.parse().ok().or_else(|| internal_address(node));
    let port = label(PORT)
        .and_then(|port| port.parse().ok())
        .filter(|port| *port != 0);
    let by = match port {
        Some(port) => Connection::Http(port),
        None if by_mqtt => Connection::Mqtt,
        None => Connection::Http(1238),
    };
    Ok(Base {
        identity: Identity::new(identity)?,
        name: label(NAME),
        version: label(VERSION),
        cluster: label(CLUSTER),
        host_name: label(HOST),
        endpoint: Endpoint {
            address: address.ok_or(Unrecorded::Address)?,
            by,
        },
        pod: None,
    })
}

fn internal_address(node: &Node) -> Option<IpAddr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let mut internal = addresses.iter().filter(|one| one.type_ == "InternalIP");
    internal.find_map(|one| one.address.parse().ok())
}

/// Watches Nodes of this environment's bases, for ever.
pub(super) async fn watch(hub: Arc<Hub>, client: Client, by_mqtt: bool) {
    let labels = format!("{COMPONENT_LABEL}={VNODE},{ENV_LABEL}={}", hub.env);
    let config = watcher::Config::default().labels(&labels);
    let mut nodes = pin!(deltas::<Node>(
        "nodes",
        Api::all(client),
        config,
        Unreadable::StaysAsKnown
    ));
    let mut known: HashSet<String> = HashSet::new();
    let gone = |name: &str| hub.report(Observation::NodeGone(name.into()));
    while let Some(delta) = nodes.next().await {
        match delta {
            Delta::Put(node) => {
                let name = node.name_any();
                match record(&node, &hub.env, by_mqtt) {
                    Ok(record) => hub.report(Observation::Node {
                        node: name.as_str().into(),
                        record,
                    }),
                    Err(error) => {
                        tracing::debug!(node = name, %error, "a Node tells of no base, it is left alone");
                    }
                }
                known.insert(name);
            }
            Delta::Gone((_, name)) => {
                known.remove(&name);
                gone(&name);
            }
            Delta::Listed(listed) => {
                let listed: HashSet<String> = listed.into_iter().map(|(_, name)| name).collect();
                for name in known.difference(&listed) {
                    gone(name);
                }
                known = listed;
            }
            Delta::Broken => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, more: &serde_json::Value) -> Node {
        let mut node = json!({"metadata": {"name": name}});
        json_patch(&mut node, more);
        serde_json::from_value(node).unwrap()
    }

    fn json_patch(to: &mut serde_json::Value, from: &serde_json::Value) {
        match (to, from) {
            (serde_json::Value::Object(to), serde_json::Value::Object(from)) => {
                for (key, value) in from {
                    json_patch(to.entry(key).or_insert(serde_json::Value::Null), value);
                }
            }
            (to, from) => *to = from.clone(),
        }
    }

    #[test]
    fn a_base_is_read_as_it_was_recorded() {
        let labels = json!({"metadata": {"labels": {NAME: "web", PORT: "1300"}}});
        let base = record(&node("vnode.192.0.2.2.dev", &labels), "dev", false).unwrap();
        let (key, value) = annotation(&base);
        let recorded = node("whatever", &json!({"metadata": {"annotations": {key: value}}}));
        assert_eq!(record(&recorded, "dev", true).unwrap(), base);
    }

    #[test]
    fn a_node_of_the_released_controller_is_read_from_its_labels() {
        let more = json!({
            "metadata": {"labels": {NAME: "web", VERSION: "1", CLUSTER: "c", HOST: "h", PORT: "1239"}},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.96.0.7"}]},
        });
        let base = record(&node("vnode.192.0.2.2.dev", &more), "dev", true).unwrap();
        assert_eq!(base.endpoint.address.to_string(), "192.0.2.2", "not its proxy's");
        assert_eq!(base.port(), Some(1239));
        assert_eq!(base.identity.as_str(), "192.0.2.2");
        let fields = [&base.name, &base.version, &base.cluster, &base.host_name];
        assert_eq!(
            fields.map(|field| field.as_deref().unwrap()),
            ["web", "1", "c", "h"]
        );
        let base = record(&node("vnode.shop.dev", &more), "dev", true).unwrap();
        assert_eq!(base.endpoint.address.to_string(), "10.96.0.7");
    }

    #[test]
    fn without_a_port_it_is_the_broker_or_the_usual_port() {
        let bare = node("vnode.192.0.2.2.dev", &json!({}));
        assert_eq!(record(&bare, "dev", true).unwrap().endpoint.by, Connection::Mqtt);
        assert_eq!(record(&bare, "dev", false).unwrap().port(), Some(1238));
    }

    #[test]
    fn a_broken_record_leaves_the_labels() {
        let broken = json!({"metadata": {"annotations": {BASE: "{"}}});
        assert!(record(&node("vnode.192.0.2.2.dev", &broken), "dev", false).is_ok());
    }

    #[test]
    fn what_tells_of_no_base_is_said_why() {
        let why = |name: &str| record(&node(name, &json!({})), "dev", false).unwrap_err();
        assert!(matches!(why("worker-1"), Unrecorded::Name(_)));
        assert!(matches!(why("vnode.192.0.2.2.prod"), Unrecorded::Name(_)));
        assert!(matches!(why("vnode..dev"), Unrecorded::Identity(_)));
        assert!(matches!(why("vnode.shop.dev"), Unrecorded::Address));
    }
}
