//! The nine cases of virtual-kubelet's suite, asked through the API server as it does; statistics also
//! without credentials.

use super::cluster::Cluster;
use evenkeel_kubelet_api::auth::Rules;
use evenkeel_testkit::objects::{phase, waits};
use evenkeel_testkit::{SOON, eventually, until};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use rstest::rstest;
use serde_json::{Value, json};

const NODE: &str = "virtual-7001";

fn containers(names: &[&str]) -> Value {
    let all: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "image": "registry.example.com/web:1"}))
        .collect();
    json!({"spec": {"containers": all}})
}

/// UIDs of the pods in an answer.
async fn uids(cluster: &Cluster, path: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(&cluster.ask(NODE, path).await).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned())
        .collect()
}

async fn runs(cluster: &Cluster, pod: &Pod) -> bool {
    uids(cluster, "runningpods/").await.contains(&pod.uid().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn get_pods() {
    let cluster = Cluster::new(&[NODE, "virtual-7002"]).await;
    let pod = cluster.pod("web", NODE, containers(&["foo"])).await;
    let other = cluster.pod("other", "virtual-7002", containers(&["foo"])).await;
    cluster.ready::<Pod>("web").await;
    cluster.ready::<Pod>("other").await;
    let text = cluster.ask(NODE, "pods").await;
    let list: Value = serde_json::from_str(&text).unwrap();
    for pod in list["items"].as_array().unwrap() {
        assert_eq!(pod["spec"]["nodeName"], NODE);
    }
    assert_eq!(uids(&cluster, "pods").await, [pod.uid().unwrap()]);
    let elsewhere = cluster.ask("virtual-7002", "pods").await;
    assert!(elsewhere.contains(&other.uid().unwrap()), "{elsewhere}");
    cluster.end().await;
}

/// Who asks for statistics: the API server, or the suite itself, which has no credentials.
#[derive(Clone, Copy)]
enum Asks {
    ApiServer,
    Nobody,
}

impl Asks {
    async fn cluster(self) -> Cluster {
        match self {
            Self::ApiServer => Cluster::new(&[NODE]).await,
            Self::Nobody => {
                let rules = Rules {
                    anonymous: true,
                    ..Rules::default()
                };
                let cluster = Cluster::serving(&[NODE], rules, |_| {}).await;
                let denied = cluster.ask_without_credentials(NODE, "stats/summary").await;
                assert_eq!(denied, Err(403), "nothing is granted yet");
                cluster
                    .grant_to_anonymous(&["nodes/stats", "nodes/metrics"])
                    .await;
                cluster
            }
        }
    }

    async fn ask(self, cluster: &Cluster, path: &str) -> String {
        match self {
            Self::ApiServer => cluster.ask(NODE, path).await,
            // That it was denied is remembered for 30 s, as a kubelet does.
            Self::Nobody => {
                eventually("it is granted", SOON, async || {
                    cluster.ask_without_credentials(NODE, path).await.ok()
                })
                .await
            }
        }
    }
}

#[rstest]
#[case::by_the_api_server(Asks::ApiServer)]
#[case::without_credentials(Asks::Nobody)]
#[tokio::test(flavor = "multi_thread")]
async fn get_stats_summary(#[case] who: Asks) {
    let cluster = who.cluster().await;
    let pod = cluster.pod("web", NODE, containers(&["foo", "bar", "baz"])).await;
    cluster.ready::<Pod>("web").await;
    let text = who.ask(&cluster, "stats/summary").await;
    let summary: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(summary["node"]["nodeName"], NODE);
    let mut pods = summary["pods"].as_array().unwrap().iter();
    let found = pods
        .find(|stats| stats["podRef"]["uid"] == json!(pod.uid().unwrap()))
        .unwrap();
    assert_eq!(found["podRef"]["name"], "web");
    assert_eq!(found["podRef"]["namespace"], "default");
    assert_eq!(found["containers"].as_array().unwrap().len(), 3, "{found}");
    cluster.end().await;
}

#[rstest]
#[case::by_the_api_server(Asks::ApiServer)]
#[case::without_credentials(Asks::Nobody)]
#[tokio::test(flavor = "multi_thread")]
async fn get_metrics_resource(#[case] who: Asks) {
    let cluster = who.cluster().await;
    cluster.pod("web", NODE, containers(&["foo", "bar", "baz"])).await;
    cluster.ready::<Pod>("web").await;
    let text = who.ask(&cluster, "metrics/resource").await;
    // The suite takes the second label, whatever its name, for the pod.
    let of = |family: &str| {
        let lines = text.lines().filter_map(|line| {
            let labels = line.strip_prefix(family)?.strip_prefix('{')?;
            labels.split_once('}').map(|(labels, _)| labels)
        });
        lines
            .filter(|labels| {
                labels
                    .split(',')
                    .nth(1)
                    .is_some_and(|label| label.contains("=\"web\""))
            })
            .count()
    };
    assert_eq!(of("pod_cpu_usage_seconds_total"), 1, "{text}");
    assert_eq!(of("container_cpu_usage_seconds_total"), 3, "{text}");
    cluster.end().await;
}

/// The pod goes, at the API server and at the provider; what was seen of it last.
async fn deleted(cluster: &Cluster, pod: &Pod, how: &DeleteParams) -> Pod {
    let last = cluster.last_seen(pod, how).await;
    until("the provider has it no more", async || !runs(cluster, pod).await).await;
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_lifecycle_graceful_delete() {
    let cluster = Cluster::new(&[NODE]).await;
    cluster.pod("web", NODE, containers(&["foo"])).await;
    let pod = cluster.ready::<Pod>("web").await;
    assert!(runs(&cluster, &pod).await);
    let last = deleted(&cluster, &pod, &DeleteParams::default()).await;
    assert!(last.metadata.deletion_grace_period_seconds.is_some());
    assert_eq!(phase(&last), "Succeeded");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_lifecycle_force_delete() {
    let cluster = Cluster::new(&[NODE]).await;
    cluster.pod("web", NODE, containers(&["foo"])).await;
    let pod = cluster.ready::<Pod>("web").await;
    assert!(runs(&cluster, &pod).await);
    let now = DeleteParams::default().grace_period(0);
    deleted(&cluster, &pod, &now).await;
    cluster.end().await;
}

fn refers(kind: &str, optional: bool) -> Value {
    let mut spec = containers(&["foo"]);
    spec["spec"]["containers"][0]["env"] =
        json!([{"name": "VALUE", "valueFrom": {kind: {"name": "none", "key": "k", "optional": optional}}}]);
    spec
}

#[rstest]
#[case::secret("secretKeyRef", "OptionalSecretNotFound")]
#[case::config_map("configMapKeyRef", "OptionalConfigMapNotFound")]
#[tokio::test(flavor = "multi_thread")]
async fn create_pod_with_optional_inexistent(#[case] kind: &str, #[case] reason: &str) {
    let cluster = Cluster::new(&[NODE]).await;
    cluster.pod("web", NODE, refers(kind, true)).await;
    let pod = cluster.ready::<Pod>("web").await;
    cluster.event("web", reason, "").await;
    assert!(runs(&cluster, &pod).await);
    cluster.end().await;
}

/// The provider may have made a sandbox for it, as for any kubelet's pod; nothing runs in it.
#[rstest]
#[case::secret("secretKeyRef", "MandatorySecretNotFound")]
#[case::config_map("configMapKeyRef", "MandatoryConfigMapNotFound")]
#[tokio::test(flavor = "multi_thread")]
async fn create_pod_with_mandatory_inexistent(#[case] kind: &str, #[case] reason: &str) {
    let cluster = Cluster::new(&[NODE]).await;
    let made = cluster.pod("web", NODE, refers(kind, false)).await;
    cluster.event("web", reason, "").await;
    let pod = cluster
        .until("web", "waits", |pod: &Pod| waits(pod, "foo").is_some())
        .await;
    assert_eq!(phase(&pod), "Pending");
    assert!(!runs(&cluster, &made).await);
    cluster.end().await;
}
