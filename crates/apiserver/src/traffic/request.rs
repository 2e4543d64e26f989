//! A request as it is recorded.

use crate::request::body::Syntax;
use crate::request::{RequestInfo, UserInfo};
use bytes::Bytes;
use evenkeel_kube_rules::gvk::{Gvk, split_api_version};
use evenkeel_kube_rules::{protobuf, schema};
use http::request::Parts;
use http::{HeaderMap, Method, header};
use serde_json::Value;

/// A request that a server was asked. Texts that do not apply are empty.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// As in `GET`.
    pub method: Method,
    /// As in `/api/v1/namespaces/default/pods`, as it was sent.
    pub path: String,
    /// What follows the `?`, as it was sent.
    pub query: String,
    /// The headers. Credentials are not shown by `Debug`.
    pub headers: HeaderMap,
    /// The body, whole and as it was sent. Empty for streams, as of `exec`, and where it was too large to be
    /// read.
    pub body: Bytes,
    /// As RBAC names it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`;
    /// for a path that is no resource the method in lower case.
    pub verb: String,
    /// As in `apps`; empty for the core group.
    pub api_group: String,
    /// As in `v1`.
    pub api_version: String,
    /// As in `pods`.
    pub resource: String,
    /// As in `status`.
    pub subresource: String,
    /// The namespace of the path.
    pub namespace: String,
    /// The name of the path, of a field selector for `metadata.name`, or of the object that is created. Empty
    /// where the server makes the name.
    pub name: String,
    /// Who asked; empty for a credential that was refused.
    pub user: String,
    /// The groups of the user.
    pub user_groups: Vec<String>,
    /// The code of the answer. `None` while there is none, and for an answer that a fault has lost.
    pub status: Option<u16>,
}

impl RecordedRequest {
    pub(crate) fn new(parts: &Parts, info: &RequestInfo, user: Option<&UserInfo>, body: Bytes) -> Self {
        let mut headers = parts.headers.clone();
        if let Some(credential) = headers.get_mut(header::AUTHORIZATION) {
            credential.set_sensitive(true);
        }
        let mut request = Self {
            method: parts.method.clone(),
            path: info.path.clone(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers,
            body,
            verb: info.verb.clone(),
            api_group: info.group.clone(),
            api_version: info.version.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            user: user.map(|user| user.name.clone()).unwrap_or_default(),
            user_groups: user.map(|user| user.groups.clone()).unwrap_or_default(),
            status: None,
        };
        if request.verb == "create" && request.name.is_empty() {
            let object = request.json().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            name.clone_into(&mut request.name);
        }
        request
    }

    /// The body as JSON, whether it was sent in JSON, YAML or protobuf; `None` where it is none of these.
    pub fn json(&self) -> Option<Value> {
        let media = self.header(&header::CONTENT_TYPE).to_ascii_lowercase();
        let media = media.split(';').next().unwrap_or_default().trim();
        match Syntax::of(media) {
            Ok(Syntax::Protobuf) => {
                let envelope = protobuf::open(&self.body).ok()?;
                let (group, version) = split_api_version(&envelope.api_version);
                let gvk = Gvk {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    kind: envelope.kind.into_owned(),
                };
                protobuf::decode(schema::kind(&gvk)?, envelope.raw).ok()
            }
            Ok(Syntax::Yaml) => serde_saphyr::from_slice(&self.body).ok(),
            _ if media.ends_with("yaml") => serde_saphyr::from_slice(&self.body).ok(),
            _ => serde_json::from_slice(&self.body).ok(),
        }
    }

    /// The text of a header; empty without it.
    pub(crate) fn header(&self, name: &header::HeaderName) -> &str {
        let value = self.headers.get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
