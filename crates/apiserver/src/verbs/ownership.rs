//! Who owns which fields of an object, noted by every write.

use super::context::{Answer, Context};
use super::naming::fit_name;
use super::rules::Part;
use super::write::{creates_on_update, insert_instead, replace};
use crate::kinds::convert::{to_served, to_stored};
use crate::kinds::{Resource, Snapshot};
use crate::request::query::{WriteOptions, check_patch};
use evenkeel_kube_rules::apply::{self, Kind, Write};
use evenkeel_kube_rules::gvk::{Gvk, split_api_version};
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::strict::{self, FieldValidation};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// Times that a configuration is applied anew after somebody else's write; upstream's number.
const ATTEMPTS: usize = 5;

/// The kind of a resource's objects as ownership sees it; `None` for a definition that does not compile.
fn kind(resource: &Resource) -> Option<Kind<'_>> {
    match &resource.custom {
        None => Some(Kind::Builtin(resource.gvk())),
        Some(custom) => custom.kind().ok().map(Kind::Custom),
    }
}

/// An object in another served version of its kind.
fn convert<'a>(snapshot: &'a Snapshot, object: &Value, version: &str) -> Option<(Value, Kind<'a>)> {
    let resource = |api_version: &str| {
        let (group, version) = split_api_version(api_version);
        snapshot.by_gvk(&Gvk {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: object["kind"].as_str()?.to_owned(),
        })
    };
    let (from, to) = (resource(object["apiVersion"].as_str()?)?, resource(version)?);
    let stored = Arc::new(to_stored(from, object.clone()));
    Some(((*to_served(to, &stored)).clone(), kind(to)?))
}

/// Calls `rules` with what they need to know of a write.
fn with_write<T>(
    context: &Context,
    options: &WriteOptions,
    rules: impl FnOnce(&Write<'_>) -> T,
) -> ApiResult<T> {
    let snapshot = context.server.registry.snapshot();
    let kind = kind(&context.resource).ok_or_else(|| {
        ApiError::internal(format!(
            "the definition of {} does not compile",
            context.resource.kind
        ))
    })?;
    Ok(rules(&Write {
        manager: &options.field_manager,
        subresource: &context.info.subresource,
        now: Timestamp::now(),
        kind,
        convert: &|object, version| convert(&snapshot, object, version),
    }))
}

/// Notes who owns what in a new state, in the version that is served. `live` is the stored object, if any.
pub(crate) fn track(
    context: &Context,
    options: &WriteOptions,
    live: Option<&Value>,
    new: &mut Value,
) -> ApiResult<()> {
    with_write(context, options, |write| apply::track(write, live, new))
}

/// An object with a configuration applied to it, decoded and defaulted.
pub(crate) fn applied(
    context: &Context,
    options: &WriteOptions,
    live: Option<&Value>,
    config: &Value,
) -> ApiResult<Value> {
    let merged = with_write(context, options, |write| {
        apply::apply(write, live, config, options.force)
    })??;
    let rules = context.rules()?;
    let (shown, ty) = (apply::shown(config), apply::shown_type(&merged));
    let decoded = rules.check_map(merged, FieldValidation::Ignore).map_err(|text| {
        ApiError::unforeseen(format!(
            "failed to convert new object ({shown}) to proper version: unable to convert unstructured object to \
             {ty}: {text}"
        ))
    })?;
    let mut object = decoded.object;
    rules.apply_defaults_to_applied(&mut object);
    Ok(object)
}

/// What becomes of a configuration in which a key stands twice.
pub(crate) fn warn_of_doubled(
    context: &Context,
    doubled: Option<&str>,
    mode: FieldValidation,
) -> ApiResult<()> {
    match (doubled, mode) {
        (Some(text), FieldValidation::Strict) => Err(ApiError::bad_request(format!(
            "error strict decoding YAML: {text}"
        ))),
        (Some(text), FieldValidation::Warn) => {
            context.warn(vec![text.to_owned()]);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Server-side apply.
pub(crate) async fn patch(context: &Context, part: Part) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&context.query, "PatchOptions", &context.user_agent)?;
    check_patch(&context.query, true)?;
    let (config, doubled) = strict::decode_apply(&context.body)?;
    for _ in 0..ATTEMPTS {
        let stored = context
            .server
            .store
            .get(&context.table(), &context.key_of(&context.info.name));
        let live = stored.as_ref().map(|stored| to_served(&context.resource, stored));
        if live.is_none() && part != Part::Main && !status_creates(context) {
            return Err(context.not_found(&context.info.name));
        }
        let new = applied(context, &options, live.as_deref(), &config)?;
        warn_of_doubled(context, doubled.as_deref(), options.field_validation)?;
        let Some(stored) = stored else {
            return create(context, new, &options).await;
        };
        if let Some(answer) = replace(context, part, &stored, new, &options, "UpdateOptions").await? {
            return Ok(answer);
        }
    }
    Err(context.modified(&context.info.name))
}

/// Kinds that come to be where their status is applied to nothing.
fn status_creates(context: &Context) -> bool {
    context.resource.gvr.resource == "validatingadmissionpolicies" || creates_on_update(context)
}

/// What is applied to nothing is created, if the user may do that.
async fn create(context: &Context, mut new: Value, options: &WriteOptions) -> ApiResult<Answer> {
    let name = context.info.name.as_str();
    fit_name(context, &mut new)?;
    if let Some(uid) = new["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(context.conflict(name, &why));
    }
    insert_instead(context, new, options).await
}
