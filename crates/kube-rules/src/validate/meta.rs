//! Object metadata.

use super::errors::{Errors, items, text};
use crate::gvk::Gvk;
use crate::names;
use serde_json::{Value, json};

/// Upstream's bound on all annotations of an object together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// Finalizers without a domain that upstream knows.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Syntax of the names of a kind.
fn name_errors(gvk: &Gvk, name: &str) -> Vec<String> {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => names::dns_label(name),
        ("rbac.authorization.k8s.io", _) => names::path_segment(name),
        // Any name is good.
        ("certificates.k8s.io", "CertificateSigningRequest") => Vec::new(),
        // Its name is an identity, which may hold an underscore.
        ("coordination.k8s.io", "LeaseCandidate") => names::config_key(name),
        _ => names::dns_subdomain(name),
    }
}

/// Metadata of a new object.
pub(super) fn create(gvk: &Gvk, object: &Value, errors: &mut Errors) {
    let metadata = &object["metadata"];
    let (name, generate) = (text(metadata, "name"), text(metadata, "generateName"));
    if !generate.is_empty() {
        // What will be appended makes a trailing dash good.
        let sample = generate
            .strip_suffix('-')
            .map_or_else(|| generate.to_owned(), |stem| format!("{stem}a"));
        errors.invalid_text("metadata.generateName", generate, name_errors(gvk, &sample));
    }
    if name.is_empty() {
        errors.required("metadata.name", "name or generateName is required");
    } else {
        errors.invalid_text("metadata.name", name, name_errors(gvk, name));
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
    common(metadata, errors);
}

/// Metadata of an update.
pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["metadata"], &new["metadata"]);
    common(new, errors);
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

fn common(metadata: &Value, errors: &mut Errors) {
    labels(&metadata["labels"], "metadata.labels", errors);
    annotations(&metadata["annotations"], "metadata.annotations", errors);
    let mut controller: Option<&Value> = None;
    for (_, owner) in items(metadata, "ownerReferences") {
        let path = "metadata.ownerReferences";
        let version = text(owner, "apiVersion");
        if version.is_empty() {
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
                errors.invalid(
                    path,
                    &metadata["ownerReferences"],
                    &format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                        text(first, "name"),
                        text(owner, "name")
                    ),
                );
            }
            controller = Some(owner);
        }
    }
    for (index, finalizer) in items(metadata, "finalizers") {
        self::finalizer(finalizer, &format!("metadata.finalizers[{index}]"), errors);
    }
}

/// One that has a domain, or that upstream knows.
pub(super) fn finalizer(finalizer: &Value, path: &str, errors: &mut Errors) {
    let name = finalizer.as_str().unwrap_or_default();
    let wrong = names::qualified(name);
    if !wrong.is_empty() {
        errors.invalid_text(path, name, wrong);
    } else if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        errors.invalid(
            path,
            finalizer,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
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
