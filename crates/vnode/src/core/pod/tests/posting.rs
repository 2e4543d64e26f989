//! When the status is written, and when not.

use super::*;

fn posts(actions: &[Action]) -> usize {
    actions
        .iter()
        .filter(|action| matches!(action, Action::Post(_)))
        .count()
}

fn hang(action: &Action) -> Option<Option<Input>> {
    matches!(action, Action::Post(_)).then_some(None)
}

fn refuse(action: &Action) -> Option<Option<Input>> {
    matches!(action, Action::Post(_)).then(|| Some(Input::Posted(Posted::Refused("no".to_owned()))))
}

#[test]
fn a_status_that_stands_is_not_written_again() {
    let mut bench = Bench::running(web());
    bench.wait(3600);
    assert_eq!(posts(&bench.play(Input::Seen)), 0);
    assert_eq!(posts(&bench.play(Input::Tick)), 0);
}

#[test]
fn a_newer_status_follows_while_an_older_one_is_being_written() {
    let mut bench = Bench::running(web());
    bench.wait(60);
    let end = bench.ends("web", 1);
    let ended = bench.play_but(end, hang);
    assert_eq!(posts(&ended), 2, "it ended, and was started again");
    assert_eq!(posts(&bench.step(Input::Tick)), 0, "and is not repeated");
}

#[test]
fn a_pod_is_seen_pending_before_it_runs_however_soon_it_runs() {
    let mut bench = Bench::new(web());
    let mut first = None;
    let asked = bench.play_but(Input::Seen, |action| match action {
        Action::Post(status) => {
            first = Some(status.clone());
            Some(None)
        }
        _ => None,
    });
    assert_eq!(
        short(&asked),
        ["create", "post Pending", "start web 0", "post Pending"]
    );
    let version = bench.write(&first.unwrap());
    let asked = bench.play(Input::Posted(Posted::Done(version)));
    assert_eq!(short(&asked), ["post Running"]);
    assert_eq!(bench.phase(), "Running");
}

#[test]
fn an_object_older_than_what_was_written_says_nothing_of_the_status() {
    let mut bench = Bench::running(web());
    bench.wait(60);
    let new = bench.pod.clone();
    bench.pod.status = None;
    bench.pod.metadata.resource_version = Some("1".to_owned());
    assert_eq!(bench.step(Input::Seen), []);
    bench.pod = new;
    assert_eq!(bench.step(Input::Seen), []);
}

#[test]
fn an_object_without_a_version_is_not_taken_for_a_newer_one() {
    for version in [None, Some("0"), Some("x")] {
        let mut bench = Bench::running(web());
        bench.wait(60);
        bench.pod.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        bench.pod.metadata.resource_version = version.map(str::to_owned);
        assert_eq!(bench.step(Input::Seen), [], "{version:?}");
        assert_eq!(bench.phase(), "Running");
    }
}

#[test]
fn what_somebody_else_changed_is_put_right_after_a_while() {
    let mut bench = Bench::running(web());
    bench.wait(3);
    bench.pod.status.as_mut().unwrap().pod_ip = Some("1.2.3.4".to_owned());
    bench.bump();
    let asked = bench.play(Input::Seen);
    assert_eq!((posts(&asked), wake(&asked)), (0, Some(7)));
    bench.wait(7);
    assert_eq!(posts(&bench.play(Input::Tick)), 1);
    assert_eq!(bench.pod.status.unwrap().pod_ip.as_deref(), Some("10.1.0.7"));
}

