//! One node: what its state asks for.

use super::super::action::{About, Action, Measure, NodeRef, Notice, Plan};
use super::super::evidence::{Evidence, Reporting, ZoneEvidence};
use super::super::facts::{NodeFacts, PodFacts, Status, TaintRef, World};
use super::super::incident::Incident;
use super::super::policy::{Policy, Settings, effective};
use super::super::state::{NodeState, decide};
use super::super::storm::Ledger;
use super::super::tolerations::{NO_EXECUTE, NO_SCHEDULE};
use super::{Known, Planner, Zones};
use evenkeel_api::crd::{EndpointsPolicy, IsolatedPolicy};
use evenkeel_api::names::{events, taints};
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::Verdict;

/// The stock controller marks the pods of a node after it marked the node, one by one; what it has not marked after
/// this long it never will.
const STOCK_MARKS_MS: u64 = 10_000;

/// What a step for one node needs to see.
pub(super) struct Scene<'a> {
    pub(super) world: &'a World,
    pub(super) node: &'a NodeFacts,
    pub(super) zone: &'a str,
    pub(super) zone_size: usize,
    pub(super) storm: bool,
    pub(super) settings: Settings,
    pub(super) default_toleration_seconds: i64,
    pub(super) isolated_grace: u64,
    pub(super) now: Millis,
}

impl Scene<'_> {
    pub(super) fn node_ref(&self) -> NodeRef {
        NodeRef {
            name: self.node.name.clone(),
            uid: self.node.uid.clone(),
        }
    }
}

impl Planner {
    #[allow(
        clippy::too_many_arguments,
        reason = "one call site; the arguments are the world in parts"
    )]
    pub(super) fn node(
        &mut self,
        world: &World,
        zones: &Zones<'_>,
        policies: &[Policy],
        node: &NodeFacts,
        verdict: Verdict,
        now: Millis,
        plan: &mut Plan,
    ) {
        let zone = zones.zone(node);
        let facts = world.zones.get(zone);
        let evidence = Evidence {
            life: node.life,
            watch: world.watch,
            verdict,
            zone: ZoneEvidence {
                reporting: facts.map_or(Reporting::Never, |facts| facts.reporting),
                some_member_fresh: zones.some_fresh.contains(zone),
            },
            // The book of verdicts tells majorities only, so a zone of two gets no verdict and is stock.
            one_short: None,
            agent_write: node.agent_write,
        };
        let known = self.nodes.entry(node.uid.clone()).or_default();
        let before = known.memory.state;
        let decision = decide(&evidence, &known.memory, &self.config.timing, now);
        known.memory = decision.memory;
        known.reason = decision.reason;
        known.held = decision.held;
        match node.ready {
            Status::True => known.says_not_ready = false,
            Status::False => known.says_not_ready = true,
            Status::Unknown | Status::Missing => {}
        }
        let quiet = decision.memory.state == NodeState::Healthy
            && before == NodeState::Healthy
            && known.incident.is_none()
            && node.added.is_empty()
            && node.mirrored != Some(false);
        if decision.held || quiet {
            return;
        }
        let scene = Scene {
            world,
            node,
            zone,
            zone_size: zones.size(zone),
            storm: facts.is_some_and(|facts| facts.storm),
            settings: effective(policies, &node.labels, self.config.profile).0,
            default_toleration_seconds: self.config.default_toleration_seconds,
            isolated_grace: self.config.timing.isolated_grace,
            now,
        };
        if !before.same_row(decision.memory.state) {
            enter(known, &scene, plan);
        }
        mirror(&scene, verdict, decision.memory.state, plan);
        act(known, &mut self.ledger, &scene, plan);
    }
}

