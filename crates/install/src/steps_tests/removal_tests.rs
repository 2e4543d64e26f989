//! What a removal takes away, what it leaves, and when it is refused.

use super::*;
use crate::objects::PART_OF;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Node;

#[tokio::test]
async fn nothing_is_left_after_it_was_removed() {
    let options = Options {
        namespace: "pier".to_owned(),
        ..Options::default()
    };
    let cluster = installed(&options).await;
    Box::pin(looked_after(&cluster, "pier", async {
    cluster
        .create::<Node>(json!({
            "metadata": {"name": "shore-1", "annotations": {"superedgehealth/node-health": "true", "theirs": "x"}},
            "spec": {"taints": [{"key": "evenkeel.io/dead", "effect": "NoSchedule"}, {"key": "theirs", "effect": "NoSchedule"}]},
        }))
        .await;
    let wrong = uninstall(&cluster.client, HOME, WAIT, &token())
        .await
        .unwrap_err();
    assert!(
        wrong.to_string().contains("installed in namespace pier, and not in evenkeel-system: say so with --namespace"),
        "{wrong}"
    );

    let told = uninstall(&cluster.client, "pier", WAIT, &token()).await.unwrap();
    assert!(
        told.contains("took Evenkeel's taints and annotations off Node shore-1"),
        "{told}"
    );
    assert_clean(&cluster, "pier").await;
    assert!(cluster.find::<Namespace>("pier").await.is_none());
    let node: Node = cluster.get("shore-1").await;
    let annotations = node.metadata.annotations.unwrap();
    assert_eq!(annotations.into_keys().collect::<Vec<_>>(), ["theirs"]);
    let taints = node.spec.unwrap().taints.unwrap();
        let keys: Vec<&str> = taints.iter().map(|taint| &*taint.key).collect();
        // The API server taints a new Node itself.
        assert_eq!(keys, ["theirs", "node.kubernetes.io/not-ready"]);
    assert!(cluster.list::<MutatingWebhookConfiguration>().await.is_empty());
    assert!(cluster.list::<ClusterRoleBinding>().await.iter().all(|binding| {
        !binding
            .metadata
            .name
            .as_deref()
            .unwrap_or_default()
            .starts_with("evenkeel")
    }));

    // What SuperEdge has put there, and whoever else calls a webhook so.
    let health = json!({"metadata": {"annotations": {"superedgehealth/node-health": "true"}}});
    cluster.merge::<Node>("shore-1", health).await;
    let theirs = json!({"metadata": {"name": "evenkeel"}});
    cluster.create::<MutatingWebhookConfiguration>(theirs).await;
    let told = uninstall(&cluster.client, "pier", WAIT, &token()).await.unwrap();
    assert_eq!(told, "Evenkeel is not installed on this cluster.\n");
    let node: Node = cluster.get("shore-1").await;
    assert!(node.metadata.annotations.unwrap().contains_key("superedgehealth/node-health"));
    assert_eq!(cluster.list::<MutatingWebhookConfiguration>().await.len(), 1);
    }))
    .await;
}

