use super::*;
use crate::evidence::{AgentWrites, Life, SKEW_MS, ZoneEvidence};
use crate::sight::Sight;
use evenkeel_zone::verdict::Link;
use evenkeel_zone::wire::{Nonce, Renewal};
use proptest::bool::weighted;
use proptest::prelude::*;
use rstest::rstest;

#[path = "dark_tests.rs"]
mod dark;
#[path = "flapping_tests.rs"]
mod flapping;
#[path = "restart_tests.rs"]
mod restart;
#[path = "returning_tests.rs"]
mod returning;

const T0: u64 = 1_000_000;

fn at(seconds: u64) -> Millis {
    Millis(T0 + seconds * 1000)
}

/// One node under the eyes of one judge, looked at every second.
#[derive(Clone)]
struct Case1 {
    second: u64,
    evidence: Evidence,
    memory: Memory,
    timing: Timing,
    rounds: u8,
    /// Watches that show nothing, and whose audits fail.
    blind: bool,
    /// The kubelet renews every ten seconds.
    renews: bool,
}

impl Case1 {
    /// A member that renews its Lease, in a zone that reports; watched for 100 s.
    fn watched() -> Self {
        let mut case = Self {
            second: 0,
            evidence: Evidence {
                life: Life {
                    first_seen: Some(at(0)),
                    renewal: Some(Renewal(1)),
                    ..Life::default()
                },
                sight: Sight::new(at(0)),
                verdict: Verdict::None(NoVerdict::NotListed),
                zone: ZoneEvidence {
                    reported: true,
                    advanced: Some(at(0)),
                    some_member_fresh: true,
                    some_member_renews: false,
                    storm: false,
                    may_be_split: false,
                    may_prove_split: false,
                    is_returning: false,
                    is_alone: false,
                },
                agent: AgentWrites::default(),
            },
            memory: Memory::default(),
            timing: Timing::default(),
            rounds: 0,
            blind: false,
            renews: true,
        };
        case.go(100);
        assert_eq!(case.memory.state, NodeState::Healthy);
        case
    }

    /// The same, silent for `seconds` since its last renewal at second 100.
    fn silent(seconds: u64) -> Self {
        let mut case = Self::watched();
        case.renews = false;
        case.go(100 + seconds);
        case
    }

    fn look(&mut self) -> Decision {
        let decision = decide(&self.evidence, &self.memory, &self.timing, at(self.second));
        self.memory = decision.memory;
        decision
    }

    /// Lets time pass up to a second, looking every second.
    fn go(&mut self, until: u64) -> Decision {
        while self.second < until {
            self.second += 1;
            let now = at(self.second);
            if self.renews && self.second.is_multiple_of(10) {
                self.renew();
            }
            if !self.blind {
                self.evidence.sight.leases.progress(now);
                self.evidence.sight.reports.progress(now);
            }
            self.evidence.sight.look(now);
            self.look();
        }
        self.look()
    }

    fn renew(&mut self) {
        self.evidence.life.renewed = Some(at(self.second));
        self.evidence.life.renewal = self.evidence.life.renewal.map(|Renewal(last)| Renewal(last + 1));
        self.evidence.life.stock_mark = None;
        self.evidence.agent.renewed();
    }

    fn mark(&mut self) {
        self.evidence.life.stock_mark = Some(at(self.second));
    }

    fn vouch(&mut self, kubelet: Health) {
        let now = at(self.second);
        self.evidence.zone.advanced = Some(now);
        self.evidence.verdict = Verdict::Alive(Alive {
            received: now,
            until: now.plus(15_000),
            cloud: Link::Down,
            kubelet,
            runtime: Health::Unknown,
        });
    }

    /// Vouched for every five seconds, up to a second.
    fn vouched_until(&mut self, until: u64) -> Decision {
        while self.second < until {
            self.vouch(Health::Ok);
            self.go((self.second + 5).min(until));
        }
        self.look()
    }

    /// A round asked for a second ago, received now; its voters had no contact for `silence` seconds. It
    /// names the last renewal and signs a challenge that was drawn when it was asked for.
    fn convict(&mut self, silence: u64) {
        let last = self.evidence.life.renewal.unwrap_or(Renewal::NO_LEASE);
        self.convict_after(last, silence);
    }

