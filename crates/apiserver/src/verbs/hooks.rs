//! What a write to some kinds brings with it, and subresources that other modules answer.

use super::context::{ATTEMPTS, Answer, Context};
use super::delete::{DeleteOptions, set_finalizers};
use super::ownership;
use super::rules::Part;
use crate::access::review::{self, Review};
use crate::access::uid;
use crate::request::query::WriteOptions;
use crate::signing::controller;
use crate::state::Shared;
use crate::store::{Table, resource_version};
use evenkeel_kube_rules::crd;
use evenkeel_kube_rules::csr;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::strict::FieldValidation;
use evenkeel_kube_rules::time::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// Holds a definition back until its instances are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
fn is_definition(context: &Context) -> bool {
    let gvr = &context.resource.gvr;
    gvr.group == "apiextensions.k8s.io" && gvr.resource == "customresourcedefinitions"
}

fn is_signing_request(context: &Context) -> bool {
    let gvr = &context.resource.gvr;
    gvr.group == csr::GROUP && gvr.resource == csr::RESOURCE
}

pub(crate) fn is_core(context: &Context, resource: &str) -> bool {
    context.resource.gvr.group.is_empty() && context.resource.gvr.resource == resource
}

/// Before a create is validated.
pub(crate) fn prepare_create(context: &Context, object: &mut Value) {
    if is_definition(context) {
        let versions = object["spec"]["versions"].as_array().into_iter().flatten();
        let stored: Vec<Value> = versions
            .filter(|version| version["storage"] == true)
            .map(|version| version["name"].clone())
            .collect();
        object["status"] = json!({
            "conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored,
        });
    }
    if is_core(context, "limitranges") && object["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        object["metadata"]["name"] = json!(uid::random());
    }
    if is_signing_request(context) {
        // Who asks is what the server knows, whatever the request says.
        if let Some(spec) = object["spec"].as_object_mut() {
            for member in ["username", "uid", "groups", "extra"] {
                spec.remove(member);
            }
        }
        let known = review::describe(&context.user);
        for (member, value) in known.as_object().into_iter().flatten() {
            object["spec"][member] = value.clone();
        }
    }
}

/// Before a new state is validated.
pub(crate) fn prepare_update(context: &Context, part: Part, old: &Value, new: &mut Value) {
    if is_core(context, "persistentvolumes") && part == Part::Status {
        let (before, after) = (&old["status"], &new["status"]);
        let unset = after["lastPhaseTransitionTime"].is_null();
        let same = after["lastPhaseTransitionTime"] == before["lastPhaseTransitionTime"];
        if before["phase"] == after["phase"] {
            if unset && !before["lastPhaseTransitionTime"].is_null() {
                new["status"]["lastPhaseTransitionTime"] = before["lastPhaseTransitionTime"].clone();
            }
        } else if unset || same {
            new["status"]["lastPhaseTransitionTime"] = json!(rfc3339(Timestamp::now()));
        }
    }
    if is_signing_request(context) && matches!(part, Part::Status | Part::Approval) {
        controller::prepare_conditions(part == Part::Status, old, new, Timestamp::now());
    }
}

/// After a create.
pub(crate) fn created(context: &Context, object: &Arc<Value>) {
    if is_definition(context) {
        establish(&context.server, object);
    }
    sign(context, &Value::Null, object);
}

/// Requests for certificates are answered as soon as they can be.
fn sign(context: &Context, old: &Value, new: &Value) {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    if is_signing_request(context) {
        context.server.signers().written(name);
    }
    let addresses = |node: &Value| node["status"]["addresses"].clone();
    if is_core(context, "nodes") && (old.is_null() || addresses(old) != addresses(new)) {
        context.server.signers().node_written(name);
    }
}

/// After an update.
pub(crate) fn updated(context: &Context, old: &Value, new: &Arc<Value>) {
    sign(context, old, new);
    if !is_definition(context) {
        return;
    }
    if !new["metadata"]["deletionTimestamp"].is_null() {
        clean_up(&context.server, new);
    } else if old["spec"] != new["spec"] {
        establish(&context.server, new);
    }
}

/// After an object is gone.
pub(crate) fn deleted(context: &Context, object: &Value) {
    if is_core(context, "services") {
        context.server.services.release(object);
    }
    if is_definition(context) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        context.server.registry.undefine(name);
    }
}

/// How a deletion begins where the kind has rules of its own.
pub(crate) enum Special {
    /// An object like any other.
    No,
    /// Nothing holds it.
    Free,
    /// How it looks while it waits for its content to go.
    Waits(Value),
}

