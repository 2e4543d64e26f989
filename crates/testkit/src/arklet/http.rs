//! The HTTP tunnel, on raw TCP because no HTTP library would answer as arklet does: no headers, the body
//! ended by the close of the connection, one request per connection, and no answer at all to some requests.

use super::bean::bean;
use super::engine::{Command, Output, Processed};
use super::live::{Conduct, Live};
use super::world::Carrier;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// The largest body that is accepted.
const LARGEST: usize = 1 << 20;
/// The largest head of a request that is read; arklet takes less.
const LARGEST_HEAD: usize = 64 << 10;

const TOO_LARGE: &str = "HTTP/1.1 413 Request Entity Too Large\r\ncontent-length: 0\r\n";
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\n\r\n";
const ONLY_POST: &str = "POST http request only supported by arklet";

/// Accepts connections until told to stop.
pub(crate) async fn serve(listener: TcpListener, live: Arc<Live>, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return crate::ports::close(listener),
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // The peer is gone already, or the process is out of descriptors and has to wait for some.
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let number = live.next_loop();
        let serving = live.clone();
        live.spawn(async move {
            // A connection that breaks concerns nobody.
            let _broken = connection(stream, &serving, number).await;
        });
    }
}

async fn connection(mut stream: TcpStream, live: &Arc<Live>, number: usize) -> io::Result<()> {
    let request = match read(&mut stream).await? {
        Read::Request(request) => request,
        Read::TooLarge { keep_alive } => {
            let end = if keep_alive {
                "\r\n"
            } else {
                "connection: close\r\n\r\n"
            };
            stream.write_all(format!("{TOO_LARGE}{end}").as_bytes()).await?;
            if keep_alive {
                // The rest of the body is read and thrown away.
                closed(&mut stream).await?;
            }
            return stream.shutdown().await;
        }
        Read::Broken => return Ok(()),
    };
    let busy = live.event_loop(number).await;
    let command = request.command();
    live.inner.note(Carrier::EventLoop, command, &request.body);
    let conduct = live.inner.conduct.borrow().clone();
    let answer = match conduct {
        Conduct::Garble(bytes) => Some(bytes),
        conduct if conduct.hangs(command) => None,
        _ => answer(&request, live).await,
    };
    drop(busy);
    // It may have been told to hang while it worked.
    let hangs = live.inner.conduct.borrow().hangs(command);
    match answer.filter(|_| !hangs) {
        Some(answer) => {
            stream.write_all(&answer).await?;
            stream.shutdown().await
        }
        None => closed(&mut stream).await,
    }
}

/// What is sent back; nothing to what arklet fails to read.
async fn answer(request: &Request, live: &Arc<Live>) -> Option<Vec<u8>> {
    if request.method != "POST" {
        let length = ONLY_POST.len();
        let answer =
            format!("HTTP/1.1 500 Internal Server Error\r\nContent_Length: {length}\r\n\r\n{ONLY_POST}");
        return Some(answer.into_bytes());
    }
    let content = if request.body.trim().is_empty() {
        None
    } else {
        match serde_json::from_str(&request.body) {
            Ok(Value::Null) => None,
            Ok(content @ Value::Object(_)) => Some(content),
            Ok(_) | Err(_) => return None,
        }
    };
    let Some(command) = Command::named(request.command()) else {
        let answer = bean([
            ("code", json!("CMD_NOT_FOUND")),
            ("message", json!("please follow the doc")),
        ]);
        return Some(format!("{OK}{answer}").into_bytes());
    };
    let step = live.begin(command, content.as_ref(), Carrier::EventLoop);
    let result = live.drive(step).await;
    let answer = envelope(&live.inner.identity.id, result);
    Some(format!("{OK}{answer}").into_bytes())
}

/// arklet's envelope of a result.
fn envelope(identity: &str, result: Processed) -> Value {
    match result {
        Ok(Output::Success(data)) => bean([
            ("baseIdentity", json!(identity)),
            ("code", json!("SUCCESS")),
            ("data", data),
        ]),
        Ok(Output::Failed { data, message }) => bean([
            ("baseIdentity", json!(identity)),
            ("code", json!("FAILED")),
            ("data", data),
            ("message", json!(message)),
        ]),
        Err(thrown) => bean([
            ("code", json!("CMD_PROCESS_INTERNAL_ERROR")),
            ("errorStackTrace", json!(thrown.trace())),
            (
                "message",
                json!(format!(
                    "Internal Error: {}",
                    thrown.message.as_deref().unwrap_or("null")
                )),
            ),
        ]),
    }
}

/// Reads until the peer closes.
async fn closed(stream: &mut TcpStream) -> io::Result<()> {
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

struct Request {
    method: String,
    target: String,
    body: String,
}

impl Request {
    /// The path without its first slash and without a query.
    fn command(&self) -> &str {
        let path = self.target.split('?').next().unwrap_or_default();
        path.strip_prefix('/').unwrap_or(path)
    }
}

enum Read {
    Request(Request),
    TooLarge {
        keep_alive: bool,
    },
    /// The peer went away, or did not speak HTTP.
    Broken,
}

async fn read(stream: &mut TcpStream) -> io::Result<Read> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > LARGEST_HEAD || stream.read_buf(&mut bytes).await? == 0 {
            return Ok(Read::Broken);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut rest = bytes.split_off(head_end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version)) = (first.next(), first.next(), first.next()) else {
        return Ok(Read::Broken);
    };
    let headers: BTreeMap<String, &str> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .collect();
    let says = |name: &str, what: &str| {
        headers
            .get(name)
            .is_some_and(|value| value.eq_ignore_ascii_case(what))
    };
    let keep_alive = match version {
        "HTTP/1.0" => says("connection", "keep-alive"),
        _ => !says("connection", "close"),
    };
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok());
    if length.is_some_and(|length: usize| length > LARGEST) {
        return Ok(Read::TooLarge { keep_alive });
    }
    if says("expect", "100-continue") {
        stream.write_all(CONTINUE.as_bytes()).await?;
    }
    let body = if says("transfer-encoding", "chunked") {
        match chunked(stream, &mut rest).await? {
            Chunks::Body(body) => body,
            Chunks::TooLarge => return Ok(Read::TooLarge { keep_alive }),
            Chunks::Broken => return Ok(Read::Broken),
        }
    } else {
        let length = length.unwrap_or(0);
        while rest.len() < length {
            if stream.read_buf(&mut rest).await? == 0 {
                return Ok(Read::Broken);
            }
        }
        rest.truncate(length);
        rest
    };
    Ok(Read::Request(Request {
        method: method.to_owned(),
        target: target.to_owned(),
        body: String::from_utf8_lossy(&body).into_owned(),
    }))
}

enum Chunks {
    Body(Vec<u8>),
    TooLarge,
    Broken,
}

async fn chunked(stream: &mut TcpStream, rest: &mut Vec<u8>) -> io::Result<Chunks> {
    let mut body = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = find(rest, b"\r\n") {
                break end;
            }
            if rest.len() > LARGEST_HEAD || stream.read_buf(rest).await? == 0 {
                return Ok(Chunks::Broken);
            }
        };
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        let size = line.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else {
            return Ok(Chunks::Broken);
        };
        if size > LARGEST - body.len() {
            return Ok(Chunks::TooLarge);
        }
        let wanted = end + 2 + size + 2;
        while rest.len() < wanted {
            if stream.read_buf(rest).await? == 0 {
                return Ok(Chunks::Broken);
            }
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest.drain(..wanted);
        if size == 0 {
            return Ok(Chunks::Body(body));
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
