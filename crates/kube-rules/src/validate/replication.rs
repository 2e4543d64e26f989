//! Controllers that keep up a number of pods.

use super::checks::{count, integer, members};
use super::errors::{Errors, has, items, text};
use super::{pod, selector, volume};
use crate::names;
use crate::selector::LabelSelector;
use serde_json::{Map, Value, json};

const TEMPLATE: &str = "spec.template";
const SELECTOR: &str = "spec.selector";

/// The spec of a kind of `apps`, or of a ReplicationController.
pub(super) fn content(kind: &str, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &object["spec"];
    let old = old.map(|old| &old["spec"]);
    match kind {
        "ReplicationController" => replication_controller(spec, old, errors),
        "StatefulSet" => stateful_set(spec, old, errors),
        "DaemonSet" => daemon_set(spec, old, errors),
        "ReplicaSet" => {
            errors.non_negative("spec.replicas", &spec["replicas"]);
            errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
            selected_template(spec, old, errors);
        }
        _ => {
            errors.non_negative("spec.replicas", &spec["replicas"]);
            selected_template(spec, old, errors);
            deployment(spec, errors);
        }
    }
}

fn replication_controller(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    if members(&spec["selector"]).next().is_none() {
        errors.required(SELECTOR, "");
    }
    errors.non_negative("spec.replicas", &spec["replicas"]);
    if !has(spec, "template") {
        errors.required(TEMPLATE, "");
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if members(&spec["selector"]).any(|(key, value)| labels.get(key) != Some(value)) {
        does_not_match(labels, errors);
    }
    pod::template_after(
        &spec["template"],
        old.map(|old| &old["template"]),
        TEMPLATE,
        errors,
    );
    runs_always(spec, "ReplicationController", errors);
}

/// Selector and template of a ReplicaSet or Deployment.
fn selected_template(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    // Upstream takes the one kind for the other in both of these.
    own_selector(spec, "deployment", errors);
    let Ok(parsed) = LabelSelector::from_object(&spec["selector"]) else {
        errors.invalid_selector(&spec["selector"], "invalid label selector");
        return;
    };
    matches_template(&parsed, spec, errors);
    pod::template_after(
        &spec["template"],
        old.map(|old| &old["template"]),
        TEMPLATE,
        errors,
    );
    runs_always(spec, "ReplicaSet", errors);
}

fn own_selector(spec: &Value, what: &str, errors: &mut Errors) {
    if !has(spec, "selector") {
        errors.required(SELECTOR, "");
        return;
    }
    selector::selector(&spec["selector"], SELECTOR, errors);
    not_empty(spec, what, errors);
}

fn not_empty(spec: &Value, what: &str, errors: &mut Errors) {
    let own = &spec["selector"];
    if has(spec, "selector") && members(&own["matchLabels"]).count() + count(own, "matchExpressions") == 0 {
        errors.invalid_selector(own, &format!("empty selector is invalid for {what}"));
    }
}

/// An empty selector selects everything, no selector nothing.
fn matches_template(parsed: &LabelSelector, spec: &Value, errors: &mut Errors) {
    let labels = &spec["template"]["metadata"]["labels"];
    if !parsed.matches(labels) {
        does_not_match(labels, errors);
    }
}

fn does_not_match(labels: &Value, errors: &mut Errors) {
    let path = "spec.template.metadata.labels";
    errors.invalid(path, labels, "`selector` does not match template `labels`");
}

fn runs_always(spec: &Value, kind: &str, errors: &mut Errors) {
    let own = &spec["template"]["spec"];
    let policy = text(own, "restartPolicy");
    if policy != "Always" {
        errors.not_supported("spec.template.spec.restartPolicy", &json!(policy), &["Always"]);
    }
    if has(own, "activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden("spec.template.spec.activeDeadlineSeconds", &why);
    }
}

impl Errors {
    /// A selector, with its members in the order of Go's structure.
    fn invalid_selector(&mut self, selector: &Value, detail: &str) {
        let parts = ["matchLabels", "matchExpressions"]
            .into_iter()
            .filter(|name| has(selector, name));
        let parts: Vec<String> = parts
            .map(|name| format!("\"{name}\":{}", selector[name]))
            .collect();
        let before = self.list.len();
        self.invalid(SELECTOR, &Value::Null, detail);
        if selector.is_null() {
            return;
        }
        for error in &mut self.list[before..] {
            error.message = error
                .message
                .replacen("null", &format!("{{{}}}", parts.join(",")), 1);
        }
    }

    /// A number that is not negative, or a share.
    pub(super) fn int_or_percent(&mut self, value: &Value, path: &str) {
        match value {
            Value::String(text) if percent(text).is_none() => self.invalid(
                path,
                value,
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
            ),
            Value::String(_) => {}
            number => self.non_negative(path, number),
        }
    }

    /// A share of the whole at most.
    pub(super) fn at_most_all(&mut self, value: &Value, path: &str) {
        if value.as_str().and_then(percent).is_some_and(|share| share > 100) {
            self.invalid(path, value, "must not be greater than 100%");
        }
    }
}

fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty())?;
    let good = digits.bytes().all(|byte| byte.is_ascii_digit());
    // Too many digits are a lot.
    good.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// A number or the number of a share; other text is zero.