    /// The same after a renewal that the round names.
    fn convict_after(&mut self, renewal: Renewal, silence: u64) {
        self.rounds = self.rounds.wrapping_add(1);
        let now = at(self.second);
        self.evidence.zone.advanced = Some(now);
        self.evidence.verdict = Verdict::Dead(Death {
            round: Nonce([self.rounds; 16]),
            renewal,
            challenged: Some(Millis(now.0 - 1000)),
            requested: Millis(now.0 - 1000),
            received: now,
            silence_ms: silence * 1000,
        });
    }

    fn state(&self) -> NodeState {
        self.memory.state
    }
}

const ANNOUNCED: NodeState = NodeState::Dead(Dead::Announced);
const CONFIRMED: NodeState = NodeState::Dead(Dead::Confirmed);
const STOCK_PACE: NodeState = NodeState::Dead(Dead::AtStockPace);
const PAUSED: NodeState = NodeState::Dead(Dead::Paused);

#[test]
fn a_lease_is_stale_after_25_s_and_the_neighbours_say_what_that_means() {
    let mut case = Case1::silent(24);
    assert_eq!(case.state(), NodeState::Healthy);
    let mut vouched = case.clone();
    vouched.vouch(Health::Ok);
    assert_eq!(vouched.go(125).state(), NodeState::Disconnected);
    assert_eq!(case.go(125).state(), NodeState::Unknown);
}

#[rstest]
#[case::not_listed(NoVerdict::NotListed)]
#[case::not_a_member(NoVerdict::NotAMember)]
#[case::no_majority(NoVerdict::NoMajority)]
#[case::refused(NoVerdict::Refused)]
#[case::void(NoVerdict::Void)]
fn a_stale_lease_without_a_verdict_is_stock(#[case] why: NoVerdict) {
    let mut case = Case1::silent(24);
    case.evidence.verdict = Verdict::None(why);
    let decision = case.go(125);
    assert_eq!(
        (decision.state(), decision.reason),
        (NodeState::Unknown, Reason::NoVerdict(why))
    );
}

#[test]
fn a_disconnected_node_stays_so_for_as_long_as_the_evidence_keeps_coming() {
    let mut case = Case1::silent(20);
    case.vouched_until(10_000);
    assert_eq!(case.state(), NodeState::Disconnected);
    // Vouched for last at second 9,995, for 15 s.
    assert_eq!(case.go(10_009).state(), NodeState::Disconnected);
    let decision = case.go(10_010);
    assert_eq!(
        (decision.state(), decision.reason),
        (NodeState::Unknown, Reason::EvidenceRanOut)
    );
}

#[test]
fn the_stock_controllers_mark_makes_a_lease_stale_at_once_and_a_renewal_fresh_again() {
    let mut case = Case1::silent(12);
    case.vouch(Health::Ok);
    case.mark();
    assert_eq!(case.look().state(), NodeState::Disconnected);
    case.evidence.life.renewed = case.evidence.life.stock_mark;
    assert_eq!(case.look().state(), NodeState::Healthy);
}

/// The stock controller may have read an older Lease than the one that we saw renewed.
#[test]
fn a_stock_mark_that_crosses_a_renewal_proves_nothing() {
    for (seconds, state) in [
        (0, NodeState::Healthy),
        (SKEW_MS / 1000 - 1, NodeState::Healthy),
        (SKEW_MS / 1000, NodeState::Disconnected),
    ] {
        let mut case = Case1::silent(seconds);
        case.vouch(Health::Ok);
        case.mark();
        assert_eq!(case.look().state(), state, "marked {seconds} s after the renewal");
        // What protects against the mark itself, which is on its way, does not ask.
        case.evidence.life = case.evidence.life.marked(0, at(case.second));
        assert_eq!(case.look().state(), NodeState::Disconnected);
    }
}

#[test]
fn a_kubelet_is_down_after_60_s_of_being_called_broken_without_a_break() {
    let mut case = Case1::silent(25);
    while case.second < 184 {
        case.vouch(Health::Failing);
        case.go(case.second + 1);
    }
    assert_eq!(case.state(), NodeState::Disconnected);
    case.vouch(Health::Failing);
    case.go(186);
    assert_eq!(case.state(), NodeState::KubeletDown);
    case.vouch(Health::Ok);
    assert_eq!(case.look().state(), NodeState::Disconnected);
}

