//! The planner on a stage: a world in memory that does what the planner asks for.

mod dead;
mod disconnected;
mod rest;

use super::super::action::{About, Action, NodeRef, Plan};
use super::super::evidence::{Reporting, Timing};
use super::super::facts::{
    IncidentFacts, NodeFacts, Owner, PodFacts, PodRef, PolicyFacts, Status, TaintRef, World, ZoneFacts,
};
use super::super::incident::time;
use super::super::policy::{Policy, Profile};
use super::super::roster::member;
use super::super::state::{Dead, NodeState};
use super::super::tolerations::NO_EXECUTE;
use super::{Config, Planner};
use evenkeel_api::crd::{AgentStatusSpec, FailoverPolicySpec};
use evenkeel_api::names::taints::UNREACHABLE;
use evenkeel_api::zone::RosterSpec;
use evenkeel_zone::Millis;
use evenkeel_zone::verdict::{Health, Link, NoVerdict, Verdict};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use std::collections::BTreeMap;

const START: u64 = 1_700_000_000_000;

pub(super) struct Stage {
    pub(super) world: World,
    pub(super) planner: Planner,
    pub(super) verdicts: BTreeMap<String, Verdict>,
    pub(super) config: Config,
    /// Every action that was asked for, in order.
    pub(super) log: Vec<Action>,
    now: u64,
}

impl Stage {
    /// Nodes n1.. of one zone whose Leases were all seen renewed at second 0.
    pub(super) fn with_nodes(count: usize) -> Self {
        let config = Config {
            timing: Timing::default(),
            profile: Profile::Builtin,
            default_zone: Some("default".to_owned()),
            default_toleration_seconds: 300,
        };
        let mut stage = Self {
            world: World::default(),
            planner: Planner::new(config.clone()),
            verdicts: BTreeMap::new(),
            config,
            log: Vec::new(),
            now: 0,
        };
        let mut members = Vec::new();
        for number in 1..=count {
            let name = format!("n{number}");
            let mut node = NodeFacts {
                name: name.clone(),
                uid: format!("u-{name}"),
                ..Default::default()
            };
            node.ready = Status::True;
            node.life.first_seen = Some(at(0));
            let agent = agent(&node.uid);
            members.push(member(&name, &node.uid, &agent).expect("a sound agent"));
            stage.world.agents.insert(name.clone(), agent);
            stage.world.nodes.insert(name.clone(), node);
            stage.renew(&name);
        }
        let roster = RosterSpec { version: 1, members };
        let zone = ZoneFacts {
            roster,
            reporting: Reporting::Talking,
            storm: false,
        };
        stage.world.zones.insert("default".to_owned(), zone);
        stage
    }

    pub(super) fn profile(mut self, profile: Profile) -> Self {
        self.config.profile = profile;
        self.planner = Planner::new(self.config.clone());
        self
    }

    pub(super) fn policy(mut self, change: impl FnOnce(&mut FailoverPolicySpec)) -> Self {
        let mut policy = Policy {
            name: "p".to_owned(),
            generation: 1,
            ..Default::default()
        };
        change(&mut policy.spec);
        self.world.policies.insert(
            "p".to_owned(),
            PolicyFacts {
                policy,
                ..Default::default()
            },
        );
        self
    }

    pub(super) fn node(&mut self, name: &str) -> &mut NodeFacts {
        self.world.nodes.get_mut(name).expect("the stage has it")
    }

    pub(super) fn renew(&mut self, name: &str) {
        let now = at(self.now);
        self.node(name).life.renewed = Some(now);
    }

    pub(super) fn renew_all_but(&mut self, silent: &[&str]) {
        let names: Vec<String> = self.world.nodes.keys().cloned().collect();
        for name in names.iter().filter(|name| !silent.contains(&name.as_str())) {
            self.renew(name);
        }
    }

