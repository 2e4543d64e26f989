//! The last endpoints of Services: hazards 18 and 25.

use super::rest::darken;
use super::*;
use evenkeel_api::names::events;
use evenkeel_api::policy::EndpointsPolicy;
use serde_json::json;

/// One Service with an endpoint for each (node, pod, whether it is ready).
pub(super) fn service(endpoints: &[(&str, &str, bool)]) -> Vec<EndpointSlice> {
    let endpoint = |(node, pod, ready): &(&str, &str, bool)| {
        json!({
            "addresses": ["10.0.0.1"],
            "nodeName": node,
            "targetRef": {"kind": "Pod", "uid": format!("u-{pod}")},
            "conditions": {"ready": ready},
        })
    };
    let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
    let slice = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
    }));
    vec![slice.expect("a slice")]
}

const EVERYBODY: [&str; 3] = ["n1", "n2", "n3"];

#[test]
fn the_last_endpoints_of_a_service_in_a_dark_zone_stay_until_there_is_another() {
    let mut stage = Stage::with_nodes(3);
    stage.slices = Some(service(&[("n3", "web", true), ("n1", "other", false)]));
    let mut stage = darken(stage);
    assert_eq!(stage.pod_now("web").ready, Status::True);
    assert!(
        stage
            .timeline("n3")
            .ends_with(&[events::DARK.to_owned(), events::ENDPOINTS_KEPT.to_owned()])
    );
    // What the stock controller took is given back.
    stage.pod("n3", "web").ready = Status::False;
    stage.go(100, &EVERYBODY);
    assert_eq!(stage.pod_now("web").ready, Status::True);
    // One is ready outside the zone.
    stage.slices = Some(service(&[("n3", "web", true), ("m1", "new", true)]));
    stage.go(111, &EVERYBODY);
    stage.settle();
    assert_eq!(stage.pod_now("web").ready, Status::False);
    // And it goes again: the endpoint on the dark node is the last once more, and goes when that is over.
    stage.slices = Some(service(&[("n3", "web", false), ("m1", "new", false)]));
    stage.go(122, &EVERYBODY);
    assert_eq!(stage.pod_now("web").ready, Status::True);
    stage.slices = Some(service(&[("n3", "web", true), ("m1", "new", true)]));
    stage.go(133, &EVERYBODY);
    stage.settle();
    assert_eq!(stage.pod_now("web").ready, Status::False);
}

#[test]
fn endpoints_of_a_dark_zone_that_were_kept_are_settled_when_it_is_dark_no_more() {
    let mut stage = Stage::with_nodes(3);
    stage.slices = Some(service(&[("n3", "web", true)]));
    let mut stage = darken(stage);
    assert_eq!(stage.pod_now("web").ready, Status::True);
    stage.go(90, &["n3"]);
    assert_eq!(
        (stage.state("n3"), stage.pod_now("web").ready),
        (NodeState::Dark, Status::True),
        "others are back, and it may be the next one"
    );
    stage.go(120, &["n3"]);
    stage.settle();
    assert_eq!(stage.state("n3"), NodeState::Unknown);
    assert_eq!(stage.pod_now("web").ready, Status::False);
}

#[test]
fn endpoints_of_a_dark_zone_follow_stock_where_policy_says_so_or_slices_cannot_be_read() {
    let last = service(&[("n3", "web", true)]);
    let mut stage = Stage::with_nodes(3).policy(|spec| spec.endpoints = Some(EndpointsPolicy::Stock));
    stage.slices = Some(last);
    assert_eq!(darken(stage).pod_now("web").ready, Status::False);
    let mut stage = Stage::with_nodes(3);
    stage.slices = None;
    assert_eq!(darken(stage).pod_now("web").ready, Status::False);
}

