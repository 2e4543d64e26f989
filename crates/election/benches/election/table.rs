//! The results for people.

use crate::race::{HANDED_OVER, HANDOVERS, Outcome};
use evenkeel_testkit::candidate::Timing;
use std::fmt::Write as _;
use std::time::Duration;

/// A line of the table.
pub(crate) struct Row {
    pub(crate) timing: Timing,
    pub(crate) kind: &'static str,
    pub(crate) result: Outcome,
}

pub(crate) fn text(rows: &[Row], elections: usize) -> String {
    let mut text = format!(
        "\nCrash: SIGKILL of a leader in {elections} elections; hand-over: {HANDOVERS} times SIGTERM of one in \
         {HANDED_OVER} that releases.\nTimes end when the standby says that it leads.\n\n\
         {:<10} {:<10} {:>19}  {:>19}  {:>17}\n{:<10} {:<10} {:>9} {:>9}  {:>9} {:>9}  {:>8} {:>8}\n",
        "",
        "",
        "crash take-over",
        "planned hand-over",
        "requests/min",
        "timing",
        "elector",
        "p50",
        "p99",
        "p50",
        "p99",
        "leader",
        "standby",
    );
    for Row { timing, kind, result } in rows {
        let timing = format!(
            "{}/{}/{} s",
            timing.lease_duration.as_secs(),
            timing.renew_deadline.as_secs(),
            timing.retry_period.as_secs()
        );
        let at = |samples: &[Duration], percent| {
            format!("{:.0} ms", percentile(samples, percent).as_secs_f64() * 1e3)
        };
        let written = writeln!(
            text,
            "{timing:<10} {kind:<10} {:>9} {:>9}  {:>9} {:>9}  {:>8.1} {:>8.1}",
            at(&result.crash, 50),
            at(&result.crash, 99),
            at(&result.handover, 50),
            at(&result.handover, 99),
            result.leader_requests,
            result.standby_requests,
        );
        written.expect("a String can be written to");
    }
    text.push_str("\nA watch counts when it is opened, which is once in about five minutes.");
    text
}

/// The smallest sample that `percent` of all samples do not exceed.
fn percentile(samples: &[Duration], percent: usize) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted[rank.saturating_sub(1)]
}
