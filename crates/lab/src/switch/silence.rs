//! A listener that can fall silent: while it is, a SYN gets no answer at all, as from a machine without power.
//!
//! Closing the listener would refuse connections, and accepting without reading would complete handshakes; both
//! are signs of life. Linux drops a SYN for a listener whose accept queue is full
//! (`tcp_abort_on_overflow` = 0, the default), so the backlog is shrunk and filled with connections of our own.

use socket2::{Domain, SockRef, Socket, Type};
use std::{collections::HashSet, io, net::SocketAddr, time::Duration};
use tokio::net::TcpListener;

const BACKLOG: i32 = 1024;
/// Smallest backlog that does not make the kernel fall back to SYN cookies; it holds two connections.
const SILENT_BACKLOG: i32 = 1;

/// Binds a listener that can be made silent.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Our own connections in an accept queue that keep everybody else out.
#[derive(Default)]
pub(super) struct Silence {
    fillers: Vec<Socket>,
    addresses: HashSet<SocketAddr>,
}

impl Silence {
    /// Makes `listener` silent; it must not be accepted from until [`Silence::end`]. Connections that clients
    /// opened just before stay in the queue, where nobody answers them.
    pub(super) async fn begin(&mut self, listener: &TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        SockRef::from(listener).listen(SILENT_BACKLOG)?;
        while let Some(filler) = connect(address).await? {
            if let Some(local) = filler.local_addr()?.as_socket() {
                self.addresses.insert(local);
            }
            self.fillers.push(filler);
        }
        Ok(())
    }

    /// Lets the listener answer again. What is accepted from addresses of [`Silence::is_filler`] is ours.
    pub(super) fn end(&mut self, listener: &TcpListener) -> io::Result<()> {
        self.fillers.clear();
        SockRef::from(listener).listen(BACKLOG)
    }

    /// Whether an accepted connection was only a filler; answers yes once.
    pub(super) fn is_filler(&mut self, peer: &SocketAddr) -> bool {
        self.addresses.remove(peer)
    }
}

/// A connection to the listener, or `None` once the queue is full. On loopback a handshake is over within
/// microseconds, so 50 ms without one means that the SYN was dropped.
async fn connect(address: SocketAddr) -> io::Result<Option<Socket>> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => {}
        Err(error) => return Err(error),
    }
    for _ in 0..50 {
        if socket.peer_addr().is_ok() {
            return Ok(Some(socket));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(None)
}
