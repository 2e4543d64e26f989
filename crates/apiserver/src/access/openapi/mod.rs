//! How the objects look: OpenAPI v3 documents by group and version, and the one OpenAPI v2 document.
//!
//! They hold what kubectl reads: the schemas with their merge keys, and for each path its operations with
//! kind, action and query parameters. The documents of a group and version are made when somebody asks for
//! them, and kept.

mod paths;
mod protobuf;
mod schemas;
#[cfg(test)]
mod tests;

use crate::access::discovery::Document;
use crate::kinds::{Snapshot, Version};
use bytes::Bytes;
use evenkeel_kube_rules::gvk::group_version;
use http::StatusCode;
use schemas::Flavour;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Documents kept; older ones go when definitions change.
const MOST_KEPT: usize = 128;

/// Name of the media type in which kubectl asks for v2.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2";

/// Makes and keeps the documents of one server.
#[derive(Default)]
pub(crate) struct OpenApi {
    /// By path and hash.
    kept: Mutex<BTreeMap<(String, String), Bytes>>,
}

impl OpenApi {
    /// Answers `GET` of `/openapi/...`; `None` if `path` is none of these. `accept` is the client's header,
    /// `git_version` what `/version` says.
    pub(crate) fn answer(
        &self,
        path: &str,
        accept: &str,
        git_version: &str,
        kinds: &Snapshot,
    ) -> Option<Document> {
        match path.trim_end_matches('/') {
            "/openapi/v2" => Some(self.v2(accept, git_version, kinds)),
            // Upstream sends JSON under this type.
            "/openapi/v3" => Some(Document {
                content_type: "text/plain; charset=utf-8",
                ..Document::json(&index(kinds))
            }),
            path => self.v3(path.strip_prefix("/openapi/v3/")?, git_version, kinds),
        }
    }

    fn v3(&self, path: &str, git_version: &str, kinds: &Snapshot) -> Option<Document> {
        let (group, version) = match path.split_once('/')? {
            ("api", version) => ("", version),
            ("apis", rest) => rest.split_once('/')?,
            _ => return None,
        };
        let version = kinds.version(group, version)?;
        let body = self.keep(path, &hash(version), || {
            let flavour = Flavour::V3;
            let document = json!({
                "openapi": "3.0.0",
                "info": {"title": "Kubernetes", "version": git_version},
                "paths": paths::of(flavour, &version.resources),
                "components": {"schemas": schemas::of(flavour, &version.resources)},
            });
            document.to_string().into()
        });
        Some(Document {
            status: StatusCode::OK,
            content_type: "application/json",
            body,
        })
    }

    fn v2(&self, accept: &str, git_version: &str, kinds: &Snapshot) -> Document {
        let resources: Vec<_> = kinds.iter().cloned().collect();
        let document = || {
            json!({
                "swagger": "2.0",
                "info": {"title": "Kubernetes", "version": git_version},
                "paths": paths::of(Flavour::V2, &resources),
                "definitions": schemas::of(Flavour::V2, &resources),
            })
        };
        let mut digest = Sha256::new();
        for version in kinds.groups().iter().flat_map(|group| &group.versions) {
            digest.update(hash(version));
        }
        let hash = hex(&digest.finalize());
        if accept.contains(V2_PROTOBUF) {
            return Document {
                status: StatusCode::OK,
                content_type: "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
                body: self.keep("v2.pb", &hash, || protobuf::document(&document()).into()),
            };
        }
        Document {
            status: StatusCode::OK,
            content_type: "application/json",
            body: self.keep("v2", &hash, || document().to_string().into()),
        }
    }

    fn keep(&self, path: &str, hash: &str, make: impl FnOnce() -> Bytes) -> Bytes {
        let key = (path.to_owned(), hash.to_owned());
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(body) = lock().get(&key) {
            return body.clone();
        }
        // Made without the lock: two that ask at once both make it, and nobody waits for a stranger's
        // document.
        let body = make();
        let mut kept = lock();
        kept.retain(|(other, _), _| other != path);
        if kept.len() < MOST_KEPT {
            kept.insert(key, body.clone());
        }
        body
    }
}

/// `/openapi/v3`: where the documents are; the hash changes with the content, so that clients may keep them.
fn index(kinds: &Snapshot) -> Value {
    let mut paths = Map::new();
    for group in kinds.groups() {
        for version in &group.versions {
            let prefix = if group.name.is_empty() { "api" } else { "apis" };
            let path = format!("{prefix}/{}", group_version(&group.name, &version.version));
            let url = format!("/openapi/v3/{path}?hash={}", hash(version));
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Of all that a document is made from: this program, and the definitions of custom resources.
fn hash(version: &Version) -> String {
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    for resource in &version.resources {
        digest.update(&resource.gvr.group);
        digest.update(&resource.gvr.version);
        digest.update(&resource.gvr.resource);
        if let Some(custom) = &resource.custom {
            digest.update(custom.version.to_string());
            digest.update(custom.definition["spec"]["names"].to_string());
        }
    }
    hex(&digest.finalize()[..16])
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02X}").expect("writing to a String cannot fail");
        text
    })
}
