//! Helm against the lab.

use crate::support::Lab;
use evenkeel_testkit::interop::{build_helm, source};
use evenkeel_testkit::skipped;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use std::path::Path;

const NAMESPACE: &str = "port";

/// The release `sea` of the chart, and what it has brought.
struct Release {
    lab: Lab,
    helm: std::path::PathBuf,
    chart: String,
}

impl Release {
    fn helm(&self, line: &str) -> String {
        let line = line.replace("CHART", &self.chart);
        let arguments: Vec<&str> = line.split(' ').chain(["--namespace", NAMESPACE]).collect();
        self.lab.succeeds(&self.helm, &arguments)
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.lab.client.clone(), NAMESPACE)
    }

    fn boats(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("example.com", "v1", "Boat");
        let kind = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.lab.client.clone(), NAMESPACE, &kind)
    }

    /// Every object says what the values of this revision say, and the pods are there.
    async fn shows(&self, replicas: i32, color: &str) {
        let deployments: Api<Deployment> = Api::namespaced(self.lab.client.clone(), NAMESPACE);
        let deployment = deployments.get("sea").await.expect("the Deployment");
        let status = deployment.status.as_ref().expect("a status");
        assert_eq!(status.ready_replicas, Some(replicas), "Helm waited for them");
        let map = self.maps().get("sea").await.expect("the ConfigMap");
        assert_eq!(map.data.as_ref().expect("data")["color"], color);
        assert_eq!(map.data.as_ref().expect("data")["kubernetes"], "36");
        let boat = self.boats().get("sea").await.expect("the custom resource");
        assert_eq!(boat.data["spec"]["color"], color);
        // Helm 4 applies on the server's side.
        let owners = map.managed_fields().iter();
        let owners: Vec<Option<&str>> = owners.map(|owner| owner.operation.as_deref()).collect();
        assert_eq!(owners, [Some("Apply")]);
    }

    /// How often a hook's pod has ended well: once, or not yet.
    async fn hook_succeeded(&self, name: &str) -> bool {
        let pods: Api<Pod> = Api::namespaced(self.lab.client.clone(), NAMESPACE);
        let pod = pods.get_opt(&format!("sea-{name}")).await.expect("an answer");
        pod.is_some_and(|pod| {
            let status = pod.status.expect("a status");
            status.phase.as_deref() == Some("Succeeded")
        })
    }

    fn history(&self) -> Vec<(i64, String)> {
        let history: Value = serde_json::from_str(&self.helm("history sea --output json")).expect("JSON");
        let revisions = history.as_array().expect("a list").iter();
        revisions
            .map(|one| {
                let status = one["status"].as_str().expect("a status").to_owned();
                (one["revision"].as_i64().expect("a number"), status)
            })
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_rolls_back_and_uninstalls() {
    let Some(go) = evenkeel_testkit::go() else {
        return skipped(
            "helm_installs_upgrades_rolls_back_and_uninstalls",
            "no go on PATH",
        );
    };
    let helm = build_helm(&go, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap_or_else(|why| panic!("{why}"));
    let release = Release {
        lab: Lab::start(2, 49).await,
        helm,
        chart: source("helm").join("chart").display().to_string(),
    };
    release.helm("install sea CHART --create-namespace --wait --timeout 2m");
    release.shows(1, "red").await;
    assert!(release.hook_succeeded("pre-install").await);
    assert!(!release.hook_succeeded("post-upgrade").await);

    release.helm("upgrade sea CHART --set replicas=3,color=blue --wait --timeout 2m");
    release.shows(3, "blue").await;
    assert!(release.hook_succeeded("post-upgrade").await);
    release.helm("test sea --timeout 2m");
    assert!(release.hook_succeeded("test").await);

    // The definition of the custom resource knows no green.
    let refused = release.lab.kubectl(
        &release.helm,
        &[
            "upgrade",
            "sea",
            &release.chart,
            "--set",
            "color=green",
            "--namespace",
            NAMESPACE,
        ],
    );
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("spec.color"), "{said}");

    release.helm("rollback sea 1 --wait --timeout 2m");
    release.shows(1, "red").await;
    let history: Vec<(i64, String)> = [
        (1, "superseded"),
        (2, "superseded"),
        (3, "failed"),
        (4, "deployed"),
    ]
    .map(|(revision, status)| (revision, status.to_owned()))
    .into();
    assert_eq!(release.history(), history);

    release.helm("uninstall sea --wait --timeout 2m");
    assert!(release.maps().get_opt("sea").await.expect("an answer").is_none());
    assert!(
        release
            .maps()
            .get_opt("sea-gone")
            .await
            .expect("an answer")
            .is_some(),
        "the hook before it"
    );
    // What a chart has under `crds` is not Helm's to delete.
    assert!(
        release
            .boats()
            .get_opt("sea")
            .await
            .expect("the kind is still served")
            .is_none()
    );
    assert_eq!(release.helm("list --output json").trim(), "[]");
}
