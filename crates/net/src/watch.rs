//! Watches that go on for ever and survive objects they cannot decode.

pub use evenkeel_api::watch::{Delta, Key, key};

use crate::log::causes;
use backon::ExponentialBuilder;
use futures::{Stream, StreamExt as _};
use kube::core::DeserializeGuard;
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
fn back_off() -> ExponentialBackoff {
    let waits = ExponentialBuilder::new()
        .with_min_delay(AGAIN.0)
        .with_max_delay(AGAIN.1)
        .with_jitter()
        .without_max_times();
    ExponentialBackoff::from(waits)
}

/// Events of a watch, with a pause after each failure. Pauses grow until a listing is complete or an event
/// came: kube's watcher announces each attempt to list as an event (`Init`), which is no success.
///
/// History that is gone is no failure, but `None`: the watch lists anew at once. Where it is gone again
/// before any event came, pauses grow as well, or the collection would be listed without end.
pub fn with_pauses<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
) -> impl Stream<Item = watcher::Result<Option<watcher::Event<K>>>> {
    let begun = (Box::pin(events), Pauses::default(), Duration::ZERO);
    futures::stream::unfold(begun, async |(mut events, mut pauses, pause)| {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let event = events.next().await?;
        let pause = pauses.after(&event);
        let event = match event {
            Err(error) if is_gone(&error) => Ok(None),
            event => event.map(Some),
        };
        Some((event, (events, pauses, pause)))
    })
}

fn is_gone(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == 410)
}

/// How long a watch waits after what it has just seen.
#[derive(Default)]
struct Pauses {
    after_failure: Option<ExponentialBackoff>,
    /// History was gone, and no event has come since.
    after_gone: Option<ExponentialBackoff>,
}

impl Pauses {
    fn after<K>(&mut self, event: &watcher::Result<watcher::Event<K>>) -> Duration {
        let next = |waits: &mut ExponentialBackoff| waits.next().unwrap_or(AGAIN.1);
        match event {
            Err(error) if is_gone(error) => {
                let pause = self.after_gone.as_mut().map(next);
                self.after_gone.get_or_insert_with(back_off);
                pause.unwrap_or_default()
            }
            Err(_) => next(self.after_failure.get_or_insert_with(back_off)),
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => {
                *self = Self::default();
                Duration::ZERO
            }
            Ok(watcher::Event::InitDone) => {
                self.after_failure = None;
                Duration::ZERO
            }
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => Duration::ZERO,
        }
    }
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
    with_pauses(watcher(api, config)).filter_map(move |event| {
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

    fn gone() -> watcher::Error {
        watcher::Error::WatchError(Box::new(
            kube::core::Status::failure("too old", "Expired").with_code(410),
        ))
    }

    fn failed() -> watcher::Error {
        watcher::Error::WatchError(Box::new(kube::core::Status::failure("down", "").with_code(503)))
    }

    /// How long it takes to see these events, in virtual time.
    async fn taken(events: Vec<watcher::Result<watcher::Event<()>>>) -> Duration {
        let start = tokio::time::Instant::now();
        let seen = with_pauses(futures::stream::iter(events)).count();
        seen.await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_the_api_server_fails() {
        let attempt = || [Ok(watcher::Event::Init), Err(failed())];
        let down: Vec<_> = (0..12).flat_map(|_| attempt()).collect();
        assert!(taken(down).await > 8 * AGAIN.1);
        let listed = || [Ok(watcher::Event::Init), Ok(watcher::Event::InitDone)];
        let back: Vec<_> = (0..12)
            .flat_map(|_| attempt().into_iter().chain(listed()))
            .collect();
        assert!(taken(back).await < 12 * 3 * AGAIN.0, "each of them is the first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_history_is_always_gone_is_asked_with_pauses() {
        let listed = || {
            [
                Err(gone()),
                Ok(watcher::Event::Init),
                Ok(watcher::Event::InitDone),
            ]
        };
        let always: Vec<_> = (0..12).flat_map(|_| listed()).collect();
        assert!(taken(always).await > 7 * AGAIN.1);
        let event = || Ok(watcher::Event::Apply(()));
        let now_and_then: Vec<_> = (0..12)
            .flat_map(|_| listed().into_iter().chain([event()]))
            .collect();
        assert_eq!(taken(now_and_then).await, Duration::ZERO);
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
