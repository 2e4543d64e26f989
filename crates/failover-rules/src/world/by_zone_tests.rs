use crate::world::tests::{CUT, Shore, agent, challenge, lease, node, put, second, time_of};
use crate::world::{Role, Seen};
use evenkeel_judge::state::Slow;
use evenkeel_judge::{Dead, NodeState, Reason, Timing};
use evenkeel_zone::fixture::Fixture;
use evenkeel_zone::roster::publish;
use evenkeel_zone::wire::{Challenge, Renewal};
use rstest::rstest;
use serde_json::json;

/// What happens in the other cell of a zone of two, beside the death of a node in the first one.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    AllRenew,
    /// A kubelet falls silent at the same time, and nobody reports.
    OneIsSilent,
    /// The same, but its agent writes to the API server.
    OneWrites,
    /// A kubelet falls silent, and its neighbours say that it lives.
    OneIsCutOff,
    /// The same, and its neighbours convict it.
    OneIsConvicted,
}

/// The other cell: all nodes from the fourth on.
struct OtherCell {
    zone: Fixture,
    size: u8,
    round: u8,
}

impl OtherCell {
    fn new(shore: &mut Shore, size: u8) -> Self {
        let mut zone = Fixture::new(3 + size);
        zone.elsewhere = 3;
        zone.renewal = Some(Renewal(1));
        let cell = Self { zone, size, round: 0 };
        for number in 4..=cell.last() {
            let name = format!("node-{number}");
            shore
                .world
                .take(second(0), node(&name, &Fixture::uid(number), 0, "KubeletReady"));
            shore.world.take(second(0), lease(&name, 0));
            shore.world.take(second(0), lease(&name, 1));
        }
        let roster = publish(&cell.zone.spec(), None);
        let object = json!({
            "metadata": {"name": "shore.1", "uid": "o"},
            "spec": {"zone": "shore", "cell": 1, "signedRoster": roster},
        });
        shore.world.take(second(0), Seen::Zone(put(object)));
        let current = json!({
            "value": cell.zone.challenge.to_base64(), "createdAt": time_of(0), "createdBy": "another",
        });
        let object = json!({
            "metadata": {"name": "shore.1"}, "spec": {"zone": "shore", "cell": 1, "current": current},
        });
        shore.world.take(second(0), Seen::Challenge(put(object)));
        cell
    }

    fn last(&self) -> usize {
        usize::from(3 + self.size)
    }

    fn pass(&mut self, shore: &mut Shore, at: u64, beside: Beside) {
        let silent = usize::from(beside != Beside::AllRenew);
        for number in 4..=self.last() - silent {
            shore.world.take(second(at), lease(&format!("node-{number}"), at));
        }
        let voters: Vec<usize> = (4..self.last()).collect();
        self.round += 1;
        let round = match beside {
            Beside::AllRenew | Beside::OneIsSilent => return,
            Beside::OneWrites => {
                let name = format!("node-{}", self.last());
                shore.world.take(second(at), agent(&name, at.try_into().unwrap()));
                return;
            }
            Beside::OneIsCutOff => self.zone.alive(self.last(), &voters, self.round, CUT),
            Beside::OneIsConvicted => self.zone.dead(self.last(), &voters, self.round),
        };
        let mut spec = serde_json::to_value(self.zone.report(vec![round])).unwrap();
        spec["zone"] = json!("shore");
        spec["cell"] = json!(1);
        spec["reporter"] = json!("node-4");
        let meta = json!({"name": "shore.1.node-4", "uid": "p", "resourceVersion": at.to_string()});
        let object = json!({"metadata": meta, "spec": spec});
        shore.world.take(second(at), Seen::Report(put(object)));
    }
}

/// A zone of two cells, in the first of which node 3 dies.
struct Zone {
    shore: Shore,
    other: OtherCell,
}

impl Zone {
    fn new(size: u8) -> Self {
        let mut shore = Shore::new("me");
        shore.world.config.life = "this life".to_owned();
        let other = OtherCell::new(&mut shore, size);
        Self { shore, other }
    }

    /// Kubelets renew, the other cell does what it does, and everybody looks.
    fn pass(&mut self, from: u64, to: u64, renewing: &[&str], beside: Beside) {
        for at in from..=to {
            for name in renewing {
                self.shore.world.take(second(at), lease(name, at));
            }
            self.other.pass(&mut self.shore, at, beside);
            self.shore.world.look(second(at), Role::Leads);
        }
    }

