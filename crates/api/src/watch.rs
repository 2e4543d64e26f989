//! What watches deliver, as plain data: the rules take these, and the streams that make them are in `net`.

use kube::{Resource, ResourceExt as _};
use std::collections::BTreeSet;

/// Namespace (empty for cluster-scoped objects) and name.
pub type Key = (String, String);

/// What a watch says about one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta<K> {
    /// The object as it is.
    Put(Box<K>),
    /// The object is gone.
    Gone(Key),
    /// A complete list was delivered; whatever it does not hold is gone.
    Listed(BTreeSet<Key>),
    /// The watch failed, and is being begun again: what happens until it delivers may be seen late.
    Broken,
}

/// Key of an object.
pub fn key(object: &impl Resource) -> Key {
    (
        object.meta().namespace.clone().unwrap_or_default(),
        object.name_any(),
    )
}
