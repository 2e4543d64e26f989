//! A bare SPDY client: what kubectl never does.

use super::raw::ask;
use super::stand_in::StandIn;
use bytes::{Bytes, BytesMut};
use evenkeel_kubelet_api::spdy::Headers;
use evenkeel_kubelet_api::spdy::frame::{Decoder, Encoder, Frame, INITIAL_WINDOW_SIZE, reset};
use evenkeel_kubelet_api::stream::Limits;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(60);

struct Client {
    socket: TcpStream,
    encoder: Encoder,
    decoder: Decoder,
    bytes: BytesMut,
}

impl Client {
    async fn connect(server: SocketAddr, path: &str, protocol: &str) -> Self {
        let answer = ask(
            server,
            "POST",
            path,
            &[
                ("Connection", "Upgrade"),
                ("Upgrade", "SPDY/3.1"),
                ("X-Stream-Protocol-Version", protocol),
            ],
        )
        .await;
        assert_eq!(answer.status, 101);
        assert_eq!(answer.header("upgrade"), Some("SPDY/3.1"));
        assert_eq!(answer.header("x-stream-protocol-version"), Some(protocol));
        Self {
            socket: answer.socket,
            encoder: Encoder::default(),
            decoder: Decoder::default(),
            bytes: BytesMut::new(),
        }
    }

    async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        self.encoder.encode(&frame, &mut bytes);
        self.socket.write_all(&bytes).await.unwrap();
    }

    /// The next frame; `None` when the server has closed.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.bytes).unwrap() {
                return Some(frame);
            }
            let read = tokio::time::timeout(PATIENCE, self.socket.read_buf(&mut self.bytes)).await;
            if read.expect("the server sends nothing").unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    async fn open<const N: usize>(&mut self, stream: u32, headers: [(&str, &str); N]) {
        self.send(Frame::SynStream {
            stream,
            associated: 0,
            priority: 0,
            fin: false,
            unidirectional: false,
            headers: Headers::from(headers),
        })
        .await;
    }

    async fn opened<const N: usize>(&mut self, stream: u32, headers: [(&str, &str); N]) {
        self.open(stream, headers).await;
        let reply = Frame::SynReply {
            stream,
            fin: false,
            headers: Headers::default(),
        };
        assert_eq!(self.next().await, Some(reply));
    }

    async fn data(&mut self, stream: u32, data: &[u8], fin: bool) {
        let data = Bytes::copy_from_slice(data);
        self.send(Frame::Data { stream, fin, data }).await;
    }

    /// All data of a stream until its end; other frames are passed over.
    async fn read(&mut self, stream: u32) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(frame) = self.next().await {
            match frame {
                Frame::Data {
                    stream: of,
                    fin,
                    data,
                } if of == stream => {
                    all.extend_from_slice(&data);
                    if fin {
                        break;
                    }
                }
                Frame::RstStream { stream: of, .. } if of == stream => break,
                _ => {}
            }
        }
        all
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn requests_that_ask_for_nothing_known_are_refused_in_upstreams_words() {
    let server = StandIn::start().await;
    let close = ("Connection", "close");
    let answer = ask(server.address, "POST", "exec?command=x&stdout=true", &[close]).await;
    assert_eq!(
        (answer.status, answer.body().await.as_str()),
        (400, "Upgrade request required")
    );

    let upgrade = [("Connection", "Upgrade, close"), ("Upgrade", "SPDY/3.1")];
    let answer = ask(server.address, "POST", "exec?command=x&stdout=true", &upgrade).await;
    let wanted =
        "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with 3 headers";
    assert_eq!((answer.status, answer.body().await.as_str()), (400, wanted));

    let unknown = [
        upgrade[0],
        upgrade[1],
        ("X-Stream-Protocol-Version", "v5.channel.k8s.io, v9"),
    ];
    let answer = ask(server.address, "POST", "exec?command=x&stdout=true", &unknown).await;
    assert_eq!(answer.status, 403);
    let accepted = answer
        .headers
        .iter()
        .filter(|(name, _)| name == "x-accepted-stream-protocol-versions");
    let accepted: Vec<&str> = accepted.map(|(_, value)| value.as_str()).collect();
    assert_eq!(
        accepted,
        [
            "v4.channel.k8s.io",
            "v3.channel.k8s.io",
            "v2.channel.k8s.io",
            "channel.k8s.io"
        ]
    );
    let wanted = "unable to upgrade: unable to negotiate protocol: client supports [v5.channel.k8s.io v9], \
                  server accepts [v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io channel.k8s.io]";
    assert_eq!(answer.body().await, wanted);

    let answer = ask(server.address, "POST", "exec?command=x", &unknown).await;
    let wanted = "you must specify at least 1 of stdin, stdout, stderr";
    assert_eq!((answer.status, answer.body().await.as_str()), (400, wanted));
}

