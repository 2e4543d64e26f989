use super::*;
use crate::access::testing::Objects;
use crate::request::{Operation, UserInfo};
use evenkeel_kube_rules::gvk::{Gvk, Gvr};
use rstest::rstest;
use serde_json::json;

/// A request about `resource` of the core group in namespace `ns`.
fn request(operation: Operation, resource: &str, object: Value) -> Attributes {
    Attributes {
        operation,
        gvk: Gvk {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Any".to_owned(),
        },
        gvr: Gvr {
            group: String::new(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
        },
        subresource: String::new(),
        namespace: if resource == "nodes" {
            String::new()
        } else {
            "ns".to_owned()
        },
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        user: UserInfo::default(),
        object: Some(object),
        old_object: None,
        options: json!({}),
        dry_run: false,
    }
}

fn world() -> Objects {
    let named = |name: &str| json!({"metadata": {"name": name}});
    let mut ending = named("ending");
    ending["status"] = json!({"phase": "Terminating"});
    let account = |name: &str| json!({"metadata": {"name": name, "namespace": "ns"}});
    let mut silent = account("silent");
    silent["automountServiceAccountToken"] = json!(false);
    silent["imagePullSecrets"] = json!([{"name": "registry"}]);
    let mut critical = named("critical");
    critical["value"] = json!(2_000_001_000_i64);
    critical["preemptionPolicy"] = json!("Never");
    Objects::with([
        ("", "namespaces", named("ns")),
        ("", "namespaces", ending),
        ("", "serviceaccounts", account("default")),
        ("", "serviceaccounts", silent),
        ("scheduling.k8s.io", "priorityclasses", critical),
    ])
}

async fn admit(mut attributes: Attributes) -> ApiResult<Value> {
    let admission = Admission::new(
        &Options::default(),
        Arc::default(),
        Arc::new(Authorizer::new(true)),
    );
    admission.mutate(&mut attributes, &world(), &|_| {}).await?;
    Ok(attributes.object.unwrap())
}

async fn pod(pod: Value) -> ApiResult<Value> {
    admit(request(Operation::Create, "pods", pod)).await
}

fn plain() -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}})
}

