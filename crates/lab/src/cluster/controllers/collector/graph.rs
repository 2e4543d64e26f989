//! Who owns whom, and what follows from it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// A kind: group and kind.
pub type Key = (String, String);

/// An object, as far as garbage collection is concerned.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of the object's metadata")]
pub struct Node {
    pub key: Key,
    /// Empty for what belongs to the cluster.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub version: String,
    pub owners: Vec<OwnerReference>,
    pub finalizers: Vec<String>,
    pub leaving: bool,
}

impl Node {
    /// What counts of an object's metadata.
    pub fn new(key: &Key, metadata: &ObjectMeta) -> Self {
        Self {
            key: key.clone(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            owners: metadata.owner_references.clone().unwrap_or_default(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            leaving: metadata.deletion_timestamp.is_some(),
        }
    }

    /// Whether it waits for its dependents to go before it goes.
    fn waits(&self) -> bool {
        self.leaving && self.has(FOREGROUND)
    }

    /// Whether it lets go of its dependents before it goes.
    fn lets_go(&self) -> bool {
        self.leaving && self.has(ORPHAN)
    }

    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }
}

/// All objects by UID, and the kinds that were listed: an owner of another kind is never presumed gone.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "described above")]
pub struct Graph {
    pub nodes: BTreeMap<String, Node>,
    pub listed: BTreeSet<Key>,
    /// Which of the kinds belong to namespaces.
    pub namespaced: BTreeSet<Key>,
}

/// A write that collects garbage.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Delete the object, by a propagation policy, unless one of these owners is there after all.
    #[expect(missing_docs, reason = "described above")]
    Delete {
        node: Node,
        policy: &'static str,
        unless: Vec<OwnerReference>,
    },
    /// Merge-patch the object's metadata.
    #[expect(missing_docs, reason = "described above")]
    Patch { node: Node, change: Value },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, node) = match self {
            Self::Delete { node, policy, .. } => (format!("delete ({policy})"), node),
            Self::Patch { node, change } => (format!("patch {}", change["metadata"]), node),
        };
        write!(f, "{verb} {} {}/{}", node.key.1, node.namespace, node.name)
    }
}

/// Group and kind of an owner.
pub(super) fn key_of(owner: &OwnerReference) -> Key {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    (group.to_owned(), owner.kind.clone())
}

/// What an owner is to a dependent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is there, or nobody can say.
    Solid,
    /// It is gone, or is not the object that is meant.
    Gone,
    /// It waits until this dependent is gone.
    Waits,
}

/// The writes that are due.
pub fn steps(graph: &Graph) -> Vec<Step> {
    let mut dependents: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    for node in graph.nodes.values() {
        for owner in &node.owners {
            dependents.entry(&owner.uid).or_default().push(node);
        }
    }
    let none = Vec::new();
    let mut steps = Vec::new();
    for node in graph.nodes.values() {
        let mine = dependents.get(node.uid.as_str()).unwrap_or(&none);
        if node.lets_go() {
            steps.extend(let_go(node, mine));
        } else if node.waits() {
            if !mine.iter().any(|dependent| blocks(dependent, &node.uid)) {
                steps.push(without_finalizer(node, FOREGROUND));
            }
        } else if !node.leaving && !node.owners.is_empty() {
            steps.extend(collect(graph, node, mine));
        }
    }
    steps
}

/// Takes the owner off its dependents; when it is on none, takes the finalizer off the owner.
fn let_go(owner: &Node, dependents: &[&Node]) -> Vec<Step> {
    if dependents.is_empty() {
        return vec![without_finalizer(owner, ORPHAN)];
    }
    let without = |dependent: &&Node| {
        let kept = dependent.owners.iter().filter(|other| other.uid != owner.uid);
        with_owners(dependent, kept.collect())
    };
    dependents.iter().map(without).collect()
}

fn collect(graph: &Graph, node: &Node, dependents: &[&Node]) -> Option<Step> {
    let standings: Vec<Standing> = node
        .owners
        .iter()
        .map(|owner| standing(graph, node, owner))
        .collect();
    let owners = || node.owners.iter().zip(&standings);
    if standings.contains(&Standing::Solid) {
        let kept: Vec<&OwnerReference> = owners()
            .filter(|(_, standing)| **standing == Standing::Solid)
            .map(|(owner, _)| owner)
            .collect();
        return (kept.len() < node.owners.len()).then(|| with_owners(node, kept));
    }
    let waited_for = standings.contains(&Standing::Waits);
    if waited_for && dependents.iter().any(|dependent| dependent.waits()) {
        // Owners that wait for each other in a circle would wait for ever.
        let kept = node.owners.iter().map(|owner| {
            let mut owner = owner.clone();
            owner.block_owner_deletion = Some(false);
            owner
        });
        let kept: Vec<OwnerReference> = kept.collect();
        let blocking = node
            .owners
            .iter()
            .any(|owner| owner.block_owner_deletion == Some(true));
        if blocking {
            return Some(with_owners(node, kept.iter().collect()));
        }
    }
    let policy = if waited_for && !dependents.is_empty() || node.has(FOREGROUND) {
        "Foreground"
    } else if node.has(ORPHAN) {
        "Orphan"
    } else {
        "Background"
    };
    let gone = owners().filter(|(_, standing)| **standing == Standing::Gone);
    Some(Step::Delete {
        node: node.clone(),
        policy,
        unless: gone.map(|(owner, _)| owner.clone()).collect(),
    })
}

fn standing(graph: &Graph, node: &Node, owner: &OwnerReference) -> Standing {
    let key = key_of(owner);
    let known = graph.listed.contains(&key);
    // An object of the cluster cannot belong to one of a namespace; upstream leaves it alone as well.
    let misplaced = node.namespace.is_empty() && graph.namespaced.contains(&key);
    match graph.nodes.get(&owner.uid) {
        Some(found) => {
            let same = found.key == key
                && found.name == owner.name
                && (found.namespace.is_empty() || found.namespace == node.namespace);
            match (same, found.waits()) {
                (true, true) => Standing::Waits,
                (true, false) => Standing::Solid,
                (false, _) if known && !misplaced => Standing::Gone,
                (false, _) => Standing::Solid,
            }
        }
        None if known && !misplaced => Standing::Gone,
        None => Standing::Solid,
    }
}

fn blocks(dependent: &Node, owner: &str) -> bool {
    let mut owners = dependent.owners.iter();
    owners.any(|reference| reference.uid == owner && reference.block_owner_deletion == Some(true))
}

fn with_owners(node: &Node, owners: Vec<&OwnerReference>) -> Step {
    let change = json!({"metadata": {
        "uid": node.uid, "resourceVersion": node.version, "ownerReferences": owners,
    }});
    Step::Patch {
        node: node.clone(),
        change,
    }
}

fn without_finalizer(node: &Node, finalizer: &str) -> Step {
    let kept: Vec<&String> = node.finalizers.iter().filter(|name| *name != finalizer).collect();
    let change = json!({"metadata": {
        "uid": node.uid, "resourceVersion": node.version, "finalizers": kept,
    }});
    Step::Patch {
        node: node.clone(),
        change,
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