    /// A ready pod with what admission adds to it.
    pub(super) fn pod(&mut self, node: &str, name: &str) -> &mut PodFacts {
        let pod = PodFacts {
            pod: PodRef {
                namespace: "ns".to_owned(),
                name: name.to_owned(),
                uid: format!("u-{name}"),
            },
            ready: Status::True,
            ready_by_itself: true,
            tolerations: vec![tolerate(Some(300))],
            ..Default::default()
        };
        let pods = self.world.pods.entry(node.to_owned()).or_default();
        pods.insert(pod.pod.uid.clone(), pod);
        pods.get_mut(&format!("u-{name}")).expect("just inserted")
    }

    pub(super) fn pod_now(&self, name: &str) -> &PodFacts {
        let uid = format!("u-{name}");
        self.world
            .pods
            .values()
            .find_map(|pods| pods.get(&uid))
            .expect("the stage has it")
    }

    pub(super) fn says(&mut self, node: &str, verdict: Verdict) {
        self.verdicts.insert(format!("u-{node}"), verdict);
    }

    pub(super) fn convict(&mut self, node: &str) {
        let round_began = at(self.now);
        self.says(node, Verdict::Dead { round_began });
    }

    /// Moves to a second; the watch is live, and those who live renew.
    pub(super) fn go(&mut self, second: u64, silent: &[&str]) -> Plan {
        assert!(second >= self.now, "time runs forwards");
        while self.now < second {
            self.now += 1;
            self.world.watch.progress(at(self.now));
        }
        self.renew_all_but(silent);
        self.world.watch.progress(at(self.now));
        self.look()
    }

    /// One look of the planner; what it asks for is done.
    pub(super) fn look(&mut self) -> Plan {
        let verdicts = self.verdicts.clone();
        let verdict = |uid: &str| {
            verdicts
                .get(uid)
                .copied()
                .unwrap_or(Verdict::None(NoVerdict::NotListed))
        };
        let plan = self.planner.tick(&self.world, &verdict, at(self.now));
        for action in &plan.actions {
            self.perform(action);
        }
        self.log.extend(plan.actions.clone());
        plan
    }

