//! Roles and bindings as one index from subjects to rules.

use super::GROUP;
use super::rules::Rule;
use crate::request::{Reader, UserInfo};
use evenkeel_kube_rules::selector::LabelSelector;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const RESOURCES: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];

/// A binding that gives rules to its subjects.
#[derive(Debug)]
pub(super) struct Grant {
    /// Empty for a ClusterRoleBinding.
    namespace: String,
    binding: String,
    role_kind: String,
    role: String,
    users: Vec<String>,
    groups: Vec<String>,
    /// `false`: the role does not exist.
    found: bool,
    pub(super) rules: Arc<Vec<Rule>>,
}

impl Grant {
    /// Upstream's words for an allowed request.
    pub(super) fn explain(&self, user: &UserInfo) -> String {
        let binding = if self.namespace.is_empty() {
            format!("ClusterRoleBinding \"{}\"", self.binding)
        } else {
            format!("RoleBinding \"{}/{}\"", self.binding, self.namespace)
        };
        let subject = if self.users.contains(&user.name) {
            format!("User \"{}\"", user.name)
        } else {
            let group = self.groups.iter().find(|group| user.groups.contains(group));
            format!("Group \"{}\"", group.map_or("", String::as_str))
        };
        format!(
            "RBAC: allowed by {binding} of {} \"{}\" to {subject}",
            self.role_kind, self.role
        )
    }
}

/// Indices of grants by the subjects they are given to.
#[derive(Debug, Default)]
struct Index {
    users: HashMap<String, Vec<usize>>,
    groups: HashMap<String, Vec<usize>>,
}

impl Index {
    fn of<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = usize> + 'a {
        self.users
            .get(&user.name)
            .into_iter()
            .chain(user.groups.iter().filter_map(|group| self.groups.get(group)))
            .flatten()
            .copied()
    }
}

/// What all roles and bindings say, of one generation.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) of: [u64; 4],
    grants: Vec<Grant>,
    cluster: Index,
    namespaces: HashMap<String, Index>,
}

type Rules = Arc<Vec<Rule>>;

impl Compiled {
    pub(super) fn generations(reader: &dyn Reader) -> [u64; 4] {
        RESOURCES.map(|resource| reader.generation(GROUP, resource))
    }

    pub(super) fn new(of: [u64; 4], reader: &dyn Reader) -> Self {
        let cluster_roles = cluster_roles(reader);
        let roles: HashMap<(String, String), Rules> = reader
            .list(GROUP, "roles", None)
            .iter()
            .map(|role| {
                let text = |key: &str| role["metadata"][key].as_str().unwrap_or_default().to_owned();
                let rules = Arc::new(parse_rules(&role["rules"]));
                ((text("namespace"), text("name")), rules)
            })
            .collect();

        let mut compiled = Self {
            of,
            grants: Vec::new(),
            cluster: Index::default(),
            namespaces: HashMap::new(),
        };
        for resource in ["clusterrolebindings", "rolebindings"] {
            for binding in reader.list(GROUP, resource, None) {
                compiled.add(&binding, &roles, &cluster_roles);
            }
        }
        compiled
    }

    fn add(
        &mut self,
        binding: &Value,
        roles: &HashMap<(String, String), Rules>,
        cluster_roles: &BTreeMap<String, Rules>,
    ) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = text(&binding["metadata"]["namespace"]);
        let role_kind = text(&binding["roleRef"]["kind"]);
        let role = text(&binding["roleRef"]["name"]);
        let rules = match role_kind.as_str() {
            "ClusterRole" => cluster_roles.get(&role).cloned(),
            _ => roles.get(&(namespace.clone(), role.clone())).cloned(),
        };
        let (users, groups) = subjects(&binding["subjects"], &namespace);
        let index = if namespace.is_empty() {
            &mut self.cluster
        } else {
            self.namespaces.entry(namespace.clone()).or_default()
        };
        let at = self.grants.len();
        for user in &users {
            index.users.entry(user.clone()).or_default().push(at);
        }
        for group in &groups {
            index.groups.entry(group.clone()).or_default().push(at);
        }
        self.grants.push(Grant {
            namespace,
            binding: text(&binding["metadata"]["name"]),
            role_kind,
            role,
            users,
            groups,
            found: rules.is_some(),
            rules: rules.unwrap_or_default(),
        });
    }

    /// The grants of a user that hold in a namespace (empty: cluster scope), cluster-wide ones first.
    pub(super) fn grants(&self, user: &UserInfo, namespace: &str) -> Vec<&Grant> {
        std::iter::once(&self.cluster)
            .chain(self.namespaces.get(namespace))
            .flat_map(|index| index.of(user))
            .map(|index| &self.grants[index])
            .collect()
    }

    /// Upstream's words for the roles that bindings of this user name and that do not exist.
    pub(super) fn missing(&self, user: &UserInfo, namespace: &str) -> Vec<String> {
        let mut missing: Vec<String> = self
            .grants(user, namespace)
            .into_iter()
            .filter(|grant| !grant.found)
            .map(|grant| {
                format!(
                    "{}.{GROUP} \"{}\" not found",
                    grant.role_kind.to_lowercase(),
                    grant.role
                )
            })
            .collect();
        missing.dedup();
        missing
    }
}

