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

/// Which samples are shown.
const SHOWN: [(&str, usize); 4] = [("p50", 50), ("p90", 90), ("p99", 99), ("worst", 100)];

pub(crate) fn text(rows: &[Row], elections: usize, busy: usize) -> String {
    let mut text = format!(
        "\nCrash: SIGKILL of a leader in {elections} elections; hand-over: {HANDOVERS} times SIGTERM of one in \
         {HANDED_OVER} that releases.\nTimes in ms, until the standby says that it leads. Threads that compute beside: {busy}.\n\n\
         {:<10} {:<10} {:>31}  {:>31}  {:>17}\n{:<10} {:<10}",
        "", "", "crash take-over", "planned hand-over", "requests/min", "timing", "elector",
    );
    for _ in 0..2 {
        let names = SHOWN.map(|(name, _)| format!("{name:>7}"));
        write!(text, " {}", names.join(" ")).expect("a String can be written to");
    }
    writeln!(text, "  {:>8} {:>8}", "leader", "standby").expect("a String can be written to");
    for Row { timing, kind, result } in rows {
        let timing = format!(
            "{}/{}/{} s",
            timing.lease_duration.as_secs(),
            timing.renew_deadline.as_secs(),
            timing.retry_period.as_secs()
        );
        let figures = |samples: &[Duration]| {
            let at = |(_, percent)| percentile(samples, percent).as_secs_f64() * 1e3;
            SHOWN.map(|shown| format!("{:>7.0}", at(shown))).join(" ")
        };
        let written = writeln!(
            text,
            "{timing:<10} {kind:<10} {} {}  {:>8.1} {:>8.1}",
            figures(&result.crash),
            figures(&result.handover),
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
