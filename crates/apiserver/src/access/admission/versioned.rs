//! A request as webhooks and policies see it.

use super::matching::operation_name;
use crate::access::review::describe;
use crate::request::Attributes;
use evenkeel_kube_rules::gvk::{Gvr, group_version};
use serde_json::{Value, json};

/// A request in the version of the object that somebody wants to see.
pub(super) struct Versioned {
    /// An AdmissionRequest without `uid`, `object` and `oldObject`: what CEL knows as `request`.
    pub(super) request: Value,
    /// `null` where there is none.
    pub(super) object: Value,
    pub(super) old_object: Value,
    /// `apiVersion` of the request and of what is seen.
    api_versions: (String, String),
}

impl Versioned {
    pub(super) fn new(attributes: &Attributes, wanted: &Gvr) -> Self {
        let own = attributes.gvr.version == wanted.version;
        let kind_version = if own {
            &attributes.gvk.version
        } else {
            &wanted.version
        };
        let api_version = |version: &str| group_version(&attributes.gvk.group, version);
        let api_versions = (api_version(&attributes.gvk.version), api_version(kind_version));
        let object = |object: &Option<Value>| match object {
            Some(object) => to_version(object, &api_versions),
            None => Value::Null,
        };
        let gvk = |version: &str| {
            let kind = &attributes.gvk;
            json!({"group": kind.group, "version": version, "kind": kind.kind})
        };
        let gvr = |version: &str| {
            let resource = &attributes.gvr;
            json!({"group": resource.group, "version": version, "resource": resource.resource})
        };
        let mut request = json!({
            "kind": gvk(kind_version),
            "resource": gvr(&wanted.version),
            "requestKind": gvk(&attributes.gvk.version),
            "requestResource": gvr(&attributes.gvr.version),
            "operation": operation_name(attributes.operation),
            "userInfo": describe(&attributes.user),
            "dryRun": attributes.dry_run,
            "options": attributes.options,
        });
        for (key, text) in [
            ("subResource", &attributes.subresource),
            ("requestSubResource", &attributes.subresource),
            ("name", &attributes.name),
            ("namespace", &attributes.namespace),
        ] {
            if !text.is_empty() {
                request[key] = json!(text);
            }
        }
        Self {
            request,
            object: object(&attributes.object),
            old_object: object(&attributes.old_object),
            api_versions,
        }
    }

    /// An object of the request in the version that is seen.
    pub(super) fn to_version(&self, object: &Value) -> Value {
        to_version(object, &self.api_versions)
    }

    /// An object that a webhook changed, in the version of the request.
    pub(super) fn back(&self, object: &Value) -> Value {
        let (own, seen) = &self.api_versions;
        to_version(object, &(seen.clone(), own.clone()))
    }
}

/// Custom resources differ between versions by their `apiVersion` alone, for the conversion strategy `None`.
fn to_version(object: &Value, (from, to): &(String, String)) -> Value {
    let mut object = object.clone();
    if from != to && object["apiVersion"] == from.as_str() {
        object["apiVersion"] = json!(to);
    }
    object
}
