//! Connections over SPDY: each has a stream for data and one for errors, held together by the number of a
//! request.

use super::super::Limits;
use super::super::options::parse_port;
use super::Target;
use crate::spdy::{Connection, Headers, Offer, Stream};
use crate::{Duplex, Fault};
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Error,
}

/// Streams of one connection that is not complete yet.
struct Pair {
    deadline: Instant,
    port: u16,
    data: Option<Stream>,
    error: Option<Stream>,
}

pub(super) async fn serve<F>(
    socket: impl Duplex,
    limits: Limits,
    target: Arc<Target<F>>,
    closing: CancellationToken,
) where
    F: Fn(u16) -> BoxFuture<'static, Result<Box<dyn Duplex>, Fault>> + Send + Sync + 'static,
{
    let mut connection = Connection::server(socket, limits.spdy());
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    // Dropped, and with it the connections to the pod, when the client leaves.
    let mut running = JoinSet::new();
    loop {
        let deadline = pairs.values().map(|pair| pair.deadline).min();
        tokio::select! {
            offer = connection.offer() => match offer {
                Some(offer) => {
                    if let Some((port, data, error)) = take(&mut pairs, limits, offer).await {
                        running.spawn(forward(target.clone(), port, data, error));
                    }
                }
                None => break,
            },
            Some(_) = running.join_next(), if !running.is_empty() => {}
            () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                expire(&mut pairs).await;
            }
            () = closing.cancelled() => {
                tracing::debug!("a port-forward ends with its node");
                running.shutdown().await;
                drop(pairs);
                return connection.close().await;
            }
        }
    }
    let ended = connection.ended().await;
    tracing::debug!(%ended, "a client's port-forward ended");
}

/// Takes a stream; hands out its pair once it is complete.
async fn take(
    pairs: &mut BTreeMap<String, Pair>,
    limits: Limits,
    offer: Offer,
) -> Option<(u16, Stream, Stream)> {
    let (kind, port) = match requested(offer.headers()) {
        Ok(requested) => requested,
        Err(why) => {
            // Dropping the offer refuses it.
            tracing::warn!(why, "a client opened a stream that is refused");
            return None;
        }
    };
    let request = request(&offer, kind);
    let pair = pairs.entry(request.clone()).or_insert_with(|| Pair {
        deadline: Instant::now() + limits.creation,
        port,
        data: None,
        error: None,
    });
    let (place, name) = match kind {
        Kind::Data => (&mut pair.data, "data"),
        Kind::Error => (&mut pair.error, "error"),
    };
    if place.is_some() {
        let text = format!("error processing stream for request {request}: {name} stream already assigned");
        return report(pair.error.as_mut(), &text).await;
    }
    *place = Some(offer.accept());
    if kind == Kind::Data {
        pair.port = port;
    }
    if pair.data.is_none() || pair.error.is_none() {
        return None;
    }
    let pair = pairs.remove(&request)?;
    Some((pair.port, pair.data?, pair.error?))
}

async fn report<T>(error: Option<&mut Stream>, text: &str) -> Option<T> {
    tracing::warn!(text, "a client's connection to a port failed");
    if let Some(error) = error {
        // Failures to write mean that the client has left, which ends all of this.
        let _ = error.write_all(text.as_bytes()).await;
    }
    None
}

/// Gives up on connections whose second stream does not come.
async fn expire(pairs: &mut BTreeMap<String, Pair>) {
    let now = Instant::now();
    let late = pairs.iter().filter(|(_, pair)| pair.deadline <= now);
    let late: Vec<String> = late.map(|(request, _)| request.clone()).collect();
    for request in late {
        let Some(mut pair) = pairs.remove(&request) else {
            continue;
        };
        let text = format!("(request={request}) timed out waiting for streams");
        report::<()>(pair.error.as_mut(), &text).await;
        if let Some(error) = &mut pair.error {
            error.finish();
        }
    }
}

async fn forward<F>(target: Arc<Target<F>>, port: u16, data: Stream, mut error: Stream)
where
    F: Fn(u16) -> BoxFuture<'static, Result<Box<dyn Duplex>, Fault>> + Send + Sync + 'static,
{
    if let Err(text) = target.forward(port, data).await {
        report::<()>(Some(&mut error), &text).await;
    }
    error.finish();
}

