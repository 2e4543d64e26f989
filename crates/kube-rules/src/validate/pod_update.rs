//! What may change in a pod, through the pod itself and its subresources.

use super::affinity::REQUIRED;
use super::checks::{count, integer, members};
use super::errors::{Errors, has, items, text};
use super::{affinity, container, pod_security};
use crate::strategy::qos_class;
use serde_json::{Value, json};

const MAY_CHANGE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Through the pod itself.
pub(super) fn update(old: &Value, new: &Value, errors: &mut Errors) {
    metadata(old, new, errors);
    let (old, new) = (&old["spec"], &new["spec"]);
    for list in ["containers", "initContainers"] {
        if count(old, list) != count(new, list) {
            let why = "pod updates may not add or remove containers";
            errors.forbidden(&format!("spec.{list}"), why);
            return;
        }
        for (index, container) in items(new, list) {
            let path = format!("spec.{list}[{index}]");
            errors.need(container, &path, &["image"]);
            container::image(container, &path, errors);
        }
    }
    if !deadline(old, new, errors) {
        return;
    }
    tolerations(old, new, errors);
    let gates = |spec: &Value| -> Vec<Value> {
        items(spec, "schedulingGates")
            .map(|(_, one)| one.clone())
            .collect()
    };
    let (old_gates, new_gates) = (gates(old), gates(new));
    for (index, gate) in new_gates
        .iter()
        .enumerate()
        .filter(|(_, gate)| !old_gates.contains(gate))
    {
        let why = format!(
            "only deletion is allowed, but found new scheduling gate '{}'",
            text(gate, "name")
        );
        errors.forbidden(&format!("spec.schedulingGates[{index}].name"), &why);
    }
    if old == new {
        return;
    }
    // Everything that may change is made equal; what still differs may not.
    let mut comparable = new.clone();
    for list in ["containers", "initContainers"] {
        for (index, container) in items(old, list) {
            copy(container, &mut comparable[list][index], "image");
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy(old, &mut comparable, name);
    }
    let grace = "terminationGracePeriodSeconds";
    if integer(&old[grace]) < 0 && new[grace] == json!(1) {
        copy(old, &mut comparable, grace);
    }
    if !old_gates.is_empty() {
        placement(old, new, &mut comparable, errors);
    }
    if comparable != *old {
        let names = old
            .as_object()
            .into_iter()
            .chain(comparable.as_object())
            .flatten();
        let mut changed: Vec<String> = names
            .filter(|(name, _)| old.get(*name) != comparable.get(*name))
            .map(|(name, _)| format!("spec.{name}"))
            .collect();
        changed.sort();
        changed.dedup();
        errors.forbidden("spec", &format!("{MAY_CHANGE}\nchanged: {}", changed.join(", ")));
    }
}

fn metadata(old: &Value, new: &Value, errors: &mut Errors) {
    pod_security::annotations_stay(&old["metadata"], &new["metadata"], errors);
    pod_security::annotations(&new["metadata"], &new["spec"], "metadata.annotations", errors);
}

/// Whether anything else is looked at.
fn deadline(old: &Value, new: &Value, errors: &mut Errors) -> bool {
    let path = "spec.activeDeadlineSeconds";
    let (before, after) = (&old["activeDeadlineSeconds"], &new["activeDeadlineSeconds"]);
    let Some(seconds) = after.as_i64() else {
        if !before.is_null() {
            errors.invalid(
                path,
                &Value::Null,
                "must not update from a positive integer to nil value",
            );
        }
        return true;
    };
    if !(0..=i64::from(i32::MAX)).contains(&seconds) {
        errors.invalid(path, after, "must be between 0 and 2147483647, inclusive");
        return false;
    }
    if before.as_i64().is_some_and(|before| before < seconds) {
        errors.invalid(path, after, "must be less than or equal to previous value");
        return false;
    }
    true
}

/// Tolerations are only added, or have their time changed.
fn tolerations(old: &Value, new: &Value, errors: &mut Errors) {
    let plain = |toleration: &Value| {
        let mut plain = toleration.clone();
        plain["tolerationSeconds"] = Value::Null;
        plain
    };
    let kept = items(old, "tolerations")
        .all(|(_, one)| items(new, "tolerations").any(|(_, other)| plain(other) == plain(one)));
    let path = "spec.tolerations";
    if kept {
        affinity::tolerations(&new["tolerations"], path, errors);
    } else {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(path, why);
    }
}

/// A pod that is not scheduled yet may be told more about where to run.
fn placement(old: &Value, new: &Value, comparable: &mut Value, errors: &mut Errors) {
    let kept = members(&old["nodeSelector"]).all(|(key, value)| new["nodeSelector"].get(key) == Some(value));
    if !kept {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid("spec.nodeSelector", &new["nodeSelector"], why);
    }
    copy(old, comparable, "nodeSelector");
    let (before, after) = (&old["affinity"]["nodeAffinity"], &new["affinity"]["nodeAffinity"]);
    if before == after {
        return;
    }
    let path = format!("spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    let (old_terms, new_terms) = (&before[REQUIRED], &after[REQUIRED]);
    let (had, has_now) = (
        count(old_terms, "nodeSelectorTerms"),
        count(new_terms, "nodeSelectorTerms"),
    );
    if had > 0 && had != has_now {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid(&path, &new_terms["nodeSelectorTerms"], why);
    } else {
        for (index, term) in items(old_terms, "nodeSelectorTerms") {
            let new_term = &new_terms["nodeSelectorTerms"][index];
            if !only_added(term, new_term) {
                let why = "only additions are allowed (no mutations or deletions)";
                errors.invalid(&format!("{path}[{index}]"), new_term, why);
            }
        }
    }
    let had_affinity = has(old, "affinity");
    match comparable["affinity"].as_object_mut() {
        Some(affinity) if !had_affinity && affinity.keys().all(|name| name == "nodeAffinity") => {
            copy(old, comparable, "affinity");
        }
        Some(affinity) if before.is_null() => drop(affinity.remove("nodeAffinity")),
        Some(affinity) => drop(affinity.insert("nodeAffinity".to_owned(), before.clone())),
        None if !before.is_null() => comparable["affinity"] = json!({"nodeAffinity": before}),
        None => copy(old, comparable, "affinity"),
    }
}

fn only_added(old: &Value, new: &Value) -> bool {
    const LISTS: [&str; 2] = ["matchExpressions", "matchFields"];
    if LISTS.iter().all(|list| count(old, list) == 0) {
        return LISTS.iter().all(|list| count(new, list) == 0);
    }
    LISTS.iter().all(|list| {
        count(new, list) >= count(old, list)
            && items(old, list)
                .zip(items(new, list))
                .all(|((_, before), (_, after))| before == after)
    })
}

/// Sets a member as it is in `from`, absent if it is absent.
fn copy(from: &Value, to: &mut Value, name: &str) {
    match (from.get(name), to.as_object_mut()) {
        (Some(value), Some(members)) => drop(members.insert(name.to_owned(), value.clone())),
        (None, Some(members)) => drop(members.remove(name)),
        _ => {}
    }
}

/// Through `/ephemeralcontainers`.
pub(super) fn ephemeral_containers(old: &Value, new: &Value, errors: &mut Errors) {
    metadata(old, new, errors);
    if pod_security::is_mirror(&old["metadata"]) {
        errors.list.clear();
        errors.forbidden("[]", "static pods do not support ephemeral containers");
        return;
    }
    const LIST: &str = "ephemeralContainers";
    for (_, before) in items(&old["spec"], LIST) {
        let name = text(before, "name");
        let after = items(&new["spec"], LIST)
            .filter(|(_, other)| text(other, "name") == name)
            .last();
        let what = match after {
            None => "removed",
            Some((_, after)) if after != before => "changed",
            Some(_) => continue,
        };
        let why = format!("existing ephemeral containers {name:?} may not be {what}\n");
        errors.forbidden("spec.ephemeralContainers", &why);
    }
}

/// Through `/resize`.
pub(super) fn resize(old: &Value, new: &Value, errors: &mut Errors) {
    let refuses = [
        (pod_security::is_mirror(&old["metadata"]), "static"),
        (text(&old["spec"]["os"], "name") == "windows", "windows"),
    ];
    if let Some((_, what)) = refuses.into_iter().find(|(refuses, _)| *refuses) {
        errors.list.clear();
        errors.forbidden("[]", &format!("{what} pods cannot be resized"));
        return;
    }
    if text(&old["status"], "qosClass") != qos_class(&new["spec"]) {
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.bad("spec", text(&new["status"], "qosClass"), why);
    }
    let running =
        items(&old["status"], "containerStatuses").find(|(_, status)| has(&status["state"], "running"));
    if running.is_some_and(|(_, status)| !has(status, "resources")) {
        errors.forbidden("spec", "Pod running on node without support for resize");
    }
    let (before, after) = (&old["spec"], &new["spec"]);
    let mut comparable = after.clone();
    pod_level(before, after, &mut comparable, errors);
    if !same_containers(before, after, errors) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (index, container) in items(before, list) {
            let path = format!("spec.{list}[{index}].resources");
            not_removed(
                &container["resources"],
                &after[list][index]["resources"],
                &path,
                "resource",
                errors,
            );
        }
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in items(before, list) {
            let changed = comparable[list][index] != *container;
            keep_compute(&container["resources"], &mut comparable[list][index]["resources"]);
            let is_same = comparable[list][index] == *container;
            if list == "containers" {
                if !is_same {
                    errors.forbidden("spec", "only cpu and memory resources are mutable");
                }
                continue;
            }
            let path = format!("spec.initContainers[{index}]");
            if !is_same {
                let why = "only cpu and memory resources for init or sidecar containers are mutable";
                errors.forbidden(&path, why);
            }
            if changed && text(container, "restartPolicy") != "Always" {
                let policies = items(&after[list][index], "resizePolicy");
                for _ in policies.filter(|(_, policy)| text(policy, "restartPolicy") == "RestartContainer") {
                    let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                    errors.forbidden(&path, why);
                }
            }
        }
    }
    if errors.list.is_empty() && comparable != *before {
        errors.forbidden("spec", "only cpu and memory resources are mutable");
    }
}

fn pod_level(old: &Value, new: &Value, comparable: &mut Value, errors: &mut Errors) {
    let is_set = |spec: &Value| {
        ["requests", "limits"]
            .iter()
            .any(|list| members(&spec["resources"][*list]).next().is_some())
    };
    if !is_set(old) && !is_set(new) {
        return;
    }
    if has(old, "resources") {
        if !has(new, "resources") {
            errors.forbidden("spec.resources", "pod-level resources cannot be removed");
            return;
        }
        not_removed(
            &old["resources"],
            &new["resources"],
            "spec.resources",
            "pod-level resource",
            errors,
        );
    }
    keep_compute(&old["resources"], &mut comparable["resources"]);
    if !has(old, "resources") && comparable["resources"] == json!({}) {
        copy(old, comparable, "resources");
    }
    if comparable["resources"] != old["resources"] {
        errors.forbidden("spec", "only cpu and memory resources are mutable at pod-level");
    }
}

fn same_containers(old: &Value, new: &Value, errors: &mut Errors) -> bool {
    let before = errors.list.len();
    for list in ["containers", "initContainers"] {
        if count(old, list) != count(new, list) {
            let why = format!("{list} may not be added or removed on resize");
            errors.forbidden(&format!("spec.{list}"), &why);
            continue;
        }
        for (index, container) in items(old, list) {
            if new[list][index]["name"] != container["name"] {
                let why = format!("{list} may not be renamed or reordered on resize");
                errors.forbidden(&format!("spec.{list}[{index}].name"), &why);
            }
        }
    }
    errors.list.len() == before
}

fn not_removed(old: &Value, new: &Value, path: &str, what: &str, errors: &mut Errors) {
    for list in ["requests", "limits"] {
        if members(&old[list]).any(|(name, _)| new[list].get(name).is_none()) {
            errors.forbidden(
                &format!("{path}.{list}"),
                &format!("{what} {list} cannot be removed"),
            );
        }
    }
}

/// CPU and memory as they were; a list that is empty with and without them is none.
fn keep_compute(old: &Value, new: &mut Value) {
    for list in ["requests", "limits"] {
        let mut amounts = new[list].as_object().cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            match old[list].get(name) {
                Some(amount) => drop(amounts.insert(name.to_owned(), amount.clone())),
                None => drop(amounts.remove(name)),
            }
        }
        match new.as_object_mut() {
            Some(members) if amounts.is_empty() => drop(members.remove(list)),
            Some(members) => drop(members.insert(list.to_owned(), Value::Object(amounts))),
            None => {}
        }
    }
}
