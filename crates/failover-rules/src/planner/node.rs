//! One node: what its state asks for.

use super::action::{About, Action, Measure, Notice, Plan};
use super::incident::{Incident, latch_record, time};
use super::scene::Scene;
use super::storm::Ledger;
use super::{Known, Planner};
use crate::world::facts::{Cluster, NodeFacts, PodFacts, Status, TaintRef};
use crate::world::{Config, Decisions, Judged};
use evenkeel_api::crd::DecisionRecord;
use evenkeel_api::names::{conditions, events, taints};
use evenkeel_api::policy::{EndpointsPolicy, IsolatedPolicy, ModePolicy};
use evenkeel_judge::explain::{changes, evidence_lines};
use evenkeel_judge::{NodeState, View};
use evenkeel_stock_rules::tolerations::NO_SCHEDULE;
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::Verdict;

/// The stock controller marks the node first and then its pods, one by one. A pod that it has not marked
/// after this long it never will.
const STOCK_MARKS_MS: u64 = 10_000;
/// In a Dark zone, endpoints stay until the slices were read, or for this long. Stock Kubernetes itself needs
/// 5 s to look.
const DARK_READS_MS: u64 = 10_000;

/// A pod that was seen ready for so long before the mark was ready then. A replica that starts sees both at
/// once, in any order: its first lists come within seconds of each other.
const READY_BEFORE_MS: u64 = 60_000;

impl Planner {
    pub(super) fn node(
        &mut self,
        cluster: &Cluster,
        node: &NodeFacts,
        judged: &Judged,
        decisions: &Decisions,
        now: Millis,
        plan: &mut Plan,
    ) {
        let decision = &judged.decision;
        let known = self.nodes.entry(node.uid.clone()).or_default();
        let before = known.state;
        known.latch = decision.memory.latch;
        known.held = decision.held;
        let quiet = decision.state() == NodeState::Healthy
            && before == NodeState::Healthy
            && known.incident.is_none()
            && node.added.is_empty()
            && node.mirrored != Some(false);
        // What was not seen well enough to act upon was not entered: it is once it is seen well.
        if quiet || decision.view == View::Lost || decision.held && decision.view == View::Full {
            return;
        }
        known.state = decision.state();
        let scene = Scene {
            cluster,
            node,
            judged,
            zone_size: decisions.zone_size.get(&judged.zone).copied().unwrap_or_default(),
            default_toleration_seconds: self.config.default_toleration_seconds,
            renews_within: self.config.timing.confirm_after,
            stock_grace: self.config.timing.stock_grace,
            decisions,
            stock_stood: self.turns.stood(node),
            now,
        };
        // A leader may find a node in a state that nobody has recorded yet.
        let unrecorded = known.incident.is_none() && decision.state() != NodeState::Healthy && !decision.held;
        if unrecorded || !before.same_row(decision.state()) {
            enter(known, &scene, before, plan);
        }
        record(known, &scene, &self.config);
        mirror(&scene, plan);
        act(known, &mut self.ledger, &scene, plan);
    }
}

/// What is told when a node enters a state.
fn enter(known: &mut Known, scene: &Scene<'_>, before: NodeState, plan: &mut Plan) {
    let now = scene.now;
    known.endpoints_out = false;
    known.isolation_reported = false;
    let after_death = known.was_dead && before == NodeState::Isolated;
    known.was_dead = matches!(before, NodeState::Dead(_)) || after_death;
    known.returning = known.was_dead && scene.state() == NodeState::Disconnected;
    known.eviction_summed_up = false;
    known.passed.clear();
    known.withdrawing.clear();
    known.withdrawn.clear();
    known.evicting.clear();
    let reason = scene.judged.decision.reason;
    match scene.state() {
        NodeState::Healthy => {
            if let Some(incident) = &mut known.incident {
                incident.enter(NodeState::Healthy, reason, events::RECOVERED, now);
                incident.close(now);
                let message = format!("node {} is back: {reason}", scene.node.name);
                plan.actions
                    .push(notice(scene, false, events::RECOVERED, message, incident));
            }
        }
        // Stock behaviour is recorded without an Event, because nobody has to act on it.
        NodeState::Unknown => open(known, scene).enter(NodeState::Unknown, reason, events::UNKNOWN, now),
        // Peers need a moment to vouch for a node that came back: see `isolated`.
        NodeState::Isolated => open(known, scene).enter(NodeState::Isolated, reason, events::ISOLATED, now),
        NodeState::Dead(_) => {
            if let Some(last) = scene.node.life.renewed {
                plan.measures.push(Measure::Detection(now.since(last)));
            }
            report(known, scene, events::DEAD, plan);
            // Of a former death in the same incident.
            if let Some(incident) = &mut known.incident {
                incident.status.tainted_at = None;
                incident.status.in_storm = false;
            }
        }
        // The agent of a machine that was switched on again is heard before its kubelet renews: see
        // `disconnected`.
        NodeState::Disconnected if known.returning => {
            open(known, scene).enter_untold(NodeState::Disconnected, now);
        }
        NodeState::Disconnected => report(known, scene, events::DISCONNECTED, plan),
        NodeState::KubeletDown => report(known, scene, events::KUBELET_DOWN, plan),
        NodeState::Dark => report(known, scene, events::DARK, plan),
    }
}

