//! Jobs.

use super::errors::{Errors, has, items, text};
use super::{network, pod, selector};
use crate::gofmt::go_quote;
use crate::names;
use crate::selector::LabelSelector;
use serde_json::{Value, json};

/// Bounds of a job whose pods have indices.
const PARALLEL: i64 = 100_000;
const FAILED_INDEXES: i64 = 100_000;
/// Above so many completions, lower bounds hold for a job that counts failures of each index.
const MANY_COMPLETIONS: i64 = 100_000;
const OF_MANY: i64 = 10_000;
/// Rules of a policy, and patterns of a rule.
const RULES: usize = 20;
const EXIT_CODES: usize = 255;
const MANAGED_BY_BYTES: usize = 63;
const INDEXES_BYTES: usize = 64 * 1024;

pub(super) const SELECTOR: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";

/// A job, new or changed.
pub(super) fn job(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    generated_selector(object, errors);
    whole_spec(spec, errors);
    let name = text(&object["metadata"], "name");
    if is_indexed(spec)
        && let Some(completions) = spec["completions"].as_i64().filter(|count| *count > 0)
    {
        let host = format!("{name}-{}", completions - 1);
        if !names::dns_label(&host).is_empty() {
            errors.invalid(
                "metadata.name",
                &name.into(),
                &format!("will not able to create pod with invalid DNS label: {host}"),
            );
        }
    }
}

/// The spec of a job with the selector of its pods.
pub(super) fn whole_spec(spec: &Value, errors: &mut Errors) {
    job_spec(spec, "spec", errors);
    if has(spec, "selector") {
        selector::selector(&spec["selector"], "spec.selector", errors);
    } else {
        errors.required("spec.selector", "");
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let selects = match LabelSelector::from_object(&spec["selector"]) {
        Ok(selector) => has(spec, "selector") && selector.matches(labels),
        Err(_) => true,
    };
    if !selects {
        errors.invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        );
    }
}

/// A selector that the server made is that of this job.
fn generated_selector(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if spec["manualSelector"] == json!(true) || !has(spec, "selector") {
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let (uid, name) = (&object["metadata"]["uid"], &object["metadata"]["name"]);
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (key, value) in expected {
        let field = format!("spec.template.metadata.labels[{key}]");
        let detail = format!("must be '{}'", value.as_str().unwrap_or_default());
        match labels.get(key) {
            None => errors.required(&field, &detail),
            Some(other) if other != value => errors.invalid(&field, labels, &detail),
            Some(_) => {}
        }
    }
    let expected: Value = expected
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.clone()))
        .collect();
    if LabelSelector::from_object(&spec["selector"]).is_ok_and(|selector| !selector.matches(&expected)) {
        errors.invalid_dump(
            "spec.selector",
            SELECTOR,
            &spec["selector"],
            "`selector` not auto-generated",
        );
    }
}

fn is_indexed(spec: &Value) -> bool {
    spec["completionMode"] == "Indexed"
}

/// The spec of a job, or of those that a CronJob makes, at `path`.
pub(super) fn job_spec(spec: &Value, path: &str, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.non_negative(&format!("{path}.{name}"), &spec[name]);
    }
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        errors.required(
            &format!("{path}.backoffLimitPerIndex"),
            "when maxFailedIndexes is specified",
        );
    }
    if has(spec, "managedBy") {
        let (field, manager) = (format!("{path}.managedBy"), text(spec, "managedBy"));
        network::domain_prefixed(manager, &field, errors);
        if manager.len() > MANAGED_BY_BYTES {
            errors.too_long(&field, MANAGED_BY_BYTES);
        }
    }
    errors.one_of_given(
        &format!("{path}.completionMode"),
        &spec["completionMode"],
        &["NonIndexed", "Indexed"],
    );
    if is_indexed(spec) {
        indexed(spec, path, errors);
    } else if matches!(spec["completionMode"].as_str(), None | Some("NonIndexed")) {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if has(spec, name) {
                errors.invalid(
                    &format!("{path}.{name}"),
                    &spec[name],
                    "requires indexed completion mode",
                );
            }
        }
    }
    if has(spec, "podFailurePolicy") {
        failure_policy(spec, &format!("{path}.podFailurePolicy.rules"), errors);
    }
    if has(spec, "successPolicy") {
        success_policy(spec, &format!("{path}.successPolicy"), errors);
    }
    let replacements: &[&str] = if has(spec, "podFailurePolicy") {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    errors.one_of_given(
        &format!("{path}.podReplacementPolicy"),
        &spec["podReplacementPolicy"],
        replacements,
    );
    pod::template(&spec["template"], &format!("{path}.template"), errors);
    restart_policy(spec, &format!("{path}.template.spec.restartPolicy"), errors);
}

