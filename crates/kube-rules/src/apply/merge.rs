//! Merging an applied configuration into an object, and taking fields out of one.

use super::set::{FieldSet, Step};
use super::types::{Items, List, Map, Shape, Type};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The live value with an applied one merged in: leaves of the applied value win, everything else stays.
/// `None`: nothing is left. The error says which list cannot be merged.
pub(super) fn merge(
    ty: Type<'_>,
    live: Option<&Value>,
    applied: Option<&Value>,
) -> Result<Option<Value>, String> {
    let Some(new) = applied else {
        return Ok(live.cloned());
    };
    // What is new is taken as it is.
    let Some(old) = live else {
        return Ok(Some(new.clone()));
    };
    let whole = || Ok(Some(new.clone()));
    match (ty.shape(Some(new)), old, new) {
        (Shape::List(list), Value::Array(old), Value::Array(new)) if list.items != Items::Atomic => {
            if old.is_empty() && new.is_empty() {
                return whole();
            }
            let merged = merge_items(&list, old, new)?;
            Ok((!merged.is_empty()).then_some(Value::Array(merged)))
        }
        // An applied list or map that is empty, or null, adds nothing.
        (Shape::List(list), Value::Array(items), _) if list.items != Items::Atomic && !items.is_empty() => {
            Ok(Some(old.clone()))
        }
        (Shape::Map(map) | Shape::Any(map), Value::Object(old), Value::Object(new)) if !map.atomic => {
            if old.is_empty() && new.is_empty() {
                return whole();
            }
            let merged = merge_members(&map, old, new)?;
            Ok((!merged.is_empty()).then_some(Value::Object(merged)))
        }
        (Shape::Map(map) | Shape::Any(map), Value::Object(members), _)
            if !map.atomic && !members.is_empty() =>
        {
            Ok(Some(old.clone()))
        }
        _ => whole(),
    }
}

type Members = serde_json::Map<String, Value>;

fn merge_members(map: &Map<'_>, old: &Members, new: &Members) -> Result<Members, String> {
    let mut merged = old.clone();
    for (name, value) in new {
        let ty = map.member(name).map_or(Type::Deduced, |found| found.ty());
        let value = merge(ty, old.get(name), Some(value)).map_err(|text| format!(".{name}{text}"))?;
        match value {
            Some(value) => merged.insert(name.clone(), value),
            None => merged.remove(name),
        };
    }
    Ok(merged)
}

/// Items of the applied list come in its order. Items that only the live list has stay where they were,
/// beside the shared items around them.
fn merge_items(list: &List<'_>, old: &[Value], new: &[Value]) -> Result<Vec<Value>, String> {
    let step =
        |(at, item): (usize, &Value)| list.step(item).map_err(|text| format!(": element {at}: {text}"));
    let old_steps: Vec<Step> = old.iter().enumerate().map(step).collect::<Result<_, _>>()?;
    let new_steps: Vec<Step> = new.iter().enumerate().map(step).collect::<Result<_, _>>()?;
    let mut live: BTreeMap<&Step, Option<&Value>> = BTreeMap::new();
    for (step, item) in old_steps.iter().zip(old) {
        // An item that is there several times is replaced, and not merged.
        live.entry(step)
            .and_modify(|item| *item = None)
            .or_insert(Some(item));
    }
    let applied: BTreeSet<&Step> = new_steps.iter().collect();
    let mut shared: VecDeque<&Step> = new_steps.iter().filter(|step| live.contains_key(step)).collect();
    let item = |step: &Step, new: &Value| {
        let old = live.get(step).copied().flatten();
        merge(list.item, old, Some(new)).map_err(|text| format!("{step}{text}"))
    };
    let mut merged = Vec::with_capacity(old.len().max(new.len()));
    let mut done: BTreeSet<&Step> = BTreeSet::new();
    let (mut at_old, mut at_new) = (0, 0);
    while at_old < old.len() || at_new < new.len() {
        if let (Some(step), Some(wanted)) = (old_steps.get(at_old), new_steps.get(at_new)) {
            if step == wanted {
                done.insert(step);
                merged.extend(item(step, &new[at_new])?);
                shared.pop_front();
                at_old += 1;
                at_new += 1;
                continue;
            }
            // A shared item whose turn has not come.
            if applied.contains(step) && shared.front().is_some_and(|next| *next != step) {
                at_old += 1;
                continue;
            }
        }
        if let Some(step) = old_steps.get(at_old) {
            if !applied.contains(step) {
                merged.push(old[at_old].clone());
                at_old += 1;
                continue;
            }
            if done.contains(step) {
                at_old += 1;
            }
        }
        if let Some(step) = new_steps.get(at_new) {
            done.insert(step);
            merged.extend(item(step, &new[at_new])?);
            if shared.front() == Some(&step) {
                shared.pop_front();
            }
            at_new += 1;
        }
    }
    Ok(merged)
}

