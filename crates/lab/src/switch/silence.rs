//! A listener that can fall silent: while it is, a SYN gets no answer at all, as from a machine without
//! power.
//!
//! Closing the listener would refuse connections, and accepting without reading would complete handshakes;
//! both are signs of life. Linux drops a SYN for a listener whose accept queue is full
//! (`tcp_abort_on_overflow` = 0, the default), so the backlog is shrunk and filled with connections of our
//! own.
//!
//! Silence towards some clients alone, as from a machine that only they cannot reach, is a filter on the
//! listening socket: the kernel drops their SYNs and goes on to answer others. (A socket that is accepted
//! inherits the filter of that moment, in which its own client did not stand.)

use socket2::{Domain, SockFilter, SockRef, Socket, Type};
use std::{
    collections::HashSet,
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};
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

/// Drops every SYN from these addresses, and from no other, from now on.
pub(super) fn ignore(listener: &TcpListener, sources: &[Ipv4Addr]) -> io::Result<()> {
    SockRef::from(listener).attach_filter(&filter(sources))
}

/// Classic BPF: loads the source address of the IPv4 header, compares it with each of `sources`, and drops
/// the packet if one is equal. There are fewer sources than the 255 instructions that a jump can pass over,
/// because a lab has at most 50 nodes.
fn filter(sources: &[Ipv4Addr]) -> Vec<SockFilter> {
    /// `BPF_LD | BPF_W | BPF_ABS`
    const LOAD: u16 = 0x20;
    /// `BPF_JMP | BPF_JEQ | BPF_K`
    const JUMP_IF_EQUAL: u16 = 0x15;
    /// `BPF_RET | BPF_K`
    const RETURN: u16 = 0x06;
    /// `SKF_NET_OFF`, where the IPv4 header begins, and the offset of the source address in it.
    const SOURCE: u32 = 0xfff0_0000 + 12;
    const WHOLE_PACKET: u32 = u32::MAX;
    const NOTHING: u32 = 0;
    let mut program = vec![SockFilter::new(LOAD, 0, 0, SOURCE)];
    for (index, source) in sources.iter().enumerate() {
        // Over the comparisons that are left and the first of the two ends.
        let to_the_drop = u8::try_from(sources.len() - index).unwrap_or(u8::MAX);
        program.push(SockFilter::new(JUMP_IF_EQUAL, to_the_drop, 0, (*source).into()));
    }
    program.push(SockFilter::new(RETURN, 0, 0, WHOLE_PACKET));
    program.push(SockFilter::new(RETURN, 0, 0, NOTHING));
    program
}

/// Connections of our own that fill the accept queue, so that no other connection can be opened.
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

/// A connection to the listener, or `None` once the queue is full. Within a machine a handshake is over
/// within microseconds, so 50 ms without one means that the SYN was dropped.
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
