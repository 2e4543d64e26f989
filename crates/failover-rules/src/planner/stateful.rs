//! Stateful pods of a dead node: they move only with a fence proof. Without one the incident says what is
//! missing.

use super::Known;
use super::action::{About, Action, Notice, Plan};
use super::scene::Scene;
use crate::world::facts::PodFacts;
use evenkeel_api::crd::FencingMethod;
use evenkeel_api::names::{events, taints};

/// Records for each stateful pod of the node that it stays, once per incident.
pub(super) fn record(known: &mut Known, scene: &Scene<'_>, plan: &mut Plan) {
    let Some(incident) = &mut known.incident else {
        return;
    };
    let stateful = |pod: &&PodFacts| !pod.finished && scene.cluster.is_stateful(pod);
    let missing = missing(scene);
    let mut stays = false;
    for pod in scene.cluster.pods_of(&scene.node.name).filter(stateful) {
        stays = true;
        if known.not_moved.insert(pod.pod.uid.clone()) {
            let message = format!("{}: {missing}", pod.pod);
            incident.row(events::NOT_MOVED, message, scene.now);
            plan.actions.push(Action::Event(Notice {
                about: About::Pod(pod.pod.clone()),
                at: scene.now,
                warning: true,
                reason: events::NOT_MOVED.to_owned(),
                message: missing.clone(),
                incident: incident.name.clone(),
            }));
        }
    }
    incident.status.fence.missing = if stays { missing } else { String::new() };
}

/// What is missing for a proof that the machine is off, and what an operator can do.
fn missing(scene: &Scene<'_>) -> String {
    let node = &scene.node.name;
    let mut lacks = Vec::new();
    if let Some(maintenance) = &scene.node.maintenance {
        lacks.push(format!("nothing is fenced during maintenance ({maintenance})"));
    }
    match scene.cluster.agents.get(node).map(|agent| agent.fencing.method) {
        None => lacks.push("no agent runs on the node".to_owned()),
        Some(FencingMethod::None) => lacks.push("its agent has armed no fencing method".to_owned()),
        Some(_) => lacks.push("its agent's fencing has not been proven to have acted".to_owned()),
    }
    format!(
        "not moved: no fence proof: {}. Once you know for certain that the machine is off: kubectl taint nodes {node} \
         {}=nodeshutdown:NoExecute",
        lacks.join("; "),
        taints::OUT_OF_SERVICE
    )
}