/// Users and groups of a binding; a ServiceAccount is a user, whose namespace a RoleBinding may leave out.
fn subjects(subjects: &Value, namespace: &str) -> (Vec<String>, Vec<String>) {
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for subject in subjects.as_array().into_iter().flatten() {
        let text = |key: &str| subject[key].as_str().unwrap_or_default();
        let name = text("name");
        match text("kind") {
            "User" => users.push(name.to_owned()),
            "Group" => groups.push(name.to_owned()),
            "ServiceAccount" => {
                let namespace = Some(text("namespace"))
                    .filter(|n| !n.is_empty())
                    .unwrap_or(namespace);
                users.push(format!("system:serviceaccount:{namespace}:{name}"));
            }
            _ => {}
        }
    }
    (users, groups)
}

/// Rules of all ClusterRoles, aggregated ones computed.
fn cluster_roles(reader: &dyn Reader) -> BTreeMap<String, Rules> {
    let all = reader.list(GROUP, "clusterroles", None);
    all.iter()
        .map(|role| {
            let rules = match aggregated(role, &all) {
                Some(rules) => parse_rules(&rules),
                None => parse_rules(&role["rules"]),
            };
            let name = role["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            (name, Arc::new(rules))
        })
        .collect()
}

/// A rule that cannot be read grants nothing; the API refuses to store one.
fn parse_rules(rules: &Value) -> Vec<Rule> {
    rules
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|rule| Rule::deserialize(rule).ok())
        .collect()
}

/// A ClusterRole as it is read: with an `aggregationRule`, its rules are those of the roles it selects.
/// Call it on everything that reads ClusterRoles (get, list, watch); other objects pass unchanged.
pub(crate) fn aggregate(cluster_role: &mut Value, reader: &dyn Reader) {
    if cluster_role["aggregationRule"].is_object()
        && let Some(rules) = aggregated(cluster_role, &reader.list(GROUP, "clusterroles", None))
    {
        cluster_role["rules"] = rules;
    }
}

/// The rules of the roles that `role` selects, by name, without repetition; `None` for an ordinary role.
/// Selected roles may be aggregated themselves (`admin` selects `edit` selects `view`), and may select each
/// other.
fn aggregated(role: &Value, all: &[Arc<Value>]) -> Option<Value> {
    let mut rules = Vec::new();
    let mut seen = vec![role["metadata"]["name"].clone()];
    let mut open = selected(role, all)?;
    while let Some(next) = open.pop() {
        if seen.contains(&next["metadata"]["name"]) {
            continue;
        }
        seen.push(next["metadata"]["name"].clone());
        match selected(&next, all) {
            Some(more) => open.extend(more),
            None => {
                for rule in next["rules"].as_array().into_iter().flatten() {
                    if !rules.contains(rule) {
                        rules.push(rule.clone());
                    }
                }
            }
        }
    }
    Some(json!(rules))
}

/// The roles that an aggregated role selects, last name first so that a stack pops them in order.
fn selected(role: &Value, all: &[Arc<Value>]) -> Option<Vec<Arc<Value>>> {
    let selectors: Vec<LabelSelector> = role["aggregationRule"]
        .as_object()?
        .get("clusterRoleSelectors")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|selector| LabelSelector::from_object(selector).ok())
        .collect();
    let mut found: Vec<Arc<Value>> = all
        .iter()
        .filter(|other| selectors.iter().any(|selector| selector.matches_object(other)))
        .cloned()
        .collect();
    found.sort_by(|a, b| {
        b["metadata"]["name"]
            .as_str()
            .cmp(&a["metadata"]["name"].as_str())
    });
    Some(found)
}
