use super::*;
use crate::Profile;
use crate::memory::Memory;
use crate::state::Reason;
use rstest::rstest;

const NOW: Millis = Millis(100_000_000);

fn decision(state: NodeState, life_seconds_ago: u64) -> Decision {
    Decision {
        memory: Memory {
            state,
            since: Millis(NOW.0 - 10_000),
            life: Some(Millis(NOW.0 - life_seconds_ago * 1000)),
            ..Memory::default()
        },
        reason: Reason::NotLookedAt,
        view: View::Full,
        held: false,
    }
}

fn kept(decision: &Decision, settings: &Settings) -> (bool, bool) {
    let kept = protection(decision, settings, &Timing::default(), NOW);
    (kept.evictions, kept.readiness)
}

#[rstest]
#[case::disconnected(NodeState::Disconnected, 4000, (true, true))]
#[case::announced(NodeState::Dead(Dead::Announced), 49, (true, false))]
#[case::announced_until_stock_time(NodeState::Dead(Dead::Announced), 50, (false, false))]
#[case::stock_pace(NodeState::Dead(Dead::AtStockPace), 49, (true, false))]
#[case::paused(NodeState::Dead(Dead::Paused), 49, (true, false))]
#[case::confirmed(NodeState::Dead(Dead::Confirmed), 20, (false, false))]
#[case::dark_without_autonomy(NodeState::Dark, 4000, (false, false))]
#[case::isolated(NodeState::Isolated, 1, (false, false))]
#[case::kubelet_down(NodeState::KubeletDown, 1, (false, false))]
#[case::unknown(NodeState::Unknown, 60, (false, false))]
#[case::healthy(NodeState::Healthy, 1, (false, false))]
fn each_state_keeps_what_it_may(#[case] state: NodeState, #[case] life: u64, #[case] expected: (bool, bool)) {
    assert_eq!(
        kept(&decision(state, life), &Settings::of(Profile::Builtin)),
        expected
    );
}

#[test]
fn autonomy_holds_evictions_of_a_dark_zone_at_admission_for_its_time() {
    let mut settings = Settings::of(Profile::Edge);
    assert_eq!(kept(&decision(NodeState::Dark, 4000), &settings), (true, false));
    settings.autonomy_seconds = 10;
    assert_eq!(kept(&decision(NodeState::Dark, 4000), &settings), (false, false));
}

#[test]
fn who_observes_or_sees_nothing_keeps_nothing() {
    let mut settings = Settings::of(Profile::Edge);
    let mut blind = decision(NodeState::Disconnected, 1);
    blind.view = View::Held;
    assert_eq!(
        kept(&blind, &settings),
        (true, true),
        "a hold keeps what was kept"
    );
    blind.view = View::Lost;
    assert_eq!(kept(&blind, &settings), (false, false));
    settings.mode = ModePolicy::Observe;
    assert_eq!(
        kept(&decision(NodeState::Disconnected, 1), &settings),
        (false, false)
    );
}

#[test]
fn endpoints_follow_stock_where_the_policy_says_so() {
    let mut settings = Settings::of(Profile::Builtin);
    settings.endpoints = EndpointsPolicy::Stock;
    assert_eq!(
        kept(&decision(NodeState::Disconnected, 1), &settings),
        (true, false)
    );
}
