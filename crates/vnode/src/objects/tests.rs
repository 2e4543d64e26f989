//! Against the embedded API server, and with servers that are silent or wrong.

mod keep;
mod tokens;

use super::*;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ApiServer, api_server, eventually};
use futures::future::join_all;
use jiff::SignedDuration;
use kube::api::{Api, Patch, PatchParams};
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::Mutex;

/// What a client was asked, as `GET /path`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A client whose requests are noted.
fn noted(client: Client) -> (Client, Log) {
    let log = Log::default();
    let kept = log.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let line = format!("{} {}", request.method(), request.uri().path());
        kept.0.lock().unwrap().push(line);
        let client = client.clone();
        async move { client.send(request).await }
    });
    (Client::new(service, "default"), log)
}

/// A client that always hears the same.
fn answering(code: u16, body: &'static str) -> Client {
    let service = tower::service_fn(move |_: http::Request<Body>| async move {
        let answer = http::Response::builder()
            .status(code)
            .body(Body::from(body.as_bytes().to_vec()));
        Ok::<_, std::convert::Infallible>(answer.unwrap())
    });
    Client::new(service, "default")
}

/// A client that never hears anything.
fn unanswered() -> Client {
    let service = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
    });
    Client::new(service, "default")
}

async fn create<T>(client: &Client, object: Value) -> T
where
    T: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let object: T = serde_json::from_value(object).unwrap();
    let api = Api::<T>::namespaced(client.clone(), "default");
    api.add(&object).await
}

async fn config_map(client: &Client, name: &str, value: &str) {
    create::<ConfigMap>(
        client,
        json!({"metadata": {"name": name}, "data": {"KEY": value}}),
    )
    .await;
}

async fn secret(client: &Client, name: &str, value: &str) {
    create::<Secret>(
        client,
        json!({"metadata": {"name": name}, "stringData": {"PASSWORD": value}}),
    )
    .await;
}

/// A pod that takes its environment from `config` and `secret`, and mounts both.
fn pod(name: &str, age: SignedDuration) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            // In whole seconds, as the API server writes it.
            "creationTimestamp": Timestamp::from_second((Timestamp::now() - age).as_second()).unwrap(),
        },
        "spec": {
            "containers": [{"name": "main", "envFrom": [
                {"configMapRef": {"name": "config"}}, {"secretRef": {"name": "secret"}},
            ]}],
            "volumes": [
                {"name": "c", "configMap": {"name": "config"}}, {"name": "s", "secret": {"secretName": "secret"}},
            ],
        },
    }))
    .unwrap()
}

const NEW: SignedDuration = SignedDuration::ZERO;
const OLD: SignedDuration = SignedDuration::from_secs(60);

/// The value of a variable, or why there is no container.
async fn variable(objects: &Objects, pod: &Pod, name: &str) -> Result<Option<String>, Trouble> {
    let (container, _) = objects.container(pod, "main", &Location::default()).await;
    let env = container?.env.unwrap_or_default();
    Ok(env
        .into_iter()
        .find(|variable| variable.name == name)
        .and_then(|variable| variable.value))
}

async fn filled() -> ApiServer {
    let server = api_server();
    config_map(&server.client(), "config", "v1").await;
    secret(&server.client(), "secret", "hunter2").await;
    server
}

#[tokio::test]
async fn what_pods_refer_to_is_read_and_resolved() {
    let server = filled().await;
    let objects = Objects::new(server.client());
    let pod = pod("a", NEW);
    let (container, events) = objects.container(&pod, "main", &Location::default()).await;
    let env = container.unwrap().env.unwrap();
    let value = |name: &str| {
        let variable = env.iter().find(|variable| variable.name == name)?;
        variable.value.as_deref()
    };
    assert_eq!(value("KEY"), Some("v1"));
    assert_eq!(value("PASSWORD"), Some("hunter2"));
    assert_eq!(value("KUBERNETES_SERVICE_HOST"), Some("10.96.0.1"));
    assert!(events.is_empty());
    let (volumes, events) = objects.volumes(&pod, &Location::default()).await;
    let names: Vec<String> = volumes.unwrap().0.into_keys().collect();
    assert_eq!(names, ["c", "s"]);
    assert!(events.is_empty());
}

#[tokio::test]
async fn two_hundred_pods_of_a_namespace_cost_a_handful_of_requests() {
    let server = filled().await;
    for (age, most) in [(OLD, 1), (NEW, 4)] {
        let (client, log) = noted(server.client());
        let objects = Objects::new(client);
        let pods: Vec<Pod> = (0..200).map(|n| pod(&format!("pod-{n}"), age)).collect();
        let ready = join_all(pods.iter().map(|pod| async {
            let (volumes, _) = objects.volumes(pod, &Location::default()).await;
            volumes.unwrap();
            variable(&objects, pod, "PASSWORD").await.unwrap()
        }))
        .await;
        assert_eq!(ready, vec![Some("hunter2".to_owned()); 200]);
        let lines = log.lines();
        for path in ["configmaps/config", "secrets/secret", "services"] {
            let line = format!("GET /api/v1/namespaces/default/{path}");
            let count = lines.iter().filter(|asked| **asked == line).count();
            assert!(
                (1..=most).contains(&count),
                "{line}: {count} times for pods of {age}"
            );
        }
        assert!(lines.len() <= 3 * most, "{lines:?}");
    }
}

