//! The schemas of a document.

use crate::kinds::Resource;
use evenkeel_kube_rules::crd::CustomKind;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::schema;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The version of OpenAPI in which a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// OpenAPI 2.0, which was called Swagger.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Flavour {
    /// How a schema is referred to.
    pub(super) fn reference(self, name: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{name}"),
            Self::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const V2_PREFIX: &str = "#/definitions/";

/// Schemas that every document has.
const ALWAYS: [&str; 3] = ["DeleteOptions", "Status", "Patch"];

/// Name of the schema of a kind of some resource: as upstream names built-in ones, `GROUP.VERSION.KIND` with
/// the group's labels reversed for custom ones. `None` for kinds that are only ever query parameters.
pub(super) fn name(resource: &Resource, gvk: &Gvk) -> Option<String> {
    match schema::definition_name(gvk) {
        Some(name) => Some(name.to_owned()),
        None => resource.custom.is_some().then(|| custom_name(gvk)),
    }
}

fn custom_name(gvk: &Gvk) -> String {
    let group: Vec<&str> = gvk.group.rsplit('.').collect();
    format!("{}.{}.{}", group.join("."), gvk.version, gvk.kind)
}

/// The schemas of these resources, and all that they refer to.
pub(super) fn of(flavour: Flavour, resources: &[Arc<Resource>]) -> Value {
    let mut schemas = Map::new();
    let mut roots: BTreeSet<String> = ALWAYS.iter().map(|name| format!("{META}.{name}")).collect();
    for resource in resources {
        let gvk = resource.gvk();
        let list = Gvk {
            kind: resource.list_kind.clone(),
            ..gvk.clone()
        };
        if let Some(custom) = &resource.custom {
            // A definition that is served compiles; should it not, it is left out as upstream leaves it out.
            let Ok(kind) = CustomKind::compile(&custom.definition, &gvk.version) else {
                tracing::warn!(resource = %resource.qualified(), "no OpenAPI schema: the definition does not compile");
                continue;
            };
            let schema = kind.openapi();
            references(&schema, &mut roots);
            let mut schema = translate(flavour, schema);
            schema["x-kubernetes-group-version-kind"] = gvk_extension(&gvk);
            schemas.insert(custom_name(&gvk), schema);
            schemas.insert(custom_name(&list), translate(flavour, custom_list(&gvk, &list)));
            roots.insert(format!("{META}.ListMeta"));
            continue;
        }
        let subresources = resource
            .subresources
            .iter()
            .map(|subresource| subresource_gvk(resource, subresource));
        let kinds = [gvk.clone(), list].into_iter().chain(subresources);
        roots.extend(kinds.filter_map(|gvk| schema::definition_name(&gvk).map(str::to_owned)));
    }
    let roots: Vec<&str> = roots.iter().map(String::as_str).collect();
    for name in schema::closure(&roots) {
        if let Some(definition) = schema::definition_json(name) {
            schemas.insert(name.to_owned(), translate(flavour, definition));
        }
    }
    Value::Object(schemas)
}

/// The kind that is read or written at a subresource.
pub(super) fn subresource_gvk(resource: &Resource, subresource: &crate::kinds::Subresource) -> Gvk {
    let own = subresource.version.is_empty();
    Gvk {
        group: if own {
            resource.gvr.group.clone()
        } else {
            subresource.group.clone()
        },
        version: if own {
            resource.gvr.version.clone()
        } else {
            subresource.version.clone()
        },
        kind: subresource.kind.clone(),
    }
}

fn gvk_extension(gvk: &Gvk) -> Value {
    json!([{"group": gvk.group, "version": gvk.version, "kind": gvk.kind}])
}

fn custom_list(gvk: &Gvk, list: &Gvk) -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": format!("{V2_PREFIX}{META}.ListMeta")},
            "items": {"type": "array", "items": {"$ref": format!("{V2_PREFIX}{}", custom_name(gvk))}},
        },
        "x-kubernetes-group-version-kind": gvk_extension(list),
    })
}

/// The built-in schemas that a schema refers to.
fn references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(name) = members
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|text| text.strip_prefix(V2_PREFIX))
            {
                found.insert(name.to_owned());
            }
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// A schema of v2 in another flavour. In v3 nothing may stand beside `$ref`, so what does moves around an
/// `allOf`.
fn translate(flavour: Flavour, schema: Value) -> Value {
    match schema {
        Value::Object(members) => {
            let mut translated = Map::new();
            for (key, member) in members {
                if member.is_null() {
                    continue;
                }
                let member = match (
                    key.as_str(),
                    member.as_str().and_then(|text| text.strip_prefix(V2_PREFIX)),
                ) {
                    ("$ref", Some(name)) => json!(flavour.reference(name)),
                    _ => translate(flavour, member),
                };
                translated.insert(key, member);
            }
            if flavour == Flavour::V3
                && translated.len() > 1
                && translated.get("$ref").is_some_and(Value::is_string)
                && let Some(reference) = translated.remove("$ref")
            {
                translated.insert("allOf".to_owned(), json!([{"$ref": reference}]));
            }
            Value::Object(translated)
        }
        Value::Array(items) => items.into_iter().map(|item| translate(flavour, item)).collect(),
        other => other,
    }
}
