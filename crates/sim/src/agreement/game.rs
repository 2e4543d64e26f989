//! A history as it is played: two Worlds, the leader's planner, and the comparison of what they protect.

use super::{Happening, History, LEADER};
use crate::api::build;
use crate::api::objects::{EPOCH, Notice, Object, cluster_key, micro, seen, set_node_condition, time};
use crate::api::{Store, Writer};
use crate::rng::Rng;
use crate::script::SECOND;
use evenkeel_api::crd::ZoneReportSpec;
use evenkeel_api::crd::{EndpointsPolicy, FailoverPolicy, FailoverPolicySpec};
use evenkeel_api::names::{CONTROLLER_LEASE, NAMESPACE, NODE_LEASE_NAMESPACE, conditions};
use evenkeel_api::watch::{Key, Progress};
use evenkeel_api::zone::SignedRound;
use evenkeel_failover_rules::planner::Planner;
use evenkeel_failover_rules::planner::action::Action;
use evenkeel_failover_rules::world::{Config, Kind, Role, Seen, World};
use evenkeel_judge::{Decision, NodeState, Protection, Reason, Timing};
use evenkeel_zone::Millis;
use evenkeel_zone::fixture::Fixture;
use evenkeel_zone::verdict::{Health, Link};
use evenkeel_zone::wire::{Challenge, Facts, Renewal};
use k8s_openapi::api::core::v1::NodeCondition;
use std::collections::BTreeMap;
use std::sync::Arc;

const LOOK: u64 = 500;
/// Watches of two replicas lie at most this far apart.
const APART: u64 = 5 * SECOND;
/// Looks and writes take time too.
const SLACK: u64 = 1_500;

struct Side {
    world: World,
    epoch: u64,
    not_before: BTreeMap<Kind, u64>,
    /// For how long each event of a watch takes at least, in this history.
    lag: BTreeMap<Kind, u64>,
    /// What the watches have shown.
    shown: BTreeMap<Kind, BTreeMap<Key, String>>,
}

impl Side {
    fn take(&mut self, now: Millis, seen: Seen) {
        let (kind, progress) = seen.parts();
        let shown = self.shown.entry(kind).or_default();
        match progress {
            Progress::Put(key, version) => {
                shown.insert(key, version.to_owned());
            }
            Progress::Gone(key) => {
                shown.remove(key);
            }
            Progress::Listed(keys) => shown.retain(|key, _| keys.contains(key)),
            Progress::Broken => {}
        }
        self.world.take(now, seen);
    }
}

pub(super) struct Game<'a> {
    history: &'a History,
    now: u64,
    rng: Rng,
    store: Store,
    zone: Fixture,
    sides: Vec<Side>,
    configs: [Config; 2],
    planner: Planner,
    queue: BTreeMap<(u64, u64), (usize, u64, Seen)>,
    sent: u64,
    silent: BTreeMap<usize, bool>,
    reports: BTreeMap<usize, SignedRound>,
    rounds: u8,
    /// By node: what the leader protects and in which state, and since when.
    held: BTreeMap<String, (Protection, NodeState, u64)>,
    last_event: u64,
    last_policy: u64,
    /// When each replica was restarted last.
    restarted: [Option<u64>; 2],
}

fn wall(now: u64) -> Millis {
    Millis(EPOCH + now)
}

