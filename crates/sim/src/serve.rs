//! The API server's side of requests.

use crate::api::objects::{
    EPOCH, Object, cluster_key, is_endpoint, node_condition, node_of, renew_time, set_node_condition,
    set_pod_condition, stamp, time,
};
use crate::api::{Refused, Writer, build};
use crate::event::{AgentDue, Call, Event, LeaseSeen, LeaseTry, Reply, Source};
use crate::script::Level;
use crate::sim::Sim;
use evenkeel_api::crd::ZoneReportSpec;
use evenkeel_api::names::{NAMESPACE, NODE_LEASE_NAMESPACE};
use evenkeel_api::zone::Report;
use evenkeel_api::zone::RosterAcknowledgement;
use evenkeel_failover_rules::world::Kind;
use evenkeel_zone::roster::MemberId;
use evenkeel_zone::wire::Renewal;
use k8s_openapi::api::core::v1::NodeCondition;

/// The kubelet posts its node's status at least this often.
const STATUS_AT_LEAST: u64 = 300_000;

/// The keeper of rosters looks at what agents write after this time, as a controller does.
const LOOKS_EVERY: u64 = 500;

impl Sim {
    pub(crate) fn serve(&mut self, from: Source, call: Call, sent: u64) -> Reply {
        match (call, from) {
            (Call::WatchCell { epoch }, Source::Agent(node, life)) => {
                self.watch_is_taken(node, life, epoch);
                let kinds = [Kind::Zone, Kind::Challenge];
                let age = self.stale_reads.values().max().copied().unwrap_or_default();
                if age > 0 {
                    // A cache that is behind tells the rest when it has it.
                    for object in kinds
                        .map(|kind| self.cell_object(kind, node, 0))
                        .into_iter()
                        .flatten()
                    {
                        self.agent_later(node, life, age, AgentDue::Sees(epoch, object));
                    }
                }
                Reply::Cell(epoch, kinds.map(|kind| self.cell_object(kind, node, age)))
            }
            (Call::Ping { epoch }, Source::Agent(..)) => Reply::Pong(epoch),
            (Call::ReadLease(member), Source::Agent(..)) => Reply::LeaseRead(member, self.renewal_of(member)),
            (Call::ReadOtherLease { cell, member }, Source::Agent(..)) => {
                Reply::OtherLeaseRead(cell, member, self.renewal_of(member))
            }
            (Call::WatchOther { cell }, Source::Agent(node, _)) => {
                Reply::OtherCell(cell, self.other_objects(node, cell))
            }
            (Call::Publish(report), Source::Agent(node, _)) => {
                self.publish(node, self.cell_of(node), *report);
                Reply::Published
            }
            (
                Call::Carry {
                    cell,
                    sequence,
                    report,
                },
                Source::Agent(node, _),
            ) => {
                self.publish(node, self.other_cell(node, cell), *report);
                Reply::CarriedWritten(cell, sequence)
            }
            (Call::ProveLink { count }, Source::Agent(node, _)) => self.prove_link(node, count),
            (Call::Acknowledge(acknowledged), Source::Agent(node, _)) => self.acknowledge(node, acknowledged),
            (Call::Register, Source::Agent(node, _)) => {
                self.register(node);
                Reply::Registered
            }
            (Call::Lease(attempt), Source::Agent(node, _)) => {
                let reply = self.lease(Writer::Agent, attempt, sent);
                if let (Reply::Lease { held: true, .. }, Some(machine)) =
                    (&reply, self.machines.get_mut(node - 1))
                {
                    machine.meter.requests += 1;
                }
                reply
            }
            (Call::Lease(attempt), Source::Replica(..)) => self.lease(Writer::Ours, attempt, sent),
            (Call::RenewNodeLease, Source::Kubelet(node, _)) => {
                let name = build::node_name(node);
                let of_day = self.of_day(node);
                build::renew_at(
                    &mut self.store,
                    (self.now, of_day),
                    Writer::Kubelet,
                    NODE_LEASE_NAMESPACE,
                    &name,
                    &name,
                );
                Reply::Renewed { sent }
            }
            (Call::PostStatus, Source::Kubelet(node, _)) => {
                self.post_status(node);
                Reply::Done("status")
            }
            (Call::SyncPods, Source::Kubelet(node, _)) => {
                self.sync_pods(node);
                Reply::Done("pods")
            }
            (Call::Audit(kind), _) => Reply::Versions(kind, self.store.versions(kind)),
            (Call::Act(act), Source::Replica(replica, _)) => {
                let acted = self.perform(replica, &act);
                Reply::Acted(act, acted)
            }
            (call, _) => Reply::Lost(Box::new(call)),
        }
    }

