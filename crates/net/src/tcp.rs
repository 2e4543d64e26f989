//! TCP connections that end by themselves when the other host is gone.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Time without received data before the kernel sends a keepalive probe, and between two probes.
const ASK: Duration = Duration::from_secs(15);
/// Number of unanswered probes after which the connection is dead.
const QUESTIONS: u32 = 9;

/// Has the kernel ask whether a silent peer is still there: one that is gone without a word costs two and a
/// half minutes. The numbers are those of Go, which every other server of Kubernetes uses.
///
/// TCP_USER_TIMEOUT stays off: it would also end connections whose peer is well and does not read for a
/// while, such as a log in a pager or a terminal that is held.
pub fn keep_alive(socket: &impl AsFd) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(ASK)
        .with_interval(ASK)
        .with_retries(QUESTIONS);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_kept_alive_with_gos_numbers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = SockRef::from(&stream);
        assert!(!socket.keepalive().unwrap());
        keep_alive(&stream).unwrap();
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), ASK);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), ASK);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), QUESTIONS);
    }
}
