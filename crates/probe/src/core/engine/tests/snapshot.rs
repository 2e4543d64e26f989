//! A prober follows another.

use super::*;

/// What a prober of two failures (of three) leaves behind, by way of JSON.
fn left(compat: Compat) -> Snapshot {
    let mut engine = engine(compat);
    engine.add_pod(simple("p", &[(Kind::Readiness, probe())]), secs(100));
    engine.update_status("p", up("c://1", 100), secs(100));
    drive(&mut engine, secs(100), well);
    while engine
        .inspect()
        .all(|seen| seen.worker.run() != (Some(Reading::Failure), 2))
    {
        let due = at(engine.due().expect("a next"));
        drive(&mut engine, due, badly);
    }
    let json = serde_json::to_string(&engine.snapshot()).expect("a snapshot is plain data");
    let read: Snapshot = serde_json::from_str(&json).expect("what was written can be read");
    assert_eq!(serde_json::to_string(&read).expect("plain data"), json);
    read
}

fn next(compat: Compat, snapshot: Snapshot) -> Engine {
    let mut settings = config(compat);
    settings.policy.started = secs(1000);
    let mut engine = Engine::new(settings);
    engine.restore(snapshot);
    engine.add_pod(simple("p", &[(Kind::Readiness, probe())]), secs(1000));
    engine
}

#[test]
fn a_container_that_still_runs_neither_flaps_nor_loses_its_counters() {
    for compat in [Compat::Kubelet, Compat::Strict] {
        let mut engine = next(compat, left(compat));
        assert_eq!(
            engine.reading("p", "c", Kind::Readiness, "c://1"),
            Some(Reading::Success)
        );
        assert!(
            engine.update_status("p", up("c://1", 100), secs(1000))[0].ready,
            "whatever the pod's condition"
        );
        let made = drive(&mut engine, secs(1010), badly);
        assert_eq!(made.len(), 1, "{made:?}");
        let notices = engine.drain();
        let [(_, Reading::Success, _), (Kind::Readiness, Reading::Failure, why)] = published(&notices)[..]
        else {
            panic!("{notices:?}");
        };
        assert!(
            why.starts_with("3 failures in a row (threshold 3); the last: HTTP"),
            "{why}"
        );
        assert_eq!(engine.inspect().next().expect("a worker").tally.failed, 3);
    }
}

#[test]
fn another_container_starts_anew() {
    for compat in [Compat::Kubelet, Compat::Strict] {
        let mut engine = next(compat, left(compat));
        assert!(!engine.update_status("p", up("c://2", 1000), secs(1000))[0].ready);
        drive(&mut engine, secs(1010), badly);
        assert_eq!(
            engine.reading("p", "c", Kind::Readiness, "c://2"),
            Some(Reading::Failure)
        );
        let run = engine.inspect().next().expect("a worker").worker.run();
        assert!(run.1 <= 2, "a run of its own: {run:?}");
        assert_eq!(engine.reading("p", "c", Kind::Readiness, "c://1"), None);
    }
}

#[test]
fn what_nobody_takes_up_is_kept_until_the_pods_are_known() {
    let mut engine = engine(Compat::Kubelet);
    let left = left(Compat::Kubelet);
    engine.restore(left.clone());
    assert_eq!(
        engine.snapshot(),
        left,
        "a prober that stops at once loses nothing"
    );
    engine.retain_pods(&["p".into()].into());
    assert_eq!(engine.snapshot(), left);
    engine.retain_pods(&[].into());
    assert_eq!(engine.snapshot(), Snapshot::default());
    engine.restore(left);
    engine.add_pod(simple("p", &[(Kind::Liveness, probe())]), secs(100));
    assert_eq!(engine.snapshot(), Snapshot::default(), "its probe is gone");
    engine.remove_pod("p");
    assert_empty(&engine);
}

#[test]
fn a_snapshot_without_tallies_can_be_read() {
    let mut json = serde_json::to_value(left(Compat::Strict)).expect("plain data");
    json["workers"][0]
        .as_object_mut()
        .expect("a worker")
        .remove("tally");
    let read: Snapshot = serde_json::from_value(json).expect("the tally may be missing");
    assert_eq!(read.workers[0].tally, Tally::default());
}

#[test]
fn a_failure_that_nobody_may_have_acted_on_is_told_again_and_once() {
    for compat in [Compat::Kubelet, Compat::Strict] {
        let liveness = simple("p", &[(Kind::Liveness, probe())]);
        let mut engine = engine(compat);
        engine.add_pod(liveness.clone(), secs(100));
        engine.update_status("p", up("c://1", 100), secs(100));
        drive(&mut engine, secs(140), badly);
        assert!(engine.inspect().all(|seen| seen.worker.on_hold()));

        // The prober ends before anybody has killed the container.
        let mut settings = config(compat);
        settings.policy.started = secs(1000);
        let mut next = Engine::new(settings);
        next.restore(engine.snapshot());
        next.add_pod(liveness, secs(1000));
        drive(&mut next, secs(1020), badly);
        assert_eq!(
            published(&next.drain()),
            [],
            "{compat:?}: is it still the same container?"
        );
        next.update_status("p", up("c://1", 100), secs(1020));
        drive(&mut next, secs(1100), badly);
        assert_eq!(
            published(&next.drain()),
            [(
                Kind::Liveness,
                Reading::Failure,
                "kept from before the prober's restart"
            )],
            "{compat:?}"
        );
    }
}
