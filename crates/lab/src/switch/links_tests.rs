use super::*;
use rstest::rstest;

const C: End = End::Cloud;
const fn n(node: u8) -> End {
    End::Node(node)
}
const SLOW: Fault = Fault {
    cut: false,
    delay: Duration::from_millis(40),
    drop_percent: 30,
};
const DELIVER: Verdict = Verdict::Deliver {
    delay: Duration::ZERO,
    drop_percent: 0,
};
const LATE: Verdict = Verdict::Deliver {
    delay: Duration::from_millis(40),
    drop_percent: 30,
};

/// Each row: what was done to a table of three nodes, a direction, what becomes of it.
#[rstest]
#[case::whole(|_: &mut Links| {}, n(1), n(2), DELIVER)]
#[case::whole_to_cloud(|_: &mut Links| {}, n(1), C, DELIVER)]
#[case::own_traffic(|l: &mut Links| l.set(1, C, Way::Both, Fault::CUT), n(1), n(1), DELIVER)]
#[case::cut_out(|l: &mut Links| l.set(2, C, Way::Both, Fault::CUT), n(2), C, Verdict::Silence)]
#[case::cut_back(|l: &mut Links| l.set(2, C, Way::Both, Fault::CUT), C, n(2), Verdict::Silence)]
#[case::cut_cloud_keeps_peers(|l: &mut Links| l.set(2, C, Way::Both, Fault::CUT), n(2), n(1), DELIVER)]
#[case::cut_cloud_keeps_others(|l: &mut Links| l.set(2, C, Way::Both, Fault::CUT), n(1), C, DELIVER)]
#[case::from_cuts_out(|l: &mut Links| l.set(2, n(3), Way::From, Fault::CUT), n(2), n(3), Verdict::Silence)]
#[case::from_keeps_back(|l: &mut Links| l.set(2, n(3), Way::From, Fault::CUT), n(3), n(2), DELIVER)]
#[case::to_cuts_back(|l: &mut Links| l.set(2, n(3), Way::To, Fault::CUT), n(3), n(2), Verdict::Silence)]
#[case::to_keeps_out(|l: &mut Links| l.set(2, n(3), Way::To, Fault::CUT), n(2), n(3), DELIVER)]
#[case::slow_out(|l: &mut Links| l.set(1, n(2), Way::From, SLOW), n(1), n(2), LATE)]
#[case::slow_not_back(|l: &mut Links| l.set(1, n(2), Way::From, SLOW), n(2), n(1), DELIVER)]
#[case::off_to_it(|l: &mut Links| l.power_off(3), n(1), n(3), Verdict::Silence)]
#[case::off_from_it(|l: &mut Links| l.power_off(3), n(3), C, Verdict::Silence)]
#[case::off_to_itself(|l: &mut Links| l.power_off(3), n(3), n(3), Verdict::Silence)]
#[case::off_keeps_others(|l: &mut Links| l.power_off(3), n(1), n(2), DELIVER)]
#[case::on_again(|l: &mut Links| { l.power_off(3); l.power_on(3); }, n(1), n(3), DELIVER)]
#[case::on_again_still_cut(
    |l: &mut Links| { l.set(3, C, Way::Both, Fault::CUT); l.power_off(3); l.power_on(3); }, n(3), C, Verdict::Silence)]
#[case::repair_one(|l: &mut Links| { l.set(2, C, Way::Both, Fault::CUT); l.repair(Some(2)); }, C, n(2), DELIVER)]
#[case::repair_from_other_end(
    |l: &mut Links| { l.set(2, n(1), Way::Both, Fault::CUT); l.repair(Some(1)); }, n(2), n(1), DELIVER)]
#[case::repair_another(
    |l: &mut Links| { l.set(2, C, Way::Both, Fault::CUT); l.repair(Some(1)); }, n(2), C, Verdict::Silence)]
#[case::repair_all(|l: &mut Links| { l.set(2, C, Way::Both, Fault::CUT); l.repair(None); }, n(2), C, DELIVER)]
#[case::repair_leaves_power(|l: &mut Links| { l.power_off(2); l.repair(None); }, n(2), C, Verdict::Silence)]
#[case::later_fault_wins(
    |l: &mut Links| { l.set(1, n(2), Way::Both, Fault::CUT); l.set(1, n(2), Way::From, SLOW); }, n(1), n(2), LATE)]
