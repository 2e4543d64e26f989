//! HTTP/2: a well-behaved server that records its requests, and frames for servers that behave otherwise.

use super::server::Received;
use super::tls::Certificate;
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::fmt::Write as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Header fields as literals without a name's index or Huffman's code.
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for word in [name, value] {
            let length = u8::try_from(word.len()).unwrap();
            assert!(length < 127, "longer strings have longer lengths");
            block.push(length);
            block.extend(word.as_bytes());
        }
    }
    block
}

/// The header frame of an answer that goes on.
pub(crate) fn headers(list: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, &fields(list))
}

/// Trailers, or an answer that is only headers.
pub(crate) fn last_headers(list: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(list))
}

/// A message of gRPC in a data frame.
pub(crate) fn message(compressed: u8, claimed: u32, body: &[u8]) -> Vec<u8> {
    let mut payload = vec![compressed];
    payload.extend(claimed.to_be_bytes());
    payload.extend(body);
    frame(DATA, 0, 1, &payload)
}

/// The last data frame.
pub(crate) fn last_data(payload: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, 1, payload)
}

/// Ends the stream with an error code.
pub(crate) fn reset_stream(code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, 1, &code.to_be_bytes())
}

/// Ends the connection with an error code.
pub(crate) fn go_away(last_stream: u32, code: u32, debug: &str) -> Vec<u8> {
    let mut payload = last_stream.to_be_bytes().to_vec();
    payload.extend(code.to_be_bytes());
    payload.extend(debug.as_bytes());
    frame(GOAWAY, 0, 0, &payload)
}

/// Sends SETTINGS, acknowledges those of the client, and reads until a request has ended. Returns its body:
/// the two sides compress their headers differently.
pub(crate) async fn request_frames<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
) -> std::io::Result<String> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let mut body = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await?;
        let (kind, flags) = (head[3], head[4]);
        if kind == SETTINGS && flags & ACK == 0 {
            stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?;
        }
        if kind == DATA {
            body.extend(payload);
            if flags & END_STREAM != 0 {
                return Ok(format!("{body:?}"));
            }
        }
    }
}

/// Answers every request; see [`Serve::Http2`](super::server::Serve::Http2).
pub(crate) async fn serve(listener: TcpListener, certificate: Option<Certificate>, record: Received) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let record = record.clone();
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| answer(request, record.clone()));
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // How the other side ends a connection is not judged here.
            let _ended = match certificate {
                None => server.serve_connection(TokioIo::new(stream), service).await,
                Some(certificate) => {
                    let Ok(stream) = certificate.acceptor(&[b"h2", b"http/1.1"]).accept(stream).await else {
                        return;
                    };
                    server.serve_connection(TokioIo::new(stream), service).await
                }
            };
        });
    }
}

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

async fn answer(request: Request<Incoming>, record: Received) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let mut told = format!("{:?} {} {}\n", head.version, head.method, head.uri);
    let mut lines: Vec<String> = head
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()))
        .collect();
    lines.sort();
    told.extend(lines);
    let body = body.collect().await.map(http_body_util::Collected::to_bytes);
    write!(told, "{body:?}").unwrap();
    record.lock().unwrap().push(told);
    let grpc = head
        .headers
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let frames = if grpc {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        vec![
            Frame::data(Bytes::from_static(&[0, 0, 0, 0, 2, 8, 1])),
            Frame::trailers(trailers),
        ]
    } else {
        vec![Frame::data(Bytes::from_static(b"ok"))]
    };
    let body = StreamBody::new(futures::stream::iter(frames.into_iter().map(Ok)));
    let mut response = Response::new(BodyExt::boxed(body));
    if grpc {
        let kind = "application/grpc".parse().unwrap();
        response.headers_mut().insert("content-type", kind);
    }
    Ok(response)
}