fn amount(value: &Value) -> i64 {
    match value {
        Value::String(text) => percent(text).or_else(|| text.parse().ok()).unwrap_or(0),
        number => integer(number),
    }
}

fn deployment(spec: &Value, errors: &mut Errors) {
    let strategy = &spec["strategy"];
    let update = &strategy["rollingUpdate"];
    let path = "spec.strategy.rollingUpdate";
    match text(strategy, "type") {
        "Recreate" if update.is_null() => {}
        "Recreate" => errors.forbidden(path, "may not be specified when strategy `type` is 'Recreate'"),
        "RollingUpdate" if update.is_null() => {
            errors.required(path, "this should be defaulted and never be nil");
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (&update["maxUnavailable"], &update["maxSurge"]);
            let path_of_unavailable = format!("{path}.maxUnavailable");
            errors.int_or_percent(unavailable, &path_of_unavailable);
            errors.int_or_percent(surge, &format!("{path}.maxSurge"));
            if amount(unavailable) == 0 && amount(surge) == 0 {
                errors.invalid(
                    &path_of_unavailable,
                    unavailable,
                    "may not be 0 when `maxSurge` is 0",
                );
            }
            errors.at_most_all(unavailable, &path_of_unavailable);
        }
        _ => errors.not_supported("spec.strategy", strategy, &["Recreate", "RollingUpdate"]),
    }
    for name in [
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ] {
        errors.non_negative(&format!("spec.{name}"), &spec[name]);
    }
    let deadline = &spec["progressDeadlineSeconds"];
    if deadline
        .as_i64()
        .is_some_and(|seconds| seconds <= integer(&spec["minReadySeconds"]))
    {
        errors.invalid(
            "spec.progressDeadlineSeconds",
            deadline,
            "must be greater than minReadySeconds",
        );
    }
}

fn daemon_set(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        errors.immutable(SELECTOR, &old["selector"], &spec["selector"]);
    }
    selector::selector(&spec["selector"], SELECTOR, errors);
    if let Ok(parsed) = LabelSelector::from_object(&spec["selector"]) {
        matches_template(&parsed, spec, errors);
    }
    not_empty(spec, "daemonset", errors);
    pod::template_after(
        &spec["template"],
        old.map(|old| &old["template"]),
        TEMPLATE,
        errors,
    );
    runs_always(spec, "DaemonSet", errors);
    errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    let strategy = &spec["updateStrategy"];
    let path = "spec.updateStrategy";
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let update = &strategy["rollingUpdate"];
            let (unavailable, surge) = (&update["maxUnavailable"], &update["maxSurge"]);
            let [of_unavailable, of_surge] =
                ["maxUnavailable", "maxSurge"].map(|name| format!("{path}.rollingUpdate.{name}"));
            errors.int_or_percent(unavailable, &of_unavailable);
            errors.int_or_percent(surge, &of_surge);
            errors.at_most_all(unavailable, &of_unavailable);
            errors.at_most_all(surge, &of_surge);
            match (amount(unavailable) != 0, amount(surge) != 0) {
                (true, true) => {
                    errors.invalid(&of_surge, surge, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => errors.required(&of_unavailable, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => errors.not_supported(path, strategy, &["RollingUpdate", "OnDelete"]),
    }
    errors.non_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]);
}

