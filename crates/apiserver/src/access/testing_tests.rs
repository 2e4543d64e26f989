//! A store and requests for the tests of this module.

use crate::request::{Attributes, Operation, Reader, UserInfo};
use evenkeel_kube_rules::gvk::{Gvk, Gvr};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Key = (String, String, String, String);

/// Objects in memory, one generation for all of them.
#[derive(Default)]
pub(crate) struct Objects(Mutex<(u64, BTreeMap<Key, Arc<Value>>)>);

impl Objects {
    /// Objects given as (group, resource, object).
    pub(crate) fn with(objects: impl IntoIterator<Item = (&'static str, &'static str, Value)>) -> Self {
        let store = Self::default();
        for (group, resource, object) in objects {
            store.put(group, resource, object);
        }
        store
    }

    pub(crate) fn put(&self, group: &str, resource: &str, object: Value) {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        let key = (
            group.to_owned(),
            resource.to_owned(),
            text("namespace"),
            text("name"),
        );
        let mut inner = self.0.lock().unwrap();
        inner.0 += 1;
        inner.1.insert(key, Arc::new(object));
    }

    pub(crate) fn remove(&self, group: &str, resource: &str, namespace: &str, name: &str) {
        let key = (
            group.to_owned(),
            resource.to_owned(),
            namespace.to_owned(),
            name.to_owned(),
        );
        let mut inner = self.0.lock().unwrap();
        inner.0 += 1;
        inner.1.remove(&key).expect("the test removes what it made");
    }
}

impl Reader for Objects {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = (
            group.to_owned(),
            resource.to_owned(),
            namespace.to_owned(),
            name.to_owned(),
        );
        self.0.lock().unwrap().1.get(&key).cloned()
    }

    fn list(&self, group: &str, resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.0
            .lock()
            .unwrap()
            .1
            .iter()
            .filter(|((g, r, n, _), _)| {
                g == group && r == resource && namespace.is_none_or(|wanted| wanted == n)
            })
            .map(|(_, object)| object.clone())
            .collect()
    }

    fn generation(&self, _group: &str, _resource: &str) -> u64 {
        self.0.lock().unwrap().0
    }
}

/// A request of jane to create a ConfigMap.
pub(crate) fn create(object: Value) -> Attributes {
    Attributes {
        operation: Operation::Create,
        gvk: Gvk {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
        },
        gvr: Gvr {
            group: String::new(),
            version: "v1".to_owned(),
            resource: "configmaps".to_owned(),
        },
        subresource: String::new(),
        namespace: "ns".to_owned(),
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        user: UserInfo {
            name: "jane".to_owned(),
            groups: vec!["devs".to_owned()],
            ..UserInfo::default()
        },
        object: Some(object),
        old_object: None,
        options: json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        dry_run: false,
    }
}

/// A ConfigMap in namespace `ns`.
pub(crate) fn config_map(labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns", "labels": labels}})
}
