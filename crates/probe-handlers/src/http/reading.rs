//! What Go says of an answer that it cannot read.

use super::exchange::{Fault, HEAD};
use crate::wording::{Ends, broken, quote};
use http::{HeaderName, HeaderValue, Response, Version, header};
use std::error::Error as _;
use std::io;

const BROKEN: &str = "net/http: HTTP/1.x transport connection broken";
/// What hyper says of a head that is too large. It has a method to ask for that in its servers alone, and a
/// prober shall not need one.
const TOO_LARGE: &str = "message head is too large";

/// Why there is no answer.
pub(crate) fn no_answer(fault: &Fault, ends: Ends) -> String {
    let Fault { error, head } = fault;
    if let Some(error) = io_error(error) {
        return broken(ends, error);
    }
    if error.to_string() == TOO_LARGE {
        return format!("{BROKEN}: net/http: server response headers exceeded {HEAD} bytes; aborted");
    }
    if chain(error).contains("content-length") {
        // What is left to read is the body.
        return format!("{BROKEN}: {}", unusable(error));
    }
    if head.is_empty() {
        return if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            "EOF".to_owned()
        } else {
            format!("{BROKEN}: {}", unusable(error))
        };
    }
    let why = complaint(head).unwrap_or_else(|| {
        if error.is_incomplete_message() {
            "unexpected EOF".to_owned()
        } else {
            unusable(error)
        }
    });
    format!("{BROKEN}: {why}")
}

/// Why a body cannot be told from its headers, if so. Go knows one transfer coding, and wants it alone.
pub(crate) fn unsupported<B>(answer: &Response<B>) -> Option<String> {
    if answer.version() != Version::HTTP_11 {
        return None;
    }
    let codings: Vec<&[u8]> = answer
        .headers()
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    match codings[..] {
        [] => None,
        [coding] if coding.eq_ignore_ascii_case(b"chunked") => None,
        [coding] => Some(format!(
            "{BROKEN}: unsupported transfer encoding: {}",
            quote(coding)
        )),
        _ => {
            let quoted: Vec<String> = codings.iter().map(|coding| quote(coding)).collect();
            Some(format!(
                "{BROKEN}: too many transfer encodings: [{}]",
                quoted.join(" ")
            ))
        }
    }
}

/// What is wrong with a head that could be read; its bytes are gone by then, and the value with them.
fn unusable(error: &hyper::Error) -> String {
    let text = chain(error);
    if text.contains("content-length") {
        "bad Content-Length".to_owned()
    } else if text.contains("transfer-encoding") {
        "unsupported transfer encoding".to_owned()
    } else {
        text
    }
}

/// What is wrong with a head, as Go's `ReadResponse` finds it.
fn complaint(head: &[u8]) -> Option<String> {
    // A line after the first that has no end yet is not judged.
    let complete = match head.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => &head[..=end],
        None => head,
    };
    let mut lines = complete
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next()?;
    let Some(space) = first.iter().position(|byte| *byte == b' ') else {
        return Some(format!("malformed HTTP response {}", quote(first)));
    };
    let (version, status) = (&first[..space], first[space..].trim_ascii_start());
    let code = status.split(|byte| *byte == b' ').next().unwrap_or_default();
    if code.len() != 3 || !code.iter().all(u8::is_ascii_digit) {
        return Some(format!("malformed HTTP status code {}", quote(code)));
    }
    let numbered = version.len() == 8
        && version.starts_with(b"HTTP/")
        && version[5].is_ascii_digit()
        && version[6] == b'.'
        && version[7].is_ascii_digit();
    if !numbered {
        return Some(format!("malformed HTTP version {}", quote(version)));
    }
    for (number, line) in lines.take_while(|line| !line.is_empty()).enumerate() {
        let folded = line.starts_with(b" ") || line.starts_with(b"\t");
        if folded && number == 0 {
            return Some(format!("malformed MIME header initial line: {}", quote(line)));
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            if folded {
                continue;
            }
            return Some(format!("malformed MIME header: missing colon: {}", quote(line)));
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let bad =
            HeaderName::from_bytes(name.trim_ascii_end()).is_err() || HeaderValue::from_bytes(value).is_err();
        if bad && !folded {
            return Some(format!("malformed MIME header line: {}", quote(line)));
        }
    }
    None
}

/// Why a body ended early.
pub(crate) fn no_body(error: &hyper::Error, ends: Ends) -> String {
    let Some(error) = io_error(error) else {
        return if error.is_incomplete_message() {
            "unexpected EOF".to_owned()
        } else {
            chain(error)
        };
    };
    let text = error.to_string();
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
        _ if error.raw_os_error().is_some() => broken(ends, error),
        _ if text.contains("overflow") => "http chunk length too large".to_owned(),
        _ if text.contains("chunk size") || text.contains("Size") => {
            "invalid byte in chunk length".to_owned()
        }
        _ if text.contains("chunk body") => "malformed chunked encoding".to_owned(),
        _ => broken(ends, error),
    }
}

fn io_error(error: &hyper::Error) -> Option<&io::Error> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error);
        }
        source = error.source();
    }
    None
}

fn chain(error: &hyper::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
