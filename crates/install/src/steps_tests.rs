//! Installation and upgrade on the embedded API server, whose workloads the tests play.

mod reach_tests;
mod removal_tests;
mod versions_tests;

use crate::cluster::Named;
use crate::error::InstallError;
use crate::install::{Change, all_parts, install, sight, upgrade};
use crate::objects::{AGENT, CONTROLLER, INSTALLATION, Options, ROSTER_SECRET, objects};
use crate::settings::SettingArgs;
use crate::uninstall::uninstall;
use evenkeel_testkit::cluster::{Cluster, Objects as _};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, NamespaceSpec, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const HOME: &str = "evenkeel-system";
const WAIT: Duration = Duration::from_secs(60);
const NO_WAIT: Duration = Duration::ZERO;

fn change(settings: &SettingArgs) -> Change<'_> {
    Change {
        settings,
        downgrade: false,
    }
}

fn token() -> CancellationToken {
    CancellationToken::new()
}

/// An upgrade with these settings that waits for nobody.
async fn upgraded(cluster: &Cluster, settings: &SettingArgs) -> Result<String, InstallError> {
    upgrade(&cluster.client, change(settings), NO_WAIT, &token()).await
}

/// How an installation ends that is told to stop once its Deployment is there and `meanwhile` is over.
async fn interrupted(cluster: &Cluster, meanwhile: impl AsyncFnOnce()) -> InstallError {
    let stop = token();
    let (outcome, ()) = tokio::join!(
        async { install(&cluster.client, &Options::default(), WAIT, &stop).await },
        async {
            let home = cluster.namespaced(HOME);
            home.until::<Deployment>(CONTROLLER, "is there", |_| true).await;
            meanwhile().await;
            stop.cancel();
        }
    );
    outcome.unwrap_err()
}

async fn installed(options: &Options) -> Cluster {
    let cluster = Cluster::new();
    let told = install(&cluster.client, options, NO_WAIT, &token())
        .await
        .unwrap();
    assert!(told.contains("is installed in namespace"), "{told}");
    cluster
}

/// What Kubernetes' own controllers do for a namespace: it gets the account `default`, and ends once it was
/// told to.
async fn look_after(cluster: &Cluster, namespace: &str) {
    loop {
        let home = cluster.namespaced(namespace);
        let patient = cluster.within(Duration::from_secs(600));
        patient.until::<Namespace>(namespace, "is there", |_| true).await;
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace},
        });
        home.create_any(account).await;
        let told = patient.until::<Namespace>(namespace, "is told to go", |namespace| {
            namespace.metadata.deletion_timestamp.is_some()
        });
        let mut told = told.await;
        told.spec = Some(NamespaceSpec {
            finalizers: Some(Vec::new()),
        });
        let request = http::Request::put(format!("/api/v1/namespaces/{namespace}/finalize"))
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&told).unwrap())
            .unwrap();
        cluster.client.request::<Namespace>(request).await.unwrap();
        cluster.gone::<Namespace>(namespace).await;
    }
}

/// Does `work` while the namespace is looked after.
async fn looked_after<T>(cluster: &Cluster, namespace: &str, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        () = look_after(cluster, namespace) => unreachable!("it goes on for ever"),
    }
}

/// Says of a workload that all of its pods run.
async fn runs(cluster: &Cluster) {
    let home = cluster.namespaced(HOME);
    let deployment = home.until::<Deployment>(CONTROLLER, "is there", |_| true).await;
    let generation = deployment.metadata.generation;
    let status = json!({"observedGeneration": generation, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2});
    home.api::<Deployment>().merge_status(CONTROLLER, status).await;
    let daemon_set = home.until::<DaemonSet>(AGENT, "is there", |_| true).await;
    let generation = daemon_set.metadata.generation;
    let status = json!({
        "observedGeneration": generation, "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberReady": 3,
        "numberMisscheduled": 0, "updatedNumberScheduled": 3, "numberAvailable": 3,
    });
    home.api::<DaemonSet>().merge_status(AGENT, status).await;
}

