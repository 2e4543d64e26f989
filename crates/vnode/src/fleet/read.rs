//! Pods as they come: those that cannot be read are known by their metadata.

use crate::pods::Seen;
use evenkeel_probe::core::RestartRule;
use evenkeel_probe::manifest;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// A pod of a list or a watch, without `managedFields`: a third of a pod that nobody here reads.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    meta: ObjectMeta,
    /// Or why it cannot be read.
    pod: Result<Box<(Pod, Rules)>, String>,
}

type Rules = Vec<(Arc<str>, Vec<RestartRule>)>;

impl Read {
    pub(crate) fn uid(&self) -> Option<&str> {
        self.meta().uid.as_deref()
    }

    pub(crate) fn node(&self) -> Option<&str> {
        let (pod, _) = &**self.pod.as_ref().ok()?;
        pod.spec.as_ref()?.node_name.as_deref()
    }

    /// `metadata.resourceVersion` as a number; 0 where it is none.
    pub(crate) fn version(&self) -> u64 {
        let version = self.meta().resource_version.as_deref();
        version.and_then(|version| version.parse().ok()).unwrap_or(0)
    }

    /// The pod; what it is and why, where it cannot be read.
    pub(crate) fn into_seen(self) -> Result<Seen, Box<(ObjectMeta, String)>> {
        match self.pod {
            Ok(read) => {
                let (pod, rules) = *read;
                Ok(Seen { pod, rules })
            }
            Err(why) => Err(Box::new((self.meta, why))),
        }
    }
}

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
        match Pod::deserialize(&value) {
            Ok(pod) => Ok(Self {
                meta: ObjectMeta::default(),
                pod: Ok(Box::new((pod, rules(&value)))),
            }),
            Err(why) => Ok(Self {
                meta: ObjectMeta::deserialize(value.get("metadata").unwrap_or(&Value::Null))
                    .map_err(|_| D::Error::custom(&why))?,
                pod: Err(why.to_string()),
            }),
        }
    }
}

/// `restartPolicyRules` by container.
fn rules(value: &Value) -> Rules {
    let spec = &value["spec"];
    let mut containers = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| spec.get(list)?.as_array())
        .flatten();
    if !containers.any(|container| container.get("restartPolicyRules").is_some()) {
        return Rules::new();
    }
    match manifest::pod(value) {
        Ok(pod) => {
            let with = pod
                .containers
                .iter()
                .filter(|container| !container.restart_rules.is_empty());
            with.map(|container| (container.name.clone(), container.restart_rules.clone()))
                .collect()
        }
        Err(error) => {
            let name = value["metadata"]["name"].as_str().unwrap_or_default();
            tracing::warn!(pod = name, %error, "the restart rules of a pod cannot be read, its restart policies alone hold");
            Rules::new()
        }
    }
}

impl Resource for Read {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.pod {
            Ok(read) => &read.0.metadata,
            Err(_) => &self.meta,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.pod {
            Ok(read) => &mut read.0.metadata,
            Err(_) => &mut self.meta,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Read {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    #[test]
    fn managed_fields_are_dropped_and_restart_rules_are_found() {
        let read = read(json!({
            "metadata": {"name": "p", "uid": "1", "resourceVersion": "17", "managedFields": [{"manager": "kubectl"}]},
            "spec": {"nodeName": "n", "containers": [{"name": "app", "restartPolicy": "Never", "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}]},
        }));
        assert_eq!(
            (read.uid(), read.node(), read.version()),
            (Some("1"), Some("n"), 17)
        );
        let seen = read.into_seen().unwrap();
        assert_eq!(seen.pod.metadata.managed_fields, None);
        assert_eq!((&*seen.rules[0].0, seen.rules[0].1.len()), ("app", 1));
    }

    #[test]
    fn a_pod_that_cannot_be_read_is_known_by_its_uid() {
        let read = read(json!({"metadata": {"name": "p", "uid": "1"}, "spec": {"containers": "none"}}));
        assert_eq!((read.uid(), read.node()), (Some("1"), None));
        let (meta, why) = *read.into_seen().unwrap_err();
        assert_eq!(meta.name.as_deref(), Some("p"));
        assert!(why.contains("invalid type"), "{why}");
    }
}