fn restart_policy(spec: &Value, field: &str, errors: &mut Errors) {
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    match policy {
        "Always" | "" => errors.required(field, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" | "Never" => {
            if has(spec, "podFailurePolicy") && policy != "Never" {
                errors.invalid(
                    field,
                    &policy.into(),
                    "only \"Never\" is supported when podFailurePolicy is specified",
                );
            }
        }
        _ => errors.not_supported(field, &policy.into(), &["OnFailure", "Never"]),
    }
}

fn indexed(spec: &Value, path: &str, errors: &mut Errors) {
    let number = |name: &str| spec[name].as_i64();
    let (completions, parallelism) = (number("completions"), number("parallelism"));
    let failed = number("maxFailedIndexes");
    let (parallelism_field, failed_field) =
        (format!("{path}.parallelism"), format!("{path}.maxFailedIndexes"));
    if completions.is_none() {
        errors.required(&format!("{path}.completions"), "when completion mode is Indexed");
    }
    let mut bounded = |field: &str, value: Option<i64>, most: i64, detail: &str| {
        if let Some(value) = value.filter(|value| *value > most) {
            errors.invalid(
                field,
                &value.into(),
                &format!("must be less than or equal to {detail}"),
            );
        }
    };
    let of_mode = format!("{PARALLEL} when completion mode is Indexed");
    bounded(&parallelism_field, parallelism, PARALLEL, &of_mode);
    if let Some(completions) = completions {
        bounded(&failed_field, failed, completions, "completions");
    }
    bounded(&failed_field, failed, FAILED_INDEXES, &FAILED_INDEXES.to_string());
    let many = completions.is_some_and(|count| count > MANY_COMPLETIONS);
    if many && has(spec, "backoffLimitPerIndex") {
        let of_many = format!(
            "{OF_MANY} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
        );
        bounded(&parallelism_field, parallelism, OF_MANY, &of_many);
        bounded(&failed_field, failed, OF_MANY, &of_many);
        if failed.is_none() {
            errors.required(
                &failed_field,
                &format!("must be specified when completions is above {MANY_COMPLETIONS}"),
            );
        }
    }
}

/// Known values as Go prints a list of them.
fn valid(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| go_quote(value)).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

/// One of those known, which are named where it is missing.
fn required_one_of(value: &str, field: &str, known: &[&str], errors: &mut Errors) {
    if value.is_empty() {
        errors.required(field, &valid(known));
    } else if !known.contains(&value) {
        errors.not_supported(field, &value.into(), known);
    }
}

fn failure_policy(spec: &Value, path: &str, errors: &mut Errors) {
    let pod = &spec["template"]["spec"];
    let containers: Vec<&str> = items(pod, "containers")
        .chain(items(pod, "initContainers"))
        .map(|(_, container)| text(container, "name"))
        .collect();
    let count = items(&spec["podFailurePolicy"], "rules").count();
    if count > RULES {
        errors.too_many(path, count, RULES);
    }
    for (index, rule) in items(&spec["podFailurePolicy"], "rules") {
        let path = format!("{path}[{index}]");
        let (field, action) = (format!("{path}.action"), text(rule, "action"));
        if action == "FailIndex" {
            if !has(spec, "backoffLimitPerIndex") {
                errors.invalid(
                    &field,
                    &action.into(),
                    "requires the backoffLimitPerIndex to be set",
                );
            }
        } else {
            required_one_of(
                action,
                &field,
                &["Count", "FailIndex", "FailJob", "Ignore"],
                errors,
            );
        }
        let (codes, conditions) = (
            has(rule, "onExitCodes"),
            items(rule, "onPodConditions").next().is_some(),
        );
        if codes {
            exit_codes(
                &rule["onExitCodes"],
                &format!("{path}.onExitCodes"),
                &containers,
                errors,
            );
        }
        pod_conditions(rule, &format!("{path}.onPodConditions"), errors);
        match (codes, conditions) {
            (true, true) => errors.invalid_unshown(
                &path,
                "specifying both OnExitCodes and OnPodConditions is not supported",
            ),
            (false, false) => errors.invalid_unshown(
                &path,
                "specifying one of OnExitCodes and OnPodConditions is required",
            ),
            _ => {}
        }
    }
}

