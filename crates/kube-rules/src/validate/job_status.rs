//! What the status of a Job may say. Only what changes is looked at, so that a status that was written before
//! a rule was made can go on.

use super::batch::{indexes, interval};
use super::errors::{Errors, has, items};
use serde_json::{Value, json};

const CONDITIONS: &str = "status.conditions";

fn is(job: &Value, condition: &str) -> bool {
    items(&job["status"], "conditions").any(|(_, one)| one["type"] == condition && one["status"] == "True")
}

fn count(status: &Value, name: &str) -> i64 {
    status[name].as_i64().unwrap_or(0)
}

pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    let change = Change::new(old, new);
    counters(new, errors);
    uncounted(&new["status"]["uncountedTerminatedPods"], errors);
    times(new, &change, errors);
    finished(new, &change, errors);
    index_lists(new, &change, errors);
    conditions(old, new, errors);
}

/// What differs from the status before.
struct Change {
    complete: bool,
    failed: bool,
    finished: bool,
    target: bool,
    criteria: bool,
    members: Vec<&'static str>,
    resumes: bool,
}

impl Change {
    fn new(old: &Value, new: &Value) -> Self {
        const MEMBERS: [&str; 8] = [
            "active",
            "completedIndexes",
            "completionTime",
            "failedIndexes",
            "ready",
            "startTime",
            "terminating",
            "uncountedTerminatedPods",
        ];
        let differs = |condition: &str| is(old, condition) != is(new, condition);
        let done = |job: &Value| is(job, "Complete") || is(job, "Failed");
        let lifted = |job: &Value| {
            items(&job["status"], "conditions")
                .any(|(_, one)| one["type"] == "Suspended" && one["status"] == "False")
        };
        Self {
            complete: differs("Complete"),
            failed: differs("Failed"),
            finished: done(old) != done(new),
            target: differs("FailureTarget"),
            criteria: differs("SuccessCriteriaMet"),
            members: MEMBERS
                .into_iter()
                .filter(|name| old["status"][*name] != new["status"][*name])
                .collect(),
            resumes: is(old, "Suspended") && lifted(new),
        }
    }

    fn of(&self, name: &str) -> bool {
        self.members.contains(&name)
    }
}

fn counters(job: &Value, errors: &mut Errors) {
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.non_negative(&format!("status.{name}"), &job["status"][name]);
    }
}

fn uncounted(pods: &Value, errors: &mut Errors) {
    let mut seen: Vec<&Value> = Vec::new();
    for list in ["succeeded", "failed"] {
        for (index, uid) in items(pods, list) {
            let field = format!("status.uncountedTerminatedPods.{list}[{index}]");
            if uid == "" {
                errors.invalid(&field, uid, "must not be empty");
            } else if seen.contains(&uid) {
                errors.duplicate(&field, uid);
            } else {
                seen.push(uid);
            }
        }
    }
}

fn times(job: &Value, change: &Change, errors: &mut Errors) {
    const COMPLETION: &str = "status.completionTime";
    let (status, complete) = (&job["status"], is(job, "Complete"));
    if change.complete || change.failed {
        exclude(
            complete && is(job, "Failed"),
            "Complete=True and Failed=true",
            errors,
        );
    }
    if change.complete || change.target {
        exclude(
            complete && is(job, "FailureTarget"),
            "Complete=True and FailureTarget=true",
            errors,
        );
    }
    let completion = &status["completionTime"];
    if change.complete || change.of("completionTime") {
        if !completion.is_null() && !complete {
            errors.invalid(
                COMPLETION,
                completion,
                "cannot set completionTime when there is no Complete=True condition",
            );
        }
        if completion.is_null() && complete {
            errors.required(COMPLETION, "completionTime is required for Complete jobs");
        }
    }
    if (change.of("startTime") || change.of("completionTime"))
        && let (Some(start), Some(end)) = (status["startTime"].as_str(), completion.as_str())
        // Both are in the one form in which times are stored, which sorts as they do.
        && end < start
    {
        errors.invalid(COMPLETION, completion, "must be equal to or after `startTime`");
    }
}

fn exclude(both: bool, what: &str, errors: &mut Errors) {
    if both {
        errors.invalid_unshown(CONDITIONS, &format!("cannot set {what} conditions"));
    }
}

