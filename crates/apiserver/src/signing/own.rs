//! Whose names those of a request are: a node's, another node's, or the server's own.
//!
//! A node writes its addresses itself, and the authority that signs for nodes is the one that clients trust
//! to be the server's. So a node is not believed when it claims what belongs to somebody else.

use evenkeel_kube_rules::csr::Names as Requested;
use evenkeel_net::pki::ServerNames;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// What the server's own certificates are for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    dns: BTreeSet<String>,
    ips: BTreeSet<IpAddr>,
}

impl Names {
    pub(crate) fn add(&mut self, names: &ServerNames) {
        self.dns.extend(names.dns.iter().map(|name| plain(name)));
        self.ips.extend(names.ips.iter().map(IpAddr::to_canonical));
    }

    /// Whether one of the names is the server's. Every loopback address is, unless kubelets live there.
    pub(crate) fn include_any(&self, requested: &Requested, loopback_is_of_nodes: bool) -> bool {
        let ip = |ip: &IpAddr| {
            let ip = ip.to_canonical();
            if ip.is_loopback() {
                !loopback_is_of_nodes
            } else {
                ip.is_unspecified() || self.ips.contains(&ip)
            }
        };
        let dns = |name: &String| {
            let name = plain(name);
            // Patterns could stand for anything, and some clients take addresses from DNS names.
            name.contains('*')
                || name.parse::<IpAddr>().is_ok()
                || ["localhost", "kubernetes"].contains(&name.as_str())
                || name.ends_with(".localhost")
                || name.starts_with("kubernetes.")
                || self.dns.contains(&name)
        };
        requested.ips.iter().any(ip) || requested.dns.iter().any(dns)
    }
}

/// A DNS name as it is compared.
fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn name_of(node: &Value) -> &str {
    node["metadata"]["name"].as_str().unwrap_or_default()
}

/// The name of a node and what it calls its addresses.
fn addresses(node: &Value) -> impl Iterator<Item = &str> {
    let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    addresses
        .filter_map(|address| address["address"].as_str())
        .chain([name_of(node)])
}

fn has_ip(node: &Value, ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    addresses(node)
        .filter_map(|text| text.parse::<IpAddr>().ok())
        .any(|address| address.to_canonical() == ip)
}

fn has_dns(node: &Value, dns: &str) -> bool {
    let dns = plain(dns);
    addresses(node).any(|address| plain(address) == dns)
}

/// Whether all names are the node's.
pub(crate) fn are_of(node: &Value, requested: &Requested) -> bool {
    requested.ips.iter().all(|ip| has_ip(node, *ip)) && requested.dns.iter().all(|dns| has_dns(node, dns))
}

/// Whether a node of another name has one of them, too: then none of both is believed. Loopback addresses are
/// everybody's.
pub(crate) fn are_of_another(nodes: &[Arc<Value>], name: &str, requested: &Requested) -> bool {
    let others = || nodes.iter().filter(|node| name_of(node) != name);
    let shared = |ip: &IpAddr| !ip.to_canonical().is_loopback() && others().any(|node| has_ip(node, *ip));
    requested.ips.iter().any(shared)
        || requested
            .dns
            .iter()
            .any(|dns| others().any(|node| has_dns(node, dns)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn asked(text: &str) -> Requested {
        match text.strip_prefix("dns:") {
            Some(name) => Requested {
                dns: vec![name.to_owned()],
                ips: Vec::new(),
            },
            None => Requested {
                dns: Vec::new(),
                ips: vec![text.parse().unwrap()],
            },
        }
    }

    #[rstest]
    #[case::its_address("10.0.0.1", true, true)]
    #[case::the_same_in_ipv6("::ffff:10.0.0.1", true, true)]
    #[case::every_interface("0.0.0.0", true, true)]
    #[case::its_name("dns:Api.Example.com.", true, true)]
    #[case::its_service("dns:kubernetes.default.svc", true, true)]
    #[case::in_any_case("dns:LOCALHOST", true, true)]
    #[case::a_pattern("dns:*.default.svc", true, true)]
    #[case::an_address_as_a_name("dns:10.0.0.9", true, true)]
    #[case::loopback("127.0.0.1", true, false)]
    #[case::another_loopback("::1", true, false)]
    #[case::of_a_node("10.0.0.7", false, false)]
    #[case::name_of_a_node("dns:n1", false, false)]
    fn what_is_the_servers_is_not_a_nodes(
        #[case] name: &str,
        #[case] own: bool,
        #[case] own_beside_nodes: bool,
    ) {
        let mut names = Names::default();
        names.add(&ServerNames {
            dns: vec!["api.example.com".to_owned()],
            ips: vec!["10.0.0.1".parse().unwrap(), "127.0.0.1".parse().unwrap()],
        });
        assert_eq!(names.include_any(&asked(name), false), own);
        assert_eq!(names.include_any(&asked(name), true), own_beside_nodes);
    }

    #[rstest]
    #[case("10.0.0.1", true, false)]
    #[case("10.0.0.2", false, true)]
    #[case("10.0.0.3", true, true)]
    #[case("10.0.0.4", false, false)]
    #[case("127.0.0.1", true, false)]
    #[case("dns:n1", true, false)]
    #[case("dns:N2", false, true)]
    fn names_are_of_the_node_that_alone_has_them(
        #[case] name: &str,
        #[case] of_first: bool,
        #[case] of_another: bool,
    ) {
        let node = |name: &str, addresses: &[&str]| {
            let addresses: Vec<Value> = addresses
                .iter()
                .map(|address| json!({"type": "InternalIP", "address": address}))
                .collect();
            Arc::new(json!({"metadata": {"name": name}, "status": {"addresses": addresses}}))
        };
        let nodes = [
            node("n1", &["10.0.0.1", "10.0.0.3", "127.0.0.1"]),
            node("n2", &["10.0.0.2", "::ffff:10.0.0.3", "127.0.0.1"]),
        ];
        assert_eq!(are_of(&nodes[0], &asked(name)), of_first);
        assert_eq!(are_of_another(&nodes, "n1", &asked(name)), of_another);
    }
}
