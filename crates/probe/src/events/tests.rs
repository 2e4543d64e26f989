use super::queue::Queue;
use super::*;
use crate::core::Kind;
use crate::core::Outcome;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ApiServer, Options, api_server, api_server_with, eventually};
use k8s_openapi::api::core::v1::Event as Object;
use kube::Api;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(30);

fn about(container: &str, role: Role) -> EventAbout {
    EventAbout {
        uid: "1f7a".into(),
        namespace: "default".into(),
        name: "web-0".into(),
        container: container.into(),
        role,
    }
}

fn unhealthy(output: &str) -> Event {
    Event::of(Kind::Readiness, &Outcome::failure(output)).unwrap()
}

fn source() -> Source {
    Source {
        component: "evenkeel-probe".to_owned(),
        host: "node-1".to_owned(),
    }
}

fn events(api: &ApiServer) -> Api<Object> {
    Api::namespaced(api.client(), "default")
}

async fn all(api: &ApiServer) -> Vec<Object> {
    events(api).list(&Default::default()).await.unwrap().items
}

/// Waits for `number` events of which the last has `count`.
async fn listed(api: &ApiServer, number: usize, count: i32) -> Vec<Object> {
    eventually("the events", DEADLINE, async || {
        let found = all(api).await;
        let counted = found.iter().any(|event| event.count == Some(count));
        (found.len() == number && counted).then_some(found)
    })
    .await
}

#[test]
fn the_container_is_named_as_kubernetes_does() {
    for (role, expected) in [
        (Role::Regular, "spec.containers{app}"),
        (Role::Sidecar, "spec.initContainers{app}"),
        (Role::Init, "spec.initContainers{app}"),
    ] {
        assert_eq!(about("app", role).field_path(), expected);
    }
}

#[tokio::test]
async fn an_event_becomes_an_object_about_the_pod_and_its_repetition_a_count() {
    let api = api_server();
    let sink = ApiSink::start(api.client(), source(), CancellationToken::new());
    sink.record(
        about("app", Role::Regular),
        unhealthy("HTTP probe failed with statuscode: 500"),
    );
    let made = listed(&api, 1, 1).await.remove(0);
    let (first, last) = (made.first_timestamp.clone(), made.last_timestamp.clone());
    assert!(first.is_some() && first == last, "{first:?} {last:?}");
    let object = &made.involved_object;
    assert_eq!(
        (
            object.kind.as_deref(),
            object.api_version.as_deref(),
            object.namespace.as_deref(),
            object.name.as_deref(),
            object.uid.as_deref(),
            object.field_path.as_deref(),
        ),
        (
            Some("Pod"),
            Some("v1"),
            Some("default"),
            Some("web-0"),
            Some("1f7a"),
            Some("spec.containers{app}")
        )
    );
    assert_eq!(made.type_.as_deref(), Some("Warning"));
    assert_eq!(made.reason.as_deref(), Some("Unhealthy"));
    assert_eq!(
        made.message.as_deref(),
        Some("Readiness probe failed: HTTP probe failed with statuscode: 500")
    );
    let told_by = made.source.clone().unwrap();
    assert_eq!(
        (told_by.component.as_deref(), told_by.host.as_deref()),
        (Some("evenkeel-probe"), Some("node-1"))
    );
    assert_eq!(made.reporting_component.as_deref(), Some("evenkeel-probe"));
    assert_eq!(made.reporting_instance.as_deref(), Some("node-1"));
    assert!(made.metadata.name.as_deref().unwrap().starts_with("web-0."));

    for _ in 0..2 {
        sink.record(
            about("app", Role::Regular),
            unhealthy("HTTP probe failed with statuscode: 500"),
        );
    }
    let raised = listed(&api, 1, 3).await.remove(0);
    assert_eq!(raised.metadata.name, made.metadata.name);
    assert_eq!(raised.first_timestamp, first);
    assert!(raised.last_timestamp >= last);
}

