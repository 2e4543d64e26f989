//! The rules of one kind, built-in or custom, behind one face.

use crate::kinds::Resource;
use crate::request::body::Syntax;
use evenkeel_kube_rules::crd::{CustomKind, ScalePaths};
use evenkeel_kube_rules::gvk::{Gvk, group_version};
use evenkeel_kube_rules::selector::FieldSelector;
use evenkeel_kube_rules::status::{ApiError, ApiResult, FieldError};
use evenkeel_kube_rules::strict::{Decoded, FieldValidation};
use evenkeel_kube_rules::table::{Column, Row};
use evenkeel_kube_rules::validate::PodPart;
use evenkeel_kube_rules::{defaults, strategy, strict, table, validate};
use jiff::Timestamp;
use serde_json::Value;
use std::borrow::Cow;

/// The rules of one kind.
pub(crate) enum Rules<'a> {
    /// A built-in kind, whose rules are found by its name.
    Builtin {
        /// As clients send and receive it.
        served: Gvk,
        /// As it is stored, prepared and validated.
        stored: Gvk,
    },
    /// A custom kind, whose rules come from its definition.
    Custom(&'a CustomKind),
}

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but status.
    Main,
    /// The status alone.
    Status,
    /// Ephemeral containers of a pod.
    EphemeralContainers,
    /// Resources of a pod's containers.
    Resize,
    /// Conditions of a certificate signing request.
    Approval,
}

impl<'a> Rules<'a> {
    /// The rules of a resource.
    pub(crate) fn of(resource: &'a Resource) -> ApiResult<Self> {
        Ok(match &resource.custom {
            None => Self::Builtin {
                served: resource.gvk(),
                stored: resource.stored_gvk(),
            },
            Some(custom) => Self::Custom(custom.kind().map_err(ApiError::internal)?),
        })
    }

    /// The kind as clients send and receive it.
    pub(crate) fn served(&self) -> &Gvk {
        match self {
            Self::Builtin { served, .. } => served,
            Self::Custom(kind) => &kind.gvk,
        }
    }

    pub(crate) fn decode(&self, body: &[u8], syntax: Syntax, mode: FieldValidation) -> ApiResult<Decoded> {
        match (self, syntax) {
            (Self::Builtin { served, .. }, Syntax::Json) => strict::decode(served, body, mode),
            (Self::Builtin { served, .. }, Syntax::Yaml) => strict::decode_yaml(served, body, mode),
            (Self::Builtin { served, .. }, Syntax::Protobuf) => strict::decode_protobuf(served, body),
            (Self::Custom(kind), Syntax::Json) => kind.decode(body, mode),
            (Self::Custom(kind), Syntax::Yaml) => kind.decode_yaml(body, mode),
            (Self::Custom(kind), Syntax::Protobuf) => Err(kind.refuse_protobuf()),
        }
    }

    pub(crate) fn check(&self, object: Value, mode: FieldValidation) -> Result<Decoded, String> {
        match self {
            Self::Builtin { served, .. } => strict::check(served, object, mode),
            Self::Custom(kind) => kind.check(object, mode),
        }
    }

    /// The same for what came out of a strategic merge patch or an apply.
    pub(crate) fn check_map(&self, object: Value, mode: FieldValidation) -> Result<Decoded, String> {
        match self {
            Self::Builtin { served, .. } => strict::check_map(served, object, mode),
            Self::Custom(kind) => kind.check(object, mode),
        }
    }

    pub(crate) fn apply_defaults(&self, object: &mut Value) {
        match self {
            Self::Builtin { served, .. } => defaults::apply(served, object),
            Self::Custom(kind) => {
                kind.forget_nulls(object);
                kind.apply_defaults(object);
            }
        }
    }

    /// The same for what came out of server-side apply, in which a null is a value.
    pub(crate) fn apply_defaults_to_applied(&self, object: &mut Value) {
        match self {
            Self::Builtin { served, .. } => defaults::apply(served, object),
            Self::Custom(kind) => kind.apply_defaults(object),
        }
    }

