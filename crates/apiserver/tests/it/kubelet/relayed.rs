//! Logs, streams and proxies.

use super::{World, out};
use evenkeel_apiserver::Options;
use evenkeel_apiserver::kubelet::{KubeletOptions, KubeletTrust};
use evenkeel_testkit::{eventually, kubectl, skipped};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_log_comes_from_the_kubelet_with_what_was_asked_of_it() {
    let world = World::new().await;
    world.pod("p", "n1", &["c"]).await;
    let path =
        format!("{PODS}/p/log?tailLines=5&timestamps=true&sinceSeconds=7&limitBytes=100&previous=true");
    assert_eq!(world.get(&path).await.unwrap(), "1 of c\n2 of c\n");
    let asked = "GET /containerLogs/default/p/c?limitBytes=100&previous=true&sinceSeconds=7&tailLines=5&timestamps=true";
    assert_eq!(world.kubelet.requests(), [asked]);
}

#[tokio::test]
async fn logs_are_refused_in_the_words_of_kubernetes() {
    let world = World::new().await;
    world.pod("p", "n1", &["c"]).await;
    world.pod("two", "n1", &["a", "b"]).await;
    world.pod("waits", "n1", &["c"]).await;
    world.pod("nowhere", "", &["c"]).await;
    world.pod("lost", "gone", &["c"]).await;
    world.node("silent", 1).await;
    world.pod("mute", "silent", &["c"]).await;
    for (path, code, message) in [
        ("none/log", 404, "pods \"none\" not found"),
        ("lost/log", 404, "nodes \"gone\" not found"),
        ("p/log?container=x", 400, "container x is not valid for pod p"),
        (
            "two/log",
            400,
            "a container name must be specified for pod two, choose one of: [a b]",
        ),
        (
            "waits/log",
            400,
            "container \"c\" in pod \"waits\" is waiting to start: ContainerCreating",
        ),
        (
            "p/log?tailLines=-1&limitBytes=0&sinceSeconds=0&stream=Stdout",
            422,
            "PodLogOptions \"p\" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, \
             limitBytes: Invalid value: 0: must be greater than 0, \
             sinceSeconds: Invalid value: 0: must be greater than 0, stream: Forbidden: may not be specified]",
        ),
        (
            "p/log?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            422,
            "PodLogOptions \"p\" is invalid: : Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        (
            "mute/log",
            500,
            "Get \"https://127.0.0.1:1/containerLogs/default/mute/c\": dial tcp 127.0.0.1:1: connect: connection refused",
        ),
        ("p/exec?command=ls", 400, "Upgrade request required"),
        ("nowhere/exec", 400, "pod nowhere does not have a host assigned"),
        (
            "two/attach",
            400,
            "a container name must be specified for pod two, choose one of: [a b]",
        ),
        ("none/portforward", 404, "pods \"none\" not found"),
    ] {
        let found = world.get(&format!("{PODS}/{path}")).await;
        assert_eq!(found, Err((code, message.to_owned())), "{path}");
    }
    assert_eq!(world.get(&format!("{PODS}/nowhere/log")).await.unwrap(), "");
}

