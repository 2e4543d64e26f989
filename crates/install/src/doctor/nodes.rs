//! What is wrong with nodes, their agents and the controllers of Kubernetes. Pure.

use super::facts::Facts;
use super::findings::{Found, Severity, is_member, labels, name, zone};
use crate::cluster::has_ended;
use crate::objects::{AGENT, CONTROLLER};
use evenkeel_api::crd::ZoneHealthSpec;
use evenkeel_api::names;
use evenkeel_api::zone::RosterSpec;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A clock that differs by more seconds than this is named. Times in objects are whole seconds.
const CLOCK_SECONDS: i64 = 5;
/// Seconds that admission adds to pods unless the API server is told otherwise.
const USUAL_TOLERATION: i64 = 300;

pub(super) fn agents(facts: &Facts, found: &mut Found) {
    if facts.options.is_none() {
        return;
    }
    let with_agent: BTreeSet<&str> = facts.agents.iter().map(name).collect();
    let without = facts
        .nodes
        .iter()
        .filter(|node| is_member(facts, node) && !with_agent.contains(name(node)));
    let problem = "no agent has registered on";
    let fix =
        format!("kubectl get pods -o wide in Evenkeel's namespace, and the log of DaemonSet {AGENT} there");
    found.about(Severity::Warning, "agents", problem, without.map(name), fix);
    let lacking = facts
        .agents
        .iter()
        .filter(|agent| agent["spec"]["checkProblem"].is_string());
    let problem = "agents cannot make all of their checks:";
    let fix = "kubectl get agentstatuses -o wide says what each lacks (docs/agent.md)";
    found.about(Severity::Warning, "agents", problem, lacking.map(name), fix);
    let unchecked = facts
        .agents
        .iter()
        .filter(|agent| agent["spec"]["kubelet"].is_null());
    let problem = "no vote finds these nodes dead, because their peers cannot check the kubelet of";
    let fix = "see the log of these agents: does the kubelet serve at port 10250 of the node's address?";
    found.about(Severity::Warning, "agents", problem, unchecked.map(name), fix);
}

/// What is newer than this many seconds may still be on its way: an agent acknowledges once a minute.
const SETTLED_SECONDS: i64 = 120;
/// A reporter renews the Lease of its cell every 10 s. Nobody reports where that was not done for so long.
const REPORTER_SECONDS: i64 = 60;

