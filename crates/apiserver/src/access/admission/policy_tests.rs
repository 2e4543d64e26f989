//! Policies over requests.

use super::policy::Policies;
use crate::access::testing::{Objects, config_map, create};
use crate::request::{Attributes, Operation};
use evenkeel_kube_rules::status::ApiError;
use rstest::rstest;
use serde_json::{Value, json};

const GROUP: &str = "admissionregistration.k8s.io";

/// A policy about writes of ConfigMaps with one validation, and more members of its `spec`.
fn policy(validation: Value, members: Value) -> Value {
    let mut policy = json!({
        "metadata": {"name": "p"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"],
            }]},
            "validations": [validation],
        },
    });
    let spec = policy["spec"].as_object_mut().unwrap();
    spec.extend(members.as_object().unwrap().clone());
    policy
}

fn binding(name: &str, members: Value) -> Value {
    let mut binding = json!({
        "metadata": {"name": name}, "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    let spec = binding["spec"].as_object_mut().unwrap();
    spec.extend(members.as_object().unwrap().clone());
    binding
}

fn world(policy: Value, bindings: impl IntoIterator<Item = Value>) -> Objects {
    let namespace = json!({"metadata": {"name": "ns", "labels": {"env": "test"}}});
    let world = Objects::with([("", "namespaces", namespace)]);
    world.put(GROUP, "validatingadmissionpolicies", policy);
    for binding in bindings {
        world.put(GROUP, "validatingadmissionpolicybindings", binding);
    }
    world
}

fn bound(policy: Value) -> Objects {
    world(policy, [binding("b", json!({}))])
}

fn ask(world: &Objects, attributes: &Attributes) -> Result<Vec<String>, ApiError> {
    Policies::default().validate(attributes, world)
}

/// Asked about a ConfigMap with the label `size: large` by jane.
fn refusal(world: &Objects) -> Option<String> {
    let attributes = create(config_map(json!({"size": "large"})));
    ask(world, &attributes).err().map(|error| error.message)
}

#[rstest]
#[case::the_object("object.metadata.labels.size == 'small'", false)]
#[case::holds("object.metadata.labels.size == 'large'", true)]
#[case::no_old_object("oldObject == null", true)]
#[case::the_user(
    "request.userInfo.username == 'jane' && 'devs' in request.userInfo.groups",
    true
)]
#[case::the_request(
    "request.operation == 'CREATE' && request.resource.resource == 'configmaps'",
    true
)]
#[case::objects_are_not_in_the_request("has(request.object) || has(request.uid)", false)]
#[case::no_extra("has(request.userInfo.extra)", false)]
#[case::the_namespace("namespaceObject.metadata.labels.env == 'test'", true)]
fn an_expression_sees(#[case] expression: &str, #[case] passes: bool) {
    let world = bound(policy(json!({"expression": expression}), json!({})));
    let expected = format!(
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: \
         failed expression: {expression}"
    );
    assert_eq!(refusal(&world), (!passes).then_some(expected));
}

#[test]
fn an_expression_sees_the_node_of_a_token() {
    let expression = "'authentication.kubernetes.io/node-name' in request.userInfo.extra && \
                      request.userInfo.extra['authentication.kubernetes.io/node-name'][0] == object.metadata.name";
    let world = bound(policy(json!({"expression": expression}), json!({})));
    for (node, passes) in [("a", true), ("b", false)] {
        let mut attributes = create(config_map(json!({})));
        let key = "authentication.kubernetes.io/node-name".to_owned();
        attributes.user.extra.insert(key, vec![node.to_owned()]);
        assert_eq!(ask(&world, &attributes).is_ok(), passes, "{node}");
    }
}

#[rstest]
#[case::by_default(json!({"message": " no "}), (422, "Invalid"), "no")]
#[case::with_a_reason(json!({"message": "no", "reason": "Forbidden"}), (403, "Forbidden"), "no")]
#[case::unauthorized(json!({"message": "no", "reason": "Unauthorized"}), (401, "Unauthorized"), "no")]
#[case::too_large(json!({"message": "no", "reason": "RequestEntityTooLarge"}), (413, "RequestEntityTooLarge"), "no")]
#[case::made(json!({"message": "no", "messageExpression": "'not ' + object.metadata.name"}), (422, "Invalid"), "not a")]
#[case::made_of_several_lines(json!({"message": "no", "messageExpression": "'a\\nb'"}), (422, "Invalid"), "no")]
#[case::made_and_fails(json!({"message": "no", "messageExpression": "object.nothing"}), (422, "Invalid"), "no")]
fn an_objection_says(#[case] members: Value, #[case] expected: (u16, &str), #[case] message: &str) {
    let mut validation = json!({"expression": "false"});
    validation
        .as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    let world = bound(policy(validation, json!({})));
    let error = ask(&world, &create(config_map(json!({})))).unwrap_err();
    assert_eq!((error.code, error.reason), expected);
    let text = format!("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {message}");
    assert_eq!(error.message, format!("configmaps \"a\" is forbidden: {text}"));
    assert_eq!(error.details["causes"], json!([{"message": text}]));
}

