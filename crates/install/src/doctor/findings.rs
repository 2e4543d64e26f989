//! What is wrong with a cluster or an installation, as a list of findings. Pure.

use super::facts::{Facts, PARTS, REACHED_SO, Reach};
use super::nodes::{self, agents, cells, clocks, ports, stock_controllers, zones};
use crate::cluster::{REPLACED_KINDS, has_ended};
use crate::error::InstallError;
use crate::objects::{AGENT, CONTROLLER, objects};
use crate::rollout::{Progress, progress};
use evenkeel_api::compare::says;
use evenkeel_api::names::{self, annotations};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Names that a finding lists; further ones are counted.
const NAMED: usize = 3;
/// A replica's Lease that was not renewed for this many seconds shows nothing any more.
const SILENT_SECONDS: i64 = 15;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Evenkeel does not work.
    Error,
    /// It protects less than it could.
    Warning,
    /// Good to know.
    Note,
}

/// One thing, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Which check found it.
    pub check: &'static str,
    /// What is wrong, and where.
    pub problem: String,
    /// What to do.
    pub fix: String,
}

/// A check, and the kinds without which it would find what is not so.
type Check = (fn(&Facts, &mut Found), &'static [&'static str]);

/// All findings, the worst first.
pub(crate) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Found::default();
    let checks: [Check; 12] = [
        (readable, &[]),
        (installed, &[]),
        (parts, &[]),
        (workloads, &["Deployment", "DaemonSet", "Pod", "AgentStatus"]),
        (replicas, &["Lease"]),
        (webhook, &["MutatingWebhookConfiguration"]),
        (agents, &["Node", "AgentStatus"]),
        (cells, &["Node", "AgentStatus", "ZoneHealth"]),
        (zones, &["Node", "Deployment", "DaemonSet"]),
        (stock_controllers, &["ServiceAccount", "Deployment"]),
        (ports, &[]),
        (clocks, &[]),
    ];
    for (check, kinds) in checks {
        if facts.saw(kinds) {
            check(facts, &mut found);
        }
    }
    let mut findings = found.0;
    findings.sort_by_key(|finding| finding.severity);
    findings
}

#[derive(Default)]
pub(super) struct Found(Vec<Finding>);

impl Found {
    fn add(
        &mut self,
        severity: Severity,
        check: &'static str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.0.push(Finding {
            severity,
            check,
            problem: problem.into(),
            fix: fix.into(),
        });
    }

    /// The same about objects, which it names at the end; nothing where there are none.
    pub(super) fn about<'a>(
        &mut self,
        severity: Severity,
        check: &'static str,
        problem: &str,
        objects: impl IntoIterator<Item = &'a str>,
        fix: impl Into<String>,
    ) {
        let objects = listed(objects);
        if !objects.is_empty() {
            self.add(severity, check, format!("{problem} {objects}"), fix);
        }
    }

    pub(super) fn error(&mut self, check: &'static str, problem: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Error, check, problem, fix);
    }

    pub(super) fn warning(
        &mut self,
        check: &'static str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(Severity::Warning, check, problem, fix);
    }

    pub(super) fn note(&mut self, check: &'static str, problem: impl Into<String>, fix: impl Into<String>) {
        self.add(Severity::Note, check, problem, fix);
    }
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// With the namespace, where it has one.
fn full_name(object: &Value) -> String {
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", name(object)),
        None => name(object).to_owned(),
    }
}

pub(super) fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// `a, b, c and 4 more`.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.into_iter().collect();
    let first = all[..all.len().min(NAMED)].join(", ");
    match all.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!("{first} and {more} more"),
        _ => first,
    }
}

/// What to do where something cannot be read.
pub(super) fn fix_of(trouble: &InstallError) -> &'static str {
    match trouble {
        InstallError::Read {
            is_forbidden: true, ..
        } => "run doctor with the rights of a cluster reader",
        _ => "see to the API server, and run doctor again",
    }
}

fn readable(facts: &Facts, found: &mut Found) {
    for (_, trouble) in &facts.troubles {
        found.warning("reading", trouble.to_string(), fix_of(trouble));
    }
    if let Some(note) = &facts.version_note {
        found.warning(
            "version",
            note.clone(),
            "begin with mode observe, and read the CHANGELOG for the versions that were tried",
        );
    }
    if let Some(why) = &facts.version_refused {
        found.error("version", why.clone(), "upgrade the cluster first");
    }
}

