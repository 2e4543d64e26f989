//! Answers on their way out.

use crate::kinds::Resource;
use crate::request::form::{Encoding, Form, Shape};
use crate::verbs::context::{Answer, Content, Context, List};
use crate::verbs::present::{Include, meta_version, partial, table};
use axum::body::Body;
use bytes::Bytes;
use evenkeel_kube_rules::protobuf;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;

/// Bodies from this size on are compressed for clients that ask for it; upstream's number.
const GZIP_FROM: usize = 128 * 1024;

/// A list of plain objects, encoded without a copy of them.
struct PlainList<'a> {
    resource: &'a Resource,
    metadata: &'a Value,
    items: &'a [Arc<Value>],
}

impl Serialize for PlainList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("kind", &self.resource.list_kind)?;
        map.serialize_entry("apiVersion", &self.resource.api_version())?;
        map.serialize_entry("metadata", self.metadata)?;
        if self.resource.custom.is_some() {
            let items: Vec<&Value> = self.items.iter().map(|item| &**item).collect();
            map.serialize_entry("items", &items)?;
        } else {
            let items: Vec<Item<'_>> = self.items.iter().map(|item| Item(item)).collect();
            map.serialize_entry("items", &items)?;
        }
        map.end()
    }
}

/// An item of a typed list: without the kind that the list tells already.
struct Item<'a>(&'a Value);

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(object) = self.0.as_object() else {
            return self.0.serialize(serializer);
        };
        let members = object
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion"));
        serializer.collect_map(members)
    }
}

fn list_metadata(list: &List, custom: bool) -> Value {
    let mut metadata = json!({});
    if let Some(version) = list.resource_version {
        metadata["resourceVersion"] = json!(version.to_string());
    }
    match &list.continue_token {
        Some(token) => metadata["continue"] = json!(token),
        // Upstream's untyped lists write it always.
        None if custom => metadata["continue"] = json!(""),
        None => {}
    }
    if let Some(remaining) = list.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    metadata
}

/// Writes an answer in the form that was asked for.
pub(crate) fn answer(context: &Context, answer: Answer, gzip: bool) -> ApiResult<Response<Body>> {
    let form = context.form;
    if form.encoding == Encoding::Protobuf
        && let Some(bytes) = binary(context, &answer.content)
    {
        return Ok(bytes_response(answer.status, bytes, form, gzip));
    }
    let bytes = match answer.content {
        Content::Stream(stream) => {
            let mut response = Response::new(Body::from_stream(stream));
            let media = match form.encoding {
                Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
                Encoding::Json | Encoding::Yaml => "application/json",
            };
            set_type(&mut response, media);
            return Ok(response);
        }
        Content::Value(value) => encode(&value, form)?,
        Content::Object(object) => match form.shape {
            Shape::Plain => encode(&*object, form)?,
            Shape::Partial { beta } => encode(&partial(&object, beta), form)?,
            Shape::Table { beta } => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let include = Include::parse(&context.query)?;
                let table = table(
                    &context.rules()?,
                    std::slice::from_ref(&object),
                    metadata,
                    beta,
                    include,
                );
                encode(&table, form)?
            }
        },
        Content::List(list) => {
            let plain = form.shape == Shape::Plain;
            let metadata = list_metadata(&list, plain && context.resource.custom.is_some());
            match form.shape {
                Shape::Plain => {
                    let list = PlainList {
                        resource: &context.resource,
                        metadata: &metadata,
                        items: &list.items,
                    };
                    encode(&list, form)?
                }
                Shape::Partial { beta } => {
                    let items: Vec<Value> = list.items.iter().map(|item| partial(item, beta)).collect();
                    let list = json!({
                        "kind": "PartialObjectMetadataList", "apiVersion": meta_version(beta), "metadata": metadata,
                        "items": items,
                    });
                    encode(&list, form)?
                }
                Shape::Table { beta } => {
                    let include = Include::parse(&context.query)?;
                    encode(
                        &table(&context.rules()?, &list.items, metadata, beta, include),
                        form,
                    )?
                }
            }
        }
    };
    Ok(bytes_response(answer.status, bytes, form, gzip))
}

