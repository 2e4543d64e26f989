//! Rules about times and costs.

use super::{Hit, PodSeen, Seen, hit};
use crate::core::{Handler, Kind, Probe};
use std::time::Duration;

/// Commands that run more often than this cost too much.
const EXEC_PERIOD: Duration = Duration::from_secs(10);
/// Processes per minute over all replicas that are worth a word: one a second.
const EXEC_PER_MINUTE: f64 = 60.0;
/// Delays of liveness from here on are meant for slow starts.
const LONG_DELAY: Duration = Duration::from_secs(30);
/// Pauses of a healthy process are shorter.
const PAUSE: Duration = Duration::from_secs(10);
/// Failures of readiness are to be found sooner.
const LATE: Duration = Duration::from_secs(60);

/// From the first failure to what it leads to.
fn budget(probe: &Probe) -> Duration {
    probe.period.saturating_mul(probe.failure_threshold)
}

pub(super) fn frequent_exec(_: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    let exec = matches!(probe.handler, Handler::Exec { .. });
    if !exec || probe.period >= EXEC_PERIOD {
        return None;
    }
    hit(
        "periodSeconds",
        format!("a process is started every {:?}", probe.period),
    )
}

pub(super) fn exec_load(seen: &PodSeen) -> Option<Hit> {
    let probes = || {
        let of = |kind| {
            seen.pod
                .containers
                .iter()
                .filter_map(move |one| one.probe(kind))
                .filter(|probe| matches!(probe.handler, Handler::Exec { .. }))
        };
        of(Kind::Readiness).chain(of(Kind::Liveness))
    };
    let replicas = f64::from(seen.workload.replicas?);
    let rate: f64 = probes().map(|probe| 60.0 / probe.period.as_secs_f64()).sum();
    let total = rate * replicas;
    if total < EXEC_PER_MINUTE {
        return None;
    }
    hit(
        "spec",
        format!(
            "exec probes start {total:.0} processes a minute (probes: {}, replicas: {replicas})",
            probes().count()
        ),
    )
}

pub(super) fn slow_timeout(_: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    if probe.timeout <= probe.period {
        return None;
    }
    hit(
        "timeoutSeconds",
        format!(
            "the timeout of {:?} is longer than the period of {:?}",
            probe.timeout, probe.period
        ),
    )
}

pub(super) fn same_probe(seen: &Seen) -> Option<Hit> {
    let (liveness, readiness) = (
        seen.container.liveness.as_ref()?,
        seen.container.readiness.as_ref()?,
    );
    if liveness.handler != readiness.handler || budget(liveness) > budget(readiness) {
        return None;
    }
    hit(
        Kind::Liveness.field(),
        format!(
            "liveness asks what readiness asks, and restarts after {:?} what readiness withdraws after {:?}",
            budget(liveness),
            budget(readiness)
        ),
    )
}

pub(super) fn long_delay(seen: &Seen) -> Option<Hit> {
    let liveness = seen.container.liveness.as_ref()?;
    if seen.container.startup.is_some() || liveness.initial_delay < LONG_DELAY {
        return None;
    }
    hit(
        "livenessProbe.initialDelaySeconds",
        format!(
            "liveness is blind for {:?} after each start",
            liveness.initial_delay
        ),
    )
}

pub(super) fn short_startup(seen: &Seen) -> Option<Hit> {
    let (startup, liveness) = (
        seen.container.startup.as_ref()?,
        seen.container.liveness.as_ref()?,
    );
    let allowed = startup.initial_delay.saturating_add(budget(startup));
    if allowed >= liveness.initial_delay {
        return None;
    }
    hit(
        "startupProbe",
        format!(
            "a start may take {allowed:?}, yet liveness expects up to {:?}",
            liveness.initial_delay
        ),
    )
}

pub(super) fn hasty_liveness(_: &Seen, kind: Kind, probe: &Probe) -> Option<Hit> {
    if kind != Kind::Liveness {
        return None;
    }
    if probe.failure_threshold == 1 {
        return hit("failureThreshold", "a single failure restarts the container");
    }
    if budget(probe) < PAUSE && probe.timeout <= Duration::from_secs(1) {
        return hit(
            "",
            format!("a pause of {:?} restarts the container", budget(probe)),
        );
    }
    None
}

pub(super) fn late_readiness(_: &Seen, kind: Kind, probe: &Probe) -> Option<Hit> {
    if kind != Kind::Readiness || budget(probe) <= LATE {
        return None;
    }
    hit("", format!("a failure is noticed after {:?}", budget(probe)))
}

pub(super) fn slow_return(_: &Seen, kind: Kind, probe: &Probe) -> Option<Hit> {
    if kind != Kind::Readiness || probe.success_threshold == 1 {
        return None;
    }
    let takes = probe.period.saturating_mul(probe.success_threshold);
    hit(
        "successThreshold",
        format!("the container is back in service after {takes:?} of successes"),
    )
}

pub(super) fn jitter(_: &Seen, _: Kind, probe: &Probe) -> Option<Hit> {
    if probe.initial_delay.is_zero() || probe.period < probe.initial_delay {
        return None;
    }
    hit(
        "initialDelaySeconds",
        format!(
            "the first probe comes between {:?} and {:?} after the start",
            probe.initial_delay,
            probe.initial_delay.saturating_add(probe.period)
        ),
    )
}