/// What is told when a node enters a state.
fn enter(known: &mut Known, scene: &Scene<'_>, plan: &mut Plan) {
    let now = scene.now;
    known.endpoints_out = false;
    known.isolation_reported = false;
    known.eviction_summed_up = false;
    known.withdrawing.clear();
    known.withdrawn.clear();
    known.evicting.clear();
    match known.memory.state {
        NodeState::Healthy => {
            if let Some(incident) = &mut known.incident {
                incident.enter(NodeState::Healthy, known.reason, events::RECOVERED, now);
                incident.close(now);
                let message = format!("node {} is back: {}", scene.node.name, known.reason);
                plan.actions
                    .push(notice(scene, false, events::RECOVERED, message, &incident.name));
            }
        }
        NodeState::Unknown => {
            // Stock behaviour needs no record of ours, unless it comes in the middle of one.
            if let Some(incident) = &mut known.incident {
                incident.enter(NodeState::Unknown, known.reason, events::UNKNOWN, now);
            }
        }
        // Peers need a moment to acquit a node that came back: see `isolated`.
        NodeState::Isolated => {}
        NodeState::Dead(_) => {
            if let Some(last) = scene.node.life.renewed {
                plan.measures.push(Measure::Detection(now.since(last)));
            }
            report(known, scene, events::DEAD, plan);
        }
        NodeState::Disconnected => report(known, scene, events::DISCONNECTED, plan),
        NodeState::KubeletDown => report(known, scene, events::KUBELET_DOWN, plan),
        NodeState::Dark => report(known, scene, events::DARK, plan),
    }
}

/// Opens or continues the incident, and tells people.
fn report(known: &mut Known, scene: &Scene<'_>, event: &str, plan: &mut Plan) {
    let state = known.memory.state;
    let incident = known
        .incident
        .get_or_insert_with(|| Incident::open(&scene.node_ref(), scene.zone, state, scene.now));
    incident.enter(state, known.reason, event, scene.now);
    let message = format!("node {} is {}: {}", scene.node.name, state.name(), known.reason);
    plan.actions
        .push(notice(scene, true, event, message, &incident.name));
}

fn notice(scene: &Scene<'_>, warning: bool, reason: &str, message: String, incident: &str) -> Action {
    Action::Event(Notice {
        about: About::Node(scene.node_ref()),
        warning,
        reason: reason.to_owned(),
        message,
        incident: incident.to_owned(),
    })
}

/// Mirrors the verdict for readers of SuperEdge's annotation; a node that was never in trouble carries none.
fn mirror(scene: &Scene<'_>, verdict: Verdict, state: NodeState, plan: &mut Plan) {
    let healthy = match (verdict, state) {
        (Verdict::Alive { .. }, _) | (_, NodeState::Healthy) => true,
        (_, NodeState::Dead(_)) | (Verdict::Dead { .. }, _) => false,
        (Verdict::None(_), _) => return,
    };
    let wanted = match scene.node.mirrored {
        None => !healthy || state != NodeState::Healthy,
        Some(mirrored) => mirrored != healthy,
    };
    if wanted {
        plan.actions.push(Action::MirrorVerdict {
            node: scene.node_ref(),
            healthy,
        });
    }
}

/// What the state asks for, as long as it lasts.
fn act(known: &mut Known, ledger: &mut Ledger, scene: &Scene<'_>, plan: &mut Plan) {
    if !matches!(known.memory.state, NodeState::Dead(_)) {
        ledger.complete(&scene.node.uid);
        // A closed incident keeps it: it counts in the storm guard's window after a restart.
        if let Some(incident) = known.incident.as_mut().filter(|incident| !incident.is_closed()) {
            incident.status.tainted_at = None;
        }
    }
    match known.memory.state {
        NodeState::Dead(phase) => super::dead::act(known, ledger, scene, phase, plan),
        NodeState::Healthy => untaint(scene, scene.node.added.clone(), plan),
        NodeState::KubeletDown | NodeState::Unknown => {
            untaint(scene, scene.node.added.clone(), plan);
            settle(known, scene, plan);
        }
        NodeState::Disconnected => {
            untaint(scene, with_no_execute(scene), plan);
            if scene.settings.endpoints == EndpointsPolicy::Stock {
                settle(known, scene, plan);
            } else {
                restore(known, scene, plan);
            }
        }
        NodeState::Dark => {
            let autonomy = u64::try_from(scene.settings.autonomy_seconds)
                .unwrap_or(0)
                .saturating_mul(1000);
            let held = scene.now.since(known.memory.since) < autonomy;
            let taints = if held {
                with_no_execute(scene)
            } else {
                scene.node.added.clone()
            };
            untaint(scene, taints, plan);
            // Autonomy holds evictions alone; nobody vouches for what endpoints would promise (hazard 18).
            settle(known, scene, plan);
        }
        NodeState::Isolated => isolated(known, scene, plan),
    }
}

