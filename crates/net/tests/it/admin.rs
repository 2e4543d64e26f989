use crate::tls::DEADLINE;
use evenkeel_net::admin::Admin;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    answer
}

#[tokio::test]
async fn readiness_follows_its_check_and_liveness_does_not() {
    let admin = Admin::new("test");
    let synced = Arc::new(AtomicBool::new(false));
    let seen = synced.clone();
    admin.live("loop", || Ok(()));
    admin.ready("informers", move || {
        if seen.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err("nodes not listed yet".to_owned())
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(admin.serve(listener, shutdown.clone()));

    let answer = get(address, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    let body = "\r\n\r\n[+]ping ok\n[-]informers failed: nodes not listed yet\nreadyz check failed\n";
    assert!(answer.ends_with(body), "{answer}");
    for path in ["/livez", "/healthz"] {
        let answer = get(address, path).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"),
            "{answer}"
        );
    }
    synced.store(true, Ordering::Relaxed);
    let answer = get(address, "/readyz?verbose").await;
    assert!(
        answer.ends_with("\r\n\r\n[+]ping ok\n[+]informers ok\nreadyz check passed\n"),
        "{answer}"
    );

    let answer = get(address, "/metrics").await;
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
    assert!(
        answer.contains("evenkeel_build_info{component=\"test\""),
        "{answer}"
    );
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    assert!(get(address, "/elsewhere").await.starts_with("HTTP/1.1 404 "));

    shutdown.cancel();
    tokio::time::timeout(DEADLINE, serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

/// A connection that begins a request and does not end it stays open for two minutes.
#[tokio::test]
async fn who_keeps_connections_open_keeps_no_probe_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(Admin::new("test").serve(listener, shutdown.clone()));
    let mut held = Vec::new();
    for _ in 0..100 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        // One that was refused is closed, perhaps already.
        let _ = stream.write_all(b"GET /livez HTTP/1.1\r\n").await;
        held.push(stream);
    }
    // Connections are accepted one after the other, so that what was refused before is closed now.
    assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 "));
    let mut open = 0;
    for stream in &mut held {
        let closed = tokio::time::timeout(Duration::from_millis(20), stream.read_u8()).await;
        open += usize::from(closed.is_err());
    }
    assert_eq!(open, 16);
    shutdown.cancel();
    tokio::time::timeout(DEADLINE, serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
