//! The requests of a server, recorded, and faults that act on them.
//!
//! | module | what it holds |
//! |---|---|
//! | `request` | a request as it is recorded |
//! | `filter` | which requests are meant |
//! | `fault` | what is done to them |
//! | `events` | faults on watches that are open |

mod events;
mod fault;
mod filter;
mod request;

pub use fault::Fault;
pub use filter::RequestFilter;
pub use request::RecordedRequest;

use axum::body::Body;
use evenkeel_kube_rules::status::ApiError;
use events::faulty;
use fault::Action;
use http::Response;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The requests of one [`TestServer`](crate::TestServer): what was asked, and which faults are in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic(Arc<State>);

#[derive(Debug, Default)]
struct State {
    recorded: Mutex<Vec<Arc<Entry>>>,
    /// In the order in which they were installed.
    rules: watch::Sender<Vec<Arc<Rule>>>,
    next: AtomicU64,
}

/// A request with its answer.
#[derive(Debug)]
struct Entry {
    request: Arc<RecordedRequest>,
    status: OnceLock<u16>,
}

/// A fault in force.
#[derive(Debug)]
struct Rule {
    id: u64,
    filter: RequestFilter,
    action: Action,
    /// How often it may still act; `None` without a limit.
    left: Option<Mutex<usize>>,
    hits: watch::Sender<usize>,
    /// Cancelled when its [`Interception`] is dropped.
    ended: CancellationToken,
}

impl Rule {
    /// Uses it up once; `false` where its times are over.
    fn take(&self) -> bool {
        if let Some(left) = &self.left {
            let mut left = lock(left);
            let Some(less) = left.checked_sub(1) else {
                return false;
            };
            *left = less;
        }
        self.hits.send_modify(|hits| *hits += 1);
        true
    }
}

/// The data behind these locks are whole at any time, so a holder that panicked has left nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection of a request is cut: there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disconnected;

impl From<Disconnected> for std::io::Error {
    fn from(_: Disconnected) -> Self {
        let kind = std::io::ErrorKind::ConnectionReset;
        Self::new(kind, "the connection was cut by a fault of the test")
    }
}

impl Traffic {
    /// What was asked since the start or the last [`Traffic::clear`].
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        let recorded = lock(&self.0.recorded);
        let shown = recorded.iter().map(|entry| RecordedRequest {
            status: entry.status.get().copied(),
            ..(*entry.request).clone()
        });
        shown.collect()
    }

    pub(crate) fn clear(&self) {
        lock(&self.0.recorded).clear();
    }

    /// Puts a fault in force, until the guard is dropped.
    pub(crate) fn intercept(&self, filter: RequestFilter, fault: Fault) -> Interception {
        let rule = Arc::new(Rule {
            id: self.0.next.fetch_add(1, Ordering::Relaxed),
            filter,
            action: fault.action,
            left: fault.times.map(Mutex::new),
            hits: watch::Sender::new(0),
            ended: CancellationToken::new(),
        });
        self.0.rules.send_modify(|rules| rules.push(rule.clone()));
        Interception {
            traffic: self.clone(),
            rule,
            kept: false,
        }
    }

    /// Records a request, and finds the fault that acts on it.
    pub(crate) fn begin(&self, request: RecordedRequest) -> Exchange {
        let request = Arc::new(request);
        let entry = Arc::new(Entry {
            request: request.clone(),
            status: OnceLock::new(),
        });
        lock(&self.0.recorded).push(entry.clone());
        let rules = self.0.rules.borrow().clone();
        let rule = rules
            .into_iter()
            .find(|rule| rule.action != Action::HideEvents && rule.filter.matches(&request) && rule.take());
        Exchange {
            traffic: self.clone(),
            request,
            entry,
            rule,
        }
    }

    /// Whether a watch leaves out the events of an object.
    pub(crate) fn hides(&self, watch: &RecordedRequest, namespace: &str, name: &str) -> bool {
        let rules = self.0.rules.borrow().clone();
        rules.into_iter().any(|rule| {
            let hides = rule.action == Action::HideEvents;
            hides && rule.filter.matches_object(watch, namespace, name) && rule.take()
        })
    }
}

/// One request on its way through the server.
pub(crate) struct Exchange {
    traffic: Traffic,
    pub(crate) request: Arc<RecordedRequest>,
    entry: Arc<Entry>,
    rule: Option<Arc<Rule>>,
}

/// What becomes of a request before it reaches the server.
pub(crate) enum Begun {
    /// It goes on.
    Passed,
    /// It is answered by the fault.
    Refused(ApiError),
}

impl Exchange {
    /// What the fault does before the request is served.
    pub(crate) async fn before(&self) -> Result<Begun, Disconnected> {
        let Some(rule) = &self.rule else {
            return Ok(Begun::Passed);
        };
        match &rule.action {
            Action::Disconnect => return Err(Disconnected),
            Action::Answer(error) => return Ok(Begun::Refused(error.clone())),
            Action::Conflict => {
                let RecordedRequest {
                    api_group,
                    resource,
                    name,
                    ..
                } = &*self.request;
                return Ok(Begun::Refused(ApiError::modified(api_group, resource, name)));
            }
            // Whoever ends the fault ends the delay, too.
            Action::DelayBefore(delay) => {
                let _ = tokio::time::timeout(*delay, rule.ended.cancelled()).await;
            }
            Action::Hold => rule.ended.cancelled().await,
            Action::DelayAfter(_) | Action::LoseAnswer | Action::HideEvents => {}
        }
        Ok(Begun::Passed)
    }

    /// What the fault does with the answer; the answer of a watch stays under the faults that come later.
    pub(crate) async fn after(
        self,
        response: Response<Body>,
        shutdown: Option<CancellationToken>,
    ) -> Result<Response<Body>, Disconnected> {
        let is_watch = self.request.verb == "watch" && response.status().is_success();
        match self.rule.as_ref().map(|rule| (rule, &rule.action)) {
            Some((_, Action::LoseAnswer)) => return Err(Disconnected),
            // The events of a watch are delayed one by one.
            Some((rule, Action::DelayAfter(delay))) if !is_watch => {
                let _ = tokio::time::timeout(*delay, rule.ended.cancelled()).await;
            }
            _ => {}
        }
        self.entry.status.get_or_init(|| response.status().as_u16());
        if is_watch {
            return Ok(faulty(response, self, shutdown));
        }
        Ok(response)
    }
}

/// A fault in force. Dropping it ends the fault: what it held or delayed goes on at once.
#[derive(Debug)]
#[must_use = "dropping it ends the fault"]
pub struct Interception {
    traffic: Traffic,
    rule: Arc<Rule>,
    kept: bool,
}

impl Interception {
    /// How many requests, open watches and hidden events it has acted on so far.
    pub fn hits(&self) -> usize {
        *self.rule.hits.borrow()
    }

    /// Leaves the fault in force for as long as the server lives.
    pub fn keep(mut self) {
        self.kept = true;
    }

    /// Waits until it has acted so often: for a test that goes on when its program has run into the fault.
    pub async fn wait_for_hits(&self, hits: usize) {
        let mut seen = self.rule.hits.subscribe();
        // The sender is part of the rule, which this guard keeps: there is no error.
        let _ = seen.wait_for(|seen| *seen >= hits).await;
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let id = self.rule.id;
        self.traffic
            .0
            .rules
            .send_modify(|rules| rules.retain(|rule| rule.id != id));
        self.rule.ended.cancel();
    }
}
