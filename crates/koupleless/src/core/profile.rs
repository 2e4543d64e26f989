//! Which names are used: a profile is data.
//!
//! Two are built in. [`KOUPLELESS`] is what the released module controller (2.2) publishes, so that
//! selectors, tolerations and dashboards go on working. [`V2_DESIGN`] is what its design article describes.

use super::claims::Sharing;
use super::identity::{label_value, object_name};
use super::{Base, Identity};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Names and figures of virtual nodes and modules.
///
/// Texts may hold `{identity}`, `{env}`, `{name}`, `{version}`, `{cluster}`, `{host}`, `{port}`,
/// `{namespace}` and `{pod}`: what is known of the base, and the pod that it runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// As in `--profile`.
    pub name: &'static str,
    /// Names of nodes; the first of which everything is known.
    pub node: &'static [&'static str],
    /// Labels of nodes; one of which something is not known is left away.
    pub labels: &'static [(&'static str, &'static str)],
    /// Taints of new nodes: key, value, effect.
    pub taints: &'static [(&'static str, &'static str, &'static str)],
    /// Capacity in pods, where nobody says another.
    pub pods: u32,
    /// Whether a node's `InternalIP` is its base's address. Then nobody reaches its kubelet API; else it is
    /// this process' own.
    pub base_address: bool,
    /// Environment variables that hold a module's version; the first that is set counts.
    pub version: &'static [&'static str],
    /// IDs of containers without scheme: `{address}`, `{module}`, `{version}`, `{since}` (when it was
    /// activated, in milliseconds since 1970).
    pub container_id: &'static str,
    /// What a failed install is to the pod.
    pub failed_install: FailedInstall,
    /// Whether pods may have the same module of a base.
    pub sharing: Sharing,
    /// Whether Leases of nodes are held in the name of the process (`CLIENT_ID`), or in that of the node, as
    /// a kubelet's.
    pub leases_by_process: bool,
}

/// What a failed install is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedInstall {
    /// The container waits with the cause, and is tried again with back-off.
    Waits,
    /// The pod has failed, whatever its restart policy; a controller replaces it.
    FailsPod,
}

/// What the released module controller publishes.
pub const KOUPLELESS: Profile = Profile {
    name: "koupleless",
    node: &["vnode.{identity}.{env}"],
    labels: &[
        ("base.koupleless.io/name", "{name}"),
        ("base.koupleless.io/version", "{version}"),
        ("base.koupleless.io/cluster-name", "{cluster}"),
        ("base.koupleless.io/host-name", "{host}"),
        ("base.koupleless.io/tunnel-port", "{port}"),
        ("virtual-kubelet.koupleless.io/component", "vnode"),
        ("virtual-kubelet.koupleless.io/env", "{env}"),
        ("kubernetes.io/hostname", "{host}"),
    ],
    taints: &[
        ("schedule.koupleless.io/virtual-node", "True", "NoExecute"),
        ("schedule.koupleless.io/node-env", "{env}", "NoExecute"),
    ],
    pods: 65535,
    base_address: false,
    version: &["BIZ_VERSION", "MODULE_VERSION"],
    container_id: "{address}:{module}:{version}:{since}",
    failed_install: FailedInstall::Waits,
    sharing: Sharing::Shared,
    leases_by_process: true,
};

/// What the design article describes. Where it contradicts itself its samples count.
pub const V2_DESIGN: Profile = Profile {
    name: "v2-design",
    node: &[
        "virtual-node-{name}-{namespace}-{pod}",
        "virtual-node-{name}-{identity}",
        "virtual-node-{identity}",
    ],
    labels: &[
        ("basement.koupleless.io/stack", "{name}"),
        ("basement.koupleless.io/version", "{version}"),
        ("base.koupleless.io/cluster-name", "{cluster}"),
        ("virtual-kubelet.koupleless.io/component", "vnode"),
        ("virtual-kubelet.koupleless.io/env", "{env}"),
    ],
    taints: &[("schedule.koupleless.io/virtual-node", "True", "NoExecute")],
    pods: 1,
    base_address: true,
    version: &["MODULE_VERSION", "BIZ_VERSION"],
    container_id: "{address}:{module}:{version}",
    failed_install: FailedInstall::FailsPod,
    sharing: Sharing::Exclusive,
    leases_by_process: false,
};

