use super::*;
use crate::fleet::directory::MailboxReader;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ApiServer, api_server, eventually};
use k8s_openapi::api::core::v1::PodCondition;
use kube::Api;
use tokio::sync::mpsc;

const DEADLINE: Duration = Duration::from_secs(30);

struct Bench {
    api: ApiServer,
    writers: Writers,
    handle: Arc<Handle>,
    mailbox: MailboxReader,
    _stop: tokio_util::sync::DropGuard,
}

impl Bench {
    fn new() -> Self {
        let (handle, mailbox) = Handle::new(1, "node".into());
        let stop = CancellationToken::new();
        Self {
            api: api_server(),
            writers: Writers::start(4, Metrics::default(), stop.clone()),
            handle,
            mailbox,
            _stop: stop.drop_guard(),
        }
    }

    fn client(&self) -> Arc<Client> {
        Arc::new(self.api.client())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.api.client(), "default")
    }

    async fn pod(&self, name: &str, more: Value) -> PodId {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"nodeName": "node", "containers": [{"name": "app", "image": "i"}]}});
        json_patch::merge(&mut pod, &more);
        let made = serde_json::from_value(pod).unwrap();
        let made = self.pods().add(&made).await;
        PodId {
            uid: made.metadata.uid.unwrap().into(),
            namespace: "default".into(),
            name: name.into(),
            node: "node".into(),
        }
    }

    fn post(&self, pod: &PodId, status: Value) {
        let status: PodStatus = serde_json::from_value(status).unwrap();
        self.writers.post(pod, &self.client(), &self.handle, &status);
    }

    async fn told(&mut self) -> (Arc<str>, Input) {
        match tokio::time::timeout(DEADLINE, self.mailbox.recv()).await {
            Ok(Some(Message::Told(uid, input))) => (uid, *input),
            other => panic!("{other:?}"),
        }
    }

    async fn status(&self, name: &str) -> PodStatus {
        self.pods().get(name).await.unwrap().status.unwrap()
    }
}

