//! Where whoever runs pods and whoever serves their API meet: neither needs the other's crate features.

use crate::{Backend, Term};
use std::error::Error;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Serves the kubelet's API for the nodes of a process. `kubelet::Kubelet` does it by HTTP over TLS.
pub trait Serve: Debug + Send + Sync + 'static {
    /// Makes the listeners of the nodes, none of which is open yet. All of them serve `backend` until
    /// `shutdown`.
    fn serve(&self, backend: Arc<dyn Backend>, shutdown: CancellationToken) -> Arc<dyn NodeListeners>;
}

/// The listeners of a process' nodes, one for each node.
pub trait NodeListeners: Send + Sync + 'static {
    /// Opens a node's listener for as long as the node is served, and returns its address. One that is open
    /// stays as it is. Called inside a tokio runtime.
    fn open(&self, node: &str, term: &Term) -> Result<SocketAddr, Box<dyn Error + Send + Sync>>;

    /// Closes a node's listener. A node without one is no error.
    fn close(&self, node: &str);
}
