//! Patch.

use super::context::{Answer, Context};
use super::naming::{fit_name, no_name};
use super::ownership;
use super::rules::{Part, Rules};
use super::write::{check_version, replace};
use crate::kinds::convert::to_served;
use crate::request::query::{WriteOptions, check_patch};
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::patch;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::strict::{self, FieldValidation};
use serde_json::{Value, json};

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

    /// What is said of a body that is no patch. Who asks for no validation gets the words of another decoder.
    fn reworded(self, mode: FieldValidation, mut error: ApiError) -> ApiError {
        if mode == FieldValidation::Ignore
            && let Some(text) = error.message.strip_prefix("error decoding patch: ")
        {
            error.message = match self {
                Self::Merge => "Invalid JSON Patch".to_owned(),
                Self::Json | Self::Strategic => text
                    .replace("[]handlers.jsonPatchOp", "jsonpatch.Patch")
                    .replace("handlers.jsonPatchOp", "jsonpatch.Operation"),
            };
        }
        error
    }

    /// 422 for the result of a patch to `object` that does not decode.
    pub(crate) fn undecodable(self, gvk: &Gvk, object: &Value, body: &[u8], text: &str) -> ApiError {
        if self == Self::Strategic {
            return patch::undecodable_strategic(body, text);
        }
        match self.apply(gvk, object, body) {
            Ok(patched) => patch::undecodable(&patched, text),
            Err(error) => error,
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
    let (gvk, rules) = (context.resource.gvk(), context.rules()?);
    for _ in 0..ATTEMPTS {
        let stored = context.stored()?;
        let old = to_served(&context.resource, &stored);
        let patched = format
            .apply(&gvk, &old, &context.body)
            .map_err(|error| format.reworded(options.field_validation, error))?;
        if format != Format::Strategic {
            named(context, &patched, options.field_validation)?;
        }
        let versionless = context.resource.custom.is_some() && lacks(&patched, "apiVersion");
        let mut new = decoded(context, &rules, format, patched, options.field_validation)
            .map_err(|text| format.undecodable(&gvk, &old, &context.body, &text))?;
        if versionless {
            return Err(no_version());
        }
        fit_name(context, &mut new)?;
        check_version(context, &new)?;
        if let Rules::Custom(kind) = &rules {
            // Stored, it has the version of storage, and no trace of the one that the patch gave it.
            let errors = kind.validate_type(&new);
            if !errors.is_empty() {
                let text = |name: &str| new[name].as_str().unwrap_or_default();
                let named = Gvk::of(text("apiVersion"), text("kind"));
                let name = &context.info.name;
                return Err(ApiError::invalid(&named.group, &named.kind, name, errors));
            }
        }
        ownership::track(context, &options, Some(&old), &mut new)?;
        if let Some(answer) = replace(context, part, &stored, new, &options, "UpdateOptions").await? {
            return Ok(answer);
        }
    }
    Err(context.modified(&context.info.name))
}

fn lacks(patched: &Value, name: &str) -> bool {
    patched[name].as_str().is_none_or(str::is_empty)
}

/// Whether a result names what decoding needs: its version, or of a custom resource its kind.
fn named(context: &Context, patched: &Value, mode: FieldValidation) -> ApiResult<()> {
    if context.resource.custom.is_none() {
        return if lacks(patched, "apiVersion") {
            Err(without_version(context, patched, mode))
        } else {
            Ok(())
        };
    }
    if lacks(patched, "kind") {
        let text = strict::missing("Kind", patched);
        return Err(patch::undecodable(patched, &text));
    }
    Ok(())
}

/// What is said of a custom resource without a version, once its other fields are read.
fn no_version() -> ApiError {
    let why = strict::no_version();
    let mut error = ApiError::internal(format!("Internal error occurred: {why}"));
    error.details = json!({"causes": [{"message": why}]});
    error
}

/// What is said of a result that names no version: Go reads it into a structure that has none of its fields.
fn without_version(context: &Context, patched: &Value, mode: FieldValidation) -> ApiError {
    let names = patched.as_object().into_iter().flatten().map(|(name, _)| name);
    let unknown: Vec<String> = names
        .filter(|name| !matches!(name.as_str(), "apiVersion" | "kind"))
        .map(|name| format!("unknown field {name:?}"))
        .collect();
    match mode {
        FieldValidation::Strict => {
            let text = format!("strict decoding error: {}", unknown.join(", "));
            return patch::undecodable(patched, &text);
        }
        FieldValidation::Warn => context.warn(unknown),
        FieldValidation::Ignore => {}
    }
    no_name(context)
}

/// What came out of a patch, checked and defaulted. The error is the reason why it does not decode.
fn decoded(
    context: &Context,
    rules: &Rules<'_>,
    format: Format,
    patched: Value,
    mode: FieldValidation,
) -> Result<Value, String> {
    let decoded = match format {
        Format::Strategic => rules.check_map(patched, mode)?,
        Format::Json | Format::Merge => rules.check(patched, mode)?,
    };
    context.warn(decoded.warnings);
    let mut object = decoded.object;
    rules.apply_defaults(&mut object);
    Ok(object)
}
