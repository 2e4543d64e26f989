//! The metadata of what is written: names, owners, identity.

use super::context::Context;
use crate::access::uid;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use serde_json::{Value, json};

/// When owners that stand twice are met after webhooks.
pub(super) const AFTER_MUTATION: &str = " after mutating admission happens";

/// Takes out owners that stand twice, and says so.
pub(super) fn single_owners(object: &mut Value, when: &str) -> Vec<String> {
    let metadata = object.get_mut("metadata");
    let owners = metadata.and_then(|metadata| metadata.get_mut("ownerReferences"));
    let Some(owners) = owners.and_then(Value::as_array_mut) else {
        return Vec::new();
    };
    let (mut seen, mut doubled): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    for owner in owners.drain(..) {
        if seen.contains(&owner) {
            doubled.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        } else {
            seen.push(owner);
        }
    }
    *owners = seen;
    if doubled.is_empty() {
        return Vec::new();
    }
    vec![format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        doubled.join(", ")
    )]
}

/// The namespace of the path holds; an object may repeat it, but not differ.
pub(crate) fn fit_namespace(context: &Context, object: &mut Value) -> ApiResult<()> {
    let wanted = context.namespace();
    let found = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if wanted.is_empty() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
    } else if found.is_empty() {
        object["metadata"]["namespace"] = json!(wanted);
    } else if found != wanted {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// The name of the path holds.
pub(crate) fn fit_name(context: &Context, object: &mut Value) -> ApiResult<()> {
    let wanted = &context.info.name;
    match object["metadata"]["name"].as_str().unwrap_or_default() {
        "" => return Err(no_name(context)),
        found if found != wanted => {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({found}) does not match the name on the URL ({wanted})"
            )));
        }
        _ => {}
    }
    Ok(())
}

/// 400 for an object that names none.
pub(crate) fn no_name(context: &Context) -> ApiError {
    ApiError::bad_request(format!(
        "the name of the object ({} based on URL) was undeterminable: name must be provided",
        context.info.name
    ))
}

/// A name made of a prefix, which upstream cuts so that the name fits in a label.
pub(super) fn generated(prefix: &str) -> String {
    prefix.chars().take(58).chain(uid::suffix().chars()).collect()
}
