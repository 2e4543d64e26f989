//! What the form in which upstream stores objects does not tell apart.

use crate::gvk::Gvk;
use crate::schema::{self, Definition, Shape, Type};
use serde_json::Value;

/// Makes null of empty lists and maps that are encoded always: upstream stores built-in kinds as protobuf,
/// which knows no empty list.
pub fn forget_empty(gvk: &Gvk, object: &mut Value) {
    if let Some(definition) = schema::kind(gvk) {
        members(definition, object);
    }
}

fn members(definition: &Definition, object: &mut Value) {
    for field in &definition.fields {
        let Some(member) = object.get_mut(field.name) else {
            continue;
        };
        let is_empty = match (&field.ty, &*member) {
            (Type::List(_), Value::Array(items)) => items.is_empty(),
            (Type::Map(_), Value::Object(items)) => items.is_empty(),
            _ => false,
        };
        if is_empty && field.always {
            *member = Value::Null;
        } else {
            inside(&field.ty, member);
        }
    }
}

fn inside(ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::List(item), Value::Array(items)) => items.iter_mut().for_each(|one| inside(item, one)),
        (Type::Map(item), Value::Object(items)) => items.values_mut().for_each(|one| inside(item, one)),
        (Type::Ref(_), value @ Value::Object(_)) => {
            if let Some(definition) = ty.definition().filter(|one| one.shape == Shape::Object) {
                members(definition, value);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn empty_lists_that_are_written_always_are_stored_as_null() {
        let gvk = |group: &str, kind: &str| Gvk {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
        };
        let slice = gvk("discovery.k8s.io", "EndpointSlice");
        let mut object =
            json!({"addressType": "IPv4", "ports": [], "endpoints": [{"addresses": [], "conditions": {}}]});
        forget_empty(&slice, &mut object);
        assert_eq!(
            object,
            json!({"addressType": "IPv4", "ports": null, "endpoints": [{"addresses": null, "conditions": {}}]})
        );
        // A struct behind a pointer says something by being there.
        let mut pod = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        let before = pod.clone();
        forget_empty(&gvk("", "Pod"), &mut pod);
        assert_eq!(pod, before);
    }
}
