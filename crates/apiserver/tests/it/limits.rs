//! Limits: what is too large, too deep, broken, too slow or gone.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails where something is not as it should be"
)]

use super::config_map;
use evenkeel_apiserver::{Fault, Options, RequestFilter, StaticToken, TestServer};
use evenkeel_kube_rules::protobuf;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ends, until};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::client::Body;
use rstest::rstest;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const TOKEN: &str = "a-token";

async fn start(watch_history: usize) -> TestServer {
    evenkeel_net::init_crypto();
    let options = Options {
        watch_history,
        tokens: vec![StaticToken {
            token: TOKEN.to_owned(),
            user: "admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
        }],
        ..Options::default()
    };
    let api = TestServer::builder().options(options).start().await;
    api.expect("a server")
}

/// The code of an answer, and its body.
async fn send(api: &TestServer, method: &str, path: &str, media: &str, body: Vec<u8>) -> (u16, Value) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media)
        .body(Body::from(body));
    let answer = api.client().send(request.unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&body).unwrap())
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

fn sized(bytes: usize) -> Vec<u8> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
    let mut map = map.into_bytes();
    map.resize(bytes, b' ');
    map
}

#[tokio::test]
async fn a_body_of_three_mebibytes_is_the_largest() {
    const LIMIT: usize = 3_145_728;
    let api = start(100).await;
    let (code, _) = send(&api, "POST", MAPS, JSON, sized(LIMIT)).await;
    assert_eq!(code, 201);
    let one = format!("{MAPS}/a");
    for (method, path, media) in [
        ("POST", MAPS, JSON),
        ("PUT", one.as_str(), JSON),
        ("PATCH", one.as_str(), "application/merge-patch+json"),
        ("DELETE", one.as_str(), JSON),
    ] {
        let answer = send(&api, method, path, media, sized(LIMIT + 1)).await;
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 413,
            "reason": "RequestEntityTooLarge", "message": "Request entity too large: limit is 3145728"});
        assert_eq!(answer, (413, status), "{method}");
    }
    // Nobody has to read ten megabytes to say no, and the next request is answered.
    let (code, _) = send(&api, "POST", MAPS, JSON, sized(10_000_000)).await;
    assert_eq!(code, 413);
    let (code, _) = send(&api, "GET", &one, JSON, Vec::new()).await;
    assert_eq!(code, 200);
}

/// As deep as `depth`, in the member `x` of an object that is one itself.
fn nested(depth: usize, open: &str, close: &str) -> Vec<u8> {
    let inner = format!("{}1{}", open.repeat(depth), close.repeat(depth));
    format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"a\"}},\"x\":{inner}}}")
        .into_bytes()
}

#[rstest]
#[case::lists("[", "]")]
#[case::objects("{\"a\":", "}")]
#[tokio::test]
async fn nesting_is_bounded(
    #[case] open: &str,
    #[case] close: &str,
    #[values(JSON, YAML, "application/merge-patch+json", "application/apply-patch+yaml")] media: &str,
) {
    let api = start(100).await;
    let (method, path) = match media {
        JSON | YAML => ("POST", MAPS.to_owned()),
        _ => ("PATCH", format!("{MAPS}/a?fieldManager=me")),
    };
    if media.contains("merge") {
        Api::default_namespaced(api.client()).add(&config_map("a")).await;
    }
    for depth in [600, 9_000, 100_000] {
        let (code, status) = send(&api, method, &path, media, nested(depth, open, close)).await;
        let (reason, message) = (&status["reason"], status["message"].as_str().unwrap());
        assert_eq!(
            (code, reason),
            (400, &json!("BadRequest")),
            "{depth}: {status:.500}"
        );
        assert!(!message.is_empty());
    }
    let shallow = nested(30, open, close);
    let (code, status) = send(&api, method, &path, media, shallow).await;
    // Upstream answers an applied field that there is not with 500.
    let expected = match media {
        JSON | YAML => 201,
        "application/merge-patch+json" => 200,
        _ => 500,
    };
    assert_eq!(code, expected, "{status}");
    let again = api.client().apiserver_version().await;
    again.expect("the server goes on");
}