fn exit_codes(codes: &Value, path: &str, containers: &[&str], errors: &mut Errors) {
    let operator = text(codes, "operator");
    required_one_of(operator, &format!("{path}.operator"), &["In", "NotIn"], errors);
    if has(codes, "containerName") && !containers.contains(&text(codes, "containerName")) {
        errors.invalid(
            &format!("{path}.containerName"),
            &codes["containerName"],
            "must be one of the container or initContainer names in the pod template",
        );
    }
    let (field, values) = (format!("{path}.values"), &codes["values"]);
    let numbers: Vec<i64> = items(codes, "values")
        .filter_map(|(_, value)| value.as_i64())
        .collect();
    if numbers.is_empty() {
        errors.invalid(&field, values, "at least one value is required");
    } else if numbers.len() > EXIT_CODES {
        errors.too_many(&field, numbers.len(), EXIT_CODES);
    }
    for (index, number) in numbers.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if operator == "In" && *number == 0 {
            errors.invalid(&field, &json!(0), "must not be 0 for the In operator");
        }
        if numbers[..index].contains(number) {
            errors.duplicate(&field, &json!(number));
        }
    }
    if !numbers.is_sorted() {
        errors.invalid(&field, values, "must be ordered");
    }
}

fn pod_conditions(rule: &Value, path: &str, errors: &mut Errors) {
    let count = items(rule, "onPodConditions").count();
    if count > RULES {
        errors.too_many(path, count, RULES);
    }
    for (index, pattern) in items(rule, "onPodConditions") {
        let path = format!("{path}[{index}]");
        let kind = text(pattern, "type");
        errors.invalid_text(&format!("{path}.type"), kind, names::qualified(kind));
        let known = ["False", "True", "Unknown"];
        required_one_of(text(pattern, "status"), &format!("{path}.status"), &known, errors);
    }
}

fn success_policy(spec: &Value, path: &str, errors: &mut Errors) {
    let policy = &spec["successPolicy"];
    if !is_indexed(spec) {
        errors.invalid_dump(
            path,
            "io.k8s.api.batch.v1.SuccessPolicy",
            policy,
            "requires indexed completion mode",
        );
        return;
    }
    let (field, count) = (format!("{path}.rules"), items(policy, "rules").count());
    if count == 0 {
        errors.required(
            &field,
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    if count > RULES {
        errors.too_many(&field, count, RULES);
    }
    let completions = spec["completions"].as_i64().unwrap_or(0);
    for (index, rule) in items(policy, "rules") {
        let path = format!("{field}[{index}]");
        let (wanted, list) = (rule["succeededCount"].as_i64(), rule["succeededIndexes"].as_str());
        if wanted.is_none() && list.is_none() {
            errors.required(
                &path,
                "at least one of succeededCount or succeededIndexes must be specified",
            );
        }
        let mut listed = 0;
        if let Some(list) = list {
            let field = format!("{path}.succeededIndexes");
            if list.len() > INDEXES_BYTES {
                errors.too_long(&field, INDEXES_BYTES);
            }
            match indexes(list, completions) {
                Ok(intervals) => {
                    listed = intervals.iter().map(|(first, last)| last - first + 1).sum();
                }
                Err(problem) => errors.invalid(
                    &field,
                    &list.into(),
                    &format!("error parsing succeededIndexes: {problem}"),
                ),
            }
        }
        if let Some(wanted) = wanted {
            let (field, value) = (format!("{path}.succeededCount"), json!(wanted));
            errors.non_negative(&field, &value);
            if wanted > completions {
                errors.invalid(
                    &field,
                    &value,
                    &format!(
                        "must be less than or equal to {completions} (the number of specified completions)"
                    ),
                );
            }
            if list.is_some() && wanted > listed {
                errors.invalid(
                    &field,
                    &value,
                    &format!("must be less than or equal to {listed} (the number of indexes in the specified succeededIndexes field)"),
                );
            }
        }
    }
}

/// Intervals of indices in a text such as `0-3,7`, each as its first and last one.
pub(super) fn indexes(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    if text.is_empty() {
        return Ok(intervals);
    }
    for part in text.split(',') {
        let (first, last) = interval(part, completions)?;
        if let Some((_, before)) = intervals.last().filter(|(_, before)| *before >= first) {
            return Err(not_increasing(*before, first));
        }
        intervals.push((first, last));
    }
    Ok(intervals)
}

fn not_increasing(before: i64, after: i64) -> String {
    format!("non-increasing order, previous: {before}, current: {after}")
}

/// One interval.
pub(super) fn interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| {
        let quoted = go_quote(text);
        let Ok(index) = text.parse::<i64>() else {
            return Err(format!("cannot convert string to integer for index: {quoted}"));
        };
        if index >= completions {
            return Err(format!("too large index: {quoted}"));
        }
        Ok(index)
    };
    let parts: Vec<&str> = text.split('-').collect();
    match parts[..] {
        [first] => {
            let first = index(first)?;
            Ok((first, first))
        }
        [first, last] => {
            let (first, last) = (index(first)?, index(last)?);
            if first >= last {
                return Err(not_increasing(first, last));
            }
            Ok((first, last))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            go_quote(text)
        )),
    }
}