#[tokio::test]
async fn a_namespace_with_something_else_in_it_stays() {
    let cluster = installed(&Options::default()).await;
    Box::pin(looked_after(&cluster, HOME, async {
        let home = cluster.namespaced(HOME);
        home.until::<ServiceAccount>("default", "is there", |_| true)
            .await;
        home.create::<Pod>(
            json!({"metadata": {"name": "theirs"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}),
        )
        .await;
        let told = uninstall(&cluster.client, HOME, WAIT, &token()).await.unwrap();
        assert!(
            told.contains("namespace evenkeel-system stays, because it holds Pod theirs"),
            "{told}"
        );
        assert!(home.find::<Pod>("theirs").await.is_some());
        assert!(home.find::<Secret>(ROSTER_SECRET.0).await.is_none());

        // Where nothing is installed any more, what stands there is somebody else's.
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted", PART_OF.0: "theirs"});
        cluster
            .merge::<Namespace>(HOME, json!({"metadata": {"labels": labels}}))
            .await;
        home.create::<Secret>(json!({"metadata": {"name": ROSTER_SECRET.0}}))
            .await;
        let told = uninstall(&cluster.client, HOME, WAIT, &token()).await.unwrap();
        assert_eq!(told, "Evenkeel is not installed on this cluster.\n");
        let namespace: Namespace = cluster.get(HOME).await;
        let now = namespace.metadata.labels.unwrap();
        assert_eq!(now["pod-security.kubernetes.io/enforce"], "restricted");
        assert_eq!(now[PART_OF.0], "theirs");
        assert!(home.find::<Secret>(ROSTER_SECRET.0).await.is_some());
    }))
    .await;
}

#[tokio::test]
async fn controllers_that_do_not_stop_are_named() {
    let cluster = installed(&Options::default()).await;
    Box::pin(looked_after(&cluster, HOME, async {
    let pod = json!({
        "metadata": {"name": "controller-x", "labels": {"app.kubernetes.io/component": "controller", INSTALLATION: HOME}},
        "spec": {"containers": [{"name": "controller", "image": "evenkeel:0"}]},
    });
    let home = cluster.namespaced(HOME);
        home.until::<ServiceAccount>("default", "is there", |_| true).await;
        home.create::<Pod>(pod).await;
    let error = uninstall(&cluster.client, HOME, Duration::ZERO, &token())
        .await
        .unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("controller-x is still there; repeat `evenkeel uninstall`"),
        "{said}"
    );
    assert!(
        cluster.find::<ClusterRoleBinding>(CONTROLLER).await.is_some(),
        "it may still settle"
    );
    }))
    .await;
}

