//! One request and its answer on one connection, driven by the task that asks: whoever gives up leaves
//! nothing behind.

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Longest head of an answer in bytes. arklet sends a bare status line.
const HEAD: usize = 16 << 10;
/// How much is read of an answer that is none of arklet's.
const FOREIGN: usize = 1 << 10;

/// What a call may take.
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) total: Duration,
    pub(super) answer: usize,
}

/// What came back.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    /// The connection broke behind this much of the body.
    pub(super) cut: Option<hyper::Error>,
}

/// Why nothing did.
pub(super) enum Fault {
    Connect(io::Error),
    Silent,
    Broken(hyper::Error),
    TooLong,
}

/// Posts `body` to `/path`.
pub(super) async fn post(
    address: SocketAddr,
    path: &str,
    body: Bytes,
    limits: &Limits,
) -> Result<Answer, Fault> {
    let begin = Instant::now();
    let end = begin + limits.total;
    let connected = timeout_at(end.min(begin + limits.connect), TcpStream::connect(address)).await;
    let stream = match connected {
        Ok(stream) => stream.map_err(Fault::Connect)?,
        Err(_) => return Err(Fault::Connect(io::ErrorKind::TimedOut.into())),
    };
    timeout_at(end, exchange(stream, address, path, body, limits.answer))
        .await
        .unwrap_or(Err(Fault::Silent))
}

async fn exchange(
    stream: TcpStream,
    address: SocketAddr,
    path: &str,
    body: Bytes,
    most: usize,
) -> Result<Answer, Fault> {
    let request = Request::post(format!("/{path}"))
        .header(header::HOST, address.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .body(Full::new(body))
        .expect("commands and addresses make valid requests");
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(Fault::Broken)?;
    let answer = async move {
        let answer = sender.send_request(request).await.map_err(Fault::Broken)?;
        let status = answer.status();
        let most = if status == StatusCode::OK { most } else { FOREIGN };
        let (body, ended) = collect(answer.into_body(), most).await;
        match ended {
            End::Over if status == StatusCode::OK => Err(Fault::TooLong),
            End::Over | End::Whole => Ok(Answer {
                status,
                body,
                cut: None,
            }),
            End::Cut(error) => Ok(Answer {
                status,
                body,
                cut: Some(error),
            }),
        }
    };
    // The connection may end while the last of the body is still to be handed over.
    let driver = async move {
        let _ = connection.await;
        pending::<()>().await;
    };
    tokio::select! {
        answer = answer => answer,
        () = driver => Err(Fault::Silent),
    }
}

enum End {
    Whole,
    Cut(hyper::Error),
    Over,
}

async fn collect(mut body: Incoming, most: usize) -> (Vec<u8>, End) {
    let mut kept = Vec::new();
    loop {
        match body.frame().await {
            Some(Ok(frame)) => {
                let data = frame.data_ref().map_or(&[][..], |data| &data[..]);
                let room = most - kept.len();
                kept.extend_from_slice(&data[..data.len().min(room)]);
                if data.len() > room {
                    return (kept, End::Over);
                }
            }
            Some(Err(error)) => return (kept, End::Cut(error)),
            None => return (kept, End::Whole),
        }
    }
}
