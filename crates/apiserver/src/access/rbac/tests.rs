use super::*;
use crate::access::testing::Objects;
use rstest::rstest;

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..UserInfo::default()
    }
}

/// `get apps/deployments/status ns/name`; group and subresource may be left out, `-` is none.
fn info(text: &str) -> RequestInfo {
    let words: Vec<&str> = text.split(' ').collect();
    if words[1].starts_with('/') {
        return RequestInfo {
            verb: words[0].to_owned(),
            path: words[1].to_owned(),
            ..RequestInfo::default()
        };
    }
    let (group, resource) = words[1].split_once(':').unwrap_or(("", words[1]));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (namespace, name) = words[2].split_once('/').unwrap();
    RequestInfo {
        is_resource: true,
        verb: words[0].to_owned(),
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        path: String::new(),
    }
}

fn allowed_by(rule: &Value, request: &str) -> bool {
    let rule: Rule = serde_json::from_value(rule.clone()).unwrap();
    rule.allows(&info(request))
}

#[rstest]
#[case::exact(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), "get pods ns/a", true)]
#[case::other_verb(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), "list pods ns/", false)]
#[case::other_group(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), "get metrics.k8s.io:pods ns/a", false)]
#[case::a_resource_is_not_its_subresource(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), "get pods/log ns/a", false)]
#[case::a_subresource_is_not_its_resource(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}), "get pods ns/a", false)]
#[case::subresource(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}), "get pods/log ns/a", true)]
#[case::subresource_of_all(json!({"verbs": ["update"], "apiGroups": ["*"], "resources": ["*/scale"]}), "update apps:deployments/scale ns/a", true)]
#[case::subresource_of_all_is_not_all(json!({"verbs": ["update"], "apiGroups": ["*"], "resources": ["*/scale"]}), "update apps:deployments ns/a", false)]
#[case::star_is_subresources_too(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}), "update apps:deployments/scale ns/a", true)]
#[case::named(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}), "get pods ns/a", true)]
#[case::another_name(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}), "get pods ns/b", false)]
#[case::names_do_not_list(json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}), "list pods ns/", false)]
#[case::path(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}), "get /healthz", true)]
#[case::path_below(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}), "get /healthz/etcd", false)]
#[case::path_prefix(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}), "get /healthz/etcd", true)]
#[case::path_prefix_needs_the_slash(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}), "get /healthz", false)]
#[case::all_paths(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}), "post /anything", true)]
#[case::paths_are_not_resources(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}), "get pods ns/a", false)]
#[case::resources_are_not_paths(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}), "get /healthz", false)]
fn rules(#[case] rule: Value, #[case] request: &str, #[case] expected: bool) {
    assert_eq!(allowed_by(&rule, request), expected);
}

fn role(kind: &str, namespace: &str, name: &str, rule: Value) -> (&'static str, &'static str, Value) {
    let resource = if kind == "Role" { "roles" } else { "clusterroles" };
    (
        GROUP,
        resource,
        json!({"metadata": {"name": name, "namespace": namespace}, "rules": [rule]}),
    )
}

fn binding(
    namespace: &str,
    name: &str,
    to: (&str, &str),
    subject: Value,
) -> (&'static str, &'static str, Value) {
    let resource = if namespace.is_empty() {
        "clusterrolebindings"
    } else {
        "rolebindings"
    };
    (
        GROUP,
        resource,
        json!({"metadata": {"name": name, "namespace": namespace}, "roleRef": {"kind": to.0, "name": to.1}, "subjects": [subject]}),
    )
}

fn world() -> Objects {
    let pods = |verb: &str| json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]});
    Objects::with([
        role("ClusterRole", "", "reader", pods("get")),
        role("Role", "a", "deleter", pods("delete")),
        binding(
            "",
            "all",
            ("ClusterRole", "reader"),
            json!({"kind": "Group", "name": "readers"}),
        ),
        binding(
            "a",
            "local",
            ("ClusterRole", "reader"),
            json!({"kind": "User", "name": "jane"}),
        ),
        binding(
            "a",
            "own",
            ("Role", "deleter"),
            json!({"kind": "ServiceAccount", "name": "robot"}),
        ),
        binding(
            "b",
            "foreign",
            ("Role", "deleter"),
            json!({"kind": "User", "name": "jane"}),
        ),
    ])
}

