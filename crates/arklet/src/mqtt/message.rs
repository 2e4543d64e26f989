//! What bases publish: `{"data":..,"publishTimestamp":ms}`.

use super::topic::Kind;
use crate::biz::ModuleList;
use crate::command::ModuleId;
use crate::envelope::{DecodeError, Envelope};
use crate::heartbeat::{Heartbeat, Metadata};
use crate::read;
use serde_json::Value;

/// A message that could be read.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) published_ms: Option<i64>,
    pub(super) body: Body,
}

/// What it says.
#[derive(Debug)]
pub(super) enum Body {
    Heart(Heartbeat),
    QueryBaseline(Metadata),
    Health(Envelope),
    Modules(ModuleList),
    /// The operation is known even if its answer cannot be read: whoever waits for it is told.
    Operation {
        command: String,
        id: ModuleId,
        answer: Result<Envelope, DecodeError>,
    },
    Batch(Result<Envelope, DecodeError>),
}

impl Message {
    pub(super) fn decode(kind: Kind, payload: &[u8]) -> Result<Self, DecodeError> {
        let mut message: Value = serde_json::from_slice(payload).map_err(DecodeError::Json)?;
        let published_ms = read::whole(&message, "publishTimestamp");
        let mut data = message
            .get_mut("data")
            .map(Value::take)
            .ok_or(DecodeError::Missing("data"))?;
        let body = match kind {
            Kind::Heart => Body::Heart(Heartbeat::read(&data)?),
            Kind::QueryBaseline => Body::QueryBaseline(Metadata::read(&data)?),
            Kind::Health => Body::Health(Envelope::read(data)?),
            Kind::SimpleBiz | Kind::Biz => Body::Modules(modules(data)?),
            Kind::BizOperation => Body::Operation {
                command: read::non_blank(&data, "command").ok_or(DecodeError::Missing("command"))?,
                id: ModuleId {
                    name: read::non_blank(&data, "bizName").ok_or(DecodeError::Missing("bizName"))?,
                    version: read::non_blank(&data, "bizVersion")
                        .ok_or(DecodeError::Missing("bizVersion"))?,
                },
                answer: response(&mut data),
            },
            Kind::BatchInstallBizResponse => Body::Batch(response(&mut data)),
        };
        Ok(Self { published_ms, body })
    }

    /// The identity that the message itself claims, if its kind has one.
    pub(super) fn identity(&self) -> Option<&str> {
        match &self.body {
            Body::Heart(heartbeat) => Some(&heartbeat.metadata.identity),
            Body::QueryBaseline(metadata) => Some(&metadata.identity),
            Body::Health(_) | Body::Modules(_) | Body::Operation { .. } | Body::Batch(_) => None,
        }
    }
}

/// The list itself, or the answer as over HTTP: bases write one or the other under either topic. An answer
/// that is no list is an error: it must not look like an empty base.
fn modules(data: Value) -> Result<ModuleList, DecodeError> {
    if data.is_array() {
        return ModuleList::read(&data);
    }
    let envelope = Envelope::read(data)?;
    ModuleList::read(&envelope.data.unwrap_or_default())
}

fn response(data: &mut Value) -> Result<Envelope, DecodeError> {
    let response = data.get_mut("response").map(Value::take);
    Envelope::read(response.ok_or(DecodeError::Missing("response"))?)
}

#[cfg(test)]
mod tests;
