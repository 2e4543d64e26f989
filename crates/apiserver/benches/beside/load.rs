//! Connections that send one request after the other.

use bytes::Bytes;
use evenkeel_net::client::ClientArgs;
use futures::future::join_all;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt as _;
use rustls::pki_types::ServerName;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(crate) const CONNECTIONS: usize = 32;
/// A small object, as most are: its data have 200 bytes.
const DATA: usize = 200;

/// A server as its administrator reaches it.
#[derive(Clone)]
pub(crate) struct Target {
    address: String,
    name: ServerName<'static>,
    tls: TlsConnector,
}

/// A connection on which requests follow each other.
pub(crate) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    host: String,
}

impl Target {
    pub(crate) async fn of(kubeconfig: &Path) -> Self {
        let flags = ClientArgs {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..ClientArgs::default()
        };
        let config = flags.config().await.unwrap();
        let host = config.cluster_url.host().unwrap().to_owned();
        Self {
            address: format!("{host}:{}", config.cluster_url.port_u16().unwrap()),
            name: ServerName::try_from(host).unwrap(),
            tls: TlsConnector::from(Arc::new(config.rustls_client_config().unwrap())),
        }
    }

    pub(crate) async fn connect(&self) -> Connection {
        let tcp = TcpStream::connect(&self.address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let tls = self.tls.connect(self.name.clone(), tcp).await.unwrap();
        let (requests, connection) = handshake(TokioIo::new(tls)).await.unwrap();
        // Where it fails, the request on it fails.
        tokio::spawn(connection);
        let host = self.address.clone();
        Connection { requests, host }
    }

    pub(crate) async fn is_ready(&self) {
        let mut connection = self.connect().await;
        connection
            .takes(Method::GET, "/readyz", String::new(), StatusCode::OK)
            .await;
    }
}

impl Connection {
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> http::Response<Incoming> {
        let media = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("content-type", media)
            .header("accept", "application/json")
            .body(Full::from(body))
            .unwrap();
        self.requests.ready().await.unwrap();
        self.requests.send_request(request).await.unwrap()
    }

    /// Sends a request and reads the whole answer, which must have this code.
    pub(crate) async fn takes(
        &mut self,
        method: Method,
        path: &str,
        body: String,
        code: StatusCode,
    ) -> Bytes {
        let answer = self.send(method, path, body).await;
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(status, code, "{path}: {}", String::from_utf8_lossy(&body));
        body
    }
}

/// All connections, and how many objects each has made.
pub(crate) struct Load {
    connections: Vec<(Connection, usize)>,
}

impl Load {
    pub(crate) async fn new(target: Target) -> Self {
        let connections = join_all((0..CONNECTIONS).map(|_| target.connect())).await;
        Self {
            connections: connections
                .into_iter()
                .map(|connection| (connection, 0))
                .collect(),
        }
    }

    pub(crate) fn objects(&self) -> usize {
        self.connections.iter().map(|(_, made)| made).sum()
    }

    /// Creates objects for this time; how many.
    pub(crate) async fn create_for(&mut self, time: Duration) -> usize {
        let (before, end) = (self.objects(), Instant::now() + time);
        self.create_while(|_| Instant::now() < end).await;
        self.objects() - before
    }

    /// Creates objects until there are so many at least.
    pub(crate) async fn create_up_to(&mut self, count: usize) {
        let each = count.div_ceil(CONNECTIONS);
        self.create_while(|made| made < each).await;
    }

    async fn create_while(&mut self, more: impl Fn(usize) -> bool) {
        let data = "x".repeat(DATA);
        let (data, more) = (&data, &more);
        let work = self.connections.iter_mut().enumerate();
        join_all(work.map(async |(number, (connection, made))| {
            while more(*made) {
                let body = format!(
                    r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{}"}},"data":{{"k":"{data}"}}}}"#,
                    name(number, *made)
                );
                connection
                    .takes(Method::POST, MAPS, body, StatusCode::CREATED)
                    .await;
                *made += 1;
            }
        }))
        .await;
    }

    /// Each connection reads its own objects in turn for this time; how many reads.
    pub(crate) async fn get_for(&mut self, time: Duration) -> usize {
        let end = Instant::now() + time;
        let work = self.connections.iter_mut().enumerate();
        let counts = join_all(work.map(async |(number, (connection, made))| {
            let mut count = 0;
            while Instant::now() < end {
                let path = format!("{MAPS}/{}", name(number, count % *made));
                connection
                    .takes(Method::GET, &path, String::new(), StatusCode::OK)
                    .await;
                count += 1;
            }
            count
        }));
        counts.await.into_iter().sum()
    }
}

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn name(connection: usize, number: usize) -> String {
    format!("map-{connection}-{number}")
}
