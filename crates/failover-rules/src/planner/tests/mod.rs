//! The planner on a stage: a world in memory that does what the planner asks for.

mod cells;
mod dead;
mod disconnected;
mod kept;
mod rest;
mod returning;
mod services;
mod stock;

use super::Planner;
use super::action::{About, Action, NodeRef, Plan};
use super::incident::{recorded, time};
use super::roster::{SoundKeys, member};
use super::zones::NEW_TERM_MS;
use crate::world::facts::{
    CellFacts, ChallengeFacts, Cluster, Drawn, IncidentFacts, NodeFacts, Owner, PodFacts, PodRef,
    PolicyFacts, Shown, Status, TaintRef,
};
use crate::world::services::{Reader, Services};
use crate::world::{Config, Decisions, Judged};
use evenkeel_api::crd::{AgentStatusSpec, FailoverPolicySpec};
use evenkeel_api::names::NAMESPACE;
use evenkeel_api::names::conditions::REASON_GIVEN_BACK;
use evenkeel_api::names::taints::UNREACHABLE;
use evenkeel_api::policy::ModePolicy;
use evenkeel_api::zone::{KubeletEndpoint, RosterSpec};
use evenkeel_judge::evidence::{AgentWrites, ZoneEvidence};
use evenkeel_judge::policy::{Policy, effective};
use evenkeel_judge::{
    Dead, Decision, Evidence, Memory, NodeState, Profile, Sight, Timing, decide, protection,
};
use evenkeel_stock_rules::tolerations::NO_EXECUTE;
use evenkeel_zone::Millis;
use evenkeel_zone::keys::SigningKey;
use evenkeel_zone::roster::cell_object_name;
use evenkeel_zone::verdict::{Alive, Death, Health, Link, NoVerdict, Verdict};
use evenkeel_zone::wire::{Nonce, Renewal};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};

const START: u64 = 1_700_000_000_000;

/// What the neighbours of a node say from now on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Says {
    /// A majority vouches for it, again and again.
    Alive(Health),
    /// A majority votes it dead: a first round at that second, and one every 4 s after it.
    Dead(u64),
    Nothing(NoVerdict),
}

