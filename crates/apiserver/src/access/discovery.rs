//! What is served: `/api`, `/apis` and below, plain and aggregated (KEP-3352).

use crate::kinds::{ALL_VERBS, CUSTOM_VERBS, Group, METRICS_GROUP, Resource, Snapshot, Subresource, Version};
use bytes::Bytes;
use evenkeel_kube_rules::gvk::group_version;
use evenkeel_kube_rules::status::ApiError;
use http::StatusCode;
use serde_json::{Value, json};

/// A document as it goes to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Document {
    /// 200 with JSON.
    pub(crate) fn json(body: &Value) -> Self {
        Self {
            status: StatusCode::OK,
            content_type: "application/json",
            body: body.to_string().into(),
        }
    }

    fn page_not_found() -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            content_type: "text/plain; charset=utf-8",
            body: Bytes::from_static(b"404 page not found\n"),
        }
    }
}

const AGGREGATED: [(&str, &str, &str); 2] = [
    (
        "v2",
        "apidiscovery.k8s.io/v2",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    ),
    (
        "v2beta1",
        "apidiscovery.k8s.io/v2beta1",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    ),
];

/// Answers `GET` of a discovery path; `None` if `path` is none. `accept` is the client's header, `address`
/// where it reached the server (`HOST:PORT`).
pub(crate) fn answer(path: &str, accept: &str, address: &str, kinds: &Snapshot) -> Option<Document> {
    let mut segments = path.trim_start_matches('/').trim_end_matches('/').split('/');
    let root = segments.next()?;
    let rest: Vec<&str> = segments.collect();
    let groups = || kinds.groups().iter();
    Some(match (root, rest.as_slice()) {
        ("api", []) => aggregated(accept, groups().filter(|group| group.name.is_empty())).unwrap_or_else(|| {
            Document::json(&json!({
                "kind": "APIVersions",
                "versions": groups().find(|group| group.name.is_empty()).map(version_names).unwrap_or_default(),
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
            }))
        }),
        ("apis", []) => aggregated(accept, groups().filter(|group| !group.name.is_empty())).unwrap_or_else(|| {
            let groups: Vec<Value> = groups()
                .filter(|group| !group.name.is_empty())
                .map(describe_group)
                .collect();
            Document::json(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }),
        ("api", [version]) => match kinds.version("", version) {
            Some(version) => Document::json(&json!({
                "kind": "APIResourceList", "groupVersion": version.version, "resources": list(version),
            })),
            None => missing(),
        },
        ("apis", [group]) => match groups().find(|other| other.name == *group) {
            Some(group) => {
                let mut body = describe_group(group);
                body["kind"] = json!("APIGroup");
                body["apiVersion"] = json!("v1");
                Document::json(&body)
            }
            None => Document::page_not_found(),
        },
        ("apis", [group, version]) => match kinds.version(group, version) {
            Some(found) => Document::json(&json!({
                "kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": group_version(group, version), "resources": list(found),
            })),
            None if groups().any(|other| other.name == *group) => missing(),
            None => Document::page_not_found(),
        },
        _ => return None,
    })
}

fn missing() -> Document {
    let error = ApiError {
        details: json!({}),
        ..ApiError::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    };
    Document {
        status: StatusCode::NOT_FOUND,
        ..Document::json(&error.body())
    }
}

fn version_names(group: &Group) -> Vec<&str> {
    group
        .versions
        .iter()
        .map(|version| version.version.as_str())
        .collect()
}

fn describe_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            json!({"groupVersion": group_version(&group.name, &version.version), "version": version.version})
        })
        .collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

/// Verbs of a resource in the order in which upstream lists them: custom resources have one of their own.
fn verbs(resource: &Resource) -> Vec<&str> {
    if resource.custom.is_some() && resource.verbs.len() == ALL_VERBS.len() {
        CUSTOM_VERBS.to_vec()
    } else {
        resource.verbs.iter().map(String::as_str).collect()
    }
}