#[tokio::test]
async fn an_event_may_be_about_a_pod_as_a_whole_or_a_node_and_come_from_any_host() {
    let api = api_server();
    let sink = ApiSink::start(api.client(), source(), CancellationToken::new());
    sink.record_on("virtual-7".into(), about("", Role::Regular), unhealthy("x"));
    sink.record_on(
        "virtual-7".into(),
        EventAbout::node("virtual-7".into()),
        unhealthy("y"),
    );
    let found = listed(&api, 2, 1).await;
    let of = |kind: &str| {
        let of_kind = |event: &&Object| event.involved_object.kind.as_deref() == Some(kind);
        found.iter().find(of_kind).unwrap()
    };
    assert_eq!(of("Pod").involved_object.field_path, None);
    let node = &of("Node").involved_object;
    assert_eq!(
        (
            node.name.as_deref(),
            node.uid.as_deref(),
            node.namespace.as_deref()
        ),
        (Some("virtual-7"), Some("virtual-7"), None)
    );
    for event in &found {
        let host = event.source.as_ref().and_then(|source| source.host.as_deref());
        assert_eq!(host, Some("virtual-7"));
        assert_eq!(event.reporting_instance.as_deref(), Some("virtual-7"));
    }
}

#[tokio::test]
async fn an_event_that_somebody_deleted_is_made_again_with_its_count() {
    let api = api_server();
    let sink = ApiSink::start(api.client(), source(), CancellationToken::new());
    sink.record(about("side", Role::Sidecar), unhealthy("x"));
    let made = listed(&api, 1, 1).await.remove(0);
    let name = made.metadata.name.unwrap();
    events(&api).remove(&name).await;
    sink.record(about("side", Role::Sidecar), unhealthy("x"));
    let again = listed(&api, 1, 2).await.remove(0);
    assert_eq!(
        again.involved_object.field_path.as_deref(),
        Some("spec.initContainers{side}")
    );
}

#[tokio::test]
async fn an_object_is_not_flooded() {
    let api = api_server();
    let shutdown = CancellationToken::new();
    let sink = ApiSink::start(api.client(), source(), shutdown.clone());
    for round in 0..100 {
        sink.record(about("app", Role::Regular), unhealthy(&format!("port {round}")));
    }
    // Nine of their own, and those up to the 25th in the tenth.
    let found = listed(&api, 10, 16).await;
    let combined = found.iter().filter(|event| {
        let message = event.message.as_deref().unwrap();
        message.starts_with("(combined from similar events): Readiness probe failed: port ")
    });
    assert_eq!(combined.count(), 1);
    assert_eq!(sink.lost(), 0);
}

#[tokio::test]
async fn what_still_waits_is_written_after_the_shutdown() {
    let api = api_server();
    let shutdown = CancellationToken::new();
    let sink = ApiSink::start(api.client(), source(), shutdown.clone());
    shutdown.cancel();
    for pod in ["a", "b", "c"] {
        let about = EventAbout {
            name: pod.into(),
            ..about("app", Role::Regular)
        };
        sink.record(about, unhealthy("x"));
    }
    listed(&api, 3, 1).await;
}

