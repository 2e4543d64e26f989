//! Object metadata.

use super::aggregation;
use super::errors::{Errors, items, text};
use crate::gvk::Gvk;
use crate::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Upstream's bound on all annotations of an object together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// Finalizers without a domain that upstream knows.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Syntax of the names of a kind.
fn name_errors(gvk: &Gvk, object: &Value, name: &str) -> Vec<String> {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => names::dns_label(name),
        ("rbac.authorization.k8s.io", _) | ("policy", "PodDisruptionBudget") | ("", "Event") => {
            names::path_segment(name)
        }
        ("apiregistration.k8s.io", "APIService") => aggregation::name_errors(object, name),
        // Any name is good.
        ("certificates.k8s.io", "CertificateSigningRequest") => Vec::new(),
        // Its name is an identity, which may hold an underscore.
        ("coordination.k8s.io", "LeaseCandidate") => names::config_key(name),
        ("", "ReplicationController") => names::dns_subdomain_in_bytes(name),
        _ => names::dns_subdomain(name),
    }
}

/// Metadata of a new object of a built-in kind.
pub(super) fn create(gvk: &Gvk, object: &Value, errors: &mut Errors) {
    any_create(gvk, object, errors);
    kube_finalizers(gvk, &object["metadata"], errors);
}

/// Kinds of which upstream checks the metadata as those of custom resources.
fn is_generic(gvk: &Gvk) -> bool {
    matches!(
        gvk.group.as_str(),
        "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "coordination.k8s.io"
            | "node.k8s.io"
    )
}

/// Metadata of a new object of any kind.
pub(super) fn any_create(gvk: &Gvk, object: &Value, errors: &mut Errors) {
    let metadata = &object["metadata"];
    let (name, generate) = (text(metadata, "name"), text(metadata, "generateName"));
    // Of this kind upstream looks at the name that was generated alone.
    if !generate.is_empty() && gvk.kind != "ReplicationController" {
        // What will be appended makes a trailing dash good.
        let sample = generate
            .strip_suffix('-')
            .map_or_else(|| generate.to_owned(), |stem| format!("{stem}a"));
        errors.invalid_text(
            "metadata.generateName",
            generate,
            name_errors(gvk, object, &sample),
        );
    }
    if name.is_empty() {
        errors.required("metadata.name", "name or generateName is required");
    } else {
        errors.invalid_text("metadata.name", name, name_errors(gvk, object, name));
    }
    if metadata["generation"]
        .as_i64()
        .is_some_and(|generation| generation < 0)
    {
        errors.invalid(
            "metadata.generation",
            &metadata["generation"],
            "must be greater than or equal to 0",
        );
    }
    complete(metadata, errors);
}

/// What any metadata must fulfil, but for the name.
pub(super) fn complete(metadata: &Value, errors: &mut Errors) {
    common(metadata, errors);
    finalizers(metadata, errors);
}

/// Metadata of an update of a built-in kind.
pub(super) fn update(gvk: &Gvk, old: &Value, new: &Value, errors: &mut Errors) {
    any_update(old, new, errors);
    kube_finalizers(gvk, &new["metadata"], errors);
}

/// Metadata of an update of any kind.
pub(super) fn any_update(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["metadata"], &new["metadata"]);
    no_new_finalizers(old, new, errors);
    for name in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let path = format!("metadata.{name}");
        errors.immutable(
            &path,
            old.get(name).unwrap_or(&Value::Null),
            new.get(name).unwrap_or(&Value::Null),
        );
    }
    common(new, errors);
}

/// What is being deleted waits for nobody else.
fn no_new_finalizers(old: &Value, new: &Value, errors: &mut Errors) {
    if old.get("deletionTimestamp").is_some() {
        let known: Vec<&Value> = items(old, "finalizers").map(|(_, one)| one).collect();
        let added: Vec<&Value> = items(new, "finalizers")
            .map(|(_, one)| one)
            .filter(|one| !known.contains(one))
            .collect();
        if !added.is_empty() {
            let list: Vec<String> = added
                .iter()
                .filter_map(|one| one.as_str())
                .map(|one| format!("{one:?}"))
                .collect();
            errors.forbidden(
                "metadata.finalizers",
                &format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    list.join(", ")
                ),
            );
        }
    }
}

