//! Admission: the webhook of one replica looks at a write of the stock controllers.

use super::objects::Object;
use evenkeel_failover_rules::admission::{Decision, Operation, Request, Resource, User, View, decide};
use evenkeel_zone::Millis;
use serde_json::Value;

/// The user by which the stock node controller writes.
pub const STOCK_USER: &str = "system:serviceaccount:kube-system:node-controller";

/// What a view makes of a write of the stock node controller. Where anything fails, the write passes as it
/// is: failurePolicy Ignore.
pub fn admit(view: &View, now: Millis, before: &Object, mut after: Object) -> Object {
    let (resource, sub_resource) = match &after {
        Object::Pod(_) => ("pods", "status"),
        Object::Node(_) => ("nodes", ""),
        _ => return after,
    };
    // The API server sends objects with the version that they had before.
    after
        .meta_mut()
        .resource_version
        .clone_from(&before.meta().resource_version);
    let (Some(old_object), Some(object)) = (json(before), json(&after)) else {
        return after;
    };
    let (namespace, name) = after.key();
    let request = Request {
        uid: "1".to_owned(),
        resource: Resource {
            group: String::new(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
        },
        sub_resource: sub_resource.to_owned(),
        name,
        namespace,
        operation: Operation::Update,
        user_info: User {
            username: STOCK_USER.to_owned(),
        },
        object,
        old_object,
    };
    let Decision::Patch(correction) = decide(&request, view, now) else {
        return after;
    };
    let mut object = request.object;
    if json_patch::patch(&mut object, &correction.patch).is_err() {
        return after;
    }
    read(&after, object).unwrap_or(after)
}

fn json(object: &Object) -> Option<Value> {
    match object {
        Object::Pod(pod) => serde_json::to_value(pod).ok(),
        Object::Node(node) => serde_json::to_value(node).ok(),
        _ => None,
    }
}

fn read(like: &Object, value: Value) -> Option<Object> {
    match like {
        Object::Pod(_) => serde_json::from_value(value)
            .ok()
            .map(|pod| Object::Pod(Box::new(pod))),
        Object::Node(_) => serde_json::from_value(value)
            .ok()
            .map(|node| Object::Node(Box::new(node))),
        _ => None,
    }
}