/// What a stream is for, by the rules and in the words of the kubelet.
fn requested(headers: &Headers) -> Result<(Kind, u16), String> {
    let header = |name: &str| headers.get(name).filter(|value| !value.is_empty());
    let port = header("port").ok_or("\"port\" header is required")?;
    let port = match parse_port(port) {
        Ok(0) => return Err(format!("port {port:?} must be > 0")),
        Ok(port) => port,
        Err(why) => return Err(format!("unable to parse {port:?} as a port: {why}")),
    };
    match header("streamType") {
        Some("data") => Ok((Kind::Data, port)),
        Some("error") => Ok((Kind::Error, port)),
        Some(other) => Err(format!("invalid stream type {other:?}")),
        None => Err("\"streamType\" header is required".to_owned()),
    }
}

/// Old clients do not number requests: they open the stream for errors, and the one for data next.
fn request(offer: &Offer, kind: Kind) -> String {
    let number = offer
        .headers()
        .get("requestID")
        .filter(|number| !number.is_empty());
    number.map_or_else(
        || match kind {
            Kind::Error => offer.id().to_string(),
            Kind::Data => offer.id().saturating_sub(2).to_string(),
        },
        str::to_owned,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(&[], "\"port\" header is required")]
    #[case(&[("port", "x")], r#"unable to parse "x" as a port: strconv.ParseUint: parsing "x": invalid syntax"#)]
    #[case(&[("port", "0")], r#"port "0" must be > 0"#)]
    #[case(&[("port", "1")], "\"streamType\" header is required")]
    #[case(&[("port", "1"), ("streamtype", "stdin")], r#"invalid stream type "stdin""#)]
    fn wrong_streams_are_refused_in_the_kubelets_words(#[case] headers: &[(&str, &str)], #[case] why: &str) {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(requested(&Headers(headers.collect())), Err(why.to_owned()));
    }

    #[tokio::test]
    async fn a_node_that_is_closed_ends_its_connections_with_a_goodbye() {
        use crate::spdy::frame::{Decoder, Encoder, Frame};
        use tokio::io::{AsyncReadExt as _, duplex};

        let (mut client, socket) = duplex(64 * 1024);
        let (port, pod) = duplex(1024);
        let pod = std::sync::Mutex::new(Some(pod));
        let target = Target {
            pod: None,
            connect: move |_| {
                let pod = pod.lock().unwrap().take();
                let connected = async move { Ok(Box::new(pod.unwrap()) as Box<dyn Duplex>) };
                Box::pin(connected) as BoxFuture<'static, Result<Box<dyn Duplex>, Fault>>
            },
        };
        let closing = CancellationToken::new();
        let target = Arc::new(target);
        let serving = tokio::spawn(serve(socket, Limits::default(), target, closing.clone()));
        let (mut encoder, mut bytes) = (Encoder::default(), bytes::BytesMut::new());
        for (stream, kind) in [(1, "error"), (3, "data")] {
            let open = Frame::SynStream {
                stream,
                associated: 0,
                priority: 0,
                fin: false,
                unidirectional: false,
                headers: Headers::from([("streamType", kind), ("port", "80"), ("requestID", "0")]),
            };
            encoder.encode(&open, &mut bytes);
        }
        let data = bytes::Bytes::from_static(b"ping");
        encoder.encode(
            &Frame::Data {
                stream: 3,
                fin: false,
                data,
            },
            &mut bytes,
        );
        client.write_all(&bytes).await.unwrap();
        let (mut port, mut ping) = (port, [0; 4]);
        port.read_exact(&mut ping).await.unwrap();

        closing.cancel();
        assert_eq!(port.read(&mut ping).await.unwrap(), 0, "the pod's end is closed");
        let (mut decoder, mut bytes, mut goodbye) = (Decoder::default(), bytes::BytesMut::new(), false);
        while client.read_buf(&mut bytes).await.unwrap() > 0 {
            while let Some(frame) = decoder.decode(&mut bytes).unwrap() {
                goodbye |= matches!(frame, Frame::GoAway { status: 0, .. });
            }
        }
        assert!(goodbye);
        drop(client);
        serving.await.unwrap();
    }

    #[test]
    fn a_stream_says_what_it_is_for() {
        let headers = Headers::from([("port", "8080"), ("streamType", "data")]);
        assert_eq!(requested(&headers), Ok((Kind::Data, 8080)));
    }
}
