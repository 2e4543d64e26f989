//! The heartbeat of the HTTP tunnel, as the JDK's own HTTP client sends it.

use super::Identity;
use super::bean::bean;
use super::live::{Inner, Live};
use serde_json::{Value, json};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Where heartbeats go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// `host:port`.
    host: String,
    path: String,
    interval: Duration,
}

impl Endpoint {
    /// Of `http://host:port`, with or without a path; heartbeats go to `heartbeat` below it.
    pub(crate) fn new(url: &str, interval: Duration) -> Self {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = match path.trim_end_matches('/') {
            "" => String::new(),
            path => format!("/{path}"),
        };
        Self {
            host: host.to_owned(),
            path: format!("{path}/heartbeat"),
            interval,
        }
    }
}

/// What became of heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeats {
    /// Answered with 200.
    pub accepted: u64,
    /// Answered otherwise, or not at all.
    pub failed: u64,
}

/// Sends heartbeats for as long as the base lives, to where it is told.
pub(crate) fn run(live: &Arc<Live>) {
    let inner = live.inner.clone();
    live.spawn(async move {
        let mut told = inner.heartbeat.subscribe();
        loop {
            let endpoint = told.borrow_and_update().clone();
            let beating = async {
                match endpoint {
                    Some(endpoint) => beat(&inner, &endpoint).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return },
                () = beating => {}
            }
        }
    });
}

async fn beat(inner: &Inner, endpoint: &Endpoint) {
    let mut ticks = interval(endpoint.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut beats = inner.beats.subscribe();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            changed = beats.changed() => if changed.is_err() { return },
        }
        let request = request(&endpoint.host, &endpoint.path, &inner.identity, inner.told_port);
        let status = send(inner.address.ip(), &endpoint.host, &request).await;
        let mut ledger = inner.ledger();
        match status {
            Ok(200) => ledger.heartbeats.accepted += 1,
            Ok(_) | Err(_) => ledger.heartbeats.failed += 1,
        }
    }
}

/// The request with its head as Java sends it.
pub(crate) fn request(host: &str, path: &str, identity: &Identity, port: u16) -> String {
    let body = status(identity, port).to_string();
    format!(
        "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nUser-Agent: Java/17.0.15\r\nHost: {host}\r\n\
         Accept: text/html, image/gif, image/jpeg, */*; q=0.2\r\nConnection: keep-alive\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What a base tells of itself, which is always `activated`.
pub(crate) fn status(identity: &Identity, port: u16) -> Value {
    bean([
        ("baseMetadata", metadata(identity)),
        ("localHostName", json!(identity.host_name)),
        ("localIP", json!(identity.local_ip)),
        ("port", json!(port)),
        ("state", json!("activated")),
    ])
}

/// Who a base is.
pub(crate) fn metadata(identity: &Identity) -> Value {
    bean([
        ("clusterName", json!(identity.cluster)),
        ("identity", json!(identity.id)),
        ("name", json!(identity.name)),
        ("version", json!(identity.version)),
    ])
}

/// Connects from a base's own address, by which it is believed: the machine has many, and would choose
/// another.
async fn connect(from: IpAddr, host: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for to in lookup_host(host).await? {
        let socket = if to.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        if to.is_ipv4() == from.is_ipv4() {
            // Ports of connections that ended lately may be taken again.
            socket.set_reuseaddr(true)?;
            socket.bind((from, 0).into())?;
        }
        match socket.connect(to).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends it; returns the status code.
async fn send(from: IpAddr, host: &str, request: &str) -> io::Result<u16> {
    let connecting = connect(from, host);
    let mut stream = timeout(Duration::from_secs(30), connecting).await??;
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.contains(&b'\n') && stream.read_buf(&mut answer).await? > 0 {}
        let line = String::from_utf8_lossy(&answer).into_owned();
        line.split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    };
    timeout(Duration::from_secs(10), exchange).await?
}
