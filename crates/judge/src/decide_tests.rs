use super::super::evidence::{Life, WatchProof, ZoneEvidence};
use super::*;
use proptest::prelude::*;
use rstest::rstest;

const T0: u64 = 1_000_000;

fn at(seconds: u64) -> Millis {
    Millis(T0 + seconds * 1000)
}

/// A watch that has delivered something at least every 5 s from second 0 to `until`.
fn watched(until: u64) -> WatchProof {
    let mut watch = WatchProof::default();
    for second in (0..=until).step_by(5) {
        watch.progress(at(second));
    }
    watch.progress(at(until));
    watch
}

/// Evidence at second `now` on a node whose Lease was last seen renewed at second `renewed`.
fn silent_since(renewed: u64, now: u64, verdict: Verdict) -> Evidence {
    Evidence {
        life: Life {
            first_seen: Some(at(0)),
            renewed: Some(at(renewed)),
            stock_mark: None,
        },
        watch: watched(now),
        verdict,
        zone: ZoneEvidence {
            reporting: Reporting::Talking,
            some_member_fresh: true,
        },
        one_short: None,
        agent_write: None,
    }
}

fn alive(cloud: Link, kubelet: Health) -> Verdict {
    Verdict::Alive {
        cloud,
        kubelet,
        runtime: Health::Ok,
    }
}

fn dead(round: u64) -> Verdict {
    Verdict::Dead {
        round_began: at(round),
    }
}

fn was(state: NodeState) -> Memory {
    let dead = matches!(state, NodeState::Dead(_)).then_some(at(50));
    Memory {
        state,
        since: at(1),
        dead,
        ..Memory::default()
    }
}

fn decided(evidence: &Evidence, memory: &Memory, now: u64) -> NodeState {
    let decision = decide(evidence, memory, &Timing::default(), at(now));
    assert!(!decision.held, "held: {}", decision.reason);
    decision.memory.state
}

fn held(evidence: &Evidence, memory: &Memory, now: u64) -> NodeState {
    let decision = decide(evidence, memory, &Timing::default(), at(now));
    assert!(decision.held, "decided: {}", decision.reason);
    decision.memory.state
}

const NOT_LISTED: Verdict = Verdict::None(NoVerdict::NotListed);
const EXPIRED: Verdict = Verdict::None(NoVerdict::Expired);
const SILENT: Verdict = Verdict::None(NoVerdict::ZoneSilent);
const ANNOUNCED: NodeState = NodeState::Dead(Dead::Announced);
const CONFIRMED: NodeState = NodeState::Dead(Dead::Confirmed);
const PAUSED: NodeState = NodeState::Dead(Dead::Paused);

#[rstest]
// Row 1: fresh, alive or none.
#[case::fresh_none(90, 100, NOT_LISTED, NodeState::Healthy)]
#[case::fresh_alive(90, 100, alive(Link::Up, Health::Ok), NodeState::Healthy)]
#[case::fresh_alive_link_down(90, 100, alive(Link::Down, Health::Ok), NodeState::Healthy)]
#[case::fresh_kubelet_said_broken(90, 100, alive(Link::Up, Health::Failing), NodeState::Healthy)]
#[case::just_fresh(76, 100, EXPIRED, NodeState::Healthy)]
// Row 2: stale, alive, the agent reaches the API server.
#[case::agent_reaches_api(75, 100, alive(Link::Up, Health::Ok), NodeState::KubeletDown)]
// Row 3: stale, alive, link down.
#[case::just_stale_link_down(75, 100, alive(Link::Down, Health::Ok), NodeState::Disconnected)]
#[case::long_stale_link_down(5, 1000, alive(Link::Down, Health::Ok), NodeState::Disconnected)]
#[case::kubelet_broken_for_a_moment(5, 100, alive(Link::Down, Health::Failing), NodeState::Disconnected)]
// Stale and alive, nobody says why: no evidence for a deviation from stock.
#[case::no_word_on_the_link(5, 100, alive(Link::Unknown, Health::Ok), NodeState::Unknown)]
// Row 4: dead, from a round begun after the last renewal.
#[case::dead_while_lease_is_fresh(90, 100, dead(95), ANNOUNCED)]
#[case::dead_and_silent_for_14_s(86, 100, dead(95), ANNOUNCED)]
#[case::dead_and_silent_for_15_s(85, 100, dead(95), CONFIRMED)]
#[case::dead_and_stale(5, 100, dead(95), CONFIRMED)]
// Row 5: renewed after the verdict.
#[case::renewed_after_the_round(97, 100, dead(95), NodeState::Isolated)]
#[case::renewed_as_the_round_began(95, 100, dead(95), NodeState::Isolated)]
#[case::isolated_then_stale_on_an_old_round(60, 100, dead(50), NodeState::Isolated)]
#[case::isolated_then_dead_by_a_new_round(60, 100, dead(70), CONFIRMED)]
// Row 6: stale, no verdict, the zone talks.
#[case::not_listed(75, 100, NOT_LISTED, NodeState::Unknown)]
#[case::evidence_of_life_ran_out(5, 100, EXPIRED, NodeState::Unknown)]
#[case::no_majority(5, 100, Verdict::None(NoVerdict::NoMajority), NodeState::Unknown)]
#[case::refused(5, 100, Verdict::None(NoVerdict::Refused), NodeState::Unknown)]
#[case::not_a_member(5, 100, Verdict::None(NoVerdict::NotAMember), NodeState::Unknown)]
fn every_row_of_the_table(
    #[case] renewed: u64,
    #[case] now: u64,
    #[case] verdict: Verdict,
    #[case] expected: NodeState,
) {
    assert_eq!(
        decided(
            &silent_since(renewed, now, verdict),
            &was(NodeState::Healthy),
            now
        ),
        expected
    );
}

