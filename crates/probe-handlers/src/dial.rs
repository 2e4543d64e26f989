//! One way to connect, for every handler and for whoever checks machines as they check pods.

mod lookup;
mod several;

use super::wording::Ends;
use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;

/// How often an address is tried again when the kernel connected the socket with itself.
const SELF_CONNECTS: u32 = 2;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nothing about the other side: no socket, or no such source address.
    #[error("{call}: {error}")]
    Local {
        /// `socket`, `bind`, or another one.
        call: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// The connection was not made.
    #[error("connect: {0}")]
    Connect(io::Error),
}

/// An open connection, which the reactor may not know yet: whoever only wants to know that it opened saves
/// that.
///
/// Its linger time is zero: closing it resets the connection. Nothing of ours is in flight when a probe ends,
/// so the reset loses nothing; and it is the only way to leave no socket in TIME_WAIT, which a kubelet's
/// linger of one second does not do (measured). By then the other side's kernel has accepted the connection,
/// so that its `accept` works as ever and only a later read says that the peer has left. Load balancers have
/// checked like this for decades.
#[derive(Debug)]
pub struct Connection {
    socket: Unregistered,
    local: SocketAddr,
    peer: SocketAddr,
}

#[derive(Debug)]
enum Unregistered {
    Std(std::net::TcpStream),
    Tokio(TcpStream),
}

impl Connection {
    /// The addresses of both ends.
    pub fn ends(&self) -> Ends {
        Ends {
            local: self.local,
            peer: self.peer,
        }
    }

    /// To read and write.
    pub fn into_stream(self) -> io::Result<TcpStream> {
        match self.socket {
            Unregistered::Std(stream) => TcpStream::from_std(stream),
            Unregistered::Tokio(stream) => Ok(stream),
        }
    }
}

/// Opens a connection. The caller bounds the time.
pub async fn connect(address: SocketAddr, source: Option<IpAddr>) -> Result<Connection, DialError> {
    for _ in 0..=SELF_CONNECTS {
        let socket = begin(address, source)?;
        let socket = if settle(&socket, address).map_err(DialError::Connect)? {
            Unregistered::Std(socket.into())
        } else {
            // Not what the peer does: no place in this process's list of sockets to wait for.
            let stream = TcpStream::from_std(socket.into()).map_err(local("epoll_ctl"))?;
            stream.writable().await.map_err(DialError::Connect)?;
            if let Some(error) = stream.take_error().map_err(DialError::Connect)? {
                return Err(DialError::Connect(error));
            }
            Unregistered::Tokio(stream)
        };
        let local = match &socket {
            Unregistered::Std(stream) => stream.local_addr(),
            Unregistered::Tokio(stream) => stream.local_addr(),
        };
        let local = local.map_err(DialError::Connect)?;
        // Where nobody listens on one of our own ephemeral ports, the kernel may choose that very port for
        // our end and connect the socket with itself.
        if local != address {
            return Ok(Connection {
                socket,
                local,
                peer: address,
            });
        }
    }
    Err(DialError::Connect(Errno::ECONNREFUSED.into()))
}

fn local(call: &'static str) -> impl FnOnce(io::Error) -> DialError {
    move |error| DialError::Local { call, error }
}

fn begin(address: SocketAddr, source: Option<IpAddr>) -> Result<Socket, DialError> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket =
        Socket::new_raw(Domain::for_address(address), kind, Some(Protocol::TCP)).map_err(local("socket"))?;
    socket
        .set_linger(Some(Duration::ZERO))
        .map_err(local("setsockopt"))?;
    if let Some(source) = source {
        socket
            .bind(&SocketAddr::new(source, 0).into())
            .map_err(local("bind"))?;
    }
    Ok(socket)
}

/// Starts to connect; whether that is already done. On one machine (which is where a pod of this node is) the
/// answer is there before the first call returns, but only a second one tells; the reactor need not be asked
/// then.
fn settle(socket: &Socket, address: SocketAddr) -> io::Result<bool> {
    let address = address.into();
    for _ in 0..2 {
        match socket
            .connect(&address)
            .map_err(|error| (Errno::from_raw(error.raw_os_error().unwrap_or(0)), error))
        {
            Ok(()) | Err((Errno::EISCONN, _)) => return Ok(true),
            Err((Errno::EINPROGRESS | Errno::EALREADY, _)) => {}
            Err((_, error)) => return Err(error),
        }
    }
    Ok(false)
}

/// Addresses to try, and the name that they are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// An address to connect to as it is.
    Address(SocketAddr),
    /// A name for the system's resolver, and a port.
    Name(String, u16),
}

impl Destination {
    /// What `host` (an address or a name, no brackets) and `port` mean.
    pub(crate) fn new(host: &str, port: u16) -> Self {
        match host.parse::<IpAddr>() {
            Ok(address) => Self::Address(SocketAddr::new(address, port)),
            Err(_) => Self::Name(host.to_owned(), port),
        }
    }

    /// Opens a connection to one of the addresses. `within` divides the time between several addresses; the
    /// caller ends the whole. The error is Go's text: `dial tcp 10.0.0.1:80: connect: connection refused`.
    pub(crate) async fn open(&self, source: Option<IpAddr>, within: Duration) -> Result<Connection, String> {
        let (name, port) = match self {
            Self::Address(address) => {
                return connect(*address, source)
                    .await
                    .map_err(|error| super::wording::dial(*address, source, &error));
            }
            Self::Name(name, port) => (name.as_str(), *port),
        };
        let addresses = lookup::lookup(name, port).await?;
        match several::first(&addresses, source, within).await {
            Ok(connection) => Ok(connection),
            Err(Some(why)) => Err(why),
            Err(None) => Err(format!("dial tcp: lookup {name}: no such host")),
        }
    }

    /// Go's text when the time is over before there is a connection.
    pub(crate) fn timed_out(&self) -> String {
        match self {
            Self::Address(address) => format!("dial tcp {address}: i/o timeout"),
            Self::Name(name, _) => format!("dial tcp: lookup {name}: i/o timeout"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
