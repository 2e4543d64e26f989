//! One change as watchers see it.

use bytes::Bytes;
use evenkeel_kube_rules::protobuf;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// A change of an object.
#[derive(Debug)]
pub(crate) struct Event {
    /// The resourceVersion of the change, which is its place in the sequence of all changes.
    pub(crate) resource_version: u64,
    /// Key of the object.
    pub(crate) key: String,
    pub(crate) change: Change,
    /// The object after it; for a deletion its last state.
    pub(crate) object: Arc<Value>,
    /// The object before it; `None` for a creation.
    pub(crate) old: Option<Arc<Value>>,
    encoded: OnceLock<Bytes>,
    message: OnceLock<Bytes>,
}

impl Event {
    pub(super) fn new(
        resource_version: u64,
        key: &str,
        change: Change,
        object: Arc<Value>,
        old: Option<Arc<Value>>,
    ) -> Self {
        Self {
            resource_version,
            key: key.to_owned(),
            change,
            object,
            old,
            encoded: OnceLock::new(),
            message: OnceLock::new(),
        }
    }

    /// `object` as JSON, made once for however many watchers.
    pub(crate) fn encoded(&self) -> Bytes {
        self.encoded
            .get_or_init(|| Bytes::from(self.object.to_string()))
            .clone()
    }

    /// `object` in protobuf, of a kind that has messages.
    pub(crate) fn message(&self) -> Bytes {
        self.message
            .get_or_init(|| protobuf::encode(&self.object).unwrap_or_default().into())
            .clone()
    }
}
