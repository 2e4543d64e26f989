//! `/scale`: the number of replicas, for any kind that has one.

use super::context::{ATTEMPTS, Answer, Context};
use super::ownership;
use super::patch::{APPLY, Format};
use super::rules::Part;
use super::write::commit;
use crate::kinds::convert::{to_served, to_stored};
use crate::request::Operation;
use crate::request::query::{WriteOptions, check_patch};
use evenkeel_kube_rules::crd::ScalePaths;
use evenkeel_kube_rules::gvk::Gvk;
use evenkeel_kube_rules::status::{ApiError, ApiResult, FieldError};
use evenkeel_kube_rules::strict::{self, FieldValidation};
use serde_json::{Value, json};

fn gvk() -> Gvk {
    Gvk {
        group: "autoscaling".to_owned(),
        version: "v1".to_owned(),
        kind: "Scale".to_owned(),
    }
}

/// `.spec.replicas` as a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

/// A label selector as text.
fn selector_text(selector: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let expressions = selector["matchExpressions"].as_array();
    // A ReplicationController's selector is the map itself.
    let bare = selector["matchLabels"].is_null() && expressions.is_none();
    let labels = if bare { selector } else { &selector["matchLabels"] };
    let mut terms: Vec<(String, String)> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), format!("{key}={}", text(value))))
        .collect();
    for expression in expressions.into_iter().flatten() {
        let key = text(&expression["key"]);
        let mut values: Vec<String> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect();
        values.sort();
        let values = values.join(",");
        let term = match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.clone(),
        };
        terms.push((key, term));
    }
    terms.sort();
    terms
        .into_iter()
        .map(|(_, term)| term)
        .collect::<Vec<_>>()
        .join(",")
}

/// The Scale of an object.
fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let metadata = &object["metadata"];
    let mut shown = json!({});
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !metadata[name].is_null() {
            shown[name] = metadata[name].clone();
        }
    }
    let number = |path: &str| {
        object
            .pointer(&pointer(path))
            .and_then(Value::as_i64)
            .unwrap_or(0)
    };
    let mut spec = json!({});
    if number(&paths.spec_replicas) != 0 {
        spec["replicas"] = json!(number(&paths.spec_replicas));
    }
    let mut status = json!({"replicas": number(&paths.status_replicas)});
    let selector = match &paths.label_selector {
        Some(path) => object.pointer(&pointer(path)).map(selector_text),
        None => object["spec"].get("selector").map(selector_text),
    };
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = json!(selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown, "spec": spec, "status": status})
}

pub(crate) fn get(context: &Context) -> ApiResult<Answer> {
    let stored = to_served(&context.resource, &context.stored()?);
    Ok(Answer::value(200, scale_of(&stored, &context.rules()?.scale())))
}

pub(crate) async fn update(context: &Context) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&context.query, "UpdateOptions", &context.user_agent)?;
    let scale = context.read_body_as(&gvk(), options.field_validation)?;
    change(context, &options, None, |_| Ok(scale.clone())).await
}

pub(crate) async fn patch(context: &Context) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&context.query, "PatchOptions", &context.user_agent)?;
    if context.content_type == APPLY {
        return apply(context, &options).await;
    }
    let format = Format::of(context)?;
    check_patch(&context.query, false)?;
    change(context, &options, None, |scale| {
        let patched = format.apply(&gvk(), scale, &context.body)?;
        let decoded = strict::check(&gvk(), patched, options.field_validation)
            .map_err(|text| format.undecodable(&gvk(), scale, &context.body, &text))?;
        context.warn(decoded.warnings);
        Ok(decoded.object)
    })
    .await
}

/// Who applies a Scale owns the number of replicas of the object behind it.
async fn apply(context: &Context, options: &WriteOptions) -> ApiResult<Answer> {
    check_patch(&context.query, true)?;
    let (config, doubled) = strict::decode_apply(&context.body)?;
    let decoded =
        strict::check(&gvk(), config.clone(), FieldValidation::Strict).map_err(ApiError::unforeseen)?;
    ownership::warn_of_doubled(context, doubled.as_deref(), options.field_validation)?;
    change(context, options, Some(&config), |_| Ok(decoded.object.clone())).await
}

async fn change(
    context: &Context,
    options: &WriteOptions,
    applied: Option<&Value>,
    new_scale: impl Fn(&Value) -> ApiResult<Value>,
) -> ApiResult<Answer> {
    let name = &context.info.name;
    let paths = context.rules()?.scale();
    for _ in 0..ATTEMPTS {
        let stored = context.stored()?;
        let object = to_served(&context.resource, &stored);
        let old = scale_of(&object, &paths);
        let scale = new_scale(&old)?;
        check(name, &scale)?;
        let version = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && stored["metadata"]["resourceVersion"] != *version {
            return Err(context.modified(name));
        }
        let objects = (Some(scale), Some(old));
        let mut attributes = context.attributes(Operation::Update, name, objects, options, "UpdateOptions");
        context.admit(&mut attributes).await?;
        let scale = attributes.object.take().unwrap_or_default();
        let new = if let Some(applied) = applied {
            let mut config = json!({
                "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": {"name": name},
            });
            if let Some(replicas) = applied["spec"]["replicas"].as_i64() {
                set(&mut config, &paths.spec_replicas, replicas);
            }
            ownership::applied(context, options, Some(&object), &config)?
        } else {
            let mut new = (*object).clone();
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            set(&mut new, &paths.spec_replicas, replicas);
            ownership::track(context, options, Some(&object), &mut new)?;
            new
        };
        let new = to_stored(&context.resource, new);
        if let Some(written) = commit(context, Part::Main, &stored, new, options.dry_run)? {
            let written = to_served(&context.resource, &written);
            return Ok(Answer::value(200, scale_of(&written, &paths)));
        }
    }
    Err(context.modified(name))
}

fn check(name: &str, scale: &Value) -> ApiResult<()> {
    let found = scale["metadata"]["name"].as_str().unwrap_or_default();
    if !found.is_empty() && found != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas >= 0 {
        return Ok(());
    }
    let error = FieldError {
        reason: "FieldValueInvalid",
        field: "spec.replicas".to_owned(),
        message: format!("Invalid value: {replicas}: must be greater than or equal to 0"),
    };
    Err(ApiError::invalid("autoscaling", "Scale", name, vec![error]))
}

/// Sets a number at `.a.b.c`, making the objects on the way.
fn set(object: &mut Value, path: &str, number: i64) {
    let mut place = object;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part];
    }
    *place = json!(number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_shows_replicas_and_selector() {
        let paths = ScalePaths {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: None,
        };
        let object = json!({
            "metadata": {"name": "d", "labels": {"x": "y"}},
            "spec": {"replicas": 2, "selector": {
                "matchLabels": {"b": "1"},
                "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}],
            }},
            "status": {"replicas": 1},
        });
        let scale = scale_of(&object, &paths);
        assert_eq!(scale["metadata"], json!({"name": "d"}));
        assert_eq!(scale["spec"], json!({"replicas": 2}));
        assert_eq!(
            scale["status"],
            json!({"replicas": 1, "selector": "a in (x,y),b=1"})
        );
    }

    #[test]
    fn replicas_are_set_where_the_path_points() {
        let mut object = json!({"spec": {}});
        set(&mut object, ".spec.size.wanted", 3);
        assert_eq!(object, json!({"spec": {"size": {"wanted": 3}}}));
    }
}
