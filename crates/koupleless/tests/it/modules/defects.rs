//! What the released controller did wrong: see `docs/koupleless/upstream-cases.md`.

use super::world::{World, condition, is_starting, phase, restarts};
use evenkeel_api::names::koupleless::{MODULES, READY};
use evenkeel_koupleless::provider::Life;
use evenkeel_testkit::arklet::{Base, BizState, Jar, Start, Thrown};
use evenkeel_testkit::log::Log;
use evenkeel_testkit::until;
use evenkeel_vnode::Provider as _;
use evenkeel_vnode::core::volume::{TokenSource, Volumes};
use evenkeel_vnode::ownership::Term;
use evenkeel_vnode::provider::{Fault, Host, PodId, Report};
use futures::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::sync::{Arc, Mutex};

/// The base is looked at some more times: what is done by mistake has been done by then.
async fn looks(base: &Base, count: u64) {
    let asked = base.requests("queryAllBiz");
    until("further looks at the base", async || {
        base.requests("queryAllBiz") >= asked + count
    })
    .await;
}

fn failing() -> Jar {
    let thrown = Thrown::new("java.lang.IllegalStateException", "boom from bad");
    Jar::new("bad", "1").start(Start::Fails(thrown))
}

pub(super) async fn force_delete(world: &World, name: &str) {
    let now = DeleteParams::default().grace_period(0);
    world.api::<Pod>().delete(name, &now).await.unwrap();
}

async fn journal_is_empty(world: &World, node: &str) {
    world
        .until(node, "names no module", |node: &Node| {
            node.metadata.annotations.as_ref().unwrap()[MODULES] == "{}"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_until_its_module_has_started_and_is_ready_then() {
    let world = World::new().await;
    let url = world.jar(Jar::new("slow", "1").start(Start::Held));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("slow", "1", &url)]).await;
    is_starting(&base, "slow", "1").await;
    looks(&base, 2).await;
    let pod = world.until("p", "is there", |_: &Pod| true).await;
    assert_eq!((phase(&pod), condition(&pod, READY)), ("Pending", "False"));
    base.release(&url);
    let pod = world.ready::<Pod>("p").await;
    assert_eq!((phase(&pod), condition(&pod, READY)), ("Running", "True"));
    assert_eq!(base.requests("installBiz"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_with_one_module_that_does_not_serve_is_not_ready() {
    let world = World::new().await;
    let urls =
        [("m1", "1"), ("m2", "1"), ("m2", "2")].map(|(name, version)| world.jar(Jar::new(name, version)));
    let (base, node) = world.base("a").await;
    let group = [("m1", "1", &*urls[0]), ("m2", "1", &*urls[1])];
    world.pod("group", &node, &group).await;
    world.ready::<Pod>("group").await;
    world.pod("newer", &node, &[("m2", "2", &urls[2])]).await;
    world.ready::<Pod>("newer").await;
    let pod = world
        .until("group", "is not ready", |pod: &Pod| {
            condition(pod, "Ready") == "False" && condition(pod, READY) == "False"
        })
        .await;
    let ready = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    let ready: Vec<(&str, bool)> = ready.iter().map(|one| (&*one.name, one.ready)).collect();
    assert_eq!(ready, [("m1", true), ("m2", false)]);
    assert_eq!(base.state("m2", "1"), Some(BizState::Deactivated));
}

/// Defect 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_removed_by_force_after_a_failed_install_costs_one_uninstall() {
    let world = World::new().await;
    let url = world.jar(failing());
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("bad", "1", &url)]).await;
    world.pod_waits("p", "bad", "InstallFailed").await;
    force_delete(&world, "p").await;
    journal_is_empty(&world, &node).await;
    let installs = base.requests("installBiz");
    looks(&base, 10).await;
    assert_eq!(
        base.requests("uninstallBiz"),
        1,
        "the base says that there is none"
    );
    assert_eq!(base.requests("installBiz"), installs);
}

/// Defect 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_while_its_module_starts_asks_with_pauses_and_goes() {
    let world = World::new().await;
    let url = world.jar(Jar::new("slow", "1").start(Start::Held));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("slow", "1", &url)]).await;
    is_starting(&base, "slow", "1").await;
    world.delete::<Pod>("p").await;
    world
        .event(
            "p",
            "ProviderDeleteFailed",
            "module slow:1 could not be removed from base a",
        )
        .await;
    until("it is asked again", async || base.requests("uninstallBiz") >= 2).await;
    let asked: Vec<i64> = base
        .log()
        .into_iter()
        .filter(|request| request.command == "uninstallBiz")
        .map(|request| request.time)
        .collect();
    // The first pause is a second.
    assert!(asked.windows(2).all(|two| two[1] - two[0] >= 900), "{asked:?}");
    base.release(&url);
    world.gone::<Pod>("p").await;
    assert_eq!(base.modules(), []);
    assert_eq!(base.requests("installBiz"), 1);
}