#[rstest]
#[case::an_error_denies("Fail", "object.nothing", true)]
#[case::or_is_ignored("Ignore", "object.nothing", false)]
#[case::not_a_boolean("Fail", "1", true)]
#[case::not_a_boolean_ignored("Ignore", "1", false)]
#[case::a_false_one_denies_all_the_same("Ignore", "false", true)]
#[case::does_not_compile("Fail", "1 +", true)]
fn a_failure(#[case] failure_policy: &str, #[case] expression: &str, #[case] denies: bool) {
    let members = json!({"failurePolicy": failure_policy});
    let world = bound(policy(json!({"expression": expression}), members));
    assert_eq!(refusal(&world).is_some(), denies);
}

#[rstest]
#[case::all_hold(json!([{"name": "x", "expression": "request.operation == 'CREATE'"}]), true)]
#[case::one_does_not(json!([{"name": "x", "expression": "true"}, {"name": "y", "expression": "false"}]), false)]
#[case::one_fails(json!([{"name": "x", "expression": "object.nothing"}]), true)]
#[case::one_fails_and_another_is_false(json!([{"name": "x", "expression": "object.nothing"}, {"name": "y", "expression": "false"}]), false)]
fn conditions(#[case] all: Value, #[case] denies: bool) {
    let members = json!({"matchConditions": all});
    let world = bound(policy(json!({"expression": "false"}), members));
    assert_eq!(refusal(&world).is_some(), denies);
}

#[rstest]
#[case::one("variables.size == 'small'", true)]
#[case::of_another("variables.upper == 'LARGE'", false)]
#[case::one_that_fails_is_not_used("variables.size == 'large'", false)]
#[case::one_that_fails_is_used("variables.broken == 'large'", true)]
fn variables(#[case] expression: &str, #[case] denies: bool) {
    let members = json!({"variables": [
        {"name": "broken", "expression": "object.nothing"},
        {"name": "size", "expression": "object.metadata.labels.size"},
        {"name": "upper", "expression": "variables.size.upperAscii()"},
    ]});
    let world = bound(policy(json!({"expression": expression}), members));
    assert_eq!(refusal(&world).is_some(), denies);
}

#[rstest]
#[case::without_a_binding(vec![], None)]
#[case::of_another_policy(vec![binding("b", json!({"policyName": "q"}))], None)]
#[case::that_warns(vec![binding("b", json!({"validationActions": ["Warn"]}))], Some(false))]
#[case::that_writes_to_the_audit_log(vec![binding("b", json!({"validationActions": ["Audit"]}))], None)]
#[case::that_denies(vec![binding("b", json!({}))], Some(true))]
#[case::for_other_namespaces(vec![binding("b", json!({"matchResources": {"namespaceSelector": {"matchLabels": {"env": "live"}}}}))], None)]
#[case::for_this_namespace(vec![binding("b", json!({"matchResources": {"namespaceSelector": {"matchLabels": {"env": "test"}}}}))], Some(true))]
#[case::for_other_objects(vec![binding("b", json!({"matchResources": {"objectSelector": {"matchLabels": {"size": "small"}}}}))], None)]
#[case::the_first_names_itself(vec![binding("z", json!({})), binding("b", json!({}))], Some(true))]
fn a_binding(#[case] bindings: Vec<Value>, #[case] denies: Option<bool>) {
    let all = world(
        policy(json!({"expression": "false", "message": "no"}), json!({})),
        bindings,
    );
    let answer = ask(&all, &create(config_map(json!({"size": "large"}))));
    match denies {
        None => assert_eq!(answer.unwrap(), Vec::<String>::new()),
        Some(false) => assert_eq!(
            answer.unwrap(),
            ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"]
        ),
        Some(true) => assert!(answer.unwrap_err().message.contains("with binding 'b' denied")),
    }
}

