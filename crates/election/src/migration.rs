//! Moving work from one Lease to another, as the Kubernetes controller managers do it.
//!
//! A component that is split up, or replaced by another, changes the Lease under which a part of its work
//! runs. While old and new replicas run side by side, two Leases would allow that part to run twice. So for
//! the time of the move it runs under a third one, the *migration Lease*, that old and new agree on:
//!
//! 1. All replicas of the old component get a [`MigrationConfig`] that gives the moving work to it. From then
//!    on, the moving work needs the migration Lease as well as the component's own.
//! 2. Replicas of the new component start, with the same configuration but for `component`, which now names
//!    them. They wait for the migration Lease.
//! 3. Replicas of the old component are stopped or get the new configuration too. The Lease changes hands,
//!    and the work with it.
//! 4. When all are through, the configuration is removed: the work runs under the new component's own Lease.
//!
//! The format is `LeaderMigrationConfiguration` of `controllermanager.config.k8s.io/v1`, read with serde.

mod run;

pub use run::{Migrating, MigrationLock, Share};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the migration Lease unless the configuration says another.
pub const DEFAULT_LEASE: &str = "cloud-provider-extraction-migration";

/// Stands for any component in a configuration.
const ANY_COMPONENT: &str = "*";
const KIND: &str = "LeaderMigrationConfiguration";
const API_GROUP: &str = "controllermanager.config.k8s.io/";

/// Which part of the work moves, and which component does it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigrationConfig {
    /// `controllermanager.config.k8s.io/v1`, or one of its older versions; may be left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `LeaderMigrationConfiguration`; may be left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name of the migration Lease, [`DEFAULT_LEASE`] if left out.
    #[serde(default = "default_lease")]
    pub leader_name: String,
    /// Kind of the lock: `leases`, also if left out.
    #[serde(default = "default_lock")]
    pub resource_lock: String,
    /// The moving work. What is not listed does not move.
    #[serde(default)]
    pub controller_leaders: Vec<ControllerLeader>,
}

/// One piece of moving work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControllerLeader {
    /// The piece of work, for instance `route-controller`.
    pub name: String,
    /// The component that does it now; `*` for the one that holds the migration Lease.
    pub component: String,
}

fn default_lease() -> String {
    DEFAULT_LEASE.to_owned()
}

fn default_lock() -> String {
    "leases".to_owned()
}

impl Default for MigrationConfig {
    fn default() -> Self {
        Self {
            api_version: String::new(),
            kind: String::new(),
            leader_name: default_lease(),
            resource_lock: default_lock(),
            controller_leaders: Vec::new(),
        }
    }
}

/// A configuration that cannot work. The path is that of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigrationError {
    /// The document is of another kind.
    #[error("{path}: {value:?} is not a LeaderMigrationConfiguration of controllermanager.config.k8s.io")]
    Document {
        /// The field that is wrong: `apiVersion` or `kind`.
        path: &'static str,
        /// The value of the field.
        value: String,
    },
    /// A required field is empty.
    #[error("{path}: required; {hint}")]
    Missing {
        /// The field that is empty.
        path: String,
        /// What to write there.
        hint: &'static str,
    },
    /// The lock is no Lease.
    #[error("resourceLock: {0:?} is not supported; write \"leases\", the only kind of lock that is left")]
    Lock(String),
    /// Two entries for one piece of work; which one counts would depend on their order.
    #[error("controllerLeaders[{index}].name: {name:?} is listed before; list each controller once")]
    Duplicate {
        /// Index of the second entry.
        index: usize,
        /// Name of the piece of work.
        name: String,
    },
}

impl MigrationConfig {
    /// Checks the configuration as Kubernetes does. Also refuses `endpoints` locks, which no client supports
    /// any more, and entries that contradict each other.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn validate(&self) -> Result<(), MigrationError> {
        if !self.api_version.is_empty() && !self.api_version.starts_with(API_GROUP) {
            return Err(MigrationError::Document {
                path: "apiVersion",
                value: self.api_version.clone(),
            });
        }
        if !self.kind.is_empty() && self.kind != KIND {
            return Err(MigrationError::Document {
                path: "kind",
                value: self.kind.clone(),
            });
        }
        if self.leader_name.is_empty() {
            return Err(MigrationError::Missing {
                path: "leaderName".to_owned(),
                hint: "name the migration Lease",
            });
        }
        if self.resource_lock != "leases" {
            return Err(MigrationError::Lock(self.resource_lock.clone()));
        }
        let mut seen = BTreeMap::new();
        for (index, leader) in self.controller_leaders.iter().enumerate() {
            for (field, value, hint) in [
                (
                    "component",
                    &leader.component,
                    "name the component that runs it, or *",
                ),
                ("name", &leader.name, "name the controller"),
            ] {
                if value.is_empty() {
                    return Err(MigrationError::Missing {
                        path: format!("controllerLeaders[{index}].{field}"),
                        hint,
                    });
                }
            }
            if seen.insert(&leader.name, index).is_some() {
                return Err(MigrationError::Duplicate {
                    index,
                    name: leader.name.clone(),
                });
            }
        }
        Ok(())
    }
}

/// Whether a component runs a piece of work, and under which Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// The work does not move: it runs under the component's own Lease.
    NonMigrated,
    /// The work moves, and this component does it now: it runs under the migration Lease and the component's
    /// own.
    Migrated,
    /// The work moves, and another component does it now: it does not run here.
    Unowned,
}

/// A configuration as one component reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    lease: String,
    ours: BTreeMap<String, bool>,
}

