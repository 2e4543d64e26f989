//! Watch: the events of a resource as a stream.

mod frame;

use crate::kinds::convert::{is_identity, to_served};
use crate::store::{Change, Event, HistoryError, Table};
use crate::verbs::context::{Answer, Content, Context};
use crate::verbs::read::{self, Selector, presented};
use bytes::{Bytes, BytesMut};
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use frame::Framer;
use futures::StreamExt;
use futures::stream::unfold;
use rand::Rng;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Events read from the store, and objects encoded, at a time.
const PORTION: usize = 128;
/// From this size on, in bytes, a portion is sent before more is encoded: what a watch whose client does not
/// read holds in memory.
const PORTION_BYTES: usize = 1024 * 1024;
/// Between bookmarks; upstream's number.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the end; upstream's number.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// A watch without `timeoutSeconds` lasts between this and twice this; upstream's `--min-request-timeout`.
const MIN_TIMEOUT: Duration = Duration::from_secs(1_800);

/// The state of one watch between its events.
struct Watcher {
    context: Arc<Context>,
    table: Table,
    namespace: Option<String>,
    selector: Selector,
    framer: Framer,
    /// The state that the watch begins with.
    initial: VecDeque<Arc<Value>>,
    /// A bookmark marks the end of `initial`.
    marks_initial: bool,
    /// Everything up to here has been sent or passed over.
    position: u64,
    changed: watch::Receiver<u64>,
    ends: Instant,
    next_bookmark: Option<Instant>,
    bookmark_due: bool,
    /// Why the watch cannot begin where it was asked to; told as its only event.
    refused: Option<HistoryError>,
    ended: bool,
}

/// Begins a watch; the answer is a stream of frames.
pub(crate) fn watch(context: &Arc<Context>) -> ApiResult<Answer> {
    let query = &context.query;
    let (options, selector) = read::options(context, true)?;
    let timeout = match query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => MIN_TIMEOUT + MIN_TIMEOUT.mul_f64(rand::rng().random()),
    };
    let bookmarks = query.flag("allowWatchBookmarks");
    let store = &context.server.store;
    let current = store.resource_version();
    let wanted = options.resource_version.unwrap_or(0);
    if wanted > current {
        return Err(ApiError::too_large(wanted, current));
    }
    let table = context.table();
    // Subscribed before anything is read: no event falls between.
    let changed = store.subscribe(&table);
    let namespace = context.list_namespace().map(str::to_owned);
    let starts_with_state = options.send_initial_events.unwrap_or(wanted == 0);
    let (initial, position) = if starts_with_state {
        let listed = store.list(&table, namespace.as_deref());
        let objects = listed
            .items
            .into_iter()
            .map(|(_, object)| presented(context, &object));
        (
            objects.filter(|object| selector.matches(object)).collect(),
            listed.resource_version,
        )
    } else if wanted == 0 {
        (VecDeque::new(), current)
    } else {
        (VecDeque::new(), wanted)
    };
    let refused = store.reaches_back(&table, position).err();
    let now = Instant::now();
    let framer = Framer::new(context)?;
    let watcher = Watcher {
        table,
        namespace,
        selector,
        framer,
        initial,
        marks_initial: bookmarks && options.send_initial_events == Some(true),
        position,
        changed,
        ends: now + timeout,
        next_bookmark: bookmarks.then(|| next_bookmark(now, now + timeout)),
        bookmark_due: false,
        refused,
        ended: false,
        context: context.clone(),
    };
    let stream = unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next().await?;
        Some((Ok(chunk), watcher))
    });
    Ok(Answer {
        status: 200,
        content: Content::Stream(stream.boxed()),
    })
}

fn next_bookmark(now: Instant, ends: Instant) -> Instant {
    let last = ends.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now);
    let next = now + BOOKMARK_EVERY;
    last.map_or(next, |last| next.min(last))
}

async fn stopped(shutdown: Option<&CancellationToken>) {
    match shutdown {
        Some(shutdown) => shutdown.cancelled().await,
        None => std::future::pending().await,
    }
}

