//! Events, and times as Go and Kubernetes write them.

use super::Action;
use crate::core::Event;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;
use std::time::Duration;

/// A `Normal` event.
pub(super) fn note(container: Option<Arc<str>>, reason: &'static str, message: String) -> Action {
    Action::Record {
        container,
        event: Event {
            warning: false,
            reason,
            message,
        },
    }
}

pub(super) fn warning(container: Option<Arc<str>>, reason: &'static str, message: String) -> Action {
    Action::Record {
        container,
        event: Event {
            warning: true,
            reason,
            message,
        },
    }
}

/// `10s`, `2m40s`, `5m0s`, `1h0m0s`. Fractions of a second are left out.
pub(super) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// A list as Go prints it: `[a b]`.
pub(super) fn list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

/// In whole seconds, as Kubernetes writes times.
pub(super) fn whole(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