/// n3 and n4 seem dead at once from second 14 on; `web` runs on both.
fn stormy(slices: Option<Vec<EndpointSlice>>) -> Stage {
    let mut stage = Stage::with_nodes(5);
    stage.storm = true;
    stage.slices = slices;
    stage.go(10, &[]);
    stage.go(14, &["n3", "n4"]);
    for node in ["n3", "n4"] {
        stage.convict(node);
        stage.pod(node, &format!("web-{node}"));
        stage.pod(node, &format!("spare-{node}"));
    }
    stage.go(18, &["n3", "n4"]);
    assert_eq!(stage.state("n3"), NodeState::Dead(Dead::Announced));
    stage
}

#[test]
fn in_a_storm_the_last_endpoints_of_a_service_stay_until_the_death_is_confirmed() {
    let last = service(&[("n3", "web-n3", true), ("n4", "web-n4", true), ("n1", "x", false)]);
    let mut stage = stormy(Some(last));
    for node in ["n3", "n4"] {
        assert_eq!(stage.pod_now(&format!("web-{node}")).ready, Status::True);
        assert_eq!(stage.pod_now(&format!("spare-{node}")).ready, Status::False);
    }
    assert!(stage.timeline("n3").contains(&events::ENDPOINTS_KEPT.to_owned()));
    assert!(!stage.timeline("n3").contains(&events::ENDPOINTS_OUT.to_owned()));
    stage.go(30, &["n3", "n4"]);
    stage.settle();
    assert_eq!(stage.state("n3"), NodeState::Dead(Dead::Confirmed));
    for node in ["n3", "n4"] {
        assert_eq!(stage.pod_now(&format!("web-{node}")).ready, Status::False);
    }
}

#[test]
fn in_a_storm_endpoints_go_at_once_where_a_service_has_others_or_slices_cannot_be_read() {
    let others = service(&[("n3", "web-n3", true), ("n4", "web-n4", true), ("n1", "x", true)]);
    for slices in [Some(others), None] {
        let stage = stormy(slices);
        assert_eq!(stage.pod_now("web-n3").ready, Status::False);
        assert_eq!(stage.pod_now("web-n4").ready, Status::False);
    }
}

#[test]
fn without_a_storm_the_last_endpoint_of_a_service_goes_when_its_node_dies() {
    let mut stage = Stage::with_nodes(5);
    stage.slices = Some(service(&[("n3", "web", true)]));
    stage.go(10, &[]);
    stage.go(14, &["n3"]);
    stage.convict("n3");
    stage.pod("n3", "web");
    stage.go(18, &["n3"]);
    assert_eq!(stage.state("n3"), NodeState::Dead(Dead::Announced));
    assert_eq!(stage.pod_now("web").ready, Status::False);
}

#[test]
fn a_death_that_is_confirmed_first_does_not_take_the_last_endpoints_of_the_others() {
    let last = service(&[("n3", "web-n3", true), ("n4", "web-n4", true)]);
    let mut stage = Stage::with_nodes(5);
    stage.storm = true;
    stage.slices = Some(last);
    stage.go(10, &[]);
    stage.go(14, &["n3"]);
    for node in ["n3", "n4"] {
        stage.pod(node, &format!("web-{node}"));
    }
    stage.convict("n3");
    stage.go(20, &["n3", "n4"]);
    stage.convict("n4");
    stage.go(27, &["n3", "n4"]);
    assert_eq!(stage.state("n3"), NodeState::Dead(Dead::Confirmed));
    assert_eq!(stage.state("n4"), NodeState::Dead(Dead::Announced));
    assert_eq!(stage.pod_now("web-n3").ready, Status::False);
    assert_eq!(stage.pod_now("web-n4").ready, Status::True);
}

#[test]
fn the_endpoints_of_a_namespace_that_was_not_read_yet_are_waited_for() {
    let mut slices = service(&[("n4", "late", true)]);
    slices[0].metadata.namespace = Some("other".to_owned());
    let mut stage = stormy(Some(slices));
    stage.go(20, &["n3", "n4"]);
    stage.pod("n4", "late").pod.namespace = "other".to_owned();
    stage.go(21, &["n3", "n4"]);
    assert_eq!(stage.pod_now("late").ready, Status::True);
    assert_eq!(stage.pod_now("web-n4").ready, Status::False);
}
