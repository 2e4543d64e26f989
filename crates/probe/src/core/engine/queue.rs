//! Who waits for a free place: pods take turns, so that none with many slow probes holds up the others.

use std::collections::{BTreeMap, VecDeque};

/// Turns of pods, apart for exec probes and all others, because exec probes have a limit of their own and
/// must not hold up the rest. In both, a pod has at most one turn at a time, for one worker; then it goes to
/// the end.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Pods by the number of their turn; `[1]` is exec.
    turns: [BTreeMap<u64, u32>; 2],
    next: u64,
}

/// A pod's workers that wait, first come first served.
#[derive(Debug, Default)]
pub(super) struct Lines([Line; 2]);

#[derive(Debug, Default)]
struct Line {
    workers: VecDeque<u32>,
    turn: Option<u64>,
}

impl Queue {
    pub(super) fn push(&mut self, pod: u32, lines: &mut Lines, worker: u32, exec: bool) {
        let line = &mut lines.0[usize::from(exec)];
        line.workers.push_back(worker);
        if line.turn.is_none() {
            line.turn = Some(self.queue_up(pod, exec));
        }
    }

    fn queue_up(&mut self, pod: u32, exec: bool) -> u64 {
        let turn = self.next;
        self.next += 1;
        self.turns[usize::from(exec)].insert(turn, pod);
        turn
    }

    /// The pod whose turn it is, and whether for an exec probe.
    pub(super) fn turn(&self, exec_allowed: bool) -> Option<(u32, bool)> {
        let first = |exec: bool| self.turns[usize::from(exec)].first_key_value();
        let exec = if exec_allowed { first(true) } else { None };
        match (first(false), exec) {
            (Some((plain, pod)), Some((exec, _))) if plain < exec => Some((*pod, false)),
            (_, Some((_, pod))) => Some((*pod, true)),
            (Some((_, pod)), None) => Some((*pod, false)),
            (None, None) => None,
        }
    }

    /// Takes the turn of a pod that [`Queue::turn`] named: its worker that has waited longest.
    pub(super) fn take(&mut self, pod: u32, lines: &mut Lines, exec: bool) -> Option<u32> {
        let line = &mut lines.0[usize::from(exec)];
        let worker = line.workers.pop_front();
        if let Some(turn) = line.turn.take() {
            self.turns[usize::from(exec)].remove(&turn);
        }
        if !line.workers.is_empty() {
            line.turn = Some(self.queue_up(pod, exec));
        }
        worker
    }

    /// Takes out a worker that waits no longer.
    pub(super) fn remove(&mut self, lines: &mut Lines, worker: u32, exec: bool) {
        let line = &mut lines.0[usize::from(exec)];
        line.workers.retain(|waiting| *waiting != worker);
        if line.workers.is_empty()
            && let Some(turn) = line.turn.take()
        {
            self.turns[usize::from(exec)].remove(&turn);
        }
    }

    /// Pods that wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.turns.iter().map(BTreeMap::len).sum()
    }
}
