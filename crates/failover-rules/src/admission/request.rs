//! What the webhook reads of an AdmissionRequest (`admission.k8s.io/v1`).

use serde::Deserialize;
use serde_json::Value;

/// The request part of an AdmissionReview. Unknown fields are ignored; absent ones read as empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// Identifies the request; the reply repeats it.
    pub uid: String,
    /// What is written.
    pub resource: Resource,
    /// Subresource or empty.
    pub sub_resource: String,
    /// Object name; empty on a create with generateName.
    pub name: String,
    /// Namespace or empty.
    pub namespace: String,
    /// What is done.
    pub operation: Operation,
    pub user_info: User,
    /// The new object; null on a delete.
    pub object: Value,
    /// The old object; null on a create.
    pub old_object: Value,
}

/// Group, version and plural name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    /// As in `v1`.
    pub version: String,
    /// As in `pods`.
    pub resource: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct User {
    /// User name as authenticated.
    pub username: String,
}

/// Operation as admission names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object, by PUT or PATCH.
    Update,
    /// An object goes.
    Delete,
    /// A connection, as for `exec`; also what a text of the future reads as, since nothing is done for it.
    #[default]
    #[serde(other)]
    Connect,
}