#[rstest]
#[case::another_operation(json!({"operations": ["DELETE"]}), json!([]), false)]
#[case::of_that_name(json!({"resourceNames": ["a"]}), json!([]), true)]
#[case::of_another_name(json!({"resourceNames": ["b"]}), json!([]), false)]
#[case::excluded(json!({}), json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]), false)]
#[case::another_excluded(json!({}), json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"]}]), true)]
fn constraints(#[case] rule: Value, #[case] excluded: Value, #[case] denies: bool) {
    let mut one = policy(json!({"expression": "false"}), json!({}));
    let constraints = &mut one["spec"]["matchConstraints"];
    let members = constraints["resourceRules"][0].as_object_mut().unwrap();
    members.extend(rule.as_object().unwrap().clone());
    constraints["excludeResourceRules"] = excluded;
    assert_eq!(refusal(&bound(one)).is_some(), denies);
}

#[test]
fn a_deletion_has_an_old_object_alone() {
    let mut one = policy(
        json!({"expression": "object == null && oldObject.metadata.name == 'b'"}),
        json!({}),
    );
    one["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"]);
    let world = bound(one);
    let mut attributes = create(config_map(json!({})));
    attributes.operation = Operation::Delete;
    attributes.old_object = attributes.object.take();
    assert!(ask(&world, &attributes).is_err());
    attributes.old_object.as_mut().unwrap()["metadata"]["name"] = json!("b");
    assert!(ask(&world, &attributes).is_ok());
}

#[test]
fn a_change_holds_for_the_next_request() {
    let policies = Policies::default();
    let world = bound(policy(json!({"expression": "false"}), json!({})));
    let attributes = create(config_map(json!({})));
    assert!(policies.validate(&attributes, &world).is_err());
    world.put(
        GROUP,
        "validatingadmissionpolicies",
        policy(json!({"expression": "true"}), json!({})),
    );
    assert!(policies.validate(&attributes, &world).is_ok());
}

#[test]
fn policies_are_not_asked_about_policies() {
    let mut all = policy(json!({"expression": "false"}), json!({}));
    all["spec"]["matchConstraints"]["resourceRules"][0] =
        json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]});
    let world = bound(all);
    let mut attributes = create(config_map(json!({})));
    assert!(ask(&world, &attributes).is_err());
    attributes.gvr.group = GROUP.to_owned();
    assert!(ask(&world, &attributes).is_ok());
}

/// A parameter: a ConfigMap with the size that is allowed.
fn parameter(namespace: &str, name: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "labels": {"of": "p"}}, "data": {"size": size},
    })
}

const CONFIGURED: &str = "with binding 'b' denied request: failed to configure binding: ";

/// The policy holds sizes to those of its parameters. The request is a large object in namespace `ns`.
#[rstest]
#[case::by_name(json!({"name": "large"}), None)]
#[case::by_name_and_refused(json!({"name": "small"}), Some("with binding 'b' denied request: only small"))]
#[case::in_a_namespace(json!({"name": "medium", "namespace": "other"}), Some("with binding 'b' denied request: only medium"))]
#[case::in_another_than_that_of_the_request(json!({"name": "medium", "parameterNotFoundAction": "Allow"}), None)]
#[case::all_of_them(json!({"selector": {"matchLabels": {"of": "p"}}}), Some("with binding 'b' denied request: only small"))]
#[case::all_of_none(json!({"selector": {"matchLabels": {"of": "q"}}}), None)]
#[case::every_one(json!({"selector": {}}), Some("with binding 'b' denied request: only small"))]
#[case::missing_and_needed(
    json!({"name": "huge", "parameterNotFoundAction": "Deny"}),
    Some("no params found for policy binding with `Deny` parameterNotFoundAction")
)]
fn parameters(
    #[case] reference: Value,
    #[case] refused: Option<&str>,
    #[values("Deny", "Warn")] action: &str,
) {
    let members = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    let validation = json!({
        "expression": "object.metadata.labels.size == params.data.size && params.kind == 'ConfigMap'",
        "messageExpression": "'only ' + params.data.size",
    });
    let bound = json!({"paramRef": reference, "validationActions": [action]});
    let world = world(policy(validation, members), [binding("b", bound)]);
    for (namespace, name) in [("ns", "large"), ("ns", "small"), ("other", "medium")] {
        let mut object = parameter(namespace, name, name);
        object["kind"] = json!("ConfigMap");
        world.put("", "configmaps", object);
    }
    let answer = ask(&world, &create(config_map(json!({"size": "large"}))));
    let is_found = refused.is_none_or(|text| text.contains("only"));
    match (refused, action) {
        (None, _) => assert_eq!(answer.unwrap(), Vec::<String>::new()),
        (Some(_), "Warn") if is_found => assert_eq!(answer.unwrap().len(), 1),
        (Some(text), _) => {
            let message = answer.unwrap_err().message;
            assert!(message.ends_with(text), "{message}");
            assert_eq!(message.contains(CONFIGURED), !is_found, "{message}");
        }
    }
}

