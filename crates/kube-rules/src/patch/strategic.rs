//! Strategic merge patch: a merge patch that knows which lists are maps.
//!
//! Rules, from the Kubernetes documentation of strategic merge patch and its directives:
//! * lists with the patch strategy `merge` merge by their merge key, or as sets if their items are scalars;
//! * `$patch: replace|delete` in a map, or in an item of a list;
//! * `$retainKeys` lists the members that stay in a map of which only one kind of member may be set;
//! * `$deleteFromPrimitiveList/FIELD` removes scalars;
//! * `$setElementOrder/FIELD` orders the merged list; without it the items of the patch come in the patch's
//!   order, and the others where the old order puts them.

use super::unprocessable;
use crate::gofmt::go_print;
use crate::schema::{Definition, Field, Type};
use crate::status::{ApiError, ApiResult};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER_PREFIX: &str = "$setElementOrder/";

type Object = Map<String, Value>;

/// Merges a patch into a map whose fields `definition` describes, if anything does.
pub(super) fn merge_map(
    mut original: Object,
    mut patch: Object,
    definition: Option<&'static Definition>,
) -> ApiResult<Object> {
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Object::new()),
            _ => Err(bad_directive(&directive, patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    let mut orders = BTreeMap::new();
    let mut deletions = Vec::new();
    let mut changes = Vec::new();
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix(ORDER_PREFIX) {
            orders.insert(
                field.to_owned(),
                list(value, "invalid patch format of setElementOrder list")?,
            );
        } else if let Some(field) = name.strip_prefix(DELETE_PREFIX) {
            deletions.push((
                field.to_owned(),
                list(value, "invalid patch format of primitive list")?,
            ));
        } else {
            changes.push((name, value));
        }
    }
    for (name, items) in deletions {
        if let Some(Value::Array(old)) = original.get_mut(&name) {
            old.retain(|item| !items.contains(item));
        }
    }
    let before: BTreeMap<String, Vec<Value>> = orders
        .keys()
        .filter_map(|name| Some((name.clone(), original.get(name)?.as_array()?.clone())))
        .collect();
    for (name, value) in changes {
        let field = field_of(definition, &name);
        if let (Some(order), Some(items)) = (orders.get(&name), value.as_array()) {
            follows_order(items, order, field)?;
        }
        change(&mut original, name, value, field)?;
    }
    for (name, order) in orders {
        let field = field_of(definition, &name);
        if let Some(Value::Array(items)) = original.get_mut(&name) {
            let before = before.get(&name).map_or(&[][..], Vec::as_slice);
            *items = arrange(std::mem::take(items), &order, before, merge_key(field));
        }
    }
    Ok(original)
}

/// A field by name. One that the schema does not know is taken as it is; decoding the result says what is
/// wrong with it.
fn field_of(definition: Option<&'static Definition>, name: &str) -> Option<&'static Field> {
    definition?.field(name)
}

fn merge_key(field: Option<&'static Field>) -> &'static str {
    field.map_or("", |field| field.merge_key)
}

fn change(original: &mut Object, name: String, value: Value, field: Option<&'static Field>) -> ApiResult<()> {
    if value.is_null() {
        original.remove(&name);
        return Ok(());
    }
    let definition = field.and_then(|field| item_definition(&field.ty));
    let merged = match (original.remove(&name), value) {
        (Some(Value::Object(old)), Value::Object(patch)) if !field.is_some_and(|field| field.replace) => {
            Some(Value::Object(merge_map(old, patch, definition)?))
        }
        (Some(Value::Array(old)), Value::Array(patch)) if field.is_some_and(|field| field.merge) => Some(
            Value::Array(merge_list(old, patch, definition, merge_key(field))?),
        ),
        (Some(Value::Array(_)), patch @ Value::Array(_)) => Some(patch),
        // What replaces is taken as it is, nulls and all.
        (Some(Value::Object(_)), patch @ Value::Object(_)) => Some(patch),
        (_, value) => without_directives(value),
    };
    if let Some(merged) = merged {
        original.insert(name, merged);
    }
    Ok(())
}

/// The struct behind a field, or behind the items of a list.
fn item_definition(ty: &Type) -> Option<&'static Definition> {
    match ty {
        Type::List(item) => item.definition(),
        _ => ty.definition(),
    }
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> ApiResult<()> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let retained = list(retained, "invalid patch format of retainKeys")?;
    let is_retained = |name: &str| retained.iter().any(|key| key.as_str() == Some(name));
    if patch
        .keys()
        .any(|name| !name.starts_with('$') && !is_retained(name))
    {
        return Err(unprocessable());
    }
    original.retain(|name, _| is_retained(name));
    Ok(())
}

fn list(value: Value, error: &str) -> ApiResult<Vec<Value>> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(ApiError::bad_request(error)),
    }
}

fn bad_directive(directive: &Value, mut map: Object) -> ApiError {
    map.insert(PATCH.to_owned(), directive.clone());
    ApiError::unforeseen(format!(
        "unknown patch type: {} in map: {}",
        go_print(directive),
        go_print(&Value::Object(map))
    ))
}

