//! `pods/binding` and `bindings`: which node runs a pod.

use super::context::{ATTEMPTS, Answer, Context};
use crate::request::Operation;
use crate::request::query::WriteOptions;
use crate::store::{StoreError, Table, key, resource_version};
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::time::rfc3339;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) async fn create(context: &Context) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&context.query, "CreateOptions", &context.user_agent)?;
    let gvk = Gvk {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Binding".to_owned(),
    };
    let mut binding = context.read_body_as(&gvk, options.field_validation)?;
    let namespace = context.info.namespace.as_str();
    let name = match context.info.name.as_str() {
        "" => binding["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        name => name.to_owned(),
    };
    if !context.info.name.is_empty() {
        let found = binding["metadata"]["name"].as_str().unwrap_or_default();
        if !found.is_empty() && found != name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Binding object",
            ));
        }
    }
    binding["metadata"]["name"] = json!(name);
    binding["metadata"]["namespace"] = json!(namespace);
    let mut attributes = context.attributes(
        Operation::Create,
        &name,
        (Some(binding), None),
        &options,
        "CreateOptions",
    );
    context.admit(&mut attributes).await?;
    let binding = attributes.object.take().unwrap_or_default();
    check(&binding)?;
    bind(context, &name, &binding, options.dry_run)?;
    Ok(Answer::created())
}

fn check(binding: &Value) -> ApiResult<()> {
    match binding["target"]["kind"].as_str().unwrap_or_default() {
        "" | "Node" => {}
        other => {
            return Err(ApiError::unforeseen(format!(
                "target.kind: Unsupported value: {other:?}: supported values: \"Node\", \"<empty>\""
            )));
        }
    }
    if binding["target"]["name"].as_str().unwrap_or_default().is_empty() {
        return Err(ApiError::unforeseen("target.name: Required value"));
    }
    Ok(())
}

fn bind(context: &Context, name: &str, binding: &Value, dry_run: bool) -> ApiResult<()> {
    let table = Table::new("", "pods");
    let key = key(&context.info.namespace, name);
    let conflict = |why: String| ApiError::conflict("", "pods/binding", name, &why);
    for _ in 0..ATTEMPTS {
        let stored = context
            .server
            .store
            .get(&table, &key)
            .ok_or_else(|| ApiError::not_found("", "pods", name))?;
        for field in ["uid", "resourceVersion"] {
            let wanted = binding["metadata"][field].as_str().unwrap_or_default();
            if !wanted.is_empty() && stored["metadata"][field] != *wanted {
                return Err(conflict(format!(
                    "the {field} in the binding ({wanted}) is not the pod's"
                )));
            }
        }
        if !stored["metadata"]["deletionTimestamp"].is_null() {
            return Err(conflict(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            )));
        }
        if let Some(node) = stored["spec"]["nodeName"]
            .as_str()
            .filter(|node| !node.is_empty())
        {
            return Err(conflict(format!(
                "pod {name} is already assigned to node {node:?}"
            )));
        }
        if stored["spec"]["schedulingGates"]
            .as_array()
            .is_some_and(|gates| !gates.is_empty())
        {
            return Err(conflict(format!(
                "pod {name} has non-empty .spec.schedulingGates"
            )));
        }
        let pod = bound(&stored, binding, Timestamp::now());
        if dry_run {
            return Ok(());
        }
        match context
            .server
            .store
            .update(&table, &key, resource_version(&stored), pod)
        {
            Ok(_) => return Ok(()),
            Err(StoreError::Missing) => return Err(ApiError::not_found("", "pods", name)),
            Err(_) => {}
        }
    }
    Err(ApiError::modified("", "pods", name))
}

/// The pod on its node. The generation stays: nothing that the user wants has changed.
fn bound(pod: &Value, binding: &Value, now: Timestamp) -> Value {
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for field in ["annotations", "labels"] {
        let added = binding["metadata"][field].as_object().into_iter().flatten();
        for (name, value) in added {
            pod["metadata"][field][name] = value.clone();
        }
    }
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": rfc3339(now),
    });
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
        match conditions
            .iter_mut()
            .find(|condition| condition["type"] == "PodScheduled")
        {
            Some(condition) => *condition = scheduled,
            None => conditions.push(scheduled),
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_pod_says_when_it_was_scheduled() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        ]}});
        let binding = json!({"metadata": {"annotations": {"a": "b"}}, "target": {"name": "n"}});
        let pod = bound(&pod, &binding, Timestamp::UNIX_EPOCH);
        assert_eq!(pod["spec"]["nodeName"], "n");
        assert_eq!(pod["metadata"]["annotations"]["a"], "b");
        assert_eq!(
            pod["status"]["conditions"],
            json!([{
                "type": "PodScheduled", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }])
        );
    }
}
