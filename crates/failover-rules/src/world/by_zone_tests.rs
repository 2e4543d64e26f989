use crate::world::tests::{CUT, Shore, challenge, lease, node, put, second, time_of};
use crate::world::{Role, Seen};
use evenkeel_judge::state::Slow;
use evenkeel_judge::{Dead, NodeState, Reason};
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
    /// The same, and its neighbours say that it lives.
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

/// Hazard 42: the smaller side of a split zone may hold the majority of a single cell, and be the only one
/// that anybody hears of so far.
#[rstest]
#[case(Beside::AllRenew, 3, Dead::Confirmed, Reason::VotedDeadTwice)]
#[case(Beside::OneIsSilent, 3, Dead::Announced, Reason::VotedDead)]
#[case(Beside::OneIsSilent, 5, Dead::Confirmed, Reason::VotedDeadTwice)]
#[case(Beside::OneIsCutOff, 3, Dead::Confirmed, Reason::VotedDeadTwice)]
#[case(
    Beside::OneIsConvicted,
    3,
    Dead::AtStockPace,
    Reason::VotedDeadSlowly(Slow::SeveralCells)
)]
#[case(Beside::OneIsConvicted, 5, Dead::Confirmed, Reason::VotedDeadTwice)]
fn a_death_waits_for_the_word_of_cells_in_which_others_fell_silent(
    #[case] beside: Beside,
    #[case] size: u8,
    #[case] phase: Dead,
    #[case] reason: Reason,
) {
    let mut shore = Shore::new("me");
    shore.world.config.life = "this life".to_owned();
    let mut other = OtherCell::new(&mut shore, size);
    let pass = |shore: &mut Shore, other: &mut OtherCell, from: u64, to: u64| {
        for at in from..=to {
            for name in ["n1", "node-1", "node-2"] {
                shore.world.take(second(at), lease(name, at));
            }
            other.pass(shore, at, beside);
            shore.world.look(second(at), Role::Leads);
        }
    };
    // Evidence counts once the cell is seen to advance: by the second report of its reporter.
    shore.zone.renewal = None;
    shore.report(1, false);
    shore.zone.renewal = Some(Renewal(1));
    pass(&mut shore, &mut other, 1, 4);
    shore.report(5, false);
    pass(&mut shore, &mut other, 5, 17);
    shore.zone.challenge = Challenge([9; 16]);
    let issued = challenge(&shore.zone, 17, "this life");
    shore.world.take(second(18), issued);
    shore.report(18, false);
    pass(&mut shore, &mut other, 18, 19);
    let state = |shore: &Shore| (shore.judged().decision.state(), shore.judged().decision.reason);
    assert_eq!(state(&shore), (NodeState::Dead(phase), reason));
    if phase != Dead::Announced {
        return;
    }
    // The deaths of the first minute are no news any more, and the doubt is the same.
    for at in (20..=90).step_by(10) {
        shore.report(at, false);
        pass(&mut shore, &mut other, at, at + 9);
    }
    assert_eq!(state(&shore).0, NodeState::Dead(Dead::Announced));
    let said = Beside::OneIsCutOff;
    for at in 100..=104 {
        other.pass(&mut shore, at, said);
        shore.world.look(second(at), Role::Leads);
    }
    assert_eq!(state(&shore).0, NodeState::Dead(Dead::Confirmed));
}