#[tokio::test]
async fn a_status_is_written_and_what_others_wrote_stays() {
    let mut bench = Bench::new();
    let pod = bench.pod("web", json!({})).await;
    let gate = json!({"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}});
    bench
        .pods()
        .patch_status("web", &kube::api::PatchParams::default(), &Patch::Strategic(gate))
        .await
        .unwrap();
    bench.post(
        &pod,
        json!({"phase": "Running", "message": "m", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
            "hostIP": "10.9.9.9", "hostIPs": [{"ip": "10.9.9.9"}], "conditions": [{"type": "Ready", "status": "False", "reason": "r", "message": "m"}]}),
    );
    let (uid, input) = bench.told().await;
    assert_eq!(uid, pod.uid);
    let found = bench.pods().get("web").await.unwrap();
    assert_eq!(
        input,
        Input::Posted(Posted::Done(found.metadata.resource_version.unwrap()))
    );

    bench.post(
        &pod,
        json!({"phase": "Running", "podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}], "hostIP": "10.9.9.9", "hostIPs": [{"ip": "10.9.9.9"}],
            "conditions": [{"type": "Ready", "status": "True"}]}),
    );
    bench.told().await;
    let status = bench.status("web").await;
    // No address but the new one, no message any more, and both conditions.
    let ips: Vec<String> = status.pod_ips.into_iter().flatten().map(|ip| ip.ip).collect();
    assert_eq!(
        (ips, status.message, status.pod_ip.as_deref()),
        (vec!["10.0.0.2".to_owned()], None, Some("10.0.0.2"))
    );
    let mut conditions: Vec<PodCondition> = status.conditions.unwrap();
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    let conditions: Vec<_> = conditions
        .iter()
        .map(|condition| {
            let why = condition.reason.as_deref().or(condition.message.as_deref());
            (condition.type_.as_str(), condition.status.as_str(), why)
        })
        .collect();
    // Neither reason nor message of what was.
    assert_eq!(
        conditions,
        [("Ready", "True", None), ("example.com/gate", "True", None)]
    );
}

#[tokio::test]
async fn a_newer_pod_of_the_same_name_is_neither_written_nor_deleted() {
    let mut bench = Bench::new();
    let former = bench.pod("web", json!({})).await;
    let now = DeleteParams::default().grace_period(0);
    bench.pods().delete("web", &now).await.unwrap();
    bench.post(&former, json!({"phase": "Failed"}));
    assert_eq!(bench.told().await.1, Input::Posted(Posted::Overtaken));

    let newer = bench.pod("web", json!({})).await;
    bench.post(&former, json!({"phase": "Failed"}));
    assert_eq!(bench.told().await.1, Input::Posted(Posted::Overtaken));
    bench.writers.remove(&former, &bench.client(), &bench.handle);
    assert_eq!(bench.told().await.1, Input::Removed(true));
    let found = bench.pods().get("web").await.unwrap();
    assert_eq!(found.metadata.uid.as_deref(), Some(&*newer.uid));
    assert_ne!(found.status.unwrap().phase.as_deref(), Some("Failed"));
}

#[tokio::test]
async fn a_removal_comes_after_the_status_and_tells_of_finalizers() {
    let mut bench = Bench::new();
    let pod = bench
        .pod("held", json!({"metadata": {"finalizers": ["example.com/hold"]}}))
        .await;
    bench.post(&pod, json!({"phase": "Succeeded"}));
    bench.writers.remove(&pod, &bench.client(), &bench.handle);
    assert!(matches!(bench.told().await.1, Input::Posted(Posted::Done(_))));
    assert_eq!(bench.told().await.1, Input::Removed(false));
    assert_eq!(bench.status("held").await.phase.as_deref(), Some("Succeeded"));
    let release = json!({"metadata": {"finalizers": null}});
    bench.pods().merge("held", release).await;
    bench.writers.remove(&pod, &bench.client(), &bench.handle);
    assert_eq!(bench.told().await.1, Input::Removed(true));
}

/// An API server of which each request is answered by hand.
type Asked = mpsc::UnboundedReceiver<(String, tokio::sync::oneshot::Sender<u16>)>;

fn by_hand() -> (Arc<Client>, Asked) {
    let (ask, asked) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let ask = ask.clone();
        async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            let (answer, answered) = tokio::sync::oneshot::channel();
            ask.send((String::from_utf8(body.to_vec()).unwrap(), answer))
                .unwrap();
            let code = answered.await.unwrap();
            let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "code": code,
                "status": "Failure", "message": "not now", "reason": "ServiceUnavailable"});
            let body = kube::client::Body::from(body.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    (Arc::new(Client::new(service, "default")), asked)
}

fn id(uid: &str) -> PodId {
    PodId {
        uid: uid.into(),
        namespace: "default".into(),
        name: uid.into(),
        node: "node".into(),
    }
}

fn phase(phase: &str) -> PodStatus {
    PodStatus {
        phase: Some(phase.to_owned()),
        ..PodStatus::default()
    }
}

#[tokio::test(start_paused = true)]
async fn the_latest_status_wins_and_failures_are_repeated_with_it() {
    let (client, mut asked) = by_hand();
    let (handle, mailbox) = Handle::new(1, "node".into());
    let stop = CancellationToken::new();
    let writers = Writers::start(2, Metrics::default(), stop.clone());
    let pod = id("a");
    writers.post(&pod, &client, &handle, &phase("One"));
    let (body, answer) = asked.recv().await.unwrap();
    assert!(body.contains("One") && body.contains(r#""uid":"a""#), "{body}");
    // While it is written: nothing else is, and of these two only the later will be.
    writers.post(&pod, &client, &handle, &phase("Two"));
    writers.post(&pod, &client, &handle, &phase("Three"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(asked.try_recv().is_err());
    answer.send(503).unwrap();
    let (body, answer) = asked.recv().await.unwrap();
    assert!(body.contains("Three"), "{body}");
    answer.send(200).unwrap();
    assert!(
        matches!(mailbox.recv().await, Some(Message::Told(_, input)) if *input == Input::Posted(Posted::Done("7".to_owned())))
    );
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(asked.try_recv().is_err() && mailbox.try_recv().is_none());
    stop.cancel();
    writers.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_api_server_refuses_is_told_and_not_repeated() {
    let (client, mut asked) = by_hand();
    let (handle, mailbox) = Handle::new(1, "node".into());
    let writers = Writers::start(1, Metrics::default(), CancellationToken::new());
    for code in [403, 422] {
        writers.post(&id("bad"), &client, &handle, &phase("Bad"));
        asked.recv().await.unwrap().1.send(code).unwrap();
        let Some(Message::Told(_, input)) = mailbox.recv().await else {
            panic!("an answer")
        };
        assert_eq!(*input, Input::Posted(Posted::Refused("not now".to_owned())));
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(asked.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_written_hold_nobody_up_and_a_silent_server_is_asked_again() {
    let (client, mut asked) = by_hand();
    let (handle, mailbox) = Handle::new(1, "node".into());
    let writers = Writers::start(1, Metrics::default(), CancellationToken::new());
    writers.post(&id("bad"), &client, &handle, &phase("Bad"));
    let (_, answer) = asked.recv().await.unwrap();
    answer.send(500).unwrap();
    writers.post(&id("good"), &client, &handle, &phase("Good"));
    let (body, answer) = asked.recv().await.unwrap();
    assert!(body.contains("Good"), "{body}");
    answer.send(200).unwrap();
    assert!(matches!(mailbox.recv().await, Some(Message::Told(uid, _)) if &*uid == "good"));
    let (body, _silent) = asked.recv().await.unwrap();
    assert!(body.contains("Bad"), "{body}");
    let begun = Instant::now();
    let (body, answer) = asked.recv().await.unwrap();
    assert!(body.contains("Bad") && begun.elapsed() >= REQUEST, "{body}");
    // Forgotten while it is written: nobody is told, and nothing more is written.
    writers.forget(&"bad".into());
    answer.send(500).unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(asked.try_recv().is_err() && mailbox.try_recv().is_none());
}

#[tokio::test]
async fn many_pods_are_written_side_by_side() {
    let mut bench = Bench::new();
    let mut pods = Vec::new();
    for number in 0..50 {
        pods.push(bench.pod(&format!("web-{number}"), json!({})).await);
    }
    for pod in &pods {
        bench.post(pod, json!({"phase": "Running"}));
    }
    for _ in &pods {
        assert!(matches!(bench.told().await.1, Input::Posted(Posted::Done(_))));
    }
    let all_run = eventually("all statuses", DEADLINE, async || {
        let found = bench.pods().list(&Default::default()).await.unwrap();
        let runs =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        found.items.iter().all(runs).then_some(found.items.len())
    });
    assert_eq!(all_run.await, 50);
}