#[rstest]
#[case::all_stale_and_used_to_report(Reporting::Silent, false, NodeState::Dark)]
#[case::one_kubelet_still_renews(Reporting::Silent, true, NodeState::Unknown)]
#[case::never_had_agents(Reporting::Never, false, NodeState::Unknown)]
#[case::zone_talks(Reporting::Talking, false, NodeState::Unknown)]
fn dark_needs_a_silent_zone_and_every_lease_stale(
    #[case] reporting: Reporting,
    #[case] some_member_fresh: bool,
    #[case] expected: NodeState,
) {
    let zone = ZoneEvidence {
        reporting,
        some_member_fresh,
    };
    let evidence = Evidence {
        zone,
        ..silent_since(5, 100, SILENT)
    };
    assert_eq!(decided(&evidence, &was(NodeState::Healthy), 100), expected);
}

#[test]
fn a_dead_node_of_a_silent_zone_is_dead_not_dark() {
    let zone = ZoneEvidence {
        reporting: Reporting::Silent,
        some_member_fresh: false,
    };
    let evidence = Evidence {
        zone,
        ..silent_since(5, 100, SILENT)
    };
    assert_eq!(decided(&evidence, &was(CONFIRMED), 100), PAUSED);
}

#[test]
fn a_node_that_no_agent_watches_is_stock_though_its_zone_is_silent() {
    let zone = ZoneEvidence {
        reporting: Reporting::Silent,
        some_member_fresh: false,
    };
    let evidence = Evidence {
        zone,
        ..silent_since(5, 100, Verdict::None(NoVerdict::NotAMember))
    };
    assert_eq!(
        decided(&evidence, &was(NodeState::Healthy), 100),
        NodeState::Unknown
    );
}

#[test]
fn a_silent_zone_whose_last_word_is_dead_starts_nothing_irreversible() {
    let zone = ZoneEvidence {
        reporting: Reporting::Silent,
        some_member_fresh: false,
    };
    let mut evidence = Evidence {
        zone,
        ..silent_since(5, 100, dead(95))
    };
    assert_eq!(decided(&evidence, &was(NodeState::Healthy), 100), PAUSED);
    let paused = decide(&evidence, &was(CONFIRMED), &Timing::default(), at(100)).memory;
    evidence.zone.reporting = Reporting::Talking;
    assert_eq!(
        decided(&evidence, &paused, 100),
        CONFIRMED,
        "it goes on when the zone speaks again"
    );
}

#[test]
fn the_stock_controllers_own_mark_makes_a_lease_stale() {
    let mut evidence = silent_since(90, 100, alive(Link::Down, Health::Ok));
    evidence.life.stock_mark = Some(at(99));
    assert_eq!(
        decided(&evidence, &was(NodeState::Healthy), 100),
        NodeState::Disconnected
    );
    evidence.life.renewed = Some(at(100));
    assert_eq!(
        decided(&evidence, &was(NodeState::Disconnected), 100),
        NodeState::Healthy
    );
}

#[test]
fn a_mark_found_at_the_start_makes_a_lease_stale_that_was_never_seen_renewed() {
    let mut evidence = silent_since(0, 3, alive(Link::Down, Health::Ok));
    evidence.life = Life {
        first_seen: Some(at(1)),
        renewed: None,
        stock_mark: Some(at(1)),
    };
    assert_eq!(decided(&evidence, &Memory::default(), 3), NodeState::Disconnected);
}