#[test]
fn an_agent_seen_to_write_for_60_s_without_a_gap_means_that_the_kubelet_is_down() {
    let mut case = Case1::silent(30);
    case.vouched_until(140);
    let write_until = |case: &mut Case1, until: u64| {
        while case.second < until {
            case.vouch(Health::Ok);
            case.evidence.agent.seen(at(case.second));
            case.go(case.second + 10);
        }
    };
    write_until(&mut case, 190);
    assert_eq!(
        case.state(),
        NodeState::Disconnected,
        "the kubelet has time to notice"
    );
    // A gap of more than 30 s begins anew.
    case.vouched_until(225);
    write_until(&mut case, 275);
    assert_eq!(case.state(), NodeState::Disconnected);
    write_until(&mut case, 295);
    assert_eq!(case.state(), NodeState::KubeletDown);
    case.vouched_until(340);
    assert_eq!(
        case.state(),
        NodeState::Disconnected,
        "its writes ceased: the link is cut again"
    );
}

#[test]
fn a_death_is_announced_by_one_round_that_names_the_last_renewal() {
    let mut case = Case1::silent(3);
    case.convict(3);
    assert_eq!(case.look().state(), ANNOUNCED);
    // The challenge proves the round young enough, whatever age its reporter states.
    let mut case = Case1::silent(3);
    case.convict(3);
    if let Verdict::Dead(death) = &mut case.evidence.verdict {
        death.requested = Millis(0);
    }
    assert_eq!(case.look().state(), ANNOUNCED);
}

/// Hazard 41: votes that were kept back while the node renewed announce no death. Nor do they hold one up:
/// whoever asks for votes may name what it likes, and the next round that names the last renewal counts.
#[test]
fn a_round_that_names_an_earlier_renewal_says_nothing_until_the_node_writes() {
    let mut case = Case1::silent(3);
    let last = case.evidence.life.renewal.unwrap();
    case.convict_after(Renewal(last.0 - 1), 3);
    assert_eq!(case.look().state(), NodeState::Healthy);
    let mut other = case.clone();
    other.convict(3);
    assert_eq!(other.look().state(), ANNOUNCED);
    case.go(104);
    case.renew();
    assert_eq!(case.look().state(), NodeState::Isolated);
    assert_eq!(case.go(153).state(), NodeState::Isolated);
    assert_eq!(case.go(155).state(), STOCK_PACE, "from here its silence decides");
}

/// The watches of Leases and of reports deliver in any order.
#[test]
fn a_round_that_names_a_later_renewal_waits_until_that_is_seen() {
    let mut case = Case1::silent(3);
    let last = case.evidence.life.renewal.unwrap();
    case.convict_after(Renewal(last.0 + 1), 3);
    let decision = case.look();
    assert_eq!(
        (decision.state(), decision.reason, decision.held),
        (NodeState::Healthy, Reason::RenewalNotSeen, true)
    );
    case.go(105);
    case.renew();
    assert_eq!(case.look().state(), ANNOUNCED);
    assert_eq!(case.go(106).state(), ANNOUNCED, "that renewal is no sign of life");
    // A later round tells of a renewal that has not arrived here: nothing goes on until it does.
    case.convict_after(Renewal(last.0 + 2), 40);
    assert_eq!(case.look().state(), PAUSED);
    case.renew();
    assert_eq!(case.look().state(), NodeState::Isolated);
}

/// Whoever asks alone for a cell can make up a renewal. That holds up nothing for longer than a Lease needs
/// to be stale.
#[test]
fn a_renewal_that_never_comes_keeps_no_dead_node_disconnected() {
    let mut case = Case1::silent(3);
    assert_eq!(case.vouched_until(130).state(), NodeState::Disconnected);
    case.go(131);
    case.convict_after(Renewal(1 << 60), 40);
    assert_eq!(case.look().state(), NodeState::Unknown);
}

/// Without a Lease there is nothing that a round could name, and only the times of receipt are left.
#[test]
fn a_node_without_a_lease_is_dead_by_a_round_that_was_asked_for_after_it_was_first_seen() {
    let mut case = Case1::silent(3);
    case.evidence.life = Life {
        first_seen: Some(at(103)),
        ..Life::default()
    };
    case.convict(3);
    let decision = case.look();
    assert!(!matches!(decision.state(), NodeState::Dead(_)), "{decision:?}");
    case.go(105);
    case.convict(5);
    assert_eq!(case.look().state(), ANNOUNCED);
    case.evidence.life.renewed = Some(at(105));
    assert_eq!(
        case.look().state(),
        NodeState::Isolated,
        "a heartbeat in its status"
    );
}

