use super::*;
use evenkeel_zone::fixture::Fixture;
use evenkeel_zone::verdict::{Health, Issued, Link, NoVerdict, Verdict};
use evenkeel_zone::wire::Facts;
use rstest::rstest;
use serde_json::json;

const ZONE: &str = "Shore";
const REPORT: &str = "a report";

const CUT: Facts = Facts {
    cloud: Link::Down,
    kubelet: Health::Ok,
    runtime: Health::Ok,
};

/// Name of the ZoneHealth.
fn object() -> String {
    cell_object_name(ZONE, 0)
}

fn zone_health(uid: &str) -> ZoneHealth {
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.io/v1alpha1", "kind": "ZoneHealth",
        "metadata": {"name": object(), "uid": uid},
        "spec": {"zone": ZONE},
    }))
    .unwrap()
}

/// The watches deliver the roster and a report; `round` names the round of the votes, which is another one
/// with each report.
fn see(zones: &mut Zones, now: u64, zone: &mut Fixture, uid: &str, round: u8) -> Vec<Refusal> {
    let mut refused = zones.zone_health(Millis(now), &zone_health(uid), zone.roster());
    // Of another leader: what it signs may be from before this reader began.
    let issued = Issued {
        drawn: None,
        ..zone.issued(Millis(0))
    };
    refused.extend(zones.challenges(Millis(now), &object(), &[issued]));
    refused.extend(zones.report(Millis(now), REPORT, &report(zone, round)));
    refused
}

fn report(zone: &mut Fixture, round: u8) -> ZoneReportSpec {
    let alive = zone.alive(2, &[1, 3], round, CUT);
    ZoneReportSpec {
        zone: ZONE.to_owned(),
        cell: 0,
        reporter: "node-1".to_owned(),
        report: zone.report(vec![alive]),
    }
}

fn lease(name: &str, second: i64, holder: &str) -> Lease {
    let renewed =
        k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(Timestamp::from_second(second).unwrap());
    serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"renewTime": renewed, "holderIdentity": holder},
    }))
    .unwrap()
}

fn is_cut(zones: &Zones) -> bool {
    matches!(zones.book().verdict("uid-2"), Verdict::Alive(alive) if alive.cloud == Link::Down)
}

#[test]
fn a_zone_counts_once_it_is_seen_to_advance() {
    let (mut zone, mut zones) = (Fixture::new(3), Zones::default());
    assert_eq!(see(&mut zones, 0, &mut zone, "1", 0), []);
    assert_eq!(zones.book().verdict("uid-2"), Verdict::None(NoVerdict::Void));
    see(&mut zones, 1, &mut zone, "1", 1);
    assert!(is_cut(&zones));
}

#[test]
fn renewals_of_the_zones_lease_prove_it_too_by_the_name_of_its_object() {
    let (mut zone, mut zones) = (Fixture::new(3), Zones::default());
    see(&mut zones, 0, &mut zone, "1", 0);
    let name = &format!("evenkeel-zone-{}", object());
    zones.lease(Millis(1), &lease(name, 1, "node-1_0123456789abcdef"));
    // The same Lease again, and other Leases, are no heartbeat.
    zones.lease(Millis(2), &lease(name, 1, "node-1_0123456789abcdef"));
    zones.lease(Millis(3), &lease("evenkeel-controller", 2, "a"));
    zones.lease(Millis(3), &lease(name, 9, "a stranger"));
    assert_eq!(zones.book().advanced(&object()), None);
    zones.lease(Millis(4), &lease(name, 2, "node-1_0123456789abcdef"));
    assert_eq!(zones.book().advanced(&object()), Some(Millis(4)));
}

/// The planner makes it again with the next version of the roster. One with the same version, or an older
/// one, was made by somebody who did not know the last: what it says counts once it is seen to advance.
#[rstest]
#[case::by_the_planner(1, true)]
#[case::by_somebody_else(0, false)]
fn a_zone_health_that_was_made_again_goes_on_with_a_newer_roster_and_else_begins_anew(
    #[case] newer: u8,
    #[case] goes_on: bool,
    #[values(true, false)] seen_gone: bool,
) {
    let (mut zone, mut zones) = (Fixture::new(3), Zones::default());
    see(&mut zones, 0, &mut zone, "1", 0);
    see(&mut zones, 1, &mut zone, "1", 1);
    assert!(is_cut(&zones));
    if seen_gone {
        zones.gone(Millis(2), &object());
    }
    for _ in 0..newer {
        zone.reissue();
    }
    zones.zone_health(Millis(3), &zone_health("2"), zone.roster());
    zones.forget_gone(Millis(60_000));
    assert_eq!(is_cut(&zones), goes_on);
}

