//! When a zone is Dark, and until when (hazards 17, 18 and 50).

use super::*;

#[rstest]
#[case::all_stale_and_used_to_report(true, false, NodeState::Dark)]
#[case::one_kubelet_still_renews(true, true, NodeState::Unknown)]
#[case::never_had_agents(false, false, NodeState::Unknown)]
fn dark_needs_a_silent_zone_and_every_lease_stale(
    #[case] reported: bool,
    #[case] some_member_fresh: bool,
    #[case] expected: NodeState,
) {
    let mut case = Case1::silent(4);
    case.evidence.zone.reported = reported;
    case.evidence.zone.some_member_fresh = some_member_fresh;
    assert_eq!(case.go(140).state(), expected);
}

/// Hazards 50, 54 and 55: nobody can vouch for a node of a zone that is cut off as a whole, and a replica
/// that starts, or whose watches broke, counts its silence anew.
#[test]
fn a_dark_zone_stays_dark_while_its_silence_is_counted_anew() {
    let dark = |second| (second, NodeState::Dark);
    let mut case = restarted(&recorded(NodeState::Dark, Latch::Open));
    (case.evidence.zone.advanced, case.evidence.zone.some_member_fresh) = (None, true);
    for second in 101..140 {
        // From then on every member has been silent for long enough to say so.
        case.evidence.zone.some_member_fresh = second < 125;
        assert_eq!((second, case.go(second).state()), dark(second));
    }
    assert_eq!(case.memory.since, at(90), "its time goes on");
    case.blind = true;
    case.go(150);
    case.blind = false;
    for second in 151..200 {
        assert_eq!((second, case.go(second).state()), dark(second));
    }
    let mut gone = restarted(&recorded(NodeState::Dark, Latch::Open));
    gone.evidence.zone.reported = false;
    assert_eq!(gone.go(101).state(), NodeState::Unknown, "it has no agents");
}

/// The members of a zone that was cut off come back one by one: what was held for those of which nothing was
/// heard yet is held for as long as that takes, and no longer.
#[rstest]
#[case::somebody_reports(|zone: &mut ZoneEvidence| zone.advanced = Some(at(300)))]
#[case::another_kubelet_renews(|zone: &mut ZoneEvidence| zone.some_member_renews = true)]
fn a_dark_zone_that_comes_back_is_dark_for_20_s_more(#[case] sign: fn(&mut ZoneEvidence)) {
    let mut case = Case1::silent(4);
    case.evidence.zone.some_member_fresh = false;
    assert_eq!(case.go(299).state(), NodeState::Dark);
    sign(&mut case.evidence.zone);
    case.evidence.zone.some_member_fresh = true;
    for second in 300..340 {
        let held = second < 320;
        let expected = if held { NodeState::Dark } else { NodeState::Unknown };
        assert_eq!((second, case.go(second).state()), (second, expected));
        // The zone goes on to report; that it did so is no new sign.
        case.evidence.zone.advanced = case.evidence.zone.advanced.map(|_| at(second));
    }
    // It is heard of in the middle of that: it is what it is found to be, at once.
    let mut heard = Case1::silent(4);
    heard.evidence.zone.some_member_fresh = false;
    heard.go(299);
    sign(&mut heard.evidence.zone);
    heard.go(300);
    heard.vouched_until(330);
    assert_eq!(heard.go(305).state(), NodeState::Disconnected);
    heard.renew();
    assert_eq!(heard.look().state(), NodeState::Healthy);
}
