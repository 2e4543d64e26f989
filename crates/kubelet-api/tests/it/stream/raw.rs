//! A bare HTTP/1.1 client: sends a request, reads the head of the answer, and leaves the connection.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer's head and the connection after it.
pub(super) struct Answer {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) socket: TcpStream,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body, of a request after which the server closes.
    pub(super) async fn body(mut self) -> String {
        let mut body = String::new();
        self.socket.read_to_string(&mut body).await.unwrap();
        body.trim_end().to_owned()
    }
}

/// Asks for a stream of the pod. `path`: `exec?…`.
pub(super) async fn ask(server: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut socket = TcpStream::connect(server).await.unwrap();
    let mut head = format!("{method} /api/v1/namespaces/default/pods/pod/{path} HTTP/1.1\r\nHost: test\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    socket.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    Answer {
        status,
        headers: headers.collect(),
        socket,
    }
}
