//! Ownership of fields, and server-side apply.
//!
//! Every write says which fields its manager owns from then on (`metadata.managedFields`). An update owns
//! what it changed. Who applies owns what he applied: what he no longer applies, and nobody else owns, goes;
//! a value that somebody else owns is a conflict, unless he forces it.
//!
//! A caller passes objects as they are served, canonical and with their defaults; what comes out of
//! [`apply`] has to be decoded and defaulted again.

#[cfg(test)]
mod law_tests;
mod managers;
mod merge;
mod reset;
mod set;
#[cfg(test)]
mod tests;
pub(crate) mod types;
mod walk;

use crate::crd::CustomKind;
use crate::gofmt::go_quote;
use crate::gvk::{Gvk, group_version};
use crate::schema;
use crate::status::{ApiError, ApiResult};
use crate::strict::{self, FieldValidation};
use crate::time::rfc3339;
use jiff::Timestamp;
use managers::{Id, Managers, Operation, Owned, cap, decode, encode};
use merge::{merge, reconciled, remove, with_named};
use serde_json::{Value, json};
use set::{FieldSet, Step, show};
use std::collections::BTreeMap;
use types::Type;
use walk::{Difference, check, fields, is_same};

/// Owns what an object had before it was first applied to.
const BEFORE: &str = "before-first-apply";

/// The annotation in which `kubectl apply` keeps what it applied from its own side.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What nobody owns: the server keeps it, or it says which object this is.
const UNOWNED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// An object, the version that is wanted, and what comes of them.
pub type Convert<'a> = dyn Fn(&Value, &str) -> Option<(Value, Kind<'a>)> + Sync + 'a;

/// Who writes, and what.
pub struct Write<'a> {
    /// The manager (`fieldManager`).
    pub manager: &'a str,
    /// The subresource that is written, or empty.
    pub subresource: &'a str,
    /// When: it becomes the `time` of the manager's entry.
    pub now: Timestamp,
    /// The kind in the version of the request.
    pub kind: Kind<'a>,
    /// An object in another version, and its kind there; `None` where that version is served no more.
    pub convert: &'a Convert<'a>,
}

impl Write<'_> {
    /// The entry of a manager.
    fn id(&self, manager: &str, operation: Operation) -> Id {
        Id {
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            operation,
            version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => self.kind.api_version(),
            },
            subresource: self.subresource.to_owned(),
        }
    }

    /// Fields that this write does not change.
    fn reset(&self) -> FieldSet {
        FieldSet::of(match &self.kind {
            Kind::Builtin(gvk) => reset::of_builtin(gvk, self.subresource),
            Kind::Custom(kind) => reset::of_custom(kind.status, self.subresource),
        })
    }
}

/// A kind whose fields are owned.
#[derive(Clone)]
pub enum Kind<'a> {
    /// A built-in one.
    Builtin(Gvk),
    /// One of a CustomResourceDefinition.
    Custom(&'a CustomKind),
}

impl<'a> Kind<'a> {
    fn gvk(&self) -> &Gvk {
        match self {
            Kind::Builtin(gvk) => gvk,
            Kind::Custom(kind) => &kind.gvk,
        }
    }

    fn api_version(&self) -> String {
        let gvk = self.gvk();
        group_version(&gvk.group, &gvk.version)
    }

    fn ty(&self) -> Type<'a> {
        match self {
            Kind::Builtin(gvk) => schema::kind(gvk).map_or(Type::Deduced, Type::Definition),
            Kind::Custom(kind) => kind.owned_type(),
        }
    }

    /// An object of the kind in which nothing is set.
    fn empty(&self) -> Value {
        let gvk = self.gvk();
        let object = json!({"apiVersion": self.api_version(), "kind": gvk.kind});
        match self {
            Kind::Builtin(gvk) => match strict::check(gvk, object.clone(), FieldValidation::Ignore) {
                Ok(decoded) => decoded.object,
                Err(_) => object,
            },
            Kind::Custom(_) => object,
        }
    }
}

/// Notes in a new state who owns what, after any write but an apply. `live` is what was stored, where
/// something was. A new state whose `managedFields` are emptied forgets all owners.
pub fn track(write: &Write<'_>, live: Option<&Value>, new: &mut Value) {
    let stored = |live: Option<&Value>| {
        let entries = live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]);
        decode(entries).unwrap_or_default()
    };
    let sent = new["metadata"]
        .as_object_mut()
        .and_then(|metadata| metadata.remove("managedFields"))
        .unwrap_or_default();
    let managers = if write.subresource.is_empty() && is_reset(&sent) {
        Managers::new()
    } else {
        match decode(&sent) {
            Ok(managers) if write.subresource.is_empty() && !managers.is_empty() => managers,
            _ => stored(live),
        }
    };
    // Nobody is noted in an object whose owners were forgotten, until it is applied to.
    if managers.is_empty() && live.is_some() {
        return;
    }
    let live = live.map_or_else(|| write.kind.empty(), without_managers);
    if let Ok(managers) = updated(write, &live, new, managers, write.manager) {
        encode(new, &managers);
    }
}

