//! What Go's library says when something goes wrong: people know these texts from their events, and search
//! for them.

use super::dial::DialError;
use rustls::{AlertDescription, Error as TlsError};
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Text in double quotes with escapes, as Go's `%q` has it. Bytes, because answers need not be UTF-8.
pub fn quote(text: &[u8]) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for chunk in text.utf8_chunks() {
        for char in chunk.valid().chars() {
            push_escaped(&mut quoted, char);
        }
        for byte in chunk.invalid() {
            push(&mut quoted, format_args!("\\x{byte:02x}"));
        }
    }
    quoted.push('"');
    quoted
}

/// Cuts a text at `limit` bytes or a little before, between two characters.
pub fn cut(text: &mut String, limit: usize) {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

fn push_escaped(quoted: &mut String, char: char) {
    match char {
        '"' => quoted.push_str("\\\""),
        '\\' => quoted.push_str("\\\\"),
        '\u{7}' => quoted.push_str("\\a"),
        '\u{8}' => quoted.push_str("\\b"),
        '\u{c}' => quoted.push_str("\\f"),
        '\n' => quoted.push_str("\\n"),
        '\r' => quoted.push_str("\\r"),
        '\t' => quoted.push_str("\\t"),
        '\u{b}' => quoted.push_str("\\v"),
        char if u32::from(char) < 0x20 || char == '\u{7f}' => {
            push(quoted, format_args!("\\x{:02x}", u32::from(char)));
        }
        char if char.is_control() => push(quoted, format_args!("\\u{:04x}", u32::from(char))),
        char => quoted.push(char),
    }
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(arguments);
}

/// What the system says of an error, in Go's spelling: `connection refused`.
pub fn system(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none() {
        return "i/o timeout".to_owned();
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// `dial tcp 10.0.0.1:80: connect: connection refused`.
pub fn dial(address: SocketAddr, source: Option<IpAddr>, error: &DialError) -> String {
    let ends = match source {
        Some(source) => format!("{}->{address}", SocketAddr::new(source, 0)),
        None => address.to_string(),
    };
    match error {
        DialError::Local { call, error } => format!("dial tcp {ends}: {call}: {}", system(error)),
        DialError::Connect(error) if error.raw_os_error().is_none() => {
            format!("dial tcp {ends}: {}", system(error))
        }
        DialError::Connect(error) => format!("dial tcp {ends}: connect: {}", system(error)),
    }
}

/// `dial tcp: lookup example.local: no such host`.
pub(crate) fn lookup(name: &str, error: &io::Error) -> String {
    let text = error.to_string();
    // The resolver has no error kinds; this one is worth telling from a name that does not exist.
    let temporary = "Temporary failure in name resolution";
    let why = if text.contains(temporary) {
        temporary
    } else {
        "no such host"
    };
    format!("dial tcp: lookup {name}: {why}")
}

/// What broke a connection that was open: the system, the end of the data, or TLS.
pub(crate) fn broken(ends: Ends, error: &io::Error) -> String {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        return tls(error, &[]);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        io::ErrorKind::BrokenPipe => ends.failed("write", error),
        _ if error.raw_os_error().is_some() => ends.failed("read", error),
        _ => error.to_string(),
    }
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The address of our end.
    pub local: SocketAddr,
    /// The address of the other end.
    pub peer: SocketAddr,
}

impl Ends {
    /// `read tcp 10.0.0.1:4711->10.0.0.2:80: read: connection reset by peer`.
    fn failed(self, call: &str, error: &io::Error) -> String {
        format!(
            "{call} tcp {}->{}: {call}: {}",
            self.local,
            self.peer,
            system(error)
        )
    }
}

/// What TLS did not like. `seen` is the beginning of what the other side sent.
pub(crate) fn tls(error: &TlsError, seen: &[u8]) -> String {
    match error {
        TlsError::InvalidMessage(_) if seen.starts_with(b"HTTP/") => {
            "http: server gave HTTP response to HTTPS client".to_owned()
        }
        TlsError::InvalidMessage(_) => "tls: first record does not look like a TLS handshake".to_owned(),
        TlsError::AlertReceived(alert) => format!("remote error: tls: {}", alert_text(*alert)),
        TlsError::InvalidCertificate(_) => format!("tls: failed to verify certificate: {error}"),
        error => format!("tls: {error}"),
    }
}

fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::HandshakeFailure => "handshake failure".to_owned(),
        AlertDescription::ProtocolVersion => "protocol version not supported".to_owned(),
        AlertDescription::UnrecognisedName => "unrecognized name".to_owned(),
        AlertDescription::BadCertificate => "bad certificate".to_owned(),
        AlertDescription::CertificateRequired => "certificate required".to_owned(),
        AlertDescription::InternalError => "internal error".to_owned(),
        AlertDescription::AccessDenied => "access denied".to_owned(),
        AlertDescription::DecodeError => "error decoding message".to_owned(),
        AlertDescription::NoApplicationProtocol => "no application protocol".to_owned(),
        alert => format!("alert({})", u8::from(alert)),
    }
}

#[cfg(test)]
mod tests;
