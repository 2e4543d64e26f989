//! The client over HTTP against a server with arklet's manners.

use super::golden::{Exchange, outcome};
use super::server::{Conduct, Seen, Server};
use evenkeel_arklet::envelope::Envelope;
use evenkeel_arklet::health::Limit;
use evenkeel_arklet::http::HttpOptions;
use evenkeel_arklet::{
    Command, ErrorKind, HttpTunnel, Install, ModuleId, Outcome, Request, Tunnel as _, TunnelError,
};
use evenkeel_testkit::{ends, until};
use serde_json::{Value, json};
use std::time::Duration;

const SECONDS: Duration = Duration::from_secs(30);

fn quick() -> HttpTunnel {
    HttpTunnel::new(HttpOptions {
        poll: Duration::from_millis(1),
        poll_most: Duration::from_millis(20),
        ..HttpOptions::default()
    })
}

fn biz1() -> (ModuleId, Install) {
    let id = ModuleId::new("biz1", "0.0.1");
    (
        id.clone(),
        Install::new(id, "file:///opt/biz/biz1-0.0.1-ark-biz.jar"),
    )
}

fn record(status: &str, more: &Value) -> Value {
    let mut data = json!({"status": status, "startTimestamp": 100, "endTimestamp": 0});
    for (key, value) in more.as_object().unwrap() {
        data[key] = value.clone();
    }
    json!({"baseIdentity": "192.0.2.2", "code": "SUCCESS", "data": data})
}

fn list(entries: &[(&str, &str, i64)]) -> Value {
    let entries: Vec<Value> = entries
        .iter()
        .map(|(name, state, created)| {
            json!({"bizName": name, "bizVersion": "0.0.1", "bizState": state,
                "bizStateRecords": [{"changeTime": created, "reason": "Created", "state": "resolved", "message": ""}]})
        })
        .collect();
    json!({"baseIdentity": "192.0.2.2", "code": "SUCCESS", "data": entries})
}

fn lost() -> Value {
    json!({"baseIdentity": "192.0.2.2", "code": "FAILED", "message": "Not found the corresponding ops record."})
}

/// A base whose asynchronous install goes through these answers of `queryBizOps`; the last one is repeated.
async fn base(accepted: Value, ops: Vec<Value>, modules: Value) -> Server {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    Server::start(move |_, seen| match seen.path() {
        "/installBiz" => Conduct::json(&accepted),
        "/queryBizOps" => {
            let nth = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Conduct::json(&ops[nth.min(ops.len() - 1)])
        }
        "/queryAllBiz" => Conduct::json(&modules),
        other => panic!("{other}"),
    })
    .await
}

async fn install(server: &Server) -> Result<Outcome, TunnelError> {
    let (_, install) = biz1();
    let base = server.base();
    let tunnel = quick();
    ends("it ends", tunnel.install(&base, &install)).await
}

#[tokio::test]
async fn every_recorded_answer_comes_through_the_socket_unchanged() {
    let tunnel = quick();
    for file in ["arklet-http-1.txt", "arklet-http-2.txt"] {
        for exchange in Exchange::all(file) {
            let Some(answer) = exchange.answer else { continue };
            let bytes = answer.clone().into_bytes();
            let server = Server::start(move |_, _| Conduct::Say(bytes.clone())).await;
            let got = tunnel.call(&server.base(), &Request::Modules, SECONDS).await;
            if exchange.asked == "GET health" {
                match got.map_err(|error| error.kind) {
                    Err(ErrorKind::Status { status: 500, text }) => {
                        assert_eq!(text, "POST http request only supported by arklet");
                    }
                    other => panic!("{other:?}"),
                }
                continue;
            }
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            assert_eq!(
                got.unwrap(),
                Envelope::decode(body.as_bytes()).unwrap(),
                "{}",
                exchange.asked
            );
        }
    }
}

