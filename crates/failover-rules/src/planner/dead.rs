//! A dead node: endpoints out at once; taint and evictions once the death is confirmed; stateful pods stay.

use super::action::{Action, Measure, Plan, StillDead};
use super::incident::{instant, time};
use super::node::{tell_kept, withdraw};
use super::scene::Scene;
use super::storm::Ledger;
use super::{Known, stateful};
use crate::world::facts::{Owner, PodFacts, Status, TaintRef};
use evenkeel_api::names::conditions::REASON_NODE_DEAD;
use evenkeel_api::names::{events, taints};
use evenkeel_judge::Dead;
use evenkeel_stock_rules::tolerations::{NO_EXECUTE, NO_SCHEDULE, Stay, is_admission_default, stay_with};
use evenkeel_zone::Millis;
use k8s_openapi::api::core::v1::Taint;

/// In a storm, endpoints are taken only when the slices were read, or after this long without them.
const STORM_READS_MS: u64 = 1_000;

pub(super) fn act(known: &mut Known, ledger: &mut Ledger, scene: &Scene<'_>, phase: Dead, plan: &mut Plan) {
    // Deaths count for a storm for a minute, and evictions take longer.
    if scene.judged.evidence.zone.storm
        && let Some(incident) = &mut known.incident
    {
        incident.status.in_storm = true;
    }
    // Steps that could harm the node begin only when every watch is proven live, and when the latch stands in
    // the NodeIncident, where every replica can read it.
    if phase == Dead::Paused || !scene.judged.decision.may_harm() || !scene.is_recorded(known) {
        return;
    }
    endpoints_out(known, scene, phase, plan);
    if phase != Dead::Announced {
        stateful::record(known, scene, plan);
    }
    if phase == Dead::Confirmed {
        evict(known, ledger, scene, plan);
    }
}

/// The reversible part: the pods are marked not ready, and no new ones come. If the node lives after all,
/// whatever its kubelet writes later wins.
///
/// In a storm nodes may only seem dead. So the last endpoint of a Service stays until the death is confirmed,
/// or until stock Kubernetes takes it, which the webhook does not prevent (hazard 25).
fn endpoints_out(known: &mut Known, scene: &Scene<'_>, phase: Dead, plan: &mut Plan) {
    let node = scene.node;
    if node.taint(taints::DEAD, NO_SCHEDULE).is_none() {
        plan.actions.push(Action::Taint {
            node: scene.node_ref(),
            taint: TaintRef::new(taints::DEAD, NO_SCHEDULE),
            proof: None,
        });
    }
    let suspect = phase == Dead::Announced && scene.judged.evidence.zone.storm;
    let kept = |pod: &PodFacts| suspect && scene.last().keeps(&pod.pod, scene.now, STORM_READS_MS);
    if suspect {
        tell_kept(known, scene);
    }
    let message = format!("node {} is dead: {}", node.name, scene.judged.decision.reason);
    let ready = withdraw(known, scene, (REASON_NODE_DEAD, &message), &kept, plan);
    if ready == 0 && !std::mem::replace(&mut known.endpoints_out, true) {
        let took = scene.now.since(scene.judged.decision.memory.since);
        plan.measures.push(Measure::EndpointsOut(took));
        if let Some(incident) = &mut known.incident {
            let message = format!("no pod of the node is ready any more, {took} ms after the verdict");
            incident.row(events::ENDPOINTS_OUT, message, scene.now);
        }
    }
}

/// The stock controllers answer this mark with NoExecute within seconds, so that it waits for what the taint
/// waits for: the confirmation, a slot of the storm guard, and one more look (hazard 58).
fn mark_unknown(scene: &Scene<'_>, plan: &mut Plan) {
    if scene.node.ready != Status::Unknown {
        plan.actions.push(Action::MarkNodeUnknown {
            node: scene.node_ref(),
            version: scene.node.version.clone(),
            message: format!("Evenkeel: {}.", scene.judged.decision.reason),
        });
    }
}