/// No object of an installation is there.
async fn assert_clean(cluster: &Cluster, namespace: &str) {
    let left = all_parts(&cluster.client, namespace, &objects(&Options::default()))
        .await
        .unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn an_installation_is_complete_and_its_key_is_in_one_secret_alone() {
    let cluster = Cluster::new();
    let (told, ()) = tokio::join!(
        async {
            install(&cluster.client, &Options::default(), WAIT, &token())
                .await
                .unwrap()
        },
        runs(&cluster),
    );
    assert!(
        told.contains("\n2 of 2 controllers run; 3 of 3 agents run\n"),
        "{told}"
    );
    assert!(told.contains("mode observe, profile builtin"), "{told}");
    let parts = all_parts(&cluster.client, HOME, &objects(&Options::default()))
        .await
        .unwrap();
    // The embedded API server does not share its time by priorities, and so does not know these kinds.
    assert!(
        told.contains("note: the API server has no FlowSchema: left out"),
        "{told}"
    );
    let all = objects(&Options::default());
    let shares = |object: &&serde_json::Value| object["apiVersion"] == "flowcontrol.apiserver.k8s.io/v1";
    assert_eq!(parts.len(), all.len() - all.iter().filter(shares).count());

    let home = cluster.namespaced(HOME);
    let secret: Secret = home.get(ROSTER_SECRET.0).await;
    let pem = String::from_utf8(secret.data.unwrap()[ROSTER_SECRET.1].0.clone()).unwrap();
    let key = evenkeel_zone::keys::SigningKey::from_pem(&pem).unwrap();
    let settings: ConfigMap = home.get("evenkeel-agent").await;
    let settings = &settings.data.unwrap()["agent.yaml"];
    assert!(settings.contains(&key.public().to_base64()), "{settings}");
    assert!(!settings.contains("PRIVATE") && !told.contains("PRIVATE"));
}

#[tokio::test]
async fn a_second_installation_is_refused_and_says_where_the_first_one_is() {
    let cluster = installed(&Options::default()).await;
    for namespace in [HOME, "pier"] {
        let options = Options {
            namespace: namespace.to_owned(),
            ..Options::default()
        };
        let error = install(&cluster.client, &options, NO_WAIT, &token())
            .await
            .unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("is installed in namespace evenkeel-system already"),
            "{said}"
        );
        assert!(said.ends_with("nothing was changed"), "{said}");
        assert_eq!(error.exit_code(), 2);
    }
    assert!(cluster.find::<Namespace>("pier").await.is_none());
}

#[tokio::test]
async fn a_namespace_that_somebody_else_uses_is_left_alone() {
    let cluster = Cluster::new();
    cluster
        .create::<Namespace>(json!({"metadata": {"name": HOME}}))
        .await;
    let map = json!({"metadata": {"name": "theirs"}, "data": {}});
    cluster.namespaced(HOME).create::<ConfigMap>(map).await;
    let error = install(&cluster.client, &Options::default(), NO_WAIT, &token())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "namespace evenkeel-system holds ConfigMap theirs, which is not of Evenkeel: choose another with --namespace; nothing was changed"
    );
    assert_clean(&cluster, HOME).await;
    cluster.namespaced(HOME).delete::<ConfigMap>("theirs").await;
    install(&cluster.client, &Options::default(), NO_WAIT, &token())
        .await
        .unwrap();
}

