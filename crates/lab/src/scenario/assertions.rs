//! Assertions, judged from the record of what happened. Pure.

mod recovery;

use super::step::{Expect, Hold};
use crate::observe::{
    facts::{Change, Watched},
    moment::Moment,
};
use serde::Serialize;
use serde_saphyr::Spanned;
use std::{collections::BTreeMap, time::Duration};

/// What Kubernetes 1.36.2 was recorded to do with its own timers, in seconds after the fault.
pub mod recorded {
    /// Endpoints of a silent node go.
    pub const ENDPOINTS: &str = "44.6 s";
    /// Pods of a silent node are replaced and ready.
    pub const REPLACED: &str = "344.9 s";
    /// StatefulSet pods of a silent node.
    pub const STATEFUL: &str = "never";
    /// Endpoints of a node that is only cut off.
    pub const ENDPOINTS_LOST: &str = "all, at 44.6 s";
    /// Pods of a node that is only cut off.
    pub const PODS_MOVED: &str = "all, at 344.9 s";
    pub const NOTHING: &str = "-";
}

/// The last fault: what assertions count from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    pub at: Duration,
    /// How long it lasts, where it ends by itself.
    pub lasts: Duration,
    /// When the first fault struck since everything was last found ready or clean.
    pub first: Duration,
    /// The node it struck; `None` for what runs beside the nodes.
    pub node: Option<String>,
    /// For people, as in `shore-2 cut off`.
    pub what: String,
    /// Whether the API server hears nothing of the node any more, which is what the recorded numbers are
    /// about.
    pub silences: bool,
}

impl Strike {
    /// A recorded number, where it was recorded for a fault of this kind.
    fn recorded(&self, number: &'static str) -> &'static str {
        if self.silences { number } else { recorded::NOTHING }
    }
}

/// One assertion with what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What was looked at, with the fault it followed.
    pub event: String,
    /// What was looked at, the same words in every run.
    pub measure: &'static str,
    /// What was found, for people.
    pub measured: String,
    /// Seconds since the fault, where that is what was measured.
    pub seconds: Option<f64>,
    /// How many, where that is what was measured.
    pub count: Option<usize>,
    /// What was asked for.
    pub limit: String,
    /// What stock Kubernetes 1.36 was recorded to do.
    pub stock_recorded: &'static str,
    /// Whether the assertion held.
    pub held: bool,
    /// Which objects it is about.
    pub detail: Vec<String>,
}

/// Judges a hold; `until` is its end.
pub fn hold(hold: &Hold, changes: &[Change], strike: &Strike, until: Duration) -> Vec<Finding> {
    let scope = Scope::new(changes, strike, until, &hold.on);
    let mut findings = Vec::new();
    findings.extend(hold.pods_moved.map(|most| count_moved(&scope, most)));
    findings.extend(hold.endpoints_lost.map(|most| count_lost(&scope, most)));
    findings.extend(
        hold.state_changes
            .map(|most| recovery::state_changes(&scope, most)),
    );
    findings
}

/// Judges an expectation; `until` is when it was met, or its deadline.
pub fn expect(expect: &Expect, changes: &[Change], strike: &Strike, until: Duration) -> Vec<Finding> {
    let scope = Scope::new(changes, strike, until, &expect.on);
    let mut findings = Vec::new();
    if let Some(within) = expect.endpoints_out {
        let measured = endpoints_out(changes, strike, until);
        findings.push(timed(
            &strike.what,
            "endpoints out",
            measured,
            within.0,
            strike.recorded(recorded::ENDPOINTS),
        ));
    }
    if let Some(within) = expect.replaced {
        findings.push(timed(
            &strike.what,
            "Deployment pods ready elsewhere",
            replaced(changes, strike, until),
            within.0,
            strike.recorded(recorded::REPLACED),
        ));
    }
    if expect.stateful_not_moved {
        findings.push(stateful(changes, strike, until));
    }
    findings.extend(
        expect
            .endpoints_back
            .map(|within| recovery::endpoints_back(&scope, within.0)),
    );
    findings.extend(
        expect
            .reported
            .as_ref()
            .map(|reported| recovery::reported(&scope, reported)),
    );
    findings.extend(expect.pods_moved.map(|most| count_moved(&scope, most)));
    findings.extend(expect.endpoints_lost.map(|most| count_lost(&scope, most)));
    findings.extend(
        expect
            .state_changes
            .map(|most| recovery::state_changes(&scope, most)),
    );
    findings
}

/// Whether an expectation needs no more time, as things are.
pub fn is_met(expect: &Expect, before: &Moment, now: &Moment, strike: &Strike) -> bool {
    // Endpoints that are there now can still go: what must be back is looked at until its time is over.
    if expect.endpoints_back.is_some() {
        return false;
    }
    let Some(node) = strike.node.as_deref() else {
        return true;
    };
    let reported = expect
        .reported
        .as_ref()
        .is_none_or(|reported| recovery::says(now, node, &reported.state.value));
    let out = expect.endpoints_out.is_none() || !now.has_ready_endpoint_on(node);
    let replaced = expect.replaced.is_none()
        || deployments_on(before, node)
            .iter()
            .all(|((namespace, workload), ready)| {
                now.ready_pods_of(namespace, workload, Some(node)) >= *ready
            });
    reported && out && replaced
}

