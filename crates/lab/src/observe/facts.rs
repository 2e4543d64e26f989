//! The few fields of an object that assertions speak of. Pure.

use evenkeel_api::names;
use kube::{api::ApiResource, core::GroupVersionKind};
use serde_json::Value;
use std::time::Duration;

/// Kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is the kind it is named after")]
pub enum Kind {
    Pod,
    EndpointSlice,
    Node,
    Deployment,
    StatefulSet,
    Service,
    NodeIncident,
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Pod,
        Self::EndpointSlice,
        Self::Node,
        Self::Deployment,
        Self::StatefulSet,
        Self::Service,
        Self::NodeIncident,
    ];

    /// Where the API server has it.
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
            Self::Node => ("", "v1", "Node", "nodes"),
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::StatefulSet => ("apps", "v1", "StatefulSet", "statefulsets"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::NodeIncident => (names::GROUP, names::VERSION, "NodeIncident", "nodeincidents"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

/// A change with its time since the start of the record.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// When it was seen.
    pub at: Duration,
    /// What is so since then.
    pub what: Watched,
}

/// What is known of an object; `key` is its UID.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched {
    Pod(PodFact),
    Slice(SliceFact),
    Node(NodeFact),
    /// A Deployment or StatefulSet.
    Workload(WorkloadFact),
    Service(ServiceFact),
    Incident(IncidentFact),
    /// The object is no more.
    Gone(Kind, String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFact {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// `deployment/web`, `statefulset/db`; empty for others.
    pub workload: String,
    /// Node it is bound to; empty before.
    pub node: String,
    pub labels: Vec<(String, String)>,
    pub ready: bool,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// It ran to its end.
    pub finished: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SliceFact {
    pub uid: String,
    /// `NAMESPACE/SERVICE`.
    pub service: String,
    pub endpoints: Vec<EndpointFact>,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointFact {
    /// UID of the pod, or the address without one.
    pub target: String,
    pub name: String,
    pub node: String,
    /// Whether it takes traffic. Absent means yes.
    pub ready: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFact {
    pub uid: String,
    pub name: String,
    /// Status of the Ready condition, empty without one.
    pub ready: String,
    /// `key:effect` of its taints.
    pub taints: Vec<String>,
    /// Whether Evenkeel still has something to undo there.
    pub marked: bool,
}

/// A Deployment or StatefulSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadFact {
    pub uid: String,
    pub namespace: String,
    /// As in [`PodFact::workload`].
    pub workload: String,
    /// `spec.replicas`.
    pub desired: i64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceFact {
    pub uid: String,
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// Its selector; empty without one.
    pub selector: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct IncidentFact {
    pub uid: String,
    pub node: String,
    /// State of the node.
    pub state: String,
    pub closed: bool,
    /// What is missing for a fence proof.
    pub missing: String,
}

/// Reads an object as the API server sent it. What is absent reads as empty.
pub fn from_object(kind: Kind, key: String, object: &Value) -> Watched {
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    match kind {
        Kind::Pod => Watched::Pod(PodFact {
            uid: key,
            workload: owner(metadata),
            node: text(&object["spec"]["nodeName"]),
            labels: pairs(&metadata["labels"]),
            ready: condition(object, "Ready") == "True",
            deleting: !metadata["deletionTimestamp"].is_null(),
            finished: matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")),
            namespace,
            name,
        }),
        Kind::EndpointSlice => Watched::Slice(SliceFact {
            uid: key,
            service: format!(
                "{namespace}/{}",
                text(&metadata["labels"]["kubernetes.io/service-name"])
            ),
            endpoints: list(&object["endpoints"]).map(endpoint).collect(),
        }),
        Kind::Node => Watched::Node(NodeFact {
            uid: key,
            ready: condition(object, "Ready"),
            taints: list(&object["spec"]["taints"])
                .map(|taint| format!("{}:{}", text(&taint["key"]), text(&taint["effect"])))
                .collect(),
            marked: metadata["annotations"][names::annotations::ADDED_TAINTS]
                .as_str()
                .is_some_and(|value| !value.is_empty()),
            name,
        }),
        Kind::Deployment | Kind::StatefulSet => Watched::Workload(WorkloadFact {
            uid: key,
            workload: format!(
                "{}/{name}",
                if kind == Kind::Deployment {
                    "deployment"
                } else {
                    "statefulset"
                }
            ),
            desired: object["spec"]["replicas"].as_i64().unwrap_or(1),
            namespace,
        }),
        Kind::Service => Watched::Service(ServiceFact {
            uid: key,
            name: format!("{namespace}/{name}"),
            selector: pairs(&object["spec"]["selector"]),
        }),
        Kind::NodeIncident => Watched::Incident(IncidentFact {
            uid: key,
            node: text(&object["spec"]["nodeName"]),
            state: text(&object["status"]["state"]),
            closed: !object["status"]["closedAt"].is_null(),
            missing: text(&object["status"]["fence"]["missing"]),
        }),
    }
}

fn endpoint(endpoint: &Value) -> EndpointFact {
    let address = text(&endpoint["addresses"][0]);
    let reference = &endpoint["targetRef"];
    let or_address = |value: String| if value.is_empty() { address.clone() } else { value };
    EndpointFact {
        target: or_address(text(&reference["uid"])),
        name: or_address(text(&reference["name"])),
        node: text(&endpoint["nodeName"]),
        ready: endpoint["conditions"]["ready"].as_bool().unwrap_or(true),
    }
}

/// The workload behind a pod. A ReplicaSet of a Deployment is named after it, with a hash behind the last
/// dash.
fn owner(metadata: &Value) -> String {
    let controller = list(&metadata["ownerReferences"]).find(|owner| owner["controller"] == true);
    let Some(controller) = controller else {
        return String::new();
    };
    let name = text(&controller["name"]);
    match controller["kind"].as_str() {
        Some("ReplicaSet") => {
            let deployment = name
                .rsplit_once('-')
                .map_or(name.as_str(), |(deployment, _)| deployment);
            format!("deployment/{deployment}")
        }
        Some(kind) => format!("{}/{name}", kind.to_lowercase()),
        None => String::new(),
    }
}

fn condition(object: &Value, kind: &str) -> String {
    let found = list(&object["status"]["conditions"]).find(|condition| condition["type"] == kind);
    found
        .map(|condition| text(&condition["status"]))
        .unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
