//! The objects that bindings name as the parameters of a policy.

use crate::kinds::convert::to_served;
use crate::kinds::{Resource, Snapshot};
use crate::request::Reader;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::selector::LabelSelector;
use serde_json::Value;
use std::sync::Arc;

/// `paramKind` of a policy.
pub(super) struct ParamKind(Gvk);

impl ParamKind {
    /// `None` for a policy without parameters.
    pub(super) fn new(kind: &Value) -> Option<Self> {
        let text = |key: &str| kind[key].as_str().unwrap_or_default();
        kind.is_object()
            .then(|| Self(Gvk::of(text("apiVersion"), text("kind"))))
    }

    /// The resource of that kind, or why there is none.
    pub(super) fn resource(&self, kinds: &Snapshot) -> Result<Arc<Resource>, String> {
        let Gvk { group, version, kind } = &self.0;
        let known = kinds.by_gvk(&self.0).cloned();
        known.ok_or_else(|| {
            format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
        })
    }
}

/// `paramRef` of a binding.
pub(super) struct ParamRef {
    namespace: String,
    name: String,
    /// `Err`: it cannot be read.
    selector: Result<LabelSelector, String>,
    /// Whether a request is refused where there is no such object.
    needed: bool,
}

impl ParamRef {
    /// `None` for a binding without parameters.
    pub(super) fn new(reference: &Value) -> Option<Self> {
        let text = |key: &str| reference[key].as_str().unwrap_or_default().to_owned();
        reference.is_object().then(|| Self {
            namespace: text("namespace"),
            name: text("name"),
            selector: match &reference["selector"] {
                Value::Null => Ok(LabelSelector::default()),
                selector => LabelSelector::from_object(selector),
            },
            needed: reference["parameterNotFoundAction"] == "Deny",
        })
    }

    /// The objects by namespace and name, as they are served; with none of them the policy has nothing to
    /// say. `namespace` is that of the request.
    pub(super) fn find(
        &self,
        resource: &Resource,
        namespace: &str,
        reader: &dyn Reader,
    ) -> Result<Vec<Arc<Value>>, String> {
        let namespace = match (resource.namespaced, self.namespace.as_str()) {
            (true, "") if namespace.is_empty() => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                        .to_owned(),
                );
            }
            (true, "") => namespace,
            (true, named) => named,
            (false, "") => "",
            (false, _) => {
                return Err(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned(),
                );
            }
        };
        let (group, plural) = (resource.stored_group.as_str(), resource.gvr.resource.as_str());
        let stored: Vec<Arc<Value>> = if self.name.is_empty() {
            let selector = self.selector.as_ref().map_err(Clone::clone)?;
            let within = resource.namespaced.then_some(namespace);
            let mut all = reader.list(group, plural, within);
            all.retain(|object| selector.matches_object(object));
            all
        } else {
            let one = reader.get(group, plural, namespace, &self.name);
            one.into_iter().collect()
        };
        if stored.is_empty() && self.needed {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
        }
        Ok(stored.iter().map(|object| to_served(resource, object)).collect())
    }
}