/// What an assertion is about: the record, the last fault, until when, and on which nodes.
struct Scope<'a> {
    changes: &'a [Change],
    strike: &'a Strike,
    until: Duration,
    on: &'a [Spanned<String>],
}

impl<'a> Scope<'a> {
    fn new(changes: &'a [Change], strike: &'a Strike, until: Duration, on: &'a [Spanned<String>]) -> Self {
        Self {
            changes,
            strike,
            until,
            on,
        }
    }

    /// Whether a node is looked at: no names mean all nodes.
    fn holds(&self, node: &str) -> bool {
        self.on.is_empty() || self.on.iter().any(|name| name.value == node)
    }
}

/// A wait for everything to be clean, as a row of the table.
pub fn cleaned(what: &str, took: Option<Duration>, within: Duration, left: Vec<String>) -> Finding {
    let measured = took.map_or(Measured::Not("not clean".to_owned(), left), Measured::After);
    timed(what, "everything clean", measured, within, recorded::NOTHING)
}

enum Measured {
    After(Duration),
    Not(String, Vec<String>),
}

fn timed(
    what: &str,
    measure: &'static str,
    measured: Measured,
    within: Duration,
    stock_recorded: &'static str,
) -> Finding {
    let limit = format!("<= {:.0} s", within.as_secs_f64());
    let (measured, seconds, held, detail) = match measured {
        Measured::After(took) => {
            let seconds = (took.as_secs_f64() * 10.0).round() / 10.0;
            (
                format!("{seconds:.1} s"),
                Some(seconds),
                took <= within,
                Vec::new(),
            )
        }
        Measured::Not(why, detail) => (why, None, false, detail),
    };
    Finding {
        event: format!("{what}: {measure}"),
        measure,
        measured,
        seconds,
        count: None,
        limit,
        stock_recorded,
        held,
        detail,
    }
}

fn counted(
    scope: &Scope<'_>,
    measure: &'static str,
    found: Vec<String>,
    most: usize,
    stock_recorded: &'static str,
) -> Finding {
    let seconds = since(scope.until, scope.strike);
    Finding {
        event: format!("{}: {measure} in {seconds}", scope.strike.what),
        measure,
        measured: found.len().to_string(),
        seconds: None,
        count: Some(found.len()),
        limit: limit(most),
        stock_recorded,
        held: found.len() <= most,
        detail: found,
    }
}

fn limit(most: usize) -> String {
    if most == 0 {
        "0".to_owned()
    } else {
        format!("<= {most}")
    }
}

/// Pods that were bound when the fault struck, and were deleted or gone at any moment since.
fn count_moved(scope: &Scope<'_>, most: usize) -> Finding {
    let Scope {
        changes,
        strike,
        until,
        ..
    } = *scope;
    let before = Moment::at(changes, strike.at);
    let mut moved: BTreeMap<&str, String> = BTreeMap::new();
    for change in between(changes, strike.at, until) {
        let uid = match &change.what {
            Watched::Pod(pod) if pod.deleting => &pod.uid,
            Watched::Gone(_, uid) => uid,
            _ => continue,
        };
        if let Some(pod) = before.pod(uid)
            && !pod.deleting
            && !pod.node.is_empty()
            && scope.holds(&pod.node)
        {
            let seconds = since(change.at, strike);
            moved
                .entry(pod.uid.as_str())
                .or_insert_with(|| format!("{} on {} after {seconds}", pod.name, pod.node));
        }
    }
    counted(
        scope,
        "pods moved",
        moved.into_values().collect(),
        most,
        strike.recorded(recorded::PODS_MOVED),
    )
}

/// Endpoints that were ready when the fault struck, and were not at any moment since.
fn count_lost(scope: &Scope<'_>, most: usize) -> Finding {
    let Scope {
        changes,
        strike,
        until,
        ..
    } = *scope;
    let mut moment = Moment::at(changes, strike.at);
    let before = moment.clone();
    let mut lost: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for change in between(changes, strike.at, until) {
        moment.apply(&change.what);
        let ready = moment.ready_endpoints();
        let looked_at = before
            .endpoints()
            .filter(|(_, endpoint)| endpoint.ready && scope.holds(&endpoint.node));
        for (service, endpoint) in looked_at {
            let key = (service, endpoint.target.as_str());
            if !ready.contains(&key) {
                let seconds = since(change.at, strike);
                lost.entry(key).or_insert_with(|| {
                    format!(
                        "{} of {service} on {} after {seconds}",
                        endpoint.name, endpoint.node
                    )
                });
            }
        }
    }
    counted(
        scope,
        "endpoints lost",
        lost.into_values().collect(),
        most,
        strike.recorded(recorded::ENDPOINTS_LOST),
    )
}

