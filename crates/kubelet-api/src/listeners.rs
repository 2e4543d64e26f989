//! One listener per node: requests do not name the node, so the address must.

use super::Node;
use crate::{NodeListeners, Term};
use evenkeel_net::serve::{Acceptor, ServerTls};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Where nodes' listeners are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address on which all of them are; it or the addresses behind it are the nodes'.
    pub address: IpAddr,
    /// Each node gets the lowest port from this on that is free; 0: any.
    pub first_port: u16,
}

/// No listener for a node. Worth a retry where ports or file descriptors come free again.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The socket could not be opened.
    #[error("cannot listen for node {node} on {address}: {source}")]
    Listen {
        /// The node that has no listener.
        node: Arc<str>,
        /// The address that was tried.
        address: SocketAddr,
        /// Why the socket could not be opened.
        #[source]
        source: io::Error,
    },
    /// No port is left.
    #[error("cannot listen for node {node}: all ports of {address} from {first_port} on are taken")]
    NoPort {
        /// The node that has no listener.
        node: Arc<str>,
        /// The address that was tried.
        address: IpAddr,
        /// The first that was tried.
        first_port: u16,
    },
}

/// The listeners of a process' nodes. Cheap to clone.
#[derive(Clone)]
pub struct Listeners {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    acceptor: Acceptor,
    open: Mutex<Open>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// Listeners by node.
#[derive(Default)]
struct Open {
    by_node: HashMap<Arc<str>, Listener>,
    taken: HashSet<u16>,
    /// All ports from the first to below this are ours; 0 before the first was opened.
    lowest: u16,
}

/// A node's listener.
struct Listener {
    address: SocketAddr,
    closing: CancellationToken,
}

impl Listeners {
    /// None yet. All of them serve `app` with `tls`, until `shutdown`.
    pub fn new(settings: Settings, tls: ServerTls, app: axum::Router, shutdown: CancellationToken) -> Self {
        Self {
            shared: Arc::new(Shared {
                settings,
                acceptor: Acceptor::new(tls, app).at_most(most_connections(), usize::MAX),
                open: Mutex::default(),
                tasks: TaskTracker::new(),
                shutdown,
            }),
        }
    }

    /// Opens a node's listener and returns its address. One that is open stays as it is. Call it inside a
    /// tokio runtime.
    pub fn open(&self, node: &str) -> Result<SocketAddr, ListenError> {
        self.open_during(node, &Term::default())
    }

    /// The same for as long as the node is served: with the term streams end, and nothing is asked of the
    /// backend by this listener any more. The port stays taken until [`Self::close`].
    pub fn open_during(&self, node: &str, term: &Term) -> Result<SocketAddr, ListenError> {
        let shared = &self.shared;
        let mut open = shared.open();
        if let Some(listener) = open.by_node.get(node) {
            return Ok(listener.address);
        }
        let name: Arc<str> = node.into();
        let (socket, address) = shared.listen(&name, &mut open)?;
        let term = term.part();
        let closing = term.stop().clone();
        let tag = Node {
            name: name.clone(),
            term,
            streams: shared.tasks.clone(),
        };
        let (acceptor, until, shutdown) = (shared.acceptor.clone(), closing.clone(), shared.shutdown.clone());
        shared.tasks.spawn(async move {
            let mut serving = std::pin::pin!(acceptor.serve(socket, tag, until.clone()));
            tokio::select! {
                () = &mut serving => return,
                () = shutdown.cancelled() => until.cancel(),
            }
            serving.await;
        });
        open.taken.insert(address.port());
        open.by_node.insert(name, Listener { address, closing });
        Ok(address)
    }

    /// Closes a node's listener: its streams end, and requests under way have 5 s. A node without one is no
    /// error.
    pub fn close(&self, node: &str) {
        let mut open = self.shared.open();
        if let Some(listener) = open.by_node.remove(node) {
            open.taken.remove(&listener.address.port());
            open.lowest = open.lowest.min(listener.address.port());
            listener.closing.cancel();
        }
    }

    /// The address of a node's listener, if it is open.
    pub fn address(&self, node: &str) -> Option<SocketAddr> {
        self.shared
            .open()
            .by_node
            .get(node)
            .map(|listener| listener.address)
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.shared.open().by_node.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// After the shutdown: waits until all connections and streams have ended, which are cut after 5 s.
    pub async fn closed(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listeners")
            .field("settings", &self.shared.settings)
            .field("open", &self.len())
            .finish_non_exhaustive()
    }
}

impl NodeListeners for Listeners {
    fn open(&self, node: &str, term: &Term) -> Result<SocketAddr, Box<dyn Error + Send + Sync>> {
        Ok(self.open_during(node, term)?)
    }

    fn close(&self, node: &str) {
        Self::close(self, node);
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        // Whole entries come and go: a holder that panics leaves nothing half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, node: &Arc<str>, open: &mut Open) -> Result<(TcpListener, SocketAddr), ListenError> {
        let Settings { address, first_port } = self.settings;
        let bind = |port| {
            let address = SocketAddr::new(address, port);
            listener(address).map_err(|source| ListenError::Listen {
                node: node.clone(),
                address,
                source,
            })
        };
        if first_port == 0 {
            return bind(0);
        }
        let mut ours = true;
        for port in open.lowest.max(first_port)..=u16::MAX {
            if open.taken.contains(&port) {
                continue;
            }
            if std::mem::take(&mut ours) {
                open.lowest = port;
            }
            match bind(port) {
                // Somebody else's, for the moment.
                Err(ListenError::Listen { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        Err(ListenError::NoPort {
            node: node.clone(),
            address,
            first_port,
        })
    }
}

fn listener(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    // Sets SO_REUSEADDR on Unix: a restart finds its ports free.
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// How many connections all listeners take together, so that clients leave files for listeners and for the
/// process itself.
fn most_connections() -> usize {
    /// Where the system gives no limit.
    const DEFAULT: usize = 4_096;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) => usize::try_from(soft / 2).unwrap_or(usize::MAX),
        Err(error) => {
            tracing::warn!(%error, most = DEFAULT, "cannot learn the limit of open files; bounding connections");
            DEFAULT
        }
    }
}

/// Raises the limit of open files to what the system allows this process, and returns it: each listener takes
/// one.
pub fn raise_file_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}
