//! Servers with a script.

use crate::{Compat, Container, Extras, Handler, HttpGet, Outcome, Port, Probe, Scheme, Target};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Long enough for any machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// For probes that are meant to run into it.
pub(crate) const SHORT: Duration = Duration::from_millis(400);

/// What is left of a connection after the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// The connection is closed in good order.
    Close,
    /// It stays open, and silent.
    Stall,
    /// It is reset, once the client has read the answer.
    Reset,
}

/// Reads the head of a request; `None` at its end.
pub(crate) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Accepts for ever; each connection is `serve`d by a task of its own.
pub(crate) async fn listen<F, Fut>(address: &str, serve: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// A server that gives every request the same answer, in which `PORT` is its own port, and remembers the
/// requests.
pub(crate) async fn scripted(
    answer: impl Into<Vec<u8>>,
    after: After,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let answer: Vec<u8> = answer.into();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    let address = listen("127.0.0.1:0", move |mut stream| {
        let (answer, seen) = (answer.clone(), seen.clone());
        async move {
            let Some(request) = head(&mut stream).await else {
                return;
            };
            seen.lock().unwrap().push(request);
            let port = stream.local_addr().unwrap().port().to_string();
            let answer = match std::str::from_utf8(&answer) {
                Ok(text) => text.replace("PORT", &port).into_bytes(),
                Err(_) => answer,
            };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
            match after {
                After::Close => {}
                After::Stall => std::future::pending().await,
                After::Reset => {
                    // Not before the client has read: a reset throws away what it has not.
                    read_by_peer(&stream).await;
                    socket2::SockRef::from(&stream)
                        .set_linger(Some(Duration::ZERO))
                        .unwrap();
                }
            }
        }
    })
    .await;
    (address, heads)
}

/// Waits until nothing lies in the receive queue of the other side, which is a socket of this process too.
async fn read_by_peer(stream: &TcpStream) {
    let (ours, theirs) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let hex = |address: SocketAddr| {
        let IpAddr::V4(ip) = address.ip() else {
            unreachable!("the server listens on IPv4")
        };
        format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port())
    };
    let ends = format!("{} {}", hex(theirs), hex(ours));
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let line = table.lines().find(|line| line.contains(&ends));
        if line.is_none_or(|line| line.contains(" 01 00000000:00000000 ")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A server that answers by path: status line and headers, then a body.
pub(crate) async fn routed(route: impl Fn(&str, &str) -> String + Send + Sync + 'static) -> SocketAddr {
    routed_at("127.0.0.1:0", route).await
}

pub(crate) async fn routed_at(
    address: &str,
    route: impl Fn(&str, &str) -> String + Send + Sync + 'static,
) -> SocketAddr {
    let route = Arc::new(route);
    listen(address, move |mut stream| {
        let route = route.clone();
        async move {
            answer_by(&mut stream, &*route).await;
        }
    })
    .await
}

/// One request and its answer by path.
pub(crate) async fn answer_by(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    route: &(impl Fn(&str, &str) -> String + Sync),
) {
    if let Some(request) = head(stream).await {
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        let answer = route(&path, &request);
        // A probe that has its answer may have gone.
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.flush().await;
    }
}

/// An answer with its length.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} x\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// One probe, as a builder.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) get: HttpGet,
    pub(crate) address: Option<IpAddr>,
    pub(crate) source: Option<IpAddr>,
    pub(crate) timeout: Duration,
    pub(crate) extras: Extras,
    pub(crate) compat: Compat,
}

pub(crate) fn ask(address: SocketAddr, path: &str) -> Ask {
    Ask {
        get: HttpGet {
            scheme: Scheme::Http,
            host: None,
            port: Port::Number(address.port().into()),
            path: path.to_owned(),
            headers: Vec::new(),
        },
        address: Some(address.ip()),
        source: None,
        timeout: DEADLINE,
        extras: Extras::default(),
        compat: Compat::Kubelet,
    }
}

impl Ask {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.get.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn strict(mut self) -> Self {
        self.compat = Compat::Strict;
        self
    }

    pub(crate) fn https(mut self) -> Self {
        self.get.scheme = Scheme::Https;
        self
    }

    pub(crate) fn host(mut self, host: &str) -> Self {
        self.get.host = Some(host.to_owned());
        self
    }

    pub(crate) async fn go(self) -> Outcome {
        let target = target(self.address, self.source);
        let mut probe = Probe::new(Handler::HttpGet(self.get.clone()));
        probe.timeout = self.timeout;
        probe.extras = self.extras;
        super::super::probe(&self.get, &target, &probe, self.compat).await
    }
}

pub(crate) fn target(address: Option<IpAddr>, source: Option<IpAddr>) -> Target {
    Target {
        address,
        source,
        container: Arc::new(Container {
            ports: vec![("found".into(), 93)],
            ..Container::default()
        }),
        container_id: "containerd://1".into(),
    }
}

/// An address where nobody listens.
pub(crate) async fn closed() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
