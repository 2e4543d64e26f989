//! Faults on watches that are open.

use super::fault::Action;
use super::{Disconnected, Exchange, RecordedRequest, Rule};
use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::unfold;
use http::Response;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// A watch under the faults that are in force while it is open.
struct Watched {
    request: Arc<RecordedRequest>,
    events: BodyDataStream,
    rules: watch::Receiver<Vec<Arc<Rule>>>,
    /// The faults that have acted on it already, by which it counts no more.
    hit: BTreeSet<u64>,
    /// Events that have come, and when they may be shown.
    delayed: VecDeque<(Instant, Result<Bytes, io::Error>)>,
    ended: bool,
    /// The server goes down; what is held then is never shown.
    shutdown: CancellationToken,
}

/// The same answer under the faults that act on open watches.
pub(crate) fn faulty(
    response: Response<Body>,
    exchange: Exchange,
    shutdown: Option<CancellationToken>,
) -> Response<Body> {
    response.map(|body| {
        let watched = Watched {
            rules: exchange.traffic.0.rules.subscribe(),
            request: exchange.request,
            events: body.into_data_stream(),
            hit: exchange.rule.iter().map(|rule| rule.id).collect(),
            shutdown: shutdown.unwrap_or_default(),
            delayed: VecDeque::new(),
            ended: false,
        };
        Body::from_stream(unfold(watched, |mut watched| async move {
            let event = watched.next().await?;
            Some((event, watched))
        }))
    })
}

/// What acts on a watch at the moment.
enum Acting {
    Nothing,
    Hold,
    Delay(Duration),
    Disconnect,
}

impl Watched {
    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            let acting = self.acting();
            if matches!(acting, Acting::Disconnect) {
                self.ended = true;
                self.delayed.clear();
                self.events = Body::empty().into_data_stream();
                return Some(Err(Disconnected.into()));
            }
            if matches!(acting, Acting::Nothing)
                && let Some((_, event)) = self.delayed.pop_front()
            {
                return Some(event);
            }
            let held = matches!(acting, Acting::Hold);
            let due = self.delayed.front().map(|(due, _)| *due);
            if self.ended && due.is_none() {
                return None;
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return None,
                // Without a sender there are no more faults.
                Ok(()) = self.rules.changed() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() && !held => {
                    return self.delayed.pop_front().map(|(_, event)| event);
                }
                event = self.events.next(), if !self.ended && !held => match (event, acting) {
                    (None, _) => self.ended = true,
                    (Some(event), Acting::Delay(delay)) => {
                        let event = event.map_err(io::Error::other);
                        self.delayed.push_back((Instant::now() + delay, event));
                    }
                    (Some(event), _) => return Some(event.map_err(io::Error::other)),
                },
            }
        }
    }

    /// The first fault that acts on this watch, which counts for it once.
    fn acting(&mut self) -> Acting {
        let rules = self.rules.borrow_and_update().clone();
        for rule in rules {
            let acting = match &rule.action {
                Action::Hold => Acting::Hold,
                Action::DelayAfter(delay) => Acting::Delay(*delay),
                Action::Disconnect => Acting::Disconnect,
                _ => continue,
            };
            if self.hit.contains(&rule.id) {
                return acting;
            }
            if rule.filter.matches(&self.request) && rule.take() {
                self.hit.insert(rule.id);
                return acting;
            }
        }
        Acting::Nothing
    }
}