    /// The last renewal of a member's Lease, read consistently.
    pub(crate) fn renewal_of(&self, member: MemberId) -> Renewal {
        let node = (1..=self.machines.len()).find(|node| MemberId::of(&build::node_uid(*node)) == member);
        let key = node.map(|node| (NODE_LEASE_NAMESPACE.to_owned(), build::node_name(node)));
        let lease = key.and_then(|key| self.store.get(Kind::NodeLease, &key));
        let version = lease.and_then(|lease| lease.meta().resource_version.as_ref()?.parse().ok());
        version.map_or(Renewal::NO_LEASE, Renewal)
    }

    /// A reporter writes its own object about a cell, whatever stands there.
    pub(crate) fn publish(&mut self, node: usize, cell: String, report: Report) {
        if self.level == Level::Zones {
            let size = serde_json::to_vec(&report).map_or(0, |bytes| bytes.len());
            self.largest_report = self.largest_report.max(size);
        }
        let found = self.store.get(Kind::Zone, &cluster_key(&cell));
        let Some(Object::Zone(cell)) = found.map(|found| (**found).clone()) else {
            return;
        };
        let spec = ZoneReportSpec {
            zone: cell.spec.zone,
            cell: cell.spec.cell,
            reporter: build::node_name(node),
            report,
        };
        build::report(&mut self.store, self.now, spec);
    }

    /// The time of day by the node's own clock, in the run's own milliseconds.
    fn of_day(&self, node: usize) -> u64 {
        let machine = self.machines.get(node - 1);
        machine.map_or(self.now, |machine| machine.clock.of_day(self.now))
    }

    /// The agent says who it is.
    fn register(&mut self, node: usize) {
        let member = self.member(node);
        let Some(machine) = self.machines.get(node - 1) else {
            return;
        };
        if self.level == Level::Zones {
            // Rosters are made of what agents say of themselves; the keeper gathers that for a while.
            let cell = self.cell_key(node);
            let delay = self.rng.between(500, 3_000);
            return self.after(delay, Event::Roster(cell));
        }
        let version = machine.version.to_string();
        let key = cluster_key(&build::node_name(node));
        let _ = self
            .store
            .change(self.now, Writer::Agent, Kind::Agent, &key, None, |object| {
                if let Object::Agent(agent) = object {
                    agent.spec.version = version;
                    agent.spec.address = member.address;
                    agent.spec.public_key = member.public_key;
                    agent.spec.kubelet = member.kubelet;
                }
            });
    }

    /// The agent says which roster it has in force.
    fn acknowledge(&mut self, node: usize, acknowledged: RosterAcknowledgement) -> Reply {
        if self.level == Level::Zones {
            if let Some(machine) = self.machines.get_mut(node - 1) {
                machine.acknowledged = Some(acknowledged);
            }
            self.after(LOOKS_EVERY, Event::Roster(self.cell_key(node)));
            return Reply::Acknowledged;
        }
        let key = cluster_key(&build::node_name(node));
        let written = self
            .store
            .change(self.now, Writer::Agent, Kind::Agent, &key, None, |object| {
                if let Object::Agent(agent) = object {
                    agent.spec.roster = Some(acknowledged.clone());
                }
            });
        match written {
            Ok(_) => Reply::Acknowledged,
            Err(_) => Reply::Lost(Box::new(Call::Acknowledge(acknowledged))),
        }
    }