impl<'a> Game<'a> {
    pub(super) fn new(history: &'a History, mut configs: [Config; 2]) -> Self {
        "replica-1".clone_into(&mut configs[1].identity);
        "replica-1".clone_into(&mut configs[1].life);
        let mut rng = Rng::new(history.seed).fork("delays");
        let zone = Fixture::stand_in(u8::try_from(history.nodes).unwrap_or(3));
        let mut store = Store::default();
        build::home(&mut store);
        for member in &zone.spec().members {
            build::node(&mut store, 0, "shore", member);
        }
        build::cell(&mut store, ("shore", 0), zone.spec().members, None);
        build::renew(&mut store, 0, Writer::Ours, NAMESPACE, CONTROLLER_LEASE, LEADER);
        let _ = store.news();
        let sides = configs
            .iter()
            .map(|config| Side {
                world: World::new(config.clone(), wall(0)).verifying_with(zone.verifier()),
                epoch: 0,
                not_before: BTreeMap::new(),
                shown: BTreeMap::new(),
                lag: Kind::ALL
                    .into_iter()
                    .map(|kind| (kind, rng.below(3 * SECOND)))
                    .collect(),
            })
            .collect();
        let mut game = Self {
            history,
            now: 0,
            rng,
            store,
            zone,
            sides,
            planner: Planner::new(configs[0].clone()),
            configs,
            queue: BTreeMap::new(),
            sent: 0,
            silent: BTreeMap::new(),
            reports: BTreeMap::new(),
            rounds: 0,
            held: BTreeMap::new(),
            last_event: 0,
            last_policy: 0,
            restarted: [None; 2],
        };
        game.draw(Vec::new());
        game.list(0);
        game.list(1);
        game
    }

    pub(super) fn play(mut self) -> Option<String> {
        let last = self.history.happenings.last().map_or(0, |(at, _)| *at);
        let mut next = 0;
        while self.now < last + 40 * SECOND {
            self.now += LOOK / 2;
            while let Some((at, what)) = self
                .history
                .happenings
                .get(next)
                .filter(|(at, _)| *at <= self.now)
            {
                self.last_event = *at;
                self.happens(&what.clone());
                next += 1;
            }
            self.routine();
            self.spread();
            self.deliver();
            if self.now.is_multiple_of(LOOK) {
                self.look();
                if let Some(text) = self.compare() {
                    return Some(text);
                }
            }
        }
        None
    }

    /// Kubelets and the leader renew their Leases.
    fn routine(&mut self) {
        if self.now.is_multiple_of(SECOND) {
            build::renew(
                &mut self.store,
                self.now,
                Writer::Ours,
                NAMESPACE,
                CONTROLLER_LEASE,
                LEADER,
            );
        }
        for node in 1..=self.history.nodes {
            let due = (self.now + node as u64 * 1_500).is_multiple_of(10 * SECOND);
            if due && !self.silent.get(&node).copied().unwrap_or_default() {
                self.renews(node);
            }
        }
    }

    fn renews(&mut self, node: usize) {
        let name = format!("node-{node}");
        let key = (NODE_LEASE_NAMESPACE.to_owned(), name);
        let at = self.now;
        let _ = self
            .store
            .change(at, Writer::Kubelet, Kind::NodeLease, &key, None, |object| {
                if let Object::Lease(lease) = object {
                    lease.spec.get_or_insert_default().renew_time = Some(micro(at));
                }
            });
    }

    fn happens(&mut self, what: &Happening) {
        let now = self.now;
        match what {
            Happening::Silent(node) => {
                self.silent.insert(*node, true);
            }
            Happening::Speaks(node) => self.speaks(*node),
            Happening::SiteSilent => {
                self.silent = (1..=self.history.nodes).map(|node| (node, true)).collect();
            }
            Happening::SiteSpeaks => (1..=self.history.nodes).for_each(|node| self.speaks(node)),
            Happening::Marked(node) => {
                if self.silent.get(node).copied().unwrap_or_default() {
                    self.ready(*node, "Unknown", conditions::REASON_STOCK_UNKNOWN, false);
                }
            }
            Happening::Alive(node, well) => {
                let kubelet = if *well { Health::Ok } else { Health::Failing };
                let facts = Facts {
                    kubelet,
                    cloud: Link::Down,
                    ..Facts::default()
                };
                let voters = self.voters(*node, true);
                self.rounds = self.rounds.wrapping_add(1);
                let verdict = self.zone.alive(*node, &voters, self.rounds, facts);
                self.report(*node, verdict);
            }
            Happening::Dead(node) => {
                let voters = self.voters(*node, false);
                self.rounds = self.rounds.wrapping_add(1);
                self.zone.renewal = self.renewal_of(*node);
                let verdict = self.zone.dead(*node, &voters, self.rounds);
                self.report(*node, verdict);
            }
            Happening::AgentWrites(node) => {
                let key = cluster_key(&format!("node-{node}"));
                let _ = self
                    .store
                    .change(now, Writer::Agent, Kind::Agent, &key, None, |object| {
                        if let Object::Agent(agent) = object {
                            agent.spec.link_proofs += 1;
                        }
                    });
            }
            Happening::Policy(autonomy) => {
                self.last_policy = now;
                self.policy(*autonomy);
            }
            Happening::Restart(side) => self.restart(*side),
        }
    }

