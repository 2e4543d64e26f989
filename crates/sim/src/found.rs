//! Whether deaths are found: a run in which nobody is ever called dead breaks no other promise.

use crate::api::build::node_name;
use crate::script::{Fault, Group, SECOND, Script, Step};

/// A dead node is called dead within this time. In 99 of 100 cases it takes 5 s; the rest is for LANs
/// that lose, rosters that have just changed, and a leader that has just begun.
const FOUND: u64 = 30 * SECOND;
/// Where many die together and nothing else happens.
const RACK_FOUND: u64 = 15 * SECOND;
/// Who joined, or has another key, votes after this time at the latest.
const VOTES: u64 = 60 * SECOND;
/// A roster that the API server lost is gone beyond when two members have named it for so long.
const AHEAD: u64 = 30 * SECOND;
/// Members acknowledge such a roster within this time.
const NAMED: u64 = 35 * SECOND;
/// A replica whose leader is gone leads after this time: the Lease lasts 15 s, and is looked at every 2 s.
const LEADS: u64 = 20 * SECOND;

/// A node that was off for long enough, and that was not called dead. `is_found` says whether it was between
/// two instants.
pub(crate) fn unfound(script: &Script, is_found: impl Fn(usize, u64, u64) -> bool) -> Option<String> {
    let all_found = matches!(
        script.group,
        Group::Kills
            | Group::Racks
            | Group::Growth
            | Group::Lifetime
            | Group::MixedVersions
            | Group::Restores
    );
    // Other faults may keep the others from finding it.
    let simple = |step: &Step| {
        matches!(
            step.fault,
            Fault::PowerOff(_)
                | Fault::CutCloud(_)
                | Fault::Join(_)
                | Fault::Leave(_)
                | Fault::NewKey(_)
                | Fault::LeaderDown
                | Fault::Restored
                | Fault::EmptiedReport(_)
        )
    };
    if !all_found || !script.steps.iter().all(simple) {
        return None;
    }
    let found = match script.group {
        Group::Racks => RACK_FOUND,
        _ => FOUND,
    };
    let due_at = |died: u64| {
        let mut due = died + found;
        for step in &script.steps {
            if step.fault == Fault::Restored && step.ends() <= due {
                due = due.max(died.max(step.ends() + LEADS) + AHEAD + found);
            }
            if step.fault == Fault::LeaderDown && step.at <= due && died < step.ends() + LEADS {
                due = due.max(step.ends() + LEADS + found);
            }
        }
        due
    };
    script.steps.iter().find_map(|step| {
        let Fault::PowerOff(node) = step.fault else {
            return None;
        };
        let due = due_at(step.at);
        let asked = due <= step.ends().min(script.end()) && majority_finds(script, node, step.at, due);
        let found = !asked || is_found(node, step.at, due);
        (!found).then(|| format!("{}, off from {} s on", node_name(node), step.at / SECOND))
    })
}

/// Whether more than half of the members of the zone live all the time and have a vote, and have met the
/// node, and one of them at least has its link.
fn majority_finds(script: &Script, node: usize, from: u64, to: u64) -> bool {
    let is_there = |member: usize| {
        let mut own = script.faults_of(member);
        own.all(|step| match step.fault {
            Fault::Join(_) => step.at <= to,
            Fault::Leave(_) => to < step.at,
            _ => true,
        })
    };
    // A fault that was there meanwhile, or was over less than `after` before.
    let had = |member: usize, after: u64, is_one: fn(&Fault) -> bool| {
        let mut own = script.faults_of(member);
        own.any(|step| is_one(&step.fault) && step.at <= to && from < step.ends() + after)
    };
    let is_restored = script.steps.iter().any(|step| step.fault == Fault::Restored);
    let new_for = VOTES + if is_restored { LEADS + NAMED + AHEAD } else { 0 };
    let is_new = |member: usize| {
        had(member, new_for, |fault| {
            matches!(fault, Fault::Join(_) | Fault::NewKey(_))
        })
    };
    // Who was off meets the others anew.
    let is_off = |member: usize| had(member, VOTES, |fault| matches!(fault, Fault::PowerOff(_)));
    let is_cut = |member: usize| had(member, 0, |fault| matches!(fault, Fault::CutCloud(_)));
    let fell_before = script
        .faults_of(node)
        .any(|step| matches!(step.fault, Fault::PowerOff(_)) && step.at < from && from < step.ends() + VOTES);
    let members = || script.zone_members(node).filter(|member| is_there(*member));
    let find = || members().filter(|member| *member != node && !is_new(*member) && !is_off(*member));
    !is_new(node)
        && !fell_before
        && is_there(node)
        && find().any(|member| !is_cut(member))
        && find().count() * 2 > members().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::script;

    /// Of a zone of five, nodes that are off from 100 s on for 60 s.
    fn off(nodes: &[usize]) -> Script {
        let step = |node: &usize| Step {
            at: 100 * SECOND,
            lasts: 60 * SECOND,
            fault: Fault::PowerOff(*node),
        };
        Script {
            zones: vec![5],
            steps: nodes.iter().map(step).collect(),
            ..script(Group::Kills, 1)
        }
    }

    fn at(second: u64, dead: usize) -> impl Fn(usize, u64, u64) -> bool {
        move |node, from, to| node == dead && (from..=to).contains(&(second * SECOND))
    }

    fn never(_: usize, _: u64, _: u64) -> bool {
        false
    }

    #[test]
    fn a_death_that_nobody_finds_is_named() {
        assert!(unfound(&off(&[2]), never).is_some_and(|text| text.contains("from 100 s")));
        assert_eq!(unfound(&off(&[2]), at(104, 2)), None);
        assert!(unfound(&off(&[2]), at(140, 2)).is_some(), "too late");
        assert!(unfound(&off(&[2]), at(104, 3)).is_some(), "somebody else");
        assert!(unfound(&off(&[2, 3]), at(104, 2)).is_some(), "one of two");
    }

    #[test]
    fn without_a_majority_nobody_has_to_find_it() {
        assert_eq!(unfound(&off(&[1, 2, 3]), never), None);
    }

    /// While leaders are killed one after the other, nobody can call it Dead; afterwards one does.
    #[test]
    fn a_leader_that_is_killed_has_a_successor() {
        let mut script = off(&[2]);
        script.steps[0].lasts = 200 * SECOND;
        for at in [110, 120, 130] {
            script.steps.push(Step {
                at: at * SECOND,
                lasts: 3 * SECOND,
                fault: Fault::LeaderDown,
            });
        }
        assert_eq!(unfound(&script, at(180, 2)), None);
        assert!(unfound(&script, at(190, 2)).is_some());
    }
}