    fn prove_link(&mut self, node: usize, count: Option<i64>) -> Reply {
        if self.level == Level::Zones {
            return Reply::Proven(count.unwrap_or_default() + 1);
        }
        let key = cluster_key(&build::node_name(node));
        let mut proven = 1;
        let written = self
            .store
            .change(self.now, Writer::Agent, Kind::Agent, &key, None, |object| {
                if let Object::Agent(agent) = object {
                    agent.spec.link_proofs = count.unwrap_or(agent.spec.link_proofs) + 1;
                    proven = agent.spec.link_proofs;
                }
            });
        match written {
            Ok(_) => Reply::Proven(proven),
            Err(_) => Reply::Lost(Box::new(Call::ProveLink { count })),
        }
    }

    fn lease(&mut self, writer: Writer, attempt: LeaseTry, sent: u64) -> Reply {
        let key = (NAMESPACE.to_owned(), attempt.name.clone());
        let seen: LeaseSeen = match self.store.get(Kind::OwnLease, &key).map(|object| &**object) {
            Some(Object::Lease(lease)) => {
                let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                let object = Object::Lease(lease.clone());
                (holder.unwrap_or_default(), renew_time(&object))
            }
            _ => LeaseSeen::default(),
        };
        let mine = seen.0 == attempt.me;
        if attempt.release {
            if mine {
                build::renew(&mut self.store, self.now, writer, NAMESPACE, &attempt.name, "");
            }
            return Reply::Done("released");
        }
        let held = mine || seen.0.is_empty() || attempt.expired.as_ref() == Some(&seen);
        if !held {
            return Reply::Lease { held, seen, sent };
        }
        build::renew(
            &mut self.store,
            self.now,
            writer,
            NAMESPACE,
            &attempt.name,
            &attempt.me,
        );
        let seen = (attempt.me, Some(stamp(self.now)));
        Reply::Lease { held, seen, sent }
    }

    fn post_status(&mut self, node: usize) {
        let name = build::node_name(node);
        let Some(found) = build::find_node(&self.store, &name) else {
            return;
        };
        let ready = node_condition(found, "Ready");
        let posted = ready
            .and_then(|ready| ready.last_heartbeat_time.as_ref())
            .map(|time| time.0.as_millisecond());
        let posted = posted
            .and_then(|posted| u64::try_from(posted).ok())
            .unwrap_or_default();
        let of_day = self.of_day(node);
        let recent = (EPOCH + of_day).abs_diff(posted) < STATUS_AT_LEAST;
        let as_it_should = ready.is_some_and(|ready| ready.status == "True");
        if recent && as_it_should {
            return;
        }
        let since = ready
            .filter(|_| as_it_should)
            .and_then(|ready| ready.last_transition_time.clone());
        let condition = NodeCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            reason: Some("KubeletReady".to_owned()),
            last_heartbeat_time: Some(time(of_day)),
            last_transition_time: since.or_else(|| Some(time(of_day))),
            ..NodeCondition::default()
        };
        let _ = self.store.change(
            self.now,
            Writer::Kubelet,
            Kind::Node,
            &cluster_key(&name),
            None,
            |object| {
                if let Object::Node(node) = object {
                    set_node_condition(node, condition);
                }
            },
        );
    }

    /// Pods that are being deleted go; the others get their Ready back.
    fn sync_pods(&mut self, node: usize) {
        let name = build::node_name(node);
        let mine = |object: &Object| matches!(object, Object::Pod(pod) if node_of(pod) == name);
        let pods: Vec<_> = self
            .store
            .list(Kind::Pod)
            .filter(|(_, object)| mine(object))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let now = self.now;
        for (key, object) in pods {
            if object.meta().deletion_timestamp.is_some() {
                self.store.remove(now, Writer::Kubelet, Kind::Pod, &key);
            } else if !is_endpoint(&object) {
                let _ = self
                    .store
                    .change(now, Writer::Kubelet, Kind::Pod, &key, None, |object| {
                        if let Object::Pod(pod) = object {
                            set_pod_condition(pod, build::pod_condition("Ready", "True", None, now));
                        }
                    });
            }
        }
    }

    /// What an answer to a write of ours means for the dispatcher.
    pub(crate) fn settled<T>(answer: Result<T, Refused>) -> crate::event::Acted {
        use crate::event::Acted;
        match answer {
            Ok(_) | Err(Refused::NotFound) => Acted::Done,
            Err(Refused::Conflict) => Acted::Stale,
        }
    }
}
