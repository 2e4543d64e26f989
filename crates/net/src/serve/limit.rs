//! How many connections a process accepts at a time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Refused connections are reported once in this time at most.
const REPORT: Duration = Duration::from_secs(1);

/// A limit of open connections, shared by listeners.
#[derive(Debug)]
pub(super) struct ConnectionLimit {
    most: usize,
    /// What one peer may have open of them.
    of_one: usize,
    open: Mutex<Open>,
    refused: Mutex<Refused>,
}

/// Connections that are open: all, and those of each peer.
#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
}

/// Connections that were refused.
#[derive(Debug, Default)]
struct Refused {
    reported: Option<Instant>,
    since_then: u64,
}

/// What an open connection holds; dropping it returns it.
#[derive(Debug)]
pub(super) struct Permit {
    limit: Arc<ConnectionLimit>,
    peer: IpAddr,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.limit.open();
        open.all -= 1;
        if let Some(count) = open.by_peer.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                open.by_peer.remove(&self.peer);
            }
        }
    }
}

/// Who a peer is: its IPv4 address, or the /64 of its IPv6 address, of which one machine has all.
fn peer(address: SocketAddr) -> IpAddr {
    match address.ip().to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip @ IpAddr::V4(_) => ip,
    }
}

impl Open {
    /// Counts one more of a peer, where that is within both limits.
    fn takes(&mut self, peer: IpAddr, (most, of_one): (usize, usize)) -> bool {
        let of_peer = self.by_peer.get(&peer).copied().unwrap_or_default();
        let takes = self.all < most && of_peer < of_one;
        if takes {
            self.all += 1;
            self.by_peer.insert(peer, of_peer + 1);
        }
        takes
    }
}

impl ConnectionLimit {
    /// So many at a time, and so many of them of one peer.
    pub(super) fn new(most: usize, of_one: usize) -> Self {
        Self {
            most: most.max(1),
            of_one,
            open: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Nothing panics between the two counts.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a permit if one is left for this peer; otherwise the refusal is reported.
    pub(super) fn permit(self: &Arc<Self>, address: SocketAddr) -> Option<Permit> {
        let peer = peer(address);
        if self.open().takes(peer, (self.most, self.of_one)) {
            return Some(Permit {
                limit: Arc::clone(self),
                peer,
            });
        }
        if let Some(refused) = self.refuse() {
            let (most, of_one) = (self.most, self.of_one);
            tracing::warn!(%address, refused, most, of_one, "refusing connections: too many are open");
        }
        None
    }

    /// Counts a refusal. Returns how many there were since the last report if it is time for the next one.
    fn refuse(&self) -> Option<u64> {
        // Two numbers: nothing is half done when a holder panics.
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.since_then += 1;
        if refused
            .reported
            .is_some_and(|reported| reported.elapsed() < REPORT)
        {
            return None;
        }
        refused.reported = Some(Instant::now());
        Some(std::mem::take(&mut refused.since_then))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refusals_are_reported_once_a_second_with_their_number() {
        let limit = ConnectionLimit::new(1, 1);
        assert_eq!(limit.refuse(), Some(1));
        assert_eq!((limit.refuse(), limit.refuse()), (None, None));
        tokio::time::advance(REPORT).await;
        assert_eq!(limit.refuse(), Some(3));
    }

    #[tokio::test]
    async fn a_permit_can_be_taken_again_once_it_was_returned() {
        let limit = Arc::new(ConnectionLimit::new(3, 2));
        let of = |ip: &str| limit.permit(SocketAddr::new(ip.parse().unwrap(), 1));
        let (first, second) = (of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert!(first.is_some() && second.is_some());
        assert!(of("192.0.2.1").is_none(), "one peer has its share");
        let other = of("2001:db8::1");
        assert!(other.is_some());
        assert!(of("192.0.2.3").is_none(), "all are taken");
        drop(first);
        assert!(of("192.0.2.1").is_some());
        drop((second, other));
        assert!(limit.open().all == 0 && limit.open().by_peer.is_empty());
    }

    #[tokio::test]
    async fn all_addresses_of_a_network_of_ipv6_are_one_peer() {
        let limit = Arc::new(ConnectionLimit::new(8, 1));
        let of = |ip: &str| limit.permit(SocketAddr::new(ip.parse().unwrap(), 1));
        let held = [of("2001:db8::1"), of("2001:db8::2"), of("2001:db8:0:1::1")];
        assert_eq!(held.map(|permit| permit.is_some()), [true, false, true]);
    }
}
