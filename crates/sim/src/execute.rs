//! Carries out actions at the API server, with the preconditions of the shell's executor. An action that
//! begins with a read is two requests, and other events may happen between them.

use crate::api::objects::{
    Object, added, cluster_key, node_condition, renew_time, set_node_condition, set_pod_condition, time,
};
use crate::api::{Writer, build};
use crate::event::{Act, Acted, Phase};
use crate::sim::Sim;
use evenkeel_api::crd::NodeIncident;
use evenkeel_api::names::{NODE_LEASE_NAMESPACE, annotations, conditions};
use evenkeel_api::watch::Key;
use evenkeel_api::zone::RosterSpec;
use evenkeel_failover_rules::planner::action::{Action, NodeRef};
use evenkeel_failover_rules::planner::incident::Incident;
use evenkeel_failover_rules::world::facts::{PodRef, TaintRef};
use evenkeel_failover_rules::world::{Kind, LastSigns};
use evenkeel_zone::roster::cell_object_name;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use std::sync::Arc;

impl Sim {
    /// One step of an action.
    pub(crate) fn perform(&mut self, replica: usize, act: &Act) -> Acted {
        if !self.replica_leads(replica) {
            return Acted::Refused;
        }
        let now = self.now;
        match &*act.action {
            Action::Taint { node, taint, proof } => match &act.phase {
                Phase::Begin if proof.is_some() => self.still_silent(node, &act.signs),
                Phase::Begin => self.read_node(node),
                Phase::Silent(version) => self.taint(node, taint, version.as_deref()),
                Phase::ReasonWritten => Acted::Done,
            },
            Action::TaintForStock { node, version, taint } => {
                let taint = taint.to_taint(Some(time(now)));
                self.change_node(node, Some(version), |node| {
                    let taints = &mut node.spec.get_or_insert_default().taints;
                    taints.get_or_insert_default().push(taint);
                })
            }
            Action::Untaint { node, taints } => match &act.phase {
                Phase::Begin => self.read_node(node),
                Phase::Silent(version) => self.untaint(node, taints, version.as_deref()),
                Phase::ReasonWritten => Acted::Done,
            },
            Action::MarkNodeUnknown { node, .. } if matches!(act.phase, Phase::Begin) => {
                self.still_silent(node, &act.signs)
            }
            Action::MarkNodeUnknown {
                node,
                version,
                message,
            } => {
                let condition = NodeCondition {
                    type_: "Ready".to_owned(),
                    status: "Unknown".to_owned(),
                    reason: Some(conditions::REASON_CONFIRMED_DEAD.to_owned()),
                    message: Some(message.clone()),
                    last_transition_time: Some(time(now)),
                    last_heartbeat_time: None,
                };
                self.change_node(node, Some(version), |node| set_node_condition(node, condition))
            }
            Action::MarkPodNotReady {
                pod, version, reason, ..
            } => self.mark_pod(pod, version, "False", reason),
            Action::RestorePodReady { pod, version, .. } => {
                self.mark_pod(pod, version, "True", conditions::REASON_GIVEN_BACK)
            }
            Action::Evict { pod, node, .. } => match &act.phase {
                Phase::Begin => self.still_silent(node, &act.signs),
                Phase::Silent(_) => self.write_eviction_reason(pod),
                Phase::ReasonWritten => self.delete_pod(pod, None),
            },
            Action::EvictFromKept {
                pod, node, version, ..
            } => match &act.phase {
                Phase::Begin => self.still_silent(node, &act.signs),
                Phase::Silent(_) | Phase::ReasonWritten => self.delete_pod(pod, Some(version)),
            },
            Action::MirrorVerdict { node, healthy } => {
                let healthy = healthy.to_string();
                self.change_node(node, None, |node| {
                    let all = node.metadata.annotations.get_or_insert_default();
                    all.insert(annotations::SUPEREDGE_NODE_HEALTH.to_owned(), healthy);
                })
            }
            Action::SaveIncident(incident) => self.save_incident(incident),
            Action::DeleteIncident { name, .. } => {
                self.store
                    .remove(now, Writer::Ours, Kind::Incident, &cluster_key(name));
                Acted::Done
            }
            Action::PublishCell { zone, cell, roster } => self.publish_cell(zone, *cell, roster),
            Action::Challenge {
                zone,
                cell,
                replaces,
                draw,
                wanted,
            } => self.challenge(replica, (zone, *cell), replaces.as_deref(), *draw, wanted),
            Action::DeleteCell { object, .. } => {
                let key = cluster_key(object);
                self.store.remove(now, Writer::Ours, Kind::Challenge, &key);
                self.store
                    .remove(now, Writer::Ours, Kind::Zone, &cluster_key(object));
                Acted::Done
            }
            Action::TellCell { node, object } => {
                let written = build::tell_cell(&mut self.store, now, node, object);
                Self::settled(written)
            }
            Action::SavePolicyStatus { policy, status } => {
                let written = self.store.change(
                    now,
                    Writer::Ours,
                    Kind::Policy,
                    &cluster_key(policy),
                    None,
                    |object| {
                        if let Object::Policy(policy) = object {
                            policy.status = Some(status.clone());
                        }
                    },
                );
                Self::settled(written)
            }
            Action::Event(_) => Acted::Done,
        }
    }