/// Namespaces and definitions wait for their content to go.
pub(crate) fn deletion_of_special(
    context: &Context,
    stored: &Value,
    options: &DeleteOptions,
    now: Timestamp,
) -> Special {
    let mut object = stored.clone();
    let deleting = !stored["metadata"]["deletionTimestamp"].is_null();
    if is_core(context, "namespaces") {
        let held = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        if deleting && !held(&stored["spec"]["finalizers"]) && !held(&stored["metadata"]["finalizers"]) {
            return Special::Free;
        }
        if !deleting {
            object["metadata"]["deletionTimestamp"] = json!(rfc3339(now));
            object["status"]["phase"] = json!("Terminating");
            set_finalizers(&mut object, options);
        }
        return Special::Waits(object);
    }
    if is_definition(context) {
        if !deleting {
            object["metadata"]["deletionTimestamp"] = json!(rfc3339(now));
        }
        let mut finalizers = stored["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if !deleting && !finalizers.iter().any(|name| name == CLEANUP) {
            finalizers.push(json!(CLEANUP));
            object["metadata"]["finalizers"] = Value::Array(finalizers);
        }
        return Special::Waits(object);
    }
    Special::No
}

/// Writes the status of a new or changed definition, and serves what it defines.
pub(crate) fn establish(server: &Shared, definition: &Arc<Value>) {
    let table = Table::new("apiextensions.k8s.io", "customresourcedefinitions");
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let mut current = definition.clone();
    for _ in 0..ATTEMPTS {
        let all = server.store.list(&table, None);
        let others: Vec<&Value> = all
            .items
            .iter()
            .filter(|(key, _)| key != name)
            .map(|(_, other)| &**other)
            .collect();
        let mut new = (*current).clone();
        crd::establish(&mut new, &others, Timestamp::now());
        if let Ok(written) = server.store.update(&table, name, resource_version(&current), new) {
            current = written;
            break;
        }
        let Some(newer) = server.store.get(&table, name) else {
            return;
        };
        current = newer;
    }
    let established = current["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    if established {
        server.registry.define(&current);
    }
}

/// Removes the instances of a definition that is being deleted, then the definition.
fn clean_up(server: &Shared, definition: &Arc<Value>) {
    let finalizers = definition["metadata"]["finalizers"].as_array();
    if finalizers.is_none_or(|finalizers| finalizers.iter().any(|name| name != CLEANUP)) {
        return;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &definition["spec"];
    let instances = Table::new(&text(&spec["group"]), &text(&spec["names"]["plural"]));
    for (key, instance) in server.store.list(&instances, None).items {
        // A failure means that somebody else removed it or wrote it; what is left is not served any more.
        let _ = server.store.delete(&instances, &key, resource_version(&instance));
    }
    let table = Table::new("apiextensions.k8s.io", "customresourcedefinitions");
    let name = text(&definition["metadata"]["name"]);
    let gone = server.store.delete(&table, &name, resource_version(definition));
    if gone.is_ok() {
        server.registry.undefine(&name);
    }
}

/// Answers a review: access reviews, token reviews, identity reviews.
pub(crate) fn review(context: &Context) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&context.query, "CreateOptions", &context.user_agent)?;
    let mut body = context.read_body(options.field_validation)?;
    ownership::track(context, &options, None, &mut body)?;
    let gvr = &context.resource.gvr;
    let review = Review {
        resource: &gvr.resource,
        namespace: &context.info.namespace,
        body,
        user: &context.user,
    };
    let answer = review::create(&context.server.access, review, context.reader(), Timestamp::now())?;
    Ok(Answer::value(201, answer))
}

/// Answers a TokenRequest (`POST serviceaccounts/NAME/token`).
pub(crate) fn token(context: &Context) -> ApiResult<Answer> {
    let gvk = Gvk {
        group: "authentication.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "TokenRequest".to_owned(),
    };
    let request = context.read_body_as(&gvk, FieldValidation::Ignore)?;
    let (namespace, name) = (&context.info.namespace, &context.info.name);
    let named = request["metadata"]["name"].as_str().unwrap_or_default();
    if !named.is_empty() && named != name {
        return Err(ApiError::bad_request(
            "metadata.name must match the name in the URL",
        ));
    }
    let tokens = &context.server.access.tokens;
    let answer = tokens.token_request(namespace, name, &request, context.reader(), Timestamp::now())?;
    Ok(Answer::value(201, answer))
}
