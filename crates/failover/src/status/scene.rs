//! From the objects of a cluster to the [`Report`] about them. Pure: objects and a time in, a report out.

use super::near::nearest;
use super::report::{
    Controller, Found, IncidentLine, LEADER_SILENT_SECONDS, Leader, Listed, Mode, NodeLine, Question, RECENT,
    REPORT_SILENT_SECONDS, Report, Row, Setting, Story, Subject, Term, Unknown, ZONE_SILENT_SECONDS,
    ZoneLine,
};
use evenkeel_api::crd::{LatchRecord, NodeIncident, ZoneHealth, ZoneReport};
use evenkeel_api::names::{self, annotations, zone_of};
use evenkeel_api::policy::{ModePolicy, Profile};
use evenkeel_api::zone::RosterSpec;
use evenkeel_failover_rules::planner::roster::eligible;
use evenkeel_failover_rules::world::read;
use evenkeel_judge::NodeState;
use evenkeel_judge::policy::{Policy, Settings, effective, refused, selects};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Answers a question from what was found.
pub(super) fn report(found: &Found, question: &Question) -> Report {
    let controller = controller(found);
    let scene = Scene::of(found, &controller.leader);
    let subject = scene.subject(question);
    let well = match &subject {
        Subject::Node(story) => story.present.as_ref().is_some_and(NodeLine::is_healthy),
        Subject::Nodes(lines) => lines.iter().all(NodeLine::is_healthy),
        _ => found.nodes.iter().all(|node| scene.line(node).is_healthy()),
    };
    let mut troubles = found.troubles.clone();
    troubles.extend(scene.strays());
    Report {
        taken_at: found.now,
        namespace: found.namespace.clone(),
        healthy: well && controller.leader.works() && troubles.is_empty(),
        pause: found.pause.clone(),
        controller,
        subject,
        troubles,
    }
}

fn controller(found: &Found) -> Controller {
    let late = |renewed: Option<Timestamp>| {
        renewed.is_none_or(|at| found.now.as_second() - at.as_second() >= LEADER_SILENT_SECONDS)
    };
    let lease = found
        .leases
        .iter()
        .find(|lease| name(*lease) == names::CONTROLLER_LEASE);
    let held_by = lease.map(holder).filter(|holder| !holder.is_empty());
    let leader = match (lease, held_by) {
        (Some(lease), Some(name)) => {
            let spec = lease.spec.as_ref();
            let term = Term {
                name,
                since: spec
                    .and_then(|spec| spec.acquire_time.as_ref())
                    .map(|time| time.0),
                renewed_at: read::renew_time(lease),
            };
            if late(term.renewed_at) {
                Leader::Silent(term)
            } else {
                Leader::Works(term)
            }
        }
        _ => Leader::None,
    };
    let replicas = found.leases.iter().filter(|lease| {
        name(*lease).starts_with(names::REPLICA_LEASE_PREFIX) && !late(read::renew_time(lease))
    });
    Controller {
        leader,
        working_replicas: replicas.map(holder).collect(),
    }
}

/// What was found, by node.
struct Scene<'a> {
    found: &'a Found,
    leader: &'a Leader,
    policies: Vec<Policy>,
    /// What the leader does where no policy says a mode; `None`: it does not tell.
    default_mode: Option<ModePolicy>,
    /// The newest open incident by UID of the node.
    open: BTreeMap<&'a str, &'a NodeIncident>,
    /// Zone of each member by UID.
    member_of: BTreeMap<String, &'a str>,
    /// By name of the ZoneHealth, as it was published.
    rosters: BTreeMap<&'a str, RosterSpec>,
}

impl<'a> Scene<'a> {
    fn of(found: &'a Found, leader: &'a Leader) -> Self {
        let mut open: BTreeMap<&str, &NodeIncident> = BTreeMap::new();
        for incident in found.incidents.iter().filter(|incident| !is_closed(incident)) {
            let newer = |other: &&NodeIncident| since(other) < since(incident);
            let uid = incident.spec.node_uid.as_str();
            if open.get(uid).is_none_or(newer) {
                open.insert(uid, incident);
            }
        }
        let rosters = found.zones.iter();
        let rosters = rosters.map(|zone| (name(zone), zone.spec.read_roster().unwrap_or_default()));
        let rosters: BTreeMap<&str, RosterSpec> = rosters.collect();
        let members = found.zones.iter().flat_map(|zone| {
            let roster = rosters.get(name(zone)).into_iter();
            let members = roster.flat_map(|roster| &roster.members);
            members.map(|member| (member.uid.clone(), zone.spec.zone.as_str()))
        });
        let member_of = members.collect();
        let policies = found.policies.iter().map(|policy| read::policy(policy).policy);
        let leads = |lease: &&Lease| leader.term().is_some_and(|term| holder(lease) == term.name);
        let mut leases = found.leases.iter().filter(leads);
        let mode = leases.find_map(|lease| lease.annotations().get(annotations::MODE));
        Self {
            found,
            leader,
            policies: policies.collect(),
            default_mode: mode.and_then(|mode| serde_json::from_value(mode.as_str().into()).ok()),
            open,
            member_of,
            rosters,
        }
    }