#[tokio::test]
async fn a_certificate_of_somebody_else_is_refused_unless_options_or_client_say_otherwise() {
    let stranger = evenkeel_net::pki::Ca::new(
        "stranger",
        evenkeel_net::pki::Validity {
            from: 0,
            until: 4_000_000_000,
        },
    );
    let stranger = stranger.expect("an authority").certificate_pem().to_owned();
    let with = |trust| Options {
        kubelet: KubeletOptions {
            trust,
            ..KubeletOptions::default()
        },
        ..Options::default()
    };
    evenkeel_net::init_crypto();
    let world = World::with(with(KubeletTrust::Authority(stranger))).await;
    world.pod("p", "n1", &["c"]).await;
    let (code, message) = world.get(&format!("{PODS}/p/log")).await.unwrap_err();
    assert_eq!(code, 500);
    assert!(
        message.ends_with("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{message}"
    );
    let skipping = format!("{PODS}/p/log?insecureSkipTLSVerifyBackend=true");
    assert_eq!(world.get(&skipping).await.unwrap(), "1 of c\n2 of c\n");

    let world = World::with(with(KubeletTrust::Anything)).await;
    world.pod("p", "n1", &["c"]).await;
    assert_eq!(
        world.get(&format!("{PODS}/p/log")).await.unwrap(),
        "1 of c\n2 of c\n"
    );
}

#[tokio::test]
async fn nodes_are_proxied_by_name_and_port() {
    let world = World::new().await;
    let port = world.kubelet.port;
    for name in ["n1".to_owned(), format!("n1:{port}"), format!("https:n1:{port}")] {
        let path = format!("/api/v1/nodes/{name}/proxy/healthz?verbose=1");
        assert_eq!(world.get(&path).await.unwrap(), "ok", "{name}");
    }
    assert_eq!(world.kubelet.requests()[0], "GET /healthz?verbose=1");
    let (code, message) = world.get("/api/v1/nodes/n1:1/proxy/healthz").await.unwrap_err();
    assert_eq!(
        (code, message.as_str()),
        (
            503,
            "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused"
        )
    );
    let (code, message) = world.get("/api/v1/nodes/x:n1:1/proxy/").await.unwrap_err();
    assert_eq!((code, message.as_str()), (400, "invalid node request \"x:n1:1\""));
    let echo = http::Request::put("/api/v1/nodes/n1/proxy/echo").body(b"body".to_vec());
    let echoed = world.server.client().request_text(echo.unwrap()).await.unwrap();
    assert_eq!(echoed, "body");
    let moved = http::Request::get("/api/v1/nodes/n1/proxy/moved").body(kube::client::Body::empty());
    let moved = world.server.client().send(moved.unwrap()).await.unwrap();
    assert_eq!(moved.status(), 302);
    assert_eq!(moved.headers()["location"], "/api/v1/nodes/n1/proxy/healthz");
}

#[tokio::test]
async fn proxies_do_not_reach_loopback_unless_options_say_so() {
    let world = World::with(Options::default()).await;
    world.pod("p", "n1", &["c"]).await;
    let refused = Err((400, "address not allowed".to_owned()));
    assert_eq!(world.get("/api/v1/nodes/n1/proxy/healthz").await, refused);
    assert_eq!(world.get(&format!("{PODS}/p:80/proxy/")).await, refused);
    assert_eq!(
        world.get(&format!("{PODS}/p/log")).await.unwrap(),
        "1 of c\n2 of c\n",
        "logs reach any address of a node"
    );
}

/// A connection of the administrator over which HTTP/1.1 is spoken by hand.
async fn connection(world: &World) -> TlsStream<TcpStream> {
    let admin = world
        .server
        .client_certificate("admin", &["system:masters"])
        .expect("as the test made it");
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(world.server.ca().certificate_pem().as_bytes());
    roots
        .add(ca.expect("as the test made it"))
        .expect("as the test made it");
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![
                CertificateDer::from_pem_slice(admin.certificate_pem.as_bytes())
                    .expect("as the test made it"),
            ],
            PrivateKeyDer::from_pem_slice(admin.key_pem.as_bytes()).expect("as the test made it"),
        )
        .expect("as the test made it");
    let address = world.url.strip_prefix("https://").expect("as the test made it");
    let stream = TcpStream::connect(address).await.expect("as the test made it");
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(
            ServerName::try_from("localhost").expect("as the test made it"),
            stream,
        )
        .await
        .expect("as the test made it")
}

