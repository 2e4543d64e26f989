//! What a person reads of a run.

use crate::api::Change;
use crate::api::build::roster_of;
use crate::api::objects::{Object, is_endpoint, node_condition};
use crate::sim::Sim;

impl Sim {
    /// Notes a write that changes what a node or a pod is.
    pub(crate) fn trace_change(&mut self, change: &Change) {
        let text = match change.object.as_deref().or(change.before.as_deref()) {
            Some(Object::Node(node)) => {
                let ready = node_condition(node, "Ready").map_or("-", |ready| ready.status.as_str());
                let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
                let taints: Vec<String> = taints
                    .map(|taint| format!("{}:{}", taint.key, taint.effect))
                    .collect();
                format!("Ready={ready} taints {taints:?}")
            }
            Some(object @ Object::Pod(_)) => {
                let deleted = object.meta().deletion_timestamp.is_some() || change.object.is_none();
                format!("endpoint ready={} deleted={deleted}", is_endpoint(object))
            }
            Some(Object::Report(report)) => {
                format!(
                    "report {}: {}",
                    report.spec.report.sequence, report.spec.report.summary
                )
            }
            Some(Object::Zone(zone)) => format!("roster {}", roster_of(zone).version),
            Some(Object::Challenge(challenge)) => {
                let spec = &challenge.spec;
                format!("challenge {} wanted {:?}", spec.current.value, spec.wanted)
            }
            Some(Object::Incident(incident)) => {
                let status = incident.status.clone().unwrap_or_default();
                format!(
                    "{} closed={} {}",
                    status.decision.state,
                    status.closed_at.is_some(),
                    status.decision.reason
                )
            }
            Some(Object::Agent(agent)) => format!("link proofs {}", agent.spec.link_proofs),
            _ => return,
        };
        let (writer, kind, name) = (change.writer, change.kind.name(), change.key.1.clone());
        self.note(|| format!("{writer:?} writes {kind} {name}: {text}"));
    }
}
