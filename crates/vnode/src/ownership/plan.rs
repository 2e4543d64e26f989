//! Who is due which slot. Pure: all replicas that see the same Leases come to the same division.

use std::collections::{BTreeMap, BTreeSet};

/// What a replica sees.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// Replicas that are alive and take part, this one included.
    pub(super) members: BTreeSet<String>,
    /// Who holds each slot, among those that are alive, taking part or leaving.
    pub(super) holders: Vec<Option<String>>,
    /// Slots that have been free for so long that they are anybody's.
    pub(super) orphans: BTreeSet<usize>,
    /// A replica that is alive and shares among another number of slots, and that number: it serves the same
    /// nodes by other slots.
    pub(super) misfit: Option<(String, String)>,
}

/// What a replica does about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Slots that it may take, or keeps.
    pub(super) wanted: BTreeSet<usize>,
    /// Slots that it holds beyond its share, the first to be given back first.
    pub(super) surplus: Vec<usize>,
}

impl View {
    pub(super) fn plan(&self, me: &str) -> Plan {
        if self.misfit.is_some() {
            // Two that count differently would serve the same node by two slots. Neither can know that it is
            // right.
            let mine = |slot: &usize| self.holders[*slot].as_deref() == Some(me);
            return Plan {
                wanted: BTreeSet::new(),
                surplus: (0..self.holders.len()).filter(mine).collect(),
            };
        }
        let mut held: BTreeMap<&str, Vec<usize>> = self
            .members
            .iter()
            .map(|member| (member.as_str(), Vec::new()))
            .collect();
        let mut open = Vec::new();
        for (slot, holder) in self.holders.iter().enumerate() {
            match holder.as_deref().and_then(|holder| held.get_mut(holder)) {
                Some(slots) => slots.push(slot),
                None => open.push(slot),
            }
        }
        // Who holds most is due the remainder, so that nothing moves that need not.
        let mut members: Vec<&str> = held.keys().copied().collect();
        members.sort_by_key(|member| (std::cmp::Reverse(held[member].len()), *member));
        let count = members.len().max(1);
        let (share, remainder) = (self.holders.len() / count, self.holders.len() % count);
        let mut lacking: BTreeMap<&str, usize> = BTreeMap::new();
        let mut plan = Plan::default();
        for (index, member) in members.iter().enumerate() {
            let due = share + usize::from(index < remainder);
            let slots = &held[member];
            let (kept, surplus) = slots.split_at(due.min(slots.len()));
            lacking.insert(member, due - kept.len());
            open.extend(surplus);
            if *member == me {
                plan.wanted.extend(kept);
                plan.surplus = surplus.to_vec();
            }
        }
        for slot in open {
            let neediest = lacking
                .iter_mut()
                .filter(|(_, lacks)| **lacks > 0)
                .max_by_key(|(member, lacks)| (**lacks, std::cmp::Reverse(**member)));
            let Some((member, lacks)) = neediest else { break };
            *lacks -= 1;
            if *member == me {
                plan.wanted.insert(slot);
            }
        }
        plan.wanted.extend(&self.orphans);
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view(members: &[&str], holders: &[&str]) -> View {
        View {
            members: members.iter().map(|member| (*member).to_owned()).collect(),
            holders: holders
                .iter()
                .map(|holder| Some((*holder).to_owned()).filter(|holder| !holder.is_empty()))
                .collect(),
            orphans: BTreeSet::new(),
            misfit: None,
        }
    }

    #[test]
    fn a_lone_replica_takes_all_at_once() {
        assert_eq!(view(&["a"], &[""; 16]).plan("a").wanted.len(), 16);
    }

    #[test]
    fn who_comes_second_is_given_half() {
        let view = view(&["a", "b"], &["a"; 5]);
        let (a, b) = (view.plan("a"), view.plan("b"));
        assert_eq!(a.surplus, [3, 4]);
        assert_eq!(b.wanted, BTreeSet::from([3, 4]));
    }

    #[test]
    fn what_a_leaving_replica_holds_is_due_to_those_who_stay() {
        let view = view(&["b", "c"], &["a", "a", "b", "c"]);
        assert_eq!(view.plan("b").wanted.len(), 2);
        assert_eq!(view.plan("c").wanted.len(), 2);
        assert!(view.plan("b").surplus.is_empty());
    }

    #[test]
    fn with_a_misfit_about_all_is_given_back_and_nothing_taken() {
        let mut view = view(&["a", "b"], &["a", "", "a"]);
        view.orphans.insert(1);
        view.misfit = Some(("b".to_owned(), "16".to_owned()));
        let plan = view.plan("a");
        assert!(plan.wanted.is_empty());
        assert_eq!(plan.surplus, [0, 2]);
    }

    #[test]
    fn an_orphan_is_anybodys() {
        let mut view = view(&["a", "b"], &["a", ""]);
        assert!(!view.plan("a").wanted.contains(&1));
        view.orphans.insert(1);
        assert!(view.plan("a").wanted.contains(&1) && view.plan("b").wanted.contains(&1));
    }

    proptest! {
        #[test]
        fn each_slot_is_due_to_one_and_all_are_due_the_same(
            members in 1usize..6,
            holders in prop::collection::vec(0usize..8, 0..40),
        ) {
            let name = |index: usize| format!("m{index}");
            let mut view = View {
                members: (0..members).map(name).collect(),
                // Beyond the members: dead, leaving, or nobody.
                holders: holders.iter().map(|index| (*index < 7).then(|| name(*index))).collect(),
                orphans: BTreeSet::new(),
                misfit: None,
            };
            let most = view.holders.len().div_ceil(members);
            let plans: Vec<Plan> = (0..members).map(|index| view.plan(&name(index))).collect();
            let mut due = vec![0; view.holders.len()];
            for plan in &plans {
                prop_assert!(plan.wanted.len() <= most && plan.wanted.len() + 1 >= view.holders.len() / members);
                for slot in &plan.wanted {
                    due[*slot] += 1;
                }
            }
            prop_assert!(due.iter().all(|count| *count == 1), "{due:?}");
            // Once everybody has what is due, nothing moves.
            for (index, plan) in plans.iter().enumerate() {
                for slot in &plan.wanted {
                    view.holders[*slot] = Some(name(index));
                }
            }
            for (index, plan) in plans.iter().enumerate() {
                prop_assert_eq!(&view.plan(&name(index)).wanted, &plan.wanted);
            }
        }
    }
}
