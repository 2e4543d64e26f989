use super::*;
use evenkeel_api::zone::RosterSpec;
use evenkeel_zone::fixture::Fixture;
use evenkeel_zone::verdict::{Health, Link, NoVerdict};
use evenkeel_zone::wire::Facts;
use rstest::rstest;
use serde_json::json;

const CUT: Facts = Facts {
    cloud: Link::Down,
    kubelet: Health::Ok,
    runtime: Health::Ok,
};

/// `round` names the round of the votes, which is another one with each report.
fn zone_health(zone: &mut Fixture, uid: &str, round: u8) -> ZoneHealth {
    let spec: RosterSpec = zone.spec();
    let verdict = zone.alive(2, &[1, 3], round, CUT);
    let status = zone.report(vec![verdict]);
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "ZoneHealth",
        "metadata": {"name": "shore-0a1b2c3d", "uid": uid},
        "spec": {"zone": "Shore", "roster": spec}, "status": status,
    }))
    .unwrap()
}

fn lease(name: &str, second: i64, holder: &str) -> Lease {
    let renewed =
        k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(Timestamp::from_second(second).unwrap());
    serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"renewTime": renewed, "holderIdentity": holder},
    }))
    .unwrap()
}

fn is_cut(evidence: &Evidence, now: Millis) -> bool {
    matches!(
        evidence.verdict("uid-2", now),
        Verdict::Alive {
            cloud: Link::Down,
            ..
        }
    )
}

#[test]
fn a_zone_counts_once_it_is_seen_to_advance() {
    let (mut zone, mut evidence) = (Fixture::new(3), Evidence::new());
    assert_eq!(
        evidence.zone_health(Millis(0), &zone_health(&mut zone, "1", 0)),
        []
    );
    assert_eq!(
        evidence.verdict("uid-2", Millis(0)),
        Verdict::None(NoVerdict::ZoneSilent)
    );
    evidence.zone_health(Millis(1), &zone_health(&mut zone, "1", 1));
    assert!(is_cut(&evidence, Millis(1)));
}

#[test]
fn renewals_of_the_zones_lease_prove_it_too_by_the_name_of_its_object() {
    let (mut zone, mut evidence) = (Fixture::new(3), Evidence::new());
    evidence.zone_health(Millis(0), &zone_health(&mut zone, "1", 0));
    let name = "evenkeel-zone-shore-0a1b2c3d";
    evidence.lease(Millis(1), &lease(name, 1, "a"));
    // The same Lease again, and other Leases, are no heartbeat.
    evidence.lease(Millis(2), &lease(name, 1, "a"));
    evidence.lease(Millis(3), &lease("evenkeel-controller", 2, "a"));
    assert!(!evidence.book().reports("Shore", Millis(3)));
    evidence.lease(Millis(4), &lease(name, 2, "a"));
    assert!(evidence.book().reports("Shore", Millis(4)));
}

#[test]
fn a_zone_health_that_was_made_again_begins_anew() {
    let (mut zone, mut evidence) = (Fixture::new(3), Evidence::new());
    evidence.zone_health(Millis(0), &zone_health(&mut zone, "1", 0));
    evidence.zone_health(Millis(1), &zone_health(&mut zone, "1", 1));
    assert!(is_cut(&evidence, Millis(1)));
    evidence.zone_health(Millis(2), &zone_health(&mut zone, "2", 2));
    assert!(!is_cut(&evidence, Millis(2)));
}

#[test]
fn a_zone_health_that_is_gone_takes_its_verdicts_along() {
    let (mut zone, mut evidence) = (Fixture::new(3), Evidence::new());
    for now in 0..2 {
        evidence.zone_health(
            Millis(now),
            &zone_health(&mut zone, "1", u8::try_from(now).unwrap()),
        );
    }
    evidence.retain_zones(|name| name == "shore-0a1b2c3d");
    assert!(is_cut(&evidence, Millis(2)));
    evidence.retain_zones(|_| false);
    assert_eq!(
        evidence.verdict("uid-2", Millis(2)),
        Verdict::None(NoVerdict::NotAMember)
    );
}

#[rstest]
#[case::the_stock_mark("Unknown", "NodeStatusUnknown", true)]
#[case::never_reported("Unknown", "NodeStatusNeverUpdated", false)]
#[case::our_own_mark("Unknown", "EvenkeelConfirmedDead", false)]
#[case::not_ready("False", "KubeletNotReady", false)]
#[case::ready("True", "KubeletReady", false)]
fn only_the_stock_controllers_mark_is_its_mark(
    #[case] ready: &str,
    #[case] reason: &str,
    #[case] expected: bool,
) {
    let node = serde_json::from_value(json!({
        "metadata": {"name": "shore-2", "uid": "uid-2", "labels": {"role": "edge"}},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": reason}]},
    }))
    .unwrap();
    let facts = node_facts(&node);
    assert_eq!(facts.stock_unknown, expected);
    assert_eq!(
        (facts.uid.as_str(), facts.labels["role"].as_str()),
        ("uid-2", "edge")
    );
}