/// Members that no roster has, those that have not taken the roster of their cell, and those that do not hear
/// the others. A node that is not Ready explains all of them.
pub(super) fn cells(facts: &Facts, found: &mut Found) {
    let Some(options) = &facts.options else {
        return;
    };
    let now = facts.server_time.unwrap_or(facts.now).as_second();
    let is_older = |since: Option<jiff::Timestamp>, seconds| {
        now - since.map_or(now, jiff::Timestamp::as_second) > seconds
    };
    let is_old = |since| is_older(since, SETTLED_SECONDS);
    let members = facts
        .nodes
        .iter()
        .filter(|node| is_member(facts, node) && is_ready(node));
    let members: BTreeSet<&str> = members
        .filter_map(|node| node["metadata"]["uid"].as_str())
        .collect();
    let read = |cell: &Value| {
        let spec = serde_json::from_value::<ZoneHealthSpec>(cell["spec"].clone());
        Some((spec.ok()?.read_roster()?, is_old(written(cell))))
    };
    let rosters: Vec<(RosterSpec, bool)> = facts.cells.iter().filter_map(read).collect();
    let (mut outside, mut behind, mut deaf) = (Vec::new(), Vec::new(), Vec::new());
    let mut well: BTreeMap<&str, usize> = BTreeMap::new();
    for agent in &facts.agents {
        let Some(uid) = agent["spec"]["nodeUid"]
            .as_str()
            .filter(|uid| members.contains(uid))
        else {
            continue;
        };
        let (took, mut is_placed) = (&agent["spec"]["roster"], false);
        for (roster, is_old) in &rosters {
            let Some(member) = roster.members.iter().find(|member| member.uid == uid) else {
                continue;
            };
            is_placed = true;
            *well.entry(&roster.cell).or_default() += 1;
            let is_of_cell = took["cellUid"].as_str() == Some(&*roster.cell_uid);
            let has_it = is_of_cell && took["version"].as_i64() >= Some(roster.version);
            let voters = roster.members.iter().filter(|member| !member.learner).count();
            let met = took["metVoters"].as_u64().unwrap_or_default();
            // Agents say what they have taken while it matters, and not before or after.
            if *is_old && !has_it && (member.learner || !roster.settled_voters.is_empty()) {
                behind.push(name(agent));
            } else if *is_old && member.learner && met * 2 <= voters as u64 {
                deaf.push(name(agent));
            }
        }
        if !is_placed && is_old(parse(&agent["metadata"]["creationTimestamp"])) {
            outside.push(name(agent));
        }
    }
    let reports = |roster: &RosterSpec| {
        let lease = names::zone_lease(&roster.cell);
        let lease = facts.leases.iter().find(|found| name(found) == lease);
        lease.is_some_and(|lease| !is_older(written(lease), REPORTER_SECONDS))
    };
    // Reporters are members that reach most of their cell, which takes two at least.
    let silent = rosters.iter().filter(|(roster, is_old)| {
        let well = well.get(&*roster.cell).copied().unwrap_or_default();
        *is_old && well > 1 && well > roster.members.len() / 2 && !reports(roster)
    });
    let silent: Vec<&str> = silent.map(|(roster, _)| &*roster.cell).collect();
    let problem = "agents have registered and are in no cell, so that nobody watches their nodes:";
    let log = format!("kubectl -n {} logs deployment/{CONTROLLER}", options.namespace);
    let fix = format!("{log} says why, for instance that another node claims the key");
    found.about(Severity::Warning, "cells", problem, outside, fix);
    let problem = "agents have not taken the present roster of their cell:";
    let fix = "see their logs: do they trust the key that signs rosters (ConfigMap evenkeel-agent; docs/zone.md, \"Keys of rosters\")?";
    found.about(Severity::Warning, "cells", problem, behind, fix);
    let fix = "let the hosts of a zone reach each other at the agents' UDP port, 7959 by default (firewalls, security groups); then see the agents' logs";
    let problem = "no member reports for these cells, so that no death in them is found early:";
    if facts.saw(&["Lease"]) {
        found.about(Severity::Warning, "peers", problem, silent, fix);
    }
    let problem = "agents hear half of their cell or less, and have no vote:";
    found.about(Severity::Warning, "peers", problem, deaf, fix);
}