/// What this replica did not draw itself tells it nothing about the time.
#[test]
fn a_challenge_of_another_controller_confirms_nothing() {
    let mut case = Case1::silent(4);
    case.convict(4);
    case.look();
    case.go(130);
    case.convict(30);
    let ours = case.clone();
    if let Verdict::Dead(death) = &mut case.evidence.verdict {
        death.challenged = None;
    }
    assert_eq!(case.look().state(), ANNOUNCED);
    assert_eq!(ours.clone().look().state(), CONFIRMED);
}

/// The challenge counts, not the time of the round: a ballot that signs an old challenge may be old.
#[test]
fn a_late_round_that_signs_an_early_challenge_confirms_nothing() {
    for (drawn, state) in [(115, ANNOUNCED), (116, CONFIRMED)] {
        let mut case = Case1::silent(4);
        case.convict(4);
        case.look();
        case.go(125);
        case.convict(25);
        if let Verdict::Dead(death) = &mut case.evidence.verdict {
            death.challenged = Some(at(drawn));
        }
        assert_eq!(case.look().state(), state, "drawn at second {drawn}");
    }
}

/// Hazard 21: its peers may lose a node right after a renewal.
#[test]
fn a_death_is_not_confirmed_within_15_s_of_the_last_renewal() {
    let mut case = Case1::silent(2);
    case.convict(2);
    assert_eq!(case.look().state(), ANNOUNCED);
    case.go(114);
    case.convict(14);
    assert_eq!(
        case.look().state(),
        ANNOUNCED,
        "12 s after the first round, 14 s after the renewal"
    );
    case.go(115);
    case.convict(15);
    assert_eq!(case.look().state(), CONFIRMED);
}

/// Hazard 42: the smaller side of a split zone may hold the majority of a single cell.
#[test]
fn a_death_is_not_confirmed_where_several_cells_convict_at_once() {
    let mut case = Case1::silent(4);
    case.convict(4);
    assert_eq!(case.look().state(), ANNOUNCED);
    let mut confirmed = case.clone();
    case.evidence.zone.may_be_split = true;
    for case in [&mut case, &mut confirmed] {
        case.go(120);
        case.convict(20);
    }
    assert_eq!(confirmed.look().state(), CONFIRMED);
    assert_eq!(
        (case.look().state(), case.look().reason),
        (STOCK_PACE, Reason::VotedDeadSlowly(Slow::SeveralCells))
    );
    // The storm passes, the doubt about this death does not; and what was confirmed before stays so.
    case.evidence.zone.may_be_split = false;
    confirmed.evidence.zone.may_be_split = true;
    case.go(190);
    confirmed.go(130);
    assert_eq!((case.state(), confirmed.state()), (STOCK_PACE, CONFIRMED));
}

/// Rounds from second 104 on, each signing a challenge that was drawn a second before; what the state is
/// after each.
fn rounds_of_a_dead_node() -> Vec<(u64, NodeState)> {
    let mut case = Case1::silent(4);
    let mut states = Vec::new();
    for second in [104, 108, 112, 116, 117] {
        case.go(second);
        case.convict(second - 100);
        states.push((second, case.look().state()));
    }
    states
}

#[test]
fn a_death_is_confirmed_by_a_challenge_12_s_after_the_first_round() {
    assert_eq!(
        rounds_of_a_dead_node(),
        [
            (104, ANNOUNCED),
            (108, ANNOUNCED),
            (112, ANNOUNCED),
            (116, ANNOUNCED),
            (117, CONFIRMED)
        ]
    );
}

/// Hazard 36: one stall is one death.
#[rstest]
#[case::once(vec![10])]
#[case::thrice(vec![4, 4, 4])]
fn a_node_that_stalls_and_lives_in_between_is_never_confirmed_dead(#[case] stalls: Vec<u64>) {
    let mut case = Case1::silent(4);
    for stall in stalls {
        // Lost by its peers for `stall` seconds, in which rounds find it dead.
        for second in 0..stall {
            case.convict(second + 3);
            let state = case.look().state();
            assert!(matches!(state, ANNOUNCED), "{state:?}");
            case.go(case.second + 1);
        }
        // It lives for a second: its voters hear it, though nobody publishes that in time.
        case.go(case.second + 1);
    }
    // Had the contact in between not counted, this round would confirm.
    case.go(130);
    case.convict(5);
    assert_eq!(
        case.look().state(),
        ANNOUNCED,
        "a contact since the first round makes a no void"
    );
}