#[tokio::test]
async fn services_are_listed_for_pods_that_want_them_alone() {
    let server = filled().await;
    let (client, log) = noted(server.client());
    let objects = Objects::new(client);
    let mut pod = pod("a", OLD);
    pod.spec.as_mut().unwrap().enable_service_links = Some(false);
    let host = variable(&objects, &pod, "KUBERNETES_SERVICE_HOST").await.unwrap();
    assert_eq!(host.as_deref(), Some("10.96.0.1"));
    let lines = log.lines();
    assert!(
        lines.contains(&"GET /api/v1/namespaces/default/services/kubernetes".to_owned()),
        "{lines:?}"
    );
    assert!(
        !lines.contains(&"GET /api/v1/namespaces/default/services".to_owned()),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_config_map_that_appears_later_is_seen() {
    let server = api_server();
    let client = server.client();
    secret(&client, "secret", "hunter2").await;
    let objects = Objects::new(client.clone());
    let pod = pod("a", OLD);
    let (container, events) = objects.container(&pod, "main", &Location::default()).await;
    assert_eq!(
        container.unwrap_err(),
        Trouble::Config("configmap \"config\" not found".to_owned())
    );
    assert_eq!(events[0].reason, "MandatoryConfigMapNotFound");
    let (volumes, events) = objects.volumes(&pod, &Location::default()).await;
    let message = "MountVolume.SetUp failed for volume \"c\" : configmap \"config\" not found".to_owned();
    assert_eq!((events[0].reason, &events[0].message), ("FailedMount", &message));
    assert_eq!(volumes.unwrap_err(), Trouble::Volume(message));
    config_map(&client, "config", "v1").await;
    eventually("the ConfigMap is seen", Duration::from_secs(20), || async {
        variable(&objects, &pod, "KEY").await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_pod_never_gets_what_was_changed_before_its_creation() {
    let server = filled().await;
    let client = server.client();
    let objects = Objects::new(client.clone());
    let (old, new) = (pod("old", OLD), pod("new", NEW));
    assert_eq!(
        variable(&objects, &old, "KEY").await.unwrap().as_deref(),
        Some("v1")
    );
    let api = Api::<ConfigMap>::namespaced(client, "default");
    let patch = Patch::Merge(json!({"data": {"KEY": "v2"}}));
    api.patch("config", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(
        variable(&objects, &old, "KEY").await.unwrap().as_deref(),
        Some("v1"),
        "kept for a while"
    );
    assert_eq!(
        variable(&objects, &new, "KEY").await.unwrap().as_deref(),
        Some("v2")
    );
    assert_eq!(
        variable(&objects, &old, "KEY").await.unwrap().as_deref(),
        Some("v2")
    );
}

#[tokio::test]
async fn a_denial_is_not_an_absence_and_says_what_to_do() {
    let server = filled().await;
    let objects = Objects::new(server.client_as("stranger", &[]));
    let pod = pod("a", OLD);
    let (container, events) = objects.container(&pod, "main", &Location::default()).await;
    let Err(Trouble::Config(message)) = container else {
        panic!("{container:?}");
    };
    for part in [
        "cannot read configmap default/config: ",
        "cannot read secret default/secret: ",
        "cannot list services of namespace default: ",
        "(HTTP 403); grant the virtual nodes' user this right",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("not found"), "{message}");
    let reasons: Vec<&str> = events.iter().map(|event| event.reason).collect();
    assert_eq!(
        reasons,
        [
            "FailedToReadMandatoryConfigMap",
            "FailedToReadMandatorySecret",
            "FailedToReadServices"
        ]
    );
    let (volumes, events) = objects.volumes(&pod, &Location::default()).await;
    let Err(Trouble::Volume(message)) = volumes else {
        panic!("{volumes:?}");
    };
    assert!(message.contains("cannot read secret default/secret"), "{message}");
    assert_eq!(events[0].reason, "FailedMount");
}

#[tokio::test(start_paused = true)]
async fn a_silent_api_server_is_trouble_for_all_at_once() {
    let objects = Objects::new(unanswered());
    let pods: Vec<Pod> = (0..50).map(|n| pod(&format!("pod-{n}"), NEW)).collect();
    let began = tokio::time::Instant::now();
    let troubles = join_all(pods.iter().map(|pod| variable(&objects, pod, "KEY"))).await;
    for trouble in troubles {
        let Err(Trouble::Config(message)) = trouble else {
            panic!("{trouble:?}");
        };
        assert!(
            message
                .contains("cannot read configmap default/config: the API server did not answer within 10 s"),
            "{message}"
        );
    }
    assert_eq!(began.elapsed().as_secs(), 10, "not one after the other");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_not_shown() {
    let body = r#"{"kind": "Secret", "apiVersion": "v1", "data": {"PASSWORD": "hunter2!!"}, "type": 7}"#;
    let objects = Objects::new(answering(200, body));
    let Err(Trouble::Volume(message)) = objects.volumes(&pod("a", OLD), &Location::default()).await.0 else {
        panic!("it cannot be read");
    };
    assert!(message.contains("cannot read secret default/secret"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

#[tokio::test]
async fn a_proxys_404_is_not_an_absence() {
    let objects = Objects::new(answering(404, "<html>no such page</html>"));
    let Err(Trouble::Config(message)) = variable(&objects, &pod("a", OLD), "KEY").await else {
        panic!("nothing can be read");
    };
    assert!(
        message.contains("cannot read configmap default/config"),
        "{message}"
    );
    assert!(message.contains("HTTP 404"), "{message}");
}

#[tokio::test]
async fn a_container_that_is_not_there_is_trouble() {
    let objects = Objects::new(unanswered());
    let (container, _) = objects
        .container(&pod("a", OLD), "none", &Location::default())
        .await;
    let message = "the pod has no container \"none\"".to_owned();
    assert_eq!(container.unwrap_err(), Trouble::Config(message));
}
