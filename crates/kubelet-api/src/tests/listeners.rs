use super::super::Node;
use super::super::fake::{Fake, Mood};
use super::super::listeners::{ListenError, Listeners, Settings, raise_file_limit};
use super::peer::{Credential, ca, client, connects, get, serving, text};
use axum::body::Body;
use axum::routing::get as route;
use axum::{Extension, Router};
use evenkeel_net::serve::ServerTls;
use evenkeel_testkit::{ends, eventually};
use futures::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DEADLINE: Duration = Duration::from_secs(20);

fn app() -> Router {
    let endless = || async {
        let first = stream::iter([Ok::<_, std::io::Error>("first")]);
        Body::from_stream(first.chain(stream::pending()))
    };
    Router::new()
        .route(
            "/who",
            route(|Extension(node): Extension<Node>| async move { node.name.to_string() }),
        )
        .route("/endless", route(endless))
}

fn listeners(first_port: u16, tls: ServerTls, app: Router, shutdown: &CancellationToken) -> Listeners {
    let settings = Settings {
        address: LOOPBACK,
        first_port,
    };
    Listeners::new(settings, tls, app, shutdown.clone())
}

#[tokio::test]
async fn each_door_is_its_nodes_and_closes_alone() {
    let ca = ca("serving");
    let tls = ServerTls::new(&serving(&ca), None).unwrap();
    let shutdown = CancellationToken::new();
    let listeners = listeners(0, tls, app(), &shutdown);
    let (one, two) = (listeners.open("one").unwrap(), listeners.open("two").unwrap());
    assert_eq!(listeners.open("one").unwrap(), one);
    assert_eq!((listeners.len(), listeners.address("two")), (2, Some(two)));
    let at_one = client(one, &ca, Credential::Nothing).await;
    let at_two = client(two, &ca, Credential::Nothing).await;
    assert_eq!(text(&at_one, "/who").await.as_deref(), Some("one"));
    assert_eq!(text(&at_two, "/who").await.as_deref(), Some("two"));

    let mut endless = get(&at_one, "/endless").await.unwrap().into_body();
    assert!(endless.frame().await.unwrap().is_ok());
    listeners.close("one");
    // What does not end by itself is cut.
    let rest = ends("it is cut", endless.frame()).await;
    assert!(!matches!(rest, Some(Ok(_))), "{rest:?}");
    assert!(!connects(one, &ca).await);
    assert_eq!(text(&at_two, "/who").await.as_deref(), Some("two"));
    assert_eq!(listeners.address("one"), None);
    listeners.close("one");

    shutdown.cancel();
    ends("they close", listeners.closed()).await;
    assert!(!connects(two, &ca).await);
}

#[tokio::test]
async fn the_lowest_free_port_is_taken_and_others_are_passed_over() {
    let ca = ca("serving");
    let tls = ServerTls::new(&serving(&ca), None).unwrap();
    let shutdown = CancellationToken::new();
    // Somebody else's, with the ports after it most probably free.
    let other = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
    let first = other.local_addr().unwrap().port();
    let listeners = listeners(first, tls, app(), &shutdown);
    let (one, two) = (
        listeners.open("one").unwrap().port(),
        listeners.open("two").unwrap().port(),
    );
    assert!(first < one && one < two, "{first} {one} {two}");
    listeners.close("one");
    // Its listener goes in its own time; then the port is taken again.
    eventually("the port is free", DEADLINE, || async {
        let again = listeners.open("three").unwrap().port();
        if again != one {
            listeners.close("three");
        }
        (again == one).then_some(())
    })
    .await;
    shutdown.cancel();
}

#[tokio::test]
async fn no_address_is_an_error_that_names_the_node() {
    let ca = ca("serving");
    let tls = ServerTls::new(&serving(&ca), None).unwrap();
    let settings = Settings {
        // TEST-NET-1: no address of any machine.
        address: "192.0.2.1".parse().unwrap(),
        first_port: 10_250,
    };
    let listeners = Listeners::new(settings, tls, app(), CancellationToken::new());
    let error = listeners.open("one").unwrap_err();
    assert!(matches!(error, ListenError::Listen { .. }), "{error:?}");
    let error = error.to_string();
    assert!(
        error.starts_with("cannot listen for node one on 192.0.2.1:10250: "),
        "{error}"
    );
    assert!(listeners.is_empty());
}

#[tokio::test]
async fn handshakes_fail_until_there_is_a_certificate() {
    let ca = ca("serving");
    let tls = ServerTls::without_certificate().unwrap();
    let shutdown = CancellationToken::new();
    let listeners = listeners(0, tls.clone(), app(), &shutdown);
    let address: SocketAddr = listeners.open("one").unwrap();
    assert!(!connects(address, &ca).await);
    tls.replace(&serving(&ca)).unwrap();
    assert!(connects(address, &ca).await);
    shutdown.cancel();
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_log_it_followed() {
    let ca = ca("serving");
    let tls = ServerTls::new(&serving(&ca), None).unwrap();
    let shutdown = CancellationToken::new();
    let fake = Fake::new(Mood::Good);
    let listeners = listeners(0, tls, fake.routes(), &shutdown);
    let client = client(listeners.open("n").unwrap(), &ca, Credential::Nothing).await;
    let mut log = get(&client, "/containerLogs/default/web/c?follow=true")
        .await
        .unwrap()
        .into_body();
    // Each line comes when it is written, not when there is enough of them.
    assert_eq!(log.frame().await.unwrap().unwrap().into_data().unwrap(), "one\n");
    assert!(!fake.log_dropped.is_cancelled());
    drop((log, client));
    let dropped = tokio::time::timeout(DEADLINE, fake.log_dropped.cancelled()).await;
    dropped.expect("the provider's stream is dropped");
    shutdown.cancel();
}

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test]
#[ignore = "a measurement: prints what an idle listener costs"]
async fn ten_thousand_idle_doors() {
    const DOORS: u64 = 10_000;
    let limit = raise_file_limit().unwrap();
    assert!(limit > DOORS + 100, "the limit of open files is {limit}");
    let ca = ca("serving");
    let tls = ServerTls::new(&serving(&ca), None).unwrap();
    let shutdown = CancellationToken::new();
    let fake = Fake::new(Mood::Good);
    let listeners = listeners(20_000, tls, fake.routes(), &shutdown);
    let (before, begun) = (resident(), std::time::Instant::now());
    for number in 0..DOORS {
        listeners.open(&format!("node-{number}")).unwrap();
    }
    let opened = begun.elapsed();
    // Every task has run once, and waits.
    let last = client(listeners.address("node-9999").unwrap(), &ca, Credential::Nothing).await;
    assert_eq!(text(&last, "/healthz").await.as_deref(), Some("ok"));
    let each = (resident() - before) / DOORS;
    println!("{DOORS} listeners opened in {opened:?}, {each} bytes each");
    shutdown.cancel();
    listeners.closed().await;
}
