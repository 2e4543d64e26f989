//! Where to connect, and from where.

use crate::Failure;
use std::net::{IpAddr, SocketAddr};
use tokio::net::{TcpSocket, TcpStream};

/// Destination of a check, and the address to check from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dial {
    /// Destination.
    pub address: SocketAddr,
    /// Our address, where it matters which of several the peer sees.
    pub source: Option<IpAddr>,
}

impl From<SocketAddr> for Dial {
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            source: None,
        }
    }
}

impl Dial {
    /// A connection. The caller bounds the time.
    pub(crate) async fn open(self) -> Result<TcpStream, Failure> {
        let local = |error: std::io::Error| Failure::Local(error.to_string());
        let socket = if self.address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        };
        let socket = socket.map_err(local)?;
        socket.set_nodelay(true).map_err(local)?;
        if let Some(source) = self.source {
            socket.bind(SocketAddr::new(source, 0)).map_err(local)?;
        }
        socket
            .connect(self.address)
            .await
            .map_err(|error| Failure::of_connect(&error))
    }
}
