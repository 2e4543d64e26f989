//! Delete: grace, finalizers, propagation, preconditions.

use super::context::{ATTEMPTS, Answer, Content, Context, List};
use super::hooks::{self, Special};
use super::read::{self, presented};
use crate::kinds::convert::to_served;
use crate::request::Operation;
use crate::request::body;
use crate::request::query::{Query, WriteOptions, check_dry_run, invalid_options};
use crate::store::{StoreError, resource_version};
use evenkeel_kube_rules::status::{ApiError, ApiResult, FieldError};
use evenkeel_kube_rules::strict::FieldValidation;
use evenkeel_kube_rules::time::rfc3339;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// Dependents stay, without an owner.
    Orphan,
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
}

/// The `DeleteOptions` of a request, from its body and its query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
    /// What becomes of dependents where neither the request nor the object says it.
    by_default: Option<Propagation>,
}

/// Upstream's words for those who delete a job and expect its pods to go, too.
const PODS_STAY: &str = "child pods are preserved by default when jobs are deleted; \
                         set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

impl DeleteOptions {
    /// From the body, or without one from the query.
    pub(crate) fn parse(context: &Context) -> ApiResult<Self> {
        let mut options = if context.body.is_empty() {
            Self::from_query(&context.query)?
        } else {
            let value = body::delete_options(&context.content_type, &context.body)?;
            Self::from_value(&value)?
        };
        let gvr = &context.resource.gvr;
        let job = (gvr.group.as_str(), gvr.resource.as_str()) == ("batch", "jobs");
        // As old clients expect, whose pods outlive what made them.
        if job || (gvr.group.is_empty() && gvr.resource == "replicationcontrollers") {
            options.by_default = Some(Propagation::Orphan);
        }
        // Nothing depends on an event.
        if gvr.resource == "events" {
            options.propagation = None;
        }
        if job && options.propagation.is_none() {
            context.warn(vec![PODS_STAY.to_owned()]);
        }
        Ok(options)
    }

    fn from_query(query: &Query) -> ApiResult<Self> {
        let mut value = json!({"dryRun": query.all("dryRun").collect::<Vec<_>>()});
        if let Some(grace) = query.number("gracePeriodSeconds")? {
            value["gracePeriodSeconds"] = json!(grace);
        }
        if let Some(policy) = query.get("propagationPolicy") {
            value["propagationPolicy"] = json!(policy);
        }
        if let Some(orphan) = query.optional_flag("orphanDependents") {
            value["orphanDependents"] = json!(orphan);
        }
        Self::from_value(&value)
    }

    /// Reads and checks a `DeleteOptions` object.
    pub(crate) fn from_value(value: &Value) -> ApiResult<Self> {
        let mut errors = Vec::new();
        let policy = value["propagationPolicy"].as_str();
        let orphan = value["orphanDependents"].as_bool();
        if let (Some(policy), Some(_)) = (policy, orphan) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError {
                reason: "FieldValueInvalid",
                field: "propagationPolicy".to_owned(),
                message: format!("Invalid value: {policy:?}: {why}"),
            });
        }
        let mut propagation = orphan.map(|orphan| {
            if orphan {
                Propagation::Orphan
            } else {
                Propagation::Background
            }
        });
        match policy {
            None => {}
            Some("Orphan") => propagation = Some(Propagation::Orphan),
            Some("Background") => propagation = Some(Propagation::Background),
            Some("Foreground") => propagation = Some(Propagation::Foreground),
            Some(other) => errors.push(FieldError {
                reason: "FieldValueNotSupported",
                field: "propagationPolicy".to_owned(),
                message: format!(
                    "Unsupported value: {other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                ),
            }),
        }
        let dry_run: Vec<String> = value["dryRun"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| item.as_str().unwrap_or_default().to_owned())
            .collect();
        let dry_run = check_dry_run(&dry_run).unwrap_or_else(|error| {
            errors.push(error);
            false
        });
        if !errors.is_empty() {
            return Err(invalid_options("DeleteOptions", errors));
        }
        let precondition = |name: &str| value["preconditions"][name].as_str().map(str::to_owned);
        Ok(Self {
            grace: value["gracePeriodSeconds"].as_i64(),
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            dry_run,
            by_default: None,
        })
    }

    /// The same for a namespace, of which upstream checks this beforehand, in words of its own.
    fn check_namespace(&self, context: &Context, name: &str, stored: &Value) -> ApiResult<()> {
        for (what, field, wanted) in [
            ("UID", "uid", &self.uid),
            ("ResourceVersion", "resourceVersion", &self.resource_version),
        ] {
            let found = stored["metadata"][field].as_str().unwrap_or_default();
            if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != found) {
                let why = format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
                );
                return Err(context.conflict(name, &why));
            }
        }
        Ok(())
    }

    /// 409 for an object that is not the one that was meant.
    pub(crate) fn check(&self, group: &str, kind: &str, name: &str, stored: &Value) -> ApiResult<()> {
        let metadata = &stored["metadata"];
        let found = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        if let Some(uid) = &self.uid
            && *uid != found("uid")
        {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                found("uid")
            );
            return Err(ApiError::conflict(group, kind, name, &why));
        }
        if let Some(version) = &self.resource_version
            && *version != found("resourceVersion")
        {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
                 The object might have been modified",
                found("resourceVersion")
            );
            return Err(ApiError::conflict(group, kind, name, &why));
        }
        Ok(())
    }
}

