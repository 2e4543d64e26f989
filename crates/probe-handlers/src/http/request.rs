//! What is sent: the request of a kubelet, header by header.

use super::url::Url;
use crate::wording::quote;
use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};

/// How a kubelet of 1.36 calls itself.
const USER_AGENT: HeaderValue = HeaderValue::from_static("kube-probe/1.36");
/// Most headers of a manifest. A map of headers ends at 32,768, and any server long before.
const MOST: usize = 10_000;
const ANY: HeaderValue = HeaderValue::from_static("*/*");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Headers of a manifest, checked and completed.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    headers: HeaderMap,
    /// Instead of the URL's host and port.
    host: Option<HeaderValue>,
    /// Whether `Connection: close` is ours, and so comes last.
    close_is_ours: bool,
    /// Whether the `Referer` in there is of the last redirect, not of the manifest.
    referer_is_ours: bool,
}

impl Head {
    /// Of the manifest's headers. The error is Go's: `net/http: invalid header field name "a b"`.
    pub(crate) fn new(wanted: &[(String, String)]) -> Result<Self, String> {
        if wanted.len() > MOST {
            return Err("more headers than can be sent".to_owned());
        }
        let mut headers = HeaderMap::with_capacity(wanted.len() + 5);
        // The first place is the host's, whose value each request sets.
        headers.insert(header::HOST, HeaderValue::from_static(""));
        headers.insert(header::USER_AGENT, USER_AGENT);
        let (mut host, mut agent, mut accepts) = (None, false, false);
        for (name, value) in wanted {
            let Ok(key) = HeaderName::from_bytes(name.as_bytes()) else {
                return Err(format!(
                    "net/http: invalid header field name {}",
                    quote(name.as_bytes())
                ));
            };
            let trimmed = value.trim_matches([' ', '\t']);
            let Ok(value) = HeaderValue::from_bytes(trimmed.as_bytes()) else {
                // The value may be a secret.
                return Err(format!(
                    "net/http: invalid header field value for {}",
                    quote(canonical(name).as_bytes())
                ));
            };
            match key {
                header::HOST => {
                    host.get_or_insert(value);
                }
                header::USER_AGENT if !agent => {
                    agent = true;
                    headers.insert(key, value);
                }
                // Only the first one counts, and these three are the transport's.
                header::USER_AGENT | header::CONTENT_LENGTH | header::TRANSFER_ENCODING | header::TRAILER => {
                }
                header::ACCEPT => {
                    accepts = true;
                    headers.append(key, value);
                }
                key => {
                    headers.append(key, value);
                }
            }
        }
        if headers.get(header::USER_AGENT).is_some_and(HeaderValue::is_empty) {
            headers.remove(header::USER_AGENT);
        }
        if !accepts {
            headers.insert(header::ACCEPT, ANY);
        } else if headers.get(header::ACCEPT).is_some_and(HeaderValue::is_empty) {
            headers.remove(header::ACCEPT);
        }
        let close_is_ours = !closes_itself(&headers);
        if close_is_ours {
            headers.append(header::CONNECTION, CLOSE);
        }
        let host = host.filter(|host| !host.is_empty()).map(presentable);
        let mut head = Self {
            headers,
            host,
            close_is_ours,
            referer_is_ours: false,
        };
        if !wanted.is_empty() {
            head.sort();
        }
        Ok(head)
    }

    /// Brings the headers into Go's order: `Host`, `User-Agent`, all others by their canonical names, and
    /// what the transport adds.
    fn sort(&mut self) {
        let place = |name: &HeaderName| match *name {
            header::HOST => (0, String::new()),
            header::USER_AGENT => (1, String::new()),
            header::CONNECTION if self.close_is_ours => (3, String::new()),
            _ => (2, canonical(name.as_str())),
        };
        let mut names: Vec<&HeaderName> = self.headers.keys().collect();
        names.sort_by_cached_key(|name| place(name));
        let mut sorted = HeaderMap::with_capacity(self.headers.len() + 1);
        for name in names {
            for value in self.headers.get_all(name) {
                sorted.append(name, value.clone());
            }
        }
        self.headers = sorted;
    }

    /// The headers of a request to `url`.
    pub(crate) fn headers(&self, url: &Url) -> HeaderMap {
        let mut headers = self.headers.clone();
        let host = match &self.host {
            Some(host) => host.clone(),
            None => HeaderValue::from_str(&url.authority)
                .map_or_else(|_| HeaderValue::from_static(""), presentable),
        };
        headers.insert(header::HOST, host);
        headers
    }

    /// A redirect from `from` to `to` is followed.
    pub(crate) fn redirect(&mut self, from: &Url, to: &Url, absolute: bool) {
        if absolute {
            self.host = None;
        }
        if from.scheme == "https" && to.scheme == "http" {
            return;
        }
        let Ok(referer) = HeaderValue::from_str(&from.to_string()) else {
            return;
        };
        match self.headers.entry(header::REFERER) {
            Entry::Occupied(mut entry) if self.referer_is_ours => {
                entry.insert(referer);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(entry) => {
                entry.insert(referer);
                self.referer_is_ours = true;
                self.sort();
            }
        }
    }
}

/// Whether the manifest already says what becomes of the connection, as Go sees it.
fn closes_itself(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(header::CONNECTION);
    let mut tokens = connection
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii);
    tokens.any(|token| {
        token.eq_ignore_ascii_case(b"close")
            || token.eq_ignore_ascii_case(b"upgrade") && headers.contains_key(header::UPGRADE)
    })
}

/// A `Host` without the zone of an IPv6 address; empty where it cannot be one.
fn presentable(host: HeaderValue) -> HeaderValue {
    let bytes = host.as_bytes();
    if !bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(byte))
    {
        return HeaderValue::from_static("");
    }
    let zone = bytes
        .starts_with(b"[")
        .then(|| bytes.iter().position(|byte| *byte == b'%'))
        .flatten();
    let end = bytes.iter().rposition(|byte| *byte == b']');
    match (zone, end) {
        (Some(zone), Some(end)) if zone < end => {
            let short = [&bytes[..zone], &bytes[end..]].concat();
            HeaderValue::from_bytes(&short).unwrap_or(host)
        }
        _ => host,
    }
}

/// `X-Some-Header`, however it was written.
fn canonical(name: &str) -> String {
    let mut start = true;
    let capital = |char: char| {
        let char = if start {
            char.to_ascii_uppercase()
        } else {
            char.to_ascii_lowercase()
        };
        start = char == '-';
        char
    };
    name.chars().map(capital).collect()
}

#[cfg(test)]
mod tests;
