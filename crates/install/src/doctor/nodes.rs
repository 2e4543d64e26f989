//! What is wrong with nodes, their agents and the controllers of Kubernetes. Pure.

use super::facts::Facts;
use super::findings::{Found, is_member, labels, listed, name, zone};
use crate::objects::{AGENT, AGENT_SETTINGS, CONTROLLER};
use evenkeel_api::crd::ZoneHealthSpec;
use evenkeel_api::names;
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
    let without: Vec<&str> = without.map(name).collect();
    if !without.is_empty() {
        found.warning(
            "agents",
            format!("no agent has registered on {}", listed(without)),
            format!(
                "kubectl get pods -o wide in Evenkeel's namespace, and the log of DaemonSet {AGENT} there"
            ),
        );
    }
    let which = |test: &dyn Fn(&Value) -> bool| -> Vec<&str> {
        facts
            .agents
            .iter()
            .filter(|agent| test(agent))
            .map(name)
            .collect()
    };
    let lacking = which(&|agent| agent["spec"]["checkProblem"].is_string());
    if !lacking.is_empty() {
        found.warning(
            "agents",
            format!("agents cannot make all of their checks: {}", listed(lacking)),
            "kubectl get agentstatuses -o wide says what each lacks (docs/agent.md)",
        );
    }
    let unchecked = which(&|agent| agent["spec"]["kubelet"].is_null());
    if !unchecked.is_empty() {
        found.warning(
            "agents",
            format!(
                "peers cannot check the kubelet of {}, so that no vote finds these nodes dead",
                listed(unchecked)
            ),
            "see the log of these agents: does the kubelet serve at port 10250 of the node's address?",
        );
    }
}

/// What is newer than this many seconds may still be on its way: an agent acknowledges once a minute.
const SETTLED_SECONDS: i64 = 120;

/// Members that no roster has, and those that have not taken the roster of their cell. A node that is not
/// Ready explains both.
pub(super) fn cells(facts: &Facts, found: &mut Found) {
    let Some(options) = &facts.options else {
        return;
    };
    let now = facts.server_time.unwrap_or(facts.now).as_second();
    let is_old =
        |since: Option<jiff::Timestamp>| since.is_some_and(|since| now - since.as_second() > SETTLED_SECONDS);
    let members: BTreeMap<&str, &str> = facts
        .nodes
        .iter()
        .filter(|node| is_member(facts, node) && is_ready(node))
        .filter_map(|node| Some((node["metadata"]["uid"].as_str()?, name(node))))
        .collect();
    let said: BTreeMap<&str, &Value> = facts
        .agents
        .iter()
        .filter_map(|agent| Some((agent["spec"]["nodeUid"].as_str()?, agent)))
        .filter(|(uid, _)| members.contains_key(uid))
        .collect();
    let (mut placed, mut behind) = (BTreeSet::new(), BTreeSet::new());
    for cell in &facts.cells {
        let spec = serde_json::from_value::<ZoneHealthSpec>(cell["spec"].clone());
        let Some(roster) = spec.ok().and_then(|spec| spec.read_roster()) else {
            continue;
        };
        let is_old = is_old(written(cell));
        for member in &roster.members {
            placed.insert(member.uid.clone());
            let Some(agent) = said.get(&*member.uid) else {
                continue;
            };
            let took = &agent["spec"]["roster"];
            let is_of_cell = took["cellUid"].as_str() == Some(&*roster.cell_uid);
            let has_it = is_of_cell && took["version"].as_i64() >= Some(roster.version);
            // Agents say what they have taken while it matters, and not before or after.
            if is_old && !has_it && (member.learner || !roster.settled_voters.is_empty()) {
                behind.insert(name(agent));
            }
        }
    }
    let outside = said.iter().filter(|(uid, agent)| {
        !placed.contains(**uid) && is_old(parse(&agent["metadata"]["creationTimestamp"]))
    });
    let outside: Vec<&str> = outside.map(|(_, agent)| name(agent)).collect();
    if !outside.is_empty() {
        found.warning(
            "cells",
            format!("agents have registered and are in no cell, so that nobody watches their nodes: {}", listed(outside)),
            format!(
                "kubectl -n {} logs deployment/{CONTROLLER} says why, for instance that another node claims the key",
                options.namespace
            ),
        );
    }
    if !behind.is_empty() {
        found.warning(
            "cells",
            format!("agents have not taken the present roster of their cell: {}", listed(behind)),
            format!(
                "see their logs: do they trust the key that signs rosters (ConfigMap {}; docs/zone.md, \"Keys of rosters\")?",
                AGENT_SETTINGS.0
            ),
        );
    }
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
        if names::kept_out_of_rosters(&labels).is_some() {
            continue;
        }
        match zone(facts, &labels) {
            Some(zone) => *sizes.entry(zone).or_default() += 1,
            None => unlabelled.push(name(node)),
        }
    }
    if !unlabelled.is_empty() {
        found.warning(
            "zones",
            format!(
                "nodes are in no zone, so that stock Kubernetes alone cares for them: {}",
                listed(unlabelled)
            ),
            format!(
                "kubectl label node NODE {}=ZONE, or --zone-default with install or upgrade",
                names::ZONE_LABELS[0]
            ),
        );
    }
    let of_size = |size: usize| -> Vec<&str> {
        sizes
            .iter()
            .filter(|(_, count)| **count == size)
            .map(|(zone, _)| zone.as_str())
            .collect()
    };
    let (alone, pairs) = (of_size(1), of_size(2));
    if !alone.is_empty() {
        found.warning(
            "zones",
            format!(
                "zones of one node, which has no neighbour to ask: {}",
                listed(alone)
            ),
            "put nodes that reach each other into one zone; three or more are a majority",
        );
    }
    if !pairs.is_empty() {
        found.warning(
            "zones",
            format!(
                "zones of two nodes, where a death is handled at the pace of stock Kubernetes: {}",
                listed(pairs)
            ),
            "a third node makes a majority",
        );
    }
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
        let taken: Vec<&str> = facts.pods.iter().filter(takes).map(name).collect();
        if !taken.is_empty() {
            found.error(
                "ports",
                format!(
                    "the agents need {protocol} port {port} of every node, which these pods take: {}",
                    listed(taken)
                ),
                "move these pods to another port",
            );
        }
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
    if !off.is_empty() {
        found.note(
            "clock",
            format!(
                "clocks of nodes differ from the API server's: {}",
                listed(off.iter().map(String::as_str))
            ),
            "synchronise them: verdicts do not depend on it, but certificates and logs do",
        );
    }
}

/// How many seconds a node's clock is ahead: a Lease has the time that its kubelet wrote, and the time at
/// which the API server took it.
fn clock_of(lease: &Value) -> Option<i64> {
    let renewed = parse(&lease["spec"]["renewTime"])?;
    Some(renewed.as_second() - written(lease)?.as_second())
}

/// When the API server took the last write of an object.
fn written(object: &Value) -> Option<jiff::Timestamp> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    entries.iter().filter_map(|entry| parse(&entry["time"])).max()
}

fn parse(time: &Value) -> Option<jiff::Timestamp> {
    time.as_str()?.parse().ok()
}
