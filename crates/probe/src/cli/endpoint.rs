//! Where a single probe goes: URLs, addresses and headers as people write them. `Err` is one line with what
//! to do.

use crate::core::{HttpGet, Port, Scheme};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name or an IP address, without brackets.
    pub(super) host: String,
    /// 1 to 65535.
    pub(super) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Reads `HOST:PORT`, `[IPV6]:PORT`.
pub(super) fn address(text: &str) -> Result<Address, String> {
    if text.contains("://") {
        return Err(format!(
            "{text:?} is a URL; give HOST:PORT, or use `evenkeel probe http`"
        ));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(format!(
            "{text:?}: an IPv6 address stands in brackets and a port follows, as in [::1]:8080"
        ));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| format!("{text:?} has no closing bracket; write [IPV6]:PORT"))?;
            host.parse::<Ipv6Addr>()
                .map_err(|_| format!("{host:?} is no IPv6 address; brackets are for those alone"))?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return Err(format!(
                    "{text:?}: put the IPv6 address into brackets, as in [::1]:8080"
                ));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port
        .filter(|port| !port.is_empty())
        .ok_or_else(|| format!("{text:?} has no port; give HOST:PORT, as in {}:8080", shown(host)))?;
    if !is_host(host) {
        return Err(format!(
            "{text:?} has no host; give HOST:PORT, as in 127.0.0.1:8080"
        ));
    }
    Ok(Address {
        host: host.to_owned(),
        port: number(port)?,
    })
}

/// Reads an `http://` or `https://` URL.
pub(super) fn url(text: &str) -> Result<HttpGet, String> {
    let (scheme, rest) = if let Some(rest) = strip(text, "http://") {
        (Scheme::Http, rest)
    } else if let Some(rest) = strip(text, "https://") {
        (Scheme::Https, rest)
    } else {
        return Err(format!(
            "{text:?} begins with neither http:// nor https://; give a URL such as http://127.0.0.1:8080/healthz"
        ));
    };
    if let Some(odd) = text.chars().find(|c| c.is_control() || c.is_whitespace()) {
        return Err(format!(
            "{text:?} contains {odd:?}, which no URL may; write it as %{:02X}",
            u32::from(odd)
        ));
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if authority.contains('@') {
        return Err(format!(
            "{text:?} contains credentials; give them as a header, as in -H 'Authorization: Basic …'"
        ));
    }
    let default = match scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    };
    let bare = authority.ends_with(']') || !authority.contains(':');
    let Address { host, port } =
        if authority.is_empty() || authority.starts_with(':') && !authority.starts_with("::") {
            return Err(format!(
                "{text:?} has no host; give a URL such as http://127.0.0.1:8080/healthz"
            ));
        } else if bare {
            address(&format!("{authority}:{default}"))?
        } else {
            address(
                authority
                    .strip_suffix(':')
                    .map_or_else(|| authority.to_owned(), |host| format!("{host}:{default}"))
                    .as_str(),
            )?
        };
    let path = match tail.chars().next() {
        None => "/".to_owned(),
        Some('?') => format!("/{tail}"),
        Some(_) => tail.to_owned(),
    };
    Ok(HttpGet {
        scheme,
        host: Some(host),
        port: Port::Number(i64::from(port)),
        path,
        headers: Vec::new(),
    })
}

/// Reads `Name: value`.
pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("{text:?} has no colon; give a header as 'Name: value'"))?;
    let (name, value) = (name.trim(), value.trim());
    http::HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        format!("{name:?} is no header name: letters, digits and - are allowed, as in 'Host: shop.example'")
    })?;
    http::HeaderValue::from_str(value)
        .map_err(|_| format!("the value of header {name} contains a character that no header may"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The URL that a probe asks, for people.
pub(super) fn shown_url(get: &HttpGet, pod: Option<IpAddr>) -> String {
    let pod = pod.map(|address| address.to_string());
    let host = get.host.as_deref().or(pod.as_deref()).unwrap_or("?");
    let port = match &get.port {
        Port::Number(number) => number.to_string(),
        Port::Name(name) => name.clone(),
    };
    format!("{}://{}:{port}{}", get.scheme.as_str(), shown(host), get.path)
}

fn shown(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

/// A name or an address: what is no label of DNS, or an underscore, has no business here.
fn is_host(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
        || !host.is_empty()
            && host.len() <= 253
            && host
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '-' | '.' | '_'))
}

fn number(text: &str) -> Result<u16, String> {
    text.parse::<u16>()
        .ok()
        .filter(|port| *port != 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| format!("{text:?} is no port; ports go from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_by_name_and_by_number() {
        for (text, host, port) in [
            ("127.0.0.1:80", "127.0.0.1", 80),
            ("[::1]:8080", "::1", 8080),
            ("shop.example:65535", "shop.example", 65535),
            ("my_service:1", "my_service", 1),
        ] {
            let read = address(text).unwrap();
            assert_eq!((&*read.host, read.port), (host, port), "{text}");
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn addresses_that_are_none_are_refused_with_what_to_do() {
        for (text, reason) in [
            ("127.0.0.1", "as in 127.0.0.1:8080"),
            ("127.0.0.1:", "has no port"),
            (":80", "has no host"),
            ("", "has no port"),
            ("::1", "in brackets"),
            ("::1:80", "in brackets"),
            ("[::1]", "as in [::1]:8080"),
            ("[::1", "no closing bracket"),
            ("[shop]:80", "no IPv6 address"),
            ("fe80::1%eth0:80", "into brackets"),
            ("a:0", "1 to 65535"),
            ("a:65536", "1 to 65535"),
            ("a:+80", "1 to 65535"),
            ("a:http", "1 to 65535"),
            ("a b:80", "has no host"),
            ("http://a:80", "evenkeel probe http"),
        ] {
            let error = address(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn urls_are_read_with_the_default_port_and_path() {
        for (text, wanted) in [
            ("http://127.0.0.1", "http://127.0.0.1:80/"),
            ("https://shop.example", "https://shop.example:443/"),
            ("HTTP://a:8080/x?y=z", "http://a:8080/x?y=z"),
            ("http://a:/x", "http://a:80/x"),
            ("http://a?b", "http://a:80/?b"),
            ("http://a/x#y", "http://a:80/x"),
            ("https://[::1]/", "https://[::1]:443/"),
            ("https://[::1]:8443/ready", "https://[::1]:8443/ready"),
        ] {
            assert_eq!(shown_url(&url(text).unwrap(), None), wanted, "{text}");
        }
    }

    #[test]
    fn urls_that_are_none_are_refused_with_what_to_do() {
        for (text, reason) in [
            ("127.0.0.1:80", "neither http:// nor https://"),
            ("ftp://a/", "neither http:// nor https://"),
            ("http://", "no host"),
            ("http:///x", "no host"),
            ("http://:80/", "no host"),
            ("http://::1/", "brackets"),
            ("http://a:99999/", "1 to 65535"),
            ("http://a:0/", "1 to 65535"),
            ("http://user:secret@a/", "-H 'Authorization"),
            ("http://a/x y", "%20"),
            ("http://a/x\ny", "%0A"),
            ("hé", "neither"),
        ] {
            let error = url(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn headers_are_read_and_checked() {
        assert_eq!(
            header("Host: shop.example:80"),
            Ok(("Host".to_owned(), "shop.example:80".to_owned()))
        );
        assert_eq!(header("Accept:"), Ok(("Accept".to_owned(), String::new())));
        for (text, reason) in [
            ("Host", "no colon"),
            (": x", "no header name"),
            ("a b: x", "no header name"),
            ("a: x\ny", "value of header a"),
        ] {
            let error = header(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
