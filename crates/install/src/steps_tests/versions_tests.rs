//! Commands of other versions, and commands that meet each other.

use super::*;
use crate::install::is_newer;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Node;
use rstest::rstest;

const LABEL: &str = "app.kubernetes.io/version";

fn act() -> SettingArgs {
    SettingArgs {
        mode: Some(evenkeel_api::policy::ModePolicy::Act),
        ..SettingArgs::default()
    }
}

/// A command of this version (`None`: one that does not say it) has applied both workloads.
async fn applied_by(cluster: &Cluster, version: Option<&str>) {
    let home = cluster.namespaced(HOME);
    let label = json!({"metadata": {"labels": {LABEL: version}}});
    home.merge::<Deployment>(CONTROLLER, label.clone()).await;
    home.merge::<DaemonSet>(AGENT, label).await;
}

#[tokio::test]
async fn an_older_command_takes_nothing_away_unless_it_is_told_to() {
    let cluster = installed(&Options::default()).await;
    applied_by(&cluster, Some("99.0.1")).await;
    let role = cluster.get::<ClusterRole>(AGENT).await;
    let error = upgraded(&cluster, &act()).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let said = error.to_string();
    assert!(
        said.contains("version 99.0.1") && said.contains("--downgrade"),
        "{said}"
    );
    let now = cluster.get::<ClusterRole>(AGENT).await;
    assert_eq!(now.metadata.resource_version, role.metadata.resource_version);
    let act = act();
    let downgrade = Change {
        downgrade: true,
        ..change(&act)
    };
    upgrade(&cluster.client, downgrade, NO_WAIT, &token())
        .await
        .unwrap();
    let deployment = cluster.namespaced(HOME).get::<Deployment>(CONTROLLER).await;
    assert_eq!(
        deployment.metadata.labels.unwrap()[LABEL],
        env!("CARGO_PKG_VERSION")
    );
}

#[tokio::test]
async fn what_others_have_set_is_put_back_and_named() {
    let cluster = installed(&Options::default()).await;
    let others = json!({"spec": {"replicas": 5, "minReadySeconds": 9}});
    cluster
        .namespaced(HOME)
        .merge::<Deployment>(CONTROLLER, others)
        .await;
    let said = upgraded(&cluster, &act()).await.unwrap();
    let notes: Vec<&str> = said.lines().filter(|line| line.contains(" again (")).collect();
    assert_eq!(notes.len(), 1, "{said}");
    assert!(
        notes[0].starts_with(
            "note: Deployment evenkeel-system/evenkeel-controller has this version's spec.replicas again (conflict with "
        ),
        "{said}"
    );
    let deployment = cluster.namespaced(HOME).get::<Deployment>(CONTROLLER).await;
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    let again = upgraded(&cluster, &act()).await.unwrap();
    assert!(!again.contains(" again ("), "{again}");
}

#[tokio::test]
async fn where_the_version_changes_images_from_elsewhere_are_to_be_named() {
    let first = Options {
        image: "mirror/evenkeel:1".to_owned(),
        agent_image: "mirror/evenkeel-agent:1".to_owned(),
        ..Options::default()
    };
    let cluster = installed(&first).await;
    applied_by(&cluster, Some("0.0.1")).await;
    let error = upgraded(&cluster, &act()).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let said = error.to_string();
    assert!(
        said.contains("mirror/evenkeel:1") && said.contains("--image"),
        "{said}"
    );
    let named = SettingArgs {
        image: Some("mirror/evenkeel:2".to_owned()),
        ..act()
    };
    let said = upgraded(&cluster, &named).await;
    assert!(said.unwrap().contains("image mirror/evenkeel:2, mode act"));
}

/// Nobody knows which version the image has: what it may need stays, and is named.
#[tokio::test]
async fn what_an_unknown_version_may_need_stays_and_is_named() {
    let first = Options {
        image: "mirror/evenkeel:1".to_owned(),
        agent_image: "mirror/evenkeel-agent:1".to_owned(),
        ..Options::default()
    };
    let (cluster, act) = (installed(&first).await, act());
    upgraded(&cluster, &act).await.unwrap();
    applied_by(&cluster, None).await;
    let old = json!({"metadata": {"name": "evenkeel-old", "labels": {INSTALLATION: HOME}}, "rules": []});
    cluster.create::<ClusterRole>(old).await;
    let (said, ()) = tokio::join!(
        async {
            upgrade(&cluster.client, change(&act), WAIT, &token())
                .await
                .unwrap()
        },
        runs(&cluster),
    );
    assert!(
        said.contains("of an earlier version stays") && said.contains("ClusterRole evenkeel-old"),
        "{said}"
    );
    assert!(cluster.find::<ClusterRole>("evenkeel-old").await.is_some());
}

