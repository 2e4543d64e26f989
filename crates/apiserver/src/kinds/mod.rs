//! Which resources exist: kinds as data.
//!
//! The built-in resources of Kubernetes 1.36 come from `builtin.json`; custom resources are added and removed
//! at run time, as their definitions come and go. A lookup takes a [`Snapshot`], which never changes.

pub(crate) mod convert;
mod custom;
#[cfg(test)]
mod tests;

pub(crate) use custom::{Custom, VERBS as CUSTOM_VERBS};

use arc_swap::ArcSwap;
use evenkeel_kube_rules::gvk::{Gvk, Gvr, group_version, qualified};
use evenkeel_kube_rules::schema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// The group whose objects are measurements of kubelets and are not stored.
pub(crate) const METRICS_GROUP: &str = "metrics.k8s.io";

/// Verbs of an ordinary resource, in the order in which discovery lists them.
pub(crate) const ALL_VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// One resource in one served version.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// Group, version and plural name under which it is served.
    pub(crate) gvr: Gvr,
    /// Kind of its objects.
    pub(crate) kind: String,
    /// Kind of its lists, as in `PodList`.
    pub(crate) list_kind: String,
    /// The singular name in lower case, as in `pod`.
    pub(crate) singular: String,
    /// Short names, as in `po`.
    pub(crate) short_names: Vec<String>,
    /// Categories that clients may request as one resource, as in `all`.
    pub(crate) categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Verbs, in the order of discovery.
    pub(crate) verbs: Vec<String>,
    /// Subresources, in alphabetical order.
    pub(crate) subresources: Vec<Subresource>,
    /// Group under which the objects are stored; other than `gvr.group` only where two groups share objects
    /// (events).
    pub(crate) stored_group: String,
    /// Version in which the objects are stored.
    pub(crate) stored_version: String,
    /// The warning that every use of the resource gets; empty for none.
    pub(crate) deprecated: String,
    /// The definition of a custom resource; `None` for built-in ones.
    pub(crate) custom: Option<Arc<Custom>>,
}

/// One subresource, as in `pods/binding`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Subresource {
    /// Last segment of its path, as in `binding`.
    pub(crate) name: String,
    /// Kind that is read or written there.
    pub(crate) kind: String,
    /// Group of that kind; empty with an empty `version`: the group of the resource.
    #[serde(default)]
    pub(crate) group: String,
    /// Version of that kind; empty: the version of the resource.
    #[serde(default)]
    pub(crate) version: String,
    /// Verbs, in alphabetical order.
    pub(crate) verbs: Vec<String>,
}

impl Resource {
    /// Group, version and kind of its objects.
    pub(crate) fn gvk(&self) -> Gvk {
        Gvk {
            group: self.gvr.group.clone(),
            version: self.gvr.version.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Whether its objects can be written in protobuf. Custom resources have no field numbers, and metrics
    /// none that the schemas know.
    pub(crate) fn has_messages(&self) -> bool {
        self.custom.is_none() && schema::kind(&self.gvk()).is_some()
    }

    /// Group, version and kind in which its objects are stored.
    pub(crate) fn stored_gvk(&self) -> Gvk {
        Gvk {
            group: self.stored_group.clone(),
            version: self.stored_version.clone(),
            kind: self.kind.clone(),
        }
    }

    /// As in `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.gvr.group, &self.gvr.version)
    }

    /// As in `pods` or `deployments.apps`: how messages name the resource.
    pub(crate) fn qualified(&self) -> String {
        qualified(&self.gvr.group, &self.gvr.resource)
    }

    /// The subresource of that name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Whether the resource itself has a verb.
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|have| have == verb)
    }
}

/// One version of a group with its resources in alphabetical order.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Name of the version, as in `v1`.
    pub(crate) version: String,
    pub(crate) resources: Vec<Arc<Resource>>,
}

/// One group with its versions, the preferred one first.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Name of the group; empty for the core group.
    pub(crate) name: String,
    pub(crate) versions: Vec<Version>,
}

/// All resources at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    groups: Vec<Group>,
    by_path: HashMap<String, HashMap<String, Arc<Resource>>>,
    by_kind: HashMap<Gvk, Arc<Resource>>,
}

impl Snapshot {
    fn new(groups: Vec<Group>) -> Self {
        let mut by_path: HashMap<String, HashMap<String, Arc<Resource>>> = HashMap::new();
        let mut by_kind = HashMap::new();
        for group in &groups {
            for version in &group.versions {
                let resources = by_path
                    .entry(group_version(&group.name, &version.version))
                    .or_default();
                for resource in &version.resources {
                    resources.insert(resource.gvr.resource.clone(), resource.clone());
                    by_kind.entry(resource.gvk()).or_insert_with(|| resource.clone());
                }
            }
        }
        Self {
            groups,
            by_path,
            by_kind,
        }
    }