impl Migration {
    /// How `component` reads `config`.
    ///
    /// # Errors
    /// The configuration is refused; see [`MigrationConfig::validate`].
    pub fn new(config: &MigrationConfig, component: &str) -> Result<Self, MigrationError> {
        config.validate()?;
        let ours =
            |leader: &ControllerLeader| leader.component == component || leader.component == ANY_COMPONENT;
        Ok(Self {
            lease: config.leader_name.clone(),
            ours: config
                .controller_leaders
                .iter()
                .map(|leader| (leader.name.clone(), ours(leader)))
                .collect(),
        })
    }

    /// Name of the migration Lease, in the namespace of the component's own.
    pub fn lease(&self) -> &str {
        &self.lease
    }

    /// Where a piece of work belongs.
    pub fn ownership(&self, controller: &str) -> Ownership {
        match self.ours.get(controller) {
            None => Ownership::NonMigrated,
            Some(true) => Ownership::Migrated,
            Some(false) => Ownership::Unowned,
        }
    }

    /// Whether this component has moving work at all. One that has none must not take the migration Lease: it
    /// would keep the work from whoever has it.
    pub fn has_work(&self) -> bool {
        self.ours.values().any(|ours| *ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    const KCM: &str = "kube-controller-manager";
    const CCM: &str = "cloud-controller-manager";
    const MOVING: [&str; 3] = [
        "route-controller",
        "service-controller",
        "cloud-node-lifecycle-controller",
    ];

    fn given_to(component: &str) -> MigrationConfig {
        MigrationConfig {
            controller_leaders: MOVING
                .iter()
                .map(|name| ControllerLeader {
                    name: (*name).to_owned(),
                    component: component.to_owned(),
                })
                .collect(),
            ..MigrationConfig::default()
        }
    }

    #[rstest]
    #[case::from_config_kcm(KCM, KCM, Ownership::Migrated)]
    #[case::from_config_ccm(KCM, CCM, Ownership::Unowned)]
    #[case::to_config_kcm(CCM, KCM, Ownership::Unowned)]
    #[case::to_config_ccm(CCM, CCM, Ownership::Migrated)]
    #[case::wildcard_config_kcm("*", KCM, Ownership::Migrated)]
    #[case::wildcard_config_ccm("*", CCM, Ownership::Migrated)]
    fn the_filter(#[case] owner: &str, #[case] component: &str, #[case] expected: Ownership) {
        let migration = Migration::new(&given_to(owner), component).unwrap();
        for controller in MOVING {
            assert_eq!(migration.ownership(controller), expected, "{controller}");
        }
        for controller in ["deployment-controller", "cloud-node-controller"] {
            assert_eq!(
                migration.ownership(controller),
                Ownership::NonMigrated,
                "{controller}"
            );
        }
        assert_eq!(migration.has_work(), expected == Ownership::Migrated);
        assert_eq!(migration.lease(), DEFAULT_LEASE);
    }

    fn with_leader(name: &str, component: &str) -> MigrationConfig {
        let mut config = given_to(KCM);
        config.controller_leaders.push(ControllerLeader {
            name: name.to_owned(),
            component: component.to_owned(),
        });
        config
    }

    #[rstest]
    #[case::empty_name(MigrationConfig { leader_name: String::new(), ..MigrationConfig::default() },
        "leaderName: required; name the migration Lease")]
    #[case::invalid_resource_lock(MigrationConfig { resource_lock: "invalid".into(), ..MigrationConfig::default() },
        "resourceLock: \"invalid\" is not supported; write \"leases\", the only kind of lock that is left")]
    #[case::empty_controller_leaders_is_valid(MigrationConfig::default(), "")]
    // Upstream accepts it, and fails when it takes the lock: the kind was removed.
    #[case::endpoints(MigrationConfig { resource_lock: "endpoints".into(), ..MigrationConfig::default() },
        "resourceLock: \"endpoints\" is not supported; write \"leases\", the only kind of lock that is left")]
    #[case::full(given_to("*"), "")]
    #[case::no_controller_name(
        with_leader("", KCM),
        "controllerLeaders[3].name: required; name the controller"
    )]
    #[case::no_component(
        with_leader("x", ""),
        "controllerLeaders[3].component: required; name the component that runs it, or *"
    )]
    #[case::duplicate(
        with_leader("route-controller", CCM),
        "controllerLeaders[3].name: \"route-controller\" is listed before; list each controller once"
    )]
    #[case::other_kind(MigrationConfig { kind: "KubeletConfiguration".into(), ..MigrationConfig::default() },
        "kind: \"KubeletConfiguration\" is not a LeaderMigrationConfiguration of controllermanager.config.k8s.io")]
    #[case::other_group(MigrationConfig { api_version: "v1".into(), ..MigrationConfig::default() },
        "apiVersion: \"v1\" is not a LeaderMigrationConfiguration of controllermanager.config.k8s.io")]
    fn the_configuration_is_checked(#[case] config: MigrationConfig, #[case] expected: &str) {
        let told = config
            .validate()
            .map_or_else(|error| error.to_string(), |()| String::new());
        assert_eq!(told, expected);
        assert_eq!(Migration::new(&config, KCM).is_err(), !expected.is_empty());
    }

    #[test]
    fn kubernetes_format_is_read() {
        let config: MigrationConfig = serde_json::from_value(json!({
            "apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration",
            "leaderName": "my-migration", "resourceLock": "leases",
            "controllerLeaders": [{"name": "route-controller", "component": "*"}]}))
        .unwrap();
        config.validate().unwrap();
        assert_eq!(Migration::new(&config, CCM).unwrap().lease(), "my-migration");
        let config: MigrationConfig = serde_json::from_value(json!({})).unwrap();
        assert_eq!(config, MigrationConfig::default());
        let typo = serde_json::from_value::<MigrationConfig>(json!({"leaderNme": "x"}));
        assert!(typo.unwrap_err().to_string().contains("leaderNme"));
    }
}