/// When the last ready endpoint of the struck node went, for good.
fn endpoints_out(changes: &[Change], strike: &Strike, until: Duration) -> Measured {
    let Some(node) = strike.node.as_deref() else {
        return nothing_struck();
    };
    let mut moment = Moment::at(changes, strike.at);
    if !moment.has_ready_endpoint_on(node) {
        return Measured::Not(
            "had none".to_owned(),
            vec![format!("{node} had no ready endpoint to lose")],
        );
    }
    let mut out = None;
    for change in between(changes, strike.at, until) {
        moment.apply(&change.what);
        if moment.has_ready_endpoint_on(node) {
            out = None;
        } else if out.is_none() {
            out = Some(change.at.saturating_sub(strike.at));
        }
    }
    out.map_or_else(
        || {
            let left = moment
                .endpoints()
                .filter(|(_, endpoint)| endpoint.ready && endpoint.node == node);
            let left =
                left.map(|(service, endpoint)| format!("{} is still ready in {service}", endpoint.name));
            Measured::Not(format!("not in {}", since(until, strike)), left.collect())
        },
        Measured::After,
    )
}

/// When the Deployments that had pods on the struck node had as many ready pods elsewhere as they had in all.
fn replaced(changes: &[Change], strike: &Strike, until: Duration) -> Measured {
    let Some(node) = strike.node.as_deref() else {
        return nothing_struck();
    };
    let mut moment = Moment::at(changes, strike.at);
    let wanted = deployments_on(&moment, node);
    if wanted.is_empty() {
        return Measured::Not(
            "had none".to_owned(),
            vec![format!("{node} ran no Deployment pod")],
        );
    }
    let missing = |moment: &Moment| -> Vec<String> {
        wanted
            .iter()
            .filter_map(|((namespace, workload), ready)| {
                let elsewhere = moment.ready_pods_of(namespace, workload, Some(node));
                (elsewhere < *ready).then(|| format!("{workload}: {elsewhere} of {ready} ready elsewhere"))
            })
            .collect()
    };
    for change in between(changes, strike.at, until) {
        moment.apply(&change.what);
        if missing(&moment).is_empty() {
            return Measured::After(change.at.saturating_sub(strike.at));
        }
    }
    Measured::Not(format!("not in {}", since(until, strike)), missing(&moment))
}

/// StatefulSet pods of the struck node: the same pods at the end, and not on another node.
fn stateful(changes: &[Change], strike: &Strike, until: Duration) -> Finding {
    let (before, after) = (Moment::at(changes, strike.at), Moment::at(changes, until));
    let node = strike.node.as_deref().unwrap_or_default();
    let pods: Vec<_> = before
        .pods()
        .filter(|pod| pod.node == node && pod.workload.starts_with("statefulset/"))
        .collect();
    let moved: Vec<String> = pods
        .iter()
        .filter(|pod| after.pod(&pod.uid).is_none())
        .map(|pod| format!("{} was on {node} and is gone", pod.name))
        .collect();
    let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    let missing: Vec<String> = after
        .open_incidents()
        .filter(|incident| incident.node == node && !incident.missing.is_empty())
        .map(|incident| incident.missing.clone())
        .collect();
    let (measured, held, detail) = if pods.is_empty() {
        (
            "had none".to_owned(),
            false,
            vec![format!("{node} ran no StatefulSet pod")],
        )
    } else if !moved.is_empty() {
        ("moved".to_owned(), false, moved)
    } else if missing.is_empty() {
        ("not moved".to_owned(), true, Vec::new())
    } else {
        ("not moved: no fence proof".to_owned(), true, missing)
    };
    Finding {
        event: format!("{}: StatefulSet pod {}", strike.what, names.join(", ")),
        measure: "StatefulSet pods not moved",
        measured,
        seconds: None,
        count: None,
        limit: "not moved".to_owned(),
        stock_recorded: strike.recorded(recorded::STATEFUL),
        held,
        detail,
    }
}

/// Deployments with pods on a node, and how many ready pods each has in all.
fn deployments_on(moment: &Moment, node: &str) -> BTreeMap<(String, String), usize> {
    moment
        .pods()
        .filter(|pod| {
            pod.node == node && pod.workload.starts_with("deployment/") && pod.ready && !pod.deleting
        })
        .map(|pod| {
            let ready = moment.ready_pods_of(&pod.namespace, &pod.workload, None);
            ((pod.namespace.clone(), pod.workload.clone()), ready)
        })
        .collect()
}

fn nothing_struck() -> Measured {
    Measured::Not(
        "no node".to_owned(),
        vec!["the last fault struck no node".to_owned()],
    )
}

fn between(changes: &[Change], after: Duration, until: Duration) -> impl Iterator<Item = &Change> {
    changes
        .iter()
        .filter(move |change| change.at > after && change.at <= until)
}

fn since(time: Duration, strike: &Strike) -> String {
    format!("{:.1} s", time.saturating_sub(strike.at).as_secs_f64())
}

#[cfg(test)]
mod tests;