/// Defect 8.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_was_there_becomes_the_pods_that_names_it() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    base.install_by_hand(&url).await;
    looks(&base, 5).await;
    // As a baseline has it: the pod comes later.
    world.pod("p", &node, &[("biz1", "1", &url)]).await;
    world.ready::<Pod>("p").await;
    assert_eq!(base.requests("uninstallBiz"), 0);
    world.delete::<Pod>("p").await;
    world.gone::<Pod>("p").await;
    assert_eq!(base.modules(), []);
}

/// Defect 8.
#[tokio::test(flavor = "multi_thread")]
async fn a_jar_of_another_name_is_not_installed_and_removed_without_end() {
    let world = World::new().await;
    let url = world.jar(Jar::new("other", "1"));
    let (base, node) = world.base("a").await;
    world
        .pod_with("p", &node, &[("biz1", "1", &url)], |pod| {
            pod["spec"]["restartPolicy"] = json!("Never");
        })
        .await;
    let pod = world
        .until("p", "has failed", |pod: &Pod| phase(pod) == "Failed")
        .await;
    assert_eq!(restarts(&pod, "biz1"), 0);
    looks(&base, 10).await;
    assert_eq!(base.modules(), []);
    assert_eq!(
        (base.requests("installBiz"), base.requests("uninstallBiz")),
        (1, 1)
    );
}

/// Defect 11.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_is_not_tried_any_more() {
    let world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    base.refuse().await;
    // Asked first what an earlier process has left of it.
    world.pod("p", &node, &[("biz1", "1", &url)]).await;
    world
        .event("p", "ProviderStatusFailed", "module biz1:1: base a")
        .await;
    world.delete::<Pod>("p").await;
    base.accept().await;
    world.gone::<Pod>("p").await;
    // From here on a new pod is a new one.
    base.refuse().await;
    world.pod("q", &node, &[("biz1", "1", &url)]).await;
    world.event("q", "Failed", "module biz1:1: base a").await;
    world.delete::<Pod>("q").await;
    world
        .event("q", "ProviderDeleteFailed", "module biz1:1: base a")
        .await;
    base.accept().await;
    world.gone::<Pod>("q").await;
    assert_eq!(base.requests("installBiz"), 0);
}

/// Defect 15.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_version_released_anew_outlives_the_pod_before() {
    let world = World::set(|_, http| http.uninstall = std::time::Duration::from_millis(300)).await;
    let url = world.jar(Jar::new("biz1", "1"));
    let again = "file:///opt/biz/again.jar";
    world.jars.put(again, Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    world
        .pod_with("old", &node, &[("biz1", "1", &url)], |pod| {
            pod["metadata"]["finalizers"] = json!(["example.com/keeps"]);
        })
        .await;
    world.ready::<Pod>("old").await;
    // The old one leaves slowly, and the new one is there before it has left.
    base.hang_on("uninstallBiz");
    world.delete::<Pod>("old").await;
    until("the old module is asked to go", async || {
        base.requests("uninstallBiz") > 0
    })
    .await;
    world.pod("new", &node, &[("biz1", "1", again)]).await;
    world
        .event(
            "new",
            "FailedCreatePodSandBox",
            "module biz1:1 on base a (127.0.0.1",
        )
        .await;
    let waiting = world.until("new", "is there", |_: &Pod| true).await;
    assert_eq!(phase(&waiting), "Pending", "it waits and does not fail");
    base.serve();
    world.ready::<Pod>("new").await;
    // The old object is still there, and changes.
    let asked = base.requests("uninstallBiz");
    let old = world.until("old", "is there", |_: &Pod| true).await;
    assert!(old.metadata.deletion_timestamp.is_some());
    for count in 0..3 {
        let change = json!({"metadata": {"labels": {"count": count.to_string()}}});
        patch(&world, "old", &change).await;
    }
    world.delete::<Pod>("old").await;
    looks(&base, 10).await;
    patch(&world, "old", &json!({"metadata": {"finalizers": null}})).await;
    world.gone::<Pod>("old").await;
    looks(&base, 5).await;
    assert_eq!(base.requests("uninstallBiz"), asked);
    let modules = base.modules();
    assert_eq!(modules.len(), 1);
    assert_eq!((&*modules[0].url, modules[0].state), (again, BizState::Activated));
}

