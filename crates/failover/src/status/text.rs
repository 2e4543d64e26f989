//! A report as people read it: tables and paragraphs, without colours. Pure.

use super::report::{
    Controller, IncidentLine, Leader, Mode, NodeLine, Report, Row, Story, Subject, ZoneLine,
};
use evenkeel_api::names;
use evenkeel_kube_values::duration;
use evenkeel_kube_values::terminal::{clean, table};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Members of a zone that are named in its line; further ones are counted.
const NAMED: usize = 4;

/// The report as text; every line ends with a line feed. `wide` adds columns.
pub fn text(report: &Report, wide: bool) -> String {
    let now = report.taken_at;
    let mut text = String::new();
    if let Some(why) = &report.pause {
        let why = if why.is_empty() { "no reason given" } else { why };
        line(
            &mut text,
            &format!(
                "PAUSED: {why}. Evenkeel decides and records, and changes nothing. To resume: kubectl annotate namespace {} {}-",
                report.namespace,
                names::annotations::PAUSE
            ),
        );
    }
    line(&mut text, &controller(&report.controller, &report.namespace, now));
    match &report.subject {
        Subject::Nodes(lines) => nodes(&mut text, lines, wide, now),
        Subject::Node(story) => node(&mut text, story, now),
        Subject::Zones(lines) => zones(&mut text, lines, wide, now),
        Subject::Incidents(lines) => incidents(&mut text, lines, wide, now),
        Subject::Unknown(_) => {}
    }
    if !report.troubles.is_empty() {
        text.push_str("\nNot read, or not as it should be:\n");
        for trouble in &report.troubles {
            line(&mut text, &format!("  {trouble}"));
        }
    }
    text
}

/// Who decides, and whether it is at work.
fn controller(controller: &Controller, namespace: &str, now: Timestamp) -> String {
    let replicas = match controller.working_replicas.len() {
        0 => "no replica shows that it works".to_owned(),
        1 => "1 replica works".to_owned(),
        many => format!("{many} replicas work"),
    };
    let renewed = |renewed: Option<Timestamp>| match renewed {
        None => "never renewed its Lease".to_owned(),
        Some(at) if at > now => format!(
            "renewed its Lease {} ahead of this machine's clock (the clocks differ)",
            span(at, now)
        ),
        Some(at) => format!("renewed its Lease {} ago by this machine's clock", span(at, now)),
    };
    match &controller.leader {
        Leader::Works(term) => format!(
            "Controller: {} leads since {}, and {}; {replicas}.",
            term.name,
            ago(term.since, now),
            renewed(term.renewed_at)
        ),
        Leader::Silent(term) => format!(
            "NO CONTROLLER WORKS: {} holds the Lease {}/{}, but {}; {replicas}. What follows is what it decided last. \
             If the clocks agree, look at the controller: kubectl -n {} get pods,leases",
            term.name,
            namespace,
            names::CONTROLLER_LEASE,
            renewed(term.renewed_at),
            namespace
        ),
        Leader::None => format!(
            "NO CONTROLLER WORKS: nobody holds the Lease {}/{}; {replicas}. Stock Kubernetes acts alone. Start \
             `evenkeel controller`, or look at it: kubectl -n {} get pods,leases",
            namespace,
            names::CONTROLLER_LEASE,
            namespace
        ),
    }
}

