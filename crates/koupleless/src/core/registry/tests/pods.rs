use super::*;

const A: &str = "192.0.2.2";
const B: &str = "192.0.2.3";

fn deleted(uid: &str) -> Observation {
    Observation::PodDeleted(uid.into())
}

fn lost_by(uid: &str) -> Evidence {
    Evidence::PodDeleted(format!("shop/web-{uid}"))
}

/// A base that speaks, in a ready pod.
fn in_pod() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.observe(pod("u", A, PodState::Ready));
    fixture.observe(heartbeat(A, A));
    fixture.serve(A);
    fixture
}

#[test]
fn a_deleted_pod_is_proof_at_once_and_the_node_waits_for_a_restart() {
    let mut fixture = in_pod();
    fixture.pass(5);
    assert_eq!(fixture.observe(deleted("u")), [Change::Lost(lost_by("u"))]);
    assert_eq!(fixture.observe(deleted("u")), [], "told once");
    assert_eq!(fixture.pass(54), []);
    assert_eq!(fixture.pass(1), [Change::Gone(Why::Lost(lost_by("u")))]);
}

#[test]
fn a_pod_that_has_ended_is_proof() {
    let mut fixture = in_pod();
    let changes = fixture.observe(pod("u", A, PodState::Ended));
    assert_eq!(
        changes,
        [Change::Lost(Evidence::PodEnded("shop/web-u".to_owned()))]
    );
    assert_eq!(fixture.observe(deleted("u")), []);
}

#[test]
fn the_end_of_another_pod_proves_nothing() {
    let mut fixture = in_pod();
    assert_eq!(fixture.observe(deleted("v")), []);
    assert_eq!(fixture.life(A), Life::Alive);
}

#[test]
fn a_pod_that_is_none_of_ours_any_more_proves_nothing() {
    let mut fixture = in_pod();
    assert!(
        fixture
            .observe(Observation::PodForgotten("u".into()))
            .iter()
            .all(is_changed)
    );
    assert_eq!(fixture.base(A).pod, None);
    assert_eq!(fixture.life(A), Life::Alive);
}

#[test]
fn a_word_that_was_under_way_when_the_pod_ended_does_not_revive() {
    let mut fixture = in_pod();
    fixture.observe(deleted("u"));
    fixture.pass(2);
    assert_eq!(fixture.observe(heartbeat(A, A)), []);
    fixture.pass(1);
    let changes = fixture.observe(heartbeat(A, A));
    assert!(
        matches!(&changes[..], [Change::Changed { .. }, Change::Back]),
        "{changes:?}"
    );
    assert_eq!(fixture.base(A).pod, None, "it lives, and not in that pod");
}

#[test]
fn a_new_pod_with_the_old_address_is_the_base_again() {
    let mut fixture = in_pod();
    fixture.observe(deleted("u"));
    fixture.pass(1);
    let changes = fixture.observe(pod("v", A, PodState::NotReady));
    assert!(changes.iter().all(is_changed), "{changes:?}");
    assert_eq!(
        fixture.base(A).name.as_deref(),
        Some(UNNAMED),
        "nobody says otherwise"
    );
    let changes = fixture.observe(heartbeat(A, A));
    assert_eq!(
        changes.last(),
        Some(&Change::Back),
        "an announcement for which there is a pod is not late"
    );
    assert_eq!(fixture.base(A).pod, Some(pod_ref("v")));
}

#[test]
fn while_its_kubelet_reports_it_ready_silence_moves_nothing() {
    let mut fixture = in_pod();
    assert_eq!(fixture.pass(25), [Change::Silent]);
    assert_eq!(fixture.pass(3600), []);
    assert_eq!(fixture.life(A), Life::Silent);
    fixture.observe(pod("u", A, PodState::NotReady));
    let changes = fixture.pass(9);
    assert!(
        matches!(
            &changes[..],
            [Change::Lost(Evidence::Silence(_)), Change::Gone(_)]
        ),
        "{changes:?}"
    );
}

#[test]
fn proof_counts_although_the_kubelet_reports_it_ready_and_the_node_stays() {
    let mut fixture = in_pod();
    fixture.pass(25);
    let changes = fixture.observe(port_refused(A, A));
    assert!(matches!(&changes[..], [Change::Lost(Evidence::PortRefused(_))]));
    assert_eq!(fixture.pass(600), [], "its node is there when it comes back");
    assert_eq!(fixture.observe(answered(A, A, None)), [Change::Back]);
}

#[test]
fn a_pod_that_is_not_ready_protects_nothing() {
    let mut fixture = in_pod();
    fixture.observe(pod("u", A, PodState::NotReady));
    assert_eq!(fixture.pass(68).len(), 3);
    assert_eq!(fixture.registry.len(), 0);
}