    fn subject(&self, question: &Question) -> Subject {
        match question {
            Question::Nodes => {
                let mut lines: Vec<NodeLine> = self.found.nodes.iter().map(|node| self.line(node)).collect();
                lines.sort_by_key(|line| natural(&line.name));
                Subject::Nodes(lines)
            }
            Question::Node(asked) => self.node(asked),
            Question::Zones(asked) => self.zones(asked.as_deref()),
            Question::Incidents(asked) => self.incidents(asked.as_deref()),
        }
    }

    fn line(&self, node: &Node) -> NodeLine {
        let labels = node.labels();
        let uid = node.metadata.uid.as_deref().unwrap_or_default();
        let incident = self.open.get(uid).copied();
        let status = incident.and_then(|incident| incident.status.as_ref());
        let decision = status.map(|status| &status.decision);
        let (state, reason) = match (incident, status) {
            (None, _) if self.leader.works() => (
                NodeState::Healthy.label().to_owned(),
                "no open incident".to_owned(),
            ),
            (None, _) => {
                let reason = "no open incident, but no controller looks at it".to_owned();
                (NodeState::Healthy.label().to_owned(), reason)
            }
            (Some(_), None) => {
                let reason = "its incident was opened just now; nothing is recorded yet".to_owned();
                (NodeState::Unknown.label().to_owned(), reason)
            }
            (Some(_), Some(status)) if status.decision.state.is_empty() => {
                let reason = "recorded by an earlier version of the controller".to_owned();
                (status.state.clone(), reason)
            }
            (Some(_), Some(status)) => (status.decision.state.clone(), status.decision.reason.clone()),
        };
        let observed = self.mode(labels) == ModePolicy::Observe
            || decision.is_some_and(|decision| decision.observed_only);
        let mode = match (&self.found.pause, observed) {
            (Some(_), _) => Mode::Paused,
            (None, true) => Mode::Observe,
            (None, false) => Mode::Act,
        };
        let member = self.member_of.get(uid);
        let decided_at = decision.and_then(|decision| at(decision.decided_at.as_ref()));
        let decided_by = decision
            .map(|decision| decision.by.clone())
            .filter(|by| !by.is_empty());
        let older = self.leader.term().is_some_and(|term| {
            let other = decided_by.as_ref().is_some_and(|by| *by != term.name);
            // Objects carry whole seconds.
            let before = matches!((decided_at, term.since), (Some(at), Some(since)) if at.as_second() < since.as_second());
            other || before
        });
        NodeLine {
            name: name(node).to_owned(),
            state,
            since: status.and_then(|status| at(status.state_since.as_ref())),
            reason,
            mode,
            zone: member
                .map(|zone| (*zone).to_owned())
                .or_else(|| zone_of(labels, None)),
            watched: member.is_some(),
            ready: read::condition(node, "Ready")
                .map_or_else(|| "-".to_owned(), |ready| ready.status.clone()),
            incident: incident.map(|incident| name(incident).to_owned()),
            decided_by,
            decided_at,
            older_than_leader: older,
        }
    }