#[tokio::test]
async fn a_plain_pod_gets_what_kubernetes_gives_it() {
    let pod = pod(plain()).await.unwrap();
    let spec = &pod["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    let volume = spec["volumes"][0]["name"].as_str().unwrap();
    assert!(
        volume.starts_with("kube-api-access-") && volume.len() == 21,
        "{volume}"
    );
    assert!(spec.get("initContainers").is_none(), "{spec}");
    assert_eq!(
        spec["containers"][0]["volumeMounts"],
        json!([{"name": volume, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
    );
    assert_eq!(
        spec["tolerations"],
        json!([
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ])
    );
    assert_eq!(
        (&spec["priority"], &spec["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
}

#[tokio::test]
async fn admitting_twice_changes_nothing_more() {
    let once = pod(plain()).await.unwrap();
    assert_eq!(pod(once.clone()).await.unwrap(), once);
}

#[rstest]
#[case::all_keys(json!([{"operator": "Exists"}]), 1)]
#[case::one_of_them(json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]), 2)]
#[case::any_effect(json!([{"key": "node.kubernetes.io/not-ready"}]), 2)]
#[case::another_effect(json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]), 3)]
#[case::something_else(json!([{"key": "k", "value": "v"}]), 3)]
#[tokio::test]
async fn own_tolerations_win(#[case] tolerations: Value, #[case] count: usize) {
    let mut object = plain();
    object["spec"]["tolerations"] = tolerations;
    assert_eq!(
        pod(object).await.unwrap()["spec"]["tolerations"]
            .as_array()
            .unwrap()
            .len(),
        count
    );
}

#[tokio::test]
async fn the_account_decides_about_its_token_unless_the_pod_does() {
    let mut object = plain();
    object["spec"]["serviceAccountName"] = json!("silent");
    let without = pod(object.clone()).await.unwrap();
    assert!(without["spec"]["volumes"].is_null());
    assert_eq!(without["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
    object["spec"]["automountServiceAccountToken"] = json!(true);
    assert!(pod(object).await.unwrap()["spec"]["volumes"].is_array());
}

#[tokio::test]
async fn a_container_with_a_mount_of_its_own_keeps_it() {
    let mut object = plain();
    let own = json!([{"name": "mine", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    object["spec"]["containers"][0]["volumeMounts"] = own.clone();
    let pod = pod(object).await.unwrap();
    assert_eq!(pod["spec"]["containers"][0]["volumeMounts"], own);
    assert!(pod["spec"]["volumes"].is_null());
}

#[tokio::test]
async fn a_mirror_pod_has_no_account() {
    let mut object = plain();
    object["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let mirror = pod(object.clone()).await.unwrap();
    assert!(mirror["spec"]["serviceAccountName"].is_null() && mirror["spec"]["volumes"].is_null());
    object["spec"]["serviceAccountName"] = json!("default");
    assert_eq!(pod(object).await.unwrap_err().code, 403);
}

#[rstest]
#[case::unknown_account(json!({"serviceAccountName": "none"}), "pods \"p\" is forbidden: error looking up service account ns/none: serviceaccount \"none\" not found")]
#[case::unknown_class(json!({"priorityClassName": "none"}), "pods \"p\" is forbidden: no PriorityClass with name none was found")]
#[case::a_priority_of_ones_own(json!({"priority": 7}), "pods \"p\" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name")]
#[tokio::test]
async fn pods_are_refused(#[case] spec: Value, #[case] message: &str) {
    let mut object = plain();
    object["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    assert_eq!(pod(object).await.unwrap_err().message, message);
}

#[tokio::test]
async fn a_priority_class_gives_number_and_policy() {
    let mut object = plain();
    object["spec"]["priorityClassName"] = json!("critical");
    let pod = pod(object).await.unwrap();
    assert_eq!(pod["spec"]["priority"], 2_000_001_000_i64);
    assert_eq!(pod["spec"]["preemptionPolicy"], "Never");
}

#[tokio::test]
async fn a_new_node_is_not_ready() {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    for spec in [json!({}), json!({"taints": [taint]})] {
        let node = admit(request(
            Operation::Create,
            "nodes",
            json!({"metadata": {"name": "n"}, "spec": spec}),
        ))
        .await;
        assert_eq!(node.unwrap()["spec"]["taints"], json!([taint]));
    }
}

#[rstest]
#[case::claim("persistentvolumeclaims", json!(["kubernetes.io/pvc-protection"]))]
#[case::volume("persistentvolumes", json!(["kubernetes.io/pv-protection"]))]
#[case::anything_else("configmaps", Value::Null)]
#[tokio::test]
async fn storage_in_use_is_protected(#[case] resource: &str, #[case] finalizers: Value) {
    let object = admit(request(
        Operation::Create,
        resource,
        json!({"metadata": {"name": "x"}}),
    ))
    .await
    .unwrap();
    assert_eq!(object["metadata"]["finalizers"], finalizers);
}

#[rstest]
#[case::create_where_it_ends("ending", Operation::Create, Some(403))]
#[case::update_where_it_ends("ending", Operation::Update, None)]
#[case::create_nowhere("nowhere", Operation::Create, Some(404))]
#[case::delete_nowhere("nowhere", Operation::Delete, None)]
#[tokio::test]
async fn objects_live_in_namespaces(
    #[case] namespace: &str,
    #[case] operation: Operation,
    #[case] code: Option<u16>,
) {
    let mut attributes = request(operation, "configmaps", json!({"metadata": {"name": "c"}}));
    attributes.namespace = namespace.to_owned();
    assert_eq!(admit(attributes).await.err().map(|error| error.code), code);
}

#[rstest]
#[case("default", Some(403))]
#[case("kube-system", Some(403))]
#[case("kube-public", Some(403))]
#[case("kube-node-lease", None)]
#[tokio::test]
async fn some_namespaces_stay(#[case] name: &str, #[case] code: Option<u16>) {
    let attributes = request(
        Operation::Delete,
        "namespaces",
        json!({"metadata": {"name": name}}),
    );
    assert_eq!(admit(attributes).await.err().map(|error| error.code), code);
}
