//! Create and update.

use super::context::{ATTEMPTS, Answer, Context};
use super::hooks;
use super::naming::{AFTER_MUTATION, fit_name, fit_namespace, generated, single_owners};
use super::ownership;
use super::rules::Part;
use super::services;
use crate::access::uid;
use crate::kinds::convert::{to_served, to_stored};
use crate::request::body;
use crate::request::query::WriteOptions;
use crate::request::{Operation, RequestInfo};
use crate::store::{StoreError, resource_version};
use evenkeel_kube_rules::apply;
use evenkeel_kube_rules::status::{ApiError, ApiResult, FieldError};
use evenkeel_kube_rules::strict;
use evenkeel_kube_rules::time::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// Names tried for `generateName`.
const NAMES: usize = 8;

pub(crate) async fn create(context: &Context) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&context.query, "CreateOptions", &context.user_agent)?;
    let mut object = decode(context, &options)?;
    wipe(&mut object);
    ownership::track(context, &options, None, &mut object)?;
    insert(context, object, &options).await
}

/// Decodes and defaults the body.
fn decode(context: &Context, options: &WriteOptions) -> ApiResult<Value> {
    let mut object = context.read_body(options.field_validation)?;
    body::ensure_metadata(&mut object);
    context.warn(single_owners(&mut object, ""));
    context.rules()?.apply_defaults(&mut object);
    Ok(object)
}

