//! A link to a server that can go silent: nothing is closed, nothing is passed on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Passes TCP connections on to a server until they are silenced.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    open: CancellationToken,
    later: CancellationToken,
    accepting: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (open, later) = (CancellationToken::new(), CancellationToken::new());
        let (count, silent_open, silent_later) = (Arc::clone(&accepted), open.clone(), later.clone());
        let accepting = tokio::spawn(async move {
            let mut links = JoinSet::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let silent = if silent_open.is_cancelled() {
                    &silent_later
                } else {
                    &silent_open
                };
                let silent = silent.clone();
                links.spawn(async move {
                    let pass_on = async {
                        if let Ok(mut server) = TcpStream::connect(server).await {
                            // An error is the end of the connection, as it should be.
                            let _ = copy_bidirectional(&mut client, &mut server).await;
                        }
                    };
                    let silenced = tokio::select! {
                        biased;
                        () = silent.cancelled() => true,
                        () = pass_on => false,
                    };
                    if silenced {
                        // Kept open, until the relay ends.
                        std::future::pending::<()>().await;
                    }
                    drop(client);
                });
            }
        });
        Self {
            address,
            accepted,
            open,
            later,
            accepting,
        }
    }

    /// Connections that are open fall silent; new ones are passed on.
    pub(crate) fn silence_open(&self) {
        self.open.cancel();
    }

    /// All connections fall silent, also those that are accepted later.
    pub(crate) fn silence(&self) {
        self.open.cancel();
        self.later.cancel();
    }

    /// How many connections were made to it.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Refuses connections from now on, and closes those that are open.
    pub(crate) async fn close(self) {
        self.accepting.abort();
        // Cancelled is what it should be.
        let _ = self.accepting.await;
    }
}