async fn head(stream: &mut BufReader<TlsStream<TcpStream>>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        assert!(
            stream.read_line(&mut line).await.expect("as the test made it") > 0,
            "the head ends: {head}"
        );
        head += &line;
    }
    head
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways_to_its_end() {
    let world = World::new().await;
    world.pod("p", "n1", &["c"]).await;
    for (method, path, protocol, asked) in [
        (
            "POST",
            "exec?command=sh&command=-c&command=a+b&stdin=true&tty=true",
            "SPDY/3.1",
            "/exec/default/p/c?command=sh&command=-c&command=a+b&input=1&tty=1",
        ),
        (
            "GET",
            "attach?stdout=true&stderr=1",
            "websocket",
            "/attach/default/p/c?error=1&output=1",
        ),
        ("GET", "portforward", "websocket", "/portForward/default/p"),
        (
            "POST",
            "portforward?ports=80",
            "SPDY/3.1",
            "/portForward/default/p?port=80",
        ),
    ] {
        let mut stream = BufReader::new(connection(&world).await);
        let request = format!(
            "{method} {PODS}/p/{path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
             X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert!(
            head.contains("x-stream-protocol-version: v4.channel.k8s.io"),
            "{head}"
        );
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        assert_eq!(line, "hello\n");
        stream.write_all(b"loud?\n").await.unwrap();
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        assert_eq!(line, "LOUD?\n");
        // The client's end reaches the kubelet, and what that says then still reaches the client.
        stream.get_mut().shutdown().await.unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "bye\n");
        let last = world.kubelet.requests().pop().unwrap();
        assert_eq!(last, format!("{method} {asked}"));
    }
}

#[tokio::test]
async fn a_refused_upgrade_comes_back_as_the_kubelet_said_it() {
    let world = World::new().await;
    world.pod("refuses", "n1", &["c"]).await;
    let mut stream = BufReader::new(connection(&world).await);
    let request = format!(
        "POST {PODS}/refuses/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let mut body = [0; 15];
    stream.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"not in this pod");
}

#[tokio::test]
async fn a_get_of_exec_takes_the_right_to_create() {
    let world = World::new().await;
    world.pod("p", "n1", &["c"]).await;
    let role = |name: &str, verb: &str| {
        serde_json::json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": [verb]}]})
    };
    let binding = |role: &str, user: &str| {
        serde_json::json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{role}-{user}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
    };
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for (verb, users) in [("get", ["reader", "both"]), ("create", ["writer", "both"])] {
        world
            .post(&format!("{rbac}/clusterroles"), &role(verb, verb))
            .await;
        for user in users {
            world
                .post(&format!("{rbac}/clusterrolebindings"), &binding(verb, user))
                .await;
        }
    }
    for (user, code) in [("reader", 403), ("writer", 403), ("both", 400)] {
        let request = http::Request::get(format!("{PODS}/p/exec"))
            .body(Vec::new())
            .unwrap();
        let refusal = world.server.client_as(user, &[]).request_text(request).await;
        assert_eq!(crate::code(refusal), code, "{user}: 400 is the missing upgrade");
    }
}

#[tokio::test]
async fn kubectl_follows_a_log_and_its_end_ends_it_at_the_kubelet() {
    let Some(kubectl) = kubectl() else {
        skipped("kubectl_follows_a_log", "kubectl is not installed");
        return;
    };
    let world = World::new().await;
    world.pod("p", "n1", &["c"]).await;
    assert_eq!(
        out(&world.run(&kubectl, &["logs", "p"]).await),
        "1 of c\n2 of c\n"
    );
    assert_eq!(
        out(&world
            .run(&kubectl, &["get", "--raw", "/api/v1/nodes/n1/proxy/healthz"])
            .await),
        "ok"
    );
    let mut child = world.kubectl(&kubectl, &["logs", "-f", "p"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("1 of c"));
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("2 of c"));
    world.kubelet.seen.lines.send_replace(3);
    assert_eq!(
        lines.next_line().await.unwrap().as_deref(),
        Some("3 of c"),
        "a line comes as soon as it is there"
    );
    child.kill().await.unwrap();
    let seen = world.kubelet.seen.clone();
    eventually("the log is closed at the kubelet", SOON, || {
        let open = *seen.following.borrow();
        async move { (open == 0).then_some(()) }
    })
    .await;
}