#[test]
fn what_is_changed_each_time_it_is_written_is_put_right_later_and_later() {
    let mut bench = Bench::running(web());
    let mut waits = Vec::new();
    let normalise = |bench: &mut Bench| {
        bench.pod.status.as_mut().unwrap().pod_ip = Some("1.2.3.4".to_owned());
        bench.bump();
    };
    for _ in 0..7 {
        normalise(&mut bench);
        let asked = bench.play(Input::Seen);
        assert_eq!(posts(&asked), 0);
        let wait = wake(&asked).expect("it is put right some time");
        waits.push(wait);
        bench.wait(wait);
        assert_eq!(posts(&bench.play(Input::Tick)), 1);
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    // Something else is wanted: that may stand.
    let end = bench.ends("web", 1);
    bench.play(end);
    normalise(&mut bench);
    let asked = bench.play(Input::Seen);
    assert!(wake(&asked).is_some_and(|wait| wait <= 10), "{:?}", wake(&asked));
}

#[test]
fn an_api_server_that_drops_the_observed_generation_is_not_written_to_for_ever() {
    let mut bench = Bench::running(web());
    bench.wait(60);
    bench.pod.status.as_mut().unwrap().observed_generation = None;
    bench.bump();
    assert_eq!(posts(&bench.play(Input::Seen)), 0);
    bench.pod.metadata.generation = Some(2);
    bench.bump();
    assert_eq!(posts(&bench.play(Input::Seen)), 0, "nor for the next one");
    bench.wait(60);
    bench.pod.status.as_mut().unwrap().pod_ip = None;
    bench.bump();
    assert_eq!(posts(&bench.play(Input::Seen)), 1);
    assert_eq!(bench.pod.status.as_ref().unwrap().observed_generation, Some(2));
    // This one keeps it: it is told of the next one.
    bench.pod.metadata.generation = Some(3);
    bench.bump();
    assert_eq!(posts(&bench.play(Input::Seen)), 1);
}

#[test]
fn a_change_of_a_quiet_status_is_put_right_at_once() {
    let mut bench = Bench::running(web());
    bench.wait(60);
    bench.pod.status.as_mut().unwrap().container_statuses = None;
    bench.bump();
    assert_eq!(posts(&bench.play(Input::Seen)), 1);
}

#[test]
fn foreign_conditions_and_fields_are_nobody_s_business() {
    let mut bench = Bench::running(web());
    bench.wait(60);
    let status = bench.pod.status.as_mut().unwrap();
    status.nominated_node_name = Some("other".to_owned());
    status.conditions.as_mut().unwrap().push(
        serde_json::from_value(json!({"type": "module.koupleless.io/installed", "status": "True"})).unwrap(),
    );
    bench.bump();
    assert_eq!(posts(&bench.play(Input::Seen)), 0);
    let own = bench.status().conditions.unwrap();
    assert!(
        own.iter().all(|condition| !condition.type_.contains('/')),
        "{own:?}"
    );
}

#[test]
fn what_an_api_server_makes_of_empty_fields_is_no_change() {
    let mut bench = Bench::running(web());
    bench.wait(60);
    let status = bench.pod.status.as_mut().unwrap();
    status.reason = Some(String::new());
    status.container_statuses.as_mut().unwrap()[0].last_state = Some(Default::default());
    for condition in status.conditions.as_mut().unwrap() {
        condition.message = Some(String::new());
        condition.last_probe_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time(0)));
    }
    bench.bump();
    assert_eq!(posts(&bench.play(Input::Seen)), 0);
}

#[test]
fn a_refused_status_is_not_repeated_for_a_minute() {
    let mut bench = Bench::new(web());
    let asked = bench.play_but(Input::Seen, refuse);
    assert_eq!(wake(&asked), Some(60));
    bench.wait(59);
    assert_eq!(posts(&bench.play(Input::Tick)), 0);
    bench.wait(1);
    assert_eq!(posts(&bench.play(Input::Tick)), 1);
}

#[test]
fn a_refused_status_is_written_when_something_has_changed() {
    let mut bench = Bench::new(web());
    bench.play_but(Input::Seen, refuse);
    bench.wait(20);
    bench.bump();
    assert_eq!(posts(&bench.play_but(Input::Seen, refuse)), 1, "the object has");
    let end = bench.ends("web", 1);
    assert!(posts(&bench.play(end)) > 0, "the status has");
}

#[test]
fn a_write_that_was_overtaken_waits_for_the_watch() {
    let mut bench = Bench::new(web());
    let overtaken =
        |action: &Action| matches!(action, Action::Post(_)).then_some(Some(Input::Posted(Posted::Overtaken)));
    bench.play_but(Input::Seen, overtaken);
    assert_eq!(posts(&bench.step(Input::Tick)), 0);
    bench.wait(10);
    assert_eq!(posts(&bench.play(Input::Tick)), 1, "and does not wait for ever");
}

#[test]
fn a_pod_that_was_made_again_under_its_name_is_not_touched_by_the_old_one_s_end() {
    let mut old = Bench::running(web());
    old.delete(0);
    let asked = old.play_but(Input::Seen, |action| match action {
        Action::Post(_) => Some(Some(Input::Posted(Posted::Overtaken))),
        // It has another UID by now.
        Action::Remove => Some(Some(Input::Removed(true))),
        _ => None,
    });
    assert_eq!(deeds(&asked), ["stop web 2s", "delete", "remove", "forget"]);
    let mut pod = web();
    pod.metadata.uid = Some("uid-2".to_owned());
    assert_eq!(deeds(&Bench::running(pod).log), ["create", "start web 0"]);
}

#[test]
fn a_terminal_status_is_never_taken_back() {
    let mut bench = Bench::running(pod(&json!({"restartPolicy": "Never"})));
    let end = bench.ends("web", 0);
    bench.play(end);
    bench.pod.status.as_mut().unwrap().phase = Some("Running".to_owned());
    bench.bump();
    bench.wait(60);
    assert_eq!(short(&bench.play(Input::Seen)), ["post Succeeded"]);
    bench.pod.status.as_mut().unwrap().phase = Some("Failed".to_owned());
    bench.bump();
    bench.wait(60);
    bench.play(Input::Seen);
    assert_eq!(
        bench.phase(),
        "Failed",
        "what the API server holds to be terminal stays"
    );
}
