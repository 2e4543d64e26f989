//! Frames of a watch: one JSON object a line, or one message in protobuf behind its length.

use crate::kinds::Resource;
use crate::request::form::{Encoding, Shape};
use crate::store::Event;
use crate::verbs::context::Context;
use crate::verbs::present::{Include, meta_version, partial, table};
use crate::verbs::rules::Rules;
use bytes::Bytes;
use evenkeel_kube_rules::protobuf;
use evenkeel_kube_rules::status::ApiResult;
use evenkeel_kube_rules::strict;
use serde_json::{Value, json};
use std::sync::Arc;

/// A frame of an object that is JSON already.
fn encode(kind: &str, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + kind.len() + 24);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(kind.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(object);
    frame.extend_from_slice(b"}\n");
    Bytes::from(frame)
}

/// Shapes the objects of one watch.
pub(super) struct Framer {
    encoding: Encoding,
    resource: Arc<Resource>,
    shape: Shape,
    include: Include,
    /// A table watch sends its columns once.
    columns_sent: bool,
}

impl Framer {
    pub(super) fn new(context: &Context) -> ApiResult<Self> {
        Ok(Self {
            encoding: context.form.encoding,
            resource: context.resource.clone(),
            shape: context.form.shape,
            include: Include::parse(&context.query)?,
            columns_sent: false,
        })
    }

    /// Whether objects are sent as they are.
    pub(super) fn is_plain(&self) -> bool {
        self.shape == Shape::Plain
    }

    /// A frame of the object of an event, which is encoded once for however many watches.
    pub(super) fn stored(&self, kind: &str, event: &Event) -> Bytes {
        match self.encoding {
            Encoding::Protobuf => protobuf::watch_event(kind, &event.message()).into(),
            Encoding::Json | Encoding::Yaml => encode(kind, &event.encoded()),
        }
    }

    /// A frame of a value as it is.
    pub(super) fn value(&self, kind: &str, value: &Value) -> Bytes {
        if self.encoding == Encoding::Protobuf {
            // What has no messages is not negotiated.
            let object = protobuf::encode(value).unwrap_or_default();
            return protobuf::watch_event(kind, &object).into();
        }
        encode(kind, value.to_string().as_bytes())
    }

    /// A frame of an object in the served version.
    pub(super) fn object(&mut self, kind: &str, object: &Arc<Value>) -> Bytes {
        match self.shape {
            Shape::Plain => self.value(kind, object),
            Shape::Partial { beta } => self.value(kind, &partial(object, beta)),
            Shape::Table { beta } => {
                let version = object["metadata"]["resourceVersion"].clone();
                let metadata = json!({"resourceVersion": version});
                let table = self.table(std::slice::from_ref(object), metadata, beta);
                self.value(kind, &table)
            }
        }
    }

    fn table(&mut self, objects: &[Arc<Value>], metadata: Value, beta: bool) -> Value {
        // A kind whose rules do not compile is not watched: the request failed before.
        let Ok(rules) = Rules::of(&self.resource) else {
            return Value::Null;
        };
        let mut table = table(&rules, objects, metadata, beta, self.include);
        if std::mem::replace(&mut self.columns_sent, true) {
            table["columnDefinitions"] = Value::Null;
        }
        table
    }

    /// A bookmark; `initial` marks the end of the state that the watch began with.
    pub(super) fn bookmark(&mut self, resource_version: u64, initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": resource_version.to_string()});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = match self.shape {
            Shape::Plain => (self.resource.kind.clone(), self.resource.api_version()),
            Shape::Partial { beta } => ("PartialObjectMetadata".to_owned(), meta_version(beta).to_owned()),
            Shape::Table { beta } => {
                let object = json!({
                    "kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata,
                });
                let mut table = self.table(
                    &[],
                    json!({"resourceVersion": resource_version.to_string()}),
                    beta,
                );
                table["rows"] = json!([{"cells": [], "object": partial(&object, beta)}]);
                return self.value("BOOKMARK", &table);
            }
        };
        // Upstream sends a new structure with these members set.
        let whole = matches!(self.shape, Shape::Plain) && self.resource.custom.is_none();
        let nothing = whole.then(|| strict::nothing(&self.resource.gvk())).flatten();
        let mut object = nothing.unwrap_or_else(|| json!({}));
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(api_version);
        for (name, value) in metadata.as_object().into_iter().flatten() {
            match (&mut object["metadata"][name], value) {
                (Value::Object(old), Value::Object(new)) => old.extend(new.clone()),
                (old, new) => *old = new.clone(),
            }
        }
        self.value("BOOKMARK", &object)
    }
}
