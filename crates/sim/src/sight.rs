//! Who can honestly find whom silent, by the script alone (S4).

use crate::network::Cut;
use crate::script::{Fault, Script, Step};
use std::collections::{BTreeMap, BTreeSet};

/// Evidence that is published at an instant rests on what voters heard up to this long before: they miss a
/// node for a heartbeat period and its grace (2.25 s), a round takes 1 s, a failed round is repeated within 5
/// s, and the rest is for writing.
const LOOKS_BACK: u64 = 10_000;
/// A roster settles within this time, and an agent that was out of reach has read it.
const SETTLES: u64 = 60_000;
/// A fault that is over for so long has no effect any more on whether a node is vouched for: rosters have
/// settled, Leases are renewed, and watches begun again.
const VOUCHED: u64 = 60_000;
/// A kubelet that takes so much longer may miss the 550 ms that a voter gives it.
const TOO_SLOW: u64 = 400;

/// Whether a verdict of death on a node, taken in at `at`, was carried by a majority that can have found it
/// silent: because the node was, or because nothing passed between the two, in one direction at least. A
/// voter that was off or did not run is none of them. `cell`: whose majority that is, where it is not the
/// whole zone's.
pub fn may_be_convicted(script: &Script, cell: Option<&BTreeSet<usize>>, node: usize, at: u64) -> bool {
    let faults = &Faults::of(script);
    let members = |since: u64| {
        script
            .zone_members(node)
            .filter(move |other| cell.is_none_or(|cell| cell.contains(other)))
            .filter(move |other| !faults.is_to_join(*other, since))
            .filter(move |other| !faults.has_left(*other, since))
    };
    let silent = faults.is_silent(node, at);
    // A hostile voter may say no of anybody.
    let misses = |voter: &usize| {
        let may = || silent || faults.is_apart(*voter, node, at) || faults.is_hostile(*voter, at);
        *voter != node && !faults.was_off(*voter, at) && may()
    };
    let can = members(at).filter(misses).count();
    // Who joined, or began anew with another key, has a vote once it has met the others, which the script
    // does not say: those may be without one that would have vouched for the node.
    let votes = |member: &usize| !faults.is_new(*member, at) || misses(member);
    let count = members(at)
        .filter(votes)
        .count()
        .min(members(at.saturating_sub(SETTLES)).count());
    can > count / 2
}

/// Whether the honest members that live are a majority of the zone without a node and without its hostile
/// member, so that they convict the node by themselves when it dies. Of three and of four members they are
/// not: a hostile one that says yes, or nothing, is then the vote that is missing.
pub(crate) fn honest_suffice(script: &Script, node: usize) -> bool {
    let members = || script.zone_members(node);
    let is_honest = |other: &usize| {
        let mut faults = script.faults_of(*other);
        *other != node && !faults.any(|step| matches!(step.fault, Fault::Hostile(..)))
    };
    members().filter(is_honest).count() > members().count() / 2
}

/// Whether a node can count on being vouched for at an instant, among faults of any kind: nothing was wrong
/// with it for a minute but its link to the cloud, nor with the LAN and the API server, and more than half of
/// its zone had no fault of its own, of which one at least had its link.
pub fn is_vouched_for(script: &Script, node: usize, at: u64) -> bool {
    let lasts = |step: &Step| step.at <= at && at < step.ends().saturating_add(VOUCHED);
    let cut = |step: &Step| matches!(step.fault, Fault::CutCloud(_));
    let elsewhere = |step: &Step| step.fault.node().is_some() || matches!(step.fault, Fault::ReplicaDown(_));
    let is_sound = |other: usize| script.faults_of(other).all(|step| cut(step) || !lasts(step));
    let members = || script.zone_members(node);
    let sound: Vec<usize> = members()
        .filter(|other| *other != node && is_sound(*other))
        .collect();
    let is_linked = |other: &usize| !script.faults_of(*other).any(lasts);
    script.faults_of(node).all(cut)
        && script.steps.iter().all(|step| elsewhere(step) || !lasts(step))
        && sound.len() * 2 > members().count()
        && sound.iter().any(is_linked)
}

fn lately(step: &Step, at: u64, after: u64) -> bool {
    step.at <= at && step.ends().saturating_add(after).saturating_add(LOOKS_BACK) >= at
}

/// The faults of a script that silence somebody, by whom: it is asked of many pairs of members, and the
/// script of a large zone has thousands of steps. A cut of the link to the cloud silences nobody.
struct Faults<'a> {
    of: BTreeMap<usize, Vec<&'a Step>>,
    cuts: Vec<(&'a Step, Cut)>,
}

impl<'a> Faults<'a> {
    fn of(script: &'a Script) -> Self {
        let mut faults = Self {
            of: BTreeMap::new(),
            cuts: Vec::new(),
        };
        for step in &script.steps {
            match (step.fault.node(), Cut::of(&step.fault)) {
                (_, Some(cut)) => faults.cuts.push((step, cut)),
                (Some(node), None) if !matches!(step.fault, Fault::CutCloud(_)) => {
                    faults.of.entry(node).or_default().push(step);
                }
                _ => {}
            }
        }
        faults
    }

    fn any(&self, node: usize, is: impl Fn(&Step) -> bool) -> bool {
        let mut own = self.of.get(&node).into_iter().flatten();
        own.any(|step| is(step))
    }