/// All that are built in.
pub const PROFILES: [&Profile; 2] = [&KOUPLELESS, &V2_DESIGN];

impl Profile {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PROFILES.into_iter().find(|profile| profile.name == name)
    }

    /// Name of a base's node. `env`: the environment that this process serves.
    pub fn node_name(&self, base: &Base, env: &str) -> String {
        let known = |template: &&str| fill(template, |key| of_base(base, env, key));
        let name = self.node.iter().find_map(known);
        object_name(&name.unwrap_or_else(|| base.identity.to_string()))
    }

    /// Labels of a base's node.
    pub fn labels(&self, base: &Base, env: &str) -> BTreeMap<String, String> {
        let label = |(key, template): &(&str, &str)| {
            let value = fill(template, |name| of_base(base, env, name))?;
            Some(((*key).to_owned(), label_value(&value)?))
        };
        self.labels.iter().filter_map(label).collect()
    }

    /// Taints of a new node.
    pub fn taints(&self, base: &Base, env: &str) -> Vec<(String, String, String)> {
        let taint = |(key, value, effect): &(&str, &str, &str)| {
            let value = fill(value, |name| of_base(base, env, name))?;
            Some(((*key).to_owned(), label_value(&value)?, (*effect).to_owned()))
        };
        self.taints.iter().filter_map(taint).collect()
    }

    /// ID of a module's container, without scheme. `since`: when the module was activated, in milliseconds
    /// since 1970.
    pub fn container_id(&self, address: IpAddr, module: &str, version: &str, since: i64) -> String {
        let part = |key: &str| match key {
            "address" => Some(address.to_string()),
            "module" => Some(module.to_owned()),
            "version" => Some(version.to_owned()),
            "since" => Some(since.to_string()),
            _ => None,
        };
        fill(self.container_id, part).unwrap_or_else(|| format!("{address}:{module}:{version}:{since}"))
    }
}

fn of_base(base: &Base, env: &str, key: &str) -> Option<String> {
    let identity = |identity: &Identity| identity.as_str().to_owned();
    match key {
        "identity" => Some(identity(&base.identity)),
        "env" => Some(env.to_owned()),
        "name" => base.name.clone(),
        "version" => base.version.clone(),
        "cluster" => base.cluster.clone(),
        "host" => base.host_name.clone(),
        "port" => base.port().map(|port| port.to_string()),
        "namespace" => base.pod.as_ref().map(|pod| pod.namespace.to_string()),
        "pod" => base.pod.as_ref().map(|pod| pod.name.to_string()),
        _ => None,
    }
    .filter(|text| !text.is_empty())
}

