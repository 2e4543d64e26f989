//! How pods end: order, grace periods, and what may go wrong.

use super::*;

/// Leaves stops unanswered.
fn hang(action: &Action) -> Option<Option<Input>> {
    matches!(action, Action::Stop { .. }).then_some(None)
}

fn stopped(container: &str, code: i32) -> Input {
    Input::Stopped {
        container: container.into(),
        result: Ok(exit(code)),
    }
}

#[test]
fn a_second_deletion_with_less_grace_hurries_the_stop() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    assert_eq!(deeds(&bench.play_but(Input::Seen, hang)), ["stop web 30s"]);
    bench.wait(5);
    bench.delete(30);
    assert_eq!(deeds(&bench.play_but(Input::Seen, hang)), [""; 0], "nothing new");
    bench.delete(10);
    assert_eq!(
        deeds(&bench.play_but(Input::Seen, hang)),
        ["stop web 5s"],
        "5 s are gone by"
    );
    bench.delete(0);
    assert_eq!(deeds(&bench.play_but(Input::Seen, hang)), ["stop web 2s"]);
    assert_eq!(
        deeds(&bench.play(stopped("web", 137))),
        ["delete", "remove", "forget"]
    );
}

#[test]
fn two_seconds_are_the_least_grace() {
    let mut bench = Bench::running(web());
    bench.delete(1);
    assert_eq!(deeds(&bench.play_but(Input::Seen, hang)), ["stop web 2s"]);
}

#[test]
fn a_forced_deletion_gives_the_least_time() {
    let mut bench = Bench::running(web());
    bench.delete(0);
    assert_eq!(
        deeds(&bench.play(Input::Seen)),
        ["stop web 2s", "delete", "remove", "forget"]
    );
}

#[test]
fn a_pod_whose_object_is_gone_ends_without_a_word_to_the_api_server() {
    let mut bench = Bench::running(web());
    assert_eq!(
        short(&bench.play(Input::Gone)),
        ["stop web 30s", "delete", "forget"]
    );
}

#[test]
fn a_pod_whose_object_is_gone_has_the_time_that_it_names() {
    let mut bench = Bench::running(pod(&json!({"terminationGracePeriodSeconds": 45})));
    assert_eq!(deeds(&bench.play_but(Input::Gone, hang)), ["stop web 45s"]);
    // The last object was being deleted with another.
    let mut bench = Bench::running(pod(&json!({"terminationGracePeriodSeconds": 45})));
    bench.delete(10);
    assert_eq!(deeds(&bench.play_but(Input::Gone, hang)), ["stop web 10s"]);
    let mut bench = Bench::running(pod(&json!({"terminationGracePeriodSeconds": 0})));
    assert_eq!(deeds(&bench.play_but(Input::Gone, hang)), ["stop web 2s"]);
}

#[test]
fn a_pod_whose_object_is_gone_while_it_stops_has_the_rest_of_its_time() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    bench.play_but(Input::Seen, hang);
    assert_eq!(short(&bench.play_but(Input::Gone, hang)), [""; 0]);
    assert_eq!(short(&bench.play(stopped("web", 0))), ["delete", "forget"]);
}

#[test]
fn a_pod_whose_object_is_gone_before_it_was_taken_over_is_deleted_at_once() {
    let running = Bench::running(web());
    let mut bench = Bench::new(running.pod);
    bench.step(Input::Seen);
    assert_eq!(deeds(&bench.step(Input::Gone)), [""; 0], "one call at a time");
    assert_eq!(
        deeds(&bench.play(Input::Adopted(Err(fault(FaultKind::Later, "Busy"))))),
        ["delete", "forget"]
    );
}

#[test]
fn a_pod_that_is_deleted_while_it_is_created_leaves_nothing_behind() {
    let mut bench = Bench::new(web());
    bench.step(Input::Seen);
    bench.delete(30);
    assert_eq!(short(&bench.step(Input::Seen)), [""; 0]);
    assert_eq!(
        short(&bench.play(Input::Created(Ok(sandbox())))),
        ["post Failed", "delete", "remove", "forget"]
    );
}

#[test]
fn a_container_that_starts_while_its_pod_is_deleted_is_stopped_as_soon_as_it_runs() {
    let mut bench = Bench::new(web());
    bench.play_but(Input::Seen, |action| {
        matches!(action, Action::Start { .. }).then_some(None)
    });
    bench.delete(30);
    assert_eq!(deeds(&bench.step(Input::Seen)), [""; 0]);
    let answer = Input::Started {
        container: "web".into(),
        result: Ok(started("sim://web/0")),
    };
    assert_eq!(
        deeds(&bench.play(answer)),
        ["stop web 30s", "delete", "remove", "forget"]
    );
}