/// Stores a new, decoded and defaulted object.
async fn insert(context: &Context, mut object: Value, options: &WriteOptions) -> ApiResult<Answer> {
    fit_namespace(context, &mut object)?;
    let rules = context.rules()?;
    let redefault = |object: &mut Value| rules.apply_defaults(object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let admission = &context.server.access.admission;
    let managers = managers_of(&object);
    let mut attributes = context.attributes(
        Operation::Create,
        &name,
        (Some(object), None),
        options,
        "CreateOptions",
    );
    let warnings = admission
        .mutate(&mut attributes, context.reader(), &redefault)
        .await?;
    context.warn(warnings);
    let mut object = attributes.object.take().unwrap_or_default();
    context.warn(single_owners(&mut object, AFTER_MUTATION));
    keep_managers(context, managers, &mut object);
    own_metadata(&mut object);
    let had_version = object["metadata"]["resourceVersion"]
        .as_str()
        .is_some_and(|version| !version.is_empty());
    let prefix = object["metadata"]["generateName"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let generates = object["metadata"]["name"].as_str().is_none_or(str::is_empty) && !prefix.is_empty();
    let mut attempts = if generates { NAMES } else { 1 };
    let unnamed = to_stored(&context.resource, object);
    context.warn(rules.early_warnings(&unnamed));
    loop {
        let mut object = unnamed.clone();
        if generates {
            object["metadata"]["name"] = json!(generated(&prefix));
        }
        // After the name, of which what a job selects is made.
        rules.prepare_create(&mut object);
        hooks::prepare_create(context, &mut object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        // Upstream gives addresses before it looks at the rest.
        context.valid(&object, rules.validate_allocation(None, &object))?;
        let claim = services::claim_for_create(context, &mut object)?;
        context.valid(&object, rules.validate_create(&object))?;
        context.warn(rules.create_warnings(&object));
        attributes.name.clone_from(&name);
        attributes.object = Some((*to_served(&context.resource, &Arc::new(object.clone()))).clone());
        let warnings = admission.validate(&attributes, context.reader()).await?;
        context.warn(warnings);
        // A dry run does not come as far as the storage, which refuses it.
        if had_version && !options.dry_run {
            return Err(ApiError::unforeseen(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let (table, key) = (context.table(), context.key_of(&name));
        if let Some(existing) = context.server.store.get(&table, &key) {
            attempts -= 1;
            if attempts == 0 {
                let mut error = context.already_exists(&name);
                if !existing["metadata"]["deletionTimestamp"].is_null() {
                    error.message = format!("object is being deleted: {}", error.message);
                }
                return Err(error);
            }
            continue;
        }
        forget_empty(context, &mut object);
        if options.dry_run {
            return Ok(Answer::object(
                201,
                to_served(&context.resource, &Arc::new(object)),
            ));
        }
        if let Ok(stored) = context.server.store.create(&table, &key, object) {
            claim.keep();
            hooks::created(context, &stored);
            return Ok(Answer::object(201, to_served(&context.resource, &stored)));
        }
        // Somebody was faster: another name, or the answer that the look-up above would have given.
        attempts -= 1;
        if attempts == 0 {
            return Err(context.already_exists(&name));
        }
    }
}

/// Built-in kinds lose what upstream's storage does not keep; custom resources are stored as they are.
fn forget_empty(context: &Context, object: &mut Value) {
    if context.resource.custom.is_none() {
        strict::forget_empty(&context.resource.stored_gvk(), object);
    }
}

/// Stores what was put or applied where nothing was, if the user may create it.
pub(crate) async fn insert_instead(
    context: &Context,
    mut object: Value,
    options: &WriteOptions,
) -> ApiResult<Answer> {
    let create = RequestInfo {
        verb: "create".to_owned(),
        ..context.info.clone()
    };
    let authorizer = &context.server.access.authorizer;
    authorizer.check(&context.user, &create, context.reader())?;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    insert(context, object, options).await
}

/// Takes out what no new object has.
fn wipe(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(name);
        }
    }
}

/// Sets what the server owns in a new object.
fn own_metadata(object: &mut Value) {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    wipe(object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.insert("uid".to_owned(), json!(uid::random()));
        metadata.insert("creationTimestamp".to_owned(), json!(rfc3339(Timestamp::now())));
    }
}

/// Kinds that a PUT may create, be it one of their status.
pub(crate) fn creates_on_update(context: &Context) -> bool {
    let resource = context.resource.gvr.resource.as_str();
    match context.resource.gvr.group.as_str() {
        "" => matches!(resource, "endpoints" | "events" | "limitranges" | "services"),
        "coordination.k8s.io" => true,
        "events.k8s.io" => resource == "events",
        "node.k8s.io" => resource == "runtimeclasses",
        "rbac.authorization.k8s.io" => true,
        _ => false,
    }
}

/// Kinds of which a PUT has to say which state it replaces.
fn needs_version(context: &Context) -> bool {
    context.resource.custom.is_some()
        || matches!(
            context.resource.gvr.resource.as_str(),
            "leases"
                | "leasecandidates"
                | "customresourcedefinitions"
                | "poddisruptionbudgets"
                | "mutatingwebhookconfigurations"
                | "validatingwebhookconfigurations"
                | "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
                | "csinodes"
                | "csidrivers"
                | "csistoragecapacities"
                | "volumeattachments"
                | "runtimeclasses"
                | "apiservices"
        )
}

pub(crate) async fn update(context: &Context, part: Part) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&context.query, "UpdateOptions", &context.user_agent)?;
    let mut object = decode(context, &options)?;
    fit_name(context, &mut object)?;
    fit_namespace(context, &mut object)?;
    let name = &context.info.name;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let unconditional = matches!(text, "" | "0");
    let unreadable = !text.is_empty() && text.parse::<u64>().is_err();
    let unreadable = unreadable
        .then(|| ApiError::unforeseen(format!("strconv.ParseUint: parsing {text:?}: invalid syntax")));
    let existing = context.server.store.get(&context.table(), &context.key_of(name));
    match (existing, unreadable) {
        (Some(stored), Some(error)) => {
            check_uid(context, &stored, &uid, options.dry_run)?;
            return Err(error);
        }
        (None, error) if creates_on_update(context) => {
            check_uid(context, &Value::Null, &uid, options.dry_run)?;
            if let Some(error) = error {
                return Err(error);
            }
            ownership::track(context, &options, None, &mut object)?;
            return insert_instead(context, object, &options).await;
        }
        (None, Some(_)) => return Err(context.not_found(name)),
        _ => {}
    }
    for _ in 0..ATTEMPTS {
        let stored = context.stored()?;
        check_uid(context, &stored, &uid, options.dry_run)?;
        check_version(context, &object)?;
        let mut new = object.clone();
        let live = to_served(&context.resource, &stored);
        ownership::track(context, &options, Some(&live), &mut new)?;
        match replace(context, part, &stored, new, &options, "UpdateOptions").await? {
            Some(answer) => return Ok(answer),
            None if !unconditional => return Err(context.modified(name)),
            None => {}
        }
    }
    Err(context.modified(name))
}

/// 422 for a new state that does not say which one it replaces, of a kind that demands it.
pub(crate) fn check_version(context: &Context, new: &Value) -> ApiResult<()> {
    let text = new["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !matches!(text, "" | "0") || !needs_version(context) {
        return Ok(());
    }
    let error = FieldError {
        reason: "FieldValueInvalid",
        field: "metadata.resourceVersion".to_owned(),
        message: "Invalid value: 0: must be specified for an update".to_owned(),
    };
    let gvr = &context.resource.gvr;
    Err(ApiError::invalid(
        &gvr.group,
        &gvr.resource,
        &context.info.name,
        vec![error],
    ))
}

/// A UID in the body of a PUT is a precondition, also where nothing is stored.
fn check_uid(context: &Context, stored: &Value, uid: &str, dry_run: bool) -> ApiResult<()> {
    let found = stored["metadata"]["uid"].as_str().unwrap_or_default();
    if uid.is_empty() || uid == found {
        return Ok(());
    }
    let gvr = &context.resource.gvr;
    let place = match (gvr.group.as_str(), gvr.resource.as_str()) {
        (group, resource) if context.resource.custom.is_some() => format!("{group}/{resource}"),
        // Names from before there were names.
        ("", "nodes") => "minions".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (_, resource) => resource.to_owned(),
    };
    let key = context.key_of(&context.info.name);
    // Upstream's storage adds the prefix, and a dry run is answered above it.
    let registry = if dry_run { "" } else { "/registry" };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {registry}/{place}/{key}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
    );
    Err(context.conflict(&context.info.name, &why))
}

/// Puts a new state, decoded and defaulted in the served version, in the place of `stored`. `None`: somebody
/// else wrote in the meantime.
pub(crate) async fn replace(
    context: &Context,
    part: Part,
    stored: &Arc<Value>,
    mut new: Value,
    options: &WriteOptions,
    kind: &str,
) -> ApiResult<Option<Answer>> {
    let name = context.info.name.as_str();
    fit_name(context, &mut new)?;
    fit_namespace(context, &mut new)?;
    let version = new["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if !matches!(version.as_str(), "" | "0") && stored["metadata"]["resourceVersion"] != *version {
        return Err(context.modified(name));
    }
    keep_metadata(stored, &mut new);
    let rules = context.rules()?;
    let redefault = |object: &mut Value| rules.apply_defaults(object);
    let old = to_served(&context.resource, stored);
    let admission = &context.server.access.admission;
    let managers = managers_of(&new);
    let objects = (Some(new), Some((*old).clone()));
    let mut attributes = context.attributes(Operation::Update, name, objects, options, kind);
    let warnings = admission
        .mutate(&mut attributes, context.reader(), &redefault)
        .await?;
    context.warn(warnings);
    let mut new = attributes.object.take().unwrap_or_default();
    context.warn(single_owners(&mut new, AFTER_MUTATION));
    keep_managers(context, managers, &mut new);
    let new = to_stored(&context.resource, new);
    let checked = check_update(context, part, stored, new)?;
    attributes.object = Some((*to_served(&context.resource, &Arc::new(checked.clone()))).clone());
    let warnings = admission.validate(&attributes, context.reader()).await?;
    context.warn(warnings);
    let written = store_update(context, stored, checked, options.dry_run)?;
    Ok(written.map(|written| Answer::object(200, to_served(&context.resource, &written))))
}

/// Prepares and validates a new state in the stored version.
fn check_update(context: &Context, part: Part, stored: &Value, mut new: Value) -> ApiResult<Value> {
    let rules = context.rules()?;
    rules.prepare_update(part, stored, &mut new);
    hooks::prepare_update(context, part, stored, &mut new);
    if part == Part::Main {
        context.valid(&new, rules.validate_allocation(Some(stored), &new))?;
    }
    context.valid(&new, rules.validate_update(part, stored, &new))?;
    context.warn(rules.update_warnings(part, stored, &new));
    Ok(new)
}

/// Prepares, validates and stores a new state in the stored version, without asking admission. `None`:
/// somebody else wrote in the meantime.
pub(crate) fn commit(
    context: &Context,
    part: Part,
    stored: &Arc<Value>,
    new: Value,
    dry_run: bool,
) -> ApiResult<Option<Arc<Value>>> {
    let new = check_update(context, part, stored, new)?;
    store_update(context, stored, new, dry_run)
}

fn store_update(
    context: &Context,
    stored: &Arc<Value>,
    mut new: Value,
    dry_run: bool,
) -> ApiResult<Option<Arc<Value>>> {
    let name = context.info.name.as_str();
    let claim = services::claim_for_update(context, stored, &mut new)?;
    forget_empty(context, &mut new);
    keep_times(stored, &mut new);
    if dry_run {
        // It shows the version that it would have replaced.
        new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        return Ok(Some(Arc::new(new)));
    }
    let (store, table, key) = (&context.server.store, context.table(), context.key_of(name));
    let expected = resource_version(stored);
    if ends(context, stored, &new) {
        // The last finalizer went: the object shows what was asked for, at the version that it had.
        let mut last = new;
        last["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        return match store.delete(&table, &key, expected) {
            Ok(_) => {
                hooks::deleted(context, stored);
                Ok(Some(Arc::new(last)))
            }
            Err(StoreError::Missing) => Err(context.not_found(name)),
            Err(_) => Ok(None),
        };
    }
    match store.update(&table, &key, expected, new) {
        Ok(written) => {
            claim.keep();
            hooks::updated(context, stored, &written);
            Ok(Some(written))
        }
        Err(StoreError::Missing) => Err(context.not_found(name)),
        Err(_) => Ok(None),
    }
}

/// The owners that an object notes.
fn managers_of(object: &Value) -> Value {
    object["metadata"]["managedFields"].clone()
}

/// Owners that a webhook has spoilt are those from before it, with a warning.
fn keep_managers(context: &Context, managers: Value, object: &mut Value) {
    if let Err(error) = apply::check_managers(object) {
        context.warn(vec![format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
             mutating admission controller; please fix your requests: {error}"
        )]);
        put_managers(object, managers);
    }
}