/// Fills in a template; `None` where a part is not known.
fn fill(template: &str, part: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (key, after) = after.split_once('}')?;
        out.push_str(before);
        out.push_str(&part(key)?);
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::{Connection, Endpoint, PodRef};
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn base() -> Base {
        Base {
            identity: Identity::new("192.0.2.2").unwrap(),
            name: Some("TO_BE_IMPLEMENTED".to_owned()),
            version: Some("1.0.0".to_owned()),
            cluster: Some("default".to_owned()),
            host_name: Some("web-7".to_owned()),
            endpoint: Endpoint {
                address: "192.0.2.2".parse().unwrap(),
                by: Connection::Http(1238),
            },
            pod: None,
        }
    }

    fn with_pod() -> Base {
        Base {
            name: Some("web".to_owned()),
            pod: Some(PodRef {
                namespace: "shop".into(),
                name: "web-7".into(),
                uid: "u".into(),
                container: "base".into(),
            }),
            ..base()
        }
    }

    #[test]
    fn the_released_controllers_names_are_kept() {
        assert_eq!(KOUPLELESS.node_name(&base(), "dev"), "vnode.192.0.2.2.dev");
        let labels = KOUPLELESS.labels(&base(), "dev");
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let expected = [
            ("base.koupleless.io/cluster-name", "default"),
            ("base.koupleless.io/host-name", "web-7"),
            ("base.koupleless.io/name", "TO_BE_IMPLEMENTED"),
            ("base.koupleless.io/tunnel-port", "1238"),
            ("base.koupleless.io/version", "1.0.0"),
            ("kubernetes.io/hostname", "web-7"),
            ("virtual-kubelet.koupleless.io/component", "vnode"),
            ("virtual-kubelet.koupleless.io/env", "dev"),
        ];
        assert_eq!(labels, expected);
        let taints = KOUPLELESS.taints(&base(), "dev");
        let taints: Vec<_> = taints
            .iter()
            .map(|(key, value, effect)| (&**key, &**value, &**effect))
            .collect();
        let expected = [
            ("schedule.koupleless.io/virtual-node", "True", "NoExecute"),
            ("schedule.koupleless.io/node-env", "dev", "NoExecute"),
        ];
        assert_eq!(taints, expected);
    }

    #[test]
    fn a_base_on_mqtt_has_no_port_label() {
        let mut base = base();
        base.endpoint.by = Connection::Mqtt;
        assert!(
            !KOUPLELESS
                .labels(&base, "dev")
                .contains_key("base.koupleless.io/tunnel-port")
        );
    }

    #[rstest]
    #[case(with_pod(), "virtual-node-web-shop-web-7")]
    #[case(base(), &object_name("virtual-node-TO_BE_IMPLEMENTED-192.0.2.2"))]
    #[case(Base { name: None, ..base() }, "virtual-node-192.0.2.2")]
    fn the_articles_names_of_nodes_hold_the_pods(#[case] base: Base, #[case] name: &str) {
        assert_eq!(V2_DESIGN.node_name(&base, "dev"), name);
    }

    proptest! {
        /// Whatever a base calls itself, it does not get at the Node of a machine.
        #[test]
        fn names_of_nodes_begin_as_those_of_bases_do(text in "[!-~]{1,253}") {
            let Ok(identity) = Identity::new(&text) else { return Ok(()) };
            let base = Base { identity, name: Some(text), ..base() };
            let name = KOUPLELESS.node_name(&base, "dev");
            prop_assert!(name.starts_with("vnode."), "{name}");
            let name = V2_DESIGN.node_name(&base, "dev");
            prop_assert!(name.starts_with("virtual-node"), "{name}");
        }
    }

    #[test]
    fn what_no_label_can_hold_is_cleaned_or_left_away() {
        let base = Base {
            version: Some("1.0 (beta)".to_owned()),
            cluster: Some("---".to_owned()),
            ..base()
        };
        let labels = KOUPLELESS.labels(&base, "dev");
        assert_eq!(labels["base.koupleless.io/version"], "1.0--beta");
        assert!(!labels.contains_key("base.koupleless.io/cluster-name"));
    }

    #[test]
    fn container_ids() {
        let id = |profile: &Profile| profile.container_id("192.0.2.2".parse().unwrap(), "biz1", "0.0.1", 7);
        assert_eq!(id(&KOUPLELESS), "192.0.2.2:biz1:0.0.1:7");
        assert_eq!(id(&V2_DESIGN), "192.0.2.2:biz1:0.0.1");
    }

    #[test]
    fn profiles_are_found_by_name() {
        assert_eq!(Profile::named("v2-design"), Some(&V2_DESIGN));
        assert_eq!(Profile::named("v3"), None);
    }
}
