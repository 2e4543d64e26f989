//! The AdmissionReview that is sent, and what its answer means.

use crate::access::admission::versioned::Versioned;
use crate::access::uid;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use evenkeel_kube_rules::status::ApiError;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

const API_VERSION: &str = "admission.k8s.io/v1";

/// A request as a webhook is asked about it.
pub(super) struct Sent {
    pub(super) versioned: Versioned,
    pub(super) review: Value,
}

impl Sent {
    pub(super) fn new(versioned: Versioned) -> Self {
        let mut request = versioned.request.clone();
        request["uid"] = json!(uid::random());
        request["object"] = versioned.object.clone();
        request["oldObject"] = versioned.old_object.clone();
        Self {
            versioned,
            review: json!({"kind": "AdmissionReview", "apiVersion": API_VERSION, "request": request}),
        }
    }

    pub(super) fn uid(&self) -> &str {
        self.review["request"]["uid"].as_str().unwrap_or_default()
    }
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