#[tokio::test]
async fn requests_are_posts_of_objects_on_connections_of_their_own() {
    let server = base(
        record("INITIALIZED", &json!({})),
        vec![
            record("EXECUTING", &json!({})),
            record("SUCCEEDED", &json!({"endTimestamp": 200})),
        ],
        list(&[("biz1", "activated", 150)]),
    )
    .await;
    assert_eq!(
        outcome(&install(&server).await.unwrap()),
        "done, biz1:0.0.1 is activated"
    );
    let seen = server.seen();
    let paths: Vec<&str> = seen.iter().map(Seen::path).collect();
    assert_eq!(
        paths,
        ["/installBiz", "/queryBizOps", "/queryBizOps", "/queryAllBiz"]
    );
    let id = seen[0].json()["requestId"].as_str().unwrap().to_owned();
    assert!(id.starts_with("evenkeel-") && id.len() == 41, "{id}");
    let install = json!({"bizName": "biz1", "bizVersion": "0.0.1", "async": true, "requestId": id,
        "bizUrl": "file:///opt/biz/biz1-0.0.1-ark-biz.jar"});
    let wanted = [
        install,
        json!({"requestId": id}),
        json!({"requestId": id}),
        json!({}),
    ];
    for (seen, wanted) in seen.iter().zip(wanted) {
        assert!(seen.head.starts_with("POST /"), "{}", seen.head);
        assert_eq!(seen.json(), wanted);
        assert!(
            seen.head.to_lowercase().contains("host: 127.0.0.1:"),
            "{}",
            seen.head
        );
    }
}

#[tokio::test]
async fn two_installs_have_two_request_ids() {
    let done = record("SUCCEEDED", &json!({"endTimestamp": 200}));
    let server = base(done.clone(), vec![done], list(&[("biz1", "activated", 150)])).await;
    install(&server).await.unwrap();
    install(&server).await.unwrap();
    let ids: Vec<Value> = server
        .seen()
        .iter()
        .filter(|seen| seen.path() == "/installBiz")
        .map(|seen| seen.json()["requestId"].clone())
        .collect();
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn an_install_ends_as_its_record_does() {
    let running = || record("EXECUTING", &json!({}));
    let failed = |more: Value| record("FAILED", &more);
    let none = || list(&[]);
    let throwable = json!({"message": "java.lang.reflect.InvocationTargetException", "throwable": {
        "@type": "a.Outer", "cause": {"@type": "java.lang.IllegalStateException", "message": "boom from bad"}}});
    let no_success = json!({"message": "install biz not success!"});
    let succeeded = record("SUCCEEDED", &json!({"endTimestamp": 200}));
    let table = [
        (
            failed(throwable),
            none(),
            "FAILED: IllegalStateException: boom from bad",
        ),
        (
            record(
                "INITIALIZED",
                &json!({"endTimestamp": 100, "message": "command conflict, exist unfinished command for this biz"}),
            ),
            none(),
            "conflict: command conflict, exist unfinished command for this biz",
        ),
        (
            failed(no_success.clone()),
            list(&[("biz1", "broken", 1)]),
            "repeat: install biz not success!",
        ),
        (failed(no_success), none(), "FAILED: install biz not success!"),
        (
            succeeded.clone(),
            list(&[("biz2", "activated", 150)]),
            "mismatch: asked for biz1:0.0.1, but the manifest of the jar says otherwise: biz2:0.0.1",
        ),
        (
            succeeded,
            list(&[("biz1", "deactivated", 150)]),
            "done, biz1:0.0.1 is deactivated",
        ),
    ];
    for (end, modules, wanted) in table {
        let server = base(running(), vec![running(), end], modules).await;
        assert_eq!(outcome(&install(&server).await.unwrap()), wanted);
    }
}

#[tokio::test]
async fn an_install_that_is_refused_at_once_is_not_watched() {
    let refusal = json!({"baseIdentity": "192.0.2.2", "code": "FAILED", "message": "The request corresponding to the requestId(x) has been executed."});
    let server = base(refusal, vec![lost()], list(&[])).await;
    assert!(matches!(install(&server).await, Ok(Outcome::Failed(_))));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_base_that_restarts_during_an_install_is_an_error_of_its_own() {
    let server = base(
        record("EXECUTING", &json!({})),
        vec![record("EXECUTING", &json!({})), lost()],
        list(&[]),
    )
    .await;
    let error = install(&server).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::RecordLost { .. }), "{error:?}");
    assert!(error.may_have_run());
}

