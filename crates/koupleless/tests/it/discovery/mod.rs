//! How bases are found, over the embedded API server.

mod adoption;
mod fleet;
mod heartbeats;
mod hearts;
mod pods;
mod tls;

use evenkeel_koupleless::core::profile::KOUPLELESS;
use evenkeel_koupleless::core::registry::{Change, Event, Settings};
use evenkeel_koupleless::core::{Base, Identity};
use evenkeel_koupleless::discovery::heartbeat::{Auth, Listener};
use evenkeel_koupleless::discovery::{Discovery, Nodes, Sources};
use evenkeel_testkit::{Cluster, ServedApi, eventually, until};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Who serves nodes: all that are wanted, or none.
#[derive(Default)]
pub(crate) struct Fleet {
    serves: bool,
    wanted: Mutex<BTreeSet<String>>,
    removed: Mutex<Vec<(String, bool)>>,
}

impl Fleet {
    /// Every node that is removed, and whether it was to be deleted.
    pub(crate) fn removed(&self) -> Vec<(String, bool)> {
        self.removed.lock().unwrap().clone()
    }

    pub(crate) fn wanted(&self) -> Vec<String> {
        self.wanted.lock().unwrap().iter().cloned().collect()
    }
}

impl Nodes for Fleet {
    fn add(&self, node: &str) {
        self.wanted.lock().unwrap().insert(node.to_owned());
    }

    fn remove(&self, node: &str, delete: bool) {
        self.wanted.lock().unwrap().remove(node);
        self.removed.lock().unwrap().push((node.to_owned(), delete));
    }

    fn serves(&self, node: &str) -> bool {
        self.serves && self.wanted.lock().unwrap().contains(node)
    }

    fn type_label(&self) -> &'static str {
        "virtual-kubelet"
    }
}

/// A replica.
pub(crate) struct Replica {
    pub(crate) discovery: Discovery,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    /// Where it takes heartbeats.
    pub(crate) address: Option<SocketAddr>,
    _ends: DropGuard,
}

/// How a replica is set up.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    /// Whether it serves the nodes.
    pub(crate) serves: bool,
    pub(crate) sources: Sources,
}

/// A listener on a free port of the loopback interface.
pub(crate) async fn listener(auth: Auth) -> Listener {
    Listener {
        socket: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        tls: None,
        auth,
        baseline: None,
    }
}

impl Replica {
    pub(crate) fn start(client: &Client, setup: Setup) -> Self {
        let fleet = Arc::new(Fleet {
            serves: setup.serves,
            ..Fleet::default()
        });
        Self::before(client, fleet.clone(), fleet, setup)
    }

    /// One before other nodes than `fleet`.
    pub(crate) fn before(client: &Client, nodes: Arc<dyn Nodes>, fleet: Arc<Fleet>, setup: Setup) -> Self {
        let address = setup
            .sources
            .heartbeats
            .as_ref()
            .map(|listener| listener.socket.local_addr().unwrap());
        let discovery = Discovery::new(setup.settings, Arc::new(KOUPLELESS), "dev");
        let events = discovery.subscribe();
        let stop = CancellationToken::new();
        discovery.start(client, nodes, setup.sources, &stop);
        Self {
            discovery,
            fleet,
            events,
            address,
            _ends: stop.drop_guard(),
        }
    }

    /// One that takes heartbeats.
    pub(crate) async fn open(client: &Client, settings: Settings, serves: bool) -> Self {
        let sources = Sources {
            heartbeats: Some(listener(Auth::default()).await),
            ..Sources::default()
        };
        let setup = Setup {
            settings,
            serves,
            sources,
        };
        Self::start(client, setup)
    }

    pub(crate) async fn next(&mut self) -> Event {
        let event = tokio::time::timeout(DEADLINE, self.events.recv()).await;
        event.expect("an event").unwrap()
    }

    /// The next change that is not only more knowledge.
    pub(crate) async fn next_change(&mut self) -> Change {
        loop {
            match self.next().await.change {
                Change::Changed { .. } => {}
                change => return change,
            }
        }
    }

    pub(crate) fn base(&self, identity: &str) -> Option<Arc<Base>> {
        let node = self.discovery.node_of(&Identity::new(identity).unwrap())?;
        self.discovery.base(&node)
    }

    /// `POST /heartbeat`; status and text.
    pub(crate) async fn beat(&self, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address.unwrap()).await.unwrap();
        let answer = exchange(&mut stream, &post("/heartbeat", "", body)).await;
        (answer.0, answer.2)
    }
}

/// A request that ends its connection.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n{headers}\r\n{body}"
    )
}

/// Status, head and body of the answer.
pub(crate) async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &str,
) -> (u16, String, String) {
    let exchange = async {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        assert!(read.is_ok() || !answer.is_empty(), "{read:?}");
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase(), body.to_owned())
    };
    let exchanged = tokio::time::timeout(DEADLINE, exchange).await;
    exchanged.expect("an answer")
}

/// What a stock base sends; its address is the loopback's, like its peer's.
pub(crate) fn heartbeat(identity: &str, port: u16) -> String {
    format!(
        r#"{{"baseMetadata":{{"clusterName":"default","identity":"{identity}","name":"TO_BE_IMPLEMENTED","version":"1.0.0"}},"localHostName":"web-7","localIP":"127.0.0.1","port":{port},"state":"activated"}}"#
    )
}

pub(crate) async fn api() -> (ServedApi, Client) {
    let api = ServedApi::start().await;
    let client = api.server.client();
    (api, client)
}

/// The Node once it is as wanted.
pub(crate) async fn node(client: &Client, name: &str, wanted: impl Fn(&Node) -> bool) -> Node {
    Cluster::by(client.clone())
        .until(name, "is as wanted", wanted)
        .await
}
