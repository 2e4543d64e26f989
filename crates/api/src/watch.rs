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

/// What a change says of its watch, whatever its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// An object is there: its key and its resourceVersion.
    Put(Key, &'a str),
    /// An object is gone.
    Gone(&'a Key),
    /// A complete list.
    Listed(&'a BTreeSet<Key>),
    /// The watch failed.
    Broken,
}

impl<K: Resource> Delta<K> {
    /// The same without the object.
    pub fn progress(&self) -> Progress<'_> {
        match self {
            Self::Put(object) => {
                let version = object.meta().resource_version.as_deref();
                Progress::Put(key(&**object), version.unwrap_or_default())
            }
            Self::Gone(key) => Progress::Gone(key),
            Self::Listed(keys) => Progress::Listed(keys),
            Self::Broken => Progress::Broken,
        }
    }
}

/// Key of an object.
pub fn key(object: &impl Resource) -> Key {
    (
        object.meta().namespace.clone().unwrap_or_default(),
        object.name_any(),
    )
}
