use crate::tls::{DEADLINE, ca, connect, get, server_identity, validity};
use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::routing::get as route;
use evenkeel_net::pki::{Ca, der_sha256};
use evenkeel_net::serve::{Acceptor, PeerIdentity, ServerTls, serve_http, serve_https};
use futures::StreamExt as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

struct Server {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn stop(self) -> Duration {
        let start = Instant::now();
        self.shutdown.cancel();
        timeout(DEADLINE, self.task)
            .await
            .expect("the server stops")
            .unwrap()
            .unwrap();
        start.elapsed()
    }
}

fn app() -> Router {
    Router::new()
        .route(
            "/who",
            route(|Extension(peer): Extension<PeerIdentity>| async move {
                let certificate = peer
                    .certificate
                    .map_or("nobody".to_owned(), |der| der_sha256(&der));
                format!("{certificate} from {}", peer.address.unwrap().ip())
            }),
        )
        .route(
            "/watch",
            route(|| async {
                let first = futures::stream::iter([Ok::<_, std::io::Error>("first\n")]);
                Body::from_stream(first.chain(futures::stream::pending()))
            }),
        )
        .route(
            "/upgrade",
            route(|request: axum::extract::Request| async move {
                let upgrade = hyper::upgrade::on(request);
                tokio::spawn(async move {
                    let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
                    let mut word = [0; 4];
                    io.read_exact(&mut word).await.unwrap();
                    word.reverse();
                    io.write_all(&word).await.unwrap();
                });
                axum::response::Response::builder()
                    .status(101)
                    .header("connection", "upgrade")
                    .header("upgrade", "echo")
                    .body(Body::empty())
                    .unwrap()
            }),
        )
}

async fn https(tls: ServerTls) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(serve_https(listener, tls, app(), shutdown.clone()));
    Server {
        address,
        shutdown,
        task,
    }
}

async fn http() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(serve_http(listener, app(), shutdown.clone()));
    Server {
        address,
        shutdown,
        task,
    }
}

async fn https_with_clients(ca: &Ca) -> Server {
    https(ServerTls::new(&server_identity(ca, "server"), Some(ca.certificate_pem())).unwrap()).await
}

#[tokio::test]
async fn a_client_is_recognised_by_its_certificate_over_both_protocols() {
    let ca = ca();
    let server = https_with_clients(&ca).await;
    // Several groups: this certificate went through our own encoding and must convince rustls' verifier.
    let alice = ca.issue_client("alice", &["a", "b", "c"], validity()).unwrap();
    let pin = evenkeel_net::pki::certificate_sha256(&alice.certificate_pem).unwrap();
    for alpn in [&["h2"][..], &["http/1.1"], &["h2", "http/1.1"], &[]] {
        let stream = connect(server.address, &ca, Some(&alice), alpn).await.unwrap();
        if let Some(first) = alpn.first() {
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(first.as_bytes()));
        }
        assert_eq!(
            get(stream, "/who").await.unwrap(),
            (200, format!("{pin} from 127.0.0.1"))
        );
    }
    let stream = connect(server.address, &ca, None, &["http/1.1"]).await.unwrap();
    assert_eq!(
        get(stream, "/who").await.unwrap(),
        (200, "nobody from 127.0.0.1".to_owned())
    );
    server.stop().await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_not_ignored() {
    let (ours, theirs) = (ca(), ca());
    let server = https_with_clients(&ours).await;
    let mallory = theirs
        .issue_client("alice", &["system:masters"], validity())
        .unwrap();
    // TLS 1.3 tells the client after its own side of the handshake is complete, so the request fails, not
    // connect.
    if let Ok(stream) = connect(server.address, &ours, Some(&mallory), &["http/1.1"]).await {
        assert!(get(stream, "/who").await.is_err());
    }
    // A serving certificate is no client certificate, even from the right authority.
    let server_as_client = server_identity(&ours, "server");
    if let Ok(stream) = connect(server.address, &ours, Some(&server_as_client), &["http/1.1"]).await {
        assert!(get(stream, "/who").await.is_err());
    }
    server.stop().await;
}

#[tokio::test]
async fn a_replaced_certificate_is_shown_to_new_connections_only() {
    let ca = ca();
    let tls = ServerTls::new(&server_identity(&ca, "first"), None).unwrap();
    let server = https(tls.clone()).await;
    let shown = |stream: &tokio_rustls::client::TlsStream<TcpStream>| {
        der_sha256(&stream.get_ref().1.peer_certificates().unwrap()[0])
    };
    let old = connect(server.address, &ca, None, &["http/1.1"]).await.unwrap();
    let second = server_identity(&ca, "second");
    tls.replace(&second).unwrap();
    let new = connect(server.address, &ca, None, &["http/1.1"]).await.unwrap();
    let expected = evenkeel_net::pki::certificate_sha256(&second.certificate_pem).unwrap();
    assert_eq!(shown(&new), expected);
    assert_ne!(shown(&old), expected);
    assert_eq!(get(old, "/who").await.unwrap().0, 200);

    // A certificate with somebody else's key changes nothing.
    let mut mixed = server_identity(&ca, "third");
    mixed.key_pem = second.key_pem.clone();
    let error = tls.replace(&mixed).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read the serving certificate with its key: "),
        "{error}"
    );
    let still = connect(server.address, &ca, None, &["http/1.1"]).await.unwrap();
    assert_eq!(shown(&still), expected);
    server.stop().await;
}

