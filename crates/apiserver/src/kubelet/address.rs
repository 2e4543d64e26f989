//! Where a node's kubelet is, and which addresses may be proxied to.

use super::options::KubeletOptions;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use serde_json::Value;
use std::net::IpAddr;

/// Host and port of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KubeletAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Where the kubelet of a node is: the first address of the preferred types, and the port that it reported.
pub(crate) fn of_node(node: &Value, options: &KubeletOptions) -> ApiResult<KubeletAddress> {
    let addresses = node["status"]["addresses"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let preferred = options.address_types.iter().find_map(|wanted| {
        let of_type = |address: &&Value| {
            address["type"] == **wanted && address["address"].as_str().is_some_and(|text| !text.is_empty())
        };
        addresses.iter().find(of_type)
    });
    let Some(host) = preferred.and_then(|address| address["address"].as_str()) else {
        let known: Vec<String> = addresses
            .iter()
            .map(|address| {
                let text = |key: &str| address[key].as_str().unwrap_or_default();
                format!("{{{} {}}}", text("type"), text("address"))
            })
            .collect();
        return Err(ApiError::unforeseen(format!(
            "no preferred addresses found; known addresses: [{}]",
            known.join(" ")
        )));
    };
    // The schema has an int32 under this name, with a capital letter.
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let port = port
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0);
    Ok(KubeletAddress {
        host: host.to_owned(),
        port: port.unwrap_or(options.default_port),
    })
}

/// Address as sockets and messages take it.
pub(crate) fn join(host: &str, port: &str) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// What stands in a path for `SCHEME:NAME:PORT`, of which name alone has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// `http`, `https` or empty.
    pub(crate) scheme: &'a str,
    pub(crate) name: &'a str,
    /// Number, name of a port, or empty.
    pub(crate) port: &'a str,
}

/// Reads `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
pub(crate) fn split(id: &str) -> Option<Target<'_>> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts[..] {
        [name] => ("", name, ""),
        [name, port] => ("", name, port),
        [scheme, name, port] => (scheme, name, port),
        _ => return None,
    };
    (matches!(scheme, "" | "http" | "https") && !name.is_empty()).then_some(Target { scheme, name, port })
}

/// Whether an address is what Go calls a global unicast address: no loopback, link-local, multicast,
/// broadcast or unspecified one. A node says itself which addresses it has, so the server must not be led to
/// itself.
pub(crate) fn is_proxyable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            !(ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.is_multicast()
                || ip.is_broadcast())
        }
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(mapped) => is_proxyable(IpAddr::V4(mapped)),
            None => {
                !(ip.is_unspecified() || ip.is_loopback() || ip.is_unicast_link_local() || ip.is_multicast())
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case(json!([{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}]), json!(null), "10.0.0.1:10250")]
    #[case(json!([{"type": "InternalDNS", "address": "d"}, {"type": "Hostname", "address": "n"}]), json!(null), "n:10250")]
    #[case(json!([{"type": "InternalIP", "address": "fd00::1"}]), json!({"kubeletEndpoint": {"Port": 7}}), "[fd00::1]:7")]
    #[case(json!([{"type": "InternalIP", "address": "10.0.0.1"}]), json!({"kubeletEndpoint": {"Port": 0}}), "10.0.0.1:10250")]
    fn a_kubelet_is_where_its_node_says(
        #[case] addresses: Value,
        #[case] endpoints: Value,
        #[case] expected: &str,
    ) {
        let node = json!({"status": {"addresses": addresses, "daemonEndpoints": endpoints}});
        let found = of_node(&node, &KubeletOptions::default()).unwrap();
        assert_eq!(join(&found.host, &found.port.to_string()), expected);
    }

    #[test]
    fn a_node_without_a_usable_address_is_an_error_with_what_it_has() {
        let node = json!({"status": {"addresses": [{"type": "InternalDNS", "address": "d"}]}});
        let error = of_node(&node, &KubeletOptions::default()).unwrap_err();
        assert_eq!(
            error.message,
            "no preferred addresses found; known addresses: [{InternalDNS d}]"
        );
        assert_eq!(error.code, 500);
        let error = of_node(&json!({}), &KubeletOptions::default()).unwrap_err();
        assert_eq!(error.message, "no preferred addresses found; known addresses: []");
    }

    #[rstest]
    #[case("n", Some(("", "n", "")))]
    #[case("n:80", Some(("", "n", "80")))]
    #[case("https:n:", Some(("https", "n", "")))]
    #[case("ftp:n:1", None)]
    #[case("https::1", None)]
    #[case("a:b:c:d", None)]
    fn names_may_carry_scheme_and_port(#[case] id: &str, #[case] expected: Option<(&str, &str, &str)>) {
        let found = split(id).map(|target| (target.scheme, target.name, target.port));
        assert_eq!(found, expected);
    }

    #[rstest]
    #[case("10.0.0.1", true)]
    #[case("192.0.2.1", true)]
    #[case("fd00::1", true)]
    #[case("127.0.0.1", false)]
    #[case("127.9.9.9", false)]
    #[case("169.254.169.254", false)]
    #[case("0.0.0.0", false)]
    #[case("255.255.255.255", false)]
    #[case("224.0.0.1", false)]
    #[case("::1", false)]
    #[case("fe80::1", false)]
    #[case("::ffff:127.0.0.1", false)]
    #[case("ff02::1", false)]
    fn the_server_is_not_led_to_itself(#[case] ip: &str, #[case] expected: bool) {
        assert_eq!(is_proxyable(ip.parse().unwrap()), expected);
    }
}