#[tokio::test]
async fn versions_differ_in_how_a_failure_is_told() {
    let server = StandIn::start().await;
    let message =
        "command terminated with non-zero exit code: error executing command [fail 3 oh], exit code 3";
    for (protocol, structured) in [
        ("v4.channel.k8s.io", true),
        ("v3.channel.k8s.io", false),
        ("v2.channel.k8s.io", false),
        ("channel.k8s.io", false),
    ] {
        let path = "exec?command=fail&command=3&command=oh&stderr=true";
        let mut client = Client::connect(server.address, path, protocol).await;
        client.opened(1, [("streamType", "error")]).await;
        client.opened(3, [("streamType", "stderr")]).await;
        assert_eq!(text(&client.read(3).await), "oh", "{protocol}");
        let told = client.read(1).await;
        if structured {
            let status: serde_json::Value = serde_json::from_slice(&told).unwrap();
            assert_eq!(status["message"], message);
            assert_eq!(status["details"]["causes"][0]["message"], "3");
        } else {
            assert_eq!(text(&told), message, "{protocol}");
        }
        // And a goodbye.
        let goodbye = Frame::GoAway { last: 3, status: 0 };
        assert_eq!(client.next().await, Some(goodbye));
        assert_eq!(client.next().await, None);
    }
}

#[tokio::test]
async fn input_may_end_before_output() {
    let server = StandIn::start().await;
    let mut client = Client::connect(
        server.address,
        "exec?command=count&stdin=true&stdout=true",
        "v4.channel.k8s.io",
    )
    .await;
    client.opened(1, [("streamType", "error")]).await;
    client.opened(3, [("streamType", "stdin")]).await;
    client.opened(5, [("streamType", "stdout")]).await;
    client.data(3, &[0, 1], false).await;
    client.data(3, &[2], true).await;
    assert_eq!(text(&client.read(5).await), "3 true");
}

#[tokio::test]
async fn streams_that_do_not_come_end_the_connection() {
    let limits = Limits {
        creation: Duration::from_millis(50),
        ..Limits::default()
    };
    let server = StandIn::with(limits, false).await;
    let mut client = Client::connect(
        server.address,
        "exec?command=echo&command=a&stdout=true",
        "v4.channel.k8s.io",
    )
    .await;
    client.opened(1, [("streamType", "error")]).await;
    assert_eq!(client.read(1).await, b"");
    while client.next().await.is_some() {}
}

#[tokio::test]
async fn idle_streams_end() {
    let limits = Limits {
        idle: Duration::from_millis(50),
        ..Limits::default()
    };
    let server = StandIn::with(limits, false).await;
    let mut client = Client::connect(
        server.address,
        "exec?command=hang&stdout=true",
        "v4.channel.k8s.io",
    )
    .await;
    client.open(1, [("streamType", "error")]).await;
    client.open(3, [("streamType", "stdout")]).await;
    while client.next().await.is_some() {}
    evenkeel_testkit::until("the command is dropped", async || {
        *server.seen.dropped.lock().unwrap() == 1
    })
    .await;
}

#[tokio::test]
async fn pings_come_back_and_wrong_streams_are_reset() {
    let server = StandIn::start().await;
    let mut client = Client::connect(server.address, "portforward", "portforward.k8s.io").await;
    client.send(Frame::Ping(7)).await;
    assert_eq!(client.next().await, Some(Frame::Ping(7)));
    for (stream, wrong) in [
        (2, reset::PROTOCOL_ERROR),
        (5, reset::CANCEL),
        (3, reset::PROTOCOL_ERROR),
    ] {
        client.open(stream, [("streamType", "data"), ("port", "0")]).await;
        assert_eq!(
            client.next().await,
            Some(Frame::RstStream {
                stream,
                status: wrong
            })
        );
    }
}

#[tokio::test]
async fn a_broken_protocol_ends_in_a_goodbye() {
    let server = StandIn::start().await;
    let mut client = Client::connect(server.address, "portforward", "portforward.k8s.io").await;
    client
        .socket
        .write_all(b"\x80\x02\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01")
        .await
        .unwrap();
    assert_eq!(client.next().await, Some(Frame::GoAway { last: 0, status: 1 }));
    assert_eq!(client.next().await, None);
}

