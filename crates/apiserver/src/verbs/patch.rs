//! Patch.

use super::context::{Answer, Context};
use super::ownership;
use super::rules::Part;
use super::write::{check_version, fit_name, replace};
use crate::kinds::convert::to_served;
use crate::request::query::{WriteOptions, check_patch};
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::patch;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::strict::FieldValidation;
use serde_json::Value;

/// Times that a patch is applied anew after somebody else's write; upstream's number.
const ATTEMPTS: usize = 5;

/// Media type of a configuration for server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// How the body changes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON patch (RFC 6902).
    Json,
    /// JSON merge patch (RFC 7386).
    Merge,
    /// Upstream's own, with merge keys.
    Strategic,
}

impl Format {
    /// By the media type of the body; custom resources know no strategic merge.
    pub(crate) fn of(context: &Context) -> ApiResult<Self> {
        let builtin = context.resource.custom.is_none();
        match context.content_type.as_str() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if builtin => Ok(Self::Strategic),
            _ => {
                let strategic = ", application/strategic-merge-patch+json";
                let accepted = format!(
                    "application/json-patch+json, application/merge-patch+json{}, {APPLY}",
                    if builtin { strategic } else { "" }
                );
                let mut error = ApiError::unsupported_media_type(&accepted);
                if builtin {
                    error.details = serde_json::json!({});
                }
                Err(error)
            }
        }
    }

    /// Applies the body to an object of a kind.
    pub(crate) fn apply(self, gvk: &Gvk, object: &Value, body: &[u8]) -> ApiResult<Value> {
        match self {
            Self::Json => patch::json_patch(object, body),
            Self::Merge => patch::merge_patch(object, body),
            Self::Strategic => patch::strategic_merge_patch(gvk, object, body),
        }
    }

    /// 422 for a result that does not decode.
    pub(crate) fn undecodable(self, body: &[u8], text: &str) -> ApiError {
        match self {
            Self::Strategic => patch::undecodable_strategic(body, text),
            Self::Json | Self::Merge => patch::undecodable(body, text),
        }
    }
}

pub(crate) async fn patch(context: &Context, part: Part) -> ApiResult<Answer> {
    if context.content_type == APPLY {
        return ownership::patch(context, part).await;
    }
    let format = Format::of(context)?;
    let options = WriteOptions::parse(&context.query, "PatchOptions", &context.user_agent)?;
    check_patch(&context.query, false)?;
    let gvk = context.resource.gvk();
    for _ in 0..ATTEMPTS {
        let stored = context.stored()?;
        let old = to_served(&context.resource, &stored);
        let patched = format.apply(&gvk, &old, &context.body)?;
        let mut new = decoded(context, format, patched, options.field_validation)?;
        fit_name(context, &mut new)?;
        check_version(context, &new)?;
        ownership::track(context, &options, Some(&old), &mut new)?;
        if let Some(answer) = replace(context, part, &stored, new, &options, "UpdateOptions").await? {
            return Ok(answer);
        }
    }
    Err(context.modified(&context.info.name))
}

/// What came out of a patch, checked and defaulted.
fn decoded(context: &Context, format: Format, patched: Value, mode: FieldValidation) -> ApiResult<Value> {
    let rules = context.rules()?;
    let decoded = rules
        .check(patched, mode)
        .map_err(|text| format.undecodable(&context.body, &text))?;
    context.warn(decoded.warnings);
    let mut object = decoded.object;
    rules.apply_defaults(&mut object);
    Ok(object)
}
