//! CronJobs.

use super::batch::{SELECTOR, job_spec};
use super::errors::{Errors, has, text};
use super::schedule;
use serde_json::{Value, json};

/// A CronJob, new or changed from `old`.
pub(super) fn check(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &object["spec"];
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.required("spec.schedule", "");
    } else {
        let had_zone = old.is_some_and(|old| text(&old["spec"], "schedule").contains("TZ"));
        check_schedule(schedule, had_zone, has(spec, "timeZone"), errors);
    }
    errors.non_negative("spec.startingDeadlineSeconds", &spec["startingDeadlineSeconds"]);
    if old.is_none_or(|old| old["spec"]["timeZone"] != spec["timeZone"]) {
        time_zone(&spec["timeZone"], errors);
    }
    errors.one_of(
        "spec.concurrencyPolicy",
        &spec["concurrencyPolicy"],
        &["Allow", "Forbid", "Replace"],
    );
    let job = &spec["jobTemplate"]["spec"];
    job_spec(job, "spec.jobTemplate.spec", errors);
    if has(job, "selector") {
        errors.invalid_dump(
            "spec.jobTemplate.spec.selector",
            SELECTOR,
            &job["selector"],
            "`selector` will be auto-generated",
        );
    }
    if job["manualSelector"] == json!(true) {
        errors.not_supported(
            "spec.jobTemplate.spec.manualSelector",
            &job["manualSelector"],
            &["nil", "false"],
        );
    }
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.non_negative(&format!("spec.{name}"), &spec[name]);
    }
}

/// The jobs of a CronJob append their time to its name.
pub(super) fn check_new(object: &Value, errors: &mut Errors) {
    let name = text(&object["metadata"], "name");
    if name.len() > 52 {
        errors.invalid(
            "metadata.name",
            &name.into(),
            "must be no more than 52 characters",
        );
    }
}

fn check_schedule(value: &str, had_zone: bool, has_zone: bool, errors: &mut Errors) {
    const FIELD: &str = "spec.schedule";
    if let Err(problem) = schedule::check(value) {
        errors.invalid(FIELD, &value.into(), &problem);
    }
    let names_zone = value.contains("TZ");
    if had_zone && names_zone && has_zone {
        errors.invalid(
            FIELD,
            &value.into(),
            "cannot use both timeZone field and TZ or CRON_TZ in schedule",
        );
    } else if !had_zone && names_zone {
        errors.invalid(
            FIELD,
            &value.into(),
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        );
    }
}

fn time_zone(zone: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.timeZone";
    let Some(name) = zone.as_str() else { return };
    if name.is_empty() {
        errors.invalid(FIELD, zone, "timeZone must be nil or non-empty string");
        return;
    }
    let good = |part: &str| {
        (1..=14).contains(&part.len())
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte))
    };
    if !name.split('/').all(good) {
        errors.invalid(FIELD, zone, &format!("unknown time zone {name}"));
        return;
    }
    if name.eq_ignore_ascii_case("local") {
        errors.invalid(
            FIELD,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
    if !matches!(name, "Local" | "UTC") && jiff::tz::TimeZone::get(name).is_err() {
        errors.invalid(FIELD, zone, &format!("unknown time zone {name}"));
    }
}