    pub(crate) fn prepare_create(&self, object: &mut Value) {
        match self {
            Self::Builtin { stored, .. } => strategy::prepare_create(stored, object),
            Self::Custom(kind) => kind.prepare_create(object),
        }
    }

    pub(crate) fn prepare_update(&self, part: Part, old: &Value, new: &mut Value) {
        match (self, part) {
            (Self::Builtin { stored, .. }, Part::Main) => strategy::prepare_update(stored, old, new),
            (Self::Builtin { stored, .. }, Part::Status) => strategy::prepare_status_update(stored, old, new),
            (Self::Custom(kind), Part::Status) => kind.prepare_status_update(old, new),
            (Self::Custom(kind), _) => kind.prepare_update(old, new),
            (Self::Builtin { .. }, Part::EphemeralContainers | Part::Resize | Part::Approval) => {
                *new = graft(part, old, new);
            }
        }
    }

    /// What of an object is looked at before it is given what the cluster has to give.
    pub(crate) fn validate_allocation(&self, old: Option<&Value>, object: &Value) -> Vec<FieldError> {
        match self {
            Self::Builtin { stored, .. } => validate::allocation(stored, old, object),
            Self::Custom(_) => Vec::new(),
        }
    }

    pub(crate) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        match self {
            Self::Builtin { served, stored } => {
                let mut errors = validate::create(stored, object);
                errors.extend(validate::through(served, None, object));
                errors
            }
            Self::Custom(kind) => kind.validate_create(&as_served(kind, object)),
        }
    }

    pub(crate) fn validate_update(&self, part: Part, old: &Value, new: &Value) -> Vec<FieldError> {
        match (self, part) {
            (Self::Builtin { served, stored }, Part::Main) => {
                let mut errors = validate::update(stored, old, new);
                errors.extend(validate::through(served, Some(old), new));
                errors
            }
            (Self::Custom(kind), Part::Status) => {
                kind.validate_status_update(&as_served(kind, old), &as_served(kind, new))
            }
            (Self::Custom(kind), _) => kind.validate_update(&as_served(kind, old), &as_served(kind, new)),
            (Self::Builtin { stored, .. }, Part::Approval) => validate::approval_update(stored, old, new),
            (Self::Builtin { stored, .. }, Part::Status) => validate::status_update(stored, old, new),
            (Self::Builtin { stored, .. }, Part::EphemeralContainers) => {
                validate::pod_update(stored, PodPart::EphemeralContainers, old, new)
            }
            (Self::Builtin { stored, .. }, Part::Resize) => {
                validate::pod_update(stored, PodPart::Resize, old, new)
            }
        }
    }

    /// Warnings of a new object before [`Rules::prepare_create`].
    pub(crate) fn early_warnings(&self, object: &Value) -> Vec<String> {
        match self {
            Self::Builtin { stored, .. } => validate::early_warnings(stored, object),
            Self::Custom(_) => Vec::new(),
        }
    }

    /// Warnings of a new object that is valid.
    pub(crate) fn create_warnings(&self, object: &Value) -> Vec<String> {
        match self {
            Self::Builtin { stored, .. } => validate::create_warnings(stored, object),
            Self::Custom(_) => validate::custom_warnings(None, object),
        }
    }

    /// Warnings of an update that is valid.
    pub(crate) fn update_warnings(&self, part: Part, old: &Value, new: &Value) -> Vec<String> {
        match (self, part) {
            (Self::Builtin { stored, .. }, Part::Main) => validate::update_warnings(stored, old, new),
            (Self::Builtin { stored, .. }, Part::Status) => validate::status_warnings(stored, new),
            (Self::Custom(_), Part::Main) => validate::custom_warnings(Some(old), new),
            _ => Vec::new(),
        }
    }

    pub(crate) fn columns(&self) -> Vec<Column> {
        match self {
            Self::Builtin { served, .. } => table::columns(served),
            Self::Custom(kind) => kind.columns(),
        }
    }

    pub(crate) fn row(&self, object: &Value, now: Timestamp) -> Row {
        match self {
            Self::Builtin { served, .. } => table::row(served, object, now),
            Self::Custom(kind) => kind.row(object, now),
        }
    }

    pub(crate) fn check_fields(&self, selector: &FieldSelector, namespaced: bool) -> ApiResult<()> {
        match self {
            Self::Builtin { served, .. } => selector.check(served),
            Self::Custom(kind) => selector.check_custom(&kind.selectable_fields, namespaced),
        }
    }

    /// Where `/scale` reads and writes.
    pub(crate) fn scale(&self) -> ScalePaths {
        if let Self::Custom(kind) = self
            && let Some(paths) = &kind.scale
        {
            return paths.clone();
        }
        ScalePaths {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: None,
        }
    }
}

