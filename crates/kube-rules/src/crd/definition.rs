//! CustomResourceDefinitions themselves: what is refused, and how a definition is established.

use super::structural::Structural;
use crate::cel;
use crate::names;
use crate::status::FieldError;
use crate::time::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

fn error(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> FieldError {
    FieldError {
        reason,
        field: field.into(),
        message: message.into(),
    }
}

fn invalid(field: impl Into<String>, value: &Value, text: &str) -> FieldError {
    error(
        "FieldValueInvalid",
        field,
        format!("Invalid value: {value}: {text}"),
    )
}

/// One error for each text.
fn all_invalid(field: &str, value: &Value, texts: &[String]) -> impl Iterator<Item = FieldError> {
    texts.iter().map(move |text| invalid(field, value, text))
}

fn required(field: impl Into<String>, text: &str) -> FieldError {
    let message = if text.is_empty() {
        "Required value".to_owned()
    } else {
        format!("Required value: {text}")
    };
    error("FieldValueRequired", field, message)
}

fn unsupported(field: impl Into<String>, value: &Value, known: &[&str]) -> FieldError {
    let known: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
    let text = format!(
        "Unsupported value: {value}: supported values: {}",
        known.join(", ")
    );
    error("FieldValueNotSupported", field, text)
}

/// What is wrong with a new definition.
pub(crate) fn validate_definition(crd: &Value) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let mut errors = Vec::new();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let wanted = format!("{plural}.{group}");
    if text(&crd["metadata"]["name"]) != wanted {
        errors.push(invalid(
            "metadata.name",
            &crd["metadata"]["name"],
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if group.is_empty() {
        errors.push(required("spec.group", ""));
    } else {
        let found = names::dns_subdomain(group);
        errors.extend(all_invalid("spec.group", &spec["group"], &found));
        if found.is_empty() && !group.contains('.') {
            errors.push(invalid(
                "spec.group",
                &spec["group"],
                "should be a domain with at least one dot",
            ));
        }
    }
    match text(&spec["scope"]) {
        "" => errors.push(required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        _ => errors.push(unsupported(
            "spec.scope",
            &spec["scope"],
            &["Cluster", "Namespaced"],
        )),
    }
    errors.extend(names_errors(&spec["names"]));
    let versions = list(&spec["versions"]);
    errors.extend(version_errors(versions));
    let storing = versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count();
    if storing != 1 {
        let shown: Vec<String> = versions.iter().map(internal).collect();
        errors.push(error(
            "FieldValueInvalid",
            "spec.versions",
            format!(
                "Invalid value: [{}]: must have exactly one version marked as storage version",
                shown.join(",")
            ),
        ));
    }
    let stored = list(&crd["status"]["storedVersions"]);
    // A new definition is given its storage version as the stored one, if it has exactly one.
    if stored.is_empty() && storing == 0 {
        errors.push(invalid(
            "status.storedVersions",
            &Value::Null,
            "must have at least one stored version",
        ));
    }
    errors
}

/// What is wrong with a changed definition.
pub(crate) fn validate_definition_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = validate_definition(new);
    for (field, pointer) in [("spec.group", "/spec/group"), ("spec.scope", "/spec/scope")] {
        let (before, after) = (old.pointer(pointer), new.pointer(pointer));
        if before != after {
            errors.push(invalid(
                field,
                after.unwrap_or(&Value::Null),
                "field is immutable",
            ));
        }
    }
    let names: Vec<&str> = list(&new["spec"]["versions"])
        .iter()
        .map(|version| text(&version["name"]))
        .collect();
    for (index, stored) in list(&new["status"]["storedVersions"]).iter().enumerate() {
        if !names.contains(&text(stored)) {
            let field = format!("status.storedVersions[{index}]");
            errors.push(invalid(field, stored, "missing from spec.versions; versions that were previously a storage version must remain in spec.versions until a storage migration ensures no data remains persisted in that version and removes it from status.storedVersions"));
        }
    }
    errors
}

fn names_errors(names_value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in ["plural", "singular", "kind", "listKind"] {
        let field = format!("spec.names.{key}");
        let name = text(&names_value[key]);
        if name.is_empty() {
            // The others have defaults.
            if matches!(key, "plural" | "kind") {
                errors.push(required(field, ""));
            }
            continue;
        }
        let found = names::dns_1035_label(&name.to_lowercase());
        errors.extend(all_invalid(&field, &names_value[key], &found));
        if matches!(key, "plural" | "singular") && name != name.to_lowercase() {
            errors.extend(all_invalid(
                &field,
                &names_value[key],
                &names::dns_1035_label(name),
            ));
        }
    }
    if !text(&names_value["kind"]).is_empty() && names_value["kind"] == names_value["listKind"] {
        errors.push(invalid(
            "spec.names.listKind",
            &names_value["listKind"],
            "kind and listKind may not be the same",
        ));
    }
    for (index, short) in list(&names_value["shortNames"]).iter().enumerate() {
        let found = names::dns_1035_label(text(short));
        errors.extend(all_invalid(
            &format!("spec.names.shortNames[{index}]"),
            short,
            &found,
        ));
    }
    errors
}

fn version_errors(versions: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // One schema for all versions is hoisted to the top by upstream's conversion, and its errors with it.
    let first = versions.first().map(|version| &version["schema"]);
    let hoisted = versions.iter().all(|version| Some(&version["schema"]) == first);
    for (index, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{index}]");
        let name = text(&version["name"]);
        let found = names::dns_1035_label(name);
        errors.extend(all_invalid(&format!("{field}.name"), &version["name"], &found));
        if versions
            .iter()
            .take(index)
            .any(|earlier| text(&earlier["name"]) == name)
        {
            let text = "must contain unique version names";
            errors.push(invalid("spec.versions", &json!(name), text));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let path = if hoisted {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("{field}.schema.openAPIV3Schema")
        };
        if hoisted && index > 0 {
            continue;
        }
        if schema.is_null() {
            let field = if hoisted {
                "spec.versions[0].schema.openAPIV3Schema".to_owned()
            } else {
                path
            };
            errors.push(required(field, "schemas are required"));
            continue;
        }
        let before = errors.len();
        if text(&schema["type"]) != "object" {
            let field = format!("{path}.type");
            errors.push(if text(&schema["type"]).is_empty() {
                required(field, "must not be empty at the root")
            } else {
                invalid(field, &schema["type"], "must be object at the root")
            });
        }
        structural_errors(schema, &path, true, &mut errors);
        if errors.len() == before
            && let Err(reason) = Structural::parse(schema)
        {
            errors.push(error(
                "FieldValueInvalid",
                path,
                format!("Invalid value: {reason}"),
            ));
        }
    }
    errors
}

/// Every specified node of a structural schema says its type, and says it in a way that can be pruned.
fn structural_errors(schema: &Value, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    let kind = text(&schema["type"]);
    let free = schema["x-kubernetes-int-or-string"] == true
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    if kind.is_empty() && !free && !root {
        errors.push(required(
            format!("{path}.type"),
            &format!("must not be empty for specified {}", place(path)),
        ));
    }
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(unsupported(format!("{path}.type"), &schema["type"], &TYPES));
    }
    if schema["properties"].is_object() && schema["additionalProperties"].is_object() {
        let text = "must not be used together with properties";
        errors.push(error(
            "FieldValueForbidden",
            format!("{path}.additionalProperties"),
            format!("Forbidden: {text}"),
        ));
    }
    for key in ["$ref", "uniqueItems"] {
        let set = schema
            .get(key)
            .is_some_and(|value| !value.is_null() && *value != json!(false));
        if set {
            let text = if key == "$ref" {
                "Forbidden: $ref is not supported"
            } else {
                "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            };
            errors.push(error("FieldValueForbidden", format!("{path}.{key}"), text));
        }
    }
    if schema["x-kubernetes-list-type"] == "map" && list(&schema["x-kubernetes-list-map-keys"]).is_empty() {
        errors.push(required(
            format!("{path}.x-kubernetes-list-map-keys"),
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    for (index, rule) in list(&schema["x-kubernetes-validations"]).iter().enumerate() {
        for (name, what) in [
            ("rule", "compilation failed"),
            ("messageExpression", "messageExpression compilation failed"),
        ] {
            let is_there = name == "rule" || rule[name].is_string();
            if is_there && let Err(reason) = cel::compile(text(&rule[name])) {
                let field = format!("{path}.x-kubernetes-validations[{index}].{name}");
                errors.push(invalid(field, &rule[name], &format!("{what}: {reason}")));
            }
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        structural_errors(property, &format!("{path}.properties[{name}]"), false, errors);
    }
    if schema["additionalProperties"].is_object() {
        structural_errors(
            &schema["additionalProperties"],
            &format!("{path}.additionalProperties"),
            false,
            errors,
        );
    }
    if schema["items"].is_object() {
        structural_errors(&schema["items"], &format!("{path}.items"), false, errors);
    } else if kind == "array" {
        errors.push(required(format!("{path}.items"), "must be specified"));
    }
}

fn place(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("items") => "array items",
        _ => "object fields",
    }
}

/// A version as upstream prints it in messages: its internal struct, members in the order of declaration.
fn internal(version: &Value) -> String {
    let flag = |name: &str| json!(version[name] == true);
    let members = [
        ("Name", version["name"].clone()),
        ("Served", flag("served")),
        ("Storage", flag("storage")),
        ("Deprecated", flag("deprecated")),
        ("DeprecationWarning", version["deprecationWarning"].clone()),
        ("Schema", Value::Null),
        ("Subresources", version["subresources"].clone()),
        (
            "AdditionalPrinterColumns",
            version["additionalPrinterColumns"].clone(),
        ),
        ("SelectableFields", version["selectableFields"].clone()),
    ];
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Fills in `status` of a new or changed CRD: accepted names, conditions, stored versions. `others` are the
/// other CRDs, for name conflicts; `now` goes into transition times. Validation of the CRD itself is
/// `validate_definition`.
pub fn establish(crd: &mut Value, others: &[&Value], now: Timestamp) {
    let conflict = conflict(crd, others);
    let old = crd["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let was_established = old
        .iter()
        .any(|found| found["type"] == "Established" && found["status"] == "True");
    let (names_accepted, established) = match &conflict {
        None => (
            ("True", "NoConflicts", "no conflicts found".to_owned()),
            (
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted".to_owned(),
            ),
        ),
        Some((reason, message)) => (
            ("False", *reason, message.clone()),
            if was_established {
                (
                    "True",
                    "InitialNamesAccepted",
                    "the initial names have been accepted".to_owned(),
                )
            } else {
                ("False", "NotAccepted", "not all names are accepted".to_owned())
            },
        ),
    };
    let condition = |kind: &str, (status, reason, message): (&str, &str, String)| {
        let same = old
            .iter()
            .find(|found| found["type"] == kind && found["status"] == status);
        let since = same.map_or_else(
            || json!(rfc3339(now)),
            |found| found["lastTransitionTime"].clone(),
        );
        json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
    };
    let mut conditions = vec![
        condition("NamesAccepted", names_accepted),
        condition("Established", established),
    ];
    conditions.extend(
        old.iter()
            .filter(|found| found["type"] != "NamesAccepted" && found["type"] != "Established")
            .cloned(),
    );
    crd["status"]["conditions"] = Value::Array(conditions);
    if conflict.is_none() {
        crd["status"]["acceptedNames"] = crd["spec"]["names"].clone();
    }
    let storage = list(&crd["spec"]["versions"])
        .iter()
        .find(|version| version["storage"] == true);
    if let Some(storage) = storage.map(|version| version["name"].clone()) {
        let mut stored = crd["status"]["storedVersions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if !stored.contains(&storage) {
            stored.push(storage);
        }
        crd["status"]["storedVersions"] = Value::Array(stored);
    }
}

/// Names that another definition of the group already has: reason and message.
fn conflict(crd: &Value, others: &[&Value]) -> Option<(&'static str, String)> {
    let names = &crd["spec"]["names"];
    let taken = |wanted: &str, keys: &[&str]| {
        others
            .iter()
            .filter(|other| other["spec"]["group"] == crd["spec"]["group"])
            .any(|other| {
                let accepted = &other["status"]["acceptedNames"];
                keys.iter().any(|key| text(&accepted[*key]) == wanted)
                    || keys.contains(&"plural")
                        && list(&accepted["shortNames"])
                            .iter()
                            .any(|short| text(short) == wanted)
            })
    };
    let checks = [
        ("plural", &["plural", "singular"][..], "PluralConflict"),
        ("singular", &["plural", "singular"][..], "SingularConflict"),
        ("kind", &["kind", "listKind"][..], "KindConflict"),
        ("listKind", &["kind", "listKind"][..], "ListKindConflict"),
    ];
    for (key, keys, reason) in checks {
        let name = text(&names[key]);
        if !name.is_empty() && taken(name, keys) {
            return Some((reason, format!("{name:?} is already in use")));
        }
    }
    let short = list(&names["shortNames"])
        .iter()
        .map(text)
        .find(|short| taken(short, &["plural", "singular"]));
    short.map(|short| ("ShortNamesConflict", format!("{short:?} is already in use")))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