#[test]
fn a_node_whose_lease_was_stale_at_the_first_round_is_not_evicted_faster_than_by_stock() {
    let mut case = Case1::silent(30);
    case.vouched_until(150);
    for _ in 0..20 {
        case.go(case.second + 4);
        case.convict(case.second - 146);
        assert_eq!(case.look().state(), STOCK_PACE);
    }
}

#[test]
fn evidence_of_life_takes_a_death_back_and_a_silent_zone_pauses_it() {
    let mut case = Case1::silent(4);
    for second in [104, 108, 112, 117] {
        case.go(second);
        case.convict(second - 100);
    }
    assert_eq!(case.look().state(), CONFIRMED);
    let mut silent = case.clone();
    assert_eq!(
        silent.go(147).state(),
        PAUSED,
        "nobody could tell any more that it lives"
    );
    silent.convict(46);
    assert_eq!(
        silent.look().state(),
        CONFIRMED,
        "it goes on when the zone speaks again"
    );
    let mut vouched = case.clone();
    vouched.vouch(Health::Ok);
    assert_eq!(vouched.go(130).state(), NodeState::Disconnected);
    case.renew();
    assert_eq!(
        case.look().state(),
        NodeState::Isolated,
        "its peers do not vouch for it yet"
    );
    case.vouch(Health::Ok);
    assert_eq!(case.look().state(), NodeState::Healthy);
}

/// The node is cut from its peers, and stalls just when its next renewal is due: only its agent wrote since
/// the vote.
#[test]
fn an_agent_that_writes_after_the_vote_proves_that_the_node_lives() {
    // The voters were asked at second 102.
    for (wrote, lives) in [(101, false), (102, true)] {
        let mut case = Case1::silent(3);
        case.convict(3);
        case.look();
        assert_eq!(case.state(), ANNOUNCED);
        case.go(105);
        case.evidence.agent.seen(at(wrote));
        case.look();
        assert_eq!(case.state() == NodeState::Isolated, lives);
        case.go(116);
        case.convict(16);
        case.look();
        assert_eq!(case.state(), if lives { NodeState::Isolated } else { CONFIRMED });
    }
}

/// Hazard 38: with moving rounds, as the real zone holds them.
#[test]
fn an_isolated_node_does_not_flap_while_its_peers_confirm_its_death_again_and_again() {
    let mut case = Case1::watched();
    let mut changes = 0;
    for second in (101..3700).step_by(4) {
        let before = case.state();
        case.go(second);
        case.convict(second - 97);
        case.look();
        changes += u32::from(!before.same_row(case.state()));
    }
    assert_eq!(case.state(), NodeState::Isolated);
    assert!(changes <= 2, "{changes} changes of state");
}

/// A node that its peers voted dead and whose Lease is renewed, at second 120.
fn isolated() -> Case1 {
    let mut case = Case1::watched();
    case.convict(3);
    case.go(120);
    assert_eq!(case.state(), NodeState::Isolated);
    case
}

#[test]
fn an_isolated_node_dies_only_after_the_stock_grace_period_and_at_stock_pace() {
    let mut case = isolated();
    case.renews = false;
    for second in (121..169).step_by(4) {
        case.go(second);
        case.convict(second - 97);
        assert_eq!(case.look().state(), NodeState::Isolated, "second {second}");
    }
    assert_eq!(case.go(170).state(), STOCK_PACE);
    case.convict(60);
    assert_eq!(case.go(200).state(), STOCK_PACE);
    case.renew();
    assert_eq!(case.look().state(), NodeState::Isolated);
    assert_eq!(
        case.go(240).state(),
        NodeState::Isolated,
        "an omission acquits nobody"
    );
}

