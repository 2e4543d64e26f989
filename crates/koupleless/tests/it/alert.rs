//! Alerts on their way to receivers: HTTP and HTTPS, well and ill.

use crate::DEADLINE;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use evenkeel_koupleless::alert::{Alerts, Options};
use evenkeel_koupleless::core::alert::{Alert, Hook, Limits, Scene, Shape, hooks};
use evenkeel_net::pki::{Ca, ServerNames, Validity};
use evenkeel_net::serve::{ServerTls, serve_http, serve_https};
use evenkeel_testkit::{eventually, until};
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A receiver that keeps what it gets.
#[derive(Clone, Default)]
struct Receiver {
    got: Arc<Mutex<Vec<(Uri, Value)>>>,
    /// What it answers first; then 200.
    answers: Arc<Mutex<VecDeque<(StatusCode, &'static str)>>>,
}

async fn receive(State(receiver): State<Receiver>, uri: Uri, body: String) -> (StatusCode, &'static str) {
    let body = serde_json::from_str(&body).unwrap();
    receiver.got.lock().unwrap().push((uri, body));
    let answer = receiver.answers.lock().unwrap().pop_front();
    answer.unwrap_or((StatusCode::OK, r#"{"errcode":0,"errmsg":"ok"}"#))
}

impl Receiver {
    fn app(&self) -> Router {
        Router::new().fallback(receive).with_state(self.clone())
    }

    async fn serve(&self, tls: Option<ServerTls>, stop: &CancellationToken) -> SocketAddr {
        evenkeel_net::init_crypto();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (app, stop) = (self.app(), stop.clone());
        tokio::spawn(async move {
            match tls {
                Some(tls) => serve_https(listener, tls, app, stop).await,
                None => serve_http(listener, app, stop).await,
            }
        });
        address
    }

    async fn got(&self, alerts: usize) -> Vec<(Uri, Value)> {
        eventually(&format!("{alerts} alerts"), DEADLINE, || async {
            let got = self.got.lock().unwrap();
            (got.len() >= alerts).then(|| got.clone())
        })
        .await
    }
}

fn options(hooks: Vec<Hook>) -> Options {
    Options {
        hooks,
        limits: Limits::default(),
        timeout: Duration::from_secs(5),
        roots: Some(RootCertStore::empty()),
    }
}

fn alert(scene: Scene, base: &str) -> Alert {
    Alert {
        scene,
        base: base.to_owned(),
        module: None,
        message: "see http://jars/a.jar?token=hidden".to_owned(),
        at: Timestamp::UNIX_EPOCH,
    }
}

fn start(options: Options) -> (Alerts, CancellationToken, DropGuard) {
    let stop = CancellationToken::new();
    let alerts = Alerts::start(options, &stop).unwrap();
    (alerts, stop.clone(), stop.drop_guard())
}

async fn counts_become(alerts: &Alerts, counts: (u64, u64)) {
    until(&format!("{counts:?} alerts sent and dropped"), async || {
        alerts.counts() == counts
    })
    .await;
}

#[tokio::test]
async fn each_receiver_gets_its_shape_and_the_same_alert_once() {
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let receiver = Receiver::default();
    let address = receiver.serve(None, &stop).await;
    let mut all = hooks(&format!("http://{address}/robot?access_token=t"), Shape::DingTalk).unwrap();
    all.extend(hooks(&format!("http://{address}/json"), Shape::Json).unwrap());
    let (alerts, _, _ends_too) = start(options(all));
    for _ in 0..3 {
        alerts.raise(alert(Scene::BaseLost, "a"));
    }
    alerts.raise(alert(Scene::BaseLost, "b"));
    counts_become(&alerts, (4, 0)).await;
    let got = receiver.got(4).await;
    let (robot, json): (Vec<_>, Vec<_>) = got.iter().partition(|(uri, _)| uri.path() == "/robot");
    assert_eq!((robot.len(), json.len()), (2, 2));
    assert_eq!(robot[0].0.query(), Some("access_token=t"));
    assert_eq!(robot[0].1["msgtype"], "markdown");
    assert_eq!(json[0].1["message"], "see http://jars/a.jar?token=***");
}

#[tokio::test]
async fn what_fails_for_a_while_is_tried_again_and_what_is_refused_is_not() {
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let receiver = Receiver::default();
    let address = receiver.serve(None, &stop).await;
    let answers = [
        (StatusCode::BAD_GATEWAY, ""),
        (StatusCode::OK, "fine"),
        (
            StatusCode::OK,
            r#"{"errcode":310000,"errmsg":"keywords not in content"}"#,
        ),
        (StatusCode::FOUND, ""),
    ];
    receiver.answers.lock().unwrap().extend(answers);
    let all = hooks(&format!("http://{address}/"), Shape::DingTalk).unwrap();
    let (alerts, _, _ends_too) = start(options(all));
    for base in ["a", "b", "c"] {
        alerts.raise(alert(Scene::Overload, base));
    }
    counts_become(&alerts, (1, 2)).await;
    assert_eq!(receiver.got(4).await.len(), 4);
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_nobody() {
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let receiver = Receiver::default();
    let address = receiver.serve(None, &stop).await;
    // Connections wait in its queue, and are never accepted.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = format!("http://{}/;http://{address}/", silent.local_addr().unwrap());
    let settings = Options {
        timeout: Duration::from_secs(3_600),
        limits: Limits {
            burst: 1_000,
            ..Limits::default()
        },
        ..options(hooks(&text, Shape::Json).unwrap())
    };
    let (alerts, _, _ends_too) = start(settings);
    for base in 0..50 {
        alerts.raise(alert(Scene::BaseLost, &base.to_string()));
    }
    receiver.got(50).await;
    // The queue of the other is full in the end, and what it cannot hold is dropped.
    for base in 50..100 {
        alerts.raise(alert(Scene::BaseLost, &base.to_string()));
    }
    receiver.got(100).await;
    assert!(alerts.counts().1 >= 35, "{:?}", alerts.counts());
}

#[tokio::test]
async fn receivers_must_have_a_certificate_that_is_trusted() {
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let now = Timestamp::now().as_second();
    let validity = Validity {
        from: now - 60,
        until: now + 3_600,
    };
    let names = ServerNames {
        dns: vec!["localhost".to_owned()],
        ips: vec![],
    };
    let ca = Ca::new("alerts", validity).unwrap();
    let identity = ca.issue_server("receiver", &names, validity).unwrap();
    let receiver = Receiver::default();
    let tls = ServerTls::new(&identity, None).unwrap();
    let address = receiver.serve(Some(tls), &stop).await;
    let text = format!("https://localhost:{}/?access_token=t", address.port());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca.certificate_pem().as_bytes()).unwrap())
        .unwrap();
    let all = hooks(&text, Shape::DingTalk).unwrap();
    let (distrusts, _, _first) = start(options(all.clone()));
    distrusts.raise(alert(Scene::BaseLost, "a"));
    counts_become(&distrusts, (0, 1)).await;
    assert_eq!(receiver.got.lock().unwrap().len(), 0);
    let (trusts, _, _second) = start(Options {
        roots: Some(roots),
        ..options(all)
    });
    trusts.raise(alert(Scene::BaseLost, "a"));
    counts_become(&trusts, (1, 0)).await;
    assert_eq!(receiver.got(1).await.len(), 1);
}

/// Answers without end, and how many connections are open.
async fn endless() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let open = Arc::new(AtomicUsize::new(0));
    let count = open.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                count.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
                count.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (address, open)
}

#[tokio::test]
async fn answers_that_are_not_read_to_their_end_leave_no_connection_open() {
    evenkeel_net::init_crypto();
    let (address, open) = endless().await;
    let all = hooks(&format!("http://{address}/"), Shape::Json).unwrap();
    let (alerts, _, _ends) = start(options(all));
    for base in 0..10 {
        alerts.raise(alert(Scene::BaseLost, &base.to_string()));
    }
    until("all are sent or dropped", async || {
        let (sent, dropped) = alerts.counts();
        sent + dropped == 10
    })
    .await;
    until("no connection is open", async || open.load(Ordering::SeqCst) == 0).await;
}
