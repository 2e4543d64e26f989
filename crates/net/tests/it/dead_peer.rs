//! API servers that fall silent, in front of real clients.

use crate::relay::Relay;
use crate::tls::{DEADLINE, ca, server_identity};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use evenkeel_net::client::{Access, Activity, ClientArgs, Endpoint, ServerArgs, Transport};
use evenkeel_net::serve::{ServerTls, serve_http, serve_https};
use futures::StreamExt as _;
use kube::{Client, client::Body as KubeBody};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::layer::layer_fn;
use tower::{BoxError, Service, service_fn};

/// A server of which `/version` tells the HTTP version spoken, `/watch` never ends, and `/busy` is
/// overloaded.
struct Server {
    address: SocketAddr,
    directory: tempfile::TempDir,
    busy: Arc<AtomicUsize>,
    _stop: DropGuard,
}

/// What an elector gives a request at 5/3/1 s.
const IMPATIENT: Duration = Duration::from_millis(1_500);

impl Server {
    async fn start() -> Self {
        evenkeel_net::init_crypto();
        let ca = ca();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), ca.certificate_pem()).unwrap();
        let tls = ServerTls::new(&server_identity(&ca, "api"), None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let busy = Arc::new(AtomicUsize::new(0));
        tokio::spawn(serve_https(listener, tls, app(busy.clone()), stop.clone()));
        Self {
            address,
            directory,
            busy,
            _stop: stop.drop_guard(),
        }
    }

    /// The server behind these addresses, named by flags.
    async fn behind(&self, first: SocketAddr, further: &[SocketAddr]) -> Access {
        let args = ClientArgs {
            server: ServerArgs {
                server: Some(format!("https://{first}")),
                certificate_authority: Some(self.directory.path().join("ca.pem")),
                tls_server_name: Some("localhost".to_owned()),
                ..ServerArgs::default()
            },
            api_endpoint: further
                .iter()
                .map(|address| address.to_string().parse::<Endpoint>().unwrap())
                .collect(),
            ..ClientArgs::default()
        };
        args.access().await.unwrap()
    }
}

fn app(busy: Arc<AtomicUsize>) -> Router {
    Router::new().fallback(move |request: Request| {
        let busy = Arc::clone(&busy);
        async move { answer(&request, &busy) }
    })
}

fn answer(request: &Request, busy: &AtomicUsize) -> Response {
    match request.uri().path() {
        "/watch" => {
            let first = futures::stream::iter([Ok::<_, std::io::Error>("{}\n")]);
            Body::from_stream(first.chain(futures::stream::pending())).into_response()
        }
        "/busy" => {
            busy.fetch_add(1, Ordering::SeqCst);
            http::StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
        _ => format!("{:?}", request.version()).into_response(),
    }
}

fn get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).unwrap()
}

/// The HTTP version that the server was spoken to in.
async fn version(client: &Client) -> Result<String, kube::Error> {
    timeout(DEADLINE, client.request_text(get("/version")))
        .await
        .unwrap()
}

/// An address that answers no SYN: the queue of its listener is full.
struct BlackHole {
    address: SocketAddr,
    _listener: socket2::Socket,
    _queued: Vec<socket2::Socket>,
}

impl BlackHole {
    async fn new() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        // Linux takes one more than the backlog says; ask until an attempt hangs.
        while timeout(
            Duration::from_millis(300),
            tokio::net::TcpStream::connect(address),
        )
        .await
        .is_ok()
        {
            let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            // In progress is what it should be.
            let _ = client.connect(&address.into());
            queued.push(client);
        }
        Self {
            address,
            _listener: socket,
            _queued: queued,
        }
    }
}

