//! How many unknown bases a peer may speak for.

use super::Refused;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Of this length are the windows in which newcomers are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Peers that are counted apart at most; more than that within a window are a flood.
const PEERS: usize = 65_536;

/// Counts newcomers per peer. IPv6 peers are counted by their /64: a host has all of it.
#[derive(Debug)]
pub(super) struct Newcomers {
    most: u32,
    peers: HashMap<IpAddr, (Duration, u32)>,
}

impl Newcomers {
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            peers: HashMap::new(),
        }
    }

    /// Counts one more.
    pub(super) fn admit(&mut self, peer: IpAddr, now: Duration) -> Result<(), Refused> {
        let flood = Refused::Flood {
            peer,
            most: self.most,
        };
        let key = network(peer);
        if self.peers.len() >= PEERS && !self.peers.contains_key(&key) {
            return Err(flood);
        }
        let (since, count) = self.peers.entry(key).or_insert((now, 0));
        if now.saturating_sub(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        if *count >= self.most {
            return Err(flood);
        }
        *count += 1;
        Ok(())
    }

    /// Forgets windows that are over.
    pub(super) fn forget(&mut self, now: Duration) {
        self.peers
            .retain(|_, (since, _)| now.saturating_sub(*since) < WINDOW);
    }
}

fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_peer_may_speak_for_so_many_unknown_bases_within_a_minute() {
        let mut newcomers = Newcomers::new(2);
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        newcomers.admit(one, at(0)).unwrap();
        newcomers.admit(one, at(1)).unwrap();
        assert_eq!(
            newcomers.admit(one, at(59)),
            Err(Refused::Flood { peer: one, most: 2 })
        );
        newcomers.admit(other, at(59)).unwrap();
        newcomers.admit(one, at(60)).unwrap();
        newcomers.forget(at(119));
        assert_eq!(newcomers.peers.len(), 1, "windows that are over are forgotten");
    }

    #[test]
    fn a_host_with_many_addresses_of_a_network_is_one_peer() {
        let mut newcomers = Newcomers::new(1);
        newcomers
            .admit("2001:db8:0:1::1".parse().unwrap(), at(0))
            .unwrap();
        assert!(
            newcomers
                .admit("2001:db8:0:1:ffff::2".parse().unwrap(), at(0))
                .is_err()
        );
        newcomers
            .admit("2001:db8:0:2::1".parse().unwrap(), at(0))
            .unwrap();
    }
}
