//! What a runner tells others: `/leader`, beside the admin endpoints.

use crate::clock::{Clock as _, SystemClock};
use crate::core::FencingToken;
use axum::routing::get;
use axum::{Json, Router};
use evenkeel_net::admin::Admin;
use serde::Serialize;
use std::time::Duration;
use tokio::sync::watch;

/// What the runner knows of leadership.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    /// Who holds the lease, as last seen; empty for nobody.
    pub(super) holder: String,
    /// The own term and up to when it is proven, in boot time.
    pub(super) term: Option<(FencingToken, Duration)>,
}

/// Answer of `/leader`. The first field is that of the well-known leader-elector sidecar.
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
pub(super) fn router(admin: Admin, view: watch::Receiver<View>, identity: String) -> Router {
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