/// What a deletion does to an object.
#[derive(Debug, PartialEq)]
enum Plan {
    /// Nothing: a deletion is under way that this one would not speed up.
    Leave,
    /// Its deletion is recorded; the object stays until its finalizers or its grace period end.
    Mark(Value),
    /// Its deletion is recorded, and the object is removed.
    MarkAndRemove(Value),
    /// The object is removed.
    Remove,
}

/// Decides what a deletion does, by the rules of upstream's `BeforeDelete` and its store.
fn plan(kind: &str, stored: &Value, options: &DeleteOptions, now: Timestamp) -> Plan {
    let mut object = stored.clone();
    let metadata = &stored["metadata"];
    let deleted_at = metadata["deletionTimestamp"].as_str();
    let pending = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let mut grace = None;
    if let Some(deleted_at) = deleted_at {
        if pending != 0 {
            match options.grace {
                Some(wanted) if wanted < pending => {
                    let at: Timestamp = deleted_at.parse().unwrap_or(now);
                    let at = at
                        .saturating_sub(SignedDuration::from_secs(pending - wanted))
                        .unwrap_or(now);
                    object["metadata"]["deletionTimestamp"] = json!(rfc3339(at));
                    object["metadata"]["deletionGracePeriodSeconds"] = json!(wanted);
                    grace = Some(wanted);
                }
                _ => return Plan::Leave,
            }
        }
    } else if kind == "Pod" {
        let period = pod_grace(stored, options.grace);
        let at = now
            .saturating_add(SignedDuration::from_secs(period))
            .unwrap_or(now);
        object["metadata"]["deletionTimestamp"] = json!(rfc3339(at));
        object["metadata"]["deletionGracePeriodSeconds"] = json!(period);
        bump_generation(&mut object);
        grace = Some(period);
    }
    let held = set_finalizers(&mut object, options);
    match grace {
        Some(0) if !held => Plan::MarkAndRemove(object),
        Some(_) => Plan::Mark(object),
        None if held => {
            if deleted_at.is_none() {
                object["metadata"]["deletionTimestamp"] = json!(rfc3339(now));
                bump_generation(&mut object);
            }
            object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            Plan::Mark(object)
        }
        None => Plan::Remove,
    }
}

/// Seconds that a pod gets: none where nothing runs that could use them.
fn pod_grace(pod: &Value, wanted: Option<i64>) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if unscheduled || ended {
        return 0;
    }
    let period = wanted
        .or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(0);
    if period < 0 { 1 } else { period }
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"]
        .as_i64()
        .filter(|generation| *generation > 0)
    {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

/// Sets the finalizers as the propagation wants them, and tells whether there are any.
pub(crate) fn set_finalizers(object: &mut Value, options: &DeleteOptions) -> bool {
    let finalizers = finalizers(&object["metadata"], options);
    let held = !finalizers.is_empty();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if held {
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        } else {
            metadata.remove("finalizers");
        }
    }
    held
}