#[tokio::test]
async fn a_lost_acceptance_is_asked_for_again() {
    let server = Server::start(|_, seen| match seen.path() {
        "/installBiz" => Conduct::Close,
        "/queryBizOps" => Conduct::json(&record("SUCCEEDED", &json!({"endTimestamp": 200}))),
        _ => Conduct::json(&list(&[("biz1", "activated", 150)])),
    })
    .await;
    assert_eq!(
        outcome(&install(&server).await.unwrap()),
        "done, biz1:0.0.1 is activated"
    );

    let server = Server::start(|_, seen| match seen.path() {
        "/installBiz" => Conduct::Close,
        _ => Conduct::json(&lost()),
    })
    .await;
    let error = install(&server).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Broken { .. }), "{error:?}");
}

#[tokio::test]
async fn questions_without_answer_are_asked_again() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |nth, seen| match (seen.path(), nth) {
        ("/installBiz", _) => Conduct::json(&record("EXECUTING", &json!({}))),
        (_, 1 | 3) => Conduct::Close,
        (_, 2) => Conduct::Say(b"HTTP/1.1 200 OK\r\n\r\n{".to_vec()),
        ("/queryBizOps", _) => Conduct::json(&record("SUCCEEDED", &json!({"endTimestamp": 200}))),
        // The list is refused once, too.
        _ if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 => Conduct::Close,
        _ => Conduct::json(&list(&[("biz1", "activated", 150)])),
    })
    .await;
    assert_eq!(
        outcome(&install(&server).await.unwrap()),
        "done, biz1:0.0.1 is activated"
    );
}

