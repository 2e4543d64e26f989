//! A server that answers as a test says, down to the bytes.

use evenkeel_arklet::Base;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What is done about a request.
pub(crate) enum Conduct {
    /// These bytes, then the end of the connection.
    Say(Vec<u8>),
    /// These bytes, then a reset.
    SayAndReset(Vec<u8>),
    /// These bytes, then these again and again.
    Endless(Vec<u8>, Vec<u8>),
    /// These bytes one by one with pauses, for ever.
    Drip(Vec<u8>),
    /// Nothing, until the client leaves.
    Hang,
    /// The end, without reading.
    Close,
}

impl Conduct {
    /// As arklet answers: no headers, and the end of the connection as the end of the body.
    pub(crate) fn json(body: &Value) -> Self {
        Self::Say(format!("HTTP/1.1 200 OK\r\n\r\n{body}").into_bytes())
    }
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    left: usize,
}

/// One connection per request, as arklet.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Log>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// `script` is asked with the number of the connection, from 0, and the request.
    pub(crate) async fn start(script: impl Fn(usize, &Seen) -> Conduct + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Log::default()));
        let script = Arc::new(script);
        let shared = Arc::clone(&log);
        let task = tokio::spawn(async move {
            for nth in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, log) = (Arc::clone(&script), Arc::clone(&shared));
                tokio::spawn(async move {
                    // Whatever goes wrong is the client's affair.
                    let _ = serve(stream, nth, &*script, &log).await;
                    log.lock().unwrap().left += 1;
                });
            }
        });
        Self { address, log, task }
    }

    pub(crate) fn base(&self) -> Base {
        Base {
            identity: "192.0.2.2".to_owned(),
            environment: "default".to_owned(),
            address: Some(self.address),
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.log.lock().unwrap().seen.clone()
    }

    /// How many connections have ended.
    pub(crate) fn left(&self) -> usize {
        self.log.lock().unwrap().left
    }
}

async fn serve(
    mut stream: TcpStream,
    nth: usize,
    script: &(dyn Fn(usize, &Seen) -> Conduct + Send + Sync),
    log: &Mutex<Log>,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let length: usize = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.parse().unwrap());
    while bytes.len() < head + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
    let seen = Seen {
        head: text,
        body: String::from_utf8_lossy(&bytes[head..]).into_owned(),
    };
    log.lock().unwrap().seen.push(seen.clone());
    match script(nth, &seen) {
        Conduct::Say(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        }
        Conduct::SayAndReset(bytes) => {
            stream.write_all(&bytes).await?;
            // What has arrived is read before the reset is seen.
            let stream = socket2::Socket::from(stream.into_std()?);
            stream.set_linger(Some(std::time::Duration::ZERO))
        }
        Conduct::Endless(first, more) => {
            stream.write_all(&first).await?;
            loop {
                stream.write_all(&more).await?;
            }
        }
        Conduct::Drip(bytes) => {
            for byte in bytes.iter().cycle() {
                stream.write_all(std::slice::from_ref(byte)).await?;
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            Ok(())
        }
        Conduct::Hang => {
            let _ = stream.read(&mut [0]).await?;
            Ok(())
        }
        Conduct::Close => Ok(()),
    }
}