/// Whether entries are emptied on purpose: no entry, or one without content.
fn is_reset(entries: &Value) -> bool {
    entries
        .as_array()
        .is_some_and(|entries| match entries.as_slice() {
            [] => true,
            [entry] => entry.as_object().is_some_and(serde_json::Map::is_empty),
            _ => false,
        })
}

fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// What is wrong with managers that somebody wrote, if anything is.
pub fn check_managers(object: &Value) -> Result<(), String> {
    decode(&object["metadata"]["managedFields"]).map(drop)
}

/// The owners after an update by `manager`.
fn updated(
    write: &Write<'_>,
    live: &Value,
    new: &Value,
    managers: Managers,
    manager: &str,
) -> Result<Managers, String> {
    let ty = write.kind.ty();
    check(ty, new, true)?;
    check(ty, live, true)?;
    let managers = with_present_types(write, live, managers);
    let (mut managers, difference) =
        settle(write, (live, new), managers, None, true).map_err(|_| String::new())?;
    let owned = difference.modified.union(&difference.added);
    let owned = owned
        .recursive_difference(&write.reset())
        .difference(&FieldSet::of(&UNOWNED));
    if !owned.is_empty() {
        let version = write.kind.api_version();
        let id = write.id(manager, Operation::Update);
        let before = managers
            .get(&id)
            .map(|before| before.fields.clone())
            .unwrap_or_default();
        let fields = before.union(&owned);
        let time = rfc3339(write.now);
        managers.insert(
            id,
            Owned {
                fields,
                version,
                time,
            },
        );
    }
    cap(&mut managers);
    Ok(managers)
}

/// Managers whose sets fit the types of today.
fn with_present_types(write: &Write<'_>, live: &Value, managers: Managers) -> Managers {
    let version = write.kind.api_version();
    let fit = managers.into_iter().filter_map(|(id, mut owned)| {
        // Nearly all have the version of the request, for which nothing is converted.
        let fields = if owned.version == version {
            reconciled(write.kind.ty(), &owned.fields)
        } else {
            reconciled(in_version(write, live, &owned.version)?.1.ty(), &owned.fields)
        };
        if let Some(fields) = fields {
            owned.fields = fields;
        }
        Some((id, owned))
    });
    fit.collect()
}

fn in_version<'a>(write: &Write<'a>, object: &Value, version: &str) -> Option<(Value, Kind<'a>)> {
    if object["apiVersion"] == version && write.kind.api_version() == version {
        Some((object.clone(), write.kind.clone()))
    } else {
        (write.convert)(object, version)
    }
}

/// Takes from the other managers what changed or went. Without `force`, a change of what they own is a
/// conflict.
fn settle(
    write: &Write<'_>,
    (live, new): (&Value, &Value),
    mut managers: Managers,
    writer: Option<&Id>,
    force: bool,
) -> Result<(Managers, Difference), Conflicts> {
    let version = write.kind.api_version();
    let difference = Difference::between(write.kind.ty(), live, new).without(&write.reset());
    let mut versions = BTreeMap::from([(version, difference.clone())]);
    for owned in managers.values() {
        if versions.contains_key(&owned.version) {
            continue;
        }
        let pair = in_version(write, live, &owned.version).zip(in_version(write, new, &owned.version));
        if let Some(((live, kind), (new, _))) = pair {
            versions.insert(owned.version.clone(), Difference::between(kind.ty(), &live, &new));
        }
    }
    managers.retain(|id, owned| Some(id) == writer || versions.contains_key(&owned.version));
    let mut conflicts = Vec::new();
    for (id, owned) in &mut managers {
        let Some(difference) = versions.get(&owned.version).filter(|_| Some(&*id) != writer) else {
            continue;
        };
        let taken = owned
            .fields
            .intersection(&difference.modified.union(&difference.added));
        conflicts.extend(taken.paths().into_iter().map(|path| (id.clone(), path)));
        owned.fields = owned.fields.difference(&taken).difference(&difference.removed);
    }
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    Ok((managers, difference))
}