#[tokio::test]
async fn an_install_that_does_not_end_is_left_at_the_deadline_with_what_was_last_met() {
    let (_, install) = biz1();
    let tunnel = HttpTunnel::new(HttpOptions {
        poll: Duration::from_millis(1),
        install: Duration::from_millis(300),
        ..HttpOptions::default()
    });
    let running = || record("EXECUTING", &json!({}));
    let server = base(running(), vec![running()], list(&[])).await;
    let error = tunnel.install(&server.base(), &install).await.unwrap_err();
    assert!(
        matches!(error.kind, ErrorKind::Unfinished { source: None, .. }),
        "{error:?}"
    );

    let server = Server::start(move |_, seen| match seen.path() {
        "/installBiz" => Conduct::json(&running()),
        _ => Conduct::Close,
    })
    .await;
    let error = tunnel.install(&server.base(), &install).await.unwrap_err();
    match error.kind {
        ErrorKind::Unfinished {
            source: Some(source), ..
        } => {
            assert!(matches!(source.kind, ErrorKind::Broken { .. }), "{source:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn giving_up_stops_the_questions() {
    let server = Server::start(|nth, seen| match (seen.path(), nth) {
        ("/installBiz", _) => Conduct::json(&record("EXECUTING", &json!({}))),
        (_, 1) => Conduct::json(&record("EXECUTING", &json!({}))),
        _ => Conduct::Hang,
    })
    .await;
    let (_, install) = biz1();
    let (tunnel, base) = (quick(), server.base());
    {
        let mut waiting = tunnel.install(&base, &install);
        let third = until("the third request", async || server.seen().len() == 3);
        tokio::select! {
            outcome = &mut waiting => panic!("{outcome:?}"),
            () = third => {}
        }
    }
    // The connection of the question under way is closed, and it was the last.
    until("all connections ended", async || server.left() == 3).await;
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn the_other_commands_are_asked_as_they_are() {
    let server = Server::start(|_, seen| match seen.path() {
        "/health" => Conduct::json(&json!({"baseIdentity": "192.0.2.2", "code": "SUCCESS", "data": {"healthData": {
            "jvm": {"java used metaspace": 16_754_816, "java committed metaspace": 16_973_824, "java max metaspace": -1,
                "run time(s)": 8.122, "java version": "17.0.15"},
            "cpu": {"count": 2, "total used (%)": 14430.0, "user used (%)": 2.7, "free (%)": 93.6},
            "masterBizInfo": {"bizName": "base", "bizState": "activated", "bizVersion": "1.0.0", "webContextPath": "/"},
            "pluginListInfo": [{"pluginName": "web-ark-plugin", "pluginVersion": "2.2.16"}],
            "bizListInfo": [{"bizName": "base", "bizState": "activated", "bizVersion": "1.0.0", "webContextPath": "/"}]}}})),
        "/help" => Conduct::json(&json!({"baseIdentity": "192.0.2.2", "code": "SUCCESS", "data": [{"desc": "d", "id": "help"}]})),
        "/batchInstallBiz" => Conduct::json(&json!({"baseIdentity": "192.0.2.2", "code": "SUCCESS", "data": {
            "bizUrlToResponse": {}, "code": "SUCCESS", "elapsedSpace": 0, "message": "batch install success"}})),
        _ => Conduct::json(&json!({"baseIdentity": "192.0.2.2", "code": "FAILED", "data": {
            "code": "NOT_FOUND_BIZ", "message": "not found."}, "message": "x biz not success!"})),
    })
    .await;
    let (id, install) = biz1();
    let (tunnel, base) = (quick(), server.base());
    let health = tunnel.health(&base).await.unwrap();
    let jvm = health.jvm.unwrap();
    assert_eq!(jvm.metaspace_max, Some(Limit::Unlimited));
    assert_eq!(jvm.metaspace_used, Some(16_754_816));
    assert_eq!(jvm.uptime, Some(Duration::from_millis(8122)));
    assert_eq!(health.cpu.unwrap().free, Some(93.6));
    assert!(health.master.unwrap().is_active());
    assert_eq!(health.plugins[0].name, "web-ark-plugin");
    assert!(tunnel.uninstall(&base, &id).await.unwrap().is_gone());
    assert!(matches!(
        tunnel.switch(&base, &id).await,
        Ok(Outcome::NotFound { .. })
    ));
    let batch = tunnel.batch(&base, std::slice::from_ref(&install)).await.unwrap();
    assert_eq!(batch.overall, Outcome::Done { modules: vec![] });
    assert_eq!(
        tunnel.commands(&base).await.unwrap()[0].command(),
        Some(Command::Help)
    );
    let paths: Vec<String> = server.seen().iter().map(|seen| seen.path().to_owned()).collect();
    assert_eq!(
        paths,
        [
            "/health",
            "/uninstallBiz",
            "/switchBiz",
            "/batchInstallBiz",
            "/help"
        ]
    );
}

#[tokio::test]
async fn no_connection_is_left_open() {
    // What comes behind an answer is not read, and more than is wanted of one neither.
    let whole = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n{}{}",
        r#"{"code":"SUCCESS","data":[]}"#,
        "x".repeat(1 << 20)
    );
    let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(1 << 20));
    let answers = [whole, long].map(String::into_bytes);
    let server = Server::start(move |nth, _| match nth % 4 {
        0 => Conduct::Say(answers[0].clone()),
        1 => Conduct::Say(answers[1].clone()),
        2 => Conduct::Endless(b"HTTP/1.1 500 No\r\n\r\n".to_vec(), vec![b'x'; 1 << 16]),
        _ => Conduct::Hang,
    })
    .await;
    let tunnel = HttpTunnel::new(HttpOptions {
        query: Duration::from_millis(50),
        answer: 64 << 10,
        ..HttpOptions::default()
    });
    for _ in 0..40 {
        // What comes of it is told elsewhere.
        let _ = tunnel.modules(&server.base()).await;
    }
    until("all connections have ended", async || server.left() == 40).await;
}