    /// Looks until nothing changes any more at this second.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            if self.look().actions.is_empty() {
                return;
            }
        }
        panic!(
            "the planner wants the same again and again: {:?}",
            self.look().actions
        );
    }

    pub(super) fn restart(&mut self) {
        self.planner = Planner::new(self.config.clone());
        for node in self.world.nodes.values_mut() {
            node.life.first_seen = Some(at(self.now));
            node.life.renewed = None;
            node.life.stock_mark = node.life.stock_mark.map(|_| at(self.now));
        }
        self.world.watch.broken();
        self.world.watch.progress(at(self.now));
    }

    pub(super) fn state(&self, node: &str) -> NodeState {
        self.planner
            .state(&format!("u-{node}"))
            .expect("it was looked at")
            .state
    }

    pub(super) fn timeline(&self, node: &str) -> Vec<String> {
        let incidents = self
            .world
            .incidents
            .values()
            .filter(|facts| facts.spec.node_name == node);
        incidents
            .flat_map(|facts| facts.status.timeline.iter().map(|row| row.event.clone()))
            .collect()
    }

    pub(super) fn incident(&self, node: &str) -> &IncidentFacts {
        self.world
            .incidents
            .values()
            .find(|facts| facts.spec.node_name == node)
            .expect("an incident")
    }

    fn pod_mut(&mut self, pod: &PodRef) -> Option<&mut PodFacts> {
        self.world
            .pods
            .values_mut()
            .find_map(|pods| pods.get_mut(&pod.uid))
    }

    fn perform(&mut self, action: &Action) {
        match action {
            Action::Taint { node, taint, .. } => {
                let time_added = Some(time(at(self.now)));
                let facts = self.node(&node.name);
                facts.added.push(taint.clone());
                facts.taints.push(Taint {
                    key: taint.key.clone(),
                    effect: taint.effect.clone(),
                    value: None,
                    time_added,
                });
            }
            Action::Untaint { node, taints } => {
                let facts = self.node(&node.name);
                facts
                    .taints
                    .retain(|taint| !taints.contains(&TaintRef::new(&taint.key, &taint.effect)));
                facts.added.retain(|taint| !taints.contains(taint));
            }
            Action::MarkNodeUnknown { node, .. } => self.node(&node.name).ready = Status::Unknown,
            Action::MarkPodNotReady { pod, reason, .. } => {
                if let Some(facts) = self.pod_mut(pod) {
                    facts.ready = Status::False;
                    facts.ready_reason.clone_from(reason);
                }
            }
            Action::RestorePodReady { pod, .. } => {
                if let Some(facts) = self.pod_mut(pod) {
                    facts.ready = Status::True;
                }
            }
            Action::Evict { pod, .. } => {
                if let Some(facts) = self.pod_mut(pod) {
                    facts.terminating = true;
                }
            }
            Action::MirrorVerdict { node, healthy } => self.node(&node.name).mirrored = Some(*healthy),
            Action::SaveIncident(incident) => {
                let facts = IncidentFacts {
                    uid: format!("u-{}", incident.name),
                    spec: incident.spec.clone(),
                    status: incident.status.clone(),
                };
                self.world.incidents.insert(incident.name.clone(), facts);
            }
            Action::DeleteIncident { name, .. } => {
                self.world.incidents.remove(name);
            }
            Action::PublishRoster { zone, roster } => {
                self.world.zones.entry(zone.clone()).or_default().roster = roster.clone();
            }
            Action::SavePolicyStatus { policy, status } => {
                self.world
                    .policies
                    .get_mut(policy)
                    .expect("the stage has it")
                    .status = status.clone();
            }
            Action::Event(_) => {}
        }
    }

    /// Names of the pods whose eviction was asked for so far, in order.
    pub(super) fn evicted(&self) -> Vec<&str> {
        let evicted = self.log.iter().filter_map(|action| match action {
            Action::Evict { pod, .. } => Some(pod.name.as_str()),
            _ => None,
        });
        evicted.collect()
    }

    pub(super) fn has_no_execute(&self, node: &str) -> bool {
        self.world.nodes[node].taint(UNREACHABLE, NO_EXECUTE).is_some()
    }

    /// Events about pods: reason and message.
    pub(super) fn pod_events(&self) -> Vec<(String, String)> {
        let events = self.log.iter().filter_map(|action| match action {
            Action::Event(notice) if matches!(notice.about, About::Pod(_)) => {
                Some((notice.reason.clone(), notice.message.clone()))
            }
            _ => None,
        });
        events.collect()
    }
}

pub(super) fn at(second: u64) -> Millis {
    Millis(START + second * 1000)
}

/// What the agent of a node says, with a key of its own.
pub(super) fn agent(uid: &str) -> AgentStatusSpec {
    let letters = uid.chars().filter(char::is_ascii_alphanumeric);
    AgentStatusSpec {
        node_uid: uid.to_owned(),
        public_key: letters
            .chain("A".repeat(43).chars())
            .take(43)
            .chain(['='])
            .collect(),
        address: "10.0.0.1:7946".to_owned(),
        ..Default::default()
    }
}

pub(super) fn tolerate(seconds: Option<i64>) -> Toleration {
    Toleration {
        key: Some(UNREACHABLE.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some(NO_EXECUTE.to_owned()),
        toleration_seconds: seconds,
        ..Default::default()
    }
}

pub(super) fn cut_off() -> Verdict {
    Verdict::Alive {
        cloud: Link::Down,
        kubelet: Health::Ok,
        runtime: Health::Ok,
    }
}

pub(super) fn node_ref(name: &str) -> NodeRef {
    NodeRef {
        name: name.to_owned(),
        uid: format!("u-{name}"),
    }
}

#[test]
fn a_healthy_zone_asks_for_nothing() {
    let mut stage = Stage::with_nodes(3);
    stage.pod("n1", "web");
    for second in [1, 10, 100] {
        assert_eq!(stage.go(second, &[]).actions, []);
    }
    assert_eq!(stage.state("n1"), NodeState::Healthy);
}
