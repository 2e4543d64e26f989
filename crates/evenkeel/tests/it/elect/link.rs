//! A way to the API server that can be cut.

use std::net::SocketAddr;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A proxy in front of the API server. While it is cut, nothing passes, and nobody is told.
pub(crate) struct Link {
    address: SocketAddr,
    up: watch::Sender<bool>,
}

impl Link {
    pub(crate) async fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let (up, state) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, to, state.clone()));
            }
        });
        Self { address, up }
    }

    /// Where it is entered.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn cut(&self) {
        self.up.send_replace(false);
    }

    /// New connections pass again; those of before the cut have been lost.
    pub(crate) fn heal(&self) {
        self.up.send_replace(true);
    }
}

async fn carry(mut near: TcpStream, to: SocketAddr, mut up: watch::Receiver<bool>) {
    if *up.borrow()
        && let Ok(mut far) = TcpStream::connect(to).await
    {
        tokio::select! {
            _ = copy_bidirectional(&mut near, &mut far) => return,
            _ = up.wait_for(|up| !up) => {}
        }
    }
    // Silence, then the end.
    let _ = up.wait_for(|up| *up).await;
}