/// Applies a configuration to an object, or to nothing. Returns the merged object with its owners, which has
/// to be decoded and defaulted.
pub fn apply(write: &Write<'_>, live: Option<&Value>, applied: &Value, force: bool) -> ApiResult<Value> {
    let gvk = write.kind.gvk();
    let found = shown_type(applied);
    if text(applied, "apiVersion") != write.kind.api_version() || text(applied, "kind") != gvk.kind {
        return Err(ApiError::bad_request(format!("invalid object type: {found}")));
    }
    if applied["metadata"]
        .get("managedFields")
        .is_some_and(|entries| !entries.is_null())
    {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let entries = live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]);
    let mut managers = decode(entries)
        .map_err(|error| ApiError::unforeseen(format!("failed to decode managed fields: {error}")))?;
    let object = live.map_or_else(|| write.kind.empty(), without_managers);
    if managers.is_empty() && live.is_some() {
        check(write.kind.ty(), &object, true).map_err(|error| {
            ApiError::unforeseen(format!(
                "failed to create manager for existing fields: failed to convert new object ({}) to smd typed: {error}",
                shown(&object)
            ))
        })?;
        managers = updated(write, &write.kind.empty(), &object, managers, BEFORE).unwrap_or_default();
    }
    let ty = write.kind.ty();
    check(ty, applied, false).map_err(|error| {
        ApiError::unforeseen(format!(
            "failed to create typed patch object ({}): {error}",
            shown(applied)
        ))
    })?;
    check(ty, &object, true).map_err(|error| {
        ApiError::unforeseen(format!(
            "failed to create typed live object ({}): {error}",
            shown(&object)
        ))
    })?;
    let mut merged = match merged(write, &object, applied, &managers, force) {
        // What `kubectl apply` wrote before, and nobody changed since, is taken over without asking.
        Err(Refused::Conflicts(conflicts)) if write.manager == "kubectl" => {
            match left(ty, &object, conflicts) {
                conflicts if conflicts.is_empty() => merged(write, &object, applied, &managers, true),
                conflicts => Err(Refused::Conflicts(conflicts)),
            }
        }
        other => other,
    }
    .map_err(|refused| match refused {
        Refused::Conflicts(conflicts) => conflict(&conflicts),
        Refused::Other(text) => ApiError::unforeseen(text),
    })?;
    let annotation = &merged["metadata"]["annotations"][LAST_APPLIED];
    if write.manager == "kubectl" && annotation.as_str().is_some_and(|text| !text.is_empty()) {
        merged["metadata"]["annotations"][LAST_APPLIED] = json!(last_applied(applied));
    }
    Ok(merged)
}

fn text<'v>(object: &'v Value, name: &str) -> &'v str {
    object[name].as_str().unwrap_or_default()
}

/// `group/version, Kind=kind`, as Go prints it.
pub fn shown_type(object: &Value) -> String {
    let version = text(object, "apiVersion");
    let version = if version.contains('/') {
        version.to_owned()
    } else {
        format!("/{version}")
    };
    format!("{version}, Kind={}", text(object, "kind"))
}

/// Namespace, name and type, as upstream's texts name an object.
pub fn shown(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!(
        "{}/{}; {}",
        text(metadata, "namespace"),
        text(metadata, "name"),
        shown_type(object)
    )
}

/// Fields that others own, with their owners.
type Conflicts = Vec<(Id, Vec<Step>)>;

enum Refused {
    Conflicts(Conflicts),
    Other(String),
}

fn merged(
    write: &Write<'_>,
    live: &Value,
    applied: &Value,
    managers: &Managers,
    force: bool,
) -> Result<Value, Refused> {
    let ty = write.kind.ty();
    let mut managers = with_present_types(write, live, managers.clone());
    let new = merge(ty, Some(live), Some(applied))
        .map_err(|error| Refused::Other(format!("failed to merge config: {error}")))?
        .unwrap_or_else(|| json!({}));
    let id = write.id(write.manager, Operation::Apply);
    let version = write.kind.api_version();
    let owned = fields(ty, applied).recursive_difference(&write.reset());
    let last = managers.insert(
        id.clone(),
        Owned {
            fields: owned,
            version,
            time: managers
                .get(&id)
                .map(|last| last.time.clone())
                .unwrap_or_default(),
        },
    );
    let mut new = match last {
        Some(last) if !last.fields.is_empty() => pruned(write, new, &managers, &last),
        _ => new,
    };
    let (mut managers, _) =
        settle(write, (live, &new), managers, Some(&id), force).map_err(Refused::Conflicts)?;
    let changed = !is_same(live, &new);
    if let Some(owned) = managers.get_mut(&id) {
        owned.fields = owned.fields.difference(&FieldSet::of(&UNOWNED));
        if changed {
            owned.time = rfc3339(write.now);
        }
    }
    managers.retain(|_, owned| !owned.fields.is_empty());
    encode(&mut new, &managers);
    Ok(new)
}

