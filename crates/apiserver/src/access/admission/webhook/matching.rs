//! Which webhooks a request is for.

use super::config::{Selector, Webhook};
use crate::access::errors::internal;
use crate::request::{Attributes, Reader};
use evenkeel_kube_rules::gvk::Gvr;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use serde_json::Value;

/// The version in which a webhook is asked, if the request is for it: that of the request, or another version
/// of the same custom resource where `matchPolicy` is `Equivalent`.
pub(super) fn matches(
    webhook: &Webhook,
    attributes: &Attributes,
    reader: &dyn Reader,
) -> ApiResult<Option<Gvr>> {
    let namespaced = !attributes.namespace.is_empty() && attributes.gvr.resource != "namespaces";
    let rules = |gvr: &Gvr| {
        webhook
            .rules
            .iter()
            .any(|rule| rule.matches(attributes.operation, gvr, &attributes.subresource, namespaced))
    };
    let served = if rules(&attributes.gvr) {
        attributes.gvr.clone()
    } else {
        let others = if webhook.equivalent {
            equivalents(&attributes.gvr, reader)
        } else {
            Vec::new()
        };
        match others.into_iter().find(rules) {
            Some(gvr) => gvr,
            None => return Ok(None),
        }
    };
    let selected = namespace_selected(webhook, attributes, reader)?
        && object_selected(&webhook.object_selector, attributes)?;
    Ok(selected.then_some(served))
}

/// The other served versions of a custom resource.
fn equivalents(gvr: &Gvr, reader: &dyn Reader) -> Vec<Gvr> {
    let name = format!("{}.{}", gvr.resource, gvr.group);
    let Some(definition) = reader.get("apiextensions.k8s.io", "customresourcedefinitions", "", &name) else {
        return Vec::new();
    };
    definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true)
        .filter_map(|version| version["name"].as_str())
        .filter(|version| *version != gvr.version)
        .map(|version| Gvr {
            version: version.to_owned(),
            ..gvr.clone()
        })
        .collect()
}

/// By the labels of the object's namespace; a Namespace by its own; other cluster-scoped objects always.
fn namespace_selected(webhook: &Webhook, attributes: &Attributes, reader: &dyn Reader) -> ApiResult<bool> {
    let selector = readable(&webhook.namespace_selector)?;
    if selector.is_empty() {
        return Ok(true);
    }
    if attributes.gvr.group.is_empty()
        && attributes.gvr.resource == "namespaces"
        && attributes.subresource.is_empty()
    {
        let own = attributes.object.as_ref().or(attributes.old_object.as_ref());
        return Ok(own.is_some_and(|namespace| selector.matches_object(namespace)));
    }
    let name = attributes.namespace.as_str();
    if name.is_empty() {
        return Ok(true);
    }
    let namespace = reader
        .get("", "namespaces", "", name)
        .ok_or_else(|| ApiError::not_found("", "namespaces", name))?;
    Ok(selector.matches_object(&namespace))
}

/// Either the new or the old object is enough.
fn object_selected(selector: &Selector, attributes: &Attributes) -> ApiResult<bool> {
    let selector = readable(selector)?;
    let selected = |object: &Option<Value>| {
        object
            .as_ref()
            .is_some_and(|object| selector.matches_object(object))
    };
    Ok(selector.is_empty() || selected(&attributes.object) || selected(&attributes.old_object))
}

fn readable(selector: &Selector) -> ApiResult<&evenkeel_kube_rules::selector::LabelSelector> {
    selector.as_ref().map_err(|error| internal(error))
}