async fn patch(world: &World, pod: &str, change: &serde_json::Value) {
    let how = PatchParams::default();
    world
        .pods()
        .patch(pod, &how, &Patch::Merge(change))
        .await
        .unwrap();
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().unwrap().taints.clone().unwrap_or_default();
    let ours = taints
        .into_iter()
        .filter(|taint| taint.key.contains("koupleless"));
    ours.map(|taint| format!("{}={}", taint.key, taint.value.unwrap_or_default()))
        .collect()
}

/// Defects 4, 5 and 17.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_taken_over_keeps_its_identity_its_taints_and_the_bases_address() {
    let mut world = World::new().await;
    let url = world.jar(Jar::new("biz1", "1"));
    let (base, node) = world.base("a").await;
    world.pod("p", &node, &[("biz1", "1", &url)]).await;
    let before = world.ready::<Pod>("p").await;
    let registered = world.until::<Node>(&node, "is there", |_| true).await;
    assert_eq!(taints(&registered).len(), 2);
    for _ in 0..2 {
        world.end().await;
        world.begin().await;
        looks(&base, 3).await;
    }
    let adopted = world.until::<Node>(&node, "is there", |_| true).await;
    assert_eq!(
        adopted.metadata.uid, registered.metadata.uid,
        "it was never deleted"
    );
    assert_eq!(taints(&adopted), taints(&registered));
    let after = world.ready::<Pod>("p").await;
    assert_eq!(since(&after), since(&before), "Ready never flapped");
    // Made anew, it is one that the API server takes.
    world.delete::<Node>(&node).await;
    let anew = world
        .until(&node, "was made anew", |node: &Node| {
            node.metadata.uid != registered.metadata.uid
        })
        .await;
    assert_eq!(taints(&anew), taints(&registered));
    world
        .pod(
            "later",
            &node,
            &[("biz2", "1", &world.jar(Jar::new("biz2", "1")))],
        )
        .await;
    let later = world.ready::<Pod>("later").await;
    assert_eq!(later.status.unwrap().pod_ip.as_deref(), Some("127.0.0.1"));
}

/// Since when a pod is ready.
fn since(pod: &Pod) -> Option<jiff::Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|one| one.type_ == "Ready")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Defects 19 and 22: what goes wrong is told with its base and module, what is in the environment is not.
#[tokio::test]
async fn values_of_the_environment_and_arguments_are_in_no_log_and_no_event() {
    let log = Log::from(tracing::Level::TRACE);
    let world = World::new().await;
    let url = world.jar(failing());
    let (base, node) = world.base("a").await;
    world
        .pod_with("p", &node, &[("bad", "1", &url)], |pod| {
            let container = &mut pod["spec"]["containers"][0];
            container["args"] = json!(["--password=hush-hush"]);
            let env = container["env"].as_array_mut().unwrap();
            env.push(json!({"name": "TOKEN", "value": "hush-hush"}));
        })
        .await;
    world.event("p", "Failed", "boom from bad").await;
    patch(&world, "p", &json!({"metadata": {"labels": {"changed": "yes"}}})).await;
    world.jars.put(&url, Jar::new("bad", "1"));
    world.ready::<Pod>("p").await;
    world.delete::<Pod>("p").await;
    world.gone::<Pod>("p").await;
    let sent = base
        .log()
        .iter()
        .any(|request| request.body.contains("hush-hush"));
    assert!(sent, "it went to the base");
    let told = log.with(&[
        "WARN",
        "install{",
        "pod=default/p",
        "base=a",
        "module=bad:1",
        "boom from bad",
    ]);
    assert!(!told.is_empty(), "{:#?}", log.warnings());
    let ours: Vec<String> = log
        .with(&["hush-hush"])
        .into_iter()
        .filter(|line| !line.contains("TRACE"))
        .collect();
    assert_eq!(ours, Vec::<String>::new());
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(world.client.clone(), "default");
    for event in events.list(&Default::default()).await.unwrap().items {
        assert!(!format!("{event:?}").contains("hush-hush"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_base_is_left_by_its_pods_and_how_many_are_there_is_told() {
    let world = World::new().await;
    let (_base, node, url) = world.running().await;
    let unlabelled = |pod: &mut serde_json::Value| pod["metadata"]["labels"] = json!({});
    world
        .pod_with("another", &node, &[("biz2", "1", &url)], unlabelled)
        .await;
    let provider = world.provider();
    assert_eq!(provider.evict(&node).await.unwrap(), None, "it lives");
    world.known.is(&node, Life::Lost("for a test".to_owned()));
    assert_eq!(provider.evict(&node).await.unwrap(), Some(1));
    until("no pod is left", async || {
        provider.evict(&node).await.unwrap() == Some(0)
    })
    .await;
    world.gone::<Pod>("p").await;
    let another = world.api::<Pod>().get("another").await.unwrap();
    assert!(another.metadata.deletion_timestamp.is_none(), "it is no module's");
}

/// A framework whose node has a module in its journal, with an API server that lists these pods, or none, and
/// refuses to delete the first.
struct Refusing {
    journal: String,
    pods: Option<Vec<Pod>>,
    deleted: Arc<Mutex<Vec<String>>>,
}

impl Host for Refusing {
    fn report(&self, _: Report) {}

    fn client(&self, _: &str) -> Option<kube::Client> {
        let (journal, pods, deleted) = (self.journal.clone(), self.pods.clone(), self.deleted.clone());
        let serve = move |request: Request<kube::client::Body>| {
            let status = |code: u16, message: &str| {
                json!({"kind": "Status", "apiVersion": "v1",
                "status": "Failure", "code": code, "reason": "InternalError", "message": message})
            };
            let path = request.uri().path();
            let (code, body) = if path.ends_with("/pods") {
                match &pods {
                    Some(pods) => (
                        200,
                        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}),
                    ),
                    None => (500, status(500, "etcd is away")),
                }
            } else if request.method() == "DELETE" {
                let mut deleted = deleted.lock().unwrap();
                deleted.push(path.rsplit('/').next().unwrap_or_default().to_owned());
                match deleted.len() {
                    1 => (400, status(400, "a webhook refuses it")),
                    _ => (200, json!(Pod::default())),
                }
            } else {
                let meta = json!({"name": "n", "annotations": {MODULES: journal}});
                (200, json!({"kind": "Node", "apiVersion": "v1", "metadata": meta}))
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let answer = Response::builder().status(code).body(body).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(answer))
        };
        Some(kube::Client::new(tower::service_fn(serve), "default"))
    }

    fn term(&self, _: &str) -> Option<Term> {
        Some(Term::default())
    }

    fn volumes<'a>(&'a self, _: &'a PodId) -> BoxFuture<'a, Result<Arc<Volumes>, Fault>> {
        async { Ok(Arc::default()) }.boxed()
    }

    fn token<'a>(&'a self, _: &'a PodId, _: &'a TokenSource) -> BoxFuture<'a, Result<Arc<str>, Fault>> {
        async { Ok("".into()) }.boxed()
    }
}

