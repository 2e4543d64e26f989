//! What tests read in nodes and pods.

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod, PodCondition};

/// An object whose status has conditions.
pub trait Conditions {
    /// Type, status and reason of each.
    fn conditions(&self) -> Vec<(&str, &str, &str)>;
}

macro_rules! conditions_of {
    ($($kind:ty),+) => {$(
        impl Conditions for $kind {
            fn conditions(&self) -> Vec<(&str, &str, &str)> {
                let all = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
                all.map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_deref().unwrap_or_default()))
                    .collect()
            }
        }
    )+};
}
conditions_of!(Pod, Node);

/// Status and reason of a condition; both are empty where there is none.
pub fn condition<'a>(of: &'a impl Conditions, kind: &str) -> (&'a str, &'a str) {
    let all = of.conditions();
    let found = all.into_iter().find(|(type_, ..)| *type_ == kind);
    found.map_or(("", ""), |(_, status, reason)| (status, reason))
}

/// Whether the condition `Ready` is true.
pub fn is_ready(of: &impl Conditions) -> bool {
    condition(of, "Ready").0 == "True"
}

/// A pod's condition with everything in it.
pub fn pod_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let mut all = pod.status.as_ref()?.conditions.iter().flatten();
    all.find(|condition| condition.type_ == kind)
}

/// A pod's phase; empty before it has one.
pub fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Whether somebody has deleted the pod, and it is still there.
pub fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// A container's status, be it an init container's or a main one's.
pub fn container_status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == name)
}

/// Why a container waits: reason and message.
pub fn waits<'a>(pod: &'a Pod, container: &str) -> Option<(&'a str, &'a str)> {
    let waiting = container_status(pod, container)?
        .state
        .as_ref()?
        .waiting
        .as_ref()?;
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    Some((text(&waiting.reason), text(&waiting.message)))
}

/// Whether a container waits for this reason.
pub fn waits_for(pod: &Pod, container: &str, reason: &str) -> bool {
    waits(pod, container).is_some_and(|(why, _)| why == reason)
}

/// How often the containers of a pod were started again, all together.
pub fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.restart_count).sum()
}

/// Keys and effects of a node's taints.
pub fn taints(node: &Node) -> Vec<(&str, &str)> {
    let all = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    all.map(|taint| (taint.key.as_str(), taint.effect.as_str()))
        .collect()
}

/// Whether a node has a taint.
pub fn has_taint(node: &Node, key: &str, effect: &str) -> bool {
    taints(node).contains(&(key, effect))
}