fn put_managers(object: &mut Value, managers: Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if managers.is_null() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), managers);
        }
    }
}

/// A write that changes nothing but the times of owners changes nothing.
fn keep_times(stored: &Value, new: &mut Value) {
    let without_times = |managers: &Value| {
        let mut managers = managers.clone();
        for entry in managers.as_array_mut().into_iter().flatten() {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        managers
    };
    let (old, now) = (managers_of(stored), managers_of(new));
    if old == now || without_times(&old) != without_times(&now) {
        return;
    }
    put_managers(new, old);
    let version = new["metadata"]["resourceVersion"].take();
    new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
    if new != stored {
        put_managers(new, now);
    }
    new["metadata"]["resourceVersion"] = version;
}

/// Carries over what the server owns.
fn keep_metadata(stored: &Value, new: &mut Value) {
    let old = &stored["metadata"];
    let Some(metadata) = new["metadata"].as_object_mut() else {
        return;
    };
    metadata.remove("selfLink");
    for name in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let absent = metadata
            .get(name)
            .is_none_or(|value| value.is_null() || *value == "");
        if absent && !old[name].is_null() {
            metadata.insert(name.to_owned(), old[name].clone());
        }
    }
}

/// Whether an update takes away the last thing that held a deletion back.
fn ends(context: &Context, old: &Value, new: &Value) -> bool {
    let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    if old["metadata"]["deletionTimestamp"].is_null() || !empty(&new["metadata"]["finalizers"]) {
        return false;
    }
    if context.resource.kind == "Namespace" && context.resource.gvr.group.is_empty() {
        return empty(&new["spec"]["finalizers"]);
    }
    old["metadata"]["deletionGracePeriodSeconds"] == 0
}
