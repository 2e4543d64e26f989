//! NamespaceLifecycle: objects need a namespace that exists, and one that is not ending when they are made.

use crate::access::errors::refused;
use crate::request::{Attributes, Operation, Reader};
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use serde_json::json;

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn lifecycle(attributes: &Attributes, reader: &dyn Reader) -> ApiResult<()> {
    let is_namespace = attributes.gvr.group.is_empty() && attributes.gvr.resource == "namespaces";
    if is_namespace {
        if attributes.operation == Operation::Delete && IMMORTAL.contains(&attributes.name.as_str()) {
            return Err(refused(attributes, "this namespace may not be deleted"));
        }
        return Ok(());
    }
    let namespace = attributes.namespace.as_str();
    if namespace.is_empty() || attributes.operation == Operation::Delete {
        return Ok(());
    }
    let found = reader
        .get("", "namespaces", "", namespace)
        .ok_or_else(|| ApiError::not_found("", "namespaces", namespace))?;
    if attributes.operation == Operation::Create && found["status"]["phase"] == "Terminating" {
        let mut error = refused(
            attributes,
            &format!("unable to create new content in namespace {namespace} because it is being terminated"),
        );
        error.details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        return Err(error);
    }
    Ok(())
}