/// An APIResourceList's items: each resource, then its subresources.
fn list(version: &Version) -> Vec<Value> {
    let mut items = Vec::new();
    for resource in &version.resources {
        let name = &resource.gvr.resource;
        let mut item = json!({
            "name": name, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs(resource),
        });
        add_names(&mut item, resource);
        // What is measured is stored nowhere.
        if resource.has_verb("list") && resource.gvr.group != METRICS_GROUP {
            item["storageVersionHash"] = json!(storage_hash(resource));
        }
        items.push(item);
        for subresource in &resource.subresources {
            let mut item = json!({
                "name": format!("{name}/{}", subresource.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": subresource.kind, "verbs": subresource.verbs,
            });
            if !subresource.version.is_empty() {
                item["group"] = json!(subresource.group);
                item["version"] = json!(subresource.version);
            }
            items.push(item);
        }
    }
    items
}

fn add_names(item: &mut Value, resource: &Resource) {
    for (key, names) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !names.is_empty() {
            item[key] = json!(names);
        }
    }
}

/// Eight bytes of a hash of group, version and kind in which objects are stored, as upstream computes it.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    use sha2::{Digest, Sha256};
    let text = format!(
        "{}/{}/{}",
        resource.stored_group, resource.stored_version, resource.kind
    );
    let digest = Sha256::digest(text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

/// The aggregated form, if the client prefers one.
fn aggregated<'a>(accept: &str, groups: impl Iterator<Item = &'a Group>) -> Option<Document> {
    let (api_version, content_type) = preferred(accept)?;
    let items: Vec<Value> = groups.map(aggregate_group).collect();
    let list =
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items});
    Some(Document {
        content_type,
        ..Document::json(&list)
    })
}

/// The first form of the client's list that is served: an aggregated one, or `None` for plain JSON.
fn preferred(accept: &str) -> Option<(&'static str, &'static str)> {
    for range in accept.split(',') {
        let mut parameters = range.split(';').map(str::trim);
        let media = parameters.next().unwrap_or_default();
        if !matches!(media, "application/json" | "*/*" | "application/*") {
            continue;
        }
        let parameters: Vec<(&str, &str)> = parameters
            .filter_map(|parameter| parameter.split_once('='))
            .collect();
        let get = |name: &str| {
            parameters
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value)
        };
        match (get("g"), get("as")) {
            (Some("apidiscovery.k8s.io"), Some("APIGroupDiscoveryList")) => {
                let served = AGGREGATED.iter().find(|(version, ..)| get("v") == Some(version));
                if let Some((_, api_version, content_type)) = served {
                    return Some((api_version, content_type));
                }
            }
            (None, None) => return None,
            _ => {}
        }
    }
    None
}