fn nodes(text: &mut String, lines: &[NodeLine], wide: bool, now: Timestamp) {
    let mut rows = vec![cells(&["NODE", "STATE", "SINCE", "MODE"])];
    if wide {
        rows[0].extend(cells(&["ZONE", "AGENT", "READY", "INCIDENT", "DECIDED", "BY"]));
    }
    rows[0].push("REASON".to_owned());
    for node in lines {
        let mut row = vec![
            node.name.clone(),
            node.state.clone(),
            ago(node.since, now),
            mode(node.mode).to_owned(),
        ];
        if wide {
            row.extend([
                or_dash(node.zone.as_deref()),
                if node.watched { "watched" } else { "none" }.to_owned(),
                node.ready.clone(),
                or_dash(node.incident.as_deref()),
                ago(node.decided_at, now),
                or_dash(node.decided_by.as_deref()),
            ]);
        }
        let old = if node.older_than_leader {
            " (decided before the present leader led)"
        } else {
            ""
        };
        row.push(format!("{}{old}", node.reason));
        rows.push(row);
    }
    text.push_str(&table(&rows));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in lines {
        *counts.entry(&node.state).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let counts = if counts.is_empty() {
        String::new()
    } else {
        format!(": {}", counts.join("; "))
    };
    line(text, &format!("{} nodes{counts}", lines.len()));
    if lines.iter().any(|node| !node.is_healthy()) {
        line(text, "The whole explanation of one: evenkeel status NODE");
    }
}

fn node(text: &mut String, story: &Story, now: Timestamp) {
    text.push('\n');
    match &story.present {
        None => line(text, &format!("Node {} does not exist any more.", story.name)),
        Some(node) => {
            let since = node
                .since
                .map(|at| format!(", since {} ({at})", span(at, now)))
                .unwrap_or_default();
            line(text, &format!("Node {}: {}{since}", node.name, node.state));
            line(text, &format!("Why: {}.", node.reason));
            if let (Some(by), Some(at)) = (&node.decided_by, node.decided_at) {
                line(text, &format!("Decided by {by} {} ago ({at}).", span(at, now)));
            }
            if node.older_than_leader {
                line(
                    text,
                    "This decision is older than the present leader, which has not decided anew; expect it within seconds.",
                );
            }
            let mode = match node.mode {
                Mode::Act => "act: Evenkeel decides and acts",
                Mode::Observe => "observe: Evenkeel decides and records, and changes nothing",
                Mode::Paused => "paused: Evenkeel decides and records, and changes nothing",
            };
            line(text, &format!("Mode: {mode}."));
            let zone = match (&node.zone, node.watched) {
                (Some(zone), true) => format!("{zone}; its neighbours watch it"),
                (Some(zone), false) => {
                    format!("{zone}; no agent of the node is in its roster, so it is stock Kubernetes")
                }
                (None, _) => "none by its labels; without a zone it is stock Kubernetes".to_owned(),
            };
            line(text, &format!("Zone: {zone}."));
            line(text, &format!("Condition Ready: {}", node.ready));
            if !story.added_taints.is_empty() {
                line(text, &format!("Taints of Evenkeel: {}", story.added_taints));
            }
            if let Some(incident) = &node.incident {
                line(text, &format!("Incident: {incident}"));
            }
        }
    }
    list(text, "Evidence, as of the decision", &story.evidence);
    list(text, "What would change the decision", &story.changes);
    list(text, "Remembered until there is evidence of life", &story.latch);
    if !story.fence_missing.is_empty() {
        list(text, "Stateful pods", std::slice::from_ref(&story.fence_missing));
    }
    if !story.settings.is_empty() {
        text.push_str("\nSettings:\n");
        let rows: Vec<Vec<String>> = story
            .settings
            .iter()
            .map(|setting| {
                vec![
                    format!("  {}", setting.name),
                    setting.value.clone(),
                    setting.from.clone(),
                ]
            })
            .collect();
        text.push_str(&table(&rows));
    }
    list(text, "Not in effect", &story.not_in_effect);
    let over = story.present.as_ref().is_none_or(|node| node.incident.is_none());
    timeline(
        text,
        &story.timeline,
        if over {
            "Timeline of the last incident"
        } else {
            "Timeline"
        },
    );
    if !story.earlier.is_empty() {
        text.push_str("\nEarlier incidents:\n");
        let rows: Vec<Vec<String>> = story
            .earlier
            .iter()
            .map(|one| {
                let ended = match one.closed_at {
                    Some(at) => format!("ended {} ago", span(at, now)),
                    None => "open".to_owned(),
                };
                vec![
                    format!("  {}", one.name),
                    format!("opened {} ago", ago(one.opened_at, now)),
                    ended,
                ]
            })
            .collect();
        text.push_str(&table(&rows));
    }
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    line(text, "");
    line(text, &format!("{title}:"));
    for one in lines {
        line(text, &format!("  - {one}"));
    }
}

fn timeline(text: &mut String, rows: &[Row], title: &str) {
    if rows.is_empty() {
        return;
    }
    line(text, "");
    line(text, &format!("{title}:"));
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let time = row.time.map(|time| time.to_string()).unwrap_or_default();
            vec![format!("  {time}"), row.event.clone(), row.message.clone()]
        })
        .collect();
    text.push_str(&table(&rows));
}

