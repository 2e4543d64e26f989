//! What is probed: HTTP, TCP and gRPC servers in a process of their own, on another core.

use crate::{pin, runtime};
use futures::FutureExt as _;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub(crate) const ROLE: &str = "serve-probes";

/// Servers that run until this is dropped.
pub(crate) struct Servers {
    child: Child,
    pub(crate) http: u16,
    pub(crate) tcp: u16,
    pub(crate) grpc: u16,
}

impl Servers {
    pub(crate) fn start(core: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(ROLE)
            .arg(core.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ports: Vec<u16> = line
            .split_whitespace()
            .map(|port| port.parse().unwrap())
            .collect();
        let [http, tcp, grpc] = ports[..] else {
            panic!("ports expected, got {line:?}");
        };
        Self {
            child,
            http,
            tcp,
            grpc,
        }
    }
}

impl Drop for Servers {
    /// Its standard input ends, and so does it.
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// The other process. Ends with its standard input.
pub(crate) fn run(core: usize) {
    pin(core);
    runtime().block_on(async {
        let (http, tcp, grpc) = (listen(), listen(), listen());
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        println!("{} {} {}", port(&http), port(&tcp), port(&grpc));
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter
            .set_service_status("", tonic_health::ServingStatus::Serving)
            .await;
        let health = TowerToHyperService::new(health);
        let check = move |stream| {
            let server = http2::Builder::new(TokioExecutor::new());
            // What a connection ends with is the client's affair.
            server
                .serve_connection(TokioIo::new(stream), health.clone())
                .map(drop)
        };
        let serving = async { tokio::join!(accept(http, answer), accept(tcp, ignore), accept(grpc, check)) };
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            _ = serving => {}
            ended = ended => assert!(ended.unwrap().is_ok()),
        }
    });
}

async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    serve: impl Fn(TcpStream) -> F,
) {
    loop {
        // A client that is gone already is no reason to stop.
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    }
}

/// As a small server does: reads a request, answers, closes.
async fn answer(mut stream: TcpStream) {
    let mut request = [0; 1024];
    let mut length = 0;
    while !request[..length].ends_with(b"\r\n\r\n") {
        match stream.read(&mut request[length..]).await {
            Ok(read @ 1..) => length += read,
            _ => return,
        }
    }
    let answer =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
    // A client that has gone has had enough.
    let _ = stream.write_all(answer).await;
}

/// Waits for the client to close.
async fn ignore(mut stream: TcpStream) {
    let mut nothing = [0; 16];
    while matches!(stream.read(&mut nothing).await, Ok(1..)) {}
}

fn listen() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(4096).unwrap()
}
