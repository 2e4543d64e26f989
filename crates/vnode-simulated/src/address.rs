//! Addresses of pods: each node has a range of its own. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// A range of IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    base: u32,
    bits: u8,
}

impl Cidr {
    /// `10.64.0.0/10`, of which each node has a /24.
    const PODS: u32 = u32::from_be_bytes([10, 64, 0, 0]);
    /// Where pods with real sockets live: `127.64.0.0/10`.
    const LOOPBACK: u32 = u32::from_be_bytes([127, 64, 0, 0]);
    /// What the two have in common.
    const LOW: u32 = (1 << 22) - 1;

    /// The range of the node with this index. There are 16,384 of them; then they begin anew.
    pub fn of(index: u32) -> Self {
        Self {
            base: Self::PODS | (index << 8) & Self::LOW,
            bits: 24,
        }
    }

    fn hosts(self) -> u32 {
        1u32.checked_shl(32 - u32::from(self.bits)).unwrap_or(u32::MAX)
    }

    fn mask(self) -> u32 {
        self.hosts().wrapping_sub(1)
    }

    /// The address on which a pod of this address can have real sockets: on Linux all of 127/8 is the machine
    /// itself.
    pub fn loopback(address: Ipv4Addr) -> Ipv4Addr {
        Ipv4Addr::from_bits(Self::LOOPBACK | address.to_bits() & Self::LOW)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.base), self.bits)
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no range of pods such as `10.64.7.0/24` (/16 to /30)");
        let (base, bits) = text.split_once('/').ok_or_else(wrong)?;
        let base: Ipv4Addr = base.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        if !(16..=30).contains(&bits) {
            return Err(wrong());
        }
        let range = Self {
            base: base.to_bits(),
            bits,
        };
        if range.base & range.mask() != 0 {
            return Err(wrong());
        }
        Ok(range)
    }
}

/// Which addresses of a node's range are taken.
#[derive(Debug)]
pub struct Pool {
    range: Cidr,
    /// A bit per address, made when the first is taken.
    taken: Vec<u64>,
    /// Where the next search begins: an address that was given back rests for as long as possible.
    next: u32,
}

impl Pool {
    /// A range of which all addresses are free.
    pub fn new(range: Cidr) -> Self {
        Self {
            range,
            taken: Vec::new(),
            next: 2,
        }
    }

    /// The range of its addresses.
    pub fn range(&self) -> Cidr {
        self.range
    }

    /// The next free address; `None` once all are taken. The first two and the last are nobody's.
    pub fn take(&mut self) -> Option<Ipv4Addr> {
        let usable = 2..self.range.hosts() - 1;
        let from = if usable.contains(&self.next) { self.next } else { 2 };
        let host = (from..usable.end)
            .chain(usable.start..from)
            .find(|host| !self.bit(*host))?;
        self.set(host, true);
        self.next = host + 1;
        Some(Ipv4Addr::from_bits(self.range.base | host))
    }

    /// Takes an address that a pod has already; one of another range is nobody's business here.
    pub fn keep(&mut self, address: IpAddr) {
        if let Some(host) = self.host(address) {
            self.set(host, true);
        }
    }

    /// Gives an address back.
    pub fn give(&mut self, address: IpAddr) {
        if let Some(host) = self.host(address) {
            self.set(host, false);
        }
    }

    fn host(&self, address: IpAddr) -> Option<u32> {
        let IpAddr::V4(address) = address else {
            return None;
        };
        let own = Ipv4Addr::from_bits(self.range.base | address.to_bits() & self.range.mask());
        (address == own || address == Cidr::loopback(own)).then(|| address.to_bits() & self.range.mask())
    }

    fn bit(&self, host: u32) -> bool {
        let word = self.taken.get(host as usize / 64).copied().unwrap_or(0);
        word >> (host % 64) & 1 == 1
    }

    fn set(&mut self, host: u32, taken: bool) {
        let index = host as usize / 64;
        if self.taken.len() <= index {
            self.taken.resize(index + 1, 0);
        }
        if let Some(word) = self.taken.get_mut(index) {
            if taken {
                *word |= 1 << (host % 64);
            } else {
                *word &= !(1 << (host % 64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::collections::BTreeSet;

    #[test]
    fn each_node_has_a_range_of_its_own() {
        let ranges: BTreeSet<String> = (0..16_384).map(|index| Cidr::of(index).to_string()).collect();
        assert_eq!(ranges.len(), 16_384);
        assert_eq!(Cidr::of(0).to_string(), "10.64.0.0/24");
        assert_eq!(Cidr::of(16_383).to_string(), "10.127.255.0/24");
    }

    #[test]
    fn a_pool_gives_each_address_once_and_what_came_back_last() {
        let mut pool = Pool::new("10.64.7.0/29".parse().unwrap());
        let all: Vec<String> = std::iter::from_fn(|| pool.take())
            .map(|a| a.to_string())
            .collect();
        assert_eq!(
            all,
            ["10.64.7.2", "10.64.7.3", "10.64.7.4", "10.64.7.5", "10.64.7.6"]
        );
        pool.give("10.64.7.4".parse().unwrap());
        assert_eq!(pool.take(), Some("10.64.7.4".parse().unwrap()));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn what_is_kept_is_not_given_and_sockets_take_the_same_places() {
        let mut pool = Pool::new(Cidr::of(7));
        pool.keep("10.64.7.2".parse().unwrap());
        pool.keep("127.64.7.3".parse().unwrap());
        pool.keep("10.64.8.4".parse().unwrap());
        assert_eq!(pool.take(), Some("10.64.7.4".parse().unwrap()));
        assert_eq!(
            Cidr::loopback("10.64.7.4".parse().unwrap()).to_string(),
            "127.64.7.4"
        );
    }

    #[rstest]
    #[case("10.64.7.1/24")]
    #[case("10.64.7.0")]
    #[case("10.0.0.0/8")]
    #[case("10.0.0.0/31")]
    #[case("fd00::/64")]
    fn what_is_no_range_is_refused(#[case] text: &str) {
        assert!(text.parse::<Cidr>().is_err());
    }
}
