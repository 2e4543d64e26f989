use super::*;
use crate::gvk::Gvk;
use crate::status::ApiResult;
use serde_json::{Value, json};

fn gvk(kind: &str) -> Gvk {
    Gvk {
        group: String::new(),
        version: "v1".into(),
        kind: kind.into(),
    }
}

fn fields(kind: &str, text: &str) -> ApiResult<FieldSelector> {
    let selector = FieldSelector::parse(text)?;
    selector.check(&gvk(kind))?;
    Ok(selector)
}

#[test]
fn label_selectors_match() {
    let labels = json!({"app": "web", "tier": "front", "n": "5"});
    for (text, selected) in [
        ("", true),
        ("app=web", true),
        ("app==web,tier=front", true),
        ("app!=web", false),
        ("none!=x", true),
        ("app in (web, db)", true),
        ("app notin (web)", false),
        ("none notin (a)", true),
        ("app", true),
        ("!app", false),
        ("!none", true),
        ("n>4", true),
        ("n<5", false),
        ("app in (,web)", true),
        ("app in ()", false),
        ("app notin ()", true),
        ("app=", false),
        ("in in (in)", false),
    ] {
        assert_eq!(
            LabelSelector::parse(text).unwrap().matches(&labels),
            selected,
            "{text}"
        );
    }
    assert!(!LabelSelector::parse("a").unwrap().matches(&Value::Null));
}

#[test]
fn label_selectors_that_do_not_parse() {
    for (text, error) in [
        (
            "e in dev",
            "unable to parse requirement: found 'dev' expected: '('",
        ),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        (
            "e in (",
            "unable to parse requirement: found '', expected: ',', ')' or identifier",
        ),
        (
            "e in (a b)",
            "unable to parse requirement: found 'b', expected: ',' or ')'",
        ),
        (
            "bad key=1",
            "unable to parse requirement: found 'key', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("e=bad value!", "found 'value', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        (
            "t>abc",
            "unable to parse requirement: values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "-x=1",
            "unable to parse requirement: <nil>: Invalid value: \"-x\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ] {
        let found = LabelSelector::parse(text).unwrap_err();
        assert_eq!((found.code, found.message.as_str()), (400, error), "{text}");
    }
}

#[test]
fn selector_objects() {
    let labels = json!({"a": "1", "b": "2"});
    for (selector, selected) in [
        (Value::Null, false),
        (json!({}), true),
        (json!({"matchLabels": {"a": "1"}}), true),
        (json!({"matchLabels": {"a": "2"}}), false),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "9"]}, {"key": "c", "operator": "DoesNotExist"}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["2"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}),
            true,
        ),
    ] {
        assert_eq!(
            LabelSelector::from_object(&selector).unwrap().matches(&labels),
            selected,
            "{selector}"
        );
    }
    let bad = json!({"matchExpressions": [{"key": "b", "operator": "Nope"}]});
    assert_eq!(
        LabelSelector::from_object(&bad).unwrap_err(),
        "\"Nope\" is not a valid label selector operator"
    );
    let both = json!({"matchLabels": {"z": "1"}, "matchExpressions": [{"key": "b", "operator": "In", "values": ["x", "y"]}]});
    assert_eq!(
        LabelSelector::from_object(&both).unwrap().to_string(),
        "b in (x,y),z=1"
    );
}

#[test]
fn field_selectors_match() {
    let pod = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "w"}, "status": {"phase": "Running"}});
    for (text, selected) in [
        ("spec.nodeName=w", true),
        ("spec.nodeName=", false),
        ("status.phase!=Running", false),
        ("metadata.name==a", true),
        ("metadata.namespace=other", false),
        ("spec.nodeName=w,status.phase=Running", true),
        ("spec.hostNetwork=false", true),
    ] {
        assert_eq!(fields("Pod", text).unwrap().matches(&pod), selected, "{text}");
    }
    assert_eq!(
        fields("Pod", "metadata.name=a").unwrap().required_name(),
        Some("a")
    );
    let escaped = fields("Secret", r"type=a\,b").unwrap();
    assert!(escaped.matches(&json!({"type": "a,b"})));
}

#[test]
fn field_selectors_that_are_refused() {
    for (kind, text, error) in [
        ("Pod", "spec.nope=1", "field label not supported: spec.nope"),
        (
            "ConfigMap",
            "data.x=1",
            "\"data.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            "Pod",
            "metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
        (
            "Pod",
            "metadata.name===a",
            "invalid field selector: unescaped character in value: 61",
        ),
        (
            "Pod",
            r"metadata.name=\a",
            r"invalid field selector: invalid escape sequence: \a",
        ),
    ] {
        let found = fields(kind, text).unwrap_err();
        assert_eq!((found.code, found.message.as_str()), (400, error), "{text}");
    }
    let custom = FieldSelector::parse("spec.color=blue").unwrap();
    assert!(custom.check_custom(&[".spec.color".to_owned()], true).is_ok());
    assert!(custom.check_custom(&[], true).is_err());
    assert!(custom.matches(&json!({"spec": {"color": "blue"}})));
}
