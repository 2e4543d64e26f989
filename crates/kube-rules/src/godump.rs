//! Values as upstream's messages show them: what Go's JSON encoder makes of its structures. Those of the
//! machinery (selectors, owners, metadata) have their JSON names and leave out what is empty. All others are
//! the unversioned ones, which have no JSON names: members are named as in Go, and all of them are there.
//!
//! Members stand in the order of their declaration, which is that of their numbers in protobuf with few
//! exceptions.

use crate::protobuf;
use crate::schema::{self, Definition, Field, Shape, Type};
use serde_json::Value;

const MACHINERY: &str = "io.k8s.apimachinery.";

/// Structures in which a member that has a late number was declared early: before the member named last.
const DECLARED_EARLY: [(&str, &str, &str); 2] = [
    ("OwnerReference", "apiVersion", "kind"),
    ("ServicePort", "appProtocol", "port"),
];

fn declared(definition: &'static Definition) -> Vec<&'static Field> {
    let mut fields = protobuf::in_order(definition);
    let early = DECLARED_EARLY
        .iter()
        .find(|(name, ..)| *name == definition.short_name());
    if let Some((_, moved, before)) = early {
        let place = |name: &str| fields.iter().position(|field| field.name == name);
        if let (Some(from), Some(to)) = (place(moved), place(before)) {
            fields[to..=from].rotate_right(1);
        }
    }
    fields
}

/// The value of a definition, or plain JSON where there is no such definition.
pub(crate) fn dump(definition: &str, value: &Value) -> String {
    let mut out = String::new();
    match schema::definition(definition) {
        Some(definition) => structure(definition, value, &mut out),
        None => out.push_str(&value.to_string()),
    }
    out
}

/// A list of values of a definition.
pub(crate) fn dump_list(definition: &str, values: &Value) -> String {
    let Some(values) = values.as_array() else {
        return "null".to_owned();
    };
    let shown: Vec<String> = values.iter().map(|value| dump(definition, value)).collect();
    format!("[{}]", shown.join(","))
}

fn structure(definition: &'static Definition, value: &Value, out: &mut String) {
    if definition.shape != Shape::Object {
        out.push_str(&match (definition.shape, value) {
            (Shape::Quantity, Value::Null) => "\"0\"".to_owned(),
            (Shape::IntOrString, Value::Null) => "0".to_owned(),
            _ => value.to_string(),
        });
        return;
    }
    let tagged = definition.name.starts_with(MACHINERY);
    out.push('{');
    let mut first = true;
    for field in declared(definition) {
        let member = value.get(field.name).unwrap_or(&Value::Null);
        if tagged && !field.always && is_empty(member) {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        let name = if tagged {
            field.name.to_owned()
        } else {
            go_name(field.name)
        };
        out.extend(["\"", name.as_str(), "\":"]);
        if field.pointer && member.is_null() {
            out.push_str("null");
        } else {
            of_type(&field.ty, member, out);
        }
    }
    out.push('}');
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn of_type(ty: &Type, value: &Value, out: &mut String) {
    match (ty, value) {
        (Type::String, Value::Null) => out.push_str("\"\""),
        (Type::Int32 | Type::Int64 | Type::Number, Value::Null) => out.push('0'),
        (Type::Boolean, Value::Null) => out.push_str("false"),
        (Type::List(item), Value::Array(values)) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                of_type(item, value, out);
            }
            out.push(']');
        }
        (Type::Map(item), Value::Object(members)) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.extend([Value::from(name.as_str()).to_string().as_str(), ":"]);
                of_type(item, value, out);
            }
            out.push('}');
        }
        (Type::Ref(_), value) => match ty.definition() {
            Some(definition) => structure(definition, value, out),
            None => out.push_str(&value.to_string()),
        },
        (_, value) => out.push_str(&value.to_string()),
    }
}

/// The name in Go of a member: its first word is in capitals where Go's style asks for that.
fn go_name(name: &str) -> String {
    const INITIALISMS: [&str; 18] = [
        "api", "ca", "cpu", "csi", "dns", "fc", "grpc", "http", "id", "ip", "iscsi", "nfs", "os", "rbd",
        "tcp", "tty", "uid", "url",
    ];
    let end = name.find(|c: char| c.is_ascii_uppercase()).unwrap_or(name.len());
    let (word, rest) = name.split_at(end);
    if INITIALISMS.contains(&word) {
        return format!("{}{rest}", word.to_uppercase());
    }
    let mut letters = name.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::selector("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
        json!({"matchExpressions": [{"operator": "In", "key": "k", "values": ["v"]}], "matchLabels": {"b": "1", "a": ""}}),
        r#"{"matchLabels":{"a":"","b":"1"},"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]}"#)]
    #[case::taint("io.k8s.api.core.v1.Taint", json!({"effect": "NoSchedule", "key": "a", "value": "x"}),
        r#"{"Key":"a","Value":"x","Effect":"NoSchedule","TimeAdded":null}"#)]
    #[case::budget("io.k8s.api.policy.v1.PodDisruptionBudgetSpec",
        json!({"maxUnavailable": "50%", "minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}),
        r#"{"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":"50%","UnhealthyPodEvictionPolicy":null}"#)]
    #[case::role("io.k8s.api.rbac.v1.RoleRef", json!({"kind": "Role", "name": "r"}),
        r#"{"APIGroup":"","Kind":"Role","Name":"r"}"#)]
    #[case::toleration("io.k8s.api.core.v1.Toleration", json!({"key": "a", "operator": "Exists"}),
        r#"{"Key":"a","Operator":"Exists","Value":"","Effect":"","TolerationSeconds":null}"#)]
    #[case::port("io.k8s.api.core.v1.ServicePort", json!({"port": 80, "protocol": "TCP"}),
        r#"{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#)]
    #[case::owner("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
        json!({"uid": "u", "name": "n", "kind": "Pod", "apiVersion": "v1", "controller": true}),
        r#"{"apiVersion":"v1","kind":"Pod","name":"n","uid":"u","controller":true}"#)]
    #[case::unknown("nothing", json!({"b": 1}), r#"{"b":1}"#)]
    fn values_are_shown_as_upstream_shows_them(
        #[case] name: &str,
        #[case] value: Value,
        #[case] shown: &str,
    ) {
        assert_eq!(dump(name, &value), shown);
    }
}
