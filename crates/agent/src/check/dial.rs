//! Where to connect, and from where.

use super::outcome::Failure;
use evenkeel_probe_handlers::dial::{Connection, DialError, connect};
use std::net::{IpAddr, SocketAddr};

/// Destination of a check, and the address to check from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dial {
    /// Where to connect to.
    pub(crate) address: SocketAddr,
    /// Our address, where it matters which of several the peer sees.
    pub(crate) source: Option<IpAddr>,
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
    pub(crate) async fn open(self) -> Result<Connection, Failure> {
        connect(self.address, self.source)
            .await
            .map_err(|error| match error {
                DialError::Local { error, .. } => Failure::Local(error.to_string()),
                DialError::Connect(error) => Failure::of_connect(&error),
            })
    }
}