    fn is_new(&self, node: usize, at: u64) -> bool {
        self.any(node, |step| {
            matches!(step.fault, Fault::Join(_) | Fault::NewKey(_)) && step.at <= at
        })
    }

    fn is_to_join(&self, node: usize, at: u64) -> bool {
        self.any(node, |step| matches!(step.fault, Fault::Join(_)) && step.at > at)
    }

    fn has_left(&self, node: usize, at: u64) -> bool {
        self.any(node, |step| {
            matches!(step.fault, Fault::Leave(_)) && step.at <= at
        })
    }

    fn is_hostile(&self, node: usize, at: u64) -> bool {
        self.any(node, |step| {
            let lasts = step.at <= at && at < step.ends().saturating_add(LOOKS_BACK);
            matches!(step.fault, Fault::Hostile(..)) && lasts
        })
    }

    /// Whether neither agent nor kubelet answers. One of them alone suffices for a yes.
    fn is_silent(&self, node: usize, at: u64) -> bool {
        let agent_is_out = self.any(node, |step| {
            // Who lost its disk has no roster until it reads one from the API server: without one it knows
            // nobody from whom it could take it.
            if step.at <= at && matches!(step.fault, Fault::DiskLost(_)) {
                return true;
            }
            let is_out = matches!(
                step.fault,
                Fault::PauseAgent(_)
                    | Fault::AgentDown(_)
                    | Fault::AgentUpgrade(_)
                    | Fault::NewKey(_)
                    | Fault::Join(_)
            );
            is_out && lately(step, at, SETTLES)
        });
        self.any(node, |step| match step.fault {
            Fault::PowerOff(_) | Fault::DiskLost(_) | Fault::Stall(_) => lately(step, at, 0),
            Fault::Leave(_) => step.at <= at,
            // Its agent is found where it is heard (53).
            Fault::NewAddress(_) => lately(step, at, 0),
            Fault::SlowKubelet(_, by) => by >= TOO_SLOW && agent_is_out && lately(step, at, 0),
            _ => false,
        })
    }

    /// Whether the node could not vote: for all of the time that a verdict looks back.
    fn was_off(&self, node: usize, at: u64) -> bool {
        self.any(node, |step| {
            let off = matches!(
                step.fault,
                Fault::PowerOff(_)
                    | Fault::DiskLost(_)
                    | Fault::Stall(_)
                    | Fault::PauseAgent(_)
                    | Fault::AgentDown(_)
            );
            off && step.at + LOOKS_BACK <= at && step.ends() >= at
        })
    }

    fn is_apart(&self, one: usize, other: usize, at: u64) -> bool {
        let stops = |cut: &Cut| cut.stops(one, other) || cut.stops(other, one);
        self.cuts
            .iter()
            .any(|(step, cut)| lately(step, at, 0) && stops(cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::script;
    use crate::script::{Group, SECOND};

    fn of(nodes: usize, faults: &[Fault]) -> Script {
        let step = |fault: &Fault| Step {
            at: 40 * SECOND,
            lasts: 60 * SECOND,
            fault: fault.clone(),
        };
        Script {
            zones: vec![nodes],
            steps: faults.iter().map(step).collect(),
            ..script(Group::PowerOff, 1)
        }
    }

    fn may(nodes: usize, faults: &[Fault], node: usize) -> bool {
        may_be_convicted(&of(nodes, faults), None, node, 50 * SECOND)
    }

    #[test]
    fn a_node_may_be_convicted_by_more_than_half_of_its_zone_that_miss_it() {
        use crate::malice::Malice::SaysNo;
        use Fault::{AgentDown, CutOneWay, CutPair, Hostile, Join, PowerOff, SplitLan, Stall};
        for (nodes, faults, node, expected) in [
            (3, vec![], 1, false),
            (3, vec![PowerOff(1)], 1, true),
            (3, vec![Stall(1)], 1, true),
            (3, vec![PowerOff(1)], 2, false),
            (3, vec![AgentDown(1)], 1, false),
            (4, vec![SplitLan(vec![1, 2])], 1, false),
            (5, vec![SplitLan(vec![1, 2])], 1, true),
            (5, vec![SplitLan(vec![1, 2])], 3, false),
            (3, vec![CutPair(1, 2)], 1, false),
            (3, vec![Hostile(2, SaysNo)], 1, false),
            (3, vec![Hostile(2, SaysNo), CutPair(1, 3)], 1, true),
            (4, vec![Hostile(2, SaysNo), CutPair(1, 3)], 1, false),
            (5, vec![Hostile(2, SaysNo), Hostile(3, SaysNo)], 1, false),
            (3, vec![CutOneWay(vec![1], vec![2, 3])], 1, true),
            (4, vec![CutOneWay(vec![2, 3], vec![1])], 1, false),
            (5, vec![PowerOff(2), PowerOff(3), SplitLan(vec![1])], 1, false),
            (5, vec![PowerOff(2), SplitLan(vec![1])], 1, true),
            (2, vec![PowerOff(1)], 1, false),
            // Without a vote yet, or with one: of five that were there, three miss it, and of eight four.
            (
                8,
                vec![Join(6), Join(7), Join(8), SplitLan(vec![1, 2, 3])],
                4,
                true,
            ),
            (8, vec![Join(6), Join(7), Join(8), SplitLan(vec![1, 2])], 4, false),
            (8, vec![SplitLan(vec![1, 2, 3])], 4, false),
        ] {
            assert_eq!(may(nodes, &faults, node), expected, "{nodes} {faults:?} {node}");
        }
    }
}
