//! Records of asynchronous operations: the answer to `installBiz` with `async`, and to `queryBizOps`.
//!
//! A record does not say what was installed. Records live as long as the base's process.

use crate::cause;
use crate::envelope::{DecodeError, Envelope};
use crate::read;
use serde_json::Value;

/// arklet's word for a record that it does not have.
const NOT_FOUND: &str = "Not found the corresponding ops record.";

/// How far an operation is, in arklet's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Accepted and not begun, or refused because another operation is under way (`INITIALIZED`).
    Initialized,
    /// Under way (`EXECUTING`).
    Executing,
    /// Ended as wanted (`SUCCEEDED`).
    Succeeded,
    /// Ended otherwise (`FAILED`).
    Failed,
    /// A word that is not known here.
    Other(String),
}

impl Status {
    fn parse(text: &str) -> Self {
        match text.to_ascii_uppercase().as_str() {
            "INITIALIZED" => Self::Initialized,
            "EXECUTING" => Self::Executing,
            "SUCCEEDED" => Self::Succeeded,
            "FAILED" => Self::Failed,
            _ => Self::Other(text.to_owned()),
        }
    }
}

/// An asynchronous operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// As given by whoever asked.
    pub request_id: Option<String>,
    /// arklet's word; [`Record::progress`] says what it means.
    pub status: Status,
    /// Why it failed.
    pub message: Option<String>,
    /// Begin, milliseconds since the epoch by the base's clock.
    pub started_ms: Option<i64>,
    /// End by the same clock; `None` while it runs.
    pub ended_ms: Option<i64>,
    /// What was thrown, for people.
    pub cause: Option<String>,
}

/// What a record means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not over yet.
    Running,
    /// The operation was carried out.
    Succeeded,
    /// The operation failed, or was never begun.
    Failed,
}

impl Record {
    /// Reads the `data` of an answer.
    pub fn read(data: &Value) -> Result<Self, DecodeError> {
        let status = read::non_blank(data, "status").ok_or(DecodeError::Missing("status"))?;
        let time = |keys: [&str; 2]| {
            keys.into_iter()
                .filter_map(|key| read::whole(data, key))
                .find(|ms| *ms > 0)
        };
        Ok(Self {
            request_id: read::non_blank(data, "requestId"),
            status: Status::parse(&status),
            message: read::non_blank(data, "message"),
            started_ms: time(["startTimestamp", "startTime"]),
            ended_ms: time(["endTimestamp", "endTime"]),
            cause: data.get("throwable").and_then(cause::of_throwable),
        })
    }

    /// What it means. arklet leaves an operation that met another one at `INITIALIZED` for ever; its end time
    /// shows that.
    pub fn progress(&self) -> Progress {
        match self.status {
            Status::Succeeded => Progress::Succeeded,
            Status::Failed => Progress::Failed,
            Status::Initialized | Status::Executing | Status::Other(_) => match self.ended_ms {
                Some(_) => Progress::Failed,
                None => Progress::Running,
            },
        }
    }
}

/// What `queryBizOps` knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// The base has a record of the operation.
    Found(Record),
    /// The base has none: the operation was never requested, or of a process that has ended.
    Lost,
}

/// Reads the answer to `queryBizOps`; `Ok(None)` if arklet refused the question.
pub fn lookup(envelope: &Envelope) -> Result<Option<Lookup>, DecodeError> {
    if envelope.is_success() {
        let data = envelope.data.as_ref().ok_or(DecodeError::Missing("data"))?;
        return Record::read(data).map(|record| Some(Lookup::Found(record)));
    }
    let message = envelope.message.as_deref().unwrap_or_default();
    let lost = message
        .trim_end_matches('.')
        .eq_ignore_ascii_case(NOT_FOUND.trim_end_matches('.'));
    Ok(lost.then_some(Lookup::Lost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_operation_that_ended_before_it_began_has_failed() {
        let table = [
            (
                json!({"status": "INITIALIZED", "endTimestamp": 0}),
                Progress::Running,
            ),
            (
                json!({"status": "INITIALIZED", "endTimestamp": 5}),
                Progress::Failed,
            ),
            (json!({"status": "INITIALIZED", "endTime": 5.0}), Progress::Failed),
            (json!({"status": "executing"}), Progress::Running),
            (
                json!({"status": "SUCCEEDED", "endTimestamp": 5}),
                Progress::Succeeded,
            ),
            (json!({"status": "FAILED"}), Progress::Failed),
            (json!({"status": "PAUSED"}), Progress::Running),
        ];
        for (data, wanted) in table {
            assert_eq!(Record::read(&data).unwrap().progress(), wanted, "{data}");
        }
        assert!(Record::read(&json!({})).is_err());
    }
}