/// Time stands still but for what is waited for: two seconds pass when nothing else can happen.
#[tokio::test(start_paused = true)]
async fn a_write_under_way_at_the_shutdown_is_waited_for_but_not_for_ever() {
    for answers in [true, false] {
        let (came, mut request) = tokio::sync::mpsc::unbounded_channel();
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let answered = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (held, seen) = (gate.clone(), answered.clone());
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let (came, held, seen) = (came.clone(), held.clone(), seen.clone());
            async move {
                let _ = came.send(());
                let _open = held.acquire().await;
                seen.store(true, std::sync::atomic::Ordering::Relaxed);
                let made = serde_json::json!({"kind": "Event", "apiVersion": "v1", "metadata": {}, "involvedObject": {}});
                let body = kube::client::Body::from(made.to_string().into_bytes());
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        let shutdown = CancellationToken::new();
        let sink = ApiSink::start(kube::Client::new(service, "default"), source(), shutdown.clone());
        sink.record(about("app", Role::Regular), unhealthy("x"));
        request.recv().await.unwrap();
        shutdown.cancel();
        tokio::time::sleep(Duration::from_secs(1)).await;
        if answers {
            gate.add_permits(1);
        }
        let ended = tokio::time::timeout(Duration::from_secs(2), sink.stopped()).await;
        assert!(ended.is_ok(), "answers: {answers}");
        assert_eq!(answered.load(std::sync::atomic::Ordering::Relaxed), answers);
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_for_a_while_is_asked_again_but_not_for_ever() {
    // Answers 503 so often, and then as a server that has everything.
    for (failures, written) in [(0, 1), (3, 1), (11, 1), (12, 0)] {
        let (client, mut server) = refusing(failures);
        let sink = ApiSink::start(client, source(), CancellationToken::new());
        sink.record(about("app", Role::Regular), unhealthy("x"));
        let mut requests = 0;
        while tokio::time::timeout(Duration::from_secs(300), server.recv())
            .await
            .is_ok_and(|request| request.is_some())
        {
            requests += 1;
        }
        assert_eq!(
            requests,
            failures.min(11) + 1,
            "{failures} failures, {written} written"
        );
    }
}

/// An API server that refuses for a while, and says of each request that it came.
fn refusing(failures: usize) -> (kube::Client, tokio::sync::mpsc::UnboundedReceiver<()>) {
    let (came, requests) = tokio::sync::mpsc::unbounded_channel();
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(failures));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        assert_eq!(request.method(), http::Method::POST);
        let _ = came.send(());
        let refuse = left
            .fetch_update(
                std::sync::atomic::Ordering::Relaxed,
                std::sync::atomic::Ordering::Relaxed,
                |left| left.checked_sub(1),
            )
            .is_ok();
        let (code, body) = if refuse {
            let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "message": "not now", "reason": "ServiceUnavailable", "code": 503});
            (503, status)
        } else {
            let made = serde_json::json!({"kind": "Event", "apiVersion": "v1", "metadata": {}, "involvedObject": {}});
            (201, made)
        };
        let body = kube::client::Body::from(body.to_string().into_bytes());
        let response = http::Response::builder().status(code).body(body).unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    (kube::Client::new(service, "default"), requests)
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_never_answers_is_given_up_and_asked_again() {
    let (came, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        let _ = came.send(tokio::time::Instant::now());
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let client = kube::Client::new(service, "default");
    let sink = ApiSink::start(client, source(), CancellationToken::new());
    sink.record(about("app", Role::Regular), unhealthy("x"));
    let first = requests.recv().await.unwrap();
    let second = requests.recv().await.unwrap();
    let gap = second - first;
    assert!((30..=31).contains(&gap.as_secs()), "{gap:?}");
}

#[tokio::test]
async fn events_about_a_namespace_that_is_not_there_hold_nobody_up() {
    let api = api_server_with(Options::default());
    let sink = ApiSink::start(api.client(), source(), CancellationToken::new());
    let lost = EventAbout {
        namespace: "no-such-namespace".into(),
        ..about("app", Role::Regular)
    };
    sink.record(lost, unhealthy("x"));
    sink.record(about("app", Role::Regular), unhealthy("y"));
    listed(&api, 1, 1).await;
}

#[test]
fn a_full_queue_loses_its_oldest_and_says_so_once() {
    let queue = Queue::new(3);
    for item in 0..5 {
        queue.push(item);
    }
    assert_eq!(queue.try_next(), Some((2, 2)));
    assert_eq!(queue.try_next(), Some((3, 0)));
    queue.push(5);
    assert_eq!(queue.try_next(), Some((4, 0)));
    assert_eq!(queue.try_next(), Some((5, 0)));
    assert_eq!(queue.try_next(), None);
    assert_eq!(queue.lost_ever(), 2);
}