    fn node(&self, asked: &str) -> Subject {
        let node = self.found.nodes.iter().find(|node| name(*node) == asked);
        let mut all = self.incident_lines(Some(asked));
        if node.is_none() && all.is_empty() {
            return self.no_such_node(asked);
        }
        let present = node.map(|node| self.line(node));
        let open = present.as_ref().and_then(|line| line.incident.clone());
        let told = open.clone().or_else(|| all.first().map(|line| line.name.clone()));
        let incident = self
            .found
            .incidents
            .iter()
            .find(|incident| Some(name(*incident)) == told.as_deref());
        let status = incident
            .and_then(|incident| incident.status.clone())
            .unwrap_or_default();
        all.retain(|line| Some(&line.name) != open.as_ref());
        let added = node.and_then(|node| node.annotations().get(annotations::ADDED_TAINTS).cloned());
        let is_open = open.is_some();
        let decision = if is_open {
            status.decision
        } else {
            Default::default()
        };
        let (settings, not_in_effect) = node.map(|node| self.settings(node.labels())).unwrap_or_default();
        Subject::Node(Box::new(Story {
            present,
            name: asked.to_owned(),
            evidence: decision.evidence,
            changes: decision.changes,
            latch: if is_open { latch(&status.latch) } else { Vec::new() },
            fence_missing: if is_open {
                status.fence.missing
            } else {
                String::new()
            },
            added_taints: added.unwrap_or_default(),
            settings,
            not_in_effect,
            timeline: status
                .timeline
                .iter()
                .map(|row| Row {
                    time: at(row.time.as_ref()),
                    event: row.event.clone(),
                    message: row.message.clone(),
                })
                .collect(),
            earlier: all,
        }))
    }

    fn no_such_node(&self, asked: &str) -> Subject {
        Subject::Unknown(Unknown {
            kind: "node",
            name: asked.to_owned(),
            closest: nearest(asked, self.found.nodes.iter().map(name)),
        })
    }

    /// The mode of a node with these labels: a policy's, or else the controller's. Of a controller that does
    /// not tell, `act` is supposed.
    fn mode(&self, labels: &BTreeMap<String, String>) -> ModePolicy {
        let is_said = |policy: &Policy| selects(&policy.spec, labels) && policy.spec.mode.is_some();
        match self.default_mode {
            Some(mode) if !self.policies.iter().any(is_said) => mode,
            _ => effective(&self.policies, labels, Profile::Builtin).0.mode,
        }
    }