#[test]
fn kubelet_down_needs_60_s_of_a_broken_kubelet() {
    let mut memory = was(NodeState::Healthy);
    for (now, expected) in [
        (100, NodeState::Disconnected),
        (159, NodeState::Disconnected),
        (160, NodeState::KubeletDown),
        (161, NodeState::KubeletDown),
    ] {
        let evidence = silent_since(5, now, alive(Link::Down, Health::Failing));
        let decision = decide(&evidence, &memory, &Timing::default(), at(now));
        assert_eq!(decision.memory.state, expected, "at {now} s");
        memory = decision.memory;
    }
}

#[test]
fn a_kubelet_that_answers_in_between_starts_the_60_s_over() {
    let mut memory = was(NodeState::Healthy);
    for (now, health) in [
        (100, Health::Failing),
        (150, Health::Ok),
        (155, Health::Failing),
        (170, Health::Failing),
    ] {
        let evidence = silent_since(5, now, alive(Link::Down, health));
        let decision = decide(&evidence, &memory, &Timing::default(), at(now));
        assert_eq!(decision.memory.state, NodeState::Disconnected, "at {now} s");
        memory = decision.memory;
    }
}

#[test]
fn a_runtime_that_fails_counts_like_the_kubelet() {
    let verdict = Verdict::Alive {
        cloud: Link::Down,
        kubelet: Health::Ok,
        runtime: Health::Failing,
    };
    let memory = Memory {
        broken_since: Some(at(30)),
        ..was(NodeState::Disconnected)
    };
    assert_eq!(
        decided(&silent_since(5, 100, verdict), &memory, 100),
        NodeState::KubeletDown
    );
}

#[test]
fn an_agent_seen_to_write_reaches_the_api_server() {
    let mut evidence = silent_since(5, 100, alive(Link::Unknown, Health::Ok));
    evidence.agent_write = Some(at(90));
    assert_eq!(
        decided(&evidence, &was(NodeState::Unknown), 100),
        NodeState::KubeletDown
    );
    evidence.agent_write = Some(at(80));
    assert_eq!(
        decided(&evidence, &was(NodeState::Unknown), 100),
        NodeState::Unknown,
        "an old write says nothing"
    );
}

#[test]
fn a_healing_link_leaves_the_kubelet_time_to_notice() {
    let mut memory = was(NodeState::Disconnected);
    for (now, expected) in [
        (100, NodeState::Disconnected),
        (159, NodeState::Disconnected),
        (160, NodeState::KubeletDown),
    ] {
        let evidence = silent_since(5, now, alive(Link::Up, Health::Ok));
        let decision = decide(&evidence, &memory, &Timing::default(), at(now));
        assert_eq!(decision.memory.state, expected, "at {now} s");
        memory = decision.memory;
    }
}

#[test]
fn a_verdict_that_expires_in_mid_dead_pauses_it_and_no_more() {
    let memory = was(CONFIRMED);
    assert_eq!(decided(&silent_since(5, 100, EXPIRED), &memory, 100), PAUSED);
    assert_eq!(decided(&silent_since(5, 100, NOT_LISTED), &memory, 100), PAUSED);
    let paused = decide(
        &silent_since(5, 100, EXPIRED),
        &memory,
        &Timing::default(),
        at(100),
    )
    .memory;
    assert_eq!(paused.since, memory.since, "the death goes on");
    assert_eq!(decided(&silent_since(5, 101, dead(95)), &paused, 101), CONFIRMED);
}

#[test]
fn a_verdict_that_expires_while_the_lease_still_counts_as_fresh_does_not_revive() {
    assert_eq!(
        decided(&silent_since(45, 60, EXPIRED), &was(ANNOUNCED), 60),
        PAUSED
    );
}

#[rstest]
#[case::renewal_without_verdict(55, EXPIRED, NodeState::Healthy)]
#[case::renewal_against_the_verdict(55, dead(50), NodeState::Isolated)]
#[case::majority_vouches_link_down(5, alive(Link::Down, Health::Ok), NodeState::Disconnected)]
#[case::majority_vouches_link_up(5, alive(Link::Up, Health::Ok), NodeState::KubeletDown)]
fn dead_is_left_only_on_evidence_of_life(
    #[case] renewed: u64,
    #[case] verdict: Verdict,
    #[case] expected: NodeState,
) {
    let decision = decide(
        &silent_since(renewed, 60, verdict),
        &was(CONFIRMED),
        &Timing::default(),
        at(60),
    );
    assert_eq!(decision.memory.state, expected);
    assert_eq!(decision.memory.dead, None, "the latch is open again");
}