/// A client that keeps windows is not sent more than it allows, and is told what was read.
#[tokio::test]
async fn windows_are_kept_towards_those_who_keep_them() {
    let server = StandIn::start().await;
    let path = "exec?command=cat&stdin=true&stdout=true";
    let mut client = Client::connect(server.address, path, "v4.channel.k8s.io").await;
    let values = vec![(0, INITIAL_WINDOW_SIZE, 1000)];
    client.send(Frame::Settings { clear: false, values }).await;
    client.opened(1, [("streamType", "error")]).await;
    client.opened(3, [("streamType", "stdin")]).await;
    client.opened(5, [("streamType", "stdout")]).await;
    client.data(3, &vec![1; 40_000], false).await;
    let mut received = 0;
    while received < 1000 {
        match client.next().await.unwrap() {
            Frame::Data { stream: 5, data, .. } => received += data.len(),
            other => panic!("{other:?}"),
        }
    }
    // Nothing more before the window is opened: the answer to a ping comes first.
    client.send(Frame::Ping(1)).await;
    assert_eq!(client.next().await, Some(Frame::Ping(1)));
    assert_eq!(received, 1000);
    client
        .send(Frame::WindowUpdate {
            stream: 5,
            delta: 39_000,
        })
        .await;
    let mut told = [0, 0];
    while received < 40_000 || told.contains(&0) {
        match client.next().await.unwrap() {
            Frame::Data { stream: 5, data, .. } => received += data.len(),
            Frame::WindowUpdate { stream: 3, delta } => told[0] += delta,
            Frame::WindowUpdate { stream: 0, delta } => told[1] += delta,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received, 40_000);
    assert!(
        told.iter().all(|told| (32_000..=40_000).contains(told)),
        "{told:?}"
    );
}

/// A command that reads nothing holds its client up, and memory stays bounded.
#[tokio::test]
async fn input_that_nobody_reads_is_not_taken() {
    let server = StandIn::start().await;
    let mut client =
        Client::connect(server.address, "exec?command=sip&stdin=true", "v4.channel.k8s.io").await;
    client.opened(1, [("streamType", "error")]).await;
    client.opened(3, [("streamType", "stdin")]).await;
    let mut bytes = BytesMut::new();
    let data = Bytes::from(vec![0; 64 * 1024]);
    Encoder::default().encode(
        &Frame::Data {
            stream: 3,
            fin: false,
            data,
        },
        &mut bytes,
    );
    let mut sent = 0;
    // A socket's buffers hold some megabytes.
    while tokio::time::timeout(Duration::from_secs(1), client.socket.write_all(&bytes))
        .await
        .is_ok()
    {
        sent += bytes.len();
        assert!(
            sent < 64 * 1024 * 1024,
            "{sent} bytes were taken that nobody reads"
        );
    }
    assert_eq!(*server.seen.sipped.lock().unwrap(), 0);
    drop(client);
}

#[tokio::test]
async fn a_failing_port_leaves_the_others_alone() {
    let server = StandIn::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut client = Client::connect(server.address, "portforward", "portforward.k8s.io").await;
    let good = [("port", port.as_str()), ("requestID", "0")];
    client
        .opened(1, [("streamType", "error"), good[0], good[1]])
        .await;
    client.opened(3, [("streamType", "data"), good[0], good[1]]).await;
    let (mut peer, _) = listener.accept().await.unwrap();
    let bad = [("port", "99"), ("requestID", "1")];
    client.opened(5, [("streamType", "error"), bad[0], bad[1]]).await;
    client.opened(7, [("streamType", "data"), bad[0], bad[1]]).await;
    let wanted = "error forwarding port 99 to pod: nothing listens on 99";
    assert_eq!(text(&client.read(5).await), wanted);
    client.data(3, b"ping", true).await;
    let mut received = String::new();
    peer.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "ping");
    peer.write_all(b"pong").await.unwrap();
    drop(peer);
    assert_eq!(text(&client.read(3).await), "pong");
}

#[tokio::test]
async fn a_stream_without_its_twin_is_given_up() {
    let limits = Limits {
        creation: Duration::from_millis(50),
        ..Limits::default()
    };
    let server = StandIn::with(limits, false).await;
    let mut client = Client::connect(server.address, "portforward", "portforward.k8s.io").await;
    client
        .opened(1, [("streamType", "error"), ("port", "80"), ("requestID", "4")])
        .await;
    assert_eq!(
        text(&client.read(1).await),
        "(request=4) timed out waiting for streams"
    );
}