#[rstest]
#[case::of_an_unknown_kind(
    json!({"apiVersion": "x.io/v1", "kind": "Size"}), json!({"name": "a"}),
    Some("ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource \
          referenced by paramKind: 'x.io/v1, Kind=Size'")
)]
#[case::of_an_unknown_kind_of_the_core(
    json!({"apiVersion": "v1", "kind": "Size"}), json!({"name": "a"}), Some("paramKind: '/v1, Kind=Size'")
)]
#[case::of_no_namespace_in_one(
    json!({"apiVersion": "v1", "kind": "Node"}), json!({"name": "a", "namespace": "ns"}),
    Some("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
)]
#[case::not_referred_to(json!({"apiVersion": "v1", "kind": "ConfigMap"}), Value::Null, None)]
#[case::referred_to_for_nothing(Value::Null, json!({"name": "a"}), None)]
fn parameters_that_are_configured_wrongly(
    #[case] kind: Value,
    #[case] reference: Value,
    #[case] refused: Option<&str>,
    #[values("Fail", "Ignore")] failure_policy: &str,
) {
    let expression = if kind.is_null() { "true" } else { "params == null" };
    let members = json!({"paramKind": kind, "failurePolicy": failure_policy});
    let policy = policy(json!({"expression": expression}), members);
    let world = world(policy, [binding("b", json!({"paramRef": reference}))]);
    let said = refusal(&world);
    match refused {
        Some(text) if failure_policy == "Fail" => assert!(said.as_ref().unwrap().contains(text), "{said:?}"),
        _ => assert_eq!(said, None),
    }
}

#[test]
fn parameters_of_a_namespace_need_one() {
    let members = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    let bound = binding("b", json!({"paramRef": {"name": "large"}}));
    let world = world(policy(json!({"expression": "true"}), members), [bound]);
    let mut attributes = create(config_map(json!({})));
    attributes.namespace.clear();
    let said = ask(&world, &attributes).unwrap_err().message;
    let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
    assert!(said.ends_with(&format!("{CONFIGURED}{why}")), "{said}");
}

/// Nothing is written, and an annotation that cannot be made refuses the request all the same.
#[rstest]
#[case::a_text("'size ' + object.metadata.labels.size", None)]
#[case::nothing("null", None)]
#[case::fails("object.nothing", Some(("Fail", "no such key: nothing")))]
#[case::another_type("1", Some(("", "unsupported return type: int. Return type must be either string or null.")))]
fn annotations_of_an_audit(
    #[case] expression: &str,
    #[case] refused: Option<(&str, &str)>,
    #[values("Fail", "Ignore")] failure_policy: &str,
) {
    let annotation = json!({"key": "k", "valueExpression": expression});
    let members = json!({"auditAnnotations": [annotation], "failurePolicy": failure_policy});
    let warns = binding("b", json!({"validationActions": ["Warn"]}));
    let world = world(policy(json!({"expression": "true"}), members), [warns]);
    let said = refusal(&world);
    match refused {
        Some((only, text)) if only.is_empty() || only == failure_policy => {
            assert!(said.as_ref().unwrap().ends_with(text), "{said:?}");
        }
        _ => assert_eq!(said, None),
    }
}

#[test]
fn a_namespace_is_in_no_namespace() {
    let mut one = policy(json!({"expression": "namespaceObject == null"}), json!({}));
    one["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = json!(["namespaces"]);
    let world = bound(one);
    let mut attributes = create(json!({"metadata": {"name": "ns"}}));
    attributes.gvk.kind = "Namespace".to_owned();
    attributes.gvr.resource = "namespaces".to_owned();
    assert_eq!(ask(&world, &attributes).unwrap(), Vec::<String>::new());
}

/// Loops within loops over a long list end before they begin.
#[rstest]
#[case::one_loop("object.data.all(x, x == 1)", true)]
#[case::two("object.data.all(x, object.data.all(y, x == y))", true)]
#[case::three("object.data.all(x, object.data.all(y, object.data.all(z, x == z)))", false)]
fn evaluation_is_bounded(#[case] expression: &str, #[case] passes: bool) {
    let world = bound(policy(json!({"expression": expression}), json!({})));
    let mut object = config_map(json!({}));
    object["data"] = json!(vec![1; 200]);
    let refusal = ask(&world, &create(object)).err().map(|error| error.message);
    assert_eq!(refusal.is_none(), passes);
    assert!(refusal.is_none_or(|text| text.ends_with("operation cancelled: actual cost limit exceeded")));
}