#[rstest]
#[case::json_cut_off(JSON, b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\"")]
#[case::json_of_no_object(JSON, b"[1]")]
#[case::json_with_something_behind(
    JSON,
    b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"b\"}}}"
)]
#[case::yaml_cut_off(YAML, b"apiVersion: v1\nkind: [")]
#[case::yaml_tabs(YAML, b"apiVersion: v1\n\tkind: ConfigMap")]
#[case::yaml_without_anchor(YAML, b"apiVersion: *v1")]
#[case::yaml_bomb(YAML, b"a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n")]
#[case::protobuf_without_envelope(protobuf::MEDIA, b"\x0a\x02v1")]
#[case::protobuf_cut_off(protobuf::MEDIA, b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x7f\x0a")]
#[case::protobuf_too_long_a_number(protobuf::MEDIA, b"k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")]
#[case::merge_patch("application/merge-patch+json", b"{")]
#[case::json_patch("application/json-patch+json", b"[{\"op\":")]
#[case::strategic_patch("application/strategic-merge-patch+json", b"{\"data\"")]
#[case::apply("application/apply-patch+yaml", b"kind: [")]
#[tokio::test]
async fn a_broken_body_is_a_bad_request(#[case] media: &str, #[case] body: &[u8]) {
    let api = start(100).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    maps.add(&config_map("a")).await;
    let (method, path) = match media {
        JSON | YAML | protobuf::MEDIA => ("POST", MAPS.to_owned()),
        _ => ("PATCH", format!("{MAPS}/a?fieldManager=me")),
    };
    let (code, status) = send(&api, method, &path, media, body.to_vec()).await;
    assert_eq!(
        (code, &status["reason"]),
        (400, &json!("BadRequest")),
        "{status:.500}"
    );
    assert_eq!(
        (&status["kind"], &status["code"]),
        (&json!("Status"), &json!(400))
    );
    assert_eq!(
        maps.list(&Default::default()).await.unwrap().items.len(),
        2,
        "nothing was stored"
    );
}

/// A watcher that does not read costs what the connection holds; when it reads again, its past is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_never_reads_is_ended_when_it_falls_behind() {
    const EVENTS: usize = 2_000;
    const SIZE: usize = 20_000;
    let api = start(100).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    let version = maps
        .list(&Default::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let kubeconfig = api.kubeconfig().await.unwrap();
    let far = Api::<ConfigMap>::default_namespaced(crate::served::client(&kubeconfig).await);
    let mut slow = far
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let mut near = maps
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let mut map = config_map("a");
    map.data
        .as_mut()
        .unwrap()
        .insert("large".to_owned(), "x".repeat(SIZE));
    maps.add(&map).await;
    for number in 1..EVENTS {
        maps.merge("a", json!({"data": {"k": number.to_string()}})).await;
        let event = near.next().await;
        assert!(
            matches!(event, Some(Ok(WatchEvent::Added(_) | WatchEvent::Modified(_)))),
            "{event:?}"
        );
    }
    let mut seen = 0;
    let last = loop {
        match ends("the watch ends", slow.next()).await {
            Some(Ok(WatchEvent::Added(_) | WatchEvent::Modified(_))) => seen += 1,
            other => break other,
        }
    };
    let Some(Ok(WatchEvent::Error(status))) = last else {
        panic!("after {seen} events: {last:?}")
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    // 40 MB of events, of which the buffers of the two ends take a few.
    assert!(seen < EVENTS / 2, "{seen} events were kept");
    assert!(slow.next().await.is_none());
}

/// A connection on which nothing has been said yet.
async fn connect(api: &TestServer) -> TlsStream<TcpStream> {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&api.kubeconfig().await.unwrap()).unwrap();
    let url = kubeconfig.clusters[0]
        .cluster
        .as_ref()
        .unwrap()
        .server
        .clone()
        .unwrap();
    let address: SocketAddr = url.strip_prefix("https://").unwrap().parse().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    let pem = api.server().ca().certificate_pem();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

fn head(method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: {JSON}\r\n\
         content-length: {length}\r\n\r\n"
    )
}

async fn say(stream: &mut TlsStream<TcpStream>, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

#[rstest]
#[case::in_its_head("POST /api/v1/name".to_owned(), false)]
#[case::in_its_body(head("POST", MAPS, 1_000), false)]
#[case::before_the_answer(head("GET", MAPS, 0), true)]
#[tokio::test]
async fn a_client_that_leaves_in_a_request_leaves_nothing(#[case] said: String, #[case] held: bool) {
    let api = start(100).await;
    api.kubeconfig().await.unwrap();
    let metrics = Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let mut stream = connect(&api).await;
    let fault = held.then(|| api.intercept(RequestFilter::any(), Fault::hold()));
    say(&mut stream, &said).await;
    if let Some(fault) = &fault {
        ends("it is held", fault.wait_for_hits(1)).await;
    }
    until("it is served", async || metrics.num_alive_tasks() > before).await;
    drop(stream);
    until("its task ends", async || metrics.num_alive_tasks() == before).await;
    drop(fault);
    let list = Api::<ConfigMap>::default_namespaced(api.observer())
        .list(&Default::default())
        .await;
    assert_eq!(list.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_in_a_watch_leaves_nothing() {
    let api = start(100).await;
    api.kubeconfig().await.unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(api.observer());
    let metrics = Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let mut stream = connect(&api).await;
    say(&mut stream, &head("GET", &format!("{MAPS}?watch=1"), 0)).await;
    maps.add(&config_map("a")).await;
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("\"name\":\"a\"") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
    }
    drop(stream);
    until("its task ends", async || metrics.num_alive_tasks() == before).await;
    maps.add(&config_map("b")).await;
}