#[test]
fn a_ready_pod_of_which_no_base_speaks_is_a_base_after_15_s() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.observe(pod("u", A, PodState::NotReady)), []);
    assert_eq!(fixture.pass(100), []);
    assert_eq!(fixture.observe(pod("u", A, PodState::Ready)), []);
    assert_eq!(fixture.pass(14), []);
    assert_eq!(
        fixture.observe(pod("u", A, PodState::Ready)),
        [],
        "an update is no beginning"
    );
    assert_eq!(fixture.pass(1), [Change::Online]);
    assert_eq!(fixture.base(A).endpoint, http(A, 1238));
    assert_eq!(fixture.base(A).pod, Some(pod_ref("u")));
}

#[test]
fn a_pod_may_declare_everything() {
    let mut fixture = Fixture::new();
    fixture.observe(Observation::Pod(PodSeen {
        identity: Some(id("shop-1")),
        name: Some("shop".to_owned()),
        version: Some("2".to_owned()),
        cluster: Some("blue".to_owned()),
        port: Some(1300),
        ..pod_seen("u", A, PodState::Ready)
    }));
    fixture.pass(15);
    let expected = Base {
        identity: id("shop-1"),
        name: Some("shop".to_owned()),
        version: Some("2".to_owned()),
        cluster: Some("blue".to_owned()),
        host_name: Some("web-u".to_owned()),
        endpoint: http(A, 1300),
        pod: Some(pod_ref("u")),
    };
    assert_eq!(fixture.base("shop-1"), expected);
}

#[test]
fn a_base_that_speaks_under_its_own_name_is_not_taken_on_twice() {
    let mut fixture = Fixture::new();
    fixture.observe(pod("u", A, PodState::Ready));
    fixture.observe(heartbeat("shop", A));
    assert_eq!(fixture.pass(30), []);
    assert_eq!(fixture.registry.len(), 1);
}

#[test]
fn a_base_that_tells_its_name_late_gives_up_the_node_of_its_address() {
    for told in [heartbeat("shop", A), answered(A, A, Some("shop"))] {
        let mut fixture = Fixture::new();
        fixture.observe(pod("u", A, PodState::Ready));
        fixture.pass(15);
        fixture.serve(A);
        let renamed = Change::Gone(Why::Renamed(id("shop")));
        assert_eq!(fixture.observe(told), [Change::Online, renamed]);
        assert_eq!(fixture.pass(20), [], "and its pod is not taken on again");
        assert_eq!(fixture.base("shop").pod, Some(pod_ref("u")));
    }
}

#[test]
fn a_replaced_pod_without_words_comes_back_when_it_is_ready() {
    let mut fixture = Fixture::new();
    fixture.observe(declared("u", A, "shop"));
    fixture.pass(15);
    fixture.serve("shop");
    assert_eq!(fixture.observe(deleted("u")), [Change::Lost(lost_by("u"))]);
    let changes = fixture.observe(declared("v", B, "shop"));
    assert!(
        matches!(&changes[..], [Change::Changed { .. }, Change::Back]),
        "{changes:?}"
    );
    assert_eq!(fixture.base("shop").endpoint, http(B, 1238));
}

#[test]
fn a_successor_that_is_there_already_takes_over_when_the_old_pod_ends() {
    let mut fixture = Fixture::new();
    fixture.observe(declared("u", A, "shop"));
    fixture.observe(heartbeat("shop", A));
    fixture.serve("shop");
    assert_eq!(fixture.observe(declared("v", B, "shop")), []);
    let changes = fixture.observe(deleted("u"));
    assert!(
        matches!(
            &changes[..],
            [Change::Lost(_), Change::Changed { .. }, Change::Back]
        ),
        "{changes:?}"
    );
    assert_eq!(fixture.base("shop").endpoint, http(B, 1238));
    assert_eq!(fixture.base("shop").pod, Some(pod_ref("v")));
}

#[test]
fn the_pod_of_a_deactivated_base_does_not_bring_it_back() {
    let mut fixture = in_pod();
    fixture.observe(deactivation(A, A));
    assert_eq!(fixture.pass(8), [Change::Gone(Why::Lost(Evidence::Deactivated))]);
    fixture.observe(pod("u", A, PodState::Ready));
    assert_eq!(fixture.pass(100), []);
    assert_eq!(fixture.observe(heartbeat(A, A)), [Change::Online]);
}

#[test]
fn pods_that_share_a_hosts_address_are_told_apart_by_declaration_alone() {
    let mut fixture = Fixture::new();
    fixture.observe(pod("u", A, PodState::Ready));
    fixture.observe(pod("v", A, PodState::Ready));
    fixture.observe(heartbeat("shop", A));
    assert_eq!(fixture.base("shop").pod, None);
    fixture.observe(declared("v", A, "shop"));
    assert_eq!(fixture.base("shop").pod, Some(pod_ref("v")));
}
