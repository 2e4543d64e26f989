//! Ports for servers that a test stops and starts again.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
#[cfg(feature = "arklet")]
use std::net::SocketAddr;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
#[cfg(feature = "arklet")]
use std::time::Duration;

/// Below the ports that the system gives to outgoing connections. While a server is down, one of those could
/// take its port; and a client that tries again and again to reach it would sooner or later be given it, and
/// reach itself.
const PORTS: std::ops::Range<u64> = 10_000..32_768;

/// Listens on a free port that stays free while its server is down.
pub(crate) fn listen(ip: IpAddr) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for attempt in 0..100_u32 {
        let chance = RandomState::new().hash_one(attempt);
        let port = PORTS.start + chance % (PORTS.end - PORTS.start);
        match TcpListener::bind((ip, port as u16)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// A port of the loopback interface that nobody listens at, for a program that is not given a socket. It
/// stays free while that program is down, however often clients ask for it.
pub fn free_port() -> io::Result<u16> {
    Ok(listen(Ipv4Addr::LOCALHOST.into())?.local_addr()?.port())
}

/// Listens; port 0 is a free one, as [`listen`] chooses it.
#[cfg(feature = "arklet")]
pub(crate) fn listen_at(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let listener = match address.port() {
        0 => listen(address.ip())?,
        _ => TcpListener::bind(address)?,
    };
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Listens again where a server of this process did. A process that is being started at the same time holds a
/// copy of the old socket until it has become its program, which is over soon: it is waited for, up to 10 s.
#[cfg(feature = "arklet")]
pub(crate) async fn listen_again(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let mut attempts = 1000;
    loop {
        match listen_at(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {
                attempts -= 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            listener => return listener,
        }
    }
}

/// Ends a listener so that connections are refused at once, even while a process that is being started holds
/// a copy of its socket.
#[cfg(feature = "arklet")]
pub(crate) fn close(listener: tokio::net::TcpListener) {
    // It fails only for what does not listen.
    let _closed = socket2::SockRef::from(&listener).shutdown(std::net::Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn two_servers_get_two_ports_that_no_connection_is_given() {
        let ip = Ipv4Addr::LOCALHOST.into();
        let ports = [listen(ip), listen(ip)].map(|listener| listener.unwrap().local_addr().unwrap().port());
        for port in ports {
            assert!(PORTS.contains(&u64::from(port)), "{port}");
        }
        assert_ne!(ports[0], ports[1]);
    }
}