/// The finalizers after the garbage collector's own are set as the propagation wants them.
fn finalizers(metadata: &Value, options: &DeleteOptions) -> Vec<String> {
    let existing: Vec<&str> = metadata["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let said = existing.iter().any(|name| matches!(*name, ORPHAN | FOREGROUND));
    let wanted = options.propagation.or(options.by_default.filter(|_| !said));
    let wants = |name: &str, policy: Propagation| match wanted {
        Some(propagation) => propagation == policy,
        None => existing.contains(&name),
    };
    let mut all: Vec<String> = existing
        .iter()
        .filter(|name| !matches!(**name, ORPHAN | FOREGROUND))
        .map(|name| (*name).to_owned())
        .collect();
    for (name, policy) in [
        (ORPHAN, Propagation::Orphan),
        (FOREGROUND, Propagation::Foreground),
    ] {
        if wants(name, policy) {
            all.push(name.to_owned());
        }
    }
    all
}

/// How a deletion ended.
pub(crate) enum Outcome {
    /// The object is gone; its last state.
    Gone(Arc<Value>),
    /// The deletion is recorded, and the object still exists.
    Waiting(Arc<Value>),
}

/// Deletes one object; `admit` says whether admission is asked.
pub(crate) async fn remove(
    context: &Context,
    name: &str,
    options: &DeleteOptions,
    admit: bool,
) -> ApiResult<Outcome> {
    let (store, table, key) = (&context.server.store, context.table(), context.key_of(name));
    for _ in 0..ATTEMPTS {
        let stored = store.get(&table, &key).ok_or_else(|| context.not_found(name))?;
        if hooks::is_core(context, "namespaces") {
            options.check_namespace(context, name, &stored)?;
        }
        options.check(
            &context.resource.stored_gvk().group,
            &context.resource.kind,
            name,
            &stored,
        )?;
        if admit {
            ask_admission(context, name, &stored, options.dry_run).await?;
        }
        let now = Timestamp::now();
        let plan = match hooks::deletion_of_special(context, &stored, options, now) {
            Special::No => plan(&context.resource.kind, &stored, options, now),
            Special::Free => Plan::Remove,
            Special::Waits(marked) => Plan::Mark(marked),
        };
        if options.dry_run {
            return Ok(match plan {
                Plan::Leave => Outcome::Waiting(stored),
                Plan::Mark(object) => Outcome::Waiting(Arc::new(object)),
                Plan::MarkAndRemove(object) => Outcome::Gone(Arc::new(object)),
                Plan::Remove => Outcome::Gone(stored),
            });
        }
        let expected = resource_version(&stored);
        let result = match plan {
            Plan::Leave => Ok(Outcome::Waiting(stored.clone())),
            Plan::Mark(object) => store.update(&table, &key, expected, object).map(|marked| {
                hooks::updated(context, &stored, &marked);
                Outcome::Waiting(marked)
            }),
            Plan::MarkAndRemove(object) => store
                .update(&table, &key, expected, object)
                .and_then(
                    |marked| match store.delete(&table, &key, resource_version(&marked)) {
                        // Who saw the mark, as a kubelet does, has removed it meanwhile.
                        Err(StoreError::Missing) => Ok(marked),
                        removed => removed,
                    },
                )
                .map(Outcome::Gone),
            Plan::Remove => store.delete(&table, &key, expected).map(Outcome::Gone),
        };
        match result {
            Ok(outcome) => {
                if matches!(outcome, Outcome::Gone(_)) {
                    hooks::deleted(context, &stored);
                }
                return Ok(outcome);
            }
            Err(StoreError::Missing) => return Err(context.not_found(name)),
            Err(_) => {}
        }
    }
    Err(context.modified(name))
}

async fn ask_admission(context: &Context, name: &str, stored: &Arc<Value>, dry_run: bool) -> ApiResult<()> {
    let options = WriteOptions {
        dry_run,
        field_validation: FieldValidation::Ignore,
        field_manager: String::new(),
        force: false,
    };
    let old = (*to_served(&context.resource, stored)).clone();
    let mut attributes = context.attributes(
        Operation::Delete,
        name,
        (None, Some(old)),
        &options,
        "DeleteOptions",
    );
    let admission = &context.server.access.admission;
    let warnings = admission
        .mutate(&mut attributes, context.reader(), &|_| {})
        .await?;
    context.warn(warnings);
    let warnings = admission.validate(&attributes, context.reader()).await?;
    context.warn(warnings);
    Ok(())
}

/// Kinds of which a deletion shows the object that went, not a `Status`.
fn shows_object(context: &Context) -> bool {
    matches!(
        (
            context.resource.gvr.group.as_str(),
            context.resource.gvr.resource.as_str()
        ),
        (
            "",
            "pods"
                | "podtemplates"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "resourcequotas"
                | "serviceaccounts"
                | "services"
        ) | (
            "storage.k8s.io",
            "csidrivers" | "csinodes" | "storageclasses" | "volumeattachments" | "volumeattributesclasses"
        )
    )
}

pub(crate) async fn delete(context: &Context) -> ApiResult<Answer> {
    let options = DeleteOptions::parse(context)?;
    let name = &context.info.name;
    Ok(match remove(context, name, &options, true).await? {
        Outcome::Waiting(object) => Answer::object(200, presented(context, &object)),
        Outcome::Gone(object) if shows_object(context) => Answer::object(200, presented(context, &object)),
        Outcome::Gone(object) => {
            let gvr = &context.resource.gvr;
            let mut details = json!({
                "name": name, "kind": gvr.resource, "uid": object["metadata"]["uid"],
            });
            if !gvr.group.is_empty() {
                details["group"] = json!(gvr.group);
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            Answer::value(200, status)
        }
    })
}

pub(crate) async fn delete_collection(context: &Context) -> ApiResult<Answer> {
    let options = DeleteOptions::parse(context)?;
    let (_, selector) = read::options(context, false)?;
    let listed = context
        .server
        .store
        .list(&context.table(), context.list_namespace());
    let mut items = Vec::new();
    for (_, object) in &listed.items {
        let object = presented(context, object);
        if !selector.matches(&object) {
            continue;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        match remove(context, name, &options, true).await {
            // Upstream answers with what it found, whatever became of it.
            Ok(Outcome::Waiting(_) | Outcome::Gone(_)) => items.push(object),
            // Somebody else deleted it: gone is what was wanted.
            Err(error) if error.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Answer {
        status: 200,
        content: Content::List(List {
            items,
            resource_version: Some(listed.resource_version),
            continue_token: None,
            remaining: None,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    fn pod(node: &str, extra: Value) -> Value {
        let mut pod = json!({
            "metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30},
        });
        json_patch::merge(&mut pod, &extra);
        pod
    }

    fn grace(seconds: i64) -> DeleteOptions {
        DeleteOptions {
            grace: Some(seconds),
            ..DeleteOptions::default()
        }
    }

    fn marked(plan: Plan) -> Value {
        match plan {
            Plan::Mark(object) => object["metadata"].clone(),
            other => panic!("not marked: {other:?}"),
        }
    }

    #[test]
    fn a_pod_on_a_node_gets_its_grace() {
        let metadata = marked(plan(
            "Pod",
            &pod("n", json!({})),
            &DeleteOptions::default(),
            now(),
        ));
        assert_eq!(metadata["deletionGracePeriodSeconds"], 30);
        assert_eq!(metadata["deletionTimestamp"], "2026-01-01T00:00:30Z");
        assert_eq!(metadata["generation"], 2);
    }

    #[test]
    fn a_pod_without_a_running_container_goes_at_once() {
        for pod in [
            pod("", json!({})),
            pod("n", json!({"status": {"phase": "Failed"}})),
        ] {
            assert!(matches!(
                plan("Pod", &pod, &DeleteOptions::default(), now()),
                Plan::MarkAndRemove(_)
            ));
        }
    }

    #[test]
    fn a_second_deletion_may_only_shorten_the_first() {
        let extra = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}});
        let pod = pod("n", extra);
        assert_eq!(plan("Pod", &pod, &DeleteOptions::default(), now()), Plan::Leave);
        assert_eq!(plan("Pod", &pod, &grace(40), now()), Plan::Leave);
        let metadata = marked(plan("Pod", &pod, &grace(5), now()));
        assert_eq!(metadata["deletionTimestamp"], "2026-01-01T00:00:05Z");
        assert_eq!(
            metadata["generation"], 1,
            "only the first deletion changes the desired state"
        );
        assert!(matches!(
            plan("Pod", &pod, &grace(0), now()),
            Plan::MarkAndRemove(_)
        ));
    }

    #[test]
    fn finalizers_hold_an_object_back() {
        let object = json!({"metadata": {"generation": 3, "finalizers": ["a"]}});
        let metadata = marked(plan("Deployment", &object, &DeleteOptions::default(), now()));
        assert_eq!(
            (&metadata["deletionGracePeriodSeconds"], &metadata["generation"]),
            (&json!(0), &json!(4))
        );
        let free = json!({"metadata": {}});
        assert_eq!(
            plan("ConfigMap", &free, &DeleteOptions::default(), now()),
            Plan::Remove
        );
    }

    #[test]
    fn propagation_is_a_finalizer_for_the_garbage_collector() {
        let object = json!({"metadata": {"finalizers": ["a", "orphan"]}});
        let metadata = &object["metadata"];
        let with = |propagation, by_default| DeleteOptions {
            propagation,
            by_default,
            ..DeleteOptions::default()
        };
        let orphan = Some(Propagation::Orphan);
        assert_eq!(finalizers(metadata, &with(None, None)), ["a", "orphan"]);
        let foreground = with(Some(Propagation::Foreground), orphan);
        assert_eq!(finalizers(metadata, &foreground), ["a", "foregroundDeletion"]);
        assert_eq!(
            finalizers(metadata, &with(Some(Propagation::Background), orphan)),
            ["a"]
        );
        let plain = json!({"finalizers": ["a"]});
        assert_eq!(finalizers(&plain, &with(None, None)), ["a"]);
        assert_eq!(finalizers(&plain, &with(None, orphan)), ["a", "orphan"]);
        let said = json!({"finalizers": ["foregroundDeletion"]});
        assert_eq!(finalizers(&said, &with(None, orphan)), ["foregroundDeletion"]);
    }

    #[test]
    fn contradicting_options_are_refused() {
        let both = json!({"propagationPolicy": "Background", "orphanDependents": true});
        let error = DeleteOptions::from_value(&both).expect_err("both cannot hold");
        assert_eq!(error.code, 422);
    }
}
