//! Which modules a base gets when it (re)starts, before any pod is scheduled to it.

use super::peer::{cluster_of, containers, is_peer};
use super::{Connection, Profile, module};
use evenkeel_arklet::ModuleId;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use std::collections::HashSet;

/// A module of the baseline, as a base reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BaselineEntry {
    /// Name of the module.
    pub biz_name: String,
    /// Version of the module.
    pub biz_version: String,
    /// Where its jar is.
    pub biz_url: String,
}

/// The baseline of the bases of one cluster: the containers of the peer Deployments of this environment and
/// cluster, the oldest Deployment first, each module once. Peers alone have a pod for every base: modules of
/// others would run where no pod ever comes, and nobody would remove them.
///
/// `cluster` is compared as the label of a base's node: what is no label value is cleaned first. Left out are
/// Deployments that are being deleted, and containers that are no modules.
pub fn baseline<'a>(
    deployments: impl IntoIterator<Item = &'a Deployment>,
    cluster: Option<&str>,
    env: &str,
    profile: &Profile,
) -> Vec<BaselineEntry> {
    let cluster = cluster.and_then(super::identity::label_value);
    let is_wanted = |deployment: &&Deployment| {
        let of = cluster_of(deployment);
        of.is_some() && of == cluster.as_deref() && is_peer(deployment, env)
    };
    let mut deployments: Vec<_> = deployments.into_iter().filter(is_wanted).collect();
    deployments.sort_by_cached_key(|deployment| {
        let created = deployment.creation_timestamp().map(|time| time.0);
        (created, deployment.namespace(), deployment.name_any())
    });
    let mut seen: HashSet<ModuleId> = HashSet::new();
    let modules = deployments.into_iter().flat_map(containers);
    modules
        .filter_map(|container| module::module(container, profile).ok())
        // A base holds a module of one name and version once: the oldest has it.
        .filter(|module| seen.insert(module.key.clone()))
        .map(|module| BaselineEntry {
            biz_name: module.key.name.clone(),
            biz_version: module.key.version.clone(),
            biz_url: module.url.to_string(),
        })
        .collect()
}

