//! Whether things came back, and how often a node's state changed on the way. Pure.

use super::{Finding, Measured, Scope, between, limit, recorded, since, timed};
use crate::observe::{facts::Watched, moment::Moment};
use crate::scenario::step::Reported;
use std::{collections::BTreeMap, time::Duration};

/// When every endpoint that was ready before the first fault was ready again for good, counted from the end
/// of the last fault. Endpoints that are lost and come back before that end count as back at once.
pub(super) fn endpoints_back(scope: &Scope<'_>, within: Duration) -> Finding {
    let (strike, on) = (scope.strike, |node: &str| scope.holds(node));
    let before = Moment::at(scope.changes, strike.first);
    let end = strike.at + strike.lasts;
    let mut moment = Moment::at(scope.changes, end.min(scope.until));
    let mut back = missing(&before, &moment, &on)
        .is_empty()
        .then_some(Duration::ZERO);
    for change in between(scope.changes, end, scope.until) {
        moment.apply(&change.what);
        let whole = missing(&before, &moment, &on).is_empty();
        back = match back {
            _ if !whole => None,
            None => Some(change.at.saturating_sub(end)),
            earlier => earlier,
        };
    }
    let measured = back.map_or_else(
        || {
            let left = missing(&before, &moment, &on);
            Measured::Not(format!("not in {}", since(scope.until, strike)), left)
        },
        Measured::After,
    );
    timed(
        &strike.what,
        "endpoints back",
        measured,
        within,
        recorded::NOTHING,
    )
}

/// Endpoints that were ready at one moment and are not at another.
fn missing(before: &Moment, now: &Moment, on: &dyn Fn(&str) -> bool) -> Vec<String> {
    let ready = now.ready_endpoints();
    let lost = before.endpoints().filter(|(service, endpoint)| {
        endpoint.ready && on(&endpoint.node) && !ready.contains(&(*service, endpoint.target.as_str()))
    });
    lost.map(|(service, endpoint)| format!("{} of {service} on {} is not back", endpoint.name, endpoint.node))
        .collect()
}

/// When an incident of the struck node first said so.
pub(super) fn reported(scope: &Scope<'_>, wanted: &Reported) -> Finding {
    let strike = scope.strike;
    let mut moment = Moment::at(scope.changes, strike.at);
    let mut found = None;
    if let Some(node) = strike.node.as_deref() {
        let state = wanted.state.value.as_str();
        found = says(&moment, node, state).then_some(Duration::ZERO);
        for change in between(scope.changes, strike.at, scope.until) {
            moment.apply(&change.what);
            if found.is_none() && says(&moment, node, state) {
                found = Some(change.at.saturating_sub(strike.at));
            }
        }
    }
    let measured = found.map_or_else(
        || {
            let seen = moment.open_incidents();
            let seen = seen.map(|incident| format!("{} is judged {}", incident.node, incident.state));
            Measured::Not(format!("not in {}", since(scope.until, strike)), seen.collect())
        },
        Measured::After,
    );
    let what = format!("{} ({})", strike.what, wanted.state.value);
    timed(&what, "reported", measured, wanted.within.0, recorded::NOTHING)
}

/// Whether an open incident of the node names the state.
pub(super) fn says(moment: &Moment, node: &str, state: &str) -> bool {
    moment
        .open_incidents()
        .any(|incident| incident.node == node && incident.state == state)
}

/// How often the state of each node changed since the last fault. The end of an incident is a change as well.
pub(super) fn state_changes(scope: &Scope<'_>, most: usize) -> Finding {
    let strike = scope.strike;
    let mut moment = Moment::at(scope.changes, strike.at);
    let mut states = states_of(&moment);
    let mut counts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for change in between(scope.changes, strike.at, scope.until) {
        if !matches!(change.what, Watched::Incident(_) | Watched::Gone(..)) {
            continue;
        }
        moment.apply(&change.what);
        let now = states_of(&moment);
        let nodes = states
            .keys()
            .chain(now.keys())
            .collect::<std::collections::BTreeSet<_>>();
        for node in nodes.into_iter().filter(|node| scope.holds(node)) {
            if states.get(node) != now.get(node) {
                let state = now.get(node).map_or("over", String::as_str);
                let told = format!("{state} after {}", since(change.at, strike));
                counts.entry(node.clone()).or_default().push(told);
            }
        }
        states = now;
    }
    let highest = counts.values().map(Vec::len).max().unwrap_or(0);
    let told = counts
        .iter()
        .filter(|(_, changes)| changes.len() > most)
        .map(|(node, changes)| format!("{node}: {}", changes.join(", ")));
    Finding {
        event: format!(
            "{}: state changes of a node in {}",
            strike.what,
            since(scope.until, strike)
        ),
        measure: "state changes of a node",
        measured: highest.to_string(),
        seconds: None,
        count: Some(highest),
        limit: limit(most),
        stock_recorded: recorded::NOTHING,
        held: highest <= most,
        detail: told.collect(),
    }
}

/// The state of each node that has an open incident with one.
fn states_of(moment: &Moment) -> BTreeMap<String, String> {
    let named = moment
        .open_incidents()
        .filter(|incident| !incident.state.is_empty());
    named
        .map(|incident| (incident.node.clone(), incident.state.clone()))
        .collect()
}