/// What holds of all metadata, new or not.
fn common(metadata: &Value, errors: &mut Errors) {
    labels(&metadata["labels"], "metadata.labels", errors);
    annotations(&metadata["annotations"], "metadata.annotations", errors);
    let mut controller: Option<&Value> = None;
    for (_, owner) in items(metadata, "ownerReferences") {
        let path = "metadata.ownerReferences";
        let version = text(owner, "apiVersion");
        let version_of_it = match version.split_once('/') {
            Some((_, rest)) if !rest.contains('/') => rest,
            Some(_) => "",
            None => version,
        };
        if version_of_it.is_empty() {
            errors.invalid(
                &format!("{path}.apiVersion"),
                &owner["apiVersion"],
                "version must not be empty",
            );
        }
        for name in ["kind", "name", "uid"] {
            if text(owner, name).is_empty() {
                errors.invalid(&format!("{path}.{name}"), &owner[name], "must not be empty");
            }
        }
        if owner["controller"] == json!(true) {
            if let Some(first) = controller {
                errors.invalid_dumps(
                    path,
                    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
                    &metadata["ownerReferences"],
                    &format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                        text(first, "kind"),
                        text(first, "name"),
                        text(owner, "kind"),
                        text(owner, "name")
                    ),
                );
            }
            controller = Some(owner);
        }
    }
}

/// What every finalizer must fulfil, and all of them together.
fn finalizers(metadata: &Value, errors: &mut Errors) {
    const PATH: &str = "metadata.finalizers";
    let names = || items(metadata, "finalizers").filter_map(|(_, one)| one.as_str());
    for name in names() {
        errors.invalid_text(PATH, name, names::qualified(name));
    }
    if names().any(|name| name == "orphan") && names().any(|name| name == "foregroundDeletion") {
        errors.invalid(
            PATH,
            &metadata["finalizers"],
            "finalizer orphan and foregroundDeletion cannot be both set",
        );
    }
}

/// What built-in kinds ask of finalizers beyond that.
fn kube_finalizers(gvk: &Gvk, metadata: &Value, errors: &mut Errors) {
    if is_generic(gvk) {
        return;
    }
    for (index, finalizer) in items(metadata, "finalizers") {
        kube_finalizer(finalizer, &format!("metadata.finalizers[{index}]"), errors);
    }
}

/// One that has a domain, or that upstream knows.
pub(super) fn finalizer(finalizer: &Value, path: &str, errors: &mut Errors) {
    let name = finalizer.as_str().unwrap_or_default();
    errors.invalid_text(path, name, names::qualified(name));
    kube_finalizer(finalizer, path, errors);
}

fn kube_finalizer(finalizer: &Value, path: &str, errors: &mut Errors) {
    if lacks_domain(finalizer.as_str().unwrap_or_default()) {
        errors.invalid(
            path,
            finalizer,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

fn lacks_domain(finalizer: &str) -> bool {
    !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer)
}

/// What custom resources are warned of in finalizers that they had not before.
pub(super) fn finalizer_warnings(old: Option<&Value>, new: &Value) -> Vec<String> {
    let names = |object: &Value| -> BTreeSet<String> {
        items(&object["metadata"], "finalizers")
            .filter_map(|(_, one)| one.as_str().map(str::to_owned))
            .collect()
    };
    let had = old.map(names).unwrap_or_default();
    let mut warnings = Vec::new();
    for name in names(new).difference(&had) {
        let mut warn = |text: &str| warnings.push(format!("metadata.finalizers: {name:?}: {text}"));
        for text in names::qualified(name) {
            warn(&text);
        }
        if lacks_domain(name) {
            let path = if name.contains('.') {
                " including a path (/)"
            } else {
                ""
            };
            warn(&format!(
                "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
            ));
        }
    }
    warnings
}

/// A map of labels.
pub(super) fn labels(labels: &Value, path: &str, errors: &mut Errors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        errors.invalid_text(path, key, names::qualified(key));
        let value = value.as_str().unwrap_or_default();
        errors.invalid_text(path, value, names::label_value(value));
    }
}

/// A map of annotations.
pub(super) fn annotations(annotations: &Value, path: &str, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        // Case does not matter for keys of annotations.
        errors.invalid_text(path, key, names::qualified(&key.to_lowercase()));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(path, ANNOTATIONS_LIMIT);
    }
}
