use super::*;
use crate::observe::facts::{EndpointFact, IncidentFact, Kind, PodFact, SliceFact};
use crate::scenario::Span;
use crate::scenario::{nowhere, step::Reported};

/// A record under construction: two nodes, `web-a` and `db-0` on a, `web-b` on b, all endpoints ready; the
/// fault strikes node a at 10 s.
struct Story {
    changes: Vec<Change>,
}

fn pod(name: &str, node: &str) -> PodFact {
    let workload = if name.starts_with("db") {
        "statefulset/db"
    } else {
        "deployment/web"
    };
    PodFact {
        uid: format!("uid-{name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        workload: workload.to_owned(),
        node: node.to_owned(),
        ready: true,
        ..PodFact::default()
    }
}

fn slice(endpoints: &[(&str, &str, bool)]) -> Watched {
    let endpoint = |(pod, node, ready): &(&str, &str, bool)| EndpointFact {
        target: format!("uid-{pod}"),
        name: (*pod).to_owned(),
        node: (*node).to_owned(),
        ready: *ready,
    };
    Watched::Slice(SliceFact {
        uid: "slice".to_owned(),
        service: "default/web".to_owned(),
        endpoints: endpoints.iter().map(endpoint).collect(),
    })
}

fn strike() -> Strike {
    Strike {
        at: Duration::from_secs(10),
        lasts: Duration::ZERO,
        first: Duration::from_secs(10),
        node: Some("a".to_owned()),
        what: "a off".to_owned(),
        silences: true,
    }
}

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

impl Story {
    fn new() -> Self {
        Self { changes: Vec::new() }
            .then(1.0, Watched::Pod(pod("web-a", "a")))
            .then(1.0, Watched::Pod(pod("web-b", "b")))
            .then(1.0, Watched::Pod(pod("db-0", "a")))
            .then(2.0, slice(&[("web-a", "a", true), ("web-b", "b", true)]))
    }

    fn then(mut self, seconds: f64, what: Watched) -> Self {
        self.changes.push(Change {
            at: at(seconds),
            what,
        });
        self
    }

    fn expect(&self, expect: Expect, until: f64) -> Finding {
        let mut findings = super::expect(&expect, &self.changes, &strike(), at(until));
        assert_eq!(findings.len(), 1);
        findings.remove(0)
    }

    fn out(&self, until: f64) -> Finding {
        self.expect(
            Expect {
                endpoints_out: Some(Span(at(10.0))),
                ..NOTHING
            },
            until,
        )
    }

    fn replaced(&self, until: f64) -> Finding {
        self.expect(
            Expect {
                replaced: Some(Span(at(30.0))),
                ..NOTHING
            },
            until,
        )
    }

    fn stateful(&self, until: f64) -> Finding {
        self.expect(
            Expect {
                stateful_not_moved: true,
                ..NOTHING
            },
            until,
        )
    }

    fn moved(&self, until: f64) -> Finding {
        self.expect(
            Expect {
                pods_moved: Some(0),
                ..NOTHING
            },
            until,
        )
    }

    fn lost(&self, until: f64) -> Finding {
        self.expect(
            Expect {
                endpoints_lost: Some(0),
                ..NOTHING
            },
            until,
        )
    }
}

const NOTHING: Expect = Expect {
    on: Vec::new(),
    endpoints_out: None,
    replaced: None,
    stateful_not_moved: false,
    endpoints_back: None,
    reported: None,
    pods_moved: None,
    endpoints_lost: None,
    state_changes: None,
};

#[test]
fn nothing_happened() {
    let story = Story::new();
    for finding in [story.moved(70.0), story.lost(70.0)] {
        assert!(finding.held, "{finding:?}");
        assert_eq!(finding.count, Some(0));
    }
    assert!(story.stateful(70.0).held);
    let out = story.out(70.0);
    assert!(!out.held && out.measured == "not in 60.0 s", "{out:?}");
    assert_eq!(out.detail, ["web-a is still ready in default/web"]);
    assert_eq!(
        story.replaced(70.0).detail,
        ["deployment/web: 1 of 2 ready elsewhere"]
    );
}

#[test]
fn an_endpoint_that_flickers_is_lost() {
    let story = Story::new()
        .then(25.0, slice(&[("web-a", "a", false), ("web-b", "b", true)]))
        .then(26.0, slice(&[("web-a", "a", true), ("web-b", "b", true)]));
    let lost = story.lost(70.0);
    assert_eq!((lost.held, lost.count), (false, Some(1)));
    assert_eq!(lost.detail, ["web-a of default/web on a after 15.0 s"]);
    assert!(story.lost(24.0).held, "not yet at 24 s");
}

#[test]
fn a_slice_that_vanishes_takes_all_its_endpoints() {
    let story = Story::new().then(25.0, Watched::Gone(Kind::EndpointSlice, "slice".to_owned()));
    assert_eq!(story.lost(70.0).count, Some(2));
}

#[test]
fn an_endpoint_of_another_pod_in_its_place_does_not_make_up_for_a_lost_one() {
    let story = Story::new().then(25.0, slice(&[("web-c", "b", true), ("web-b", "b", true)]));
    assert_eq!(story.lost(70.0).count, Some(1));
}

#[test]
fn a_deleted_pod_moved_and_is_counted_once() {
    let leaving = PodFact {
        deleting: true,
        ..pod("web-a", "a")
    };
    let story = Story::new()
        .then(40.0, Watched::Pod(leaving))
        .then(41.0, Watched::Gone(Kind::Pod, "uid-web-a".to_owned()));
    let moved = story.moved(70.0);
    assert_eq!((moved.held, moved.count), (false, Some(1)));
    assert_eq!(moved.detail, ["web-a on a after 30.0 s"]);
}

#[test]
fn what_left_before_the_fault_or_came_after_it_did_not_move() {
    let leaving = PodFact {
        deleting: true,
        ..pod("web-x", "b")
    };
    let story = Story::new()
        .then(5.0, Watched::Pod(leaving))
        .then(20.0, Watched::Gone(Kind::Pod, "uid-web-x".to_owned()))
        .then(21.0, Watched::Pod(pod("web-n", "b")))
        .then(22.0, Watched::Gone(Kind::Pod, "uid-web-n".to_owned()));
    assert_eq!(story.moved(70.0).count, Some(0));
}

#[test]
fn endpoints_are_out_when_the_last_one_goes_for_good() {
    let story = Story::new()
        .then(13.0, slice(&[("web-a", "a", false), ("web-b", "b", true)]))
        .then(14.0, slice(&[("web-a", "a", true), ("web-b", "b", true)]))
        .then(16.5, slice(&[("web-b", "b", true)]));
    let out = story.out(60.0);
    assert_eq!((out.held, out.seconds), (true, Some(6.5)), "{out:?}");
    assert_eq!(story.out(14.5).seconds, None, "back at 14.5 s");
}

#[test]
fn endpoints_out_late_are_measured_and_do_not_pass() {
    let story = Story::new().then(25.1, slice(&[("web-b", "b", true)]));
    let out = story.out(60.0);
    assert_eq!((out.held, out.seconds), (false, Some(15.1)));
}

#[test]
fn pods_are_replaced_when_as_many_are_ready_elsewhere_as_there_were() {
    let starting = PodFact {
        ready: false,
        ..pod("web-c", "b")
    };
    let story = Story::new()
        .then(20.0, Watched::Pod(starting))
        .then(22.4, Watched::Pod(pod("web-c", "b")));
    let replaced = story.replaced(60.0);
    assert_eq!(
        (replaced.held, replaced.seconds),
        (true, Some(12.4)),
        "{replaced:?}"
    );
    assert!(!story.replaced(21.0).held, "not ready yet at 21 s");
    let on_its_way_out = PodFact {
        deleting: true,
        ..pod("web-b", "b")
    };
    let story = Story::new()
        .then(20.0, Watched::Pod(on_its_way_out))
        .then(22.4, Watched::Pod(pod("web-c", "b")));
    assert!(!story.replaced(60.0).held, "one came, another goes");
}

#[test]
fn an_assertion_about_nothing_does_not_pass() {
    let empty = Story { changes: Vec::new() };
    for finding in [empty.out(60.0), empty.replaced(60.0), empty.stateful(60.0)] {
        assert!(!finding.held && finding.measured == "had none", "{finding:?}");
    }
}

#[test]
fn a_stateful_pod_that_only_waits_for_its_end_has_not_moved() {
    let leaving = PodFact {
        deleting: true,
        ready: false,
        ..pod("db-0", "a")
    };
    let incident = IncidentFact {
        uid: "i".to_owned(),
        node: "a".to_owned(),
        state: "Dead".to_owned(),
        closed: false,
        missing: "no method is armed".to_owned(),
    };
    let story = Story::new()
        .then(40.0, Watched::Pod(leaving))
        .then(14.0, Watched::Incident(incident));
    let finding = story.stateful(70.0);
    assert!(finding.held, "{finding:?}");
    assert_eq!(finding.measured, "not moved: no fence proof");
    assert_eq!(finding.detail, ["no method is armed"]);
}

#[test]
fn a_stateful_pod_of_the_same_name_and_another_uid_has_moved() {
    let second = PodFact {
        uid: "uid-2".to_owned(),
        ..pod("db-0", "b")
    };
    let story = Story::new()
        .then(40.0, Watched::Gone(Kind::Pod, "uid-db-0".to_owned()))
        .then(41.0, Watched::Pod(second));
    assert!(!story.stateful(70.0).held);
}

#[test]
fn waiting_ends_when_both_deadlines_have_nothing_to_wait_for() {
    let expect = Expect {
        endpoints_out: Some(Span(at(10.0))),
        replaced: Some(Span(at(30.0))),
        ..NOTHING
    };
    let story = Story::new();
    let before = Moment::at(&story.changes, strike().at);
    assert!(!is_met(&expect, &before, &before, &strike()));
    let story = story.then(15.0, slice(&[("web-b", "b", true)]));
    assert!(!is_met(
        &expect,
        &before,
        &Moment::at(&story.changes, at(15.0)),
        &strike()
    ));
    let story = story.then(20.0, Watched::Pod(pod("web-c", "b")));
    assert!(is_met(
        &expect,
        &before,
        &Moment::at(&story.changes, at(20.0)),
        &strike()
    ));
}

#[test]
fn what_stock_does_is_told_only_of_faults_it_was_recorded_for() {
    let story = Story::new();
    let moved = Expect {
        pods_moved: Some(0),
        ..NOTHING
    };
    assert_eq!(story.moved(70.0).stock_recorded, recorded::PODS_MOVED);
    let crash = Strike {
        silences: false,
        ..strike()
    };
    let findings = super::expect(&moved, &story.changes, &crash, at(70.0));
    assert_eq!(findings[0].stock_recorded, recorded::NOTHING);
}

fn incident(state: &str, closed: bool) -> Watched {
    Watched::Incident(IncidentFact {
        uid: "i".to_owned(),
        node: "a".to_owned(),
        state: state.to_owned(),
        closed,
        ..IncidentFact::default()
    })
}

fn back(story: &Story, strike: &Strike, until: f64) -> Finding {
    let wanted = Expect {
        endpoints_back: Some(Span(at(30.0))),
        ..NOTHING
    };
    super::expect(&wanted, &story.changes, strike, at(until)).remove(0)
}

#[test]
fn endpoints_must_be_back_after_the_end_of_the_last_fault() {
    let gone = slice(&[("web-b", "b", true)]);
    let whole = slice(&[("web-a", "a", true), ("web-b", "b", true)]);
    // The second of two faults lasts from 20 to 24 s.
    let second = Strike {
        at: at(20.0),
        lasts: at(4.0),
        ..strike()
    };
    let kept = back(&Story::new(), &second, 54.0);
    assert!(kept.held && kept.seconds == Some(0.0), "{kept:?}");
    // Lost by the first fault, back after the second.
    let story = Story::new().then(15.0, gone.clone()).then(30.0, whole.clone());
    let late = back(&story, &second, 54.0);
    assert!(late.held && late.seconds == Some(6.0), "{late:?}");
    let again = story.then(40.0, gone);
    let lost = back(&again, &second, 54.0);
    assert!(!lost.held, "{lost:?}");
    assert_eq!(lost.detail, ["web-a of default/web on a is not back"]);
    let second_time = back(&again.then(55.0, whole), &second, 60.0);
    assert!(
        !second_time.held && second_time.seconds == Some(31.0),
        "{second_time:?}"
    );
}

#[test]
fn what_must_be_back_is_waited_for_until_the_end_of_its_time() {
    let expect = Expect {
        endpoints_back: Some(Span(at(30.0))),
        ..NOTHING
    };
    let stall = Strike {
        lasts: at(4.0),
        ..strike()
    };
    let before = Moment::at(&Story::new().changes, at(10.0));
    assert!(!is_met(&expect, &before, &before, &stall), "it can still be lost");
    assert_eq!(expect.longest(&stall), at(34.0));
}

#[test]
fn changes_of_state_are_counted_per_node() {
    let changes = |story: &Story, most| {
        let wanted = Expect {
            state_changes: Some(most),
            ..NOTHING
        };
        super::expect(&wanted, &story.changes, &strike(), at(70.0)).remove(0)
    };
    assert_eq!(changes(&Story::new(), 0).count, Some(0));
    let story = Story::new()
        .then(12.0, incident("", false))
        .then(13.0, incident("Disconnected", false))
        .then(14.0, incident("Disconnected", false))
        .then(20.0, incident("Disconnected", true));
    let two = changes(&story, 2);
    assert!(two.held && two.count == Some(2), "{two:?}");
    let story = story.then(30.0, incident("Unknown", false));
    let three = changes(&story, 2);
    assert!(!three.held && three.count == Some(3), "{three:?}");
    assert_eq!(
        three.detail,
        ["a: Disconnected after 3.0 s, over after 10.0 s, Unknown after 20.0 s"]
    );
}

#[test]
fn a_report_is_awaited_and_timed() {
    let expect = Expect {
        reported: Some(Reported {
            state: nowhere("Isolated".to_owned()),
            within: Span(at(20.0)),
        }),
        ..NOTHING
    };
    let story = Story::new().then(15.0, incident("Disconnected", false));
    let before = Moment::at(&story.changes, at(10.0));
    let now = |story: &Story| Moment::at(&story.changes, at(60.0));
    assert!(!is_met(&expect, &before, &now(&story), &strike()));
    let other = super::expect(&expect, &story.changes, &strike(), at(30.0)).remove(0);
    assert!(!other.held, "{other:?}");
    assert_eq!(other.detail, ["a is judged Disconnected"]);
    let story = story.then(22.0, incident("Isolated", false));
    assert!(is_met(&expect, &before, &now(&story), &strike()));
    let found = super::expect(&expect, &story.changes, &strike(), at(30.0)).remove(0);
    assert!(found.held && found.seconds == Some(12.0), "{found:?}");
    assert_eq!(found.event, "a off (Isolated): reported");
}

#[test]
fn other_nodes_are_looked_past() {
    let story = Story::new()
        .then(20.0, Watched::Gone(Kind::Pod, "uid-web-a".to_owned()))
        .then(20.0, slice(&[("web-b", "b", true)]));
    let on = |node: &str| Expect {
        on: vec![nowhere(node.to_owned())],
        pods_moved: Some(0),
        endpoints_lost: Some(0),
        ..NOTHING
    };
    let counts = |node| -> Vec<Option<usize>> {
        let findings = super::expect(&on(node), &story.changes, &strike(), at(70.0));
        findings.iter().map(|finding| finding.count).collect()
    };
    assert_eq!(counts("a"), [Some(1), Some(1)]);
    assert_eq!(counts("b"), [Some(0), Some(0)]);
}
