//! The HTTP tunnel and the heartbeat beyond what is recorded, and the knobs of a test.

use super::recordings::is_never_answered;
use super::{SOON, ask, base, install, post, raw, rest, send, url};
use crate::arklet::{Base, BizState, Carrier, Heartbeats, Setup, heartbeat};
use crate::until;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn a_body_beyond_one_mebibyte_is_refused() {
    let base = base();
    let head = |connection: &str| {
        format!(
            "POST /installBiz HTTP/1.1\r\nHost: a\r\n{connection}Content-Length: {}\r\n\r\n",
            (1 << 20) + 1
        )
    };
    let refused = raw(base.address(), &head("Connection: close\r\n")).await;
    assert_eq!(
        refused,
        "HTTP/1.1 413 Request Entity Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    // A connection that is to be kept alive stays open.
    let mut stream = send(base.address(), &head("")).await;
    let expected = "HTTP/1.1 413 Request Entity Too Large\r\ncontent-length: 0\r\n\r\n";
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, expected.as_bytes());
    assert_eq!(base.requests("installBiz"), 0);
    let largest = format!("{{\"x\":\"{}\"}}", "y".repeat((1 << 20) - 8));
    assert_eq!(largest.len(), 1 << 20);
    let read = ask(&base, "queryAllBiz", &largest).await;
    assert_eq!(read["code"], "SUCCESS");
}

#[tokio::test]
async fn chunked_bodies_and_expectations_are_understood() {
    let base = base();
    let body = install("biz1", "0.0.1");
    let (first, second) = body.split_at(10);
    let request = format!(
        "POST /installBiz?x=y HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{first}\r\n{:x};e=1\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    let answer = raw(base.address(), &request).await;
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{"));
    assert_eq!(base.state("biz1", "0.0.1"), Some(BizState::Activated));
    assert_eq!(base.log()[0].body, body);
    assert_eq!(base.log()[0].carrier, Carrier::EventLoop);
}

#[tokio::test]
async fn a_slow_synchronous_installation_keeps_its_event_loop() {
    let base = Base::start(Setup {
        loops: 3,
        jars: super::recorded_jars(),
        ..Setup::default()
    });
    let slow = send(base.address(), &post("installBiz", &install("slow", "0.0.1"))).await;
    until("it has begun", async || {
        base.state("slow", "0.0.1") == Some(BizState::Resolved)
    })
    .await;
    // Connections go to the loops in turn: two get answers, the third meets the busy loop.
    for _ in 0..2 {
        ask(&base, "health", "{}").await;
    }
    let blocked = send(base.address(), &post("health", "{}")).await;
    for _ in 0..2 {
        ask(&base, "health", "{}").await;
    }
    assert_eq!(base.requests("health"), 4);
    base.release(&url("slow", "0.0.1"));
    assert!(rest(slow).await.contains("Install Biz: slow:0.0.1 success"));
    assert!(rest(blocked).await.starts_with("HTTP/1.1 200 OK\r\n\r\n{"));
    assert_eq!(base.requests("health"), 5);
}

#[tokio::test]
async fn a_base_hangs_garbles_refuses_and_comes_back() {
    let base = base();
    base.hang_on("installBiz");
    is_never_answered(&base, &install("biz1", "0.0.1")).await;
    ask(&base, "health", "{}").await;
    base.garble("HTTP/1.1 200 OK\r\n\r\n{\"code\":");
    let garbled = raw(base.address(), &post("installBiz", &install("biz1", "0.0.1"))).await;
    assert_eq!(garbled, "HTTP/1.1 200 OK\r\n\r\n{\"code\":");
    base.serve();
    assert_eq!(base.modules(), []);
    assert_eq!(base.requests("installBiz"), 2);
    base.refuse().await;
    assert!(TcpStream::connect(base.address()).await.is_err());
    base.accept().await;
    ask(&base, "installBiz", &install("biz1", "0.0.1")).await;
    let held = send(base.address(), "POST /health HTTP/1.1\r\n").await;
    base.kill().await;
    assert!(!base.is_up() && base.modules().is_empty());
    // Its connections are gone too.
    let broken = async { held.peek(&mut [0; 1]).await.unwrap_or(0) };
    assert_eq!(tokio::time::timeout(SOON, broken).await.unwrap(), 0);
    assert!(TcpStream::connect(base.address()).await.is_err());
    base.restart().await;
    ask(&base, "health", "{}").await;
}

#[tokio::test]
async fn any_loopback_address_can_be_a_base() {
    let ip = Ipv4Addr::new(127, 9, 8, 7);
    let base = Base::start(Setup {
        ip: ip.into(),
        ..Setup::default()
    });
    assert_eq!(base.address().ip(), ip);
    assert_eq!(base.identity().id, "127.9.8.7");
    let health = ask(&base, "health", "{}").await;
    assert_eq!(health["baseIdentity"], "127.9.8.7");
}

#[tokio::test]
async fn heartbeats_go_on_through_refusals_and_restarts() {
    let controller = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = base();
    let url = format!("http://{}/", controller.local_addr().unwrap());
    let next = async |answer: &str| {
        let (mut stream, _) = controller.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let read = stream.read(&mut request).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request[..read].to_vec()).unwrap()
    };
    base.heartbeat_every(&url, Duration::from_millis(5));
    let first = next("HTTP/1.1 503 Unavailable\r\n\r\n").await;
    let host = controller.local_addr().unwrap().to_string();
    let (identity, port) = (base.identity(), base.address().port());
    assert_eq!(first, heartbeat::request(&host, "/heartbeat", identity, port));
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nSUCCESS";
    next(ok).await;
    until("both are counted", async || {
        let Heartbeats { accepted, failed } = base.heartbeats();
        accepted == 1 && failed == 1
    })
    .await;
    base.restart().await;
    next(ok).await;
    base.no_heartbeat();
}

#[tokio::test]
async fn heartbeats_come_from_the_address_of_the_base() {
    let controller = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ip = Ipv4Addr::new(127, 9, 8, 6);
    let base = Base::start(Setup {
        ip: ip.into(),
        ..Setup::default()
    });
    base.heartbeat_to(&format!("http://{}", controller.local_addr().unwrap()));
    let (_stream, peer) = controller.accept().await.unwrap();
    assert_eq!(peer.ip(), ip);
}

#[tokio::test]
async fn three_hundred_bases_live_side_by_side() {
    let jars = super::recorded_jars();
    let bases: Vec<_> = (0..300)
        .map(|number: u16| {
            let [high, low] = number.to_be_bytes();
            Base::start(Setup {
                ip: Ipv4Addr::new(127, 77, high, low + u8::from(low == 0)).into(),
                jars: jars.clone(),
                ..Setup::default()
            })
        })
        .collect();
    for base in &bases {
        ask(base, "installBiz", &install("biz1", "0.0.1")).await;
    }
    assert!(bases.iter().all(|base| base.modules().len() == 1));
}
