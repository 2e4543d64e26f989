use super::*;
use crate::core::{Handler, Port, Probe};
use std::sync::Arc;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn delays_double_from_ten_seconds_to_five_minutes() {
    let mut back_off = BackOff::default();
    let mut now = secs(100);
    let mut delays = Vec::new();
    for _ in 0..8 {
        let delay = back_off.delay(now, BackOff::MOST);
        delays.push(delay.as_secs());
        let ended = now;
        now += delay;
        back_off.advance(ended, now, BackOff::FIRST, BackOff::MOST);
        now += secs(1);
    }
    assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn a_container_that_ran_for_more_than_ten_minutes_starts_anew() {
    let mut back_off = BackOff::default();
    back_off.advance(secs(0), secs(0), BackOff::FIRST, BackOff::MOST);
    assert_eq!(back_off.delay(secs(600), BackOff::MOST), secs(10));
    assert_eq!(back_off.delay(secs(601), BackOff::MOST), secs(0));
}

#[test]
fn a_probe_s_grace_goes_before_the_pod_s_and_two_seconds_are_the_least() {
    let mut probe = Probe::new(Handler::TcpSocket {
        port: Port::Number(1),
        host: None,
    });
    let container = |probe: &Probe| Container {
        liveness: Some(Arc::new(probe.clone())),
        ..Container::default()
    };
    assert_eq!(kill_grace(&container(&probe), Kind::Liveness, secs(30)), secs(30));
    probe.termination_grace_period = Some(secs(5));
    assert_eq!(kill_grace(&container(&probe), Kind::Liveness, secs(30)), secs(5));
    assert_eq!(kill_grace(&container(&probe), Kind::Startup, secs(30)), secs(30));
    probe.termination_grace_period = Some(secs(1));
    assert_eq!(kill_grace(&container(&probe), Kind::Liveness, secs(30)), secs(2));
}
