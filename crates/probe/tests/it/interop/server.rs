//! Servers on loopback that do what a script says.

use super::h2;
use super::tls::Certificate;
use socket2::{Domain, SockRef, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What one connection sees, in order; then it is closed, cleanly unless the last step says otherwise.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Reads and records the head of an HTTP/1 request.
    Head,
    /// Reads something.
    Read,
    /// Sends. `{0}`, `{1}`… in it are the ports of the case's servers.
    Send(Vec<u8>),
    /// Does nothing for so long.
    Pause(Duration),
    /// Does nothing until the other side closes.
    Stall,
    /// Goes on in TLS.
    Tls(Certificate),
    /// Plays an HTTP/2 server until a request is there, whole; recorded by its frames' types.
    H2Request,
    /// Closes by a reset. The last step.
    Reset,
}

/// What listens.
#[derive(Clone, Debug)]
pub(crate) enum Serve {
    /// The first connection gets the first script, and so on; the last one is for all further ones.
    Scripts(Vec<Vec<Step>>),
    /// The same on `::1`.
    V6(Vec<Vec<Step>>),
    /// A port that is taken, and refuses.
    Refusing,
    /// The same on `::1`.
    RefusingV6,
    /// A port that never answers: its queue is full.
    Silent,
    /// An HTTP/2 server that answers 200 `ok`, and gRPC with `SERVING`; after TLS if there is a certificate.
    Http2(Option<Certificate>),
}

/// No script takes longer.
const LIMIT: Duration = Duration::from_secs(30);

/// What a server has received, a string per request.
pub(crate) type Received = Arc<Mutex<Vec<String>>>;

/// Servers of one side of a case. They end when this is dropped.
pub(crate) struct Servers {
    pub(crate) ports: Vec<u16>,
    received: Vec<Received>,
    _tasks: JoinSet<()>,
    _sockets: Vec<Socket>,
}

impl Servers {
    pub(crate) fn start(serves: &[Serve]) -> Self {
        let mut tasks = JoinSet::new();
        let mut sockets = Vec::new();
        let bound: Vec<(u16, Socket)> = serves.iter().map(bind).collect();
        let ports: Vec<u16> = bound.iter().map(|(port, _)| *port).collect();
        let mut received = Vec::new();
        for ((port, socket), serve) in bound.into_iter().zip(serves) {
            let record = Received::default();
            received.push(record.clone());
            match serve {
                Serve::Refusing | Serve::RefusingV6 => sockets.push(socket),
                Serve::Silent => sockets.extend(silence(socket, port)),
                Serve::Scripts(scripts) | Serve::V6(scripts) => {
                    let scripts: Vec<Vec<Step>> = scripts.iter().map(|steps| aim(steps, &ports)).collect();
                    tasks.spawn(scripted(listener(socket), scripts, record));
                }
                Serve::Http2(certificate) => {
                    tasks.spawn(h2::serve(listener(socket), *certificate, record));
                }
            }
        }
        Self {
            ports,
            received,
            _tasks: tasks,
            _sockets: sockets,
        }
    }

    /// All requests so far: `SERVER: REQUEST`.
    pub(crate) fn received(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (number, record) in self.received.iter().enumerate() {
            for request in record.lock().unwrap().iter() {
                all.push(format!("{number}: {request}"));
            }
        }
        all
    }
}

fn bind(serve: &Serve) -> (u16, Socket) {
    let v6 = matches!(serve, Serve::V6(_) | Serve::RefusingV6);
    let (domain, address): (_, IpAddr) = if v6 {
        (Domain::IPV6, std::net::Ipv6Addr::LOCALHOST.into())
    } else {
        (Domain::IPV4, Ipv4Addr::LOCALHOST.into())
    };
    let socket = Socket::new(domain, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    (port, socket)
}

fn listener(socket: Socket) -> TcpListener {
    socket.listen(64).unwrap();
    socket.set_nonblocking(true).unwrap();
    TcpListener::from_std(socket.into()).unwrap()
}

/// Fills the queue of connections that nobody accepts.
fn silence(socket: Socket, port: u16) -> Vec<Socket> {
    socket.listen(0).unwrap();
    let mut sockets = vec![socket];
    for _ in 0..4 {
        let filler = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        filler.set_nonblocking(true).unwrap();
        let begun = filler.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into());
        assert!(
            begun
                .as_ref()
                .err()
                .is_none_or(|error| error.raw_os_error() == Some(nix::libc::EINPROGRESS)),
            "{begun:?}"
        );
        sockets.push(filler);
    }
    sockets
}

fn aim(steps: &[Step], ports: &[u16]) -> Vec<Step> {
    let aimed = |step: &Step| match step {
        Step::Send(bytes) if bytes.len() < 4096 => {
            let mut bytes = bytes.clone();
            for (number, port) in ports.iter().enumerate() {
                let mark = format!("{{{number}}}");
                while let Some(at) = bytes
                    .windows(mark.len())
                    .position(|window| window == mark.as_bytes())
                {
                    bytes.splice(at..at + mark.len(), port.to_string().into_bytes());
                }
            }
            Step::Send(bytes)
        }
        other => other.clone(),
    };
    steps.iter().map(aimed).collect()
}

async fn scripted(listener: TcpListener, scripts: Vec<Vec<Step>>, record: Received) {
    let mut connections = JoinSet::new();
    let mut scripts = scripts.into_iter();
    let mut steps = scripts.next().unwrap_or_default();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (script, record) = (steps.clone(), record.clone());
        connections.spawn(async move {
            // What the other side does to its end of a connection is for the test to judge.
            let _ended = tokio::time::timeout(LIMIT, play(stream, script, record)).await;
        });
        if let Some(next) = scripts.next() {
            steps = next;
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn play(stream: TcpStream, script: Vec<Step>, record: Received) -> std::io::Result<()> {
    if script.iter().any(|step| matches!(step, Step::Reset)) {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    }
    let mut stream: Box<dyn Stream> = Box::new(stream);
    for step in script {
        match step {
            Step::Head => {
                let head = head(&mut stream).await?;
                record.lock().unwrap().push(head);
            }
            Step::Read => {
                let _length = stream.read(&mut [0; 4096]).await?;
            }
            Step::Send(bytes) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
            }
            Step::Pause(pause) => tokio::time::sleep(pause).await,
            Step::Stall => drain(&mut stream).await?,
            Step::Tls(certificate) => {
                let accepted = certificate.acceptor(&[]).accept(stream).await?;
                stream = Box::new(accepted);
            }
            Step::H2Request => {
                let request = h2::request_frames(&mut stream).await?;
                record.lock().unwrap().push(request);
            }
            Step::Reset => return Ok(()),
        }
    }
    // Closed with unread bytes, it would be reset.
    stream.shutdown().await?;
    drain(&mut stream).await
}

async fn drain(stream: &mut Box<dyn Stream>) -> std::io::Result<()> {
    tokio::io::copy(stream, &mut tokio::io::sink()).await.map(drop)
}

async fn head(stream: &mut Box<dyn Stream>) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