/// Whoever marks an object of their own so that it looks like one of an installation.
#[tokio::test]
async fn a_mark_on_something_elsewhere_is_worth_nothing() {
    let cluster = installed(&Options::default()).await;
    let theirs = cluster.namespaced("default");
    let labels = json!({INSTALLATION: HOME, "app.kubernetes.io/part-of": "evenkeel"});
    let map = json!({"metadata": {"name": "theirs", "labels": labels}, "data": {}});
    theirs.create::<ConfigMap>(map).await;
    let tenant = json!({"metadata": {"name": "tenant", "labels": {INSTALLATION: HOME}}});
    cluster.create::<Namespace>(tenant).await;
    let account = json!({"metadata": {"name": "theirs", "labels": labels}});
    theirs.create::<ServiceAccount>(account).await;
    Box::pin(looked_after(&cluster, HOME, async {
        uninstall(&cluster.client, HOME, WAIT, &token()).await.unwrap();
    }))
    .await;
    assert!(theirs.find::<ConfigMap>("theirs").await.is_some());
    assert!(theirs.find::<ServiceAccount>("theirs").await.is_some());
    let tenant: Namespace = cluster.get("tenant").await;
    assert!(tenant.metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn several_installations_are_named_and_one_of_them_can_be_removed() {
    let cluster = installed(&Options::default()).await;
    let stray = json!({
        "metadata": {"name": "stray", "labels": {INSTALLATION: "pier"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    });
    cluster.create::<ClusterRoleBinding>(stray).await;
    let error = upgraded(&cluster, &SettingArgs::default()).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let said = error.to_string();
    assert!(
        said.contains("in the namespaces evenkeel-system, pier: remove"),
        "{said}"
    );
    let found = crate::doctor::diagnose(&cluster.client).await.unwrap();
    assert!(found[0].problem.contains("evenkeel-system, pier"), "{found:?}");
    let wrong = uninstall(&cluster.client, "quay", WAIT, &token())
        .await
        .unwrap_err();
    assert!(
        wrong
            .to_string()
            .contains("evenkeel-system, pier, and not in quay"),
        "{wrong}"
    );
    let told = install(&cluster.client, &Options::default(), NO_WAIT, &token()).await;
    assert!(
        told.unwrap_err()
            .to_string()
            .contains("in namespace pier already")
    );
    uninstall(&cluster.client, "pier", WAIT, &token()).await.unwrap();
    let webhooks = cluster.list::<MutatingWebhookConfiguration>().await;
    assert_eq!(webhooks.len(), 1, "it is of the other one");
    upgraded(&cluster, &SettingArgs::default()).await.unwrap();
}

#[tokio::test]
async fn what_is_being_deleted_is_named_with_what_keeps_it() {
    let cluster = installed(&Options::default()).await;
    let policy = json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "FailoverPolicy",
        "metadata": {"name": "kept", "finalizers": ["theirs.example/x"]}, "spec": {},
    });
    cluster.create_any(policy).await;
    // The embedded API server does not wait for objects of the kind, and so needs something to wait for.
    let name = "failoverpolicies.evenkeel.io";
    let held = json!({"metadata": {"finalizers": ["theirs.example/y"]}});
    cluster.merge::<CustomResourceDefinition>(name, held).await;
    cluster.delete::<CustomResourceDefinition>(name).await;
    let why = "CustomResourceDefinition failoverpolicies.evenkeel.io is being deleted, and FailoverPolicy kept has the finalizer theirs.example/x";
    let error = upgraded(&cluster, &SettingArgs::default()).await.unwrap_err();
    assert!(error.to_string().starts_with(why), "{error}");
    assert_eq!(error.exit_code(), 2);
    Box::pin(looked_after(&cluster, HOME, async {
        let soon = Duration::from_secs(1);
        let said = uninstall(&cluster.client, HOME, soon, &token()).await.unwrap_err().to_string();
        let why = "failoverpolicies.evenkeel.io is still there: it is being deleted, and FailoverPolicy kept has the finalizer";
        assert!(said.contains(why), "{said}");
    }))
    .await;
}

#[tokio::test]
async fn whoever_may_not_remove_everything_removes_nothing() {
    let cluster = installed(&Options::default()).await;
    let reads = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]});
    let nodes = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]});
    let rest = json!({"apiGroups": ["", "apps", "apiextensions.k8s.io"], "resources": ["*"], "verbs": ["patch", "delete"]});
    for (user, rules, why) in [
        ("deckhand", json!([reads]), "you may not patch nodes: use"),
        (
            "mate",
            json!([reads, nodes]),
            "you may not patch deployments in namespace evenkeel-system: use",
        ),
        (
            "bosun",
            json!([reads, rest]),
            "you may not delete clusterroles: use",
        ),
    ] {
        cluster.grant(user, rules).await;
        let client = cluster.server().client_as(user, &["system:authenticated"]);
        let error = uninstall(&client, HOME, WAIT, &token()).await.unwrap_err();
        assert!(error.to_string().starts_with(why), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
    let deployment: Deployment = cluster.namespaced(HOME).get(CONTROLLER).await;
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
}

/// `doctor` names such remnants, and this command. The installation that is used goes on, and with it what it
/// has put on nodes.
#[tokio::test]
async fn remnants_of_another_namespace_take_nothing_off_nodes() {
    let cluster = installed(&Options::default()).await;
    let dead = json!({"key": "evenkeel.io/dead", "effect": "NoSchedule"});
    cluster
        .create::<Node>(json!({"metadata": {"name": "shore-1"}, "spec": {"taints": [dead]}}))
        .await;
    cluster
        .create::<ClusterRoleBinding>(json!({
            "metadata": {"name": "evenkeel-old", "labels": {INSTALLATION: "old"}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        }))
        .await;
    let told = uninstall(&cluster.client, "old", WAIT, &token()).await.unwrap();
    assert!(
        told.contains("what is on nodes stays: Evenkeel in namespace evenkeel-system may need it"),
        "{told}"
    );
    assert!(cluster.find::<ClusterRoleBinding>("evenkeel-old").await.is_none());
    let node: Node = cluster.get("shore-1").await;
    let taints = node.spec.unwrap().taints.unwrap();
    assert!(taints.iter().any(|taint| taint.key == "evenkeel.io/dead"));
}
