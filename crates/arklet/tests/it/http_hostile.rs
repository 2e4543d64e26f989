//! Servers that are no arklet, or a broken one: an error of the right kind before the deadline, and nothing
//! worse.

use super::server::{Conduct, Server};
use evenkeel_arklet::http::HttpOptions;
use evenkeel_arklet::{Base, ErrorKind, HttpTunnel, Install, ModuleId, Tunnel as _, TunnelError};
use std::time::Duration;
use tokio::net::TcpListener;

/// Generous enough for a busy machine, short enough to wait for.
const DEADLINE: Duration = Duration::from_millis(700);

fn tunnel() -> HttpTunnel {
    HttpTunnel::new(HttpOptions {
        query: DEADLINE,
        uninstall: DEADLINE,
        answer: 64 << 10,
        ..HttpOptions::default()
    })
}

async fn modules(conduct: impl Fn() -> Conduct + Send + Sync + 'static) -> Result<(), TunnelError> {
    let server = Server::start(move |_, _| conduct()).await;
    let base = server.base();
    let asked = tokio::time::timeout(Duration::from_secs(30), tunnel().modules(&base)).await;
    asked.unwrap().map(drop)
}

fn kind(result: &Result<(), TunnelError>) -> &'static str {
    match result.as_ref().map_err(|error| &error.kind) {
        Ok(()) => "ok",
        Err(ErrorKind::Silent { .. }) => "silent",
        Err(ErrorKind::Broken(_)) => "broken",
        Err(ErrorKind::Status { .. }) => "status",
        Err(ErrorKind::TooLong { .. }) => "too long",
        Err(ErrorKind::Unreadable { .. }) => "unreadable",
        Err(ErrorKind::Refused { .. }) => "refused",
        Err(ErrorKind::Connect(_)) => "connect",
        Err(_) => "another",
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\n\r\n";
const EMPTY: &str = r#"{"code":"SUCCESS","data":[]}"#;

#[tokio::test]
async fn whatever_is_answered_is_understood_or_refused() {
    let table: [(&str, &str, String); 20] = [
        ("as arklet", "ok", format!("{OK}{EMPTY}")),
        ("with a length", "ok", format!("HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n{EMPTY}and more")),
        ("in chunks", "ok", format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1c\r\n{EMPTY}\r\n0\r\n\r\n")),
        ("a continue first", "ok", format!("HTTP/1.1 100 Continue\r\n\r\n{OK}{EMPTY}")),
        ("HTTP/1.0", "ok", format!("HTTP/1.0 200 OK\r\n\r\n{EMPTY}")),
        ("a second answer behind", "ok", format!("{OK}{EMPTY}{OK}{EMPTY}")),
        ("garbage", "broken", "\u{0}\u{1}SSH-2.0-x\r\n".repeat(20)),
        ("no head", "broken", EMPTY.to_owned()),
        ("half a head", "broken", "HTTP/1.1 200 O".to_owned()),
        ("nothing", "broken", String::new()),
        ("an empty body", "unreadable", OK.to_owned()),
        ("half a body", "unreadable", format!("{OK}{}", &EMPTY[..20])),
        ("a length that is not kept", "broken", format!("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", &EMPTY[..20])),
        ("a page", "unreadable", format!("{OK}<html>hello</html>")),
        ("no list", "unreadable", format!("{OK}{{\"code\":\"SUCCESS\"}}")),
        ("deep nesting", "unreadable", format!("{OK}{}", "[".repeat(50_000))),
        ("a refusal", "refused", format!("{OK}{{\"code\":\"CMD_NOT_FOUND\",\"message\":\"please follow the doc\"}}")),
        ("413", "status", "HTTP/1.1 413 Request Entity Too Large\r\ncontent-length: 0\r\n\r\n".to_owned()),
        (
            "a GET's answer",
            "status",
            "HTTP/1.1 500 Internal Server Error\r\nContent_Length: 42\r\n\r\nPOST http request only supported by arklet".to_owned(),
        ),
        ("a redirection", "status", "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.9/\r\n\r\n".to_owned()),
    ];
    for (what, wanted, bytes) in table {
        let result = modules(move || Conduct::Say(bytes.clone().into_bytes())).await;
        assert_eq!(kind(&result), wanted, "{what}: {result:?}");
    }
}

#[tokio::test]
async fn whoever_does_not_come_to_an_end_is_left() {
    let ok = || OK.as_bytes().to_vec();
    assert_eq!(kind(&modules(|| Conduct::Hang).await), "silent", "never answers");
    assert_eq!(
        kind(&modules(|| Conduct::Close).await),
        "broken",
        "closes at once"
    );
    let endless = modules(move || Conduct::Endless(ok(), b"{\"a\":".to_vec())).await;
    assert_eq!(kind(&endless), "too long", "endless body");
    let head = modules(|| Conduct::Endless(b"HTTP/1.1 200 OK\r\n".to_vec(), b"X-A: b\r\n".to_vec())).await;
    assert_eq!(kind(&head), "broken", "endless head");
    let continues = || Conduct::Endless(Vec::new(), b"HTTP/1.1 100 Continue\r\n\r\n".to_vec());
    assert_eq!(kind(&modules(continues).await), "silent", "endless continues");
    let drip = modules(|| Conduct::Drip(b"HTTP/1.1 200 OK\r\nX-A: b\r\n".to_vec())).await;
    assert!(
        matches!(kind(&drip), "silent" | "broken"),
        "byte by byte: {drip:?}"
    );
    let slow = modules(move || Conduct::Drip([OK.as_bytes(), b"    "].concat())).await;
    assert_eq!(kind(&slow), "silent", "a body byte by byte");
    let page = || Conduct::Endless(b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec(), b"<p>no</p>".to_vec());
    match modules(page).await.map_err(|error| error.kind) {
        Err(ErrorKind::Status { status: 404, text }) => assert!(text.starts_with("<p>no</p>"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_reset_takes_nothing_from_a_complete_answer() {
    let whole = modules(|| Conduct::SayAndReset(format!("{OK}{EMPTY}").into_bytes())).await;
    assert_eq!(kind(&whole), "ok", "{whole:?}");
    let half = modules(|| Conduct::SayAndReset(format!("{OK}{}", &EMPTY[..20]).into_bytes())).await;
    assert_eq!(kind(&half), "broken", "{half:?}");
}

#[tokio::test]
async fn errors_name_the_base_and_the_command_and_say_whether_it_may_have_run() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let base = Base {
        identity: "b1".to_owned(),
        environment: "dev".to_owned(),
        address: Some(address),
    };
    let id = ModuleId::new("a", "1");
    let refused = tunnel().uninstall(&base, &id).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("base b1 at {address}: cannot connect for uninstallBiz")
    );
    assert!(!refused.may_have_run());

    let server = Server::start(|_, _| Conduct::Hang).await;
    let silent = tunnel().uninstall(&server.base(), &id).await.unwrap_err();
    assert_eq!(
        silent.to_string(),
        format!(
            "base 192.0.2.2 at {}: no answer to uninstallBiz within 700ms",
            server.address
        )
    );
    assert!(silent.may_have_run());

    let nowhere = Base {
        address: None,
        ..base
    };
    let unsupported = tunnel().modules(&nowhere).await.unwrap_err();
    assert!(
        matches!(unsupported.kind, ErrorKind::Unsupported { .. }),
        "{unsupported:?}"
    );
    let half = tunnel().uninstall(&server.base(), &ModuleId::new("a", "")).await;
    let half = half.unwrap_err();
    assert!(matches!(half.kind, ErrorKind::Invalid(_)), "{half:?}");
    let long = Install {
        args: vec!["x".repeat(1 << 20)],
        ..Install::new(id, "file:a")
    };
    let too_long = tunnel().install(&server.base(), &long).await.unwrap_err();
    assert!(matches!(too_long.kind, ErrorKind::Invalid { .. }), "{too_long:?}");
    assert_eq!(server.seen().len(), 1, "nothing of that was sent");
}