#[test]
fn a_zone_health_that_is_gone_for_good_takes_its_verdicts_along_when_they_have_run_out() {
    let (mut zone, mut zones) = (Fixture::new(3), Zones::default());
    for now in 0..2 {
        see(&mut zones, now, &mut zone, "1", u8::try_from(now).unwrap());
    }
    assert!(is_cut(&zones));
    zones.gone(Millis(10), &object());
    zones.forget_gone(Millis(10 + ALIVE_TTL_MS - 1));
    assert!(is_cut(&zones));
    zones.forget_gone(Millis(10 + ALIVE_TTL_MS));
    assert_eq!(
        zones.book().verdict("uid-2"),
        Verdict::None(NoVerdict::NotAMember)
    );
}

/// Rosters and reports come on watches of their own: a zone whose roster comes late has reported all the
/// same.
#[test]
fn a_report_that_comes_first_is_counted_with_its_roster() {
    let (mut zone, mut zones) = (Fixture::new(3), Zones::default());
    for round in [0, 1] {
        let spec = report(&mut zone, round);
        zones.report(Millis(u64::from(round)), REPORT, &spec);
    }
    assert!(!is_cut(&zones));
    zones.zone_health(Millis(2), &zone_health("1"), zone.roster());
    let seen = zones.look(Millis(2));
    assert!(seen.values().all(|cell| cell.reported), "{seen:?}");
    see(&mut zones, 3, &mut zone, "1", 3);
    assert!(is_cut(&zones));
    zones.reports_listed(|_| false);
    assert!(is_cut(&zones), "until it runs out");
}

/// Whoever has one agent's token can write a report about each cell that it makes up.
#[test]
fn of_one_reporter_a_bounded_number_of_reports_is_held() {
    let (mut zone, mut zones) = (Fixture::new(3), Zones::default());
    let mut other = report(&mut zone, 1);
    other.reporter = "node-3".to_owned();
    zones.report(Millis(1), "of another one", &other);
    for cell in 1..1_000 {
        let made_up = ZoneReportSpec {
            cell,
            ..report(&mut zone, 1)
        };
        zones.report(Millis(1), &format!("{cell}"), &made_up);
    }
    assert_eq!(zones.reports.len(), REPORTS_OF_ONE + 1);
    assert!(zones.reports.contains_key("of another one"));
    assert!(zones.reports.contains_key("999") && !zones.reports.contains_key("900"));
    zones.reports_listed(|_| false);
    assert!(zones.reports_of.is_empty());
}

/// A list has its objects in the order of their names: what was written last may come first.
#[test]
fn reports_of_cells_that_are_known_stay_whichever_came_first() {
    let (mut zone, mut zones) = (Fixture::new(3), Zones::default());
    see(&mut zones, 0, &mut zone, "1", 0);
    for cell in 1..100 {
        let carried_before = ZoneReportSpec {
            cell,
            ..report(&mut zone, 1)
        };
        zones.report(Millis(1), &format!("{cell}"), &carried_before);
    }
    assert_eq!(zones.reports.len(), REPORTS_OF_ONE);
    see(&mut zones, 2, &mut zone, "1", 2);
    assert!(is_cut(&zones));
}

/// Of one that has reported for as many known cells as are held, one more about a made-up cell is left out,
/// and nothing of it stays.
#[test]
fn a_report_that_is_left_out_leaves_nothing_behind() {
    let (mut zone, mut zones) = (Fixture::new(3), Zones::default());
    for known in 0..REPORTS_OF_ONE {
        let mut object = zone_health("1");
        let cell = u32::try_from(known).unwrap();
        object.metadata.name = Some(cell_object_name(ZONE, cell));
        zones.zone_health(Millis(0), &object, zone.roster());
        let spec = ZoneReportSpec {
            cell,
            ..report(&mut zone, 1)
        };
        zones.report(Millis(1), &format!("{cell}"), &spec);
    }
    let made_up = ZoneReportSpec {
        cell: 999,
        ..report(&mut zone, 1)
    };
    zones.report(Millis(1), "made up", &made_up);
    assert!(!zones.reports.contains_key("made up") && zones.reports.len() == REPORTS_OF_ONE);
    let held = format!("{:?}", zones.book());
    let holds = |cell| held.contains(&format!("{:?}", cell_object_name(ZONE, cell)));
    assert!(holds(31) && !holds(999));
}
