//! Replicas that start, and replicas that follow.

use super::*;

/// Hazards 20 and 50.
#[test]
fn a_restarted_replica_keeps_a_disconnected_node_until_it_must_have_heard() {
    let mut case = restarted(&recorded(NodeState::Disconnected, Latch::Open));
    for second in 101..121 {
        assert_eq!(
            case.go(second).state(),
            NodeState::Disconnected,
            "second {second}"
        );
    }
    assert_eq!(case.go(121).state(), NodeState::Unknown);
    let mut case = restarted(&recorded(NodeState::Disconnected, Latch::Open));
    case.go(105);
    case.convict(5);
    assert_eq!(case.look().state(), STOCK_PACE, "evidence against it ends that");
}

#[test]
fn a_restarted_replica_starts_from_the_latches_of_its_predecessor() {
    let isolated = recorded(NodeState::Isolated, Latch::Isolated { since: at(50) });
    let mut case = restarted(&isolated);
    case.evidence.life.stock_mark = None;
    case.go(103);
    case.convict(30);
    assert_eq!(
        case.look().state(),
        NodeState::Isolated,
        "not Dead by its first round"
    );

    let latch = Latch::Dead(adopted(90, 90));
    let mut case = restarted(&recorded(ANNOUNCED, latch));
    assert_eq!(case.go(102).state(), PAUSED);
    case.evidence.life.stock_mark = None;
    case.convict(30);
    assert_eq!(case.look().state(), ANNOUNCED);
    case.go(107);
    case.convict(30);
    assert_eq!(
        case.look().state(),
        ANNOUNCED,
        "16 s after a first round of another clock"
    );
    case.go(118);
    case.convict(40);
    assert_eq!(case.look().state(), CONFIRMED);
}

/// A majority needs a voter whose agent began anew at second 106: it vouches for the silence since then.
#[test]
fn a_voter_that_begins_anew_delays_the_confirmation_and_does_not_prevent_it() {
    let mut case = Case1::silent(4);
    case.convict(4);
    assert_eq!(case.look().state(), ANNOUNCED);
    let mut late = case.clone();
    late.go(126);
    late.convict(6);
    assert_eq!(late.look().state(), ANNOUNCED);
    let mut one_round = late.clone();
    one_round.go(127);
    one_round.convict(41);
    assert_eq!(one_round.look().state(), CONFIRMED, "one round is without it");
    late.go(139);
    late.convict(19);
    assert_eq!(late.look().state(), STOCK_PACE, "its Lease was stale at 126");
    for second in [107, 111, 115, 119] {
        case.go(second);
        case.convict(second - 106);
        assert_eq!(case.look().state(), ANNOUNCED, "at {second}");
    }
    case.go(120);
    case.convict(14);
    assert_eq!(
        case.look().state(),
        CONFIRMED,
        "a challenge 12 s after the round at 107"
    );
}

/// The node was last heard at second 86 and voted dead at 90; the leader before said 70.
#[test]
fn a_death_is_confirmed_by_own_rounds_where_the_clock_of_the_leader_before_was_behind() {
    let latch = Latch::Dead(adopted(69, 70));
    let mut case = restarted(&recorded(ANNOUNCED, latch));
    case.evidence.life.stock_mark = None;
    case.go(103);
    case.convict(17);
    assert_eq!(case.look().state(), ANNOUNCED);
    case.go(114);
    case.convict(28);
    assert_eq!(case.look().state(), ANNOUNCED, "11 s after its own first round");
    case.go(118);
    case.convict(32);
    assert_eq!(case.look().state(), CONFIRMED);
}

