//! Rolling out and scaling: how many replicas each ReplicaSet gets.

use super::{
    Rollout, annotation, available, counter,
    current::{DESIRED, MAXIMUM},
    replicas, revision,
};
use crate::cluster::{
    action::Kind,
    controllers::owned::{delete, is_controlled_by, is_finished},
    view::Snapshot,
};
use std::cmp::Reverse;

impl Rollout<'_> {
    /// Sets the replicas of a set, and notes for how many of the Deployment that was. Whether they changed.
    fn resize(&mut self, index: usize, size: i32) -> bool {
        let counts = self.counts();
        let set = &mut self.sets[index];
        if replicas(set) == size {
            return false;
        }
        if let Some(spec) = &mut set.spec {
            spec.replicas = Some(size);
        }
        set.metadata.annotations.get_or_insert_default().extend(counts);
        true
    }

    fn active(&self, indices: impl Iterator<Item = usize>) -> Vec<usize> {
        indices.filter(|index| replicas(&self.sets[*index]) > 0).collect()
    }

    fn total(&self) -> i32 {
        self.sets.iter().map(replicas).sum()
    }

    /// Whether the number of replicas changed since a set was last scaled.
    pub(super) fn is_scaled(&self) -> bool {
        self.active(0..self.sets.len()).into_iter().any(|index| {
            number(annotation(&self.sets[index], DESIRED)).is_some_and(|desired| desired != self.wanted)
        })
    }

    /// Gives each set its share of the wanted replicas, so that scaling does not hasten a roll-out.
    pub(super) fn scale(&mut self) {
        let active = self.active(0..self.sets.len());
        if let [] | [_] = active[..] {
            let newest = self.sets.len().checked_sub(1);
            if let Some(index) = active.first().copied().or(self.current).or(newest) {
                self.resize(index, self.wanted);
            }
            return;
        }
        if let Some(index) = self.current {
            let set = &self.sets[index];
            let desired = number(annotation(set, DESIRED));
            if replicas(set) == self.wanted && desired == Some(self.wanted) && available(set) == self.wanted {
                for old in self.active(self.old()) {
                    self.resize(old, 0);
                }
                return;
            }
        }
        if self.rolls() {
            self.scale_all(active);
        }
    }

    fn scale_all(&mut self, mut active: Vec<usize>) {
        let most = if self.wanted > 0 {
            self.wanted.saturating_add(self.bounds().0)
        } else {
            0
        };
        let change = most - self.total();
        // The largest first; of equals the newest one is enlarged, and the oldest one made smaller.
        active.sort_by_key(|index| {
            let age = i64::try_from(*index).unwrap_or(i64::MAX);
            let order = if change > 0 { Reverse(age) } else { Reverse(-age) };
            (Reverse(replicas(&self.sets[*index])), order)
        });
        let mut left = change;
        let mut sizes: Vec<(usize, i32)> = Vec::new();
        for index in active {
            let size = replicas(&self.sets[index]);
            let fraction = self.fraction(index);
            let part = match change {
                0 => 0,
                1.. => fraction.min(left),
                _ => fraction.max(left),
            };
            left -= part;
            sizes.push((index, size + part));
        }
        if let Some((_, size)) = sizes.first_mut() {
            *size = (*size + left).max(0);
        }
        for (index, size) in sizes {
            let counts = self.counts();
            self.resize(index, size);
            self.sets[index]
                .metadata
                .annotations
                .get_or_insert_default()
                .extend(counts);
        }
    }

    /// What a set gains when its share of the Deployment stays the same; negative where it loses.
    fn fraction(&self, index: usize) -> i32 {
        let set = &self.sets[index];
        let size = replicas(set);
        if self.wanted == 0 {
            return -size;
        }
        let before = number(annotation(set, MAXIMUM))
            .filter(|most| *most != 0)
            .or(self.status.replicas)
            .filter(|most| *most != 0);
        let Some(before) = before.map(i64::from) else {
            return 0;
        };
        let most = i64::from(self.wanted.saturating_add(self.bounds().0));
        // Rounded half up, in whole numbers: both are positive.
        let grown = (i64::from(size).saturating_mul(most).saturating_mul(2) + before) / (2 * before);
        i32::try_from(grown).unwrap_or(i32::MAX) - size
    }

    /// A rolling update: up within the surge, then down within what may be unavailable.
    pub(super) fn roll(&mut self, view: &Snapshot) {
        self.make_current(view);
        let Some(current) = self.current else { return };
        let size = replicas(&self.sets[current]);
        let size = if size > self.wanted {
            self.wanted
        } else {
            self.room_for(size)
        };
        if self.resize(current, size) || self.shrink(current) {
            return;
        }
        if self.is_complete(&self.status) {
            self.clean_up();
        }
    }

    /// Takes pods from old sets: first those that are not available, then as many as may be missing.
    fn shrink(&mut self, current: usize) -> bool {
        let old = self.active(self.old());
        let least = self.wanted - self.bounds().1;
        let set = &self.sets[current];
        let starting = replicas(set) - available(set);
        let mut idle = self.total() - least - starting;
        if old.is_empty() || idle <= 0 {
            return false;
        }
        let mut shrunk = false;
        for index in &old {
            let size = replicas(&self.sets[*index]);
            let step = (size - available(&self.sets[*index])).clamp(0, idle.max(0));
            idle -= step;
            shrunk |= self.resize(*index, size - step);
        }
        let mut spare = self.sets.iter().map(available).sum::<i32>() - least;
        for index in old {
            let size = replicas(&self.sets[index]);
            let step = size.min(spare.max(0));
            spare -= step;
            shrunk |= self.resize(index, size - step);
        }
        shrunk
    }

    /// All old pods end before the first new one begins.
    pub(super) fn recreate(&mut self, view: &Snapshot) {
        let mut shrunk = false;
        for old in self.active(self.old()) {
            shrunk |= self.resize(old, 0);
        }
        if shrunk || self.old_pods_are_left(view) {
            return;
        }
        self.make_current(view);
        if let Some(current) = self.current {
            self.resize(current, self.wanted);
        }
        if self.is_complete(&self.status) {
            self.clean_up();
        }
    }

    fn old_pods_are_left(&self, view: &Snapshot) -> bool {
        self.old().any(|index| {
            let set = &self.sets[index];
            let uid = set.metadata.uid.as_deref().unwrap_or_default();
            counter(set, |status| Some(status.replicas)) > 0
                || view
                    .pods
                    .iter()
                    .any(|pod| is_controlled_by(&pod.metadata, uid) && !is_finished(pod))
        })
    }

    /// Deletes empty old sets beyond the history limit, the lowest revisions first.
    pub(super) fn clean_up(&mut self) {
        let limit = self
            .spec
            .revision_history_limit
            .filter(|limit| *limit != i32::MAX);
        let Some(limit) = limit else { return };
        let mut old: Vec<usize> = self
            .old()
            .filter(|index| self.sets[*index].metadata.deletion_timestamp.is_none())
            .collect();
        old.sort_by_key(|index| revision(&self.sets[*index]));
        let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for index in old.into_iter().take(surplus) {
            let set = &self.sets[index];
            let unseen = set.metadata.generation.unwrap_or(0)
                > set
                    .status
                    .as_ref()
                    .and_then(|status| status.observed_generation)
                    .unwrap_or(0);
            if replicas(set) == 0 && counter(set, |status| Some(status.replicas)) == 0 && !unseen {
                self.deleted.push(delete(Kind::ReplicaSet, &set.metadata, None));
            }
        }
    }
}

fn number(text: Option<&str>) -> Option<i32> {
    text?.parse().ok().filter(|number| *number >= 0)
}
