//! Why something was published, in one line for people.

use super::Slot;
use super::tally::one_line;
use crate::core::{ContainerState, ContainerStatus, Kind, Reading, Settled};

/// Most that is quoted of an answer, in bytes.
const QUOTE: usize = 200;

/// What a former prober had published of a container that is still there.
pub(super) const KEPT: &str = "kept from before the prober's restart";

/// After a tick.
pub(super) fn asked(kind: Kind, deleting: bool, seen: Option<&ContainerStatus>, reading: Reading) -> String {
    match seen.map(|seen| seen.state) {
        Some(ContainerState::Terminated { exit_code }) => {
            return format!("container is not running: it ended with exit code {exit_code}");
        }
        Some(ContainerState::Waiting) => return "container is not running: it waits".to_owned(),
        _ => {}
    }
    match kind {
        Kind::Startup | Kind::Liveness if deleting => "pod is being deleted".to_owned(),
        Kind::Readiness => "new container: readiness counts as Failure until it succeeds".to_owned(),
        Kind::Liveness => "new container: liveness counts as Success until it fails".to_owned(),
        Kind::Startup if reading == Reading::Success => {
            "the container had started before the prober did".to_owned()
        }
        Kind::Startup => {
            "new container: whether it has started is unknown until the probe says so".to_owned()
        }
    }
}

/// After an attempt. `before` is the last result and the run of it before this one; `slot` is as it is now,
/// `text` what the other side said.
pub(super) fn settled(
    settled: Settled,
    before: (Option<Reading>, u32),
    slot: &Slot,
    text: &str,
    strict: bool,
) -> String {
    let probe = &slot.probe;
    let (count, what, threshold) = match settled {
        Settled::Result(result) => {
            let count = if before.0 == Some(result) {
                before.1.saturating_add(1)
            } else {
                1
            };
            match result {
                Reading::Success => (count, "success", probe.success_threshold),
                Reading::Failure | Reading::Unknown => (count, "failure", probe.failure_threshold),
            }
        }
        Settled::Error => {
            let threshold = probe.extras.error_threshold.unwrap_or(probe.failure_threshold);
            (slot.worker.errors(), "error", threshold)
        }
        Settled::Starved => return "the prober was starved".to_owned(),
    };
    let (plural, last) = match (count, what) {
        (1, _) => ("", one_line(text, QUOTE)),
        (_, "success") => ("es", one_line(text, QUOTE)),
        _ => ("s", one_line(text, QUOTE)),
    };
    let said = match (last.is_empty(), count) {
        (true, _) => String::new(),
        (false, 1) => format!(": {last}"),
        (false, _) => format!("; the last: {last}"),
    };
    match probe
        .extras
        .window
        .filter(|_| settled == Settled::Result(Reading::Failure))
    {
        Some(window) if strict => {
            format!(
                "{} of the last {} attempts failed{said}",
                window.failures, window.of
            )
        }
        _ => format!("{count} {what}{plural} in a row (threshold {threshold}){said}"),
    }
}