/// The incident, opened where there is none.
fn open<'a>(known: &'a mut Known, scene: &Scene<'_>) -> &'a mut Incident {
    known.incident.get_or_insert_with(|| {
        // What was told in a former incident is told in this one again.
        known.not_moved.clear();
        Incident::open(&scene.node_ref(), scene.zone(), scene.state(), scene.now)
    })
}

/// Opens or continues the incident, and tells people.
fn report(known: &mut Known, scene: &Scene<'_>, event: &str, plan: &mut Plan) {
    let (state, reason) = (scene.state(), scene.judged.decision.reason);
    let incident = open(known, scene);
    incident.enter(state, reason, event, scene.now);
    tell(incident, scene, event, plan);
}

fn tell(incident: &Incident, scene: &Scene<'_>, event: &str, plan: &mut Plan) {
    let (state, reason) = (scene.state(), scene.judged.decision.reason);
    let message = format!("node {} is {}: {reason}", scene.node.name, state.name());
    plan.actions.push(notice(scene, true, event, message, incident));
}

fn notice(scene: &Scene<'_>, warning: bool, reason: &str, message: String, incident: &Incident) -> Action {
    // A state that comes again in one incident is told again.
    let since = incident
        .status
        .state_since
        .as_ref()
        .map_or(0, |since| since.0.as_second());
    Action::Event(Notice {
        about: About::Node(scene.node_ref()),
        at: scene.now,
        warning,
        reason: reason.to_owned(),
        message,
        incident: format!("{} {since}", incident.name),
    })
}

/// Publishes the decision with its evidence, and the latch, for every node that is not Healthy.
fn record(known: &mut Known, scene: &Scene<'_>, config: &Config) {
    let judged = scene.judged;
    let decision = &judged.decision;
    // A state that is only held was recorded when it was decided.
    let Some(incident) = known.incident.as_mut().filter(|_| !decision.held) else {
        return;
    };
    let told = DecisionRecord {
        state: decision.state().label().to_owned(),
        reason: decision.reason.to_string(),
        evidence: evidence_lines(&judged.evidence, &config.timing, scene.now),
        changes: changes(decision, &judged.settings, &config.timing),
        decided_at: Some(time(scene.now)),
        by: config.identity.clone(),
        observed_only: judged.settings.mode == ModePolicy::Observe,
    };
    incident.decide(told, latch_record(&decision.memory));
    if let Some(says_not_ready) = scene.node.says_not_ready {
        incident.status.said_not_ready = says_not_ready;
    }
}

