//! Resources that a CustomResourceDefinition defines.

use super::{Group, Resource, Subresource, Version};
use evenkeel_kube_rules::crd::CustomKind;
use evenkeel_kube_rules::gvk::Gvr;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// Verbs of every custom resource, in the order in which upstream's discovery lists them there.
pub(crate) const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// What a custom resource is made of.
#[derive(Debug)]
pub(crate) struct Custom {
    /// The whole CustomResourceDefinition.
    pub(crate) definition: Value,
    /// Its entry of `spec.versions` that this resource serves.
    pub(crate) version: Value,
    compiled: OnceLock<Result<CustomKind, String>>,
}

impl Custom {
    /// The rules of the kind, compiled on first use. `Err` says what is wrong with the definition.
    pub(crate) fn kind(&self) -> Result<&CustomKind, &str> {
        let version = self.version["name"].as_str().unwrap_or_default();
        self.compiled
            .get_or_init(|| CustomKind::compile(&self.definition, version))
            .as_ref()
            .map_err(String::as_str)
    }
}

/// The served versions of a definition.
pub(super) fn resources(definition: &Value) -> Vec<Arc<Resource>> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    let versions = || spec["versions"].as_array().into_iter().flatten();
    let stored = versions()
        .find(|version| version["storage"] == true)
        .map(|version| text(&version["name"]))
        .unwrap_or_default();
    versions()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let kind = text(&names["kind"]);
            let list_kind = match names["listKind"].as_str() {
                Some(list_kind) if !list_kind.is_empty() => list_kind.to_owned(),
                _ => format!("{kind}List"),
            };
            Arc::new(Resource {
                gvr: Gvr {
                    group: text(&spec["group"]),
                    version: text(&version["name"]),
                    resource: text(&names["plural"]),
                },
                list_kind,
                singular: match names["singular"].as_str() {
                    Some(singular) if !singular.is_empty() => singular.to_owned(),
                    _ => kind.to_lowercase(),
                },
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                verbs: VERBS.map(str::to_owned).to_vec(),
                subresources: subresources(&kind, version),
                kind,
                stored_group: text(&spec["group"]),
                stored_version: stored.clone(),
                deprecated: deprecation(spec, version),
                custom: Some(Arc::new(Custom {
                    definition: definition.clone(),
                    version: version.clone(),
                    compiled: OnceLock::new(),
                })),
            })
        })
        .collect()
}

/// The warning of a deprecated version: its own, or upstream's words for it.
fn deprecation(spec: &Value, version: &Value) -> String {
    if version["deprecated"] != true {
        return String::new();
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return warning.to_owned();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind, name) = (
        text(&spec["group"]),
        text(&spec["names"]["kind"]),
        text(&version["name"]),
    );
    format!("{group}/{name} {kind} is deprecated")
}

fn subresources(kind: &str, version: &Value) -> Vec<Subresource> {
    let verbs = || ["get", "patch", "update"].map(str::to_owned).to_vec();
    let mut all = Vec::new();
    if version["subresources"]["scale"].is_object() {
        all.push(Subresource {
            name: "scale".to_owned(),
            kind: "Scale".to_owned(),
            group: "autoscaling".to_owned(),
            version: "v1".to_owned(),
            verbs: verbs(),
        });
    }
    if version["subresources"]["status"].is_object() {
        all.push(Subresource {
            name: "status".to_owned(),
            kind: kind.to_owned(),
            group: String::new(),
            version: String::new(),
            verbs: verbs(),
        });
    }
    all
}

/// Adds a resource in discovery order: versions by upstream's priority, resources by name.
pub(super) fn insert(groups: &mut Vec<Group>, resource: Arc<Resource>) {
    let index = groups
        .iter()
        .position(|group| group.name == resource.gvr.group)
        .unwrap_or_else(|| {
            groups.push(Group {
                name: resource.gvr.group.clone(),
                versions: Vec::new(),
            });
            groups.len() - 1
        });
    let versions = &mut groups[index].versions;
    let wanted = &resource.gvr.version;
    let index = versions
        .iter()
        .position(|version| version.version == *wanted)
        .unwrap_or_else(|| {
            let at = versions.partition_point(|version| priority(&version.version) > priority(wanted));
            versions.insert(
                at,
                Version {
                    version: wanted.clone(),
                    resources: Vec::new(),
                },
            );
            at
        });
    let resources = &mut versions[index].resources;
    let at = resources.partition_point(|other| other.gvr.resource < resource.gvr.resource);
    resources.insert(at, resource);
}

/// Upstream's order of versions: stable before beta before alpha before anything else, then by numbers.
fn priority(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let other = (0, 0, 0, std::cmp::Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else {
        return other;
    };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (Ok(major), tail) = (rest[..digits].parse::<u64>(), &rest[digits..]) else {
        return other;
    };
    let minor = |text: &str| text.parse::<u64>().ok();
    let none = std::cmp::Reverse(String::new());
    if tail.is_empty() {
        return (3, major, 0, none);
    }
    if let Some(minor) = tail.strip_prefix("beta").and_then(minor) {
        return (2, major, minor, none);
    }
    if let Some(minor) = tail.strip_prefix("alpha").and_then(minor) {
        return (1, major, minor, none);
    }
    other
}

#[cfg(test)]
mod tests {
    use super::priority;

    #[test]
    fn versions_sort_as_upstream_sorts_them() {
        let mut versions = [
            "foo1",
            "v1alpha1",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "foo10",
        ];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(
            versions,
            [
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v1alpha1",
                "foo1",
                "foo10"
            ]
        );
    }
}