#[tokio::test]
async fn whoever_lacks_a_right_changes_nothing() {
    let cluster = Cluster::new();
    let anything_but_roles = json!([
        {"apiGroups": ["", "apps", "apiextensions.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]},
    ]);
    cluster.grant("deckhand", anything_but_roles).await;
    let deckhand = cluster.server().client_as("deckhand", &["system:authenticated"]);
    let error = install(&deckhand, &Options::default(), NO_WAIT, &token())
        .await
        .unwrap_err();
    let said = error.to_string();
    assert!(
        said.starts_with("you may not apply ClusterRole evenkeel-agent"),
        "{said}"
    );
    assert_eq!(error.exit_code(), 2);
    assert_clean(&cluster, HOME).await;
    assert!(cluster.find::<Namespace>(HOME).await.is_none());
}

#[tokio::test]
async fn a_rollout_is_followed_without_a_right_to_read_events() {
    let cluster = Cluster::new();
    let rights = json!([
        {"apiGroups": ["apps"], "resources": ["deployments", "daemonsets"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]);
    cluster.grant("deckhand", rights).await;
    let deckhand = cluster.server().client_as("deckhand", &["system:authenticated"]);
    let seen = sight(&deckhand, HOME).await.unwrap();
    assert!(seen.events.is_empty());
    let nobody = cluster.server().client_as("nobody", &["system:authenticated"]);
    assert!(sight(&nobody, HOME).await.is_err());
}

#[tokio::test]
async fn an_image_that_nobody_can_pull_undoes_everything() {
    let cluster = Cluster::new();
    Box::pin(looked_after(&cluster, HOME, async {
    let play = async {
        let home = cluster.namespaced(HOME);
        home.until::<DaemonSet>(AGENT, "is there", |_| true).await;
        let pod = json!({
            "metadata": {"name": "agent-x", "labels": {"app.kubernetes.io/component": "agent", INSTALLATION: HOME}},
            "spec": {"nodeName": "shore-1", "containers": [{"name": "agent", "image": "evenkeel-agent:0"}]},
        });
        home.until::<ServiceAccount>("default", "is there", |_| true).await;
        home.create::<Pod>(pod).await;
        let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}});
        let status = json!({"containerStatuses": [{
            "name": "agent", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": waiting,
        }]});
        home.pods().merge_status("agent-x", status).await;
    };
    let options = Options::default();
    let (outcome, ()) = tokio::join!(
        async { install(&cluster.client, &options, WAIT, &token()).await },
        play
    );
    let error = outcome.unwrap_err();
    let said = error.to_string();
    assert!(
        said.starts_with("shore-1 cannot pull image evenkeel-agent:0: not found; load it there"),
        "{said}"
    );
    assert!(
        said.ends_with("what this command had made was removed again"),
        "{said}"
    );
    assert_eq!(error.exit_code(), 1);
    cluster.within(WAIT).gone::<Namespace>(HOME).await;
    assert_clean(&cluster, HOME).await;
    }))
    .await;
}

#[tokio::test]
async fn an_interrupted_installation_takes_back_what_it_made_and_can_be_repeated() {
    let cluster = Cluster::new();
    Box::pin(looked_after(&cluster, HOME, async {
        let stop = token();
        let (outcome, ()) = tokio::join!(
            async { install(&cluster.client, &Options::default(), WAIT, &stop).await },
            async {
                cluster
                    .namespaced(HOME)
                    .until::<Deployment>(CONTROLLER, "is there", |_| true)
                    .await;
                stop.cancel();
            }
        );
        let error = outcome.unwrap_err();
        assert!(
            matches!(&error, InstallError::Undone(why, _) if matches!(**why, InstallError::Stopped(_))),
            "{error}"
        );
        cluster.within(WAIT).gone::<Namespace>(HOME).await;
        install(&cluster.client, &Options::default(), NO_WAIT, &token())
            .await
            .unwrap();
    }))
    .await;
}

#[tokio::test]
async fn an_upgrade_changes_what_it_is_told_and_keeps_the_rest() {
    let first = Options {
        image: "mirror/evenkeel:1".to_owned(),
        agent_image: "mirror/evenkeel-agent:1".to_owned(),
        zone_default: Some("shore".to_owned()),
        ..Options::default()
    };
    let cluster = installed(&first).await;
    let home = cluster.namespaced(HOME);
    let key = home.get::<Secret>(ROSTER_SECRET.0).await.data;
    // Something that only an earlier version had.
    let old = json!({"metadata": {"name": "evenkeel-old", "labels": {INSTALLATION: HOME}}, "rules": []});
    cluster.create::<ClusterRole>(old).await;
    let act = SettingArgs {
        mode: Some(evenkeel_api::policy::ModePolicy::Act),
        ..SettingArgs::default()
    };
    let early = upgraded(&cluster, &act).await.unwrap();
    assert!(
        !early.contains("removed"),
        "the former version may still run: {early}"
    );
    let (told, ()) = tokio::join!(
        async {
            upgrade(&cluster.client, change(&act), WAIT, &token())
                .await
                .unwrap()
        },
        runs(&cluster),
    );
    assert!(
        told.contains("removed ClusterRole evenkeel-old, which this version does not have"),
        "{told}"
    );
    assert!(
        told.contains("image mirror/evenkeel:1, mode act, profile builtin"),
        "{told}"
    );
    let (deployment, daemon_set) = (
        home.get::<Deployment>(CONTROLLER).await,
        home.get::<DaemonSet>(AGENT).await,
    );
    let usual = Options::default();
    let (now, unread) = crate::objects::options_of(&json!(deployment), &json!(daemon_set), &usual);
    let mode = "act".to_owned();
    assert_eq!(now, Options { mode, ..first });
    assert!(unread.is_empty(), "{unread:?}");
    assert_eq!(
        home.get::<Secret>(ROSTER_SECRET.0).await.data,
        key,
        "agents still trust it"
    );
}

#[tokio::test]
async fn an_upgrade_keeps_what_it_can_read_and_asks_for_the_rest() {
    let first = Options {
        image: "mirror/evenkeel:1".to_owned(),
        agent_image: "elsewhere/agent:1".to_owned(),
        mode: "act".to_owned(),
        zone_default: Some("shore".to_owned()),
        ..Options::default()
    };
    let cluster = installed(&first).await;
    let home = cluster.namespaced(HOME);
    home.delete::<Deployment>(CONTROLLER).await;
    let mut settings = SettingArgs {
        mode: Some(evenkeel_api::policy::ModePolicy::Act),
        image: Some("mirror/evenkeel:1".to_owned()),
        agent_image: Some("elsewhere/agent:1".to_owned()),
        controller_nodes: vec![None],
        ..SettingArgs::default()
    };
    let error = upgraded(&cluster, &settings).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let said = error.to_string();
    assert!(
        said.contains("namespace evenkeel-system") && said.contains("give --profile ("),
        "{said}"
    );
    assert!(home.find::<Deployment>(CONTROLLER).await.is_none());
    settings.profile = Some(evenkeel_api::policy::Profile::Builtin);
    upgraded(&cluster, &settings).await.unwrap();
    let deployment = json!(home.get::<Deployment>(CONTROLLER).await);
    let daemon_set = json!(home.get::<DaemonSet>(AGENT).await);
    let now = crate::objects::options_of(&deployment, &daemon_set, &Options::default());
    assert_eq!(now, (first, vec![]), "the agents had kept the zone");
}

#[tokio::test]
async fn definitions_that_are_older_or_missing_are_brought_up_to_date() {
    let cluster = Cluster::new();
    // Of a former version, applied by hand: it knows a field less.
    let field = "evictAfterSeconds";
    let definitions = objects(&Options::default());
    let mut older = definitions
        .into_iter()
        .find(|object| object["metadata"]["name"] == "failoverpolicies.evenkeel.io")
        .unwrap();
    older["metadata"]["labels"] = json!({});
    let schema = &mut older["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let fields = schema["properties"]["spec"]["properties"]
        .as_object_mut()
        .unwrap();
    assert!(fields.remove(field).is_some());
    cluster.create_any(older).await;
    let api = "evenkeel.io/v1alpha1";
    let policy = |name: &str| {
        json!({"apiVersion": api, "kind": "FailoverPolicy", "metadata": {"name": name},
            "spec": {"autonomySeconds": 5, field: 7}})
    };
    let spec = async |name: &str| {
        let found = Named::new(api, "FailoverPolicy", None, name)
            .get(&cluster.client)
            .await;
        let spec = &found.unwrap().unwrap()["spec"];
        (spec["autonomySeconds"].as_i64(), spec[field].as_i64())
    };
    cluster.create_any(policy("before")).await;
    assert_eq!(spec("before").await, (Some(5), None));

    let told = install(&cluster.client, &Options::default(), NO_WAIT, &token()).await;
    assert!(told.unwrap().contains("is installed"));
    assert_eq!(spec("before").await, (Some(5), None));
    cluster.create_any(policy("after")).await;
    assert_eq!(spec("after").await, (Some(5), Some(7)));

    let name = "nodeincidents.evenkeel.io";
    cluster.delete::<CustomResourceDefinition>(name).await;
    let told = upgraded(&cluster, &SettingArgs::default()).await;
    assert!(told.is_ok());
    assert!(cluster.find::<CustomResourceDefinition>(name).await.is_some());
}

#[tokio::test]
async fn what_is_not_installed_is_not_upgraded_and_does_not_move() {
    let cluster = Cluster::new();
    let error = upgraded(&cluster, &SettingArgs::default()).await.unwrap_err();
    assert!(error.to_string().contains("use `evenkeel install`"), "{error}");
    let cluster = installed(&Options::default()).await;
    let elsewhere = SettingArgs {
        namespace: Some("pier".to_owned()),
        ..SettingArgs::default()
    };
    let error = upgraded(&cluster, &elsewhere).await.unwrap_err();
    assert!(error.to_string().contains("uninstall it first"), "{error}");
}

#[tokio::test]
async fn a_namespace_that_was_there_before_stays_as_it_was_after_a_failure() {
    let cluster = Cluster::new();
    cluster
        .create::<Namespace>(json!({"metadata": {"name": HOME, "labels": {"theirs": "x"}}}))
        .await;
    interrupted(&cluster, async || {}).await;
    let namespace: Namespace = cluster.get(HOME).await;
    let labels = namespace.metadata.labels.unwrap();
    assert!(
        labels.contains_key("theirs") && !labels.contains_key(INSTALLATION),
        "{labels:?}"
    );
    assert!(
        labels.keys().all(|label| !label.starts_with("pod-security")),
        "{labels:?}"
    );
    let home = cluster.namespaced(HOME);
    assert!(home.find::<Secret>(ROSTER_SECRET.0).await.is_none());
    assert_clean(&cluster, HOME).await;
}

/// Everything of ours that was in the namespace before an installation that fails.
#[tokio::test]
async fn a_failed_installation_takes_back_exactly_what_it_made() {
    let cluster = Cluster::new();
    let pause = "evenkeel.io/pause";
    let labels =
        json!({"pod-security.kubernetes.io/enforce": "baseline", "app.kubernetes.io/part-of": "theirs"});
    let before = json!({"metadata": {"name": HOME, "labels": labels, "annotations": {pause: "theirs"}}});
    cluster.create::<Namespace>(before).await;
    let home = cluster.namespaced(HOME);
    let key = evenkeel_zone::keys::SigningKey::from_seed(&[7; 32]).unwrap();
    let secret = json!({"metadata": {"name": ROSTER_SECRET.0}, "stringData": {ROSTER_SECRET.1: key.to_pem().unwrap()}});
    let secret = home.create::<Secret>(secret).await.data;
    let definition = objects(&Options::default()).remove(0);
    let definition_name = definition["metadata"]["name"].as_str().unwrap().to_owned();
    let mut by_hand = definition;
    by_hand["metadata"]["labels"] = json!({"theirs": "x"});
    cluster.create_any(by_hand).await;
    let failure = interrupted(&cluster, async || {
        // What controllers make.
        home.create::<Secret>(json!({"metadata": {"name": "evenkeel-webhook"}}))
            .await;
        home.create::<Lease>(json!({"metadata": {"name": "evenkeel-controller"}}))
            .await;
    });
    let said = failure.await.to_string();
    assert!(
        said.ends_with("what this command had made was removed again"),
        "{said}"
    );
    let namespace: Namespace = cluster.get(HOME).await;
    let now = namespace.metadata.labels.unwrap();
    assert_eq!(now["pod-security.kubernetes.io/enforce"], "baseline");
    assert_eq!(now["app.kubernetes.io/part-of"], "theirs");
    assert!(!now.contains_key(INSTALLATION), "{now:?}");
    assert_eq!(namespace.metadata.annotations.unwrap()[pause], "theirs");
    assert_eq!(home.get::<Secret>(ROSTER_SECRET.0).await.data, secret);
    assert!(home.find::<Secret>("evenkeel-webhook").await.is_none());
    assert!(home.find::<ConfigMap>("evenkeel-agent").await.is_none());
    assert!(home.list::<Lease>().await.is_empty());
    let definition: CustomResourceDefinition = cluster.get(&definition_name).await;
    assert_eq!(
        definition
            .metadata
            .labels
            .unwrap()
            .into_keys()
            .collect::<Vec<_>>(),
        ["theirs"]
    );
    assert!(crate::preflight::homes(&cluster.client).await.unwrap().is_empty());
}

/// Its Leases and what else an interrupted installation has left is not of the one that fails.
#[tokio::test]
async fn what_an_earlier_installation_left_stays_after_a_failure_and_is_named() {
    let cluster = installed(&Options::default()).await;
    let home = cluster.namespaced(HOME);
    home.delete::<Deployment>(CONTROLLER).await;
    home.delete::<DaemonSet>(AGENT).await;
    cluster.delete::<ClusterRoleBinding>(CONTROLLER).await;
    home.create::<Lease>(json!({"metadata": {"name": "evenkeel-controller"}}))
        .await;
    let stop = token();
    stop.cancel();
    let said = install(&cluster.client, &Options::default(), WAIT, &stop)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        said.ends_with(
            "what was there before stays: `evenkeel uninstall --namespace evenkeel-system` removes it"
        ),
        "{said}"
    );
    assert!(home.find::<Lease>("evenkeel-controller").await.is_some());
    assert!(home.find::<Secret>(ROSTER_SECRET.0).await.is_some());
    let namespace: Namespace = cluster.get(HOME).await;
    assert_eq!(namespace.metadata.labels.unwrap()[INSTALLATION], HOME);
}

#[tokio::test]
async fn of_two_installations_at_once_one_is_refused() {
    let cluster = Cluster::new();
    let options = |namespace: &str| Options {
        namespace: namespace.to_owned(),
        ..Options::default()
    };
    let (pier, quay) = (options("pier"), options("quay"));
    let stop = token();
    let (pier, quay) = tokio::join!(
        install(&cluster.client, &pier, NO_WAIT, &stop),
        install(&cluster.client, &quay, NO_WAIT, &stop),
    );
    let refused: Vec<InstallError> = [pier, quay].into_iter().filter_map(Result::err).collect();
    assert!(!refused.is_empty(), "both have installed");
    // What was taken back is no installation, also while its namespace still ends.
    let homes = crate::preflight::homes(&cluster.client).await.unwrap();
    assert_eq!(homes.len(), 2 - refused.len(), "{homes:?}");
    for error in refused {
        assert!(
            error.to_string().contains(" already: change or mend it with"),
            "{error}"
        );
        assert_eq!(error.exit_code(), 2);
    }
}

#[tokio::test]
async fn a_namespace_that_changes_before_it_is_claimed_is_refused() {
    use crate::install::{Made, claim};
    let cluster = Cluster::new();
    let made = cluster
        .create::<Namespace>(json!({"metadata": {"name": HOME}}))
        .await;
    let claimed = async |before: Option<&Namespace>| {
        let mut made = Made::by(&Options::default());
        let claimed = claim(
            &cluster.client,
            HOME,
            before.map(|before| json!(before)),
            &mut made,
        )
        .await;
        claimed.map_err(|error| (error.exit_code(), error.to_string()))
    };
    let (code, said) = claimed(None).await.unwrap_err();
    assert!(
        said.contains("evenkeel-system was just made: does another `evenkeel install` run?"),
        "{said}"
    );
    assert_eq!(code, 2);
    cluster
        .merge::<Namespace>(HOME, json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    let (code, said) = claimed(Some(&made)).await.unwrap_err();
    assert!(said.contains("was just changed"), "{said}");
    assert_eq!(code, 2);
    let now = cluster.get::<Namespace>(HOME).await;
    claimed(Some(&now)).await.unwrap();
}

#[tokio::test]
async fn without_its_binding_an_installation_is_still_found_and_mended() {
    let cluster = installed(&Options::default()).await;
    cluster.delete::<ClusterRoleBinding>(CONTROLLER).await;
    upgraded(&cluster, &SettingArgs::default()).await.unwrap();
    assert!(cluster.find::<ClusterRoleBinding>(CONTROLLER).await.is_some());
}

/// A Deployment in a namespace of theirs and a mark on that namespace is all that a tenant can write.
#[tokio::test]
async fn a_tenant_cannot_pretend_an_installation() {
    let cluster = Cluster::new();
    let labels = json!({INSTALLATION: "tenant"});
    let tenant = json!({"metadata": {"name": "tenant", "labels": {INSTALLATION: HOME}}});
    cluster.create::<Namespace>(tenant).await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let deployment = json!({
        "metadata": {"name": CONTROLLER, "labels": labels},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    cluster
        .namespaced("tenant")
        .create::<Deployment>(deployment)
        .await;
    assert!(crate::preflight::homes(&cluster.client).await.unwrap().is_empty());
    let told = install(&cluster.client, &Options::default(), NO_WAIT, &token()).await;
    assert!(told.unwrap().contains("is installed"));
    let homes = crate::preflight::homes(&cluster.client).await.unwrap();
    assert_eq!(homes.into_iter().collect::<Vec<_>>(), [HOME]);
    let told = upgraded(&cluster, &SettingArgs::default()).await;
    assert!(told.unwrap().contains("in namespace evenkeel-system"));
}

/// What is left of an installation that was killed before its workloads: marks alone.
#[tokio::test]
async fn an_installation_without_workloads_can_be_repeated_and_is_an_error_to_the_doctor() {
    let cluster = installed(&Options::default()).await;
    let home = cluster.namespaced(HOME);
    home.delete::<Deployment>(CONTROLLER).await;
    let half = install(&cluster.client, &Options::default(), NO_WAIT, &token()).await;
    assert!(
        half.unwrap_err()
            .to_string()
            .contains("is installed in namespace")
    );
    home.delete::<DaemonSet>(AGENT).await;
    let found = crate::doctor::diagnose(&cluster.client).await.unwrap();
    let install_is_half = |finding: &crate::doctor::findings::Finding| {
        finding.check == "install"
            && finding
                .problem
                .contains("without Deployment evenkeel-controller and DaemonSet")
    };
    assert!(found.iter().any(install_is_half), "{found:#?}");
    let told = install(&cluster.client, &Options::default(), NO_WAIT, &token()).await;
    assert!(told.unwrap().contains("is installed in namespace"));
}

#[tokio::test]
async fn what_is_only_printed_is_checked_as_well() {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: crate::command::InstallArgs,
    }
    let line = ["evenkeel", "--dry-run", "--image", "a@sha256:0"];
    let args = <Cli as clap::Parser>::try_parse_from(line).unwrap().args;
    let error = crate::command::install(args, token()).await.unwrap_err();
    assert!(error.to_string().contains("give --agent-image"), "{error}");
}

#[tokio::test]
async fn keys_that_do_not_go_together_are_refused_before_anything_is_changed() {
    let cluster = installed(&Options::default()).await;
    let home = cluster.namespaced(HOME);
    home.delete::<Secret>(ROSTER_SECRET.0).await;
    let error = upgraded(&cluster, &SettingArgs::default()).await.unwrap_err();
    assert!(
        error.to_string().contains("bring it back, or delete ConfigMap"),
        "{error}"
    );
    assert_eq!(error.exit_code(), 2);
    let key = evenkeel_zone::keys::SigningKey::from_seed(&[7; 32]).unwrap();
    let secret = json!({"metadata": {"name": ROSTER_SECRET.0}, "stringData": {ROSTER_SECRET.1: key.to_pem().unwrap()}});
    home.create::<Secret>(secret).await;
    let error = upgraded(&cluster, &SettingArgs::default()).await.unwrap_err();
    assert!(error.to_string().contains(&key.public().to_base64()), "{error}");
    home.delete::<ConfigMap>("evenkeel-agent").await;
    upgraded(&cluster, &SettingArgs::default()).await.unwrap();
}

#[tokio::test]
async fn whoever_may_not_read_is_told_so_and_not_that_nothing_is_there() {
    let cluster = installed(&Options::default()).await;
    let nodes = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}]);
    cluster.grant("deckhand", nodes).await;
    let deckhand = cluster.server().client_as("deckhand", &["system:authenticated"]);
    let found = crate::doctor::diagnose(&deckhand).await.unwrap();
    let problem = "cannot tell whether Evenkeel is installed: cannot read objects of kind Namespace";
    assert_eq!(found[0].check, "install");
    assert!(found[0].problem.starts_with(problem), "{found:#?}");
    assert!(found[0].fix.contains("rights"), "{found:#?}");
    let rest: BTreeSet<&str> = found[1..].iter().map(|finding| finding.check).collect();
    assert_eq!(Vec::from_iter(rest), ["reading"], "{found:#?}");
}

/// What nobody runs is missing, and nothing else: definitions and policies are what this version applied.
#[tokio::test]
async fn a_diagnosis_names_what_does_not_run_and_nothing_more() {
    let cluster = installed(&Options::default()).await;
    let found = crate::doctor::diagnose(&cluster.client).await.unwrap();
    let checks: Vec<&str> = found.iter().map(|finding| finding.check).collect();
    assert_eq!(
        checks,
        ["controllers", "webhook", "webhook", "workloads", "mode"],
        "{found:#?}"
    );
}