/// What is left of a value of which all parts went.
fn emptied(value: &Value) -> Value {
    match value {
        Value::Object(_) => json!({}),
        Value::Array(_) => json!([]),
        _ => Value::Null,
    }
}

/// The value without these fields and items. `None`: nothing is left.
pub(super) fn remove(ty: Type<'_>, value: &Value, fields: &FieldSet) -> Option<Value> {
    match (ty.shape(Some(value)), value) {
        (Shape::Scalar(_), _) => Some(value.clone()),
        (Shape::List(list), Value::Array(items)) if list.items != Items::Atomic => {
            let kept = items.iter().filter_map(|item| match list.step(item) {
                Ok(step) if fields.has(&step) => None,
                Ok(step) => match fields.child(&step) {
                    Some(below) => Some(remove(list.item, item, below).unwrap_or_else(|| emptied(item))),
                    None => Some(item.clone()),
                },
                Err(_) => Some(item.clone()),
            });
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (Shape::Map(map) | Shape::Any(map), Value::Object(members)) if !map.atomic => {
            let kept = members.iter().filter_map(|(name, member)| {
                let step = Step::Field(name.clone());
                if fields.has(&step) {
                    return None;
                }
                let ty = map.member(name).map_or(Type::Deduced, |found| found.ty());
                let member = match fields.child(&step) {
                    Some(below) => remove(ty, member, below).unwrap_or_else(|| emptied(member)),
                    None => member.clone(),
                };
                Some((name.clone(), member))
            });
            let kept: Members = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        _ => None,
    }
}

/// The set with each field that a schema names and that the set has something below of.
pub(super) fn with_named(ty: Type<'_>, set: &FieldSet) -> FieldSet {
    let mut named = set.clone();
    for step in set.steps() {
        let Some(child) = set.child(step) else { continue };
        let (below, is_named) = descend(ty, step);
        if is_named {
            named.insert(std::slice::from_ref(step));
        }
        named.replace_child(step, with_named(below.unwrap_or(Type::Deduced), child));
    }
    named
}

/// The type behind a step, and whether the schema names it.
fn descend<'a>(ty: Type<'a>, step: &Step) -> (Option<Type<'a>>, bool) {
    use super::types::Member;
    match (ty.shape(None), step) {
        (Shape::Map(map) | Shape::Any(map), Step::Field(name)) => {
            let found = map.member(name);
            (
                found.as_ref().map(Member::ty),
                matches!(found, Some(Member::Named(_))),
            )
        }
        (Shape::List(list), Step::Key(_)) => (Some(list.item), false),
        _ => (None, false),
    }
}

/// The set as it is after types have become atomic that were not so before: who owned something in a value
/// owns the whole. `None`: the set is as it was.
pub(super) fn reconciled(ty: Type<'_>, set: &FieldSet) -> Option<FieldSet> {
    let mut changed = None;
    for step in set.steps() {
        let Some(child) = set.child(step) else { continue };
        let (Some(below), _) = descend(ty, step) else {
            continue;
        };
        let is_atomic = match below.shape(None) {
            Shape::Scalar(_) => continue,
            Shape::List(list) => list.items == Items::Atomic,
            Shape::Map(map) | Shape::Any(map) => map.atomic,
        };
        let all = changed.get_or_insert_with(|| set.clone());
        if is_atomic {
            all.replace_child(step, FieldSet::default());
            all.insert(std::slice::from_ref(step));
        } else if let Some(child) = reconciled(below, child) {
            all.replace_child(step, child);
        }
    }
    changed.filter(|changed| changed != set)
}
