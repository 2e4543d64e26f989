//! The AdmissionReview that is sent, and what its answer means.

use super::config::operation_name;
use crate::access::review::describe;
use crate::access::uid;
use crate::request::Attributes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use evenkeel_kube_rules::gvk::Gvr;
use evenkeel_kube_rules::status::ApiError;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

const API_VERSION: &str = "admission.k8s.io/v1";

/// A request as a webhook is asked about it.
pub(super) struct Sent {
    pub(super) review: Value,
    /// `apiVersion` of the request and of what is sent.
    api_versions: (String, String),
}

impl Sent {
    /// `served` is the version in which the webhook wants to see the object.
    pub(super) fn new(attributes: &Attributes, served: Gvr) -> Self {
        let api_version =
            |version: &str| evenkeel_kube_rules::gvk::group_version(&attributes.gvk.group, version);
        let own = attributes.gvr.version == served.version;
        let kind_version = if own {
            &attributes.gvk.version
        } else {
            &served.version
        };
        let api_versions = (api_version(&attributes.gvk.version), api_version(kind_version));
        let object = |object: &Option<Value>| match object {
            Some(object) => to_version(object, &api_versions),
            None => Value::Null,
        };
        let gvk = |version: &str| {
            let kind = &attributes.gvk;
            json!({"group": kind.group, "version": version, "kind": kind.kind})
        };
        let gvr = |version: &str| {
            let resource = &attributes.gvr;
            json!({"group": resource.group, "version": version, "resource": resource.resource})
        };
        let mut request = json!({
            "uid": uid::random(),
            "kind": gvk(kind_version),
            "resource": gvr(&served.version),
            "requestKind": gvk(&attributes.gvk.version),
            "requestResource": gvr(&attributes.gvr.version),
            "operation": operation_name(attributes.operation),
            "userInfo": describe(&attributes.user),
            "object": object(&attributes.object),
            "oldObject": object(&attributes.old_object),
            "dryRun": attributes.dry_run,
            "options": attributes.options,
        });
        for (key, text) in [
            ("subResource", &attributes.subresource),
            ("requestSubResource", &attributes.subresource),
            ("name", &attributes.name),
            ("namespace", &attributes.namespace),
        ] {
            if !text.is_empty() {
                request[key] = json!(text);
            }
        }
        Self {
            review: json!({"kind": "AdmissionReview", "apiVersion": API_VERSION, "request": request}),
            api_versions,
        }
    }

    pub(super) fn uid(&self) -> &str {
        self.review["request"]["uid"].as_str().unwrap_or_default()
    }

    /// An object of the request in the version that is sent.
    pub(super) fn to_version(&self, object: &Value) -> Value {
        to_version(object, &self.api_versions)
    }

    /// An object that the webhook changed, in the version of the request.
    pub(super) fn back(&self, object: Value) -> Value {
        let (own, sent) = &self.api_versions;
        to_version(&object, &(sent.clone(), own.clone()))
    }
}

/// Custom resources differ between versions by their `apiVersion` alone, for the conversion strategy `None`.
fn to_version(object: &Value, (from, to): &(String, String)) -> Value {
    let mut object = object.clone();
    if from != to && object["apiVersion"] == from.as_str() {
        object["apiVersion"] = json!(to);
    }
    object
}

/// What a webhook says.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) refusal: Option<ApiError>,
    pub(super) patch: Option<json_patch::Patch>,
    pub(super) warnings: Vec<String>,
}

impl Answer {
    /// Reads the body of an answer with HTTP status 200.
    pub(super) fn read(webhook: &str, uid: &str, body: &[u8]) -> Result<Self, String> {
        let bad = |why: String| format!("received invalid webhook response: {why}");
        let review: Value = serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
        if (api_version.as_str(), kind.as_str()) != (API_VERSION, "AdmissionReview") {
            return Err(bad(format!(
                "expected webhook response of {API_VERSION}, Kind=AdmissionReview, got {api_version}, Kind={kind}"
            )));
        }
        let response = &review["response"];
        if !response.is_object() {
            return Err(bad("webhook response was absent".to_owned()));
        }
        let got = text(&response["uid"]);
        if got != uid {
            return Err(bad(format!("expected response.uid=\"{uid}\", got \"{got}\"")));
        }
        let warnings = serde_json::from_value(response["warnings"].clone()).unwrap_or_default();
        if response["allowed"] != true {
            return Ok(Self {
                refusal: Some(refusal(webhook, &response["status"])),
                patch: None,
                warnings,
            });
        }
        let patch = match response["patch"].as_str() {
            None | Some("") => None,
            Some(_) if response["patchType"] != "JSONPatch" => {
                return Err(bad(
                    "webhook returned response.patch but not response.patchType=JSONPatch".to_owned(),
                ));
            }
            Some(encoded) => {
                let bytes = BASE64.decode(encoded).map_err(|error| bad(error.to_string()))?;
                Some(serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?)
            }
        };
        Ok(Self {
            refusal: None,
            patch,
            warnings,
        })
    }
}

/// The status of a refusal as the client gets it: the webhook's own, at least 400, its message prefixed.
fn refusal(webhook: &str, status: &Value) -> ApiError {
    let text = |key: &str| status[key].as_str().unwrap_or_default();
    let denied = format!("admission webhook \"{webhook}\" denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| (400..=599).contains(code))
        .unwrap_or(400);
    let mut error = ApiError::new(code, reason(text("reason")), message);
    error.details = status["details"].clone();
    error
}

/// Reasons are a closed set in Kubernetes, and static in this crate; a webhook may invent some. The first
/// ones invented are kept for the life of the process, further ones are left out: a reason for machines must
/// be a known word anyway.
fn reason(text: &str) -> &'static str {
    const MOST: usize = 64;
    static INVENTED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if text.is_empty() || text.len() > 256 {
        return "";
    }
    let mut invented = INVENTED.lock().unwrap_or_else(PoisonError::into_inner);
    match invented.get(text) {
        Some(known) => known,
        None if invented.len() < MOST => {
            let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
            invented.insert(kept);
            kept
        }
        None => "",
    }
}