fn stateful_set(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    match text(spec, "podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => errors.required("spec.podManagementPolicy", ""),
        other => errors.bad(
            "spec.podManagementPolicy",
            other,
            "must be 'OrderedReady' or 'Parallel'",
        ),
    }
    let strategy = &spec["updateStrategy"];
    let update = &strategy["rollingUpdate"];
    let path = "spec.updateStrategy";
    match text(strategy, "type") {
        "OnDelete" if has(strategy, "rollingUpdate") => {
            let why = "only allowed for updateStrategy 'RollingUpdate'";
            errors.invalid(&format!("{path}.rollingUpdate"), update, why);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            errors.non_negative(&format!("{path}.rollingUpdate.partition"), &update["partition"]);
        }
        "" => errors.required(path, ""),
        _ => errors.invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for name in ["whenDeleted", "whenScaled"] {
        let path = "spec.persistentVolumeClaimRetentionPolicy";
        errors.known(retention, path, name, &["Retain", "Delete"]);
    }
    // Claims and the name of the service do not change, so that they are looked at once.
    if old.is_none() {
        for (index, claim) in items(spec, "volumeClaimTemplates") {
            volume::claim_spec(
                &claim["spec"],
                &format!("spec.volumeClaimTemplates[{index}].spec"),
                errors,
            );
        }
    }
    errors.non_negative("spec.replicas", &spec["replicas"]);
    errors.non_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
    errors.non_negative("spec.ordinals.start", &spec["ordinals"]["start"]);
    let service = text(spec, "serviceName");
    if old.is_none() && !service.is_empty() {
        errors.invalid_text("spec.serviceName", service, names::dns_label(service));
    }
    own_selector(spec, "statefulset", errors);
    if let Ok(parsed) = LabelSelector::from_object(&spec["selector"]) {
        matches_template(&parsed, spec, errors);
        let template = with_claims(spec);
        pod::template_after(&template, old.map(|old| &old["template"]), TEMPLATE, errors);
        pod::template_metadata(&template, TEMPLATE, errors);
    } else {
        errors.invalid_selector(&spec["selector"], "");
    }
    runs_always(spec, "StatefulSet", errors);
}

/// The template as pods are made of it: with the volumes of its claims, without names of hosts.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let mut volumes: Map<String, Value> = Map::new();
    for (_, claim) in items(spec, "volumeClaimTemplates") {
        let name = text(&claim["metadata"], "name");
        let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        volumes.insert(name.to_owned(), volume);
    }
    let own = items(&template["spec"], "volumes").map(|(_, volume)| volume);
    let others: Vec<Value> = own
        .filter(|volume| !volumes.contains_key(text(volume, "name")))
        .cloned()
        .collect();
    if let Some(members) = template["spec"].as_object_mut() {
        members.retain(|name, _| !["subdomain", "hostname"].contains(&name.as_str()));
        if !volumes.is_empty() {
            let all = volumes
                .into_iter()
                .map(|(_, volume)| volume)
                .chain(others)
                .collect();
            members.insert("volumes".to_owned(), all);
        }
    }
    template
}

/// What may not change.
pub(super) fn update(kind: &str, old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["spec"], &new["spec"]);
    match kind {
        "StatefulSet" => {
            const MUTABLE: [&str; 7] = [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
                "revisionHistoryLimit",
            ];
            let names = [old, new].into_iter().flat_map(members).map(|(name, _)| name);
            if names
                .filter(|name| !MUTABLE.contains(&name.as_str()))
                .any(|name| old.get(name) != new.get(name))
            {
                errors.forbidden(
                    "spec",
                    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
                );
            }
        }
        "Deployment" | "ReplicaSet" if old["selector"] != new["selector"] => {
            errors.invalid_selector(&new["selector"], "field is immutable");
        }
        _ => {}
    }
}

/// Counters of a status, in the order of the checks, and those that replicas bound.
const COUNTERS: [(&str, &[&str], &[&str]); 5] = [
    (
        "ReplicationController",
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
        ],
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ),
    (
        "ReplicaSet",
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    ),
    (
        "Deployment",
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        &["updatedReplicas", "readyReplicas", "availableReplicas"],
    ),
    (
        "StatefulSet",
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        &[
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ],
    ),
    (
        "DaemonSet",
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        &[],
    ),
];

/// The status, as controllers write it.
pub(super) fn status(kind: &str, old: &Value, new: &Value, errors: &mut Errors) {
    let (old, status) = (&old["status"], &new["status"]);
    let Some((_, counters, bounded)) = COUNTERS.iter().find(|(other, ..)| *other == kind) else {
        return;
    };
    for name in *counters {
        errors.non_negative(&format!("status.{name}"), &status[*name]);
    }
    let counted = |name: &str| integer(&status[name]);
    let mut above = |name: &str, other: &str, why: &str| {
        if counted(name) > counted(other) {
            errors.invalid(&format!("status.{name}"), &json!(counted(name)), why);
        }
    };
    for name in *bounded {
        above(name, "replicas", "cannot be greater than status.replicas");
    }
    match kind {
        "DaemonSet" => {}
        "StatefulSet" => above(
            "availableReplicas",
            "readyReplicas",
            "cannot be greater than status.readyReplicas",
        ),
        _ => above(
            "availableReplicas",
            "readyReplicas",
            "cannot be greater than readyReplicas",
        ),
    }
    let collisions = (&old["collisionCount"], &status["collisionCount"]);
    if let Some(before) = collisions.0.as_i64()
        && counters.contains(&"collisionCount")
        && collisions.1.as_i64().is_none_or(|now| now < before)
    {
        let now = integer(collisions.1);
        errors.invalid("status.collisionCount", &json!(now), "cannot be decremented");
    }
}
