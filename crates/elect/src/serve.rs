//! The HTTP endpoints of a runner: `/leader`, beside the admin endpoints.

use axum::routing::get;
use axum::{Json, Router};
use evenkeel_election::FencingToken;
use evenkeel_election::clock::{Clock as _, SystemClock};
use evenkeel_net::admin::Admin;
use serde::Serialize;
use std::time::Duration;
use tokio::sync::watch;

/// What the runner knows about leadership.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    /// Holder of the lease when it was last seen; empty if nobody holds it.
    pub(crate) holder: String,
    /// This candidate's own term, and until when it is proven, in boot time.
    pub(crate) term: Option<(FencingToken, Duration)>,
}

/// Answer of `/leader`. The first field is the one that the well-known leader-elector sidecar serves.
#[derive(Debug, Serialize)]
struct Leader {
    name: String,
    identity: String,
    leading: bool,
    token: Option<String>,
    valid_for_seconds: Option<f64>,
}

impl Leader {
    fn new(view: &View, identity: &str, now: Duration) -> Self {
        let term = view.term.as_ref().filter(|(_, until)| now < *until);
        Self {
            name: view.holder.clone(),
            identity: identity.to_owned(),
            leading: term.is_some(),
            token: term.map(|(token, _)| token.to_string()),
            valid_for_seconds: term.map(|(_, until)| until.saturating_sub(now).as_secs_f64()),
        }
    }
}

/// The admin endpoints and `/leader`.
pub(crate) fn router(admin: Admin, view: watch::Receiver<View>, identity: String) -> Router {
    let leader = get(move || async move {
        let leader = Leader::new(&view.borrow(), &identity, SystemClock.boot());
        Json(leader)
    });
    admin.router().route("/leader", leader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_comes_first_and_a_term_ends_by_the_clock() {
        let token = FencingToken {
            lease_uid: "u".into(),
            transitions: 3,
        };
        let view = View {
            holder: "me".into(),
            term: Some((token, Duration::from_secs(10))),
        };
        let at =
            |seconds| serde_json::to_string(&Leader::new(&view, "me", Duration::from_secs(seconds))).unwrap();
        assert_eq!(
            at(8),
            r#"{"name":"me","identity":"me","leading":true,"token":"u/3","valid_for_seconds":2.0}"#
        );
        assert_eq!(
            at(10),
            r#"{"name":"me","identity":"me","leading":false,"token":null,"valid_for_seconds":null}"#
        );
        assert_eq!(
            serde_json::to_string(&Leader::new(&View::default(), "me", Duration::ZERO)).unwrap(),
            r#"{"name":"","identity":"me","leading":false,"token":null,"valid_for_seconds":null}"#
        );
    }
}
