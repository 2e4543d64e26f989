//! What a fresh cluster has.

use super::GROUP;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Data {
    cluster_roles: Vec<Role>,
    controllers: Vec<Role>,
    roles: Vec<Role>,
    priority_classes: Vec<PriorityClass>,
}

/// A role with those it is bound to; no binding without users and groups.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Role {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    /// Value of X in the label `aggregate-to-X`.
    label: Option<String>,
    /// Selects by `aggregate-to-X`.
    #[serde(default)]
    aggregate: Vec<String>,
    #[serde(default)]
    rules: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriorityClass {
    name: String,
    value: i64,
    description: String,
}

/// The objects that a fresh cluster has: ClusterRoles and their bindings, Roles and their bindings (in
/// `kube-system`), PriorityClasses. apiVersion and kind are set, UIDs and times are not.
pub(crate) fn bootstrap_objects() -> Vec<Value> {
    static OBJECTS: OnceLock<Vec<Value>> = OnceLock::new();
    OBJECTS.get_or_init(build).clone()
}

fn build() -> Vec<Value> {
    let data: Data = serde_saphyr::from_str(include_str!("../../../data/bootstrap-rbac.yaml"))
        .expect("bootstrap-rbac.yaml is part of this crate and tested");
    let mut objects = Vec::new();
    for role in data.cluster_roles.iter().chain(&data.roles) {
        objects.push(role.object(&role.name));
        let user = |name: &String| json!({"kind": "User", "apiGroup": GROUP, "name": name});
        let group = |name: &String| json!({"kind": "Group", "apiGroup": GROUP, "name": name});
        let subjects: Vec<Value> = role
            .users
            .iter()
            .map(user)
            .chain(role.groups.iter().map(group))
            .collect();
        if !subjects.is_empty() {
            objects.push(role.binding(&role.name, subjects));
        }
    }
    for controller in &data.controllers {
        let name = format!("system:controller:{}", controller.name);
        let mut role = controller.object(&name);
        if let Some(rules) = role["rules"].as_array_mut() {
            // Every controller reports what it does.
            rules.push(json!({"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]}));
        }
        objects.push(role);
        let account = json!({"kind": "ServiceAccount", "name": controller.name, "namespace": "kube-system"});
        objects.push(controller.binding(&name, vec![account]));
    }
    objects.extend(data.priority_classes.into_iter().map(|class| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class.name},
            "value": class.value, "description": class.description, "preemptionPolicy": "PreemptLowerPriority",
        })
    }));
    objects
}

impl Role {
    fn metadata(&self, name: &str) -> Value {
        let mut metadata = json!({
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        });
        if !self.namespace.is_empty() {
            metadata["namespace"] = json!(self.namespace);
        }
        metadata
    }

    fn kind(&self) -> &'static str {
        if self.namespace.is_empty() {
            "ClusterRole"
        } else {
            "Role"
        }
    }

    fn object(&self, name: &str) -> Value {
        let mut object = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": self.kind(), "metadata": self.metadata(name), "rules": self.rules,
        });
        if let Some(label) = &self.label {
            object["metadata"]["labels"][aggregation_label(label)] = json!("true");
        }
        if !self.aggregate.is_empty() {
            let selectors: Vec<Value> = self
                .aggregate
                .iter()
                .map(|to| {
                    let labels: Map<String, Value> =
                        [(aggregation_label(to), json!("true"))].into_iter().collect();
                    json!({"matchLabels": labels})
                })
                .collect();
            object["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
        object
    }

    fn binding(&self, name: &str, subjects: Vec<Value>) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": format!("{}Binding", self.kind()), "metadata": self.metadata(name),
            "roleRef": {"apiGroup": GROUP, "kind": self.kind(), "name": name},
            "subjects": subjects,
        })
    }
}

fn aggregation_label(to: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{to}")
}
