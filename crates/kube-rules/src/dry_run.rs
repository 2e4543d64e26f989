//! What the API server would answer to the creation of an object, without a server.

use crate::gvk::Gvk;
use crate::strict::{FieldValidation, check};
use crate::validate::create;
use crate::{defaults, strategy};
use serde_json::{Value, json};

/// A pod as `kubectl create` with strict field validation would have it stored, defaults filled in; or all
/// that is wrong with it, each error as it stands in `The Pod "x" is invalid: …`, with the path of its field.
///
/// A missing namespace becomes `default`, and a `generateName` a name. Admission (service accounts, priority
/// classes, webhooks) is left out, as are allocated fields such as the UID.
pub fn pod(mut value: Value) -> Result<Value, Vec<String>> {
    let gvk = Gvk {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Pod".to_owned(),
    };
    if !value.is_object() {
        return Err(vec!["a Pod must be a mapping".to_owned()]);
    }
    if let Some(metadata) = value["metadata"].as_object_mut() {
        let given = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
        let name = match (given("name"), given("generateName")) {
            ("", stem) if !stem.is_empty() => Some(format!("{stem}00000")),
            _ => None,
        };
        if let Some(name) = name {
            metadata.insert("name".to_owned(), json!(name));
        }
        metadata.entry("namespace").or_insert_with(|| json!("default"));
    }
    let mut object = check(&gvk, value, FieldValidation::Strict)
        .map_err(|error| vec![error])?
        .object;
    defaults::apply(&gvk, &mut object);
    strategy::prepare_create(&gvk, &mut object);
    // Admission gives each pod an account, which tokens in volumes ask for.
    let mut admitted = object.clone();
    if admitted["spec"]["serviceAccountName"].is_null() {
        admitted["spec"]["serviceAccountName"] = json!("default");
    }
    let mut texts: Vec<String> = Vec::new();
    for error in create(&gvk, &admitted) {
        let text = format!("{}: {}", error.field, error.message);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.is_empty() { Ok(object) } else { Err(texts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(probe: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"},
            "spec": {"containers": [{"name": "web", "image": "x", "livenessProbe": probe}]}})
    }

    #[test]
    fn a_good_pod_comes_back_with_its_defaults() {
        let pod = pod(with(json!({"httpGet": {"port": "http"}, "periodSeconds": 0}))).unwrap();
        assert_eq!(pod["metadata"]["name"], "web-00000");
        assert_eq!(pod["metadata"]["namespace"], "default");
        let probe = &pod["spec"]["containers"][0]["livenessProbe"];
        assert_eq!(probe["periodSeconds"], 10);
        assert_eq!(
            probe["httpGet"],
            json!({"path": "/", "port": "http", "scheme": "HTTP"})
        );
    }

    #[test]
    fn a_bad_pod_comes_back_with_the_texts_of_kubernetes() {
        for (value, texts) in [
            (json!(5), vec!["a Pod must be a mapping"]),
            (
                with(json!({"httpGet": {"port": 1}, "periodSecond": 1})),
                vec![
                    "strict decoding error: unknown field \"spec.containers[0].livenessProbe.periodSecond\"",
                ],
            ),
            (
                json!({"kind": "Pod", "spec": {"containers": [{"name": "web", "image": "x"}]}}),
                vec!["metadata.name: Required value: name or generateName is required"],
            ),
            (
                with(json!({"exec": {"command": []}, "tcpSocket": {"port": 1}})),
                vec![
                    "spec.containers[0].livenessProbe.exec.command: Required value",
                    "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
                ],
            ),
        ] {
            assert_eq!(pod(value).unwrap_err(), texts);
        }
    }
}