    /// Node 3 falls silent after a second, and its cell convicts it in two rounds, between which so much time
    /// passes.
    fn dies(&mut self, after: u64, wait: u64, beside: Beside) {
        self.pass(1, after, &["n1", "node-1", "node-2", "node-3"], beside);
        let renewal = Some(Renewal(after));
        // Evidence counts once the cell is seen to advance: by the second report of its reporter.
        self.shore.zone.renewal = None;
        self.shore.report(after, false);
        self.shore.zone.renewal = renewal;
        self.goes_on(after + 1, after + 4, beside);
        self.shore.report(after + 5, false);
        self.goes_on(after + 5, after + 5 + wait, beside);
        let drawn = after + 5 + wait;
        self.shore.zone.challenge = Challenge([9; 16]);
        let issued = challenge(&self.shore.zone, drawn, "this life");
        self.shore.world.take(second(drawn + 1), issued);
        self.shore.report(drawn + 1, false);
        self.goes_on(drawn + 1, drawn + 2, beside);
    }

    fn goes_on(&mut self, from: u64, to: u64, beside: Beside) {
        self.pass(from, to, &["n1", "node-1", "node-2"], beside);
    }

    fn state(&self) -> (NodeState, Reason) {
        let decision = &self.shore.judged().decision;
        (decision.state(), decision.reason)
    }
}

const CONFIRMED: (NodeState, Reason) = (NodeState::Dead(Dead::Confirmed), Reason::VotedDeadTwice);

fn at_stock_pace(why: Slow) -> (NodeState, Reason) {
    (NodeState::Dead(Dead::AtStockPace), Reason::VotedDeadSlowly(why))
}

/// Hazard 42: the smaller side of a split zone may hold the majority of a single cell, and be the only one
/// that anybody hears of.
#[rstest]
#[case(Beside::AllRenew, 3, CONFIRMED)]
#[case(Beside::OneIsSilent, 3, at_stock_pace(Slow::OthersSilent))]
#[case(Beside::OneIsSilent, 5, CONFIRMED)]
#[case(Beside::OneWrites, 3, CONFIRMED)]
#[case(Beside::OneIsCutOff, 3, CONFIRMED)]
#[case(Beside::OneIsConvicted, 3, at_stock_pace(Slow::SeveralCells))]
#[case(Beside::OneIsConvicted, 5, CONFIRMED)]
fn a_death_is_not_confirmed_where_others_fell_silent_and_their_cell_has_not_said_why(
    #[case] beside: Beside,
    #[case] size: u8,
    #[case] expected: (NodeState, Reason),
) {
    let mut zone = Zone::new(size);
    zone.dies(1, 12, beside);
    assert_eq!(zone.state(), expected);
    // The end of a split is no proof either: who is dead, and who only returns last?
    zone.shore.report(20, false);
    zone.goes_on(20, 30, Beside::AllRenew);
    assert_eq!(zone.state().0, expected.0);
}

#[test]
fn who_was_silent_long_before_is_not_on_the_other_side() {
    let mut zone = Zone::new(3);
    zone.dies(110, 12, Beside::OneIsSilent);
    assert_eq!(zone.state(), CONFIRMED, "silent for 129 s");
}

/// Who was cut off together with it may have renewed 19 s later than it, and is late only then.
#[test]
fn a_death_waits_until_whoever_was_cut_off_with_it_is_late() {
    let mut zone = Zone::new(3);
    zone.shore.world.config.timing = Timing::for_renew_interval(20_000);
    zone.pass(1, 1, &["n1", "node-1", "node-2", "node-3"], Beside::AllRenew);
    zone.shore.zone.renewal = None;
    zone.shore.report(1, false);
    zone.shore.zone.renewal = Some(Renewal(1));
    zone.goes_on(2, 19, Beside::AllRenew);
    zone.shore.report(20, false);
    zone.goes_on(20, 32, Beside::AllRenew);
    zone.shore.zone.challenge = Challenge([9; 16]);
    let issued = challenge(&zone.shore.zone, 32, "this life");
    zone.shore.world.take(second(33), issued);
    for at in (33..=45).step_by(3) {
        zone.shore.report(at, false);
        zone.goes_on(at, at + 2, Beside::AllRenew);
        // It was announced at second 20, and a renewal is late after 24 s.
        let expected = if at + 2 < 44 {
            Dead::Announced
        } else {
            Dead::Confirmed
        };
        assert_eq!(zone.state().0, NodeState::Dead(expected), "at second {}", at + 2);
    }
}

#[test]
fn what_another_cell_says_late_counts_for_deaths_that_wait() {
    let mut zone = Zone::new(3);
    zone.pass(1, 1, &["n1", "node-1", "node-2", "node-3"], Beside::AllRenew);
    zone.shore.zone.renewal = None;
    zone.shore.report(1, false);
    zone.shore.zone.renewal = Some(Renewal(1));
    zone.goes_on(2, 4, Beside::AllRenew);
    for at in (5..=75).step_by(5) {
        zone.shore.report(at, false);
        zone.goes_on(at, at + 4, Beside::AllRenew);
    }
    assert_eq!(zone.state().0, NodeState::Dead(Dead::Announced));
    zone.goes_on(80, 82, Beside::OneIsConvicted);
    assert_eq!(zone.state(), at_stock_pace(Slow::SeveralCells));
}
