//! URLs as Go's `net/url` reads and writes them, defects included: what a kubelet asks for hangs on them.

use crate::wording::quote;
use std::fmt;

/// An absolute URL, ready to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// The scheme, in lower case.
    pub(crate) scheme: String,
    /// Host and port as written, brackets included.
    pub(crate) authority: String,
    /// Escaped; may be empty.
    pub(crate) path: String,
    /// With its question mark, or empty. As written.
    pub(crate) query: String,
    /// With its number sign, or empty. Shown, never sent.
    fragment: String,
    /// Instead of authority and path, as in `mailto:someone`.
    opaque: Option<String>,
}

/// What a text says, before it is resolved against a base.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reference {
    scheme: String,
    opaque: Option<String>,
    authority: String,
    /// The path, escaped.
    path: String,
    query: String,
    fragment: String,
}

impl Url {
    /// Of an HTTP probe. A path that is no path is used literally; a host that is no host is an error, in
    /// Go's words.
    pub(crate) fn of_probe(scheme: &str, host: &str, port: u16, path: &str) -> Result<Self, String> {
        let reference = if path.starts_with('/') && !path.starts_with("//") && path.bytes().all(is_plain) {
            // Nearly every probe there is.
            Reference {
                path: path.to_owned(),
                ..Reference::default()
            }
        } else {
            Reference::parse(path).unwrap_or_else(|_| Reference {
                path: escape(path, Part::Path),
                ..Reference::default()
            })
        };
        let bracketed = host.contains(':');
        let shown = escape(host, if bracketed { Part::Zone } else { Part::Host });
        let authority = if bracketed {
            format!("[{shown}]:{port}")
        } else {
            format!("{shown}:{port}")
        };
        let invalid = invalid_host(host, bracketed, &authority);
        let mut path = reference.path;
        if !path.is_empty() && !path.starts_with('/') {
            path.insert(0, '/');
        }
        let url = Self {
            scheme: scheme.to_owned(),
            authority,
            path,
            query: reference.query,
            fragment: reference.fragment,
            opaque: reference.opaque,
        };
        match invalid {
            Some(why) if url.opaque.is_none() => {
                Err(format!("parse {}: {why}", quote(url.to_string().as_bytes())))
            }
            _ => Ok(url),
        }
    }

    /// Where a `Location` leads. The error is Go's.
    pub(crate) fn join(&self, location: &str) -> Result<Self, String> {
        let reference = Reference::parse(location).map_err(|why| {
            let location = quote(location.as_bytes());
            format!("failed to parse Location header {location}: parse {location}: {why}")
        })?;
        let absolute = !reference.scheme.is_empty();
        let scheme = if absolute {
            reference.scheme
        } else {
            self.scheme.clone()
        };
        let (authority, path, query) = if absolute || !reference.authority.is_empty() {
            (reference.authority, resolve("", &reference.path), reference.query)
        } else {
            let unchanged = reference.path.is_empty() && reference.query.is_empty();
            let query = if unchanged {
                self.query.clone()
            } else {
                reference.query
            };
            (
                self.authority.clone(),
                resolve(&self.path, &reference.path),
                query,
            )
        };
        Ok(Self {
            scheme,
            authority,
            path,
            query,
            fragment: reference.fragment,
            opaque: reference.opaque,
        })
    }

    /// Whether a `Location` names its own scheme.
    pub(crate) fn is_absolute(location: &str) -> bool {
        matches!(scheme(location), Ok((scheme, _)) if !scheme.is_empty())
    }

    /// Host without port and brackets. This is what decides whether a redirect is followed.
    pub(crate) fn host(&self) -> String {
        if self.opaque.is_some() {
            return String::new();
        }
        let (host, _) = split_port(&self.authority);
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        unescape(host).unwrap_or_else(|_| host.to_owned())
    }

