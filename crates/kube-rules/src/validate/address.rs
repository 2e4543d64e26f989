//! IP addresses and ranges of them.

use super::errors::Errors;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IP_TEXT: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const CIDR_TEXT: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// A range: its address with no bits beyond the length, and the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    address: IpAddr,
    length: u32,
}

impl Range {
    /// Whether `other` lies within, and is smaller.
    pub(super) fn contains_strictly(&self, other: Self) -> bool {
        self.address.is_ipv4() == other.address.is_ipv4()
            && self.length < other.length
            && mask(other.address, self.length) == self.address
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }
}

/// An address with the bits beyond the length cleared.
fn mask(address: IpAddr, length: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let kept = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & kept).into()
        }
        IpAddr::V6(address) => {
            let kept = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & kept).into()
        }
    }
}

/// The address without leading zeros, as upstream's lenient reader takes it.
fn without_zeros(text: &str) -> String {
    let part = |part: &str| {
        let kept = part.trim_start_matches('0');
        if kept.is_empty() && !part.is_empty() {
            "0".to_owned()
        } else {
            kept.to_owned()
        }
    };
    text.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// A text that is an address, as fields take it that are older than the strict rules.
pub(super) fn ip(text: &str, field: &str, errors: &mut Errors) -> Option<IpAddr> {
    let strict = text.parse::<IpAddr>().ok();
    let lenient = || without_zeros(text).parse().ok().filter(IpAddr::is_ipv4);
    let Some(address) = strict.or_else(lenient) else {
        errors.invalid(field, &text.into(), IP_TEXT);
        return None;
    };
    if strict.is_none() {
        errors.invalid(field, &text.into(), "must not have leading 0s");
        return None;
    }
    if let IpAddr::V6(address) = address
        && address.to_ipv4_mapped().is_some()
    {
        errors.invalid(field, &text.into(), "must not be an IPv4-mapped IPv6 address");
        return None;
    }
    Some(address)
}

/// A text that is a range.
pub(super) fn range(text: &str, field: &str, errors: &mut Errors) -> Option<Range> {
    let parsed = text.split_once('/').and_then(|(address, length)| {
        let strict = address.parse::<IpAddr>().ok();
        let address = strict.or_else(|| without_zeros(address).parse().ok().filter(IpAddr::is_ipv4))?;
        let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = length
            .parse::<u32>()
            .ok()
            .filter(|length| digits && *length <= bits)?;
        Some((strict.is_some(), address, length))
    });
    let Some((strict, address, length)) = parsed else {
        errors.invalid(field, &text.into(), CIDR_TEXT);
        return None;
    };
    let zeros = text
        .rsplit_once('/')
        .is_some_and(|(_, length)| length.len() > 1 && length.starts_with('0'));
    let base = mask(address, length);
    if !strict || zeros {
        errors.invalid(
            field,
            &text.into(),
            "must not have leading 0s in IP or prefix length",
        );
    } else if matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some()) {
        errors.invalid(field, &text.into(), "must not have an IPv4-mapped IPv6 address");
    } else if base != address {
        errors.invalid(
            field,
            &text.into(),
            "must not have bits set beyond the prefix length",
        );
    }
    Some(Range {
        address: base,
        length,
    })
}

/// An address that endpoints may have: not loopback, link-local, unspecified.
pub(super) fn of_endpoint(text: &str, field: &str, errors: &mut Errors) {
    let lenient = text.parse().ok().or_else(|| without_zeros(text).parse().ok());
    let Some(address) = lenient else {
        errors.invalid(field, &text.into(), "must be a valid IP address");
        return;
    };
    let (unspecified, loopback, link_local, multicast) = match address {
        IpAddr::V4(address) => (
            address.is_unspecified(),
            address.is_loopback(),
            address.is_link_local(),
            address.octets()[..3] == [224, 0, 0],
        ),
        IpAddr::V6(address) => (
            address.is_unspecified(),
            address.is_loopback(),
            address.is_unicast_link_local(),
            address.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    if unspecified {
        errors.invalid(field, &text.into(), &format!("may not be unspecified ({text})"));
    }
    for (bad, name, range) in [
        (loopback, "loopback", "127.0.0.0/8, ::1/128"),
        (link_local, "link-local", "169.254.0.0/16, fe80::/10"),
        (multicast, "link-local multicast", "224.0.0.0/24, ff02::/10"),
    ] {
        if bad {
            let detail = format!("may not be in the {name} range ({range})");
            errors.invalid(field, &text.into(), &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn told(check: impl FnOnce(&mut Errors)) -> Vec<String> {
        let mut errors = Errors::default();
        check(&mut errors);
        errors.list.into_iter().map(|error| error.message).collect()
    }

    #[rstest]
    #[case("10.1.2.3", None)]
    #[case("2001:db8::1", None)]
    #[case("", Some(IP_TEXT))]
    #[case("web", Some(IP_TEXT))]
    #[case("10.1.2", Some(IP_TEXT))]
    #[case("010.1.2.3", Some("must not have leading 0s"))]
    #[case("::ffff:10.1.2.3", Some("must not be an IPv4-mapped IPv6 address"))]
    fn addresses(#[case] text: &str, #[case] wrong: Option<&str>) {
        let expected: Vec<String> = wrong
            .map(|wrong| format!("Invalid value: \"{text}\": {wrong}"))
            .into_iter()
            .collect();
        assert_eq!(told(|errors| _ = ip(text, "f", errors)), expected);
    }

    #[rstest]
    #[case("10.0.0.0/8", None)]
    #[case("0.0.0.0/0", None)]
    #[case("2001:db8::/32", None)]
    #[case("::/0", None)]
    #[case("10.0.0.0", Some(CIDR_TEXT))]
    #[case("10.0.0.0/33", Some(CIDR_TEXT))]
    #[case("10.0.0.0/+8", Some(CIDR_TEXT))]
    #[case("10.0.0.0/", Some(CIDR_TEXT))]
    #[case("a/8", Some(CIDR_TEXT))]
    #[case("10.0.0.0/08", Some("must not have leading 0s in IP or prefix length"))]
    #[case("010.0.0.0/8", Some("must not have leading 0s in IP or prefix length"))]
    #[case("::ffff:10.0.0.0/104", Some("must not have an IPv4-mapped IPv6 address"))]
    #[case("10.0.0.1/8", Some("must not have bits set beyond the prefix length"))]
    fn ranges(#[case] text: &str, #[case] wrong: Option<&str>) {
        let expected: Vec<String> = wrong
            .map(|wrong| format!("Invalid value: \"{text}\": {wrong}"))
            .into_iter()
            .collect();
        assert_eq!(told(|errors| _ = range(text, "f", errors)), expected);
    }

    #[rstest]
    #[case("10.0.0.0/8", "10.1.0.0/16", true)]
    #[case("10.0.0.0/8", "10.0.0.0/8", false)]
    #[case("10.0.0.0/8", "11.0.0.0/16", false)]
    #[case("::/0", "10.0.0.0/8", false)]
    #[case("2001:db8::/32", "2001:db8:1::/48", true)]
    fn ranges_within(#[case] outer: &str, #[case] inner: &str, #[case] within: bool) {
        let mut errors = Errors::default();
        let outer = range(outer, "f", &mut errors).unwrap();
        let inner = range(inner, "f", &mut errors).unwrap();
        assert!(errors.list.is_empty());
        assert_eq!(outer.contains_strictly(inner), within);
    }
}