/// Mirrors the verdict for readers of SuperEdge's annotation; a node that was never in trouble carries none.
fn mirror(scene: &Scene<'_>, plan: &mut Plan) {
    if scene.judged.settings.mode == ModePolicy::Observe {
        return;
    }
    let state = scene.state();
    let healthy = match (scene.judged.evidence.verdict, state) {
        (Verdict::Alive(_), _) | (_, NodeState::Healthy) => true,
        (_, NodeState::Dead(_)) | (Verdict::Dead(_), _) => false,
        (Verdict::None(_) | Verdict::OneShort(_), _) => return,
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
    let state = scene.state();
    if !matches!(state, NodeState::Dead(_)) {
        // When the death's evictions began stays in the incident, open or closed: the next leader's storm
        // guard counts it in its window.
        ledger.complete(&scene.node.uid);
        if let Some(incident) = known.incident.as_mut().filter(|incident| !incident.is_closed()) {
            // The hint how to declare the machine off must not stand beside a node that lives.
            incident.status.fence.missing.clear();
        }
    }
    if state == NodeState::Disconnected {
        tell_return(known, scene, plan);
    }
    let observes = scene.judged.settings.mode == ModePolicy::Observe;
    let acted = known.incident.as_mut().is_some_and(|incident| {
        incident.status.acted |= !observes;
        incident.status.acted
    });
    if observes {
        // What was done before is settled: our taints are removed, and pods that we kept ready are marked as
        // stock Kubernetes would have marked them. Where nothing was done, nothing is touched.
        untaint(scene, scene.node.added.clone(), plan);
        if acted {
            settle(known, scene, &|_| false, plan);
        }
        return;
    }
    match state {
        NodeState::Dead(phase) => super::dead::act(known, ledger, scene, phase, plan),
        NodeState::Healthy => untaint(scene, scene.node.added.clone(), plan),
        NodeState::KubeletDown | NodeState::Unknown => {
            untaint(scene, scene.node.added.clone(), plan);
            settle(known, scene, &|_| false, plan);
        }
        NodeState::Disconnected => disconnected(known, scene, plan),
        NodeState::Dark => {
            let taints = if scene.judged.protection.evictions {
                with_no_execute(scene)
            } else {
                scene.node.added.clone()
            };
            untaint(scene, taints, plan);
            super::kept::evict(scene, plan);
            super::kept::withdraw_replicas(known, scene, plan);
            dark_endpoints(known, scene, plan);
        }
        NodeState::Isolated => isolated(known, scene, plan),
    }
}

/// Autonomy holds back evictions alone. Endpoints follow stock Kubernetes, because nobody vouches for pods of
/// a Dark zone. The last endpoints of a Service stay, unless the policy wants stock behaviour for all of them
/// (hazard 18).
fn dark_endpoints(known: &mut Known, scene: &Scene<'_>, plan: &mut Plan) {
    if !scene.judged.keeps_last() {
        return settle(known, scene, &|_| false, plan);
    }
    let is_last = |pod: &PodFacts| scene.last().has(&pod.pod);
    restore(scene, is_last, plan);
    // Who is given back what was taken, may have it taken again when it is not the last any more.
    for pod in scene.cluster.pods_of(&scene.node.name).filter(|pod| is_last(pod)) {
        known.withdrawn.remove(&pod.pod.uid);
    }
    tell_kept(known, scene);
    settle(
        known,
        scene,
        &|pod| scene.last().keeps(&pod.pod, scene.now, DARK_READS_MS) || scene.is_silent_replica(pod),
        plan,
    );
}

/// Records that endpoints of the node stay; once in an incident, however many come and go.
pub(super) fn tell_kept(known: &mut Known, scene: &Scene<'_>) {
    let mut pods = scene.cluster.pods_of(&scene.node.name);
    let kept = |pod: &&PodFacts| pod.ready == Status::True && scene.last().has(&pod.pod);
    let Some(pod) = pods.find(kept) else {
        return;
    };
    if let Some(incident) = known.incident.as_mut()
        && !incident.has(events::ENDPOINTS_KEPT)
    {
        let message = format!(
            "pod {} stays in endpoints, and others like it: no endpoint of a Service of theirs is ready elsewhere",
            pod.pod
        );
        incident.row(events::ENDPOINTS_KEPT, message, scene.now);
    }
}

/// What we added, and NoExecute unreachable whoever added it. It stays where the kubelet itself had said
/// Ready=False before the silence: there the stock controller puts it in the place of `not-ready`.
fn with_no_execute(scene: &Scene<'_>) -> Vec<TaintRef> {
    let unreachable = TaintRef::evicting();
    let mut list = scene.node.added.clone();
    let stands = scene.node.taint(&unreachable.key, &unreachable.effect).is_some();
    if stands && scene.node.says_not_ready != Some(true) && !list.contains(&unreachable) {
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

/// Marks pods that stock Kubernetes would have marked, if nobody had kept them ready (hazard 22). A pod that
/// is ready on a node with the stock controller's mark must be marked, whoever kept it ready. So no record of
/// pods is needed that could be lost; who only observes asks whether anything was done in the incident.
///
/// A pod whose readiness its kubelet wrote after the mark is left alone (hazard 56). While the Lease is
/// renewed, an older mark says nothing, because the kubelet is back. If the kubelet falls silent again and
/// the mark still stands, its pods must be marked after all, because stock Kubernetes marks pods only once.
///
/// Pods that are `kept` are not marked yet.
fn settle(known: &mut Known, scene: &Scene<'_>, kept: &dyn Fn(&PodFacts) -> bool, plan: &mut Plan) {
    if matches!(scene.state(), NodeState::Healthy | NodeState::Isolated) {
        return;
    }
    // Who stands down may not be here any more in ten seconds; a mark that the stock controller makes as well
    // is one mark. Where the mark on the node is ours, the stock controller has nothing to change there and
    // marks no pod. A gap in the evidence that lasts for less than ten seconds takes nothing either.
    let stands_down = scene.judged.settings.mode == ModePolicy::Observe;
    let marked = scene.node.life.stock_mark;
    let from = marked.max(Some(scene.judged.decision.memory.since));
    let is_over = from.is_some_and(|from| scene.now.since(from) >= STOCK_MARKS_MS);
    let is_owed = (marked.is_some() || scene.node.marked_by_us) && (stands_down || is_over);
    if is_owed && scene.judged.decision.may_harm() {
        withdraw(known, scene, ("", ""), kept, plan);
    }
}

/// Whether the kubelet made the pod ready after the stock controller's mark: under our eyes, or by the
/// object's times. A death says more than that mark, and is newer: of a dead node only what became ready
/// after the verdict is its kubelet's word, and no longer than it takes a kubelet that writes to renew its
/// Lease as well, by which the node is dead no more. A watch that is late shows what was written before.
///
/// The two times in the objects are of two clocks. They decide nothing about a pod that was seen ready, by
/// the same write, for long before the mark.
fn is_kubelets_word(scene: &Scene<'_>, pod: &PodFacts) -> bool {
    let node = scene.node;
    if pod.ready_reason == conditions::REASON_GIVEN_BACK {
        return false;
    }
    if matches!(scene.state(), NodeState::Dead(_)) {
        let verdict = scene.judged.decision.memory.since;
        let lately = |ready: Millis| ready > verdict && scene.now.since(ready) < scene.renews_within;
        return pod.became_ready.is_some_and(lately);
    }
    let mark = node.life.stock_mark;
    let seen = matches!((pod.became_ready, mark), (Some(ready), Some(mark)) if ready > mark);
    let was_ready =
        matches!((pod.ready_seen, mark), (Some(seen), Some(mark)) if mark.since(seen) >= READY_BEFORE_MS);
    let told = matches!((pod.ready_time, node.marked_time), (Some(ready), Some(mark)) if ready >= mark);
    seen || told && !was_ready
}

/// Marks the ready pods of the node not ready, again and again until each was seen so; after that a kubelet
/// that restores one is not fought. Returns how many are still to be seen not ready; those that are `kept`
/// are among them.
pub(super) fn withdraw(
    known: &mut Known,
    scene: &Scene<'_>,
    (reason, message): (&str, &str),
    kept: &dyn Fn(&PodFacts) -> bool,
    plan: &mut Plan,
) -> usize {
    let mut left = 0;
    for pod in scene
        .cluster
        .pods_of(&scene.node.name)
        .filter(|pod| !pod.finished)
    {
        let uid = &pod.pod.uid;
        if pod.ready != Status::True {
            if known.withdrawing.remove(uid) {
                known.withdrawn.insert(uid.clone());
            }
        } else if !known.withdrawn.contains(uid) && !is_kubelets_word(scene, pod) {
            left += 1;
            if kept(pod) {
                continue;
            }
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

/// Whether a mark of the stock controller is from before the node fell silent, for what its kubelet itself
/// said then. A replica that did not see that goes by when the controller marked the pod and the node.
fn was_marked_rightly(node: &NodeFacts, pod: &PodFacts) -> bool {
    node.says_not_ready.unwrap_or_else(|| {
        let times = pod.ready_time.zip(node.marked_time);
        times.is_some_and(|(pod, node)| pod < node)
    })
}

/// Gives pods back the readiness that was taken from them: a pure Ready=False on top of ready containers and
/// gates (hazard 22). Marks of ours are given back once the peers have vouched for the node for long enough,
/// because its kubelet cannot (hazard 37); that a pod was ready before is what such a mark says.
///
/// Where the kubelet itself said Ready=False before the silence, pods were marked for good reason.
///
/// Returns those that the stock controller had marked.
fn restore<'a>(
    scene: &Scene<'a>,
    is_meant: impl Fn(&PodFacts) -> bool,
    plan: &mut Plan,
) -> Vec<&'a PodFacts> {
    let ours = scene.judged.decision.gives_back(scene.now);
    let taken = |pod: &&PodFacts| {
        let reasons = [
            conditions::REASON_NODE_DEAD,
            events::ISOLATED,
            events::DISCONNECTED,
        ];
        let by_us = reasons.contains(&pod.ready_reason.as_str());
        let by_stock = pod.is_marked_by_stock() && !was_marked_rightly(scene.node, pod);
        (by_stock || by_us && ours && pod.is_marked()) && is_meant(pod)
    };
    let mut pods: Vec<&PodFacts> = scene.cluster.pods_of(&scene.node.name).filter(taken).collect();
    for pod in &pods {
        plan.actions.push(Action::RestorePodReady {
            pod: pod.pod.clone(),
            version: pod.version.clone(),
            message: format!(
                "node {} is {}: {}",
                scene.node.name,
                scene.state().name(),
                scene.judged.decision.reason
            ),
        });
    }
    pods.retain(|pod| pod.is_marked_by_stock());
    pods
}

/// Counts pods that the stock controller marked while the node was in its present state, each once, and shows
/// the number in the incident: while a single replica restarts, nobody corrects its writes. Marks of our own
/// that stand for the stock controller's are none of these.
fn count_passed(known: &mut Known, marked: &[&PodFacts], scene: &Scene<'_>, plan: &mut Plan) {
    // Objects hold whole seconds.
    let since = scene.judged.decision.memory.since.0 / 1000;
    let new: Vec<String> = marked
        .iter()
        .filter(|pod| {
            let seconds = pod
                .ready_time
                .and_then(|time| u64::try_from(time.as_second()).ok());
            seconds.is_some_and(|seconds| seconds >= since)
        })
        .map(|pod| pod.pod.uid.clone())
        .filter(|uid| !known.withdrawing.contains(uid) && !known.withdrawn.contains(uid))
        .filter(|uid| !known.passed.contains(uid))
        .collect();
    if new.is_empty() {
        return;
    }
    plan.measures.push(Measure::MarksPassed(new.len()));
    let first = known.passed.is_empty();
    known.passed.extend(new);
    if let Some(incident) = &mut known.incident {
        let message = format!(
            "{} pods had been marked not ready by stock Kubernetes while no webhook corrected it; they are given back",
            known.passed.len()
        );
        if first {
            incident.row(events::MARKS_UNDONE, message, scene.now);
        } else {
            incident.recount(events::MARKS_UNDONE, message, scene.now);
        }
    }
}

/// Tells that a node that was Dead is Disconnected, once that lasts: the agent of a machine that was switched
/// on again is heard before its kubelet renews.
fn tell_return(known: &mut Known, scene: &Scene<'_>, plan: &mut Plan) {
    let decision = &scene.judged.decision;
    let lasts = scene.lasts() || decision.gives_back(scene.now);
    if !known.returning || decision.held || !lasts {
        return;
    }
    known.returning = false;
    let incident = open(known, scene);
    incident.told(scene.state(), decision.reason, events::DISCONNECTED, scene.now);
    tell(incident, scene, events::DISCONNECTED, plan);
}

/// Evicts nobody, and keeps or gives back endpoints by policy.
///
/// After a death that waits until its peers have vouched for the node and its kubelet for long enough, or
/// until a kubelet that starts would have renewed and none is called broken: what Kubernetes knows of the
/// pods of a machine that was switched on again is from before, and most of them do not run yet.
fn disconnected(known: &mut Known, scene: &Scene<'_>, plan: &mut Plan) {
    untaint(scene, with_no_execute(scene), plan);
    let decision = &scene.judged.decision;
    let runs = decision.gives_back(scene.now) || scene.lasts() && decision.memory.broken_since.is_none();
    if known.was_dead && (decision.held || !runs) {
        return;
    }
    super::kept::evict(scene, plan);
    super::kept::withdraw_replicas(known, scene, plan);
    if scene.judged.settings.endpoints == EndpointsPolicy::Keep {
        let marked = restore(scene, |pod| !scene.is_silent_replica(pod), plan);
        count_passed(known, &marked, scene, plan);
    } else {
        settle(known, scene, &|pod| scene.is_silent_replica(pod), plan);
    }
}

/// Reports, and by policy takes the node's pods out of endpoints; never evicts.
fn isolated(known: &mut Known, scene: &Scene<'_>, plan: &mut Plan) {
    let no_new_pods = TaintRef::new(taints::ISOLATED, NO_SCHEDULE);
    let reports_only = scene.judged.settings.isolated == IsolatedPolicy::Report;
    let kept = |taint: &&TaintRef| **taint != no_new_pods || reports_only;
    untaint(
        scene,
        scene.node.added.iter().filter(kept).cloned().collect(),
        plan,
    );
    if !scene.lasts() {
        return;
    }
    if let Some(incident) = &known.incident
        && !std::mem::replace(&mut known.isolation_reported, true)
    {
        tell(incident, scene, events::ISOLATED, plan);
    }
    if reports_only || !scene.judged.decision.may_harm() || !scene.is_recorded(known) {
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
    withdraw(known, scene, (events::ISOLATED, &message), &|_| false, plan);
}