/// Its neighbours were removed meanwhile, and nobody is left who could vouch for it.
#[test]
fn a_node_that_is_left_alone_in_its_cell_is_isolated_no_more() {
    let mut case = isolated();
    case.evidence.verdict = Verdict::None(NoVerdict::NotListed);
    assert_eq!(case.go(130).state(), NodeState::Isolated);
    case.evidence.zone.is_alone = true;
    assert_eq!(case.go(131).state(), NodeState::Healthy);
}

/// What they had voted still stands, and nobody can take it back.
#[test]
fn a_node_that_is_left_alone_does_not_change_its_state_again_and_again() {
    let mut case = isolated();
    assert!(matches!(case.evidence.verdict, Verdict::Dead(_)));
    case.evidence.zone.is_alone = true;
    for second in 131..140 {
        case.renew();
        assert_eq!(case.go(second).state(), NodeState::Healthy, "at {second}");
    }
}

/// Its kubelet is stopped for long, and its peers vote it dead again and again.
#[test]
fn an_isolated_node_does_not_die_while_its_agent_writes() {
    let mut case = Case1::silent(3);
    let mut changes = 0;
    for second in (101..1000).step_by(5) {
        let before = case.state();
        case.go(second);
        case.convict(second - 97);
        if second % 2 == 0 {
            case.evidence.agent.seen(at(second));
        }
        if second == 151 {
            case.mark();
        }
        case.look();
        changes += u32::from(!before.same_row(case.state()));
    }
    assert_eq!(case.state(), NodeState::Isolated);
    assert!(changes <= 2, "{changes} changes of state");
    assert_eq!(case.go(996 + 30).state(), NodeState::Isolated);
    assert_eq!(case.go(996 + 31).state(), STOCK_PACE);
}

#[test]
fn a_stock_mark_that_crosses_a_renewal_does_not_take_an_isolated_node_for_dead() {
    let mut case = Case1::watched();
    case.convict(3);
    case.go(120);
    case.renews = false;
    case.go(121);
    case.mark();
    assert_eq!(case.look().state(), NodeState::Isolated);
    // Nor does it later, but for the silence itself.
    assert_eq!(case.go(169).state(), NodeState::Isolated);
    assert_eq!(case.go(170).state(), STOCK_PACE);
    // A mark that cannot have crossed it counts at once.
    case.renew();
    assert_eq!(case.go(170 + SKEW_MS / 1000).state(), NodeState::Isolated);
    case.mark();
    assert_eq!(case.look().state(), STOCK_PACE);
}

#[test]
fn an_isolated_node_that_its_peers_saw_again_and_lost_again_dies_as_any_other() {
    let mut case = Case1::watched();
    case.convict(3);
    case.go(120);
    case.vouch(Health::Ok);
    assert_eq!(case.go(121).state(), NodeState::Healthy);
    case.renews = false;
    case.go(124);
    case.convict(3);
    assert_eq!(case.look().state(), ANNOUNCED);
}

/// Hazard 55 (a): what was valid when sight was lost stays valid until 20 s after it returned.
#[test]
fn blindness_takes_nothing_from_a_node_that_was_vouched_for() {
    let mut case = Case1::silent(30);
    case.vouched_until(200);
    case.blind = true;
    for second in 201..240 {
        assert_eq!(
            case.go(second).state(),
            NodeState::Disconnected,
            "second {second}"
        );
    }
    case.blind = false;
    case.mark();
    assert_eq!(case.go(259).state(), NodeState::Disconnected);
    assert_eq!(
        case.go(260).state(),
        NodeState::Unknown,
        "nobody vouched for it since"
    );
}

/// Hazard 55 (b): silence on watches that are proven live ages everything.
#[test]
fn silence_that_we_can_see_is_their_silence() {
    let mut case = Case1::silent(30);
    case.vouched_until(200);
    case.evidence.zone.some_member_fresh = false;
    assert_eq!(case.go(214).state(), NodeState::Unknown);
    assert_eq!(
        case.go(225).state(),
        NodeState::Dark,
        "the zone has been silent for 30 s"
    );
}

/// Hazard 55 (c): a replica that stays blind neither harms nor keeps anything.
#[test]
fn a_hold_ends_after_a_minute() {
    let mut case = Case1::silent(30);
    case.vouched_until(200);
    case.blind = true;
    assert_eq!(case.go(259).view, View::Held);
    assert_eq!(case.go(270).view, View::Lost);
}