fn is_ready(node: &Value) -> bool {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub(super) fn zones(facts: &Facts, found: &mut Found) {
    // By the zone of nodes without a label, which cannot be said.
    if facts.unclear.is_some() || facts.unread.contains(&"--zone-default") {
        return;
    }
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    let mut unlabelled = Vec::new();
    for node in &facts.nodes {
        let labels = labels(node);
        if !takes_agents(&labels) {
            continue;
        }
        match zone(facts, &labels) {
            Some(zone) => *sizes.entry(zone).or_default() += 1,
            None => unlabelled.push(name(node)),
        }
    }
    let problem = "nodes are in no zone, so that stock Kubernetes alone cares for them:";
    let label = names::ZONE_LABELS[0];
    let fix = format!("kubectl label node NODE {label}=ZONE, or --zone-default with install or upgrade");
    found.about(Severity::Warning, "zones", problem, unlabelled, fix);
    let of_size = |size: usize| {
        let found = sizes.iter().filter(move |(_, count)| **count == size);
        found.map(|(zone, _)| zone.as_str())
    };
    let problem = "zones of one node, which has no neighbour to ask:";
    let fix = "put nodes that reach each other into one zone; three or more are a majority";
    found.about(Severity::Warning, "zones", problem, of_size(1), fix);
    let problem = "zones of two nodes, where a death is handled at the pace of stock Kubernetes:";
    let fix = "a third node makes a majority";
    found.about(Severity::Warning, "zones", problem, of_size(2), fix);
}

pub(super) fn stock_controllers(facts: &Facts, found: &mut Found) {
    if !facts.nodes.is_empty() && !facts.has_node_controller_account {
        found.warning(
            "node-controller",
            "there is no ServiceAccount kube-system/node-controller: the stock node controller writes as another user",
            format!(
                "the webhook corrects writes of {}; if an audit log shows another user for patches of nodes/status, tell us",
                names::STOCK_NODE_CONTROLLER_USERS.join(" and ")
            ),
        );
    }
    let Some(seconds) = usual_toleration(&facts.pods) else {
        return;
    };
    let told = facts
        .controller_setting(
            "--default-unreachable-toleration-seconds",
            "EVENKEEL_DEFAULT_UNREACHABLE_TOLERATION_SECONDS",
        )
        .and_then(|told| told.parse().ok())
        .unwrap_or(USUAL_TOLERATION);
    if facts.options.is_some() && seconds != told {
        found.warning(
            "tolerations",
            format!("most pods tolerate unreachable nodes for {seconds} s, and the controller takes {told} s for the default: pods of dead nodes wait longer than they need"),
            format!(
                "kubectl set env deployment/{CONTROLLER} EVENKEEL_DEFAULT_UNREACHABLE_TOLERATION_SECONDS={seconds} in Evenkeel's namespace"
            ),
        );
    }
}

/// The seconds for which most pods tolerate unreachable nodes; `None`: too few pods have any.
fn usual_toleration(pods: &[Value]) -> Option<i64> {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    let all = pods
        .iter()
        .filter_map(|pod| pod["spec"]["tolerations"].as_array())
        .flatten();
    for toleration in all {
        if toleration["key"] == names::taints::UNREACHABLE
            && let Some(seconds) = toleration["tolerationSeconds"].as_i64()
        {
            *counts.entry(seconds).or_default() += 1;
        }
    }
    let (seconds, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (count >= 3).then_some(seconds)
}

pub(super) fn ports(facts: &Facts, found: &mut Found) {
    let home = facts.options.as_ref().map(|options| options.namespace.as_str());
    for (port, protocol) in [(7959, "UDP"), (9851, "TCP")] {
        let takes = |pod: &&Value| {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let mut ports = containers
                .filter_map(|container| container["ports"].as_array())
                .flatten();
            let is_ours = home.is_some() && pod["metadata"]["namespace"].as_str() == home;
            !is_ours
                && ports.any(|taken| {
                    taken["hostPort"] == port && taken["protocol"].as_str().unwrap_or("TCP") == protocol
                })
        };
        let running = facts.pods.iter().filter(|pod| !has_ended(pod));
        let taken = running.filter(takes).map(name);
        let problem = format!("the agents need {protocol} port {port} of every node, which these pods take:");
        let fix = "move these pods to another port";
        found.about(Severity::Error, "ports", &problem, taken, fix);
    }
}

pub(super) fn clocks(facts: &Facts, found: &mut Found) {
    if let Some(server) = facts.server_time {
        let differs = facts.now.as_second() - server.as_second();
        if differs.abs() > CLOCK_SECONDS {
            found.warning(
                "clock",
                format!("this machine's clock is {differs} s from the API server's: `evenkeel status` shows wrong ages"),
                "synchronise this machine's clock",
            );
        }
    }
    let off: Vec<String> = facts
        .node_leases
        .iter()
        .filter_map(|lease| {
            let differs = clock_of(lease)?;
            (differs.abs() > CLOCK_SECONDS).then(|| format!("{} by {differs} s", name(lease)))
        })
        .collect();
    let problem = "clocks of nodes differ from the API server's:";
    let fix = "synchronise them: verdicts do not depend on it, but certificates and logs do";
    let off = off.iter().map(String::as_str);
    found.about(Severity::Note, "clock", problem, off, fix);
}

/// How many seconds a node's clock is ahead: a Lease has the time that its kubelet wrote, and the time at
/// which the API server took it.
fn clock_of(lease: &Value) -> Option<i64> {
    let renewed = parse(&lease["spec"]["renewTime"])?;
    Some(renewed.as_second() - written(lease)?.as_second())
}

/// Whether a node can have an agent: the DaemonSet is for Linux, and for nodes with a host of their own.
pub(super) fn takes_agents(labels: &BTreeMap<String, String>) -> bool {
    let is = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
    let other_system = labels.contains_key("kubernetes.io/os") && !is("kubernetes.io/os", "linux");
    let no_host = is("eks.amazonaws.com/compute-type", "fargate");
    names::kept_out_of_rosters(labels).is_none() && !other_system && !no_host
}

/// When the API server took the last write of an object.
pub(super) fn written(object: &Value) -> Option<jiff::Timestamp> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    entries.iter().filter_map(|entry| parse(&entry["time"])).max()
}

fn parse(time: &Value) -> Option<jiff::Timestamp> {
    time.as_str()?.parse().ok()
}