/// What of a job may not change.
pub(super) fn job_update(old: &Value, new: &Value, errors: &mut Errors) {
    let status = &old["status"];
    let (old, new) = (&old["spec"], &new["spec"]);
    let is_suspended = |conditions: &Value| {
        items(conditions, "conditions").any(|(_, one)| one["type"] == "Suspended" && one["status"] == "True")
    };
    let rests = old["suspend"] == json!(true)
        && (!has(status, "startTime") || is_suspended(status))
        && status["active"].as_i64().unwrap_or(0) == 0;
    if !is_indexed(new) {
        errors.immutable("spec.completions", &old["completions"], &new["completions"]);
    } else if old["completions"] != new["completions"]
        && has(new, "completions")
        && new["completions"] != new["parallelism"]
    {
        errors.invalid(
            "spec.completions",
            &new["completions"],
            "can only be modified in tandem with spec.parallelism",
        );
    }
    errors.immutable("spec.selector", &old["selector"], &new["selector"]);
    template_update(&old["template"], &new["template"], rests, errors);
    for name in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        errors.immutable(&format!("spec.{name}"), &old[name], &new[name]);
    }
}

/// Where the pods of a job that rests will run may change, and what they ask for.
fn template_update(old: &Value, new: &Value, rests: bool, errors: &mut Errors) {
    if !rests {
        errors.immutable("spec.template", old, new);
        return;
    }
    let mut before = old["spec"].clone();
    let after = &new["spec"];
    let set = |object: &mut Value, name: &str, value: Option<&Value>| {
        if let Some(members) = object.as_object_mut() {
            match value {
                Some(value) => members.insert(name.to_owned(), value.clone()),
                None => members.remove(name),
            };
        }
    };
    for name in ["nodeSelector", "tolerations", "schedulingGates"] {
        set(&mut before, name, after.get(name));
    }
    let mut affinity = before["affinity"].as_object().cloned().unwrap_or_default();
    affinity.remove("nodeAffinity");
    if let Some(of_nodes) = after["affinity"].get("nodeAffinity") {
        affinity.insert("nodeAffinity".to_owned(), of_nodes.clone());
    }
    let none = affinity.is_empty() && !has(after, "affinity");
    let affinity = Value::Object(affinity);
    set(&mut before, "affinity", (!none).then_some(&affinity));
    for list in ["containers", "initContainers"] {
        let same = items(&before, list).count() == items(after, list).count();
        for (index, container) in items(after, list).filter(|_| same) {
            if before[list][index]["name"] == container["name"] {
                set(&mut before[list][index], "resources", container.get("resources"));
            }
        }
    }
    errors.immutable("spec.template.spec", &before, after);
}