    /// Consistent reads of Lease, AgentStatus and Node: nothing newer than what the decision rests on.
    fn still_silent(&self, node: &NodeRef, signs: &LastSigns) -> Acted {
        let key = (NODE_LEASE_NAMESPACE.to_owned(), node.name.clone());
        let lease = self
            .store
            .get(Kind::NodeLease, &key)
            .and_then(|object| renew_time(object));
        let Some(found) = self.found(node) else {
            return Acted::Refused;
        };
        let ready = node_condition(found, "Ready");
        let heartbeat = ready
            .and_then(|ready| ready.last_heartbeat_time.as_ref())
            .map(|time| time.0);
        let agent = match self
            .store
            .get(Kind::Agent, &cluster_key(&node.name))
            .map(|object| &**object)
        {
            Some(Object::Agent(agent)) => Some(agent.spec.link_proofs),
            _ => None,
        };
        if lease != signs.lease || agent != signs.link_proofs || heartbeat > signs.heartbeat {
            return Acted::Refused;
        }
        Acted::Next(Phase::Silent(found.metadata.resource_version.clone()))
    }

    fn found(&self, node: &NodeRef) -> Option<&Node> {
        let found = build::find_node(&self.store, &node.name)?;
        (found.metadata.uid.as_deref() == Some(node.uid.as_str())).then_some(found)
    }

    fn read_node(&self, node: &NodeRef) -> Acted {
        match self.found(node) {
            Some(found) => Acted::Next(Phase::Silent(found.metadata.resource_version.clone())),
            None => Acted::Done,
        }
    }

    fn change_node(
        &mut self,
        node: &NodeRef,
        version: Option<&str>,
        change: impl FnOnce(&mut Node),
    ) -> Acted {
        let key = cluster_key(&node.name);
        let written = self
            .store
            .change(self.now, Writer::Ours, Kind::Node, &key, version, |object| {
                if let Object::Node(node) = object {
                    change(node);
                }
            });
        Self::settled(written)
    }

    fn taint(&mut self, node: &NodeRef, taint: &TaintRef, version: Option<&str>) -> Acted {
        let new = taint.to_taint(Some(time(self.now)));
        self.change_node(node, version, |node| {
            let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
            if taints
                .iter()
                .any(|known| known.key == taint.key && known.effect == taint.effect)
            {
                return;
            }
            taints.push(new);
            let mut added = added(node);
            if !added.contains(taint) {
                added.push(taint.clone());
            }
            set_added(node, &added);
        })
    }

    fn untaint(&mut self, node: &NodeRef, remove: &[TaintRef], version: Option<&str>) -> Acted {
        self.change_node(node, version, |node| {
            let taints = node.spec.get_or_insert_default().taints.get_or_insert_default();
            taints.retain(|taint| !remove.contains(&TaintRef::new(&taint.key, &taint.effect)));
            let mut added = added(node);
            added.retain(|taint| !remove.contains(taint));
            set_added(node, &added);
        })
    }

    fn pod_key(pod: &PodRef) -> Key {
        (pod.namespace.clone(), pod.name.clone())
    }

    /// Whether the pod of that name is still the one that was meant.
    fn is_meant(&self, pod: &PodRef) -> bool {
        let found = self.store.get(Kind::Pod, &Self::pod_key(pod));
        found.is_some_and(|found| found.meta().uid.as_deref() == Some(pod.uid.as_str()))
    }