    /// A resource by group, version and plural name.
    pub(crate) fn by_gvr(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Resource>> {
        if group.is_empty() {
            self.by_path.get(version)?.get(resource)
        } else {
            self.by_path.get(&group_version(group, version))?.get(resource)
        }
    }

    /// A resource by its kind.
    pub(crate) fn by_gvk(&self, gvk: &Gvk) -> Option<&Arc<Resource>> {
        self.by_kind.get(gvk)
    }

    /// All groups, the core group first, in the order in which discovery lists them.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// A version of a group, if it is served.
    pub(crate) fn version(&self, group: &str, version: &str) -> Option<&Version> {
        let group = self.groups.iter().find(|other| other.name == group)?;
        group.versions.iter().find(|other| other.version == version)
    }

    /// Every resource in every served version.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups
            .iter()
            .flat_map(|group| &group.versions)
            .flat_map(|version| &version.resources)
    }
}

/// The resources that are served now.
pub(crate) struct Registry {
    builtin: Vec<Group>,
    custom: Mutex<BTreeMap<String, Vec<Arc<Resource>>>>,
    current: ArcSwap<Snapshot>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// The built-in resources.
    pub(crate) fn new() -> Self {
        let builtin = builtin();
        let current = ArcSwap::from_pointee(Snapshot::new(builtin.clone()));
        Self {
            builtin,
            custom: Mutex::default(),
            current,
        }
    }

    /// The resources of this moment.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Serves what a CustomResourceDefinition defines; replaces what an earlier one of that name defined.
    pub(crate) fn define(&self, definition: &Value) {
        let name = definition["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let resources = custom::resources(definition);
        self.change(|all| {
            all.insert(name, resources);
        });
    }

    /// Stops serving what the CustomResourceDefinition of that name defined.
    pub(crate) fn undefine(&self, name: &str) {
        self.change(|all| {
            all.remove(name);
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<Arc<Resource>>>)) {
        let mut all = self.custom.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut all);
        let mut groups = self.builtin.clone();
        for resource in all.values().flatten() {
            custom::insert(&mut groups, resource.clone());
        }
        self.current.store(Arc::new(Snapshot::new(groups)));
    }
}

#[derive(Deserialize)]
struct GroupData {
    group: String,
    versions: Vec<VersionData>,
}

#[derive(Deserialize)]
struct VersionData {
    version: String,
    resources: Vec<ResourceData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceData {
    resource: String,
    kind: String,
    singular: String,
    namespaced: bool,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default = "all_verbs")]
    verbs: Vec<String>,
    #[serde(default)]
    subresources: Vec<Subresource>,
    #[serde(default)]
    stored_as: Option<StoredAs>,
    #[serde(default)]
    deprecated: String,
}

#[derive(Deserialize)]
struct StoredAs {
    group: String,
    version: String,
}

fn all_verbs() -> Vec<String> {
    ALL_VERBS.iter().map(|&verb| verb.to_owned()).collect()
}

/// The kinds of Kubernetes that the server knows from its start.
fn builtin() -> Vec<Group> {
    let data: Vec<GroupData> = serde_json::from_str(include_str!("builtin.json"))
        .expect("builtin.json is part of this crate and tested");
    data.into_iter()
        .map(|group| Group {
            versions: group
                .versions
                .into_iter()
                .map(|version| Version {
                    resources: version
                        .resources
                        .into_iter()
                        .map(|resource| Arc::new(from_data(&group.group, &version.version, resource)))
                        .collect(),
                    version: version.version,
                })
                .collect(),
            name: group.group,
        })
        .collect()
}

fn from_data(group: &str, version: &str, data: ResourceData) -> Resource {
    let stored = data.stored_as.unwrap_or_else(|| StoredAs {
        group: group.to_owned(),
        version: version.to_owned(),
    });
    Resource {
        gvr: Gvr {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: data.resource,
        },
        list_kind: format!("{}List", data.kind),
        kind: data.kind,
        singular: data.singular,
        short_names: data.short_names,
        categories: data.categories,
        namespaced: data.namespaced,
        verbs: data.verbs,
        subresources: data.subresources,
        stored_group: stored.group,
        stored_version: stored.version,
        deprecated: data.deprecated,
        custom: None,
    }
}