/// What we added, and NoExecute unreachable whoever added it.
fn with_no_execute(scene: &Scene<'_>) -> Vec<TaintRef> {
    let unreachable = TaintRef::new(taints::UNREACHABLE, NO_EXECUTE);
    let mut list = scene.node.added.clone();
    if scene.node.taint(&unreachable.key, &unreachable.effect).is_some() && !list.contains(&unreachable) {
        list.push(unreachable);
    }
    list
}

fn untaint(scene: &Scene<'_>, taints: Vec<TaintRef>, plan: &mut Plan) {
    if !taints.is_empty() {
        plan.actions.push(Action::Untaint {
            node: scene.node_ref(),
            taints,
        });
    }
}

/// Marks pods that stock Kubernetes would have marked, had nobody kept them ready (hazard 22). A pod that is ready on
/// a node with the stock controller's mark is owed, whoever kept it so; no record is needed, and none can be lost.
fn settle(known: &mut Known, scene: &Scene<'_>, plan: &mut Plan) {
    let marked = scene
        .node
        .life
        .stock_mark
        .is_some_and(|mark| scene.now.since(mark) >= STOCK_MARKS_MS);
    if marked {
        withdraw(known, scene, "", "", plan);
    }
}

/// Marks the ready pods of the node not ready, again and again until each was seen so; after that a kubelet that
/// restores one is not fought. Returns how many are still to be seen not ready.
pub(super) fn withdraw(
    known: &mut Known,
    scene: &Scene<'_>,
    reason: &str,
    message: &str,
    plan: &mut Plan,
) -> usize {
    let mut left = 0;
    for pod in scene.world.pods_of(&scene.node.name).filter(|pod| !pod.finished) {
        let uid = &pod.pod.uid;
        if pod.ready != Status::True {
            if known.withdrawing.remove(uid) {
                known.withdrawn.insert(uid.clone());
            }
        } else if !known.withdrawn.contains(uid) {
            left += 1;
            known.withdrawing.insert(uid.clone());
            plan.actions.push(Action::MarkPodNotReady {
                pod: pod.pod.clone(),
                version: pod.version.clone(),
                reason: reason.to_owned(),
                message: message.to_owned(),
            });
        }
    }
    left
}

/// Gives pods back the readiness that the stock controller took: a pure Ready=False on top of ready containers and
/// gates (hazard 22). The stock controller gives no reason; who gives one, as we do ourselves, has one.
///
/// Where the kubelet itself said Ready=False before the silence, they were marked for good reason.
fn restore(known: &Known, scene: &Scene<'_>, plan: &mut Plan) {
    if known.says_not_ready {
        return;
    }
    let taken = |pod: &&PodFacts| {
        pod.ready == Status::False
            && pod.ready_by_itself
            && pod.ready_reason.is_empty()
            && !pod.finished
            && !pod.terminating
    };
    for pod in scene.world.pods_of(&scene.node.name).filter(taken) {
        plan.actions.push(Action::RestorePodReady {
            pod: pod.pod.clone(),
            version: pod.version.clone(),
        });
    }
}

/// Reports, and by policy takes the node's pods out of endpoints; never evicts.
fn isolated(known: &mut Known, scene: &Scene<'_>, plan: &mut Plan) {
    let no_new_pods = TaintRef::new(taints::ISOLATED, NO_SCHEDULE);
    let kept =
        |taint: &&TaintRef| **taint != no_new_pods || scene.settings.isolated == IsolatedPolicy::Report;
    untaint(
        scene,
        scene.node.added.iter().filter(kept).cloned().collect(),
        plan,
    );
    if scene.now.since(known.memory.since) < scene.isolated_grace {
        return;
    }
    if !std::mem::replace(&mut known.isolation_reported, true) {
        report(known, scene, events::ISOLATED, plan);
    }
    if scene.settings.isolated == IsolatedPolicy::Report {
        return;
    }
    if scene.node.taint(&no_new_pods.key, &no_new_pods.effect).is_none() {
        plan.actions.push(Action::Taint {
            node: scene.node_ref(),
            taint: no_new_pods,
            proof: None,
        });
    }
    let message = format!("the peers of node {} cannot reach it", scene.node.name);
    withdraw(known, scene, events::ISOLATED, &message, plan);
}
