//! What a request is, once it is parsed.
//!
//! | module | what it holds |
//! |---|---|
//! | `query` | its parameters and options |
//! | `body` | its body |
//! | `form` | the form in which the client wants the answer |

pub(crate) mod body;
pub(crate) mod form;
pub(crate) mod query;

use evenkeel_kube_rules::gvk::{Gvk, Gvr};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The user that makes a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserInfo {
    pub(crate) name: String,
    /// UID, where the credential has one.
    pub(crate) uid: String,
    /// Groups, with `system:authenticated` or `system:unauthenticated`.
    pub(crate) groups: Vec<String>,
    /// Extra attributes, such as the node claim of a ServiceAccount token.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// What a request wants, as the authorizer sees it (upstream's `RequestInfo`). Texts that do not apply are
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// `false` for paths such as `/healthz`; then only `path` and `verb` count.
    pub(crate) is_resource: bool,
    pub(crate) path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the
    /// HTTP method in lower case.
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The operation of a request, as admission plugins and webhooks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// What admission sees of a write, and may change (`object`). Texts that do not apply are empty.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) operation: Operation,
    pub(crate) gvk: Gvk,
    /// Resource of the request.
    pub(crate) gvr: Gvr,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    /// Name; empty on a create with generateName.
    pub(crate) name: String,
    pub(crate) user: UserInfo,
    /// The new object; `None` on delete.
    pub(crate) object: Option<Value>,
    /// The old object; `None` on create.
    pub(crate) old_object: Option<Value>,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions.
    pub(crate) options: Value,
    /// Nothing will be persisted.
    pub(crate) dry_run: bool,
}

/// Read access to the store for the parts that need other objects: RBAC, webhooks, token checks, discovery of
/// CRDs.
pub(crate) trait Reader: Send + Sync {
    /// An object by resource, namespace (empty for cluster scope) and name.
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// All objects of a resource, in one namespace or in all.
    fn list(&self, group: &str, resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>>;
    /// Grows with every write to a resource, so that a compiled view of it can be cached.
    fn generation(&self, group: &str, resource: &str) -> u64;
}