fn installed(facts: &Facts, found: &mut Found) {
    let Some(options) = &facts.options else {
        match (&facts.unclear, &facts.refused) {
            (Some((why, fix)), _) => found.error("install", why.clone(), fix.clone()),
            (None, Some(why)) => found.error(
                "install",
                format!("evenkeel install would stop: {why}"),
                "see the reason",
            ),
            (None, None) => found.note(
                "install",
                "Evenkeel is not installed; evenkeel install would be taken",
                "evenkeel install",
            ),
        }
        return;
    };
    let (missing, namespace) = (missing_workloads(facts), &options.namespace);
    if !missing.is_empty() {
        let problem = format!(
            "Evenkeel is installed in namespace {namespace} without {}",
            missing.join(" and ")
        );
        let fix = format!(
            "evenkeel upgrade, which names the flags that it needs, or evenkeel uninstall --namespace {namespace}"
        );
        found.error("install", problem, fix);
    } else if !facts.unread.is_empty() && facts.saw(&["Deployment", "DaemonSet"]) {
        let problem = format!(
            "the workloads do not say what was set with {}",
            facts.unread.join(", ")
        );
        found.warning("install", problem, "evenkeel upgrade with these flags");
    }
    if options.mode == "observe" && !facts.unread.contains(&"--mode") {
        found.note(
            "mode",
            "mode observe: Evenkeel decides, records and explains, and changes nothing",
            "evenkeel upgrade --mode act, once `evenkeel status incidents` shows what you expect",
        );
    }
    let why = facts.namespace["metadata"]["annotations"][annotations::PAUSE].as_str();
    if let Some(why) = why {
        found.warning(
            "pause",
            format!(
                "Evenkeel is paused: {}",
                if why.is_empty() { "no reason given" } else { why }
            ),
            format!(
                "kubectl annotate namespace {} {}-",
                options.namespace,
                annotations::PAUSE
            ),
        );
    }
}

fn parts(facts: &Facts, found: &mut Found) {
    let Some(options) = &facts.options else {
        return;
    };
    let (all, fix) = (objects(options), "evenkeel upgrade");
    for (_, kind, check) in PARTS.into_iter().filter(|(_, kind, _)| facts.saw(&[kind])) {
        let (mut missing, mut differing) = (Vec::new(), Vec::new());
        for wanted in all.iter().filter(|wanted| wanted["kind"] == kind) {
            let is_it = |part: &&Value| part["kind"] == kind && full_name(part) == full_name(wanted);
            match facts.parts.iter().find(is_it) {
                None => missing.push(full_name(wanted)),
                Some(part) if !is_as_applied(part, wanted) => differing.push(full_name(wanted)),
                Some(_) => {}
            }
        }
        // With a policy that was weakened one hostile node can write for all others.
        let severity = match check {
            "policies" => Severity::Error,
            _ => Severity::Warning,
        };
        let differs = format!("not what this version of Evenkeel applies: {kind}");
        let lacks = format!("the cluster has no {kind}");
        found.about(
            Severity::Error,
            check,
            &lacks,
            missing.iter().map(String::as_str),
            fix,
        );
        found.about(
            severity,
            check,
            &differs,
            differing.iter().map(String::as_str),
            fix,
        );
    }
}

/// Whether an object is as it was applied. Of a definition its versions count: the server writes the rest.
fn is_as_applied(part: &Value, wanted: &Value) -> bool {
    if wanted["kind"] == "CustomResourceDefinition" {
        return says(&part["spec"]["versions"], &wanted["spec"]["versions"]);
    }
    // Whoever adds a condition or a selector to a policy takes something out of it.
    if REPLACED_KINDS.contains(&wanted["kind"].as_str().unwrap_or_default())
        && !adds_nothing(&part["spec"], &wanted["spec"])
    {
        return false;
    }
    let fields = wanted.as_object().into_iter().flatten();
    let mut fields =
        fields.filter(|(field, _)| !["apiVersion", "kind", "metadata"].contains(&field.as_str()));
    fields.all(|(field, wanted)| says(&part[field], wanted))
}

/// Whether `present` has no field that `wanted` has not, but those that the server fills in.
fn adds_nothing(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => {
            present
                .iter()
                .all(|(key, present)| match (wanted.get(key), present) {
                    (Some(wanted), present) => adds_nothing(present, wanted),
                    (None, Value::Null) => true,
                    (None, Value::Object(fields)) => fields.is_empty(),
                    (None, Value::Array(items)) => items.is_empty(),
                    (None, Value::String(text)) => ["Equivalent", "Fail", "*"].contains(&text.as_str()),
                    (None, _) => false,
                })
        }
        (Value::Array(present), Value::Array(wanted)) => {
            let mut pairs = present.iter().zip(wanted);
            pairs.all(|(present, wanted)| adds_nothing(present, wanted))
        }
        _ => true,
    }
}

/// What an installation does not work without and does not have.
fn missing_workloads(facts: &Facts) -> Vec<String> {
    let all = [
        ("Deployment", CONTROLLER, &facts.sight.deployment),
        ("DaemonSet", AGENT, &facts.sight.daemon_set),
    ];
    let missing = all
        .into_iter()
        .filter(|(kind, _, found)| found.is_null() && facts.saw(&[kind]));
    missing.map(|(kind, name, _)| format!("{kind} {name}")).collect()
}