#[case::unknown_node(|_: &mut Links| {}, n(1), n(9), Verdict::Silence)]
#[case::node_zero(|_: &mut Links| {}, n(0), C, Verdict::Silence)]
fn traffic(#[case] change: fn(&mut Links), #[case] from: End, #[case] to: End, #[case] expected: Verdict) {
    let mut links = Links::new(3);
    change(&mut links);
    assert_eq!(links.verdict(from, to), expected);
    assert_eq!(links.passes(from, to), expected != Verdict::Silence);
}

#[test]
fn a_handshake_takes_both_directions() {
    for way in [Way::Both, Way::From, Way::To] {
        let mut links = Links::new(2);
        assert!(links.both_ways(n(1), n(2)));
        links.set(1, n(2), way, Fault::CUT);
        assert!(!links.both_ways(n(1), n(2)), "{way}");
        assert!(!links.both_ways(n(2), n(1)), "{way}");
        assert!(links.both_ways(n(1), C), "{way}");
    }
}

#[test]
fn a_node_is_unreachable_once_nobody_can_reach_it() {
    let mut links = Links::new(3);
    links.set(1, n(2), Way::Both, Fault::CUT);
    links.set(1, n(3), Way::From, Fault::CUT);
    assert!(!links.is_unreachable(1), "the cloud still reaches it");
    links.set(1, C, Way::To, Fault::CUT);
    assert!(links.is_unreachable(1));
    assert!(!links.is_unreachable(2));
    links.power_off(2);
    assert!(links.is_unreachable(2));
}

#[test]
fn a_frozen_machine_answers_nothing_and_goes_on_in_the_same_boot() {
    let mut links = Links::new(2);
    links.freeze(2);
    assert!(links.is_frozen(2) && links.is_on(n(2)) && links.is_unreachable(2));
    for (from, to) in [(n(1), n(2)), (n(2), n(1)), (n(2), C), (C, n(2)), (n(2), n(2))] {
        assert_eq!(links.verdict(from, to), Verdict::Silence, "{from:?} to {to:?}");
    }
    assert_eq!(
        links.verdict_of_datagram(n(1), n(2)),
        DELIVER,
        "its network card takes it in"
    );
    assert_eq!(links.verdict_of_datagram(n(2), n(1)), Verdict::Silence);
    links.thaw(2);
    assert!(links.both_ways(n(1), n(2)) && links.both_ways(n(2), C));
    assert_eq!(links.boot(n(2)), 0);
    // Power that goes while it stands still is gone for good.
    links.freeze(2);
    links.power_off(2);
    links.thaw(2);
    assert!(!links.is_frozen(2) && !links.passes(n(1), n(2)));
    assert_eq!(links.verdict_of_datagram(n(1), n(2)), Verdict::Silence);
    links.freeze(2);
    links.power_on(2);
    assert!(links.both_ways(n(1), n(2)));
}

#[test]
fn each_power_cycle_is_one_boot() {
    let mut links = Links::new(2);
    links.power_on(1);
    assert_eq!(links.boot(n(1)), 0, "it was on already");
    links.power_off(1);
    links.power_off(1);
    assert_eq!(
        links.boot(n(1)),
        0,
        "an old connection is held, not reset, while the node is off"
    );
    links.power_on(1);
    links.power_on(1);
    assert_eq!((links.boot(n(1)), links.boot(n(2)), links.boot(C)), (1, 0, 0));
}

#[test]
fn faults_are_told_as_their_node_sees_them() {
    let mut links = Links::new(2);
    links.set(1, C, Way::Both, Fault::CUT);
    links.set(1, n(2), Way::From, SLOW);
    let told = |node| -> Vec<String> {
        links
            .faults_of(node)
            .iter()
            .map(|(end, way, fault)| format!("{end:?} {way} {fault}"))
            .collect()
    };
    assert_eq!(
        told(1),
        ["Cloud both ways cut", "Node(2) outgoing delayed 40 ms, 30 % lost"]
    );
    assert_eq!(told(2), ["Node(1) incoming delayed 40 ms, 30 % lost"]);
}