    /// The last renewal of a node's Lease, as a reporter reads it.
    fn renewal_of(&self, node: usize) -> Option<Renewal> {
        let key = (NODE_LEASE_NAMESPACE.to_owned(), format!("node-{node}"));
        let lease = self.store.get(Kind::NodeLease, &key)?;
        let version = lease.meta().resource_version.as_ref()?;
        version.parse().ok().map(Renewal)
    }

    /// What ballots have to sign from now on, drawn by the leader.
    fn draw(&mut self, wanted: Vec<String>) {
        let drawn = build::drawn(&mut self.rng, self.now, LEADER);
        self.zone.challenge = Challenge::from_base64(&drawn.value).unwrap_or_default();
        let _ = build::challenge(&mut self.store, self.now, ("shore", 0), Some(drawn), wanted);
    }

    fn speaks(&mut self, node: usize) {
        self.silent.insert(node, false);
        self.renews(node);
        self.ready(node, "True", "KubeletReady", true);
    }

    fn voters(&self, node: usize, with: bool) -> Vec<usize> {
        let majority = self.history.nodes / 2 + 1;
        let others = (1..=self.history.nodes).filter(|voter| *voter != node);
        let own = with.then_some(node);
        own.into_iter().chain(others).take(majority).collect()
    }

    fn report(&mut self, node: usize, round: SignedRound) {
        self.reports.insert(node, round);
        let spec = ZoneReportSpec {
            zone: "shore".to_owned(),
            cell: 0,
            reporter: "node-1".to_owned(),
            report: self.zone.report(self.reports.values().cloned().collect()),
        };
        build::report(&mut self.store, self.now, spec);
    }