#[rstest]
#[case::cluster_wide("x", &["readers"], "get pods a/p", Ok("RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"reader\" to Group \"readers\""))]
#[case::a_cluster_role_in_one_namespace("jane", &[], "get pods a/p", Ok("RBAC: allowed by RoleBinding \"local/a\" of ClusterRole \"reader\" to User \"jane\""))]
#[case::not_in_another("jane", &[], "get pods c/p", Err(""))]
#[case::not_at_cluster_scope("jane", &[], "get pods /p", Err(""))]
#[case::an_account_of_the_bindings_namespace("system:serviceaccount:a:robot", &[], "delete pods a/p", Ok("RBAC: allowed by RoleBinding \"own/a\" of Role \"deleter\" to User \"system:serviceaccount:a:robot\""))]
#[case::a_role_that_is_not_there("jane", &[], "get pods b/p", Err("RBAC: role.rbac.authorization.k8s.io \"deleter\" not found"))]
#[case::masters("x", &["system:masters"], "delete nodes /n", Ok(""))]
#[case::a_user_is_not_a_group("readers", &[], "get pods a/p", Err(""))]
fn bindings(
    #[case] name: &str,
    #[case] groups: &[&str],
    #[case] request: &str,
    #[case] expected: Result<&str, &str>,
) {
    let decision = Authorizer::new(true).authorize(&user(name, groups), &info(request), &world());
    let got = if decision.allowed {
        Ok(decision.reason)
    } else {
        Err(decision.reason)
    };
    assert_eq!(got.as_deref().map_err(String::as_str), expected);
}

#[test]
fn a_change_of_a_binding_takes_effect_at_once() {
    let (authorizer, world) = (Authorizer::new(true), world());
    let ask = || {
        authorizer
            .authorize(&user("eve", &[]), &info("get pods a/p"), &world)
            .allowed
    };
    assert!(!ask());
    let (group, resource, object) = binding(
        "a",
        "eve",
        ("ClusterRole", "reader"),
        json!({"kind": "User", "name": "eve"}),
    );
    world.put(group, resource, object);
    assert!(ask());
    world.remove(group, resource, "a", "eve");
    assert!(!ask());
}

#[rstest]
#[case::list("list pods ns/", "pods is forbidden: User \"u\" cannot list resource \"pods\" in API group \"\" in the namespace \"ns\"", json!({"kind": "pods"}))]
#[case::named("get nodes /n", "nodes \"n\" is forbidden: User \"u\" cannot get resource \"nodes\" in API group \"\" at the cluster scope", json!({"name": "n", "kind": "nodes"}))]
#[case::subresource("patch apps:deployments/status ns/d", "deployments.apps \"d\" is forbidden: User \"u\" cannot patch resource \"deployments/status\" in API group \"apps\" in the namespace \"ns\"", json!({"name": "d", "group": "apps", "kind": "deployments"}))]
#[case::path("get /nope", "forbidden: User \"u\" cannot get path \"/nope\"", json!({}))]
fn refusals_are_worded_as_upstream(#[case] request: &str, #[case] message: &str, #[case] details: Value) {
    let error = Authorizer::new(true)
        .check(&user("u", &[]), &info(request), &Objects::default())
        .unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str(), error.details),
        (403, message, details)
    );
}

fn fresh_cluster() -> Objects {
    let store = Objects::default();
    for object in bootstrap_objects() {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let group = object["apiVersion"]
            .as_str()
            .unwrap()
            .split_once('/')
            .unwrap()
            .0
            .to_owned();
        let plural = if kind == "priorityclass" {
            "priorityclasses".to_owned()
        } else {
            format!("{kind}s")
        };
        store.put(&group, &plural, object);
    }
    store
}

