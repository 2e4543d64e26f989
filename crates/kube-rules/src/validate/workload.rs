//! Controllers of pods that end.

use super::errors::{Errors, text};
use super::pod;
use serde_json::Value;

/// An int-or-percent that is not negative.
pub(super) fn int_or_percent(value: &Value, path: &str, errors: &mut Errors) {
    match value {
        Value::String(text) => {
            let good = text
                .strip_suffix('%')
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
            if !good {
                errors.invalid(
                    path,
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                );
            } else if text.trim_end_matches('%').parse::<i64>().is_ok_and(|n| n > 100) {
                errors.invalid(path, value, "must not be greater than 100%");
            }
        }
        other => errors.non_negative(path, other),
    }
}

/// Jobs and the jobs that a CronJob makes; `path` is that of the spec.
pub(super) fn job(spec: &Value, path: &str, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        errors.non_negative(&format!("{path}.{name}"), &spec[name]);
    }
    pod::template(&spec["template"], &format!("{path}.template"), errors);
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if policy == "Always" {
        errors.required(
            &format!("{path}.template.spec.restartPolicy"),
            "valid values: \"OnFailure\", \"Never\"",
        );
    }
}

/// What is wrong with a CronJob.
pub(super) fn cron_job(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    job(&spec["jobTemplate"]["spec"], "spec.jobTemplate.spec", errors);
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.required("spec.schedule", "");
    } else if !schedule.starts_with('@') && schedule.split_whitespace().count() != 5 {
        let found = schedule.split_whitespace().count();
        errors.invalid(
            "spec.schedule",
            &spec["schedule"],
            &format!(
                "expected exactly 5 fields, found {found}: [{}]",
                schedule.split_whitespace().collect::<Vec<_>>().join(" ")
            ),
        );
    }
    errors.one_of(
        "spec.concurrencyPolicy",
        &spec["concurrencyPolicy"],
        &["Allow", "Forbid", "Replace"],
    );
    for name in [
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ] {
        errors.non_negative(&format!("spec.{name}"), &spec[name]);
    }
}

/// What of a job may not change.
pub(super) fn job_update(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["spec"], &new["spec"]);
    for name in [
        "completions",
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
    ] {
        let (before, after) = (
            old.get(name).unwrap_or(&Value::Null),
            new.get(name).unwrap_or(&Value::Null),
        );
        errors.immutable(&format!("spec.{name}"), before, after);
    }
}