/// Somebody mends an installation while the command that began it still waits, which then fails.
#[tokio::test]
async fn a_command_that_fails_takes_nothing_away_from_one_that_went_on() {
    let cluster = Cluster::new();
    let home = cluster.namespaced(HOME);
    let failure = interrupted(&cluster, async || {
        home.until::<DaemonSet>(AGENT, "is there", |_| true).await;
        upgraded(&cluster, &act()).await.unwrap();
    });
    let said = failure.await.to_string();
    assert!(said.contains("another command has gone on"), "{said}");
    assert!(home.find::<Deployment>(CONTROLLER).await.is_some());
    assert!(home.find::<Secret>(ROSTER_SECRET.0).await.is_some());
    assert!(cluster.find::<ClusterRole>(AGENT).await.is_some());
}

/// Controllers that only observe have put nothing on nodes: what is there is SuperEdge's.
#[tokio::test]
async fn a_failed_installation_leaves_the_annotation_of_superedge() {
    let cluster = Cluster::new();
    let health = "superedgehealth/node-health";
    let node = json!({"metadata": {"name": "shore-1", "annotations": {health: "true"}}});
    cluster.create::<Node>(node).await;
    interrupted(&cluster, async || {}).await;
    let home = cluster.namespaced(HOME);
    assert!(home.find::<Deployment>(CONTROLLER).await.is_none());
    let node: Node = cluster.get("shore-1").await;
    assert_eq!(node.metadata.annotations.unwrap()[health], "true");
}

#[rstest]
#[case::the_same("0.1.0", false)]
#[case::a_build_of_the_same("0.1.0+dirty", false)]
#[case::on_the_way_to_it("0.1.0-rc.1", false)]
#[case::on_the_way_to_a_newer_one("0.2.0-rc.1", true)]
#[case::newer("0.1.1", true)]
#[case::of_two_digits("0.10.0", true)]
#[case::older("0.0.99", false)]
#[case::no_version("latest", false)]
fn which_version_is_newer_than_another_one(#[case] version: &str, #[case] newer: bool) {
    assert_eq!(is_newer(version, "0.1.0"), newer);
}

/// A condition, an action or a selector more takes something out of a policy. To apply it again keeps them.
#[tokio::test]
async fn policies_that_somebody_weakened_are_named_and_brought_back() {
    let cluster = installed(&Options::default()).await;
    let policies = async || {
        let found = crate::doctor::diagnose(&cluster.client).await.unwrap();
        let of_policies = found.into_iter().filter(|finding| finding.check == "policies");
        of_policies.map(|finding| finding.problem).collect::<Vec<_>>()
    };
    assert_eq!(policies().await, Vec::<String>::new());
    let name = "evenkeel-leases";
    let never = json!({"name": "never", "expression": "false"});
    let mut policy = json!(cluster.get::<ValidatingAdmissionPolicy>(name).await);
    policy["spec"]["matchConditions"]
        .as_array_mut()
        .unwrap()
        .push(never);
    let conditions = json!({"spec": {"matchConditions": policy["spec"]["matchConditions"]}, "metadata": {"labels": {"theirs": "x"}}});
    cluster.merge::<ValidatingAdmissionPolicy>(name, conditions).await;
    let nobody = json!({"matchLabels": {"nobody": "has-it"}});
    let elsewhere =
        json!({"spec": {"validationActions": ["Audit"], "matchResources": {"namespaceSelector": nobody}}});
    cluster
        .merge::<ValidatingAdmissionPolicyBinding>(name, elsewhere)
        .await;
    let selector = json!({"spec": {"matchConstraints": {"objectSelector": nobody}}});
    cluster
        .merge::<ValidatingAdmissionPolicy>("evenkeel-zonereport", selector)
        .await;
    let said = policies().await.join("\n");
    for weakened in [
        "ValidatingAdmissionPolicy evenkeel-zonereport, evenkeel-leases",
        "ValidatingAdmissionPolicyBinding evenkeel-leases",
    ] {
        assert!(said.contains(weakened), "{said}");
    }
    upgraded(&cluster, &SettingArgs::default()).await.unwrap();
    assert_eq!(policies().await, Vec::<String>::new());
    let policy = cluster.get::<ValidatingAdmissionPolicy>(name).await;
    assert_eq!(policy.metadata.labels.unwrap()["theirs"], "x");
}