    /// Port, 80 or 443 where none is given. The error is Go's.
    pub(crate) fn port(&self) -> Result<u16, String> {
        match split_port(&self.authority).1 {
            "" if self.scheme == "https" => Ok(443),
            "" => Ok(80),
            port => port
                .parse()
                .map_err(|_| format!("dial tcp: address {port}: invalid port")),
        }
    }

    /// Whether there is nobody to ask.
    pub(crate) fn lacks_host(&self) -> bool {
        self.opaque.is_some() || self.authority.is_empty()
    }

    /// What follows `GET`. Bytes of the query that would end the request line are escaped, which Go leaves
    /// out.
    pub(crate) fn target(&self) -> String {
        let mut target = String::with_capacity(self.path.len() + self.query.len() + 1);
        if !self.path.starts_with('/') {
            target.push('/');
        }
        target.push_str(&self.path);
        for char in self.query.chars() {
            if char.is_ascii_graphic() && !matches!(char, '<' | '>' | '"' | '`' | '\\' | '^' | '#') {
                target.push(char);
            } else {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    push_percent(&mut target, byte);
                }
            }
        }
        target
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        match &self.opaque {
            Some(opaque) => f.write_str(opaque)?,
            None => write!(f, "//{}{}", self.authority, self.path)?,
        }
        write!(f, "{}{}", self.query, self.fragment)
    }
}

impl Reference {
    fn parse(text: &str) -> Result<Self, String> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        if rest.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let mut reference = Self::default();
        if !fragment.is_empty() {
            reference.fragment = format!("#{}", canonical(fragment, Part::Fragment)?);
        }
        if rest == "*" {
            "*".clone_into(&mut reference.path);
            return Ok(reference);
        }
        let (scheme, rest) = scheme(rest)?;
        reference.scheme = scheme.to_ascii_lowercase();
        let rest = match rest.find('?') {
            Some(at) => {
                rest[at..].clone_into(&mut reference.query);
                &rest[..at]
            }
            None => rest,
        };
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                reference.opaque = Some(rest.to_owned());
                return Ok(reference);
            }
            if rest
                .split('/')
                .next()
                .is_some_and(|segment| segment.contains(':'))
            {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let mut path = rest;
        let authority = rest
            .strip_prefix("//")
            .filter(|_| !scheme.is_empty() || !rest.starts_with("///"));
        if let Some(after) = authority {
            let end = after.find('/').unwrap_or(after.len());
            path = &after[end..];
            // Who asks is nothing that a probe sends.
            let authority = after[..end].rsplit('@').next().unwrap_or_default();
            check_authority(authority)?;
            authority.clone_into(&mut reference.authority);
        }
        reference.path = canonical(path, Part::Path)?;
        Ok(reference)
    }
}

/// Scheme (may be empty) and what follows it.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// Host and port of an authority. A host in brackets keeps them.
fn split_port(authority: &str) -> (&str, &str) {
    match authority.rfind(':') {
        Some(at) if !authority[at..].contains(']') => (&authority[..at], &authority[at + 1..]),
        _ => (authority, ""),
    }
}

fn check_authority(authority: &str) -> Result<(), String> {
    let after = if authority.starts_with('[') {
        let Some(end) = authority.rfind(']') else {
            return Err("missing ']' in host".to_owned());
        };
        let inside = &authority[1..end];
        check_bracketed(inside.split("%25").next().unwrap_or_default())?;
        &authority[end + 1..]
    } else {
        let at = authority.find(':').unwrap_or(authority.len());
        check_host(&authority[..at])?;
        &authority[at..]
    };
    let digits = after.strip_prefix(':');
    if after.is_empty() || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        Ok(())
    } else {
        Err(format!("invalid port {} after host", quote(after.as_bytes())))
    }
}

fn check_bracketed(inside: &str) -> Result<(), String> {
    match inside.parse::<std::net::Ipv6Addr>() {
        Ok(_) => Ok(()),
        Err(_) => Err("invalid IP-literal".to_owned()),
    }
}