/// Hazard 58: what is not confirmed stays reversible, also for a replica that has just started.
#[test]
fn a_restarted_replica_keeps_evictions_from_an_announced_death_until_stock_time() {
    use crate::protection::protection;
    use crate::{Profile, Settings};
    let settings = Settings::of(Profile::Edge);
    let latch = Latch::Dead(adopted(89, 90));
    let mut case = restarted(&recorded(ANNOUNCED, latch));
    let kept = |case: &mut Case1, second| {
        let decision = case.go(second);
        protection(&decision, &settings, &case.timing, at(second)).evictions
    };
    assert!(kept(&mut case, 101) && kept(&mut case, 139));
    assert!(!kept(&mut case, 140), "50 s after the first round");
    // Without any record: 50 s from when it was first seen.
    let mut case = restarted(&recorded(NodeState::Unknown, Latch::Open));
    case.go(103);
    case.convict(30);
    assert!(kept(&mut case, 104) && kept(&mut case, 149));
    assert!(!kept(&mut case, 150));
}

/// The node has no Lease, and the round is older than what this replica knows of the node: from 25 s of
/// silence on, stock Kubernetes acts.
#[test]
fn a_death_from_before_a_replica_started_is_no_verdict_once_the_lease_is_stale() {
    let mut case = restarted(&recorded(NodeState::Unknown, Latch::Open));
    case.evidence.life.stock_mark = None;
    case.evidence.life.renewal = None;
    case.convict(30);
    let decision = case.go(124);
    assert!(decision.held && decision.state() == NodeState::Unknown);
    let decision = case.go(126);
    assert_eq!(
        (decision.state(), decision.reason, decision.held),
        (NodeState::Unknown, Reason::NoVerdict(NoVerdict::Void), false)
    );
}

/// A follower waits for the leader's word on a mark that each may have seen at another distance from the
/// renewal.
#[test]
fn a_follower_calls_a_mark_apart_from_a_renewal_later_than_the_leader() {
    let renewed = Life {
        renewed: Some(at(100)),
        ..Life::default()
    };
    let marked = |second| Life {
        stock_mark: Some(at(second)),
        ..renewed
    };
    assert!(marked(105).is_marked(0) && !marked(105).is_marked(SKEW_MS));
    assert!(!marked(109).is_marked(SKEW_MS) && marked(110).is_marked(SKEW_MS));
    assert!(renewed.marked(SKEW_MS, at(101)).is_marked(SKEW_MS));
}

/// A death stands until evidence of life, also for a replica that does not know yet whether the Lease is
/// renewed.
#[test]
fn a_restarted_replica_takes_a_death_back_as_soon_as_its_peers_vouch_for_the_node() {
    let latch = Latch::Dead(DeadLatch {
        confirmed: Some(at(99)),
        ..adopted(89, 90)
    });
    let mut case = restarted(&recorded(CONFIRMED, latch));
    case.evidence.life.stock_mark = None;
    case.go(103);
    case.vouch(Health::Ok);
    let decision = case.look();
    assert_eq!(decision.state(), NodeState::Disconnected);
    assert_eq!((decision.memory.latch, decision.held), (Latch::Open, false));
    assert_eq!(case.go(110).state(), NodeState::Disconnected);
    case.renew();
    assert_eq!(case.look().state(), NodeState::Healthy);
}

/// Every replica ends what it keeps when the leader does, and not by when it was itself started.
#[test]
fn a_replica_that_started_in_the_silence_counts_from_the_leaders_last_sign_of_life() {
    use crate::protection::protection;
    use crate::{Profile, Settings};
    let settings = Settings::of(Profile::Edge);
    let latch = Latch::Dead(adopted(104, 105));
    let word = Recorded {
        life: Some(at(80)),
        ..recorded(ANNOUNCED, latch)
    };
    // It has seen the Lease since second 100; the death is recorded later, or was before.
    for known_before in [true, false] {
        let mut case = restarted(&recorded(NodeState::Unknown, Latch::Open));
        if known_before {
            case = restarted(&word);
        }
        case.go(108);
        case.memory.adopt(&word);
        let kept = |case: &mut Case1, second| {
            let decision = follow(&case.go(second), Some(&word), at(second));
            protection(&decision, &settings, &case.timing, at(second)).evictions
        };
        assert!(kept(&mut case, 129));
        assert!(!kept(&mut case, 130), "50 s after the leader saw it alive");
        assert!(
            case.memory.life == Some(at(80)),
            "also where it leads from now on"
        );
        // What it sees itself counts again.
        case.evidence.life.renewed = Some(at(103));
        let own = case.look();
        assert_eq!(own.memory.life, Some(at(103)));
        let told = follow(&own, Some(&word), at(130)).memory.life;
        assert_eq!(told, Some(at(80)), "while the leader speaks, its record counts");
    }
}