#[test]
fn nothing_is_decided_on_a_watch_that_is_not_live() {
    for verdict in [dead(95), alive(Link::Down, Health::Ok), NOT_LISTED, SILENT] {
        let evidence = Evidence {
            watch: watched(85),
            ..silent_since(5, 100, verdict)
        };
        for state in [NodeState::Healthy, NodeState::Disconnected, CONFIRMED] {
            assert_eq!(held(&evidence, &was(state), 100), state);
        }
    }
}

#[test]
fn silence_is_counted_anew_after_a_gap_of_the_watch() {
    let mut watch = watched(60);
    watch.progress(at(90));
    let with = |watch, verdict| Evidence {
        watch,
        ..silent_since(55, 100, verdict)
    };
    assert_eq!(
        held(&with(watch, NOT_LISTED), &was(NodeState::Healthy), 100),
        NodeState::Healthy
    );
    assert_eq!(
        decided(&with(watch, dead(70)), &was(NodeState::Healthy), 100),
        ANNOUNCED,
        "10 s are proven"
    );
    watch.progress(at(104));
    let later = Evidence {
        watch,
        ..silent_since(55, 105, dead(70))
    };
    assert_eq!(
        decided(&later, &was(ANNOUNCED), 105),
        CONFIRMED,
        "15 s are proven"
    );
}

#[test]
fn a_watch_that_broke_has_to_prove_itself() {
    let mut watch = watched(100);
    watch.broken();
    assert_eq!(watch.live_since(at(100)), None);
    watch.progress(at(101));
    assert_eq!(watch.live_since(at(102)), Some(at(101)));
    assert_eq!(watch.live_since(at(116)), None);
}

/// A node whose Lease was only ever seen in the first list, at second `first`.
fn only_listed(first: u64, now: u64, verdict: Verdict) -> Evidence {
    let mut watch = WatchProof::default();
    for second in (first..=now).step_by(5) {
        watch.progress(at(second));
    }
    let life = Life {
        first_seen: Some(at(first)),
        renewed: None,
        stock_mark: None,
    };
    Evidence {
        life,
        watch,
        ..silent_since(0, now, verdict)
    }
}

#[test]
fn a_restart_holds_what_was_until_the_zone_speaks() {
    let memory = Memory::restored("Dead", at(10));
    let evidence = only_listed(100, 101, SILENT);
    assert_eq!(
        decided(&evidence, &memory, 101),
        PAUSED,
        "ZoneHealth is void until it advances"
    );
    let disconnected = Memory::restored("Disconnected", at(10));
    assert_eq!(held(&evidence, &disconnected, 101), NodeState::Disconnected);
    assert_eq!(held(&evidence, &Memory::default(), 101), NodeState::Unknown);
}

#[test]
fn a_restart_in_mid_dead_acts_only_on_time_it_has_seen() {
    let memory = Memory::restored("Dead", at(10));
    let soon = decide(
        &only_listed(100, 105, dead(50)),
        &memory,
        &Timing::default(),
        at(105),
    );
    assert_eq!((soon.memory.state, soon.memory.since), (ANNOUNCED, at(10)));
    assert_eq!(decided(&only_listed(100, 115, dead(50)), &memory, 115), CONFIRMED);
}

#[test]
fn a_restart_does_not_take_an_isolated_node_for_dead() {
    let evidence = only_listed(100, 105, dead(50));
    assert_eq!(
        held(&evidence, &Memory::default(), 105),
        NodeState::Unknown,
        "it may renew any second"
    );
    assert_eq!(
        held(&evidence, &Memory::restored("Isolated", at(10)), 105),
        NodeState::Isolated
    );
    let mut renewed = only_listed(100, 106, dead(50));
    renewed.life.renewed = Some(at(106));
    assert_eq!(decided(&renewed, &Memory::default(), 106), NodeState::Isolated);
}

#[test]
fn a_death_after_a_restart_is_seen_at_once_when_its_round_began_later() {
    assert_eq!(
        decided(&only_listed(100, 105, dead(103)), &Memory::default(), 105),
        ANNOUNCED
    );
}

