//! ServiceAccount: a pod runs as an account that exists, and finds a token for it in its file system.

use super::{append, is_core, unusable_name};
use crate::access::errors::refused;
use crate::access::uid;
use crate::request::{Attributes, Operation, Reader};
use evenkeel_kube_rules::status::ApiResult;
use serde_json::{Value, json};

/// Where containers find the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// An hour and seven seconds: upstream's mark of a token that was not asked for explicitly.
const TOKEN_SECONDS: i64 = 3607;
const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) fn admit(attributes: &mut Attributes, reader: &dyn Reader) -> ApiResult<()> {
    if attributes.operation != Operation::Create || !is_core(attributes, "pods") {
        return Ok(());
    }
    let Some(pod) = &attributes.object else {
        return Ok(());
    };
    if !pod["metadata"]["annotations"][MIRROR].is_null() {
        return mirror(attributes, pod);
    }
    let name = pod["spec"]["serviceAccountName"]
        .as_str()
        .filter(|name| !name.is_empty())
        .unwrap_or("default")
        .to_owned();
    if let Some(why) = unusable_name(&name) {
        let place = format!("{}/{name}", attributes.namespace);
        return Err(refused(
            attributes,
            &format!("error looking up service account {place}: {why}"),
        ));
    }
    let account = reader
        .get("", "serviceaccounts", &attributes.namespace, &name)
        .ok_or_else(|| {
            refused(
                attributes,
                &format!(
                    "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
                    attributes.namespace
                ),
            )
        })?;
    if let Some(pod) = &mut attributes.object {
        let spec = &mut pod["spec"];
        spec["serviceAccountName"] = json!(name);
        spec["serviceAccount"] = json!(name);
        let automount = spec["automountServiceAccountToken"]
            .as_bool()
            .or(account["automountServiceAccountToken"].as_bool())
            .unwrap_or(true);
        if automount {
            mount(spec);
        }
        let own = spec["imagePullSecrets"]
            .as_array()
            .is_some_and(|secrets| !secrets.is_empty());
        if let Some(secrets) = account["imagePullSecrets"]
            .as_array()
            .filter(|secrets| !own && !secrets.is_empty())
        {
            spec["imagePullSecrets"] = secrets
                .iter()
                .map(|secret| json!({"name": secret["name"]}))
                .collect();
        }
    }
    Ok(())
}

/// A mirror pod shows what a kubelet runs by itself; it has no identity at the API.
fn mirror(attributes: &Attributes, pod: &Value) -> ApiResult<()> {
    if pod["spec"]["serviceAccountName"]
        .as_str()
        .is_some_and(|name| !name.is_empty())
    {
        return Err(refused(
            attributes,
            "a mirror pod may not reference service accounts",
        ));
    }
    let volumes = || pod["spec"]["volumes"].as_array().into_iter().flatten();
    if volumes().any(|volume| !volume["secret"].is_null()) {
        return Err(refused(attributes, "a mirror pod may not reference secrets"));
    }
    let tokens = |volume: &Value| {
        volume["projected"]["sources"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|source| !source["serviceAccountToken"].is_null())
    };
    if volumes().any(tokens) {
        return Err(refused(
            attributes,
            "a mirror pod may not use ServiceAccountToken volume projections",
        ));
    }
    Ok(())
}

/// Mounts the token into every container that does not mount something of its own there.
fn mount(spec: &mut Value) {
    let existing = spec["volumes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|volume| volume["name"].as_str())
        .find(|name| name.starts_with(VOLUME_PREFIX))
        .map(str::to_owned);
    let volume = existing
        .clone()
        .unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", uid::suffix()));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let taken = container["volumeMounts"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|mount| mount["mountPath"] == MOUNT_PATH);
            if !taken {
                needed = true;
                let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
                append(container, "volumeMounts", [mount]);
            }
        }
    }
    if needed && existing.is_none() {
        append(
            spec,
            "volumes",
            [json!({"name": volume, "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                    ]}},
                ],
                "defaultMode": 420,
            }})],
        );
    }
}