fn workloads(facts: &Facts, found: &mut Found) {
    if facts.options.is_none() || !missing_workloads(facts).is_empty() {
        return;
    }
    match progress(&facts.sight) {
        Progress::Done(_) => {}
        Progress::Enough(why) | Progress::Waiting(why) => {
            found.warning(
                "workloads",
                why,
                "kubectl get pods in Evenkeel's namespace; a node that is down explains its own agent",
            );
        }
        Progress::Failed(why) => found.error("workloads", why, "mend the reason, then evenkeel upgrade"),
    }
    let version = env!("CARGO_PKG_VERSION");
    let other = facts
        .agents
        .iter()
        .filter(|agent| agent["spec"]["version"] != version);
    let problem = format!("agents of another version than this command ({version}):");
    let fix = "evenkeel upgrade, or use the command of that version";
    found.about(Severity::Warning, "versions", &problem, other.map(name), fix);
}

fn replicas(facts: &Facts, found: &mut Found) {
    let Some(options) = &facts.options else {
        return;
    };
    let now = facts.server_time.unwrap_or(facts.now).as_second();
    let works = |lease: &&Value| {
        // Not by the time in the Lease, which is of the clock of the controller's host.
        let renewed = nodes::written(lease);
        name(lease).starts_with(names::REPLICA_LEASE_PREFIX)
            && renewed.is_some_and(|renewed| now - renewed.as_second() < SILENT_SECONDS)
    };
    match facts.leases.iter().filter(works).count() {
        0 => found.error(
            "controllers",
            "no controller works: stock Kubernetes acts alone",
            format!(
                "kubectl -n {} get pods; kubectl -n {0} logs deployment/{CONTROLLER}",
                options.namespace
            ),
        ),
        1 => found.warning(
            "controllers",
            "one controller works alone: while it starts again, nobody corrects what stock Kubernetes does",
            "give the second one a node: see why its pod does not run, or --controller-nodes",
        ),
        _ => {}
    }
    let of_controller = |pod: &&Value| {
        labels(pod)
            .get("app.kubernetes.io/component")
            .is_some_and(|is| is == "controller")
    };
    let hosts: Vec<&str> = facts
        .sight
        .pods
        .iter()
        .filter(of_controller)
        .filter(|pod| !has_ended(pod))
        .filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    let distinct: BTreeSet<&&str> = hosts.iter().collect();
    if distinct.len() < hosts.len() {
        found.warning(
            "controllers",
            format!("several controllers run on {}", listed(hosts.iter().copied())),
            "evenkeel upgrade; its Deployment keeps them apart",
        );
    }
    let judged: BTreeSet<&str> = facts
        .nodes
        .iter()
        .filter(|node| is_member(facts, node))
        .map(name)
        .collect();
    let others_exist = facts.nodes.iter().any(|node| !judged.contains(name(node)));
    let edge = hosts
        .iter()
        .copied()
        .filter(|host| others_exist && judged.contains(host));
    let problem = "a controller runs on a node that it judges:";
    let fix = "evenkeel upgrade --controller-nodes KEY=VALUE with a label of nodes beside the API server";
    found.about(Severity::Warning, "controllers", problem, edge, fix);
}

/// Whether a node can be in a roster.
pub(super) fn is_member(facts: &Facts, node: &Value) -> bool {
    let labels = labels(node);
    nodes::takes_agents(&labels) && zone(facts, &labels).is_some()
}

pub(super) fn zone(facts: &Facts, labels: &BTreeMap<String, String>) -> Option<String> {
    let options = facts.options.as_ref();
    let named = options.and_then(|options| options.zone_default.as_deref());
    let edge = options
        .filter(|options| options.profile == "edge")
        .map(|_| names::DEFAULT_ZONE);
    names::zone_of(labels, named.or(edge))
}

/// So many writes pass the webhook by while controllers start.
const USUAL: u64 = 100;

fn webhook(facts: &Facts, found: &mut Found) {
    if facts.options.is_none() {
        return;
    }
    let webhooks = facts
        .webhook
        .as_ref()
        .and_then(|found| found["webhooks"].as_array());
    if webhooks.is_none_or(Vec::is_empty) {
        found.error(
            "webhook",
            "the webhook is not registered: pods of nodes that are cut off lose their endpoints",
            "see the log of the controller, which writes it into MutatingWebhookConfiguration evenkeel; if that is missing, apply the \
             installation again (`evenkeel upgrade`, `kubectl apply -k` or `helm upgrade`)",
        );
    }
    match &facts.reach {
        Reach::Unknown => found.warning(
            "webhook",
            "nobody could try whether the API server reaches the webhook",
            "run doctor with the right to get services/proxy in Evenkeel's namespace",
        ),
        Reach::Answers => {}
        Reach::Fails(why) => found.error(
            "webhook",
            format!("the API server does not reach the webhook: {why}"),
            format!("let {REACHED_SO}"),
        ),
    }
    if let Some(count) = facts.fail_open.filter(|count| *count > 0) {
        // The first controller registers the webhook before its Service knows of a pod, and the writes of
        // those seconds pass without it.
        let problem =
            format!("the API server has gone on without the webhook's answer {count} times since it started");
        if count > USUAL {
            let fix = "the webhook is too slow or not reached, or was for a time: see EvenkeelWebhookMissed in docs/operate.md";
            found.warning("webhook", problem, fix);
        } else {
            let fix = "nothing, as long as the number does not grow: a few are usual when controllers start";
            found.note("webhook", problem, fix);
        }
    }
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
