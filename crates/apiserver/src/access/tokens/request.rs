//! The TokenRequest subresource.

use super::{API_AUDIENCES, ISSUER, TokenIssuer};
use crate::access::errors::{internal, invalid};
use crate::request::Reader;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

const GROUP: &str = "authentication.k8s.io";
const DEFAULT_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;

impl TokenIssuer {
    /// `POST serviceaccounts/NAME/token`: the TokenRequest with its status. `404` if the account or the bound
    /// object does not exist, `422` for a lifetime under ten minutes.
    pub(crate) fn token_request(
        &self,
        namespace: &str,
        service_account: &str,
        body: &Value,
        reader: &dyn Reader,
        now: Timestamp,
    ) -> ApiResult<Value> {
        let account = reader
            .get("", "serviceaccounts", namespace, service_account)
            .ok_or_else(|| ApiError::not_found("", "serviceaccounts", service_account))?;
        let spec = &body["spec"];
        let seconds = lifetime(spec)?;
        let audiences = audiences(spec);
        let account_uid = account["metadata"]["uid"].as_str().unwrap_or_default();
        let bound = bound_object(namespace, service_account, &spec["boundObjectRef"], reader)?;

        let issued = now.as_second();
        let mut kubernetes = Map::new();
        kubernetes.insert("namespace".to_owned(), json!(namespace));
        kubernetes.insert(
            "serviceaccount".to_owned(),
            json!({"name": service_account, "uid": account_uid}),
        );
        kubernetes.extend(bound);
        let claims = json!({
            "aud": audiences, "exp": issued + seconds, "iat": issued, "nbf": issued, "iss": ISSUER,
            "jti": crate::access::uid::random(),
            "kubernetes.io": kubernetes,
            "sub": format!("system:serviceaccount:{namespace}:{service_account}"),
        });
        let token = self
            .key
            .sign(&claims)
            .map_err(|error| internal(&error.to_string()))?;
        let second = |seconds: i64| {
            Timestamp::from_second(seconds)
                .map_err(|_| internal("the token would expire beyond the calendar"))
        };
        Ok(json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": service_account, "namespace": namespace, "uid": account_uid,
                "creationTimestamp": second(issued)?.to_string(),
            },
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef").cloned().unwrap_or_default(),
            },
            "status": {
                "token": token,
                "expirationTimestamp": second(issued + SignedDuration::from_secs(seconds).as_secs())?.to_string(),
            },
        }))
    }
}

fn lifetime(spec: &Value) -> ApiResult<i64> {
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    let wrong = |rule: &str| {
        Err(invalid(
            GROUP,
            "TokenRequest",
            "spec.expirationSeconds",
            &format!("Invalid value: {seconds}: {rule}"),
        ))
    };
    if seconds < LEAST_SECONDS {
        return wrong("may not specify a duration less than 10 minutes");
    }
    if seconds > MOST_SECONDS {
        return wrong("may not specify a duration larger than 2^32 seconds");
    }
    Ok(seconds)
}

fn audiences(spec: &Value) -> Vec<String> {
    let asked: Vec<String> = spec["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|audience| audience.as_str().map(str::to_owned))
        .collect();
    if asked.is_empty() {
        API_AUDIENCES.map(str::to_owned).to_vec()
    } else {
        asked
    }
}

/// The claims of the object that the token is bound to; for a Pod that is scheduled, also those of its Node.
fn bound_object(
    namespace: &str,
    service_account: &str,
    reference: &Value,
    reader: &dyn Reader,
) -> ApiResult<Map<String, Value>> {
    let mut claims = Map::new();
    if reference.is_null() {
        return Ok(claims);
    }
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let (resource, scope) = match (version, kind) {
        ("v1", "Pod") => ("pods", namespace),
        ("v1", "Secret") => ("secrets", namespace),
        ("v1", "Node") => ("nodes", ""),
        _ => {
            let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
            return Err(ApiError::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let object = reader
        .get("", resource, scope, name)
        .ok_or_else(|| ApiError::not_found("", resource, name))?;
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if kind == "Pod" {
        if object["spec"]["serviceAccountName"].as_str() != Some(service_account) {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount \"{service_account}\" to pod running with different serviceaccount name."
            )));
        }
        if let Some(node) = object["spec"]["nodeName"]
            .as_str()
            .filter(|node| !node.is_empty())
        {
            let mut claim = json!({"name": node});
            if let Some(node) = reader.get("", "nodes", "", node) {
                claim["uid"] = node["metadata"]["uid"].clone();
            }
            claims.insert("node".to_owned(), claim);
        }
    }
    let asked = text("uid");
    if !asked.is_empty() && asked != uid {
        return Err(ApiError::conflict(
            "",
            kind,
            name,
            &format!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        ));
    }
    claims.insert(kind.to_ascii_lowercase(), json!({"name": name, "uid": uid}));
    Ok(claims)
}