pub(super) struct Stage {
    pub(super) world: Cluster,
    pub(super) planner: Planner,
    pub(super) says: BTreeMap<String, Says>,
    pub(super) config: Config,
    /// Every action that was asked for, in order.
    pub(super) log: Vec<Action>,
    pub(super) storm: bool,
    /// Namespaces and names of pods of other replicas of which nothing is heard.
    pub(super) silent_replicas: BTreeSet<(String, String)>,
    /// What is read of endpoints; `None`: they cannot be read.
    pub(super) slices: Option<Vec<EndpointSlice>>,
    /// The zone was last seen to report at this second; `None`: it always is.
    pub(super) reported: Option<u64>,
    reader: Reader,
    sight: Sight,
    /// By node: the seconds in which it renewed.
    renewals: BTreeMap<String, BTreeSet<u64>>,
    memories: BTreeMap<String, Memory>,
    decisions: BTreeMap<String, Decision>,
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
            namespace: NAMESPACE.to_owned(),
            identity: "me".to_owned(),
            life: "me, this time".to_owned(),
            mode: ModePolicy::Act,
        };
        let mut stage = Self {
            world: Cluster::default(),
            planner: Planner::new(config.clone()),
            says: BTreeMap::new(),
            config,
            log: Vec::new(),
            storm: false,
            silent_replicas: BTreeSet::new(),
            slices: Some(Vec::new()),
            reported: None,
            reader: Reader::default(),
            sight: Sight::new(at(0)),
            renewals: BTreeMap::new(),
            memories: BTreeMap::new(),
            decisions: BTreeMap::new(),
            now: 0,
        };
        // The term has lasted for a while.
        stage.planner.leads_since = Some(Millis(START - NEW_TERM_MS));
        stage.see();
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
            members.push(member(&name, &node.uid, &agent, &mut SoundKeys::default()).expect("a sound agent"));
            stage.world.agents.insert(name.clone(), agent);
            stage.world.told_cells.insert(name.clone(), String::new());
            stage.world.nodes.insert(name.clone(), node);
            stage.renew(&name);
        }
        let roster = RosterSpec {
            version: 1,
            members,
            ..RosterSpec::default()
        };
        let cell = CellFacts {
            uid: "u-default".to_owned(),
            zone: "default".to_owned(),
            number: 0,
            roster,
            shown: Shown::Roster,
        };
        stage.world.cells.insert("default".to_owned(), cell);
        let challenge = ChallengeFacts {
            current: drawn_at(0),
            wanted: Vec::new(),
        };
        stage.world.challenges.insert("default".to_owned(), challenge);
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
        let now = self.now;
        let life = &mut self.node(name).life;
        (life.renewed, life.renewal) = (Some(at(now)), Some(renewal_at(now)));
        self.renewals.entry(name.to_owned()).or_default().insert(now);
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
            acknowledged: true,
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

    pub(super) fn says(&mut self, node: &str, says: Says) {
        self.says.insert(node.to_owned(), says);
    }

    pub(super) fn convict(&mut self, node: &str) {
        self.says(node, Says::Dead(self.now));
    }

    fn see(&mut self) {
        self.sight.leases.progress(at(self.now));
        self.sight.reports.progress(at(self.now));
        self.sight.look(at(self.now));
    }

    /// Moves to a second, looking at each; the watches are live, and those who live renew.
    pub(super) fn go(&mut self, second: u64, silent: &[&str]) -> Plan {
        assert!(second >= self.now, "time runs forwards");
        let mut all = Plan::default();
        while self.now < second {
            self.now += 1;
            self.see();
            self.renew_all_but(silent);
            for _ in 0..6 {
                let plan = self.look();
                let done = plan.actions.is_empty();
                all.actions.extend(plan.actions);
                all.measures.extend(plan.measures);
                all.complaints = plan.complaints;
                if done {
                    break;
                }
            }
        }
        all
    }

    fn verdict(&self, node: &str) -> Verdict {
        match self.says.get(node) {
            None => Verdict::None(NoVerdict::NotListed),
            Some(Says::Nothing(why)) => Verdict::None(*why),
            Some(Says::Alive(kubelet)) => Verdict::Alive(Alive {
                received: at(self.now),
                until: at(self.now + 15),
                cloud: Link::Down,
                kubelet: *kubelet,
                runtime: Health::Ok,
            }),
            Some(Says::Dead(first)) => {
                let round = (self.now - first) / 4;
                let received = first + 4 * round;
                // The last renewal before it was asked for.
                let renewals = self.renewals.get(node).into_iter().flatten();
                let named = renewals.filter(|second| **second < received).max();
                Verdict::Dead(Death {
                    round: Nonce([u8::try_from(round % 200).expect("below 200"); 16]),
                    renewal: named.map_or(Renewal::NO_LEASE, |second| renewal_at(*second)),
                    challenged: Some(at(received)),
                    requested: at(received - 1),
                    received: at(received),
                    // They lost it before the first round, and heard nothing since.
                    silence_ms: 4_000 * (round + 1),
                })
            }
        }
    }

    /// One look of the judge and the planner; what is asked for is done.
    pub(super) fn look(&mut self) -> Plan {
        let now = at(self.now);
        let policies: Vec<Policy> = self
            .world
            .policies
            .values()
            .map(|facts| facts.policy.clone())
            .collect();
        let mut decisions = Decisions {
            silent_replicas: self.silent_replicas.clone(),
            ..Decisions::default()
        };
        decisions
            .zone_size
            .insert("default".to_owned(), self.world.nodes.len());
        let stale = |node: &NodeFacts| {
            node.life.lease(&self.sight.leases, &self.config.timing, now)
                == evenkeel_judge::evidence::Lease::Stale
        };
        let some_member_fresh = !self.world.nodes.values().all(stale);
        for (name, node) in &self.world.nodes {
            let evidence = Evidence {
                life: node.life,
                sight: self.sight,
                verdict: self.verdict(name),
                zone: ZoneEvidence {
                    reported: true,
                    advanced: Some(at(self.reported.unwrap_or(self.now))),
                    some_member_fresh,
                    some_member_renews: some_member_fresh,
                    storm: self.storm,
                    may_be_split: false,
                    may_prove_split: false,
                    is_returning: false,
                    is_alone: false,
                },
                agent: AgentWrites::default(),
            };
            let settings = effective(&policies, &node.labels, self.config.profile).0;
            let memory = self.memories.entry(name.clone()).or_default();
            let decision = decide(&evidence, memory, &self.config.timing, now);
            *memory = decision.memory;
            self.decisions.insert(name.clone(), decision);
            let kept = protection(&decision, &settings, &self.config.timing, now);
            decisions.nodes.insert(
                name.clone(),
                Judged {
                    uid: node.uid.clone(),
                    decision,
                    evidence,
                    settings,
                    protection: kept,
                    if_stale: kept,
                    zone: "default".to_owned(),
                },
            );
        }
        let asked = self.reader.look(&self.world, &mut decisions, now);
        if let (false, Some(slices)) = (asked.is_empty(), &self.slices) {
            self.reader.take(Services::of(&asked, slices.clone()), now);
        }
        let mut plan = self.planner.tick(&self.world, &decisions, now);
        for action in &plan.actions {
            self.perform(action);
        }
        self.log.extend(plan.actions.clone());
        // They come at their times, whatever else happens.
        plan.actions
            .retain(|action| !matches!(action, Action::Challenge { .. }));
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

    /// Another process takes over: it starts from what is recorded.
    pub(super) fn restart(&mut self) {
        self.planner = Planner::new(self.config.clone());
        self.memories.clear();
        let now = at(self.now);
        for facts in self
            .world
            .incidents
            .values()
            .filter(|facts| facts.status.closed_at.is_none())
        {
            let name = facts.spec.node_name.clone();
            let recorded = recorded(&facts.status, now).expect("it was written by us");
            self.memories.entry(name).or_default().adopt(&recorded);
        }
        for node in self.world.nodes.values_mut() {
            node.life.first_seen = Some(now);
            node.life.renewed = None;
            node.life.stock_mark = node.life.stock_mark.map(|_| now);
        }
        for challenge in self.world.challenges.values_mut() {
            challenge.current.drawn = None;
        }
        self.sight = Sight::new(now);
        self.see();
    }

    pub(super) fn state(&self, node: &str) -> NodeState {
        self.decisions.get(node).expect("it was looked at").state()
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
            Action::Taint { node, taint, .. } | Action::TaintForStock { node, taint, .. } => {
                let time_added = Some(time(at(self.now)));
                let facts = self.node(&node.name);
                if matches!(action, Action::Taint { .. }) {
                    facts.added.push(taint.clone());
                }
                facts.taints.push(taint.to_taint(time_added));
            }
            Action::Untaint { node, taints } => {
                let facts = self.node(&node.name);
                facts
                    .taints
                    .retain(|taint| !taints.contains(&TaintRef::new(&taint.key, &taint.effect)));
                facts.added.retain(|taint| !taints.contains(taint));
            }
            Action::MarkNodeUnknown { node, .. } => {
                let facts = self.node(&node.name);
                (facts.ready, facts.marked_by_us) = (Status::Unknown, true);
            }
            Action::MarkPodNotReady { pod, reason, .. } => {
                if let Some(facts) = self.pod_mut(pod) {
                    facts.ready = Status::False;
                    facts.ready_reason.clone_from(reason);
                }
            }
            Action::RestorePodReady { pod, .. } => {
                if let Some(facts) = self.pod_mut(pod) {
                    facts.ready = Status::True;
                    REASON_GIVEN_BACK.clone_into(&mut facts.ready_reason);
                }
            }
            Action::Evict { pod, .. } | Action::EvictFromKept { pod, .. } => {
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
                    ..IncidentFacts::default()
                };
                self.world.incidents.insert(incident.name.clone(), facts);
            }
            Action::DeleteIncident { name, .. } => {
                self.world.incidents.remove(name);
            }
            Action::PublishCell { zone, cell, roster } => {
                let object = cell_object_name(zone, *cell);
                let facts = self.world.cells.entry(object.clone()).or_default();
                facts.uid = format!("u-{object}");
                (facts.zone, facts.number) = (zone.clone(), *cell);
                (facts.roster, facts.shown) = (roster.clone(), Shown::Roster);
            }
            Action::Challenge {
                zone,
                cell,
                replaces,
                draw,
                wanted,
            } => {
                let object = cell_object_name(zone, *cell);
                let known = self.world.challenges.get(&object);
                assert_eq!(known.map(|known| &known.current.value), replaces.as_ref());
                let current = known.filter(|_| !draw).map(|known| known.current.clone());
                let facts = ChallengeFacts {
                    current: current.unwrap_or_else(|| drawn_at(self.now)),
                    wanted: wanted.clone(),
                };
                self.world.challenges.insert(object, facts);
            }
            Action::DeleteCell { object, uid } => {
                assert_eq!(self.world.cells.get(object).map(|facts| &facts.uid), Some(uid));
                self.world.cells.remove(object);
                self.world.challenges.remove(object);
            }
            Action::TellCell { node, object } => {
                self.world.told_cells.insert(node.clone(), object.clone());
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
            Action::Evict { pod, .. } | Action::EvictFromKept { pod, .. } => Some(pod.name.as_str()),
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

fn renewal_at(second: u64) -> Renewal {
    Renewal(second + 1)
}

fn drawn_at(second: u64) -> Drawn {
    Drawn {
        value: format!("drawn at {second}"),
        drawn: Some(at(second)),
        seen: at(second),
    }
}

/// What the agent of a node says, with a key of its own.
pub(super) fn agent(uid: &str) -> AgentStatusSpec {
    let mut seed = [0; 32];
    for (to, from) in seed.iter_mut().zip(uid.bytes()) {
        *to = from;
    }
    let key = SigningKey::from_seed(&seed).expect("any 32 bytes make a key");
    AgentStatusSpec {
        node_uid: uid.to_owned(),
        public_key: key.public().to_base64(),
        address: "10.0.0.1:7959".to_owned(),
        kubelet: Some(KubeletEndpoint {
            address: "10.0.0.1:10250".to_owned(),
            certificate_sha256: "00".repeat(32),
        }),
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

pub(super) fn cut_off() -> Says {
    Says::Alive(Health::Ok)
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