#[test]
fn a_stop_that_fails_is_tried_again_and_never_lost() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    let refuse = |action: &Action| match action {
        Action::Stop { container, .. } => Some(Some(Input::Stopped {
            container: container.clone(),
            result: Err(fault(FaultKind::Later, "Busy")),
        })),
        _ => None,
    };
    assert_eq!(wake(&bench.play_but(Input::Seen, refuse)), Some(1));
    bench.wait(2);
    assert_eq!(deeds(&bench.play_but(Input::Tick, refuse)), ["stop web 28s"]);
    bench.wait(60);
    let asked = bench.play(Input::Tick);
    assert_eq!(deeds(&asked), ["stop web 2s", "delete", "remove", "forget"]);
    assert_eq!(
        events(&bench.log)
            .iter()
            .filter(|(reason, _)| *reason == "Killing")
            .count(),
        1,
        "it is said once"
    );
}

#[test]
fn the_terminal_status_comes_with_the_last_end_and_before_the_removal() {
    let mut bench = Bench::running(pod(&json!({"containers": [
        {"name": "a", "image": "a"}, {"name": "b", "image": "b"}]})));
    bench.delete(30);
    let asked = bench.play_but(Input::Seen, hang);
    assert_eq!(deeds(&asked), ["stop b 30s", "stop a 30s"]);
    let said: Vec<String> = events(&asked).into_iter().map(|(_, message)| message).collect();
    assert_eq!(said, ["Stopping container b", "Stopping container a"]);
    assert_eq!(short(&bench.play(stopped("a", 0))), ["post Running"]);
    let asked = bench.step(stopped("b", 3));
    assert_eq!(short(&asked), ["post Failed", "delete"]);
    assert_eq!(terminated(&bench.container("a")), (0, "Completed".to_owned()));
    assert_eq!(terminated(&bench.container("b")), (3, "Error".to_owned()));
    assert_eq!(
        short(&bench.step(Input::Deleted(Ok(())))),
        [""; 0],
        "the status first"
    );
    assert_eq!(
        short(&bench.play(Input::Posted(Posted::Done("9".to_owned())))),
        ["remove", "forget"]
    );
}

#[test]
fn a_status_that_cannot_be_written_does_not_keep_the_pod() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    let asked = bench.play_but(Input::Seen, |action| {
        matches!(action, Action::Post(_)).then(|| Some(Input::Posted(Posted::Refused("no".to_owned()))))
    });
    assert_eq!(deeds(&asked), ["stop web 30s", "delete", "remove", "forget"]);
}

#[test]
fn an_object_that_stays_for_its_finalizers_is_asked_for_again() {
    let mut bench = Bench::running(web());
    bench.delete(30);
    let stays = |action: &Action| matches!(action, Action::Remove).then_some(Some(Input::Removed(false)));
    let asked = bench.play_but(Input::Seen, stays);
    assert_eq!(deeds(&asked), ["stop web 30s", "delete", "remove"]);
    assert_eq!(wake(&asked), Some(1));
    assert_eq!(short(&bench.play(Input::Gone)), ["forget"]);
}

#[test]
fn sidecars_stop_after_the_others_in_reverse_order() {
    let sidecar = |name: &str| json!({"name": name, "image": name, "restartPolicy": "Always"});
    let mut bench = Bench::running(pod(&json!({"initContainers": [sidecar("one"), sidecar("two")]})));
    bench.delete(30);
    assert_eq!(deeds(&bench.play_but(Input::Seen, hang)), ["stop web 30s"]);
    bench.wait(10);
    assert_eq!(deeds(&bench.play_but(stopped("web", 0), hang)), ["stop two 20s"]);
    bench.wait(25);
    assert_eq!(deeds(&bench.play_but(stopped("two", 0), hang)), ["stop one 2s"]);
    assert_eq!(
        deeds(&bench.play(stopped("one", 1))),
        ["delete", "remove", "forget"]
    );
    assert_eq!(bench.phase(), "Succeeded", "sidecars do not count");
}

#[test]
fn a_kill_that_is_under_way_is_hurried_by_a_deletion_with_less_time() {
    let mut bench = Bench::running(pod(&json!({"terminationGracePeriodSeconds": 60})));
    bench.pod.spec.as_mut().unwrap().containers[0].image = Some("web:2".to_owned());
    assert_eq!(deeds(&bench.play_but(Input::Seen, hang)), ["stop web 60s"]);
    bench.delete(5);
    assert_eq!(deeds(&bench.play_but(Input::Seen, hang)), ["stop web 5s"]);
    assert_eq!(
        deeds(&bench.play(stopped("web", 0))),
        ["delete", "remove", "forget"]
    );
}
