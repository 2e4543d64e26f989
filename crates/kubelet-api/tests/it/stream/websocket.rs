//! A bare WebSocket client: protocols that kubectl does not speak.

use super::raw::ask;
use super::stand_in::StandIn;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const BINARY: u8 = 2;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

fn handshake(protocols: &str) -> Vec<(&str, &str)> {
    let mut headers = vec![
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    if !protocols.is_empty() {
        headers.push(("Sec-WebSocket-Protocol", protocols));
    }
    headers
}

struct Client(TcpStream);

impl Client {
    async fn connect(server: SocketAddr, path: &str, protocol: &str) -> Self {
        let answer = ask(server, "GET", path, &handshake(protocol)).await;
        assert_eq!(answer.status, 101, "{protocol}");
        assert_eq!(
            answer.header("sec-websocket-accept"),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
        let wanted = Some(protocol).filter(|protocol| !protocol.is_empty());
        assert_eq!(answer.header("sec-websocket-protocol"), wanted);
        Self(answer.socket)
    }

    async fn send(&mut self, kind: u8, data: &[u8]) {
        let length = u8::try_from(data.len()).unwrap();
        assert!(length < 126);
        // Masked with zeroes.
        let head = [0x80 | kind, 0x80 | length, 0, 0, 0, 0];
        self.0.write_all(&[&head, data].concat()).await.unwrap();
    }

    async fn next(&mut self) -> (u8, Vec<u8>) {
        let head = [self.0.read_u8().await.unwrap(), self.0.read_u8().await.unwrap()];
        let length = match head[1] {
            126 => usize::from(self.0.read_u16().await.unwrap()),
            length => usize::from(length),
        };
        let mut data = vec![0; length];
        self.0.read_exact(&mut data).await.unwrap();
        (head[0] & 0xf, data)
    }
}

#[tokio::test]
async fn every_subprotocol_tells_output_and_end() {
    let server = StandIn::start().await;
    let text = "command terminated with non-zero exit code: error executing command [fail 3 oh], exit code 3";
    for protocol in [
        "",
        "channel.k8s.io",
        "base64.channel.k8s.io",
        "v4.channel.k8s.io",
        "v4.base64.channel.k8s.io",
        "v5.channel.k8s.io",
    ] {
        let path = "exec?command=fail&command=3&command=oh&stderr=true";
        let mut client = Client::connect(server.address, path, protocol).await;
        let base64 = protocol.contains("base64");
        let first = if base64 {
            (TEXT, b"2".to_vec())
        } else {
            (BINARY, vec![2])
        };
        assert_eq!(client.next().await, first, "{protocol}");
        let output = if base64 {
            (TEXT, b"2b2g=".to_vec())
        } else {
            (BINARY, b"\x02oh".to_vec())
        };
        assert_eq!(client.next().await, output, "{protocol}");
        let (_, status) = client.next().await;
        if base64 {
            assert_eq!(status[0], b'3');
        } else if protocol.starts_with('v') {
            let status: serde_json::Value = serde_json::from_slice(&status[1..]).unwrap();
            assert_eq!(status["message"], text);
        } else {
            assert_eq!(status, [b"\x03", text.as_bytes()].concat());
        }
        assert_eq!(client.next().await, (CLOSE, vec![3, 232]), "{protocol}");
    }
}

#[tokio::test]
async fn the_fifth_version_can_end_input() {
    let server = StandIn::start().await;
    let path = "exec?command=count&stdin=true&stdout=true";
    let mut client = Client::connect(server.address, path, "v5.channel.k8s.io").await;
    assert_eq!(client.next().await, (BINARY, vec![1]));
    client.send(PING, b"there?").await;
    assert_eq!(client.next().await, (PONG, b"there?".to_vec()));
    client.send(BINARY, &[0, 0, 1]).await;
    // A message's kind does not matter.
    client.send(TEXT, &[0, 2]).await;
    client.send(BINARY, &[255, 0]).await;
    assert_eq!(client.next().await, (BINARY, b"\x013 true".to_vec()));
}

#[tokio::test]
async fn sizes_of_terminals_come_on_their_channel() {
    let server = StandIn::start().await;
    let path = "exec?command=sizes&stdin=true&stdout=true&stderr=true&tty=true";
    let mut client = Client::connect(server.address, path, "v4.channel.k8s.io").await;
    assert_eq!(client.next().await, (BINARY, vec![1]));
    client.send(BINARY, b"\x04{\"Width\":100,\"Height\":30}").await;
    assert_eq!(client.next().await, (BINARY, b"\x01size 100x30\r\n".to_vec()));
    client.send(BINARY, b"\x00q").await;
    assert_eq!(client.next().await, (BINARY, b"\x01bye\r\n".to_vec()));
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_command() {
    let server = StandIn::start().await;
    let mut client = Client::connect(
        server.address,
        "exec?command=hang&stdout=true",
        "v5.channel.k8s.io",
    )
    .await;
    assert_eq!(client.next().await, (BINARY, vec![1]));
    drop(client);
    evenkeel_testkit::until("the command is dropped", async || {
        *server.seen.dropped.lock().unwrap() == 1
    })
    .await;
}

#[tokio::test]
async fn unknown_subprotocols_and_wrong_handshakes_are_refused() {
    let server = StandIn::start().await;
    let path = "exec?command=echo&command=a&stdout=true";
    let answer = ask(server.address, "GET", path, &handshake("v9.channel.k8s.io")).await;
    assert_eq!(answer.status, 403);
    let answer = ask(server.address, "POST", path, &handshake("v4.channel.k8s.io")).await;
    assert_eq!(answer.status, 405);
    let mut old = handshake("v4.channel.k8s.io");
    old[2].1 = "8";
    let answer = ask(server.address, "GET", path, &old).await;
    assert_eq!(
        (answer.status, answer.header("sec-websocket-version")),
        (400, Some("13"))
    );
    let answer = ask(
        server.address,
        "GET",
        "portforward",
        &handshake("v4.channel.k8s.io"),
    )
    .await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn ports_have_two_channels_each_which_begin_with_the_port() {
    let server = StandIn::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = format!("portforward?port=99&port={port}");
    let mut client = Client::connect(server.address, &path, "v4.channel.k8s.io").await;
    let (mut peer, _) = listener.accept().await.unwrap();
    let mut heard = vec![Vec::new(); 4];
    let wanted = [
        &[99, 0][..],
        b"error forwarding port 99 to pod: nothing listens on 99",
    ]
    .concat();
    while heard[1] != wanted || heard[2].len() < 2 || heard[3].len() < 2 {
        let (kind, data) = client.next().await;
        assert_eq!(kind, BINARY);
        heard[usize::from(data[0])].extend_from_slice(&data[1..]);
    }
    let port = port.to_le_bytes().to_vec();
    assert_eq!(heard, [vec![99, 0], wanted, port.clone(), port]);
    client.send(BINARY, b"\x02hi").await;
    let mut received = [0; 2];
    peer.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"hi");
    peer.write_all(b"yes").await.unwrap();
    assert_eq!(client.next().await, (BINARY, b"\x02yes".to_vec()));
}

/// A client that only sends pings and reads none of the answers is not served for ever.
#[tokio::test]
async fn a_flood_of_pings_ends_the_connection() {
    let server = StandIn::start().await;
    for (path, protocol) in [
        ("exec?command=hang&stdout=true", "v5.channel.k8s.io"),
        ("portforward", "SPDY/3.1+portforward.k8s.io"),
    ] {
        let mut client = Client::connect(server.address, path, protocol).await;
        let ping = [&[0x80 | PING, 0x80 | 0x7d, 0, 0, 0, 0][..], &[0; 125]].concat();
        let flood = async { while client.0.write_all(&ping).await.is_ok() {} };
        evenkeel_testkit::ends("it is closed", flood).await;
    }
}

#[tokio::test]
async fn messages_over_a_mebibyte_end_the_connection() {
    let server = StandIn::start().await;
    let path = "exec?command=sip&stdin=true&stdout=true";
    let mut client = Client::connect(server.address, path, "v5.channel.k8s.io").await;
    assert_eq!(client.next().await, (BINARY, vec![1]));
    // The head alone tells the length.
    let head = [
        &[0x80 | BINARY, 0x80 | 127][..],
        &(1024 * 1024_u64 + 1).to_be_bytes(),
        &[0; 4],
    ]
    .concat();
    client.0.write_all(&head).await.unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(
        std::time::Duration::from_secs(60),
        client.0.read_to_end(&mut rest),
    );
    // Closed or reset: gone in any case.
    let _ = ended.await.expect("it is closed");
}