/// Percent signs may stand for themselves (`%25`) and for bytes beyond ASCII.
fn check_host(host: &str) -> Result<(), String> {
    let bytes = host.as_bytes();
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        if *byte == b'%' {
            let value = percent(bytes, index)?;
            if value < 0x80 && value != b'%' {
                return Err(bad_escape(bytes, index));
            }
            index += 3;
        } else if byte.is_ascii() && must_escape(*byte, Part::Host) {
            return Err(format!("invalid character {} in host name", quote(&[*byte])));
        } else {
            index += 1;
        }
    }
    Ok(())
}

/// What Go says of a host from a manifest, after it has written it into a URL and read it back.
fn invalid_host(host: &str, bracketed: bool, authority: &str) -> Option<String> {
    if bracketed {
        check_bracketed(host.split('%').next().unwrap_or_default()).err()
    } else if host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
    {
        None
    } else {
        check_authority(authority).err()
    }
}

/// Go's `resolvePath`: a reference against a base, without dot segments.
fn resolve(base: &str, reference: &str) -> String {
    let full = if reference.is_empty() {
        base.to_owned()
    } else if reference.starts_with('/') {
        reference.to_owned()
    } else {
        let end = base.rfind('/').map_or(0, |at| at + 1);
        format!("{}{reference}", &base[..end])
    };
    if full.is_empty() {
        return full;
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in full.strip_prefix('/').unwrap_or(&full).split('/') {
        match segment {
            "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let mut path = format!("/{}", kept.join("/"));
    if matches!(full.rsplit('/').next(), Some("." | "..")) && !path.ends_with('/') {
        path.push('/');
    }
    path
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Fragment,
    Host,
    Zone,
}

/// Stays as it is in paths, however Go looks at it.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

fn must_escape(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    match part {
        Part::Path => !b"$&+,/:;=@".contains(&byte),
        Part::Fragment => !b"$&+,/:;=?@!()*".contains(&byte),
        Part::Host | Part::Zone => !b"!$&'()*+,;=:[]<>\"".contains(&byte),
    }
}

/// As written where that is a valid encoding, else decoded and encoded again.
fn canonical(text: &str, part: Part) -> Result<String, String> {
    let decoded = unescape(text)?;
    let valid = text
        .bytes()
        .all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || !must_escape(byte, part));
    if valid {
        return Ok(text.to_owned());
    }
    Ok(escape(&decoded, part))
}

fn escape(text: &str, part: Part) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if must_escape(byte, part) {
            push_percent(&mut escaped, byte);
        } else {
            escaped.push(char::from(byte));
        }
    }
    escaped
}

fn push_percent(text: &mut String, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(HEX[usize::from(byte >> 4)]));
    text.push(char::from(HEX[usize::from(byte & 15)]));
}

/// Bytes that are no UTF-8 when decoded are replaced; only texts that mix them with characters to escape show
/// it.
fn unescape(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        if *byte == b'%' {
            decoded.push(percent(bytes, index)?);
            index += 3;
        } else {
            decoded.push(*byte);
            index += 1;
        }
    }
    Ok(String::from_utf8_lossy(&decoded).into_owned())
}

/// The byte that the escape at `index` means.
fn percent(bytes: &[u8], index: usize) -> Result<u8, String> {
    let digit = |offset: usize| {
        let byte = bytes.get(index + offset)?;
        char::from(*byte).to_digit(16)
    };
    match (digit(1), digit(2)) {
        (Some(high), Some(low)) => Ok((high * 16 + low) as u8),
        _ => Err(bad_escape(bytes, index)),
    }
}

fn bad_escape(bytes: &[u8], index: usize) -> String {
    let end = bytes.len().min(index + 3);
    format!("invalid URL escape {}", quote(&bytes[index..end]))
}

#[cfg(test)]
mod tests;
