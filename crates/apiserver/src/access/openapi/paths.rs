//! The paths of a document: one item for each collection, object and subresource.

use super::schemas::{Flavour, name, subresource_gvk};
use crate::kinds::Resource;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::gvk::group_version;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

pub(super) fn of(flavour: Flavour, resources: &[Arc<Resource>]) -> Value {
    let mut paths = Map::new();
    for resource in resources {
        add(&mut paths, flavour, resource);
    }
    Value::Object(paths)
}

/// One verb at one path.
struct Operation<'a> {
    flavour: Flavour,
    /// HTTP method in lower case.
    method: &'static str,
    /// Value of `x-kubernetes-action`, as in `watchlist`.
    action: &'static str,
    gvk: &'a Gvk,
    /// Schema of the answer; without one it is text.
    answer: Option<String>,
    /// Schema of the body.
    body: Option<String>,
    query: &'static [(&'static str, &'static str)],
    /// Distinguishes this operation from all others.
    id: String,
}

const WRITE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
const PATCH: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
];
const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const LIST: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];

fn add(paths: &mut Map<String, Value>, flavour: Flavour, resource: &Resource) {
    let gvk = resource.gvk();
    let root = if gvk.group.is_empty() { "/api" } else { "/apis" };
    let root = format!("{root}/{}", group_version(&gvk.group, &gvk.version));
    let plural = &resource.gvr.resource;
    let list = Gvk {
        kind: resource.list_kind.clone(),
        ..gvk.clone()
    };
    let list = name(resource, &list);
    let own = name(resource, &gvk);
    let all = format!("{root}/{plural}");
    let collection = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        all.clone()
    };
    let object = format!("{collection}/{{name}}");

    let operation =
        |method, action, answer: &Option<String>, body: &Option<String>, query, id: &str| Operation {
            flavour,
            method,
            action,
            gvk: &gvk,
            answer: answer.clone(),
            body: body.clone(),
            query,
            id: format!(
                "{id}{}{}",
                camel(&gvk.group),
                gvk.version.to_uppercase() + &gvk.kind
            ),
        };
    let status = Some(format!("{META}.Status"));
    let options = Some(format!("{META}.DeleteOptions"));
    let patch = Some(format!("{META}.Patch"));
    let mut put = |path: &str, operation: Operation<'_>| {
        let namespaced = resource.namespaced && path != all;
        let item = paths
            .entry(path)
            .or_insert_with(|| json!({"parameters": path_parameters(flavour, path, namespaced)}));
        item[operation.method] = operation.describe();
    };
    for verb in &resource.verbs {
        match verb.as_str() {
            "list" => {
                put(&collection, operation("get", "list", &list, &None, LIST, "list"));
                if resource.namespaced {
                    put(
                        &all,
                        operation("get", "list", &list, &None, LIST, "listForAllNamespaces"),
                    );
                }
            }
            "create" => put(
                &collection,
                operation("post", "post", &own, &own, WRITE, "create"),
            ),
            "deletecollection" => put(
                &collection,
                operation(
                    "delete",
                    "deletecollection",
                    &status,
                    &options,
                    DELETE,
                    "deleteCollection",
                ),
            ),
            "get" => put(&object, operation("get", "get", &own, &None, &[], "read")),
            "update" => put(&object, operation("put", "put", &own, &own, WRITE, "replace")),
            "patch" => put(&object, operation("patch", "patch", &own, &patch, PATCH, "patch")),
            "delete" => put(
                &object,
                operation("delete", "delete", &status, &options, DELETE, "delete"),
            ),
            _ => {}
        }
    }
    for subresource in &resource.subresources {
        let path = format!("{object}/{}", subresource.name);
        let sub_gvk = subresource_gvk(resource, subresource);
        let kind = name(resource, &sub_gvk);
        for verb in &subresource.verbs {
            let (method, body, query) = match verb.as_str() {
                "get" => ("get", &None, &[][..]),
                "create" => ("post", &kind, WRITE),
                "update" => ("put", &kind, WRITE),
                "patch" => ("patch", &patch, PATCH),
                _ => continue,
            };
            let id = format!("{verb}{}", camel(&subresource.name));
            let mut operation = operation(method, method, &kind, body, query, &id);
            operation.gvk = &sub_gvk;
            put(&path, operation);
        }
    }
}

/// `storage.k8s.io` as `StorageK8sIo`.
fn camel(text: &str) -> String {
    text.split(['.', '-', '/'])
        .map(|part| {
            let mut characters = part.chars();
            let first = characters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(characters).collect::<String>()
        })
        .collect()
}

fn parameter(flavour: Flavour, name: &str, place: &str, kind: &str) -> Value {
    let mut parameter = json!({"name": name, "in": place});
    match flavour {
        Flavour::V2 => {
            parameter["type"] = json!(kind);
            parameter["uniqueItems"] = json!(true);
        }
        Flavour::V3 => parameter["schema"] = json!({"type": kind, "uniqueItems": true}),
    }
    if place == "path" {
        parameter["required"] = json!(true);
    }
    parameter
}

fn path_parameters(flavour: Flavour, path: &str, namespaced: bool) -> Vec<Value> {
    let mut parameters = Vec::new();
    if path.contains("{name}") {
        parameters.push(parameter(flavour, "name", "path", "string"));
    }
    if namespaced {
        parameters.push(parameter(flavour, "namespace", "path", "string"));
    }
    parameters.push(parameter(flavour, "pretty", "query", "string"));
    parameters
}

impl Operation<'_> {
    fn describe(&self) -> Value {
        let mut parameters: Vec<Value> = self
            .query
            .iter()
            .map(|(name, kind)| parameter(self.flavour, name, "query", kind))
            .collect();
        let schema = |name: &str| json!({"$ref": self.flavour.reference(name)});
        let media: &[&str] = if self.method == "patch" {
            &PATCHES
        } else {
            &["application/json", "application/yaml"]
        };
        let mut operation = json!({
            "operationId": self.id,
            "tags": [format!("{}_{}", group_tag(&self.gvk.group), self.gvk.version)],
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": {
                "group": self.gvk.group, "version": self.gvk.version, "kind": self.gvk.kind,
            },
        });
        let answer = match &self.answer {
            Some(name) => schema(name),
            None => json!({"type": "string"}),
        };
        match self.flavour {
            Flavour::V2 => {
                if let Some(body) = &self.body {
                    let required = self.method != "delete";
                    parameters.push(
                        json!({"name": "body", "in": "body", "required": required, "schema": schema(body)}),
                    );
                }
                operation["consumes"] = json!(media);
                operation["produces"] = json!(["application/json", "application/yaml"]);
                operation["schemes"] = json!(["https"]);
                operation["responses"] = json!({"200": {"description": "OK", "schema": answer}});
            }
            Flavour::V3 => {
                if let Some(body) = &self.body {
                    let content: Map<String, Value> = media
                        .iter()
                        .map(|media| ((*media).to_owned(), json!({"schema": schema(body)})))
                        .collect();
                    operation["requestBody"] =
                        json!({"content": content, "required": self.method != "delete"});
                }
                operation["responses"] = json!({"200": {
                    "description": "OK", "content": {"application/json": {"schema": answer}},
                }});
            }
        }
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        operation
    }
}

fn group_tag(group: &str) -> String {
    if group.is_empty() {
        "core".to_owned()
    } else {
        group.trim_end_matches(".k8s.io").replace(['.', '-'], "_")
    }
}