/// What is sent to a base that (re)started and asks for its baseline. `None`: nothing.
///
/// Over MQTT it is sent as one batch. Over HTTP bases never ask, and whoever serves the node installs what
/// its pods need anew.
pub fn replay(by: Connection, baseline: Vec<BaselineEntry>) -> Option<Vec<BaselineEntry>> {
    match by {
        Connection::Mqtt if !baseline.is_empty() => Some(baseline),
        Connection::Mqtt | Connection::Http(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::{KOUPLELESS, V2_DESIGN};
    use super::*;
    use serde_json::{Value, json};

    fn container(name: &str, version: &str, url: &str) -> Value {
        json!({"name": name, "image": url, "env": [{"name": "BIZ_VERSION", "value": version}]})
    }

    fn deployment(
        name: &str,
        created: i64,
        cluster: Option<&str>,
        replicas: i32,
        containers: Value,
    ) -> Deployment {
        let created = jiff::Timestamp::from_second(created).unwrap().to_string();
        let mut labels = json!({
            "virtual-kubelet.koupleless.io/component": "module-deployment",
            "virtual-kubelet.koupleless.io/env": "dev",
            "virtual-kubelet.koupleless.io/strategy": "peer",
        });
        if let Some(cluster) = cluster {
            labels["base.koupleless.io/cluster-name"] = json!(cluster);
        }
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "creationTimestamp": created, "labels": labels},
            "spec": {"replicas": replicas, "selector": {}, "template": {"spec": {"containers": containers}}},
        }))
        .unwrap()
    }

    fn labelled(mut deployment: Deployment, key: &str, value: &str) -> Deployment {
        deployment.labels_mut().insert(key.to_owned(), value.to_owned());
        deployment
    }

    fn names(deployments: &[Deployment], cluster: Option<&str>) -> Vec<String> {
        let entries = baseline(deployments, cluster, "dev", &KOUPLELESS);
        entries
            .iter()
            .map(|entry| format!("{}:{} {}", entry.biz_name, entry.biz_version, entry.biz_url))
            .collect()
    }

    #[test]
    fn the_oldest_comes_first_and_each_module_once() {
        let deployments = [
            deployment(
                "young",
                9,
                Some("c"),
                1,
                json!([container("b", "1", "http://h/b.jar")]),
            ),
            deployment(
                "old",
                1,
                Some("c"),
                1,
                json!([
                    container("z", "1", "http://h/z.jar"),
                    container("a", "1", "http://h/a.jar")
                ]),
            ),
            deployment(
                "copy",
                5,
                Some("c"),
                1,
                json!([
                    container("a", "1", "http://other/a.jar"),
                    container("a", "2", "http://h/a2.jar")
                ]),
            ),
        ];
        let expected = [
            "z:1 http://h/z.jar",
            "a:1 http://h/a.jar",
            "a:2 http://h/a2.jar",
            "b:1 http://h/b.jar",
        ];
        assert_eq!(names(&deployments, Some("c")), expected);
    }

    #[test]
    fn only_the_cluster_and_the_environment_count() {
        let one = || json!([container("a", "1", "http://h/a.jar")]);
        let env = "virtual-kubelet.koupleless.io/env";
        let of = |cluster| deployment("d", 1, cluster, 1, one());
        assert_eq!(names(&[of(Some("c"))], Some("c")).len(), 1);
        assert_eq!(names(&[of(Some("c"))], Some("d")).len(), 0);
        assert_eq!(names(&[of(Some("c"))], None).len(), 0);
        // A Deployment without cluster is left alone, as its replicas are.
        assert_eq!(names(&[of(None)], None).len(), 0);
        assert_eq!(names(&[of(None)], Some("c")).len(), 0);
        assert_eq!(names(&[labelled(of(Some("c")), env, "prod")], Some("c")).len(), 0);
        // As the label of the base's node has it.
        assert_eq!(names(&[of(Some("a-b"))], Some("a b")).len(), 1);
    }

    /// A base that has such a module and never gets a pod for it would run it for ever.
    #[test]
    fn what_has_no_pod_on_every_base_is_left_out() {
        let one = || json!([container("a", "1", "http://h/a.jar")]);
        let (strategy, opt_out) = (
            "virtual-kubelet.koupleless.io/strategy",
            "virtual-kubelet.koupleless.io/replicas-control",
        );
        let of = |replicas| deployment("d", 1, Some("c"), replicas, one());
        assert_eq!(names(&[labelled(of(1), strategy, "scale")], Some("c")).len(), 0);
        assert_eq!(names(&[labelled(of(1), opt_out, "true")], Some("c")).len(), 0);
        assert_eq!(names(&[of(0)], Some("c")).len(), 1, "no base is up yet");
    }

    #[test]
    fn what_is_no_module_is_left_out() {
        let containers = json!([
            {"name": "no-version", "image": "http://h/x.jar"},
            container("a", "1", "http://h/a.jar"),
            container("bare", "1", "bare.jar"),
        ]);
        let deployments = [deployment("d", 1, Some("c"), 1, containers)];
        let wanted = ["a:1 http://h/a.jar", "bare:1 bare.jar"];
        assert_eq!(names(&deployments, Some("c")), wanted);
        assert_eq!(baseline([], None, "dev", &V2_DESIGN), []);
    }

    #[test]
    fn it_is_written_as_bases_read_it() {
        let entry = BaselineEntry {
            biz_name: "a".to_owned(),
            biz_version: "1".to_owned(),
            biz_url: "http://h/a.jar".to_owned(),
        };
        assert_eq!(
            serde_json::to_value([&entry]).unwrap(),
            json!([{"bizName": "a", "bizVersion": "1", "bizUrl": "http://h/a.jar"}])
        );
        let all = vec![entry];
        assert_eq!(replay(Connection::Mqtt, all.clone()), Some(all.clone()));
        assert_eq!(replay(Connection::Http(1238), all), None);
        assert_eq!(replay(Connection::Mqtt, Vec::new()), None);
    }
}