#[test]
fn while_blind_nothing_harmful_is_decided_and_life_counts_at_once() {
    let mut dead = Case1::silent(4);
    dead.convict(4);
    assert_eq!(dead.look().state(), ANNOUNCED);
    dead.blind = true;
    let decision = dead.go(115);
    assert!(decision.held && !decision.may_harm());
    let mut renewed = dead.clone();
    renewed.renew();
    let decision = renewed.look();
    assert_eq!((decision.state(), decision.held), (NodeState::Isolated, false));
    let mut healthy = Case1::silent(2);
    healthy.blind = true;
    healthy.go(110);
    healthy.convict(5);
    let decision = healthy.look();
    assert_eq!((decision.state(), decision.held), (NodeState::Healthy, true));
    assert_eq!(
        healthy.memory.latch,
        Latch::Open,
        "a death is not latched by the blind"
    );
}

#[test]
fn silence_is_counted_anew_after_a_gap_of_sight() {
    let mut case = Case1::silent(4);
    case.blind = true;
    case.go(150);
    case.blind = false;
    assert_eq!(case.go(174).state(), NodeState::Healthy);
    assert_eq!(case.go(176).state(), NodeState::Unknown);
}

/// Hazard 50: for how long a kubelet has been broken, a replica that starts did not see.
#[test]
fn a_broken_kubelet_stays_so_for_a_replica_that_starts() {
    let mut case = restarted(&recorded(NodeState::KubeletDown, Latch::Open));
    for second in 101..200 {
        case.vouch(Health::Failing);
        assert_eq!(
            (second, case.go(second).state()),
            (second, NodeState::KubeletDown)
        );
    }
    let mut writes = restarted(&recorded(NodeState::KubeletDown, Latch::Open));
    for second in 101..160 {
        writes.vouch(Health::Unknown);
        if second > 110 {
            writes.evidence.agent.seen(at(second));
        }
        assert_eq!(
            (second, writes.go(second).state()),
            (second, NodeState::KubeletDown)
        );
    }
    let mut silent = restarted(&recorded(NodeState::KubeletDown, Latch::Open));
    silent.vouched_until(119);
    assert_eq!(silent.look().state(), NodeState::KubeletDown);
    assert_eq!(
        silent.vouched_until(125).state(),
        NodeState::Disconnected,
        "its agent is silent, too"
    );
}

/// Hazard 50: whether its agent writes, a replica that starts did not see.
#[test]
fn an_isolated_node_does_not_die_of_a_restart_of_the_controller() {
    let isolated = recorded(NodeState::Isolated, Latch::Isolated { since: at(60) });
    let mut writes = restarted(&isolated);
    for second in 101..160 {
        if second % 10 == 0 {
            writes.evidence.agent.seen(at(second));
        }
        assert_eq!((second, writes.go(second).state()), (second, NodeState::Isolated));
    }
    let mut silent = restarted(&isolated);
    assert_eq!(silent.go(119).state(), NodeState::Isolated);
    assert_eq!(silent.go(125).state(), STOCK_PACE, "its agent is silent, too");
}

/// Hazard 13: for reversible steps only.
#[rstest]
#[case::silent_for_14_s(14, NodeState::Healthy)]
#[case::silent_for_15_s(15, STOCK_PACE)]
fn in_a_zone_of_two_the_controller_casts_the_third_vote(#[case] silence: u64, #[case] expected: NodeState) {
    let mut case = Case1::silent(4);
    case.convict(4);
    let Verdict::Dead(death) = case.evidence.verdict else {
        panic!("just convicted");
    };
    case.evidence.verdict = Verdict::OneShort(death);
    assert_eq!(case.go(100 + silence).state(), expected);
}

#[test]
fn in_a_zone_of_two_a_no_from_before_the_last_renewal_says_nothing() {
    let mut case = Case1::silent(4);
    case.convict(4);
    let Verdict::Dead(death) = case.evidence.verdict else {
        panic!("just convicted");
    };
    case.evidence.verdict = Verdict::OneShort(death);
    case.renew();
    assert_eq!(case.go(124).state(), NodeState::Healthy);
}

/// Hazard 37.
#[test]
fn marks_are_given_back_once_a_majority_has_vouched_for_10_s() {
    let mut case = Case1::silent(30);
    case.vouch(Health::Ok);
    let decision = case.look();
    assert!(decision.state() == NodeState::Disconnected && !decision.gives_back(at(case.second)));
    case.vouched_until(139);
    assert!(!case.look().gives_back(at(139)));
    case.vouched_until(140);
    assert!(case.look().gives_back(at(140)));
    case.vouch(Health::Failing);
    assert!(!case.look().gives_back(at(140)), "its kubelet is not well");
}