fn zones(text: &mut String, lines: &[ZoneLine], wide: bool, now: Timestamp) {
    let mut rows = vec![cells(&[
        "ZONE",
        "MEMBERS",
        "REPORTERS",
        "RENEWED",
        "LISTED",
        "WANTED",
    ])];
    if wide {
        rows[0].extend(cells(&[
            "ROSTER",
            "LEASE HELD BY",
            "WITHOUT AGENT",
            "MEMBER NAMES",
        ]));
    }
    for zone in lines {
        let listed = zone
            .listed
            .iter()
            .map(|one| format!("{} {}", one.name, one.verdict.to_lowercase()));
        let renewed = match zone.renewed_at {
            None => "never".to_owned(),
            Some(_) if zone.silent => format!("{} (silent)", ago(zone.renewed_at, now)),
            Some(_) => ago(zone.renewed_at, now),
        };
        let several = lines
            .iter()
            .any(|other| other.zone == zone.zone && other.cell != zone.cell);
        let mut row = vec![
            if several {
                format!("{} (cell {})", zone.zone, zone.cell)
            } else {
                zone.zone.clone()
            },
            members_of(zone),
            some(zone.reporters.clone(), wide),
            renewed,
            some(listed.collect(), wide),
            some(zone.wanted.clone(), wide),
        ];
        if wide {
            row.extend([
                format!("version {}", zone.roster_version),
                or_dash(Some(&zone.holder)),
                some(zone.without_agent.clone(), true),
                some(zone.members.clone(), true),
            ]);
        }
        rows.push(row);
    }
    text.push_str(&table(&rows));
    if lines.is_empty() {
        line(text, "No zone: no node with a zone label runs an agent.");
    }
}

fn incidents(text: &mut String, lines: &[IncidentLine], wide: bool, now: Timestamp) {
    let mut rows = vec![cells(&["INCIDENT", "NODE", "STATE", "OPENED", "ENDED"])];
    if wide {
        rows[0].extend(cells(&["ZONE", "BY", "REASON"]));
    }
    for one in lines {
        let ended = one
            .closed_at
            .map_or_else(|| "open".to_owned(), |_| ago(one.closed_at, now));
        let mut row = vec![
            one.name.clone(),
            one.node.clone(),
            or_dash(Some(&one.state)),
            ago(one.opened_at, now),
            ended,
        ];
        if wide {
            row.extend([
                or_dash(Some(&one.zone)),
                or_dash(Some(&one.decided_by)),
                or_dash(Some(&one.reason)),
            ]);
        }
        rows.push(row);
    }
    text.push_str(&table(&rows));
    let open = lines.iter().filter(|one| one.closed_at.is_none()).count();
    line(text, &format!("{open} open, {} ended", lines.len() - open));
}

fn line(text: &mut String, content: &str) {
    text.push_str(&clean(content));
    text.push('\n');
}

fn cells(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The names, or the first few of them and how many more there are.
fn some(names: Vec<String>, all: bool) -> String {
    if names.is_empty() {
        return "-".to_owned();
    }
    if all || names.len() <= NAMED {
        return names.join(", ");
    }
    format!("{} and {} more", names[..NAMED].join(", "), names.len() - NAMED)
}

fn or_dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Act => "act",
        Mode::Observe => "observe",
        Mode::Paused => "paused",
    }
}

fn ago(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(|| "-".to_owned(), |at| span(at, now))
}

/// How many members a cell has, how many of them have no vote yet, and whether its roster is still to settle.
fn members_of(zone: &ZoneLine) -> String {
    let mut notes = Vec::new();
    match zone.learners.len() {
        0 => {}
        1 => notes.push("1 learner".to_owned()),
        count => notes.push(format!("{count} learners")),
    }
    if !zone.settled {
        notes.push("not settled".to_owned());
    }
    let count = zone.members.len();
    if notes.is_empty() {
        count.to_string()
    } else {
        format!("{count} ({})", notes.join(", "))
    }
}

/// The time between two instants as kubectl writes ages.
fn span(one: Timestamp, other: Timestamp) -> String {
    duration::human((other.as_second() - one.as_second()).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_counted_unless_all_are_asked_for() {
        let names: Vec<String> = (1..=6).map(|number| format!("n{number}")).collect();
        assert_eq!(some(names.clone(), false), "n1, n2, n3, n4 and 2 more");
        assert_eq!(some(names, true), "n1, n2, n3, n4, n5, n6");
        assert_eq!(some(Vec::new(), true), "-");
    }
}
