//! Tests of the fake base: against the recordings, and of what the recordings do not show.

mod fed;
mod front;
mod lifecycle;
mod mqtt;
mod recordings;

use super::{Base, Jar, Jars, Setup, Start, Thrown};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Long enough for what happens at once.
const SOON: Duration = Duration::from_secs(20);

fn url(name: &str, version: &str) -> String {
    format!("file:///opt/biz/{name}-{version}-ark-biz.jar")
}

/// The modules of the recordings. `slow` slept for 8 s when it was recorded; here the test says when it has.
fn recorded_jars() -> Jars {
    let jar = |name: &str, version: &str, main: &str| {
        Jar::new(name, version)
            .main_class(main)
            .web_context_path(&format!("/{name}"))
    };
    let boom = Thrown::new("java.lang.IllegalStateException", "boom from bad");
    Jars::new()
        .with(&url("biz1", "0.0.1"), jar("biz1", "0.0.1", "B1"))
        .with(&url("biz1", "0.0.2"), jar("biz1", "0.0.2", "B1"))
        .with(&url("biz2", "0.0.1"), jar("biz2", "0.0.1", "B2"))
        .with(
            &url("slow", "0.0.1"),
            jar("slow", "0.0.1", "S1").start(Start::Held),
        )
        .with(
            &url("bad", "0.0.1"),
            jar("bad", "0.0.1", "X1").start(Start::Fails(boom)),
        )
}

fn base() -> Base {
    Base::start(Setup {
        jars: recorded_jars(),
        ..Setup::default()
    })
}

/// The request as curl sends it.
fn post(command: &str, body: &str) -> String {
    format!(
        "POST /{command} HTTP/1.1\r\nHost: 127.0.0.1:12380\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn send(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Everything up to the close.
async fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// The raw answer to a request.
async fn raw(address: SocketAddr, request: &str) -> String {
    let exchange = async { rest(send(address, request).await).await };
    tokio::time::timeout(SOON, exchange).await.unwrap()
}

/// The document answered to a command.
async fn ask(base: &Base, command: &str, body: &str) -> Value {
    let answer = raw(base.address(), &post(command, body)).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(head, "HTTP/1.1 200 OK");
    serde_json::from_str(body).unwrap()
}

fn install(name: &str, version: &str) -> String {
    format!(
        r#"{{"bizName":"{name}","bizVersion":"{version}","bizUrl":"{}"}}"#,
        url(name, version)
    )
}

fn identity(name: &str, version: &str) -> String {
    format!(r#"{{"bizName":"{name}","bizVersion":"{version}"}}"#)
}
