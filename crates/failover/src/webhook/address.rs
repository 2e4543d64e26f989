//! How the API server reaches the webhook.

use super::server::MUTATE;
use evenkeel_kube_values::names::is_label;
use evenkeel_net::pki::ServerNames;
use serde_json::{Value, json};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// How the API server reaches the webhook: as a flag reads, `https://HOST[:PORT]` or
/// `service/NAMESPACE/NAME[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAddress {
    /// By URL: outside the cluster, or in the lab.
    Url {
        /// DNS name or address, an IPv6 address without brackets.
        host: String,
        port: u16,
    },
    /// Through a Service.
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
}

/// A text that names no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "webhook address {text:?} is neither https://HOST[:PORT] nor service/NAMESPACE/NAME[:PORT]: {reason}"
)]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl FromStr for WebhookAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |reason| AddressError {
            text: text.to_owned(),
            reason,
        };
        if let Some(rest) = text.strip_prefix("service/") {
            let (namespace, rest) = rest.split_once('/').ok_or(wrong("the Service has no name"))?;
            let (name, port) = with_port(rest).ok_or(wrong("the port is not a number from 1 to 65535"))?;
            if !is_label(namespace) || !is_label(name) {
                return Err(wrong("namespace and name must be DNS labels"));
            }
            return Ok(Self::Service {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                port,
            });
        }
        let Some(rest) = text.strip_prefix("https://") else {
            return Err(wrong("the scheme must be https"));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) {
            return Err(wrong("it must end after host and port"));
        }
        let (host, port) = with_port(rest).ok_or(wrong("the port is not a number from 1 to 65535"))?;
        let is_v6 = host.starts_with('[') && host.ends_with(']');
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || is_v6 && host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(wrong("there is no valid host"));
        }
        Ok(Self::Url {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for WebhookAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { host, port } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Url { host, port } => write!(f, "https://{host}:{port}"),
            Self::Service {
                namespace,
                name,
                port,
            } => write!(f, "service/{namespace}/{name}:{port}"),
        }
    }
}

impl WebhookAddress {
    /// Names that the serving certificate must carry.
    pub(crate) fn names(&self) -> ServerNames {
        let mut names = ServerNames::default();
        match self {
            Self::Url { host, .. } => match host.parse::<IpAddr>() {
                Ok(ip) => names.ips.push(ip),
                Err(_) => names.dns.push(host.clone()),
            },
            // The API server verifies `NAME.NAMESPACE.svc`, whatever the cluster's domain.
            Self::Service { namespace, name, .. } => names.dns.push(format!("{name}.{namespace}.svc")),
        }
        names
    }

    /// `clientConfig` of a webhook; `ca_bundle` is base64 of PEM.
    pub(crate) fn client_config(&self, ca_bundle: &str) -> Value {
        match self {
            Self::Url { .. } => {
                json!({"caBundle": ca_bundle, "url": format!("{self}{MUTATE}"), "service": null})
            }
            Self::Service {
                namespace,
                name,
                port,
            } => json!({
                "caBundle": ca_bundle,
                "service": {"namespace": namespace, "name": name, "path": MUTATE, "port": port},
                "url": null,
            }),
        }
    }
}

/// Host and port, 443 without one. A colon inside brackets is no port.
fn with_port(text: &str) -> Option<(&str, u16)> {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            Some((host, port.parse().ok().filter(|port| *port != 0)?))
        }
        _ => Some((text, 443)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::url("https://127.0.0.1:8443", "https://127.0.0.1:8443")]
    #[case::default_port("https://guard.example.org/", "https://guard.example.org:443")]
    #[case::v6("https://[::1]:9443", "https://[::1]:9443")]
    #[case::v6_default("https://[::1]", "https://[::1]:443")]
    #[case::service(
        "service/evenkeel-system/evenkeel-webhook",
        "service/evenkeel-system/evenkeel-webhook:443"
    )]
    #[case::service_port("service/a/b:8443", "service/a/b:8443")]
    fn an_address_reads_as_it_is_written(#[case] text: &str, #[case] expected: &str) {
        let address: WebhookAddress = text.parse().unwrap();
        assert_eq!(address.to_string(), expected);
        assert_eq!(expected.parse::<WebhookAddress>().unwrap(), address);
    }

    #[rstest]
    #[case::plain_http("http://127.0.0.1:1", "scheme")]
    #[case::path("https://a/b", "end after host")]
    #[case::no_host("https://:1", "host")]
    #[case::port("https://a:0", "port")]
    #[case::service_name("service/a", "no name")]
    #[case::service_label("service/a/B", "DNS labels")]
    #[case::garbage("", "scheme")]
    fn a_wrong_address_says_what_is_wrong(#[case] text: &str, #[case] expected: &str) {
        let error = text.parse::<WebhookAddress>().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn the_certificate_carries_what_the_api_server_asks_for() {
        let service: WebhookAddress = "service/ns/hook".parse().unwrap();
        assert_eq!(service.names().dns, ["hook.ns.svc"]);
        let url: WebhookAddress = "https://[::1]".parse().unwrap();
        assert_eq!(url.names().ips, ["::1".parse::<IpAddr>().unwrap()]);
    }
}