/// A value of the patch where there is nothing to merge with: nulls and directives go. A map that is itself a
/// directive goes as a whole.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) => {
            if members.contains_key(PATCH) {
                return None;
            }
            let kept = members
                .into_iter()
                .filter(|(name, value)| {
                    !value.is_null()
                        && name != RETAIN_KEYS
                        && !name.starts_with(DELETE_PREFIX)
                        && !name.starts_with(ORDER_PREFIX)
                })
                .filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(
            items.into_iter().filter_map(without_directives).collect(),
        )),
        other => Some(other),
    }
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    definition: Option<&'static Definition>,
    key: &str,
) -> ApiResult<Vec<Value>> {
    one_type(&original, &patch)?;
    if !original.iter().chain(&patch).any(Value::is_object) {
        let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
        for item in original.iter().chain(&patch) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return Ok(arrange(merged, &patch, &original, ""));
    }
    if key.is_empty() {
        return Err(ApiError::unforeseen(format!(
            "cannot merge lists without merge key for {}",
            definition.map_or("map", |definition| definition.go_name())
        )));
    }
    let before = original.clone();
    let mut merged = original;
    let mut replaced = false;
    let mut items = Vec::new();
    for item in patch {
        let Value::Object(mut item) = item else { continue };
        let Some(directive) = item.remove(PATCH) else {
            items.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let wanted = item
                    .get(key)
                    .ok_or_else(|| no_merge_key(&item, Some(&directive), key))?;
                merged.retain(|old| old.get(key) != Some(wanted));
            }
            Some("replace") => replaced = true,
            Some("merge") => {
                return Err(ApiError::unforeseen(
                    "merging lists cannot yet be specified in the patch",
                ));
            }
            _ => return Err(bad_directive(&directive, item)),
        }
    }
    if replaced {
        return Ok(items.into_iter().map(Value::Object).collect());
    }
    let order: Vec<Value> = items.iter().cloned().map(Value::Object).collect();
    for item in items {
        let wanted = item.get(key).ok_or_else(|| no_merge_key(&item, None, key))?;
        let found = merged.iter_mut().find(|old| old.get(key) == Some(wanted));
        match found {
            Some(slot) => {
                let Value::Object(old) = slot.take() else { continue };
                *slot = Value::Object(merge_map(old, item, definition)?);
            }
            None => merged.extend(without_directives(Value::Object(item))),
        }
    }
    // To put them into order, upstream looks at the key of each, also of those that were there before.
    let unkeyed = merged
        .iter()
        .filter_map(Value::as_object)
        .find(|item| !item.contains_key(key));
    if let Some(item) = unkeyed {
        return Err(no_merge_key(item, None, key));
    }
    Ok(arrange(merged, &order, &before, key))
}

/// Lists merge where their items are all of one Go type, which is not a list.
fn one_type(original: &[Value], patch: &[Value]) -> ApiResult<()> {
    // Go reads a number with a fraction and one without into two types.
    let kind = |value: &Value| (std::mem::discriminant(value), value.is_f64());
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else { return Ok(()) };
    if first.is_array() {
        return Err(unprocessable());
    }
    if items.all(|item| kind(item) == kind(first)) {
        return Ok(());
    }
    let shown = go_print(&serde_json::json!([original, patch]));
    Err(ApiError::unforeseen(format!(
        "list element types are not identical: {shown}"
    )))
}

fn no_merge_key(item: &Object, directive: Option<&Value>, key: &str) -> ApiError {
    let mut shown = item.clone();
    if let Some(directive) = directive {
        shown.insert(PATCH.to_owned(), directive.clone());
    }
    ApiError::unforeseen(format!(
        "map: {} does not contain declared merge key: {key}",
        go_print(&Value::Object(shown))
    ))
}

/// What identifies an item: the value of its merge key, or itself.
fn identity<'a>(item: &'a Value, key: &str) -> &'a Value {
    if key.is_empty() {
        item
    } else {
        item.get(key).unwrap_or(&Value::Null)
    }
}

fn position(list: &[Value], item: &Value, key: &str) -> Option<usize> {
    let wanted = identity(item, key);
    list.iter().position(|other| identity(other, key) == wanted)
}

/// Items of the patch in the order that it demands; the rest are put before the first of them that the old
/// list has later.
fn arrange(merged: Vec<Value>, order: &[Value], before: &[Value], key: &str) -> Vec<Value> {
    let (mut ordered, mut others): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| position(order, item, key).is_some());
    ordered.sort_by_key(|item| position(order, item, key));
    others.sort_by_key(|item| position(before, item, key));
    let mut arranged = Vec::with_capacity(ordered.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in ordered {
        let here = position(before, &item, key);
        while let Some(other) = others.peek() {
            let there = position(before, other, key);
            if !matches!((there, here), (Some(there), Some(here)) if there < here) {
                break;
            }
            arranged.extend(others.next());
        }
        arranged.push(item);
    }
    arranged.extend(others);
    arranged
}

/// The items of a patch must stand in the order that the patch demands.
fn follows_order(items: &[Value], order: &[Value], field: Option<&'static Field>) -> ApiResult<()> {
    let key = merge_key(field);
    let mut last = 0;
    for item in items.iter().filter(|item| item.get(PATCH).is_none()) {
        match position(order, item, key) {
            Some(at) if at >= last => last = at,
            _ => {
                return Err(ApiError::unforeseen(format!(
                    "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                    go_print(&Value::Array(items.to_vec())),
                    go_print(&Value::Array(order.to_vec()))
                )));
            }
        }
    }
    Ok(())
}