#[tokio::test]
async fn a_certificate_and_the_authority_of_clients_may_come_later() {
    let (server_ca, first, second) = (ca(), ca(), ca());
    evenkeel_net::init_crypto();
    let tls = ServerTls::without_certificate().unwrap();
    let server = https(tls.clone()).await;
    let error = connect(server.address, &server_ca, None, &["http/1.1"]).await;
    assert!(error.is_err(), "a handshake without a certificate");
    tls.replace(&server_identity(&server_ca, "server")).unwrap();

    let alice = |ca: &Ca| ca.issue_client("alice", &[], validity()).unwrap();
    let who = async |ca: &Ca| {
        let stream = connect(server.address, &server_ca, Some(&alice(ca)), &["http/1.1"])
            .await
            .ok()?;
        get(stream, "/who")
            .await
            .ok()
            .map(|(_, text)| !text.starts_with("nobody"))
    };
    assert_eq!(who(&first).await, Some(false));
    tls.trust(Some(first.certificate_pem())).unwrap();
    assert_eq!((who(&first).await, who(&second).await), (Some(true), None));
    // Nonsense changes nothing, nor does a new certificate.
    assert!(tls.trust(Some("x")).is_err());
    tls.replace(&server_identity(&server_ca, "again")).unwrap();
    assert_eq!((who(&first).await, who(&second).await), (Some(true), None));
    tls.trust(Some(second.certificate_pem())).unwrap();
    assert_eq!((who(&first).await, who(&second).await), (None, Some(true)));
    tls.trust(None).unwrap();
    assert_eq!(who(&first).await, Some(false));
    server.stop().await;
}

#[tokio::test]
async fn a_listeners_requests_carry_its_tag() {
    let ca = ca();
    let tls = ServerTls::new(&server_identity(&ca, "server"), None).unwrap();
    let app = Router::new().route(
        "/tag",
        route(|Extension(tag): Extension<&'static str>| async move { tag }),
    );
    let acceptor = Acceptor::new(tls, app);
    let shutdown = CancellationToken::new();
    let mut tasks = Vec::new();
    for tag in ["one", "two"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (acceptor, closing) = (acceptor.clone(), shutdown.clone());
        tasks.push(tokio::spawn(async move {
            acceptor.serve(listener, tag, closing).await;
        }));
        let stream = connect(address, &ca, None, &["h2"]).await.unwrap();
        assert_eq!(get(stream, "/tag").await.unwrap(), (200, tag.to_owned()));
    }
    shutdown.cancel();
    for task in tasks {
        timeout(DEADLINE, task)
            .await
            .expect("the listener stops")
            .unwrap();
    }
}

#[tokio::test]
async fn unusable_parts_are_named() {
    let ca = ca();
    let good = server_identity(&ca, "server");
    let mut no_certificate = good.clone();
    no_certificate.certificate_pem = "x".into();
    let mut no_key = good.clone();
    no_key.key_pem = "x".into();
    for (identity, client_ca, expected) in [
        (&no_certificate, None, "cannot read a certificate: "),
        (&no_key, None, "cannot read the serving key: "),
        (
            &good,
            Some("x"),
            "cannot read the client CA: no CERTIFICATE in the PEM text",
        ),
    ] {
        let error = ServerTls::new(identity, client_ca).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn upgrades_work() {
    let server = http().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(b"GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, stream.read_u8()).await.unwrap().unwrap());
    }
    assert!(
        head.starts_with(b"HTTP/1.1 101 "),
        "{}",
        String::from_utf8_lossy(&head)
    );
    stream.write_all(b"kiel").await.unwrap();
    let mut answer = [0; 4];
    timeout(DEADLINE, stream.read_exact(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&answer, b"leik");
    server.stop().await;
}

#[tokio::test]
async fn idle_connections_and_handshakes_do_not_hold_the_stop() {
    let ca = ca();
    let server = https_with_clients(&ca).await;
    let _mute = TcpStream::connect(server.address).await.unwrap();
    let _idle = connect(server.address, &ca, None, &["http/1.1"]).await.unwrap();
    let address = server.address;
    let took = server.stop().await;
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_watch_is_cut_when_the_drain_is_over() {
    let server = http().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(b"GET /watch HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"first\n\r\n") {
        got.push(timeout(DEADLINE, stream.read_u8()).await.unwrap().unwrap());
    }
    let took = server.stop().await;
    assert!(
        (Duration::from_secs(4)..Duration::from_secs(10)).contains(&took),
        "{took:?}"
    );
    let rest = timeout(DEADLINE, stream.read_to_end(&mut got)).await.unwrap();
    assert!(matches!(rest, Ok(0) | Err(_)), "{rest:?}");
}

#[tokio::test]
async fn connections_over_the_bound_are_closed_and_upgraded_ones_count() {
    let ca = ca();
    let tls = ServerTls::new(&server_identity(&ca, "server"), None).unwrap();
    let acceptor = Acceptor::new(tls, app()).at_most(1, 1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let closing = CancellationToken::new();
    let until = closing.clone();
    let task = tokio::spawn(async move { acceptor.serve(listener, (), until).await });
    let mut first = connect(address, &ca, None, &["http/1.1"]).await.unwrap();
    first
        .write_all(b"GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, first.read_u8()).await.unwrap().unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    assert!(
        connect(address, &ca, None, &["http/1.1"]).await.is_err(),
        "the only permit is taken"
    );
    drop(first);
    // The server sees it in its own time.
    let served = async {
        loop {
            if let Ok(stream) = connect(address, &ca, None, &["http/1.1"]).await {
                return get(stream, "/who").await.unwrap().0;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(timeout(DEADLINE, served).await.expect("a permit comes free"), 200);
    closing.cancel();
    timeout(DEADLINE, task)
        .await
        .expect("the listener stops")
        .unwrap();
}