    fn mark_pod(&mut self, pod: &PodRef, version: &str, status: &str, reason: &str) -> Acted {
        if !self.is_meant(pod) {
            return Acted::Stale;
        }
        let condition = build::pod_condition("Ready", status, Some(reason), self.now);
        let key = Self::pod_key(pod);
        let written = self
            .store
            .change(self.now, Writer::Ours, Kind::Pod, &key, Some(version), |object| {
                if let Object::Pod(pod) = object {
                    set_pod_condition(pod, condition);
                }
            });
        Self::settled(written)
    }

    fn write_eviction_reason(&mut self, pod: &PodRef) -> Acted {
        if !self.is_meant(pod) {
            return Acted::Done;
        }
        let reason = Some(conditions::REASON_EVICTED);
        let condition = build::pod_condition(conditions::DISRUPTION_TARGET, "True", reason, self.now);
        let _ = self.store.change(
            self.now,
            Writer::Ours,
            Kind::Pod,
            &Self::pod_key(pod),
            None,
            |object| {
                if let Object::Pod(pod) = object {
                    set_pod_condition(pod, condition);
                }
            },
        );
        Acted::Next(Phase::ReasonWritten)
    }

    fn delete_pod(&mut self, pod: &PodRef, version: Option<&str>) -> Acted {
        if !self.is_meant(pod) {
            return Acted::Done;
        }
        let now = self.now;
        let deleted = self.store.change(
            now,
            Writer::Ours,
            Kind::Pod,
            &Self::pod_key(pod),
            version,
            |object| {
                object
                    .meta_mut()
                    .deletion_timestamp
                    .get_or_insert_with(|| time(now));
            },
        );
        Self::settled(deleted)
    }

    fn save_incident(&mut self, incident: &Incident) -> Acted {
        let now = self.now;
        let key = cluster_key(&incident.name);
        if self.store.get(Kind::Incident, &key).is_none() {
            let mut object = NodeIncident::new(&incident.name, incident.spec.clone());
            object.status = Some(incident.status.clone());
            return Self::settled(
                self.store
                    .create(now, Writer::Ours, Object::Incident(Box::new(object))),
            );
        }
        let written = self
            .store
            .change(now, Writer::Ours, Kind::Incident, &key, None, |object| {
                if let Object::Incident(object) = object {
                    object.status = Some(incident.status.clone());
                }
            });
        Self::settled(written)
    }

    fn challenge(
        &mut self,
        replica: usize,
        (zone, cell): (&str, u32),
        replaces: Option<&str>,
        draw: bool,
        wanted: &[String],
    ) -> Acted {
        let known = self
            .store
            .get(Kind::Challenge, &cluster_key(&cell_object_name(zone, cell)));
        let value = known.and_then(|known| match &**known {
            Object::Challenge(known) => Some(known.spec.current.value.as_str()),
            _ => None,
        });
        if value != replaces {
            return Acted::Stale;
        }
        let life = self.replicas.get(replica).map_or(0, |replica| replica.life);
        let by = format!("replica-{replica}-{life}");
        let now = self.now;
        let drawn_at = Self::of_wall(self.wall_of(replica));
        let drawn = draw.then(|| build::drawn(&mut self.rng, drawn_at, &by));
        let written = build::challenge(&mut self.store, now, (zone, cell), drawn, wanted.to_vec());
        Self::settled(written)
    }

    fn publish_cell(&mut self, zone: &str, cell: u32, roster: &RosterSpec) -> Acted {
        let found = self
            .store
            .get(Kind::Zone, &cluster_key(&cell_object_name(zone, cell)));
        if let Some(Object::Zone(found)) = found.map(|found| &**found)
            && build::roster_of(found).version >= roster.version
        {
            return Acted::Stale;
        }
        let key = Arc::clone(&self.roster_key);
        let signer = Some((&*key, self.script.mixed_versions));
        let written = build::publish(&mut self.store, self.now, (zone, cell), roster, signer);
        Self::settled(written)
    }
}

fn set_added(node: &mut Node, added: &[TaintRef]) {
    let all = node.metadata.annotations.get_or_insert_default();
    if added.is_empty() {
        all.remove(annotations::ADDED_TAINTS);
    } else {
        all.insert(annotations::ADDED_TAINTS.to_owned(), TaintRef::format_list(added));
    }
}