#[rstest]
#[case::nobody_sees_health("system:anonymous", &["system:unauthenticated"], "get /healthz", true)]
#[case::nobody_sees_no_discovery("system:anonymous", &["system:unauthenticated"], "get /apis", false)]
#[case::everybody_discovers("jane", &["system:authenticated"], "get /openapi/v3/api/v1", true)]
#[case::everybody_asks_about_themselves("jane", &["system:authenticated"], "create authorization.k8s.io:selfsubjectaccessreviews /", true)]
#[case::and_no_more("jane", &["system:authenticated"], "list pods ns/", false)]
#[case::kubelets_renew_leases("system:node:n", &["system:nodes"], "update coordination.k8s.io:leases kube-node-lease/n", true)]
#[case::kubelets_do_not_delete_nodes("system:node:n", &["system:nodes"], "delete nodes /n", false)]
#[case::the_scheduler_binds("system:kube-scheduler", &[], "create pods/binding ns/p", true)]
#[case::the_node_controller_evicts("system:serviceaccount:kube-system:node-controller", &[], "delete pods ns/p", true)]
#[case::the_node_controller_marks("system:serviceaccount:kube-system:node-controller", &[], "patch pods/status ns/p", true)]
#[case::only_that_of_kube_system("system:serviceaccount:default:node-controller", &[], "delete pods ns/p", false)]
fn the_fresh_cluster_lets(
    #[case] name: &str,
    #[case] groups: &[&str],
    #[case] request: &str,
    #[case] expected: bool,
) {
    let decision = Authorizer::new(true).authorize(&user(name, groups), &info(request), &fresh_cluster());
    assert_eq!(decision.allowed, expected, "{}", decision.reason);
}

#[test]
fn aggregated_roles_hold_the_rules_of_those_they_select() {
    let store = fresh_cluster();
    let read = |name: &str| {
        let mut role = (*store.get(GROUP, "clusterroles", "", name).unwrap()).clone();
        aggregate(&mut role, &store);
        role["rules"].as_array().unwrap().len()
    };
    let own = |name: &str| {
        store.get(GROUP, "clusterroles", "", name).unwrap()["rules"]
            .as_array()
            .unwrap()
            .len()
    };
    let (view, edit, admin) = (
        own("system:aggregate-to-view") + own("system:aggregated-metrics-reader"),
        own("system:aggregate-to-edit"),
        own("system:aggregate-to-admin"),
    );
    assert!(view > 0 && edit > 0 && admin > 0);
    assert_eq!(
        (read("view"), read("edit"), read("admin")),
        (view, view + edit, view + edit + admin)
    );

    store.put(
        GROUP,
        "clusterroles",
        json!({"metadata": {"name": "mine", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [{"verbs": ["get"], "apiGroups": ["mine.io"], "resources": ["things"]}]}),
    );
    assert_eq!(read("admin"), view + edit + admin + 1);
    let (group, resource, object) = binding(
        "ns",
        "v",
        ("ClusterRole", "view"),
        json!({"kind": "User", "name": "jane"}),
    );
    store.put(group, resource, object);
    assert!(
        Authorizer::new(true)
            .authorize(&user("jane", &[]), &info("get mine.io:things ns/t"), &store)
            .allowed
    );
}

#[test]
fn roles_that_select_each_other_end() {
    let label = |name: &str, selects: &str| {
        (
            GROUP,
            "clusterroles",
            json!({"metadata": {"name": name, "labels": {"is": name}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"is": selects}}]}}),
        )
    };
    let store = Objects::with([label("a", "b"), label("b", "a")]);
    let mut role = (*store.get(GROUP, "clusterroles", "", "a").unwrap()).clone();
    aggregate(&mut role, &store);
    assert_eq!(role["rules"], json!([]));
}