/// Defect 7, for the emptying of a base that is healed: a list that fails is not an empty one.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_pods_that_fails_removes_nothing() {
    let world = World::new().await;
    let (base, node, _) = world.running().await;
    let annotations = world.get::<Node>(&node).await.metadata.annotations.unwrap();
    let provider = world.another_provider();
    provider.connect(Arc::new(Refusing {
        journal: annotations[MODULES].clone(),
        pods: None,
        deleted: Arc::default(),
    }));
    let fault = provider.purge(&node).await.unwrap_err();
    assert!(fault.message.contains("etcd is away"), "{fault:?}");
    world.known.is(&node, Life::Lost("for a test".to_owned()));
    assert!(provider.evict(&node).await.is_err());
    assert_eq!(base.requests("uninstallBiz"), 0);
    assert_eq!(base.state("biz1", "1"), Some(BizState::Activated));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_serve_a_node_removes_nothing() {
    let mut world = World::new().await;
    let (base, node, _) = world.running().await;
    let provider = world.provider();
    assert_eq!(provider.purge(&node).await.unwrap(), 0);
    assert_eq!(base.requests("uninstallBiz"), 0, "its pod is there");
    // Whoever does not serve the node any more cannot list.
    world.end().await;
    let fault = provider.purge(&node).await.unwrap_err();
    assert!(fault.message.contains(&node), "{fault:?}");
    assert_eq!(base.requests("uninstallBiz"), 0);
    world.known.is(&node, Life::Lost("for a test".to_owned()));
    assert_eq!(provider.evict(&node).await.unwrap(), None);
    assert!(world.get::<Pod>("p").await.metadata.deletion_timestamp.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_be_deleted_keeps_no_other_on_a_lost_base() {
    let world = World::new().await;
    let (_base, node, _) = world.running().await;
    let pod = world.get::<Pod>("p").await;
    let mut other = pod.clone();
    other.metadata.name = Some("q".to_owned());
    let deleted = Arc::<Mutex<Vec<String>>>::default();
    let provider = world.another_provider();
    provider.connect(Arc::new(Refusing {
        journal: String::new(),
        pods: Some(vec![pod, other]),
        deleted: deleted.clone(),
    }));
    world.known.is(&node, Life::Lost("for a test".to_owned()));
    let fault = provider.evict(&node).await.unwrap_err();
    assert!(
        fault.message.contains("default/p: ") && fault.message.contains("a webhook refuses it"),
        "{fault:?}"
    );
    assert_eq!(*deleted.lock().unwrap(), ["p", "q"]);
}