impl Watcher {
    /// The next frames, one or more; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let shutdown = self.context.shutdown.clone();
            // A watch that outlives the server's crash must not tell what happened after it.
            if self.ended || shutdown.as_ref().is_some_and(CancellationToken::is_cancelled) {
                return None;
            }
            if let Some(frames) = self.initial_frames() {
                return Some(frames);
            }
            self.changed.borrow_and_update();
            let mut frames = BytesMut::new();
            let more = self.event_frames(&mut frames);
            if self.bookmark_due && !more {
                self.bookmark_due = false;
                frames.extend_from_slice(&self.framer.bookmark(self.position, false));
            }
            if !frames.is_empty() {
                return Some(frames.freeze());
            }
            if more {
                continue;
            }
            let bookmark = self.next_bookmark;
            tokio::select! {
                changed = self.changed.changed() => self.ended = changed.is_err(),
                () = sleep_until(self.ends) => self.ended = true,
                () = sleep_until(bookmark.unwrap_or(self.ends)), if bookmark.is_some() => {
                    self.bookmark_due = true;
                    let next = next_bookmark(Instant::now(), self.ends);
                    self.next_bookmark = (next < self.ends).then_some(next);
                }
                () = stopped(shutdown.as_ref()) => self.ended = true,
            }
        }
    }

    fn initial_frames(&mut self) -> Option<Bytes> {
        let mut frames = BytesMut::new();
        for _ in 0..PORTION {
            if frames.len() >= PORTION_BYTES {
                break;
            }
            let Some(object) = self.initial.pop_front() else {
                break;
            };
            frames.extend_from_slice(&self.framer.object("ADDED", &object));
        }
        if self.initial.is_empty() && self.marks_initial {
            self.marks_initial = false;
            frames.extend_from_slice(&self.framer.bookmark(self.position, true));
        }
        (!frames.is_empty()).then(|| frames.freeze())
    }

    /// Adds the frames of the events that have come; whether there are more.
    fn event_frames(&mut self, frames: &mut BytesMut) -> bool {
        let store = &self.context.server.store;
        let read = match self.refused.take() {
            Some(error) => Err(error),
            None => store.events(&self.table, self.position, PORTION),
        };
        let (events, position) = match read {
            Ok(read) => read,
            Err(error) => {
                let error = match error {
                    HistoryError::TooOld { oldest } => ApiError::expired(self.position, oldest),
                    HistoryError::TooLarge { current } => ApiError::too_large(self.position, current),
                };
                frames.extend_from_slice(&self.framer.value("ERROR", &error.body()));
                self.ended = true;
                return false;
            }
        };
        for event in &events {
            if self.is_here(&event.key) && !self.is_hidden(&event.key) {
                self.event_frame(event, frames);
            }
            if frames.len() >= PORTION_BYTES {
                self.position = event.resource_version;
                return true;
            }
        }
        self.position = position;
        events.len() == PORTION
    }

    fn is_here(&self, key: &str) -> bool {
        match &self.namespace {
            None => true,
            Some(namespace) => key
                .strip_prefix(namespace.as_str())
                .is_some_and(|rest| rest.starts_with('/')),
        }
    }

    /// Whether a fault of a test hides the events of this object from this watch.
    fn is_hidden(&self, key: &str) -> bool {
        let (Some(traffic), Some(watch)) = (&self.context.server.traffic, &self.context.recorded) else {
            return false;
        };
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        traffic.hides(watch, namespace, name)
    }

    /// What an event is to this watch: an object that enters the selection is added, one that leaves is
    /// deleted.
    fn event_frame(&mut self, event: &Arc<Event>, frames: &mut BytesMut) {
        let everything = self.selector.is_empty();
        let resource = &self.context.resource;
        let selected =
            |object: &Arc<Value>| everything || self.selector.matches(&to_served(resource, object));
        let was = event.old.as_ref().is_some_and(&selected);
        let is = event.change != Change::Deleted && selected(&event.object);
        let kind = match (was, is) {
            (false, false) => return,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if kind == "DELETED" && event.change != Change::Deleted {
            // The state that was selected, at the version at which it ceased to be.
            let mut last = event.old.as_deref().cloned().unwrap_or_default();
            last["metadata"]["resourceVersion"] = json!(event.resource_version.to_string());
            let last = presented(&self.context, &Arc::new(last));
            frames.extend_from_slice(&self.framer.object(kind, &last));
        } else if self.framer.is_plain() && is_identity(resource) && resource.kind != "ClusterRole" {
            frames.extend_from_slice(&self.framer.stored(kind, event));
        } else {
            let object = presented(&self.context, &event.object);
            frames.extend_from_slice(&self.framer.object(kind, &object));
        }
    }
}
