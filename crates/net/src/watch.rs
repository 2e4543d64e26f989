//! Watches that go on for ever and survive objects they cannot decode.

use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::ready;

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
}

/// What becomes of an object that cannot be decoded; it is named in the log either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// What was known of it stands, nothing new is believed.
    StaysAsKnown,
    /// It counts as gone: nothing is known of it, so nothing is done on its behalf.
    CountsAsGone,
}

/// A watch with back-off while the API server fails. `what` names it in the log.
pub fn deltas<K>(
    what: &'static str,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    unreadable: Unreadable,
) -> impl Stream<Item = Delta<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    DeserializeGuard<K>: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut listing = BTreeSet::new();
    watcher(api, config).default_backoff().filter_map(move |event| {
        ready(match event {
            Ok(watcher::Event::Init) => {
                listing.clear();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                listing.insert(key(&object));
                put(what, object, unreadable)
            }
            Ok(watcher::Event::InitDone) => Some(Delta::Listed(std::mem::take(&mut listing))),
            Ok(watcher::Event::Apply(object)) => put(what, object, unreadable),
            Ok(watcher::Event::Delete(object)) => Some(Delta::Gone(key(&object))),
            Err(error) => {
                let cause = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                tracing::warn!(what, %error, cause, "watch failed, trying again");
                None
            }
        })
    })
}

fn put<K>(what: &str, object: DeserializeGuard<K>, unreadable: Unreadable) -> Option<Delta<K>>
where
    DeserializeGuard<K>: Resource,
{
    let (namespace, name) = key(&object);
    match object.0 {
        Ok(object) => Some(Delta::Put(Box::new(object))),
        Err(error) => {
            tracing::warn!(
                what,
                namespace,
                name,
                error = error.error,
                "object cannot be read, passed over"
            );
            (unreadable == Unreadable::CountsAsGone).then_some(Delta::Gone((namespace, name)))
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