    /// The settings of a node with these labels, and what does not take effect. Which profile the controller
    /// runs with stands in no object: where the profiles differ, both values are told.
    fn settings(&self, labels: &BTreeMap<String, String>) -> (Vec<Setting>, Vec<String>) {
        let (mut builtin, overruled) = effective(&self.policies, labels, Profile::Builtin);
        let mut edge = effective(&self.policies, labels, Profile::Edge).0;
        (builtin.mode, edge.mode) = (self.mode(labels), self.mode(labels));
        let matching: Vec<&Policy> = self
            .policies
            .iter()
            .filter(|policy| selects(&policy.spec, labels))
            .collect();
        type Field = (&'static str, fn(&Settings) -> String, fn(&Policy) -> bool);
        let fields: [Field; 6] = [
            ("mode", |of| word(&of.mode), |policy| policy.spec.mode.is_some()),
            (
                "autonomySeconds",
                |of| of.autonomy_seconds.to_string(),
                |policy| policy.spec.autonomy_seconds.is_some(),
            ),
            (
                "evictAfterSeconds",
                |of| of.evict_after_seconds.to_string(),
                |policy| policy.spec.evict_after_seconds.is_some(),
            ),
            (
                "endpoints",
                |of| word(&of.endpoints),
                |policy| policy.spec.endpoints.is_some(),
            ),
            (
                "isolated",
                |of| word(&of.isolated),
                |policy| policy.spec.isolated.is_some(),
            ),
            (
                "fencing",
                |of| word(&of.fencing),
                |policy| policy.spec.fencing.is_some(),
            ),
        ];
        let settings = fields.map(|(name, value, says)| {
            let by: Vec<&str> = matching
                .iter()
                .filter(|policy| says(policy))
                .map(|policy| policy.name.as_str())
                .collect();
            let (plain, at_the_edge) = (value(&builtin), value(&edge));
            Setting {
                name,
                value: if plain == at_the_edge {
                    plain
                } else {
                    format!("{plain} (profile builtin) or {at_the_edge} (profile edge)")
                },
                from: match (by.as_slice(), name) {
                    ([], "mode") => "no policy: as the controller's --mode says".to_owned(),
                    ([], _) => "no policy: the controller's --profile".to_owned(),
                    (by, _) => format!("FailoverPolicy {}", by.join(", ")),
                },
            }
        });
        let unheeded = matching.iter().flat_map(|policy| {
            let why = refused(&policy.spec).into_iter();
            why.map(|why| format!("FailoverPolicy {}: {why}", policy.name))
        });
        let lost = overruled
            .iter()
            .map(|one| format!("FailoverPolicy {}: {}", one.policy, one.text));
        (settings.into(), unheeded.chain(lost).collect())
    }

    fn zones(&self, asked: Option<&str>) -> Subject {
        let mut lines: Vec<ZoneLine> = self.found.zones.iter().map(|zone| self.zone(zone)).collect();
        lines.sort_by_key(|line| (natural(&line.zone), line.cell));
        let Some(asked) = asked else {
            return Subject::Zones(lines);
        };
        let known: Vec<String> = lines.iter().map(|line| line.zone.clone()).collect();
        lines.retain(|line| line.zone == asked || line.object == asked);
        if lines.is_empty() {
            return Subject::Unknown(Unknown {
                kind: "zone",
                name: asked.to_owned(),
                closest: nearest(asked, known.iter().map(String::as_str)),
            });
        }
        Subject::Zones(lines)
    }

    fn zone(&self, zone: &ZoneHealth) -> ZoneLine {
        let of_cell =
            |report: &&ZoneReport| (&report.spec.zone, report.spec.cell) == (&zone.spec.zone, zone.spec.cell);
        let mut reports: Vec<&ZoneReport> = self.found.reports.iter().filter(of_cell).collect();
        // The newest first: resourceVersions grow with every write.
        let version = |report: &ZoneReport| report.metadata.resource_version.as_ref()?.parse::<u64>().ok();
        reports.sort_by_key(|report| Reverse(version(report)));
        let mut listed: BTreeMap<&str, Listed> = BTreeMap::new();
        let is_recent = |report: &&&ZoneReport| {
            let written: Option<Timestamp> = report
                .spec
                .report
                .written_at
                .as_ref()
                .and_then(|at| at.parse().ok());
            written.is_none_or(|at| self.found.now.as_second() - at.as_second() < REPORT_SILENT_SECONDS)
        };
        for node in reports
            .iter()
            .filter(is_recent)
            .flat_map(|report| &report.spec.report.nodes)
        {
            listed.entry(&node.name).or_insert_with(|| Listed {
                name: node.name.clone(),
                verdict: format!("{:?}", node.verdict),
                reason: node.reason.clone(),
            });
        }
        let lease_name = names::zone_lease(name(zone));
        let lease = self.found.leases.iter().find(|lease| name(*lease) == lease_name);
        let renewed = lease.and_then(read::renew_time);
        let unread = RosterSpec::default();
        let roster = self.rosters.get(name(zone)).unwrap_or(&unread);
        let members = &roster.members;
        let called = |uid: &String| {
            let member = members.iter().find(|member| member.uid == *uid);
            member.map_or_else(|| format!("UID {uid}"), |member| member.name.clone())
        };
        let asked = self
            .found
            .challenges
            .iter()
            .find(|asked| name(*asked) == name(zone));
        let wanted = asked.into_iter().flat_map(|asked| &asked.spec.wanted);
        let outside = self.found.nodes.iter().filter(|node| {
            let labels = node.labels();
            let uid = node.metadata.uid.as_deref().unwrap_or_default();
            let here = zone_of(labels, None).as_deref() == Some(zone.spec.zone.as_str());
            // Said once of the zone: its first cell says it.
            here && zone.spec.cell == 0 && eligible(labels) && !self.member_of.contains_key(uid)
        });
        let learners = members.iter().filter(|member| member.learner);
        ZoneLine {
            zone: zone.spec.zone.clone(),
            cell: zone.spec.cell,
            object: name(zone).to_owned(),
            members: sorted(members.iter().map(|member| member.name.clone())),
            learners: sorted(learners.map(|member| member.name.clone())),
            settled: roster.settled_voters.is_empty(),
            without_agent: sorted(outside.map(|node| name(node).to_owned())),
            roster_version: roster.version,
            reporters: sorted(reports.iter().map(|report| report.spec.reporter.clone())),
            listed: listed.into_values().collect(),
            wanted: sorted(wanted.map(called)),
            holder: lease.map(holder).unwrap_or_default(),
            renewed_at: renewed,
            silent: renewed
                .is_none_or(|at| self.found.now.as_second() - at.as_second() >= ZONE_SILENT_SECONDS),
        }
    }

    fn incidents(&self, asked: Option<&str>) -> Subject {
        let lines = self.incident_lines(asked);
        if let Some(asked) = asked.filter(|_| lines.is_empty())
            && !self.found.nodes.iter().any(|node| name(node) == asked)
        {
            return self.no_such_node(asked);
        }
        Subject::Incidents(lines)
    }

    /// The open incidents and the most recent closed ones, or all of one node.
    fn incident_lines(&self, node: Option<&str>) -> Vec<IncidentLine> {
        let asked = |incident: &&NodeIncident| node.is_none_or(|node| incident.spec.node_name == node);
        let mut lines: Vec<IncidentLine> = self
            .found
            .incidents
            .iter()
            .filter(asked)
            .map(incident_line)
            .collect();
        lines.sort_by_key(|line| {
            let newest = line.closed_at.or(line.opened_at);
            (line.closed_at.is_some(), Reverse(newest), line.name.clone())
        });
        let open = lines.iter().filter(|line| line.closed_at.is_none()).count();
        if node.is_none() {
            lines.truncate(open + RECENT);
        }
        lines
    }

    /// Open incidents of nodes that do not exist.
    fn strays(&self) -> Vec<String> {
        let present: BTreeSet<&str> = self
            .found
            .nodes
            .iter()
            .filter_map(|node| node.metadata.uid.as_deref())
            .collect();
        let strays = self
            .open
            .values()
            .filter(|incident| !present.contains(incident.spec.node_uid.as_str()));
        strays
            .map(|incident| {
                format!(
                    "NodeIncident {0} is open, and there is no Node {1} with UID {2}; the leading controller closes it. If \
                     it stays, no controller works: see the first line",
                    name(*incident),
                    incident.spec.node_name,
                    incident.spec.node_uid
                )
            })
            .collect()
    }
}

fn incident_line(incident: &NodeIncident) -> IncidentLine {
    let status = incident.status.clone().unwrap_or_default();
    let first = status.timeline.first().and_then(|row| at(row.time.as_ref()));
    let state = if status.decision.state.is_empty() || status.closed_at.is_some() {
        status.state
    } else {
        status.decision.state
    };
    IncidentLine {
        name: name(incident).to_owned(),
        node: incident.spec.node_name.clone(),
        zone: incident.spec.zone.clone(),
        state,
        reason: status.decision.reason,
        opened_at: at(incident.metadata.creation_timestamp.as_ref()).or(first),
        closed_at: at(status.closed_at.as_ref()),
        decided_by: status.decision.by,
    }
}

/// A latch in words.
fn latch(record: &LatchRecord) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(since) = &record.isolated_since {
        lines.push(format!(
            "Isolated since {}: its Lease was renewed, or its agent wrote, after a round of votes that found it dead. \
             It ends when a majority of its zone vouches for it",
            since.0
        ));
    }
    if let Some(first) = &record.first_dead_round_at {
        lines.push(format!("A round of votes first found it dead at {}", first.0));
        lines.push(match &record.confirmed_at {
            Some(confirmed) => format!("A later round confirmed the death at {}", confirmed.0),
            None => "No later round has confirmed the death yet".to_owned(),
        });
        if let Some(life) = record
            .last_sign_of_life_at
            .as_ref()
            .filter(|_| record.confirmed_at.is_none())
        {
            lines.push(format!(
                "Its last sign of life was seen at {}: its pods are kept from stock eviction until the grace period of \
                 stock Kubernetes is over",
                life.0
            ));
        }
    }
    if !record.stock_pace.is_empty() {
        lines.push(format!(
            "Its pods are evicted no sooner than by stock Kubernetes, because {}",
            record.stock_pace
        ));
    }
    lines
}

/// A name that sorts `shore-10` after `shore-9`.
fn natural(name: &str) -> (String, u64, String) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[stem.len()..].parse().unwrap_or(0);
    (stem.to_owned(), number, name.to_owned())
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    names.sort_by_key(|name| natural(name));
    names
}

/// A value of an enum as policies write it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        other => format!("{other:?}"),
    }
}

fn name(object: &impl kube::Resource) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

fn at(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

fn since(incident: &NodeIncident) -> Option<Timestamp> {
    at(incident.status.as_ref()?.state_since.as_ref())
}

fn is_closed(incident: &NodeIncident) -> bool {
    incident
        .status
        .as_ref()
        .is_some_and(|status| status.closed_at.is_some())
}

fn holder(lease: &Lease) -> String {
    let spec = lease.spec.as_ref();
    spec.and_then(|spec| spec.holder_identity.clone())
        .unwrap_or_default()
}