fn recorded(state: NodeState, latch: Latch) -> Recorded {
    Recorded {
        state,
        since: at(90),
        latch,
        life: None,
    }
}

/// A death that another leader recorded: when its first round was asked for and received.
fn adopted(requested: u64, received: u64) -> DeadLatch {
    DeadLatch {
        requested: at(requested),
        renewal: None,
        received: at(received),
        own: None,
        later: None,
        confirmed: None,
        slow: None,
    }
}

/// A replica that starts at second 100 on a node that is silent and stock-marked.
fn restarted(recorded: &Recorded) -> Case1 {
    let mut case = Case1::watched();
    case.renews = false;
    case.memory = Memory::default();
    case.memory.adopt(recorded);
    case.evidence.life = Life {
        first_seen: Some(at(100)),
        renewal: Some(Renewal(11)),
        stock_mark: Some(at(100)),
        ..Life::default()
    };
    case.evidence.sight = Sight::new(at(100));
    case.evidence.verdict = Verdict::None(NoVerdict::Void);
    case
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    let health = || prop_oneof![Just(Health::Unknown), Just(Health::Ok), Just(Health::Failing)];
    let alive = (0_u64..60, health(), health()).prop_map(|(left, kubelet, runtime)| {
        Verdict::Alive(Alive {
            received: at(150),
            until: at(140 + left),
            cloud: Link::Down,
            kubelet,
            runtime,
        })
    });
    let death = (0_u64..160, 0_u64..100, 0_u64..3).prop_map(|(requested, silence, renewal)| Death {
        round: Nonce([9; 16]),
        renewal: Renewal(renewal),
        challenged: Some(at(requested)),
        requested: at(requested),
        received: at(150),
        silence_ms: silence * 1000,
    });
    let why = prop_oneof![
        Just(NoVerdict::NotListed),
        Just(NoVerdict::NotAMember),
        Just(NoVerdict::Void),
        Just(NoVerdict::NoMajority),
        Just(NoVerdict::OtherChallenge),
        Just(NoVerdict::Refused)
    ];
    prop_oneof![
        1 => alive,
        // It takes two in a row to confirm a death.
        4 => death.clone().prop_map(Verdict::Dead),
        1 => death.prop_map(Verdict::OneShort),
        1 => why.prop_map(Verdict::None)
    ]
}

/// What is known of a kubelet at second 100: it renewed its Lease, and may be marked since; its Lease was
/// only seen; it never had one.
fn any_life() -> impl Strategy<Value = Life> {
    let renewed = Life {
        first_seen: Some(at(0)),
        renewed: Some(at(100)),
        renewal: Some(Renewal(1)),
        touched: None,
        stock_mark: None,
    };
    let marked = Life {
        stock_mark: Some(at(100)),
        ..renewed
    };
    let seen = Life {
        first_seen: Some(at(100)),
        renewal: Some(Renewal(1)),
        ..Life::default()
    };
    proptest::sample::select(vec![renewed, marked, seen, Life::default()])
}

proptest! {
    /// Whatever is known, there is an answer; it is the same when asked again; and nothing is confirmed while
    /// the Lease was renewed less than 15 s ago, or on watches that are not proven live.
    #[test]
    fn the_table_is_total_stable_and_careful(
        life in any_life(),
        verdicts in proptest::collection::vec((any_verdict(), 0_u64..20, weighted(0.2), weighted(0.2)), 1..12),
    ) {
        let mut case = Case1::silent(0);
        case.evidence.life = life;
        for (verdict, wait, renews, blind) in verdicts {
            case.evidence.verdict = verdict;
            (case.renews, case.blind) = (renews, blind);
            case.go(case.second + wait);
            let once = case.look();
            let again = case.look();
            prop_assert_eq!(once.state(), again.state());
            if once.state() == CONFIRMED && !once.held {
                let known = case.evidence.life.known_since().expect("it was seen once");
                prop_assert!(at(case.second).since(known) >= 15_000);
                prop_assert_eq!(once.view, View::Full);
            }
        }
    }
}