/// The irreversible part, once the death is confirmed: the NoExecute taint, then the pods when they are due,
/// each write after one more look at the node. Pods stay if they are of a DaemonSet, static, stateful, or
/// tolerate the taint for ever. How many nodes at once is limited by the storm guard, `Ledger::admits`.
fn evict(known: &mut Known, ledger: &mut Ledger, scene: &Scene<'_>, plan: &mut Plan) {
    let (node, now) = (scene.node, scene.now);
    // The eviction is done. Pods that appear later are evicted without a slot of the storm guard.
    let admitted = if known.eviction_summed_up {
        Ok(())
    } else {
        ledger.admits(&node.uid, scene.zone(), scene.zone_size, now)
    };
    if let Err(wait) = admitted {
        if let Some(incident) = &mut known.incident {
            let message = format!("{wait}; until then stock Kubernetes evicts at its own pace");
            incident.row(events::EVICTION_HELD, message, now);
        }
        return;
    }
    // In a storm nodes may only seem dead: nothing goes sooner than stock Kubernetes would take it.
    let in_storm = known
        .incident
        .as_ref()
        .is_some_and(|incident| incident.status.in_storm);
    let silent_for = now.since(node.life.known_since().unwrap_or(now));
    if in_storm && silent_for < scene.stock_grace {
        return;
    }
    let proof = StillDead {
        known_since: node.life.known_since(),
    };
    mark_unknown(scene, plan);
    let Some(taint) = node.taint(taints::UNREACHABLE, NO_EXECUTE) else {
        ledger.begin(&node.uid, scene.zone(), now);
        let taint = TaintRef::evicting();
        plan.actions.push(Action::Taint {
            node: scene.node_ref(),
            taint,
            proof: Some(proof),
        });
        return;
    };
    let tainted_at = tainted_at(known, taint, now);
    if !known.eviction_summed_up {
        ledger.begin(&node.uid, scene.zone(), tainted_at);
    }

    let mut pods: Vec<&PodFacts> = scene
        .cluster
        .pods_of(&node.name)
        .filter(|pod| !pod.finished)
        .collect();
    pods.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.pod.cmp(&b.pod)));
    let (policy, default) = (
        scene.judged.settings.evict_after_seconds,
        scene.default_toleration_seconds,
    );
    let mut left = 0_usize;
    let mut stay = 0_usize;
    for pod in pods {
        if matches!(pod.owner, Owner::DaemonSet | Owner::Static) || scene.cluster.is_stateful(pod) {
            stay += 1;
            continue;
        }
        if pod.terminating {
            continue;
        }
        // Under storm eviction keeps the stock pace (hazard 24), and never a faster one than without. So it
        // does where nobody replaces the pod: haste gains nothing then.
        let unhurried = in_storm || pod.owner == Owner::Nobody;
        let seconds = if unhurried { policy.max(default) } else { policy };
        let Some(deadline) = deadline(pod, (taint, tainted_at), default, seconds) else {
            stay += 1;
            continue;
        };
        left += 1;
        if deadline > now {
            continue;
        }
        known.evicting.insert(pod.pod.uid.clone());
        plan.actions.push(Action::Evict {
            pod: pod.pod.clone(),
            node: scene.node_ref(),
            proof,
            dead_since: scene.judged.decision.memory.since,
            message: format!(
                "Evenkeel: node {} is dead: {}",
                node.name, scene.judged.decision.reason
            ),
        });
    }
    if left == 0 {
        ledger.complete(&node.uid);
        if !std::mem::replace(&mut known.eviction_summed_up, true)
            && let Some(incident) = &mut known.incident
            && !(known.evicting.is_empty() && incident.has(events::EVICTED))
        {
            let evicted = known.evicting.len();
            let message = format!(
                "{evicted} pods evicted; {stay} stay: DaemonSet, static, stateful, or tolerating for ever"
            );
            incident.row(events::EVICTED, message, now);
        }
    }
}

/// From when the deadlines count: as recorded, else from now, when the taint is first seen on a node whose
/// death is confirmed. The time in the taint is another clock's, and a taint of the stock controller may be
/// older than any limit of the storm guard; what is due by it, the stock controller evicts itself.
fn tainted_at(known: &mut Known, taint: &Taint, now: Millis) -> Millis {
    let recorded = known
        .incident
        .as_ref()
        .and_then(|incident| incident.status.tainted_at.as_ref());
    // One that lies ahead would move on with each look.
    if let Some(recorded) = recorded.filter(|recorded| recorded.0 <= time(now).0) {
        return instant(recorded, now);
    }
    if let Some(incident) = &mut known.incident {
        incident.status.tainted_at = Some(time(now));
        let message = format!(
            "{}:{NO_EXECUTE} is on the node; eviction deadlines count from here",
            taint.key
        );
        incident.row(events::EVICTION_BEGAN, message, now);
    }
    now
}

/// When the pod has to go; `None`: it tolerates the taint for ever. What admission added, by the `default` of
/// the API server, counts as `seconds`.
pub(super) fn deadline(
    pod: &PodFacts,
    (taint, tainted_at): (&Taint, Millis),
    default: i64,
    seconds: i64,
) -> Option<Millis> {
    let stay = stay_with(&pod.tolerations, std::slice::from_ref(taint), |toleration| {
        if is_admission_default(toleration, taints::UNREACHABLE, default) {
            Some(seconds)
        } else {
            toleration.toleration_seconds
        }
    });
    match stay {
        Stay::NotTolerated => Some(tainted_at),
        Stay::Seconds(seconds) => {
            Some(tainted_at.plus(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000)))
        }
        Stay::Forever => None,
    }
}