#[test]
fn a_follower_says_what_the_leader_says_unless_it_sees_nothing() {
    let mut case = Case1::silent(30);
    case.vouch(Health::Ok);
    let own = case.look();
    let word = recorded(NodeState::KubeletDown, Latch::Open);
    assert_eq!(follow(&own, Some(&word), at(100)).state(), NodeState::KubeletDown);
    assert_eq!(follow(&own, None, at(100)), own);
    case.blind = true;
    let own = case.go(200);
    assert_eq!(own.view, View::Lost);
    assert_eq!(follow(&own, Some(&word), at(200)), own);
}

#[test]
fn a_follower_lets_the_leader_speak_first() {
    let mut case = Case1::watched();
    case.timing = case.timing.following();
    case.renews = false;
    assert_eq!(case.go(129).state(), NodeState::Healthy);
    case.vouch(Health::Ok);
    assert_eq!(case.go(130).state(), NodeState::Disconnected);
    assert_eq!(
        case.go(129 + 15 + SKEW_MS / 1000 - 1).state(),
        NodeState::Disconnected
    );
    assert_eq!(case.go(129 + 15 + SKEW_MS / 1000).state(), NodeState::Unknown);
}

/// A leader that sees nothing keeps the Lease, and its record is old.
#[rstest]
#[case::a_death(NodeState::Dead(Dead::Announced), NodeState::Disconnected, true)]
#[case::a_confirmed_death(NodeState::Dead(Dead::Confirmed), NodeState::Isolated, true)]
#[case::evidence_of_life(NodeState::Disconnected, NodeState::Dead(Dead::Confirmed), true)]
#[case::how_far_a_death_goes(NodeState::Dead(Dead::Announced), NodeState::Dead(Dead::Confirmed), false)]
#[case::where_no_majority_speaks(NodeState::Unknown, NodeState::Disconnected, false)]
#[case::what_a_latch_knows(NodeState::Healthy, NodeState::Isolated, false)]
fn a_record_that_contradicts_a_majority_is_followed_for_a_minute(
    #[case] own: NodeState,
    #[case] leaders: NodeState,
    #[case] is_overruled: bool,
) {
    let decision = |view| Decision {
        memory: Memory {
            state: own,
            since: at(100),
            ..Memory::default()
        },
        reason: Reason::EvidenceRanOut,
        view,
        held: false,
    };
    let word = recorded(leaders, Latch::Open);
    let says = |view, now| follow(&decision(view), Some(&word), at(now)).state();
    assert_eq!(says(View::Full, 159), leaders);
    assert_eq!(says(View::Full, 160), if is_overruled { own } else { leaders });
    assert_eq!(says(View::Held, 160), leaders, "who sees less follows");
}

/// Somebody labelled the Lease: its resourceVersion grew, and the kubelet wrote nothing.
#[test]
fn a_round_that_names_a_lease_that_was_only_labelled_names_the_last_renewal() {
    let life = Life {
        renewal: Some(Renewal(11)),
        touched: Some(Renewal(15)),
        ..Life::default()
    };
    let order = |named| life.order(Renewal(named)) as i8;
    assert_eq!([10, 11, 13, 15, 16].map(order), [-1, 0, 0, 0, 1]);
}
