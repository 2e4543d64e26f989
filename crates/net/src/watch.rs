//! Watches that go on for ever and survive objects they cannot decode.

use crate::log::causes;
use backon::ExponentialBuilder;
use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
use kube::runtime::utils::ResetTimerBackoff;
use kube::runtime::watcher::ExponentialBackoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::ready;
use std::time::Duration;

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

/// First, and longest but for the jitter, that a watch waits before it is begun again after a failure. Jitter adds up
/// to as much again. kube's own back-off goes to 30 s and 60 s with jitter; a component must work again within 30 s
/// after its API server is back, a connection attempt of 7 s that is under way by then included.
const AGAIN: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(8));
/// A watch that has gone well for this long begins with the shortest wait again.
const WELL: Duration = Duration::from_secs(120);

/// How long watches wait after a failure: 0.8 s doubled up to 8 s, each with up to as much again at random.
pub fn back_off() -> ResetTimerBackoff<ExponentialBackoff> {
    let waits = ExponentialBuilder::new()
        .with_min_delay(AGAIN.0)
        .with_max_delay(AGAIN.1)
        .with_jitter()
        .without_max_times();
    ResetTimerBackoff::new(ExponentialBackoff::from(waits), WELL)
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
    watcher(api, config).backoff(back_off()).filter_map(move |event| {
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
                tracing::warn!(what, error = causes(&error), "watch failed, trying again");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_never_waits_so_long_that_30_s_cannot_be_kept() {
        let waits: Vec<Duration> = back_off().take(50).collect();
        assert!(waits[0] >= AGAIN.0 && waits[49] >= AGAIN.1, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= AGAIN.1 * 2), "{waits:?}");
    }
}