fn finished(job: &Value, change: &Change, errors: &mut Errors) {
    let (status, spec) = (&job["status"], &job["spec"]);
    let done = is(job, "Complete") || is(job, "Failed");
    let lacks = |first: &str, second: &str| is(job, first) && !is(job, second);
    if (change.failed || change.of("failedIndexes")) && lacks("Failed", "FailureTarget") {
        errors.invalid_unshown(
            CONDITIONS,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        );
    }
    if (change.complete || change.criteria) && lacks("Complete", "SuccessCriteriaMet") {
        errors.invalid_unshown(
            CONDITIONS,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
    }
    if !done {
        return;
    }
    if (change.finished || change.of("active")) && count(status, "active") > 0 {
        errors.invalid(
            "status.active",
            &status["active"],
            "active>0 is invalid for finished job",
        );
    }
    let nothing_to_do = spec["suspend"] == json!(true) && spec["completions"] == json!(0);
    if (change.finished || change.of("startTime")) && !nothing_to_do && !has(status, "startTime") {
        errors.required("status.startTime", "startTime is required for finished job");
    }
    let pods = &status["uncountedTerminatedPods"];
    let uncounted = items(pods, "failed").chain(items(pods, "succeeded")).next();
    if (change.finished || change.of("uncountedTerminatedPods")) && uncounted.is_some() {
        errors.invalid(
            "status.uncountedTerminatedPods",
            pods,
            "must be empty for finished job",
        );
    }
}

fn index_lists(job: &Value, change: &Change, errors: &mut Errors) {
    const DONE: &str = "status.completedIndexes";
    const FAILED: &str = "status.failedIndexes";
    let (status, spec) = (&job["status"], &job["spec"]);
    let completions = spec["completions"].as_i64();
    let (done, failed) = (
        status["completedIndexes"].as_str().unwrap_or_default(),
        status["failedIndexes"].as_str(),
    );
    let counts_failures = has(spec, "backoffLimitPerIndex");
    let mut parse = |list: &str, field: &str, name: &str| {
        if let Some(Err(problem)) = completions.map(|completions| indexes(list, completions)) {
            errors.invalid(field, &list.into(), &format!("error parsing {name}: {problem}"));
        }
    };
    if change.of("completedIndexes") {
        parse(done, DONE, "completedIndexes");
    }
    if let Some(failed) = failed.filter(|_| change.of("failedIndexes") && counts_failures) {
        parse(failed, FAILED, "failedIndexes");
    }
    if change.of("completedIndexes") && !done.is_empty() && spec["completionMode"] != "Indexed" {
        errors.invalid(
            DONE,
            &done.into(),
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        );
    }
    if change.of("failedIndexes") && !counts_failures && failed.is_some() {
        errors.invalid(
            FAILED,
            &status["failedIndexes"],
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        );
    }
    if (change.of("failedIndexes") || change.of("completedIndexes"))
        && let (Some(completions), Some(failed)) = (completions, failed)
        && let Some(index) = overlap(done, failed, completions)
    {
        errors.invalid(
            FAILED,
            &failed.into(),
            &format!("failedIndexes and completedIndexes overlap at index: {index}"),
        );
    }
}

/// The first index that both lists have. Parts that are no intervals are reported elsewhere.
fn overlap(done: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |list: &str| -> Vec<(i64, i64)> {
        list.split(',')
            .filter_map(|part| interval(part, completions).ok())
            .collect()
    };
    let (done, failed) = (intervals(done), intervals(failed));
    let pairs = done
        .iter()
        .flat_map(|one| failed.iter().map(move |other| (one, other)));
    pairs
        .filter(|(one, other)| one.0 <= other.1 && other.0 <= one.1)
        .map(|(one, other)| one.0.max(other.0))
        .min()
}

fn conditions(old: &Value, new: &Value, errors: &mut Errors) {
    let (before, status, spec) = (&old["status"], &new["status"], &new["spec"]);
    let change = Change::new(old, new);
    let done = is(new, "Complete") || is(new, "Failed");
    if (change.finished || change.of("terminating")) && done && count(status, "terminating") > 0 {
        errors.invalid(
            "status.terminating",
            &status["terminating"],
            "terminating>0 is invalid for finished job",
        );
    }
    if (change.of("ready") || change.of("active")) && count(status, "ready") > count(status, "active") {
        errors.invalid(
            "status.ready",
            &status["ready"],
            "cannot set more ready pods than active",
        );
    }
    let met = is(new, "SuccessCriteriaMet");
    exclude(
        met && is(new, "Failed"),
        "SuccessCriteriaMet=True and Failed=true",
        errors,
    );
    exclude(
        met && is(new, "FailureTarget"),
        "SuccessCriteriaMet=True and FailureTarget=true",
        errors,
    );
    if has(spec, "successPolicy") && !met && is(new, "Complete") {
        errors.invalid_unshown(
            CONDITIONS,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        );
    }
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is(old, kind) && !is(new, kind) {
            errors.invalid_unshown(
                CONDITIONS,
                &format!("cannot disable the terminal {kind}=True condition"),
            );
        }
    }
    let scales = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    for name in ["failed", "succeeded"] {
        if !(name == "succeeded" && scales) && count(status, name) < count(before, name) {
            errors.invalid(
                &format!("status.{name}"),
                &json!(count(status, name)),
                &format!("cannot decrease the {name} counter"),
            );
        }
    }
    let differs = |name: &str| has(before, name) && before[name] != status[name];
    if differs("completionTime") && has(status, "completionTime") {
        errors.invalid(
            "status.completionTime",
            &status["completionTime"],
            "field is immutable",
        );
    }
    if differs("startTime") && !change.resumes && spec["suspend"] != json!(true) {
        errors.invalid(
            "status.startTime",
            &status["startTime"],
            "field is immutable for unsuspended job once set",
        );
    }
    if is(old, "SuccessCriteriaMet") && !met {
        errors.invalid_unshown(CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is(old, "Complete") && !is(old, "SuccessCriteriaMet") && met {
        errors.invalid_unshown(
            CONDITIONS,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        );
    }
}
