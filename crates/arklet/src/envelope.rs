//! What encloses every answer: `{"baseIdentity","code","data","message","errorStackTrace"}`.
//!
//! Over HTTP the status is 200 whatever happened; `code` alone tells. Fields that Java holds as null are left
//! out.

use crate::read;
use serde_json::Value;
use std::fmt;

/// Why bytes are not what they should be.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not JSON.
    #[error("not JSON")]
    Json(#[source] serde_json::Error),
    /// JSON, but something else was expected.
    #[error("{what} is not {wanted}")]
    Shape {
        /// The part that has another type.
        what: &'static str,
        /// The type that was expected.
        wanted: &'static str,
    },
    /// Something without which the rest means nothing.
    #[error("{0} is missing")]
    Missing(&'static str),
}

/// How an answer says that it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// The command was carried out (`SUCCESS`).
    Success,
    /// The command was refused or has failed (`FAILED`).
    Failed,
    /// `CMD_NOT_FOUND`: arklet knows no such command.
    CommandNotFound,
    /// `CMD_PROCESS_INTERNAL_ERROR`: the command threw.
    InternalError,
    /// A word that is not known here.
    Other(String),
}

impl Code {
    /// Reads it in any case.
    pub fn parse(text: &str) -> Self {
        match text.to_ascii_uppercase().as_str() {
            "SUCCESS" => Self::Success,
            "FAILED" => Self::Failed,
            "CMD_NOT_FOUND" => Self::CommandNotFound,
            "CMD_PROCESS_INTERNAL_ERROR" => Self::InternalError,
            _ => Self::Other(text.to_owned()),
        }
    }

    /// As on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failed => "FAILED",
            Self::CommandNotFound => "CMD_NOT_FOUND",
            Self::InternalError => "CMD_PROCESS_INTERNAL_ERROR",
            Self::Other(text) => text,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An answer of arklet.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// Who answers; absent over MQTT and after an internal error.
    pub base_identity: Option<String>,
    /// How it went.
    pub code: Code,
    /// Depends on the command.
    pub data: Option<Value>,
    /// Why it failed.
    pub message: Option<String>,
    /// What was thrown, with all its causes.
    pub stack_trace: Option<String>,
}

impl Envelope {
    /// Reads the body of an answer over HTTP.
    ///
    /// After an unknown command arklet writes a second answer behind the first; what follows an object and
    /// begins like one is ignored.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
        let value = match values.next() {
            Some(value) => value.map_err(DecodeError::Json)?,
            None => return Err(DecodeError::Missing("the body")),
        };
        let rest = body.get(values.byte_offset()..).unwrap_or_default();
        if !rest.iter().all(u8::is_ascii_whitespace) && !rest.starts_with(b"HTTP/1.") {
            return Err(DecodeError::Shape {
                what: "the body",
                wanted: "one JSON object",
            });
        }
        Self::read(value)
    }

    /// Reads an answer inside another message.
    pub fn read(value: Value) -> Result<Self, DecodeError> {
        if !value.is_object() {
            return Err(DecodeError::Shape {
                what: "the answer",
                wanted: "an object",
            });
        }
        let code = read::text(&value, "code").ok_or(DecodeError::Missing("code"))?;
        let mut value = value;
        Ok(Self {
            base_identity: read::text(&value, "baseIdentity"),
            code: Code::parse(&code),
            message: read::text(&value, "message"),
            stack_trace: read::text(&value, "errorStackTrace"),
            data: value
                .get_mut("data")
                .map(Value::take)
                .filter(|data| !data.is_null()),
        })
    }

    /// Whether all went well.
    pub fn is_success(&self) -> bool {
        self.code == Code::Success
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_in_any_case_and_unknown_ones_are_kept() {
        let body = |code: &str| format!(r#"{{"code":"{code}"}}"#);
        let read = |code: &str| Envelope::decode(body(code).as_bytes()).unwrap().code;
        assert_eq!(read("success"), Code::Success);
        assert_eq!(read("CMD_NOT_FOUND"), Code::CommandNotFound);
        assert_eq!(read("Teapot"), Code::Other("Teapot".to_owned()));
        assert_eq!(read("Teapot").to_string(), "Teapot");
    }

    #[test]
    fn a_second_answer_behind_the_first_is_ignored_and_anything_else_is_not() {
        let first = br#"{"code":"CMD_NOT_FOUND","message":"please follow the doc"}"#;
        let answer = [&first[..], b"HTTP/1.1 200 OK\r\n\r\n{}"].concat();
        assert_eq!(Envelope::decode(&answer).unwrap().code, Code::CommandNotFound);
        assert!(Envelope::decode(&[&first[..], b"\r\n"].concat()).is_ok());
        assert!(Envelope::decode(&[&first[..], b"{}"].concat()).is_err());
    }

    #[test]
    fn what_is_no_answer_is_refused_with_its_reason() {
        let table: [(&[u8], &str); 6] = [
            (b"", "the body is missing"),
            (b"  ", "the body is missing"),
            (b"{\"code\":", "not JSON"),
            (b"[]", "the answer is not an object"),
            (b"{}", "code is missing"),
            (b"{\"code\":null}", "code is missing"),
        ];
        for (body, wanted) in table {
            assert_eq!(Envelope::decode(body).unwrap_err().to_string(), wanted);
        }
    }
}