#[test]
fn a_renewal_after_a_restart_revives() {
    let mut evidence = only_listed(100, 106, SILENT);
    evidence.life.renewed = Some(at(105));
    assert_eq!(
        decided(&evidence, &Memory::restored("Dead", at(10)), 106),
        NodeState::Healthy
    );
}

#[test]
fn a_node_without_a_lease_is_left_alone() {
    let life = Life {
        first_seen: None,
        renewed: None,
        stock_mark: None,
    };
    for verdict in [NOT_LISTED, SILENT, alive(Link::Down, Health::Ok), dead(95)] {
        let evidence = Evidence {
            life,
            ..silent_since(5, 100, verdict)
        };
        assert_eq!(held(&evidence, &was(NodeState::Healthy), 100), NodeState::Healthy);
    }
}

#[rstest]
#[case::peer_said_no_lease_young(90, Some(92), NodeState::Healthy)]
#[case::peer_said_no_14_s(86, Some(92), NodeState::Healthy)]
#[case::peer_said_no_15_s(85, Some(92), CONFIRMED)]
#[case::peer_said_no_before_the_renewal(85, Some(80), NodeState::Healthy)]
#[case::peer_said_nothing(85, None, NodeState::Healthy)]
fn in_a_zone_of_two_the_planner_casts_the_third_vote(
    #[case] renewed: u64,
    #[case] one_short: Option<u64>,
    #[case] expected: NodeState,
) {
    let verdict = Verdict::None(NoVerdict::NoMajority);
    let evidence = Evidence {
        one_short: one_short.map(at),
        ..silent_since(renewed, 100, verdict)
    };
    assert_eq!(decided(&evidence, &was(NodeState::Healthy), 100), expected);
}

#[test]
fn an_alive_verdict_overrules_a_single_no() {
    let evidence = Evidence {
        one_short: Some(at(95)),
        ..silent_since(5, 100, alive(Link::Down, Health::Ok))
    };
    assert_eq!(
        decided(&evidence, &was(NodeState::Healthy), 100),
        NodeState::Disconnected
    );
}

#[test]
fn a_state_keeps_its_beginning_while_it_lasts() {
    let first = decide(
        &silent_since(5, 100, dead(95)),
        &was(NodeState::Healthy),
        &Timing::default(),
        at(100),
    );
    assert_eq!(first.memory.since, at(100));
    let later = decide(
        &silent_since(5, 120, dead(95)),
        &first.memory,
        &Timing::default(),
        at(120),
    );
    assert_eq!(later.memory.since, at(100));
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    let link = prop_oneof![Just(Link::Unknown), Just(Link::Up), Just(Link::Down)];
    let health = prop_oneof![Just(Health::Unknown), Just(Health::Ok), Just(Health::Failing)];
    prop_oneof![
        Just(NOT_LISTED),
        Just(EXPIRED),
        Just(SILENT),
        Just(Verdict::None(NoVerdict::NoMajority)),
        (link, health.clone(), health).prop_map(|(cloud, kubelet, runtime)| Verdict::Alive {
            cloud,
            kubelet,
            runtime
        }),
        (0_u64..120).prop_map(dead),
    ]
}

proptest! {
    /// Whatever the history: nothing irreversible without a dead round, without a renewal older than 15 s seen on a
    /// live watch, or after a renewal seen since the round began.
    #[test]
    fn confirmed_death_always_rests_on_its_three_legs(
        steps in proptest::collection::vec((any_verdict(), 0_u64..30, any::<bool>(), any::<bool>()), 1..40),
    ) {
        let mut memory = Memory::default();
        let mut watch = WatchProof::default();
        let mut life = Life { first_seen: Some(at(0)), renewed: None, stock_mark: None };
        let mut now = 0;
        for (verdict, pause, renews, progress) in steps {
            now += pause;
            if progress || renews { watch.progress(at(now)); }
            if renews { life.renewed = Some(at(now)); }
            let evidence = Evidence { life, watch, ..silent_since(0, 0, verdict) };
            let decision = decide(&evidence, &memory, &Timing::default(), at(now));
            if !decision.held && decision.memory.state == CONFIRMED {
                let Verdict::Dead { round_began } = verdict else {
                    return Err(TestCaseError::fail(format!("confirmed on {verdict:?}")));
                };
                prop_assert!(life.renewed.is_none_or(|renewed| renewed < round_began));
                let since = watch.live_since(at(now)).expect("decided only on a live watch");
                prop_assert!(at(now).since(since) >= 15_000);
                prop_assert!(at(now).since(life.known_since().expect("set above")) >= 15_000);
            }
            memory = decision.memory;
        }
    }
}
