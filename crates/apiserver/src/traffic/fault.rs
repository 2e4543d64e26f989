//! What is done to requests.

use evenkeel_kube_rules::status::ApiError;
use std::time::Duration;

/// What is done to the requests that a [`RequestFilter`](crate::RequestFilter) selects.
///
/// | fault | the client sees | was the work done? | open watches |
/// |---|---|---|---|
/// | [`status`](Self::status) | this error | no | go on |
/// | [`conflict`](Self::conflict) | 409, as if somebody else had written before | no | go on |
/// | [`delay_before`](Self::delay_before) | the answer, later | after the delay | go on |
/// | [`delay_after`](Self::delay_after) | the answer, later | before the delay | each event comes later |
/// | [`hold`](Self::hold) | nothing until the fault ends, then the answer | after the end | show nothing until the end |
/// | [`disconnect`](Self::disconnect) | a broken connection | no | are cut |
/// | [`lose_answer`](Self::lose_answer) | a broken connection | yes | go on |
/// | [`hide_events`](Self::hide_events) | | | leave out these events |
///
/// A client that gives up during `delay_before` or `hold` has not written anything, during `delay_after` it
/// has.
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing until a server intercepts requests with it"]
pub struct Fault {
    pub(super) action: Action,
    pub(super) times: Option<usize>,
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Answer(ApiError),
    Conflict,
    DelayBefore(Duration),
    DelayAfter(Duration),
    Hold,
    Disconnect,
    LoseAnswer,
    HideEvents,
}

impl From<Action> for Fault {
    fn from(action: Action) -> Self {
        Self { action, times: None }
    }
}

impl Fault {
    /// An error: an HTTP status code and the reason in the `Status` object, as in
    /// `Fault::status(503, "ServiceUnavailable")`. Codes are those of errors; others are answered as 500.
    ///
    /// Clients over a socket may try again by themselves. A `kube::Client` that is made of a kubeconfig does
    /// so for 429, 503 and 504; one inside the process does not.
    pub fn status(code: u16, reason: &'static str) -> Self {
        let code = if (400..600).contains(&code) { code } else { 500 };
        let message = format!("{reason}: answered by a fault of the test");
        Action::Answer(ApiError::new(code, reason, message)).into()
    }

    /// The message of an error. Other faults have none.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        if let Action::Answer(error) = &mut self.action {
            error.message = message.into();
        }
        self
    }

    /// The header `Retry-After` of an error, in seconds. Other faults have none.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        if let Action::Answer(error) = &mut self.action {
            error.retry_after = Some(seconds);
        }
        self
    }

    /// 409 `Conflict`, in Kubernetes' own words for an object that was modified meanwhile.
    pub fn conflict() -> Self {
        Action::Conflict.into()
    }

    /// The request reaches the server so much later.
    pub fn delay_before(delay: Duration) -> Self {
        Action::DelayBefore(delay).into()
    }

    /// The answer comes so much later; of a watch, each event.
    pub fn delay_after(delay: Duration) -> Self {
        Action::DelayAfter(delay).into()
    }

    /// Nothing passes until the fault ends: requests wait, and watches show nothing.
    pub fn hold() -> Self {
        Action::Hold.into()
    }

    /// The connection breaks before the request reaches the server, and open watches that match are cut.
    pub fn disconnect() -> Self {
        Action::Disconnect.into()
    }

    /// The request is served, and the connection breaks before the answer.
    pub fn lose_answer() -> Self {
        Action::LoseAnswer.into()
    }

    /// Watches that match do not show the changes of objects that match by namespace and name, for ever: a
    /// cache between client and store that lags behind. What a watch shows at its beginning is not hidden.
    pub fn hide_events() -> Self {
        Action::HideEvents.into()
    }

    /// Acts so often at most. A watch counts once, however many of its events are held or delayed; of hidden
    /// events each counts.
    pub fn times(mut self, times: usize) -> Self {
        self.times = Some(times);
        self
    }
}