/// Without what the manager applied before, applies no more, and nobody else owns.
fn pruned(write: &Write<'_>, merged: Value, managers: &Managers, last: &Owned) -> Value {
    let Some((before, kind)) = in_version(write, &merged, &last.version) else {
        return merged;
    };
    let ty = kind.ty();
    let gone = |value: &Value, fields: &FieldSet, ty| remove(ty, value, fields).unwrap_or_else(|| json!({}));
    let mut left = gone(&before, &with_named(ty, &last.fields), ty);
    let mut all = before.clone();
    let mut by_version: BTreeMap<&str, FieldSet> = BTreeMap::new();
    for owned in managers.values() {
        let of_version = by_version.entry(&owned.version).or_default();
        *of_version = of_version.union(&owned.fields);
    }
    // The version of the last apply comes first: other versions may need what it owns to be converted.
    let own = by_version.remove_entry(last.version.as_str());
    for (version, owned) in own.into_iter().chain(by_version) {
        let pair = in_version(write, &all, version).zip(in_version(write, &left, version));
        let Some(((whole, kind), (less, _))) = pair else {
            continue;
        };
        let ty = kind.ty();
        let named = |value: &Value| with_named(ty, &fields(ty, value));
        let keep = named(&less).union(&with_named(ty, &owned));
        left = gone(&whole, &named(&whole).difference(&keep), ty);
        all = whole;
    }
    // What this manager did not own before stays, though nobody owns it.
    let Some((left, _)) = in_version(write, &left, &last.version) else {
        return merged;
    };
    let named = |value: &Value| with_named(ty, &fields(ty, value));
    let went = named(&before)
        .difference(&named(&left))
        .intersection(&with_named(ty, &last.fields));
    let left = gone(&before, &went, ty);
    in_version(write, &left, &write.kind.api_version()).map_or(merged, |(left, _)| left)
}

/// The conflicts about what differs from what `kubectl apply` wrote last from its own side.
fn left(ty: Type<'_>, live: &Value, conflicts: Conflicts) -> Conflicts {
    let last = &live["metadata"]["annotations"][LAST_APPLIED];
    let last = last
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(last) =
        last.filter(|last| last["apiVersion"] == live["apiVersion"] && check(ty, last, false).is_ok())
    else {
        return conflicts;
    };
    let difference = Difference::between(ty, &last, live);
    let mut allowed = fields(ty, &last);
    for changed in [&difference.modified, &difference.added, &difference.removed] {
        allowed = allowed.difference(changed);
    }
    let allowed = allowed.paths();
    conflicts
        .into_iter()
        .filter(|(_, path)| !allowed.contains(path))
        .collect()
}

/// The configuration as `kubectl apply` keeps it.
fn last_applied(applied: &Value) -> String {
    let mut applied = applied.clone();
    if let Some(annotations) = applied["metadata"]["annotations"].as_object_mut() {
        annotations.remove(LAST_APPLIED);
    }
    format!("{applied}\n")
}

/// 409 for conflicts, as upstream words it.
fn conflict(conflicts: &[(Id, Vec<Step>)]) -> ApiError {
    let shown = |id: &Id| {
        let of_part = match id.subresource.as_str() {
            "" => String::new(),
            part => format!(" with subresource {}", go_quote(part)),
        };
        let version = match id.operation {
            Operation::Apply => String::new(),
            Operation::Update => format!(" using {}", id.version),
        };
        format!("{}{of_part}{version}", go_quote(&id.manager))
    };
    let message = if let [(id, path)] = conflicts {
        format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            shown(id),
            show(path)
        )
    } else {
        let mut by_manager: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, path) in conflicts {
            by_manager
                .entry(shown(id))
                .or_default()
                .push(format!("\n- {}", show(path)));
        }
        let lines: Vec<String> = by_manager
            .iter()
            .map(|(manager, paths)| format!("conflicts with {manager}:{}", paths.concat()))
            .collect();
        format!(
            "Apply failed with {} conflicts: {}",
            conflicts.len(),
            lines.join("\n")
        )
    };
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(id, path)| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", shown(id)),
                "field": show(path),
            })
        })
        .collect();
    let mut error = ApiError::new(409, "Conflict", message);
    error.details = json!({"causes": causes});
    error
}