    fn ready(&mut self, node: usize, status: &str, reason: &str, heartbeat: bool) {
        let at = self.now;
        let condition = NodeCondition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            last_heartbeat_time: heartbeat.then(|| time(at)),
            last_transition_time: Some(time(at)),
            ..NodeCondition::default()
        };
        let key = cluster_key(&format!("node-{node}"));
        let _ = self
            .store
            .change(at, Writer::Stock, Kind::Node, &key, None, |object| {
                if let Object::Node(node) = object {
                    set_node_condition(node, condition);
                }
            });
    }

    fn policy(&mut self, autonomy: Option<i64>) {
        let key = cluster_key("all");
        let Some(seconds) = autonomy else {
            return self.store.remove(self.now, Writer::Stock, Kind::Policy, &key);
        };
        let spec = FailoverPolicySpec {
            autonomy_seconds: Some(seconds),
            endpoints: (seconds == 0).then_some(EndpointsPolicy::Stock),
            ..FailoverPolicySpec::default()
        };
        let policy = FailoverPolicy::new("all", spec.clone());
        let written = self
            .store
            .change(self.now, Writer::Stock, Kind::Policy, &key, None, |object| {
                if let Object::Policy(policy) = object {
                    policy.spec = spec;
                }
            });
        if written.is_err() {
            let _ = self
                .store
                .create(self.now, Writer::Stock, Object::Policy(Box::new(policy)));
        }
    }

    fn restart(&mut self, side: usize) {
        let verifier = self.zone.verifier();
        let now = self.now;
        if let Some(at) = self.restarted.get_mut(side) {
            *at = Some(now);
        }
        if side == 0 {
            self.planner = Planner::new(self.configs[0].clone());
            self.held.clear();
        }
        if let Some((known, config)) = self.sides.get_mut(side).zip(self.configs.get(side)) {
            known.world = World::new(config.clone(), wall(now)).verifying_with(Arc::clone(&verifier));
            known.epoch += 1;
            known.not_before.clear();
            known.shown.clear();
        }
        self.list(side);
    }

    /// Complete lists of all kinds, each when it comes.
    fn list(&mut self, side: usize) {
        for kind in Kind::ALL {
            self.list_kind(side, kind);
        }
    }

    fn list_kind(&mut self, side: usize, kind: Kind) {
        let delay = self.rng.below(2 * SECOND);
        let list: Vec<_> = self
            .store
            .list(kind)
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let keys = list.iter().map(|(key, _)| key.clone()).collect();
        for (_, object) in list {
            self.send(side, kind, delay, object.seen());
        }
        self.send(side, kind, delay, seen(kind, Notice::Listed(keys)));
    }

    fn send(&mut self, side: usize, kind: Kind, delay: u64, seen: Seen) {
        let Some(known) = self.sides.get_mut(side) else {
            return;
        };
        let not_before = known.not_before.entry(kind).or_default();
        let at = (self.now + delay).max(*not_before);
        *not_before = at;
        self.sent += 1;
        self.queue.insert((at, self.sent), (side, known.epoch, seen));
    }

    /// Everything new is on its way to both sides, at their own pace.
    fn spread(&mut self) {
        for change in self.store.news() {
            for side in 0..self.sides.len() {
                let lag = self
                    .sides
                    .get(side)
                    .and_then(|known| known.lag.get(&change.kind))
                    .copied()
                    .unwrap_or_default();
                let delay = lag.min(APART - SECOND) + self.rng.below(SECOND);
                let seen = match &change.object {
                    Some(object) => object.seen(),
                    None => seen(change.kind, Notice::Gone(change.key.clone())),
                };
                self.send(side, change.kind, delay, seen);
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (side, epoch, seen) = entry.remove();
            if let Some(known) = self.sides.get_mut(side).filter(|known| known.epoch == epoch) {
                known.take(wall(self.now), seen);
            }
        }
    }

    fn look(&mut self) {
        for side in 0..self.sides.len() {
            let role = if side == 0 { Role::Leads } else { Role::Follows };
            let Some(known) = self.sides.get_mut(side) else {
                continue;
            };
            let wants = known.world.look(wall(self.now), role);
            for kind in wants.audits {
                // A watch that is late by more than a second would be begun anew; what is tried here is that
                // it is late.
                let found = known.shown.get(&kind).cloned().unwrap_or_default();
                known.world.audited(wall(self.now), kind, Some(&found));
            }
            for kind in wants.restart {
                self.list_kind(side, kind);
            }
        }
        let Some(leader) = self
            .sides
            .first()
            .filter(|leader| leader.world.missing().is_empty())
        else {
            return;
        };
        let plan = self
            .planner
            .tick(leader.world.cluster(), leader.world.decisions(), wall(self.now));
        for (name, judged) in &leader.world.decisions().nodes {
            let present = (judged.protection, judged.decision.state());
            let held = self
                .held
                .entry(name.clone())
                .or_insert((present.0, present.1, self.now));
            if (held.0, held.1) != present {
                *held = (present.0, present.1, self.now);
            }
        }
        for action in &plan.actions {
            match action {
                Action::Challenge {
                    draw: true, wanted, ..
                } => self.draw(wanted.clone()),
                Action::Challenge { wanted, .. } => {
                    let wanted = wanted.clone();
                    let _ = build::challenge(&mut self.store, self.now, ("shore", 0), None, wanted);
                }
                _ => {}
            }
        }
        let incidents: Vec<_> = plan
            .actions
            .into_iter()
            .filter_map(|action| match action {
                Action::SaveIncident(incident) => Some(incident),
                _ => None,
            })
            .collect();
        for incident in incidents {
            let key = cluster_key(&incident.name);
            let mut object = evenkeel_api::crd::NodeIncident::new(&incident.name, incident.spec.clone());
            object.status = Some(incident.status.clone());
            let written = self
                .store
                .change(self.now, Writer::Ours, Kind::Incident, &key, None, |known| {
                    if let Object::Incident(known) = known {
                        known.status = Some(incident.status.clone());
                    }
                });
            if written.is_err() {
                let _ = self
                    .store
                    .create(self.now, Writer::Ours, Object::Incident(Box::new(object)));
            }
        }
    }

    /// Whether a replica was restarted so lately that it cannot say whether a node is silent, and nothing
    /// that is recorded says it: a Lease is stale after so long under its own eyes.
    fn cannot_say_yet(&self, side: usize, decision: &Decision) -> bool {
        let unproven = decision.state() == NodeState::Unknown || decision.reason == Reason::LeaseNotProven;
        unproven && self.watches_anew(side)
    }

    /// Whether one replica decides by a renewal that it saw, while the other was restarted since and has not
    /// seen it.
    fn missed_a_renewal(&self, side: usize, name: &str, other: &Decision) -> bool {
        let known = self.sides.get(side);
        let node = known.and_then(|known| known.world.cluster().nodes.get(name));
        let saw_none = node.is_some_and(|node| node.life.renewed.is_none());
        saw_none && other.reason == Reason::Renewing && self.watches_anew(side)
    }

    fn watches_anew(&self, side: usize) -> bool {
        let timing = Timing::default().following();
        let restarted = self.restarted.get(side).copied().flatten();
        let told = restarted.map(|at| at + timing.stale_after + timing.patience + APART + SLACK);
        told.is_some_and(|told| self.now < told)
    }

    fn compare(&self) -> Option<String> {
        let (leader, follower) = (self.sides.first()?, self.sides.get(1)?);
        if !leader.world.missing().is_empty() || !follower.world.missing().is_empty() {
            return None;
        }
        for (name, judged) in &leader.world.decisions().nodes {
            let other = follower.world.decisions().nodes.get(name)?;
            let (held, _, since) = self.held.get(name)?;
            let long = self.now - since;
            let text = |what: &str| {
                Some(format!(
                    "at {:.1} s, {name}: {what}: the leader protects {:?} for {:.1} s ({}: {}), the follower {:?}, against a stock write {:?} ({}: {})",
                    self.now as f64 / 1000.0,
                    held,
                    long as f64 / 1000.0,
                    judged.decision.state(),
                    judged.decision.reason,
                    other.protection,
                    other.if_stale,
                    other.decision.state(),
                    other.decision.reason
                ))
            };
            let lets_pass =
                held.evictions && !other.if_stale.evictions || held.readiness && !other.if_stale.readiness;
            // A policy that was changed ends what it protected, for each replica when it sees it.
            let same_policy = self.now >= self.last_policy + APART + SLACK;
            if long >= APART + SLACK && lets_pass && same_policy {
                return text("the follower lets pass what is protected");
            }
            let quiet = self.now >= self.last_event + 2 * APART + SLACK && long >= APART + SLACK;
            let unsaid = self.cannot_say_yet(0, &judged.decision)
                || self.cannot_say_yet(1, &other.decision)
                || self.missed_a_renewal(0, name, &other.decision)
                || self.missed_a_renewal(1, name, &judged.decision);
            if quiet && !unsaid && judged.protection != other.protection {
                return text("they disagree in quiet");
            }
        }
        None
    }
}