#[tokio::test]
async fn http_2_is_spoken_where_the_server_offers_it() {
    let server = Server::start().await;
    let access = server.behind(server.address, &[]).await;
    let client = access.client("test").unwrap();
    assert_eq!(version(&client).await.unwrap(), "HTTP/2.0");
    // But for those who upgrade their connections, which HTTP/2 has not.
    let upgrading = access.upgrading("test").unwrap();
    assert_eq!(version(&upgrading).await.unwrap(), "HTTP/1.1");
    drop(upgrading);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let plain = tokio::spawn(serve_http(listener, app(Arc::default()), stop.clone()));
    let access = Access::new(kube::Config::new(url.parse().unwrap()), &[]).unwrap();
    let client = access.client("test").unwrap();
    assert_eq!(version(&client).await.unwrap(), "HTTP/1.1");
    drop(client);
    stop.cancel();
    plain.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_watch_on_a_silent_connection_ends_by_pings() {
    let server = Server::start().await;
    let relay = Relay::to(server.address).await;
    let client = server.behind(relay.address, &[]).await.client("test").unwrap();
    let answer = client
        .send(get("/watch?watch=true").map(KubeBody::from))
        .await
        .unwrap();
    let mut parts = http_body_util::BodyDataStream::new(answer.into_body());
    assert_eq!(parts.next().await.unwrap().unwrap(), "{}\n");
    relay.silence_open();
    // The time-out of a watch alone would be minutes.
    let ended = timeout(DEADLINE, parts.next()).await.unwrap();
    assert!(ended.is_some_and(|part| part.is_err()));
    assert_eq!(version(&client).await.unwrap(), "HTTP/2.0");
}

#[tokio::test]
async fn a_calm_connection_is_heard_by_its_pings_and_a_silent_one_ends_when_it_was_said() {
    let server = Server::start().await;
    let relay = Relay::to(server.address).await;
    let access = server.behind(relay.address, &[]).await;
    let client = access.pong_within(Duration::from_secs(1)).client("test").unwrap();
    let answer = client
        .send(get("/watch?watch=true").map(KubeBody::from))
        .await
        .unwrap();
    let activity = answer.extensions().get::<Activity>().unwrap().clone();
    let mut parts = http_body_util::BodyDataStream::new(answer.into_body());
    parts.next().await.unwrap().unwrap();
    let calm = Instant::now();
    let heard = async {
        while !activity.received_since(calm) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(DEADLINE, heard).await.unwrap();

    relay.silence_open();
    let silent = Instant::now();
    assert!(timeout(DEADLINE, parts.next()).await.unwrap().unwrap().is_err());
    // 5 s until the ping and 1 s for its answer, where the default takes 10 s.
    assert!(
        silent.elapsed() < Duration::from_secs(9),
        "{:?}",
        silent.elapsed()
    );
    assert!(!activity.received_since(silent + Duration::from_secs(1)));
}

/// The pings of a watch prove that its connection lives; requests are not to need another one.
#[tokio::test]
async fn a_request_long_after_the_last_one_takes_the_connection_of_the_watch() {
    let server = Server::start().await;
    let relay = Relay::to(server.address).await;
    let client = server.behind(relay.address, &[]).await.client("test").unwrap();
    let watch = get("/watch?watch=true").map(KubeBody::from);
    let _watch = client.send(watch).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(600)).await;
    tokio::time::resume();
    assert_eq!(version(&client).await.unwrap(), "HTTP/2.0");
    assert_eq!(relay.accepted(), 1);
}

#[tokio::test]
async fn who_reads_once_leaves_repetitions_to_its_callers() {
    let server = Server::start().await;
    let access = server.behind(server.address, &[]).await.reading_once();
    let client = access.client("test").unwrap();
    assert!(client.request_text(get("/busy")).await.is_err());
    assert_eq!(server.busy.load(Ordering::SeqCst), 1);
    assert_eq!(version(&client).await.unwrap(), "HTTP/2.0");
}

#[tokio::test]
async fn a_request_given_up_in_silence_takes_its_connection_with_it() {
    let server = Server::start().await;
    let relay = Relay::to(server.address).await;
    let client = server.behind(relay.address, &[]).await.client("test").unwrap();
    version(&client).await.unwrap();
    version(&client).await.unwrap();
    assert_eq!(relay.accepted(), 1, "one connection serves all");
    relay.silence_open();
    assert!(timeout(IMPATIENT, version(&client)).await.is_err());
    // On the silent connection this would fail with the pings.
    version(&client).await.unwrap();
    assert_eq!(relay.accepted(), 2);
}

#[tokio::test]
async fn an_address_that_drops_or_refuses_is_passed_by() {
    let server = Server::start().await;
    let hole = BlackHole::new().await;
    let refusing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = refusing.local_addr().unwrap();
    drop(refusing);
    for first in [hole.address, refused] {
        let client = server
            .behind(first, &[server.address])
            .await
            .client("test")
            .unwrap();
        timeout(DEADLINE, version(&client)).await.unwrap().unwrap();
    }
    let nowhere = server.behind(refused, &[]).await.client("test").unwrap();
    let error = version(&nowhere).await.unwrap_err();
    let mut text = String::new();
    let mut source: Option<&dyn std::error::Error> = Some(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    assert!(
        text.contains(&format!("cannot connect to the API server: {refused}: ")),
        "{text}"
    );
}

#[tokio::test]
async fn clients_stay_with_the_address_that_answers_and_leave_it_when_it_fails() {
    let server = Server::start().await;
    let (one, two) = (Relay::to(server.address).await, Relay::to(server.address).await);
    let access = server.behind(one.address, &[two.address]).await;
    version(&access.client("test").unwrap()).await.unwrap();
    assert_eq!((one.accepted(), two.accepted()), (1, 0));

    // It accepts connections and says nothing on them: what a load balancer without its server does.
    one.silence();
    let client = access.client("test").unwrap();
    assert!(timeout(IMPATIENT, version(&client)).await.is_err());
    version(&client).await.unwrap();
    let (tried, used) = (one.accepted(), two.accepted());
    assert!(used > 0);
    for _ in 0..3 {
        version(&access.client("test").unwrap()).await.unwrap();
    }
    assert_eq!(
        (one.accepted(), two.accepted()),
        (tried, used + 3),
        "what one client learned, the others know"
    );

    // Back, when the second one fails: the first is mended by now.
    let at = one.address;
    one.close().await;
    let back = tokio::spawn(forward(TcpListener::bind(at).await.unwrap(), server.address));
    two.close().await;
    version(&access.client("test").unwrap()).await.unwrap();
    back.abort();
}

/// Passes on whatever comes.
async fn forward(listener: TcpListener, server: SocketAddr) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
            // An error is the end of the connection, as it should be.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

#[tokio::test]
async fn every_client_has_its_own_connection() {
    let server = Server::start().await;
    let relay = Relay::to(server.address).await;
    let access = server.behind(relay.address, &[]).await;
    let (work, election) = (access.client("work").unwrap(), access.client("election").unwrap());
    version(&work).await.unwrap();
    version(&election).await.unwrap();
    assert_eq!(relay.accepted(), 2);
}

#[tokio::test]
async fn a_layer_sees_each_request_once_and_can_refuse_it() {
    let server = Server::start().await;
    let access = server.behind(server.address, &[]).await;
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let layer = layer_fn(move |transport: Transport| {
        let counted = Arc::clone(&counted);
        service_fn(move |request: http::Request<KubeBody>| {
            counted.fetch_add(1, Ordering::SeqCst);
            // Ready by contract: a hyper client always is, and so is what is around it.
            let mut transport = transport.clone();
            async move {
                if request.method() != http::Method::GET {
                    return Err(BoxError::from("the gate is closed"));
                }
                std::future::poll_fn(|cx| transport.poll_ready(cx)).await?;
                transport.call(request).await
            }
        })
    });
    let client = access.client_with("test", &layer).unwrap();
    assert!(client.request_text(get("/busy")).await.is_err());
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    let sent = server.busy.load(Ordering::SeqCst);
    assert!(sent > 1, "reads are repeated below the layer: {sent}");

    let write = http::Request::put("/busy").body(Vec::new()).unwrap();
    let error = client.request_text(write).await.unwrap_err();
    assert!(error.to_string().contains("the gate is closed"), "{error}");
    assert_eq!(server.busy.load(Ordering::SeqCst), sent, "nothing was sent");
}
