//! What goes from a node that is kept, because it serves nobody there.
//!
//! A pod that the scheduler gave the node after its link was cut, and before the stock controller marked it,
//! is not started before the link is back. Whoever waits for it waits for as long: a rollout with
//! `maxUnavailable: 0`, a Job of a CronJob that forbids a second one. Stock Kubernetes evicts it, and its
//! controller makes another one elsewhere.
//!
//! The API server sends admission requests to every replica of this controller that is ready. One on a node
//! without a link answers none: each of its requests waits for 2 s and passes uncorrected. Nothing is heard
//! of such a replica, because it cannot renew its own Lease either.

use super::Known;
use super::action::{Action, Plan};
use super::dead::deadline;
use super::node::withdraw;
use super::scene::Scene;
use crate::world::facts::{Owner, PodFacts, TaintRef};
use evenkeel_api::names::events;

/// The stock controller's queue of a zone lets one node through in this time.
const TURN_MS: u64 = 10_000;

/// Evicts pods that no kubelet has acknowledged, and silent replicas, no sooner than stock Kubernetes would
/// if nothing else waited in its queue: each stays for what it tolerates, from when the node has the mark,
/// the pod is on it, and the zone is not too disrupted. That a kubelet may have started a pod and could not
/// say so any more is true of stock Kubernetes as well; so a stateful pod stays, and one that nobody
/// replaces.
pub(super) fn evict(scene: &Scene<'_>, plan: &mut Plan) {
    let (node, decision) = (scene.node, &scene.judged.decision);
    // After a death that we confirmed, our own mark stands in the place of the stock controller's.
    let ours = node.marked_by_us.then_some(decision.memory.since);
    let may_act = scene.judged.protection.evictions && decision.may_harm();
    let Some(marked) = node.life.stock_mark.or(ours).filter(|_| may_act) else {
        return;
    };
    let taint = TaintRef::evicting().to_taint(None);
    let default = scene.default_toleration_seconds;
    for pod in scene.cluster.pods_of(&node.name) {
        let is_replica = scene.is_silent_replica(pod);
        // Most pods of a node were acknowledged.
        if pod.acknowledged && !is_replica || pod.finished || pod.terminating {
            continue;
        }
        if pod.owner != Owner::Other || scene.cluster.is_stateful(pod) {
            continue;
        }
        let tainted = marked.max(pod.seen).max(scene.stock_stood).plus(TURN_MS);
        if deadline(pod, (&taint, tainted), default, default).is_none_or(|deadline| deadline > scene.now) {
            continue;
        }
        let why = if is_replica {
            "nothing is heard of this controller of Evenkeel"
        } else {
            "its kubelet has never written of the pod"
        };
        plan.actions.push(Action::EvictFromKept {
            pod: pod.pod.clone(),
            node: scene.node_ref(),
            version: pod.version.clone(),
            message: format!(
                "Evenkeel: node {} is {}, and {why}.",
                node.name,
                scene.state().name()
            ),
        });
    }
}

/// Takes silent replicas of the controller out of the webhook's Service at once: the stock controller's
/// marks, which replicas that can be reached correct, come later.
pub(super) fn withdraw_replicas(known: &mut Known, scene: &Scene<'_>, plan: &mut Plan) {
    if scene.judged.decision.may_harm() {
        let message = format!("the API server cannot ask a webhook on node {}", scene.node.name);
        let others = |pod: &PodFacts| !scene.is_silent_replica(pod);
        withdraw(known, scene, (events::DISCONNECTED, &message), &others, plan);
    }
}
