//! Watches that go on for ever and survive objects they cannot decode.

pub use evenkeel_api::watch::{Delta, Key, key};

use crate::log::causes;
use backon::ExponentialBuilder;
use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
use kube::runtime::utils::StreamBackoff;
use kube::runtime::watcher;
use kube::runtime::watcher::ExponentialBackoff;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// What becomes of an object that cannot be decoded; it is named in the log either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It keeps the state that was known before.
    StaysAsKnown,
    /// It counts as gone, so that nothing is done on its behalf.
    CountsAsGone,
}

/// First, and longest but for the jitter, that a watch waits before it is begun again after a failure. Jitter
/// adds up to as much again, so that it waits for 4 s at most: a watch is back within 5 s of its API server.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

/// How long watches wait after a failure: 0.25 s doubled up to 2 s, each with up to as much again at random.
/// The first success ends it: the next failure waits for the shortest time again.
pub fn back_off() -> ExponentialBackoff {
    let waits = ExponentialBuilder::new()
        .with_min_delay(AGAIN.0)
        .with_max_delay(AGAIN.1)
        .with_jitter()
        .without_max_times();
    ExponentialBackoff::from(waits)
}

/// History that is gone is no failure: the watch lists anew at once. Where it is gone again and again before
/// anything came, pauses grow as after failures, or the collection would be listed without end.
fn expiring<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
) -> impl Stream<Item = watcher::Result<Option<watcher::Event<K>>>> {
    let begun = (Box::pin(events), None, Duration::ZERO);
    futures::stream::unfold(begun, async |(mut events, mut waits, wait)| {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let mut wait = Duration::ZERO;
        let event = match events.next().await? {
            Err(watcher::Error::WatchError(status)) if status.code == 410 => {
                if let Some(waits) = &mut waits {
                    wait = Iterator::next(waits).unwrap_or(AGAIN.1);
                }
                waits.get_or_insert_with(back_off);
                Ok(None)
            }
            Ok(event) => {
                if matches!(event, watcher::Event::Apply(_) | watcher::Event::Delete(_)) {
                    waits = None;
                }
                Ok(Some(event))
            }
            Err(error) => Err(error),
        };
        Some((event, (events, waits, wait)))
    })
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
    StreamBackoff::new(expiring(watcher(api, config)), back_off()).filter_map(move |event| {
        ready(match event {
            Ok(None) => Some(Delta::Broken),
            Ok(Some(watcher::Event::Init)) => {
                listing.clear();
                None
            }
            Ok(Some(watcher::Event::InitApply(object))) => {
                listing.insert(key(&object));
                put(what, object, unreadable)
            }
            Ok(Some(watcher::Event::InitDone)) => Some(Delta::Listed(std::mem::take(&mut listing))),
            Ok(Some(watcher::Event::Apply(object))) => put(what, object, unreadable),
            Ok(Some(watcher::Event::Delete(object))) => Some(Delta::Gone(key(&object))),
            Err(error) => {
                tracing::warn!(what, error = causes(&error), "watch failed, trying again");
                Some(Delta::Broken)
            }
        })
    })
}

/// A watch as [`deltas`] makes it, begun anew whenever `restart` is notified: for a watch that was found not
/// to deliver.
pub fn restartable<K, S>(restart: Arc<Notify>, begin: impl Fn() -> S) -> impl Stream<Item = Delta<K>>
where
    S: Stream<Item = Delta<K>>,
{
    futures::stream::repeat_with(move || {
        let restart = Arc::clone(&restart);
        let told = futures::stream::once(async { Delta::Broken });
        begin()
            .take_until(async move { restart.notified().await })
            .chain(told)
    })
    .flatten()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_history_is_always_gone_is_asked_with_pauses() {
        let gone = || {
            let status = kube::core::Status::failure("too old", "Expired").with_code(410);
            Err(watcher::Error::WatchError(Box::new(status)))
        };
        let listed = || [Ok(watcher::Event::Init), Ok(watcher::Event::InitDone)];
        let taken = async |times: usize, last: watcher::Event<()>| {
            let start = tokio::time::Instant::now();
            let events = (0..times).flat_map(|_| std::iter::once(gone()).chain(listed()));
            let events = events.chain([Ok(last), gone()]).chain(listed());
            let seen: Vec<_> = expiring(futures::stream::iter(events)).collect().await;
            assert!(seen.iter().all(Result::is_ok));
            start.elapsed()
        };
        assert_eq!(taken(1, watcher::Event::Apply(())).await, Duration::ZERO);
        assert!(
            taken(1, watcher::Event::Init).await >= AGAIN.0,
            "nothing came in between"
        );
        assert!(taken(11, watcher::Event::Apply(())).await > 7 * AGAIN.1);
    }

    #[test]
    fn a_watch_never_waits_so_long_that_5_s_cannot_be_kept() {
        let waits: Vec<Duration> = back_off().take(50).collect();
        assert!(waits[0] >= AGAIN.0 && waits[49] >= AGAIN.1, "{waits:?}");
        assert!(
            waits.iter().all(|wait| *wait <= Duration::from_secs(4)),
            "{waits:?}"
        );
    }
}
