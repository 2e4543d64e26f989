//! What a request is, once it is parsed.

use evenkeel_kube_rules::gvk::{Gvk, Gvr};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// User name.
    pub name: String,
    /// UID, where the credential has one.
    pub uid: String,
    /// Groups, with `system:authenticated` or `system:unauthenticated`.
    pub groups: Vec<String>,
    /// Extra attributes, such as the node claim of a ServiceAccount token.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a request wants, as the authorizer sees it (upstream's `RequestInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// `false` for paths such as `/healthz`; then only `path` and `verb` count.
    pub is_resource: bool,
    /// URL path.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the
    /// HTTP method in lower case.
    pub verb: String,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource or empty.
    pub subresource: String,
    /// Namespace or empty.
    pub namespace: String,
    /// Object name or empty.
    pub name: String,
}

/// Operation as admission names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `CREATE`
    Create,
    /// `UPDATE`
    Update,
    /// `DELETE`
    Delete,
    /// `CONNECT`
    Connect,
}

/// What admission sees of a write, and may change (`object`).
#[derive(Clone, Debug)]
pub struct Attributes {
    /// What is done.
    pub operation: Operation,
    /// Kind of the object.
    pub gvk: Gvk,
    /// Resource of the request.
    pub gvr: Gvr,
    /// Subresource or empty.
    pub subresource: String,
    /// Namespace or empty.
    pub namespace: String,
    /// Name; empty on a create with generateName.
    pub name: String,
    /// Who asks.
    pub user: UserInfo,
    /// The new object; `None` on delete.
    pub object: Option<Value>,
    /// The old object; `None` on create.
    pub old_object: Option<Value>,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions.
    pub options: Value,
    /// Nothing will be persisted.
    pub dry_run: bool,
}

/// Read access to the store for the parts that need other objects: RBAC, webhooks, token checks, discovery of CRDs.
pub trait Reader: Send + Sync {
    /// An object by resource, namespace (empty for cluster scope) and name.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// All objects of a resource, in one namespace or in all.
    fn list(&self, group: &str, resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>>;
    /// Grows with every write to a resource, so that a compiled view of it can be cached.
    fn generation(&self, group: &str, resource: &str) -> u64;
}