/// The content in protobuf, where it has messages.
fn binary(context: &Context, content: &Content) -> Option<Vec<u8>> {
    match (content, context.form.shape) {
        (Content::Value(value), _) => protobuf::encode(value),
        (Content::Object(object), Shape::Partial { beta }) => protobuf::encode(&partial(object, beta)),
        (Content::Object(object), _) => protobuf::encode(object),
        (Content::List(list), shape) => {
            let resource = &context.resource;
            let (kind, version) = match shape {
                Shape::Partial { beta } => ("PartialObjectMetadataList", meta_version(beta).to_owned()),
                _ => (resource.list_kind.as_str(), resource.api_version()),
            };
            let head = json!({"kind": kind, "apiVersion": version, "metadata": list_metadata(list, false)});
            protobuf::encode_list(&head, &list.items)
        }
        (Content::Stream(_), _) => None,
    }
}

fn encode<T: Serialize>(value: &T, form: Form) -> ApiResult<Vec<u8>> {
    let failed = |error: String| ApiError::internal(format!("cannot encode the answer: {error}"));
    match form.encoding {
        Encoding::Json if form.pretty => {
            serde_json::to_vec_pretty(value).map_err(|error| failed(error.to_string()))
        }
        Encoding::Json => serde_json::to_vec(value).map_err(|error| failed(error.to_string())),
        Encoding::Yaml => serde_saphyr::to_string(value)
            .map(String::into_bytes)
            .map_err(|error| failed(error.to_string())),
        Encoding::Protobuf => Err(failed("it has no messages in protobuf".to_owned())),
    }
}

fn bytes_response(status: u16, bytes: Vec<u8>, form: Form, gzip: bool) -> Response<Body> {
    let compressed = (gzip && bytes.len() >= GZIP_FROM)
        .then(|| compress(&bytes))
        .flatten();
    let is_compressed = compressed.is_some();
    let mut response = Response::new(Body::from(compressed.unwrap_or_else(|| Bytes::from(bytes))));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    set_type(&mut response, form.encoding.media());
    if is_compressed {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn compress(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    // Writing to memory cannot fail; if it did, the answer goes out as it is.
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

fn set_type(response: &mut Response<Body>, media: &'static str) {
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
}

/// A JSON answer without negotiation.
pub(crate) fn json(status: u16, value: &Value) -> Response<Body> {
    bytes_response(status, value.to_string().into_bytes(), Form::default(), false)
}

/// An answer of plain text, without negotiation.
pub(crate) fn text(status: u16, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    set_type(&mut response, "text/plain; charset=utf-8");
    response
}

/// An error as a `Status`.
pub(crate) fn error(error: &ApiError, form: Form) -> Response<Body> {
    let status = error.body();
    let encoded = match form.encoding {
        Encoding::Protobuf => protobuf::encode(&status),
        _ => encode(&status, form).ok(),
    };
    let mut response = match encoded {
        Some(bytes) => bytes_response(error.code, bytes, form, false),
        None => json(error.code, &status),
    };
    if let Some(seconds) = error.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds `Warning` headers (RFC 7234): code 299, no agent, the text quoted.
pub(crate) fn add_warnings(headers: &mut HeaderMap, warnings: &[String]) {
    for warning in warnings {
        let quoted: String = warning
            .chars()
            .filter(|c| !c.is_control())
            .flat_map(|c| match c {
                '"' | '\\' => vec!['\\', c],
                other => vec![other],
            })
            .collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Registry;

    #[test]
    fn items_of_typed_lists_have_no_kind() {
        let snapshot = Registry::new().snapshot();
        let list = PlainList {
            resource: snapshot.by_gvr("", "v1", "pods").expect("pods"),
            metadata: &json!({"resourceVersion": "5"}),
            items: &[Arc::new(
                json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}),
            )],
        };
        assert_eq!(
            serde_json::to_value(&list).expect("encodes"),
            json!({
                "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"},
                "items": [{"metadata": {"name": "p"}}],
            })
        );
    }

    #[test]
    fn warnings_are_quoted() {
        let mut headers = HeaderMap::new();
        add_warnings(&mut headers, &["unknown field \"x\"".to_owned()]);
        assert_eq!(headers[header::WARNING], "299 - \"unknown field \\\"x\\\"\"");
    }

    #[test]
    fn large_bodies_are_compressed_for_those_who_ask() {
        let large = vec![b'a'; GZIP_FROM];
        let response = bytes_response(200, large.clone(), Form::default(), true);
        assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
        let response = bytes_response(200, large, Form::default(), false);
        assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
    }
}