/// A custom resource in the version by whose schema it is validated, which may not be the stored one: the two
/// differ in their apiVersion alone.
fn as_served<'a>(kind: &CustomKind, object: &'a Value) -> Cow<'a, Value> {
    let version = group_version(&kind.gvk.group, &kind.gvk.version);
    if object["apiVersion"] == *version {
        return Cow::Borrowed(object);
    }
    let mut served = object.clone();
    served["apiVersion"] = version.into();
    Cow::Owned(served)
}

/// The old object with the one part that a subresource may change taken from the new one.
fn graft(part: Part, old: &Value, new: &Value) -> Value {
    let mut result = old.clone();
    // A resourceVersion that the client sent stays in force.
    result["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"].clone();
    result["metadata"]["managedFields"] = new["metadata"]["managedFields"].clone();
    match part {
        Part::EphemeralContainers => {
            result["spec"]["ephemeralContainers"] = new["spec"]["ephemeralContainers"].clone();
        }
        Part::Resize => resized(&mut result, old, new),
        Part::Approval => result["status"]["conditions"] = new["status"]["conditions"].clone(),
        Part::Main | Part::Status => {}
    }
    remove_nulls(&mut result);
    if result["spec"] != old["spec"]
        && let Some(generation) = old["metadata"]["generation"].as_i64()
    {
        result["metadata"]["generation"] = (generation + 1).into();
    }
    result
}

/// Resources and resize policies of the pod and of its containers. Where the containers are others, all of
/// the new spec stays, so that it is refused for that.
fn resized(result: &mut Value, old: &Value, new: &Value) {
    const LISTS: [&str; 2] = ["containers", "initContainers"];
    let names = |object: &Value, list: &str| -> Vec<Value> {
        let containers = object["spec"][list].as_array().into_iter().flatten();
        containers.map(|container| container["name"].clone()).collect()
    };
    if LISTS
        .iter()
        .any(|list| names(old, list).len() != names(new, list).len())
    {
        result["spec"] = new["spec"].clone();
        return;
    }
    result["spec"]["resources"] = new["spec"]["resources"].clone();
    for list in LISTS {
        if names(old, list) != names(new, list) {
            result["spec"][list] = new["spec"][list].clone();
            continue;
        }
        let containers = result["spec"].get_mut(list).and_then(Value::as_array_mut);
        for (index, container) in containers.into_iter().flatten().enumerate() {
            for name in ["resources", "resizePolicy"] {
                match (new["spec"][list][index].get(name), container.as_object_mut()) {
                    (Some(value), Some(members)) => drop(members.insert(name.to_owned(), value.clone())),
                    (None, Some(members)) => drop(members.remove(name)),
                    (_, None) => {}
                }
            }
        }
    }
}

fn remove_nulls(object: &mut Value) {
    for part in ["metadata", "spec", "status"] {
        if let Some(map) = object.get_mut(part).and_then(Value::as_object_mut) {
            map.retain(|_, value| !value.is_null());
        }
    }
}