fn aggregate_group(group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let resources: Vec<Value> = version
                .resources
                .iter()
                .map(|resource| aggregate_resource(resource))
                .collect();
            json!({"version": version.version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.name.is_empty() {
        json!({})
    } else {
        json!({"name": group.name})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregate_resource(resource: &Resource) -> Value {
    let mut item = json!({
        "resource": resource.gvr.resource,
        "responseKind": response_kind(resource, "", "", &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    add_names(&mut item, resource);
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource: &Subresource| {
            let (group, version) = (&subresource.group, &subresource.version);
            json!({
                "subresource": subresource.name,
                "responseKind": response_kind(resource, group, version, &subresource.kind),
                "verbs": subresource.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        item["subresources"] = json!(subresources);
    }
    item
}

/// Built-in resources leave out group and version where they are those of the list; custom ones do not.
fn response_kind(resource: &Resource, group: &str, version: &str, kind: &str) -> Value {
    if version.is_empty() && resource.custom.is_some() {
        json!({"group": resource.gvr.group, "version": resource.gvr.version, "kind": kind})
    } else {
        json!({"group": group, "version": version, "kind": kind})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Registry;
    use rstest::rstest;

    const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    const V2BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

    fn get(path: &str, accept: &str) -> (Document, Value) {
        let registry = Registry::new();
        registry.define(&json!({
            "metadata": {"name": "widgets.x.io"},
            "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {}}}]},
        }));
        let document = answer(path, accept, "localhost:6443", &registry.snapshot()).expect(path);
        let body = serde_json::from_slice(&document.body).unwrap_or_default();
        (document, body)
    }

    fn item<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
        let found = list.as_array().unwrap().iter().find(|item| item[key] == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    }

    #[rstest]
    #[case::nothing("", None)]
    #[case::json("application/json", None)]
    #[case::kubectl(&format!("{V2},{V2BETA1},application/json"), Some("apidiscovery.k8s.io/v2"))]
    #[case::older_kubectl(&format!("{V2BETA1},application/json"), Some("apidiscovery.k8s.io/v2beta1"))]
    #[case::json_first(&format!("application/json, {V2}"), None)]
    #[case::unknown_version(
        "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList,application/json",
        None
    )]
    #[case::protobuf_first("application/vnd.kubernetes.protobuf,application/json", None)]
    fn the_clients_first_form_that_is_served(#[case] accept: &str, #[case] expected: Option<&str>) {
        assert_eq!(preferred(accept).map(|(api_version, _)| api_version), expected);
    }

    #[test]
    fn the_core_group_is_under_api() {
        assert_eq!(get("/api", "").1["versions"], json!(["v1"]));
        let (_, list) = get("/api/v1/", "");
        assert_eq!(list["groupVersion"], "v1");
        let pods = item(&list["resources"], "name", "pods");
        assert_eq!(
            (&pods["shortNames"], &pods["categories"]),
            (&json!(["po"]), &json!(["all"]))
        );
        let eviction = item(&list["resources"], "name", "pods/eviction");
        assert_eq!(
            (&eviction["group"], &eviction["version"]),
            (&json!("policy"), &json!("v1"))
        );
    }

    #[test]
    fn other_groups_are_under_apis() {
        let (_, list) = get("/apis", "");
        assert_eq!(
            item(&list["groups"], "name", "apps")["preferredVersion"]["groupVersion"],
            "apps/v1"
        );
        assert_eq!(get("/apis/apps", "").1["kind"], "APIGroup");
        assert_eq!(get("/apis/apps/v1", "").1["groupVersion"], "apps/v1");
    }

    #[test]
    fn a_definition_is_discovered() {
        let (_, list) = get("/apis/x.io/v1", "");
        let widgets = item(&list["resources"], "name", "widgets");
        assert_eq!(widgets["verbs"][5], "create");
        assert_eq!(
            item(&list["resources"], "name", "widgets/scale")["group"],
            "autoscaling"
        );
        let (_, aggregated) = get("/apis", V2);
        let group = aggregated["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|group| group["metadata"]["name"] == "x.io")
            .unwrap();
        let widgets = &group["versions"][0]["resources"][0];
        assert_eq!(
            widgets["responseKind"],
            json!({"group": "x.io", "version": "v1", "kind": "Widget"})
        );
    }

    #[test]
    fn the_aggregated_form_says_what_it_is() {
        let (document, list) = get("/api", V2);
        assert_eq!(
            (document.content_type, &list["kind"]),
            (V2, &json!("APIGroupDiscoveryList"))
        );
        let pods = item(&list["items"][0]["versions"][0]["resources"], "resource", "pods");
        assert_eq!(
            pods["responseKind"],
            json!({"group": "", "version": "", "kind": "Pod"})
        );
        let eviction = item(&pods["subresources"], "subresource", "eviction");
        assert_eq!(
            eviction["responseKind"],
            json!({"group": "policy", "version": "v1", "kind": "Eviction"})
        );
    }

    #[rstest]
    #[case::group("/apis/nope.example.com", "text/plain; charset=utf-8")]
    #[case::version("/apis/apps/v9", "application/json")]
    #[case::core_version("/api/v9", "application/json")]
    #[case::version_of_nothing("/apis/nope.example.com/v1", "text/plain; charset=utf-8")]
    fn what_is_not_served_is_not_found(#[case] path: &str, #[case] content_type: &str) {
        let (document, _) = get(path, "");
        assert_eq!(
            (document.status.as_u16(), document.content_type),
            (404, content_type)
        );
    }

    #[test]
    fn other_paths_are_not_discovery() {
        assert_eq!(answer("/healthz", "", "", &Registry::new().snapshot()), None);
        assert_eq!(
            answer("/apis/apps/v1/deployments", "", "", &Registry::new().snapshot()),
            None
        );
    }
}
