//! What is known of each probe, for the table.

use super::super::kubelet::Seen;
use super::super::table::{Block, Next, Row};
use crate::core::engine::Snapshot;
use crate::core::{Kind, Pod, Reading, Worker};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The last attempt of a probe.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub(super) verdict: &'static str,
    pub(super) took: Duration,
    /// When it began, on the clock that does not jump.
    pub(super) began: Duration,
    pub(super) detail: String,
}

#[derive(Debug, Default)]
pub(super) struct Board {
    last: BTreeMap<(Arc<str>, Kind), Last>,
}

impl Board {
    pub(super) fn attempt(&mut self, container: Arc<str>, kind: Kind, last: Last) {
        self.last.insert((container, kind), last);
    }

    /// The blocks of a table. `waits` says until when a container waits for its next start.
    pub(super) fn blocks(
        &self,
        pod: &Pod,
        seen: &[Seen],
        snapshot: &Snapshot,
        waits: impl Fn(&str) -> Option<Duration>,
        now: Duration,
    ) -> Vec<Block> {
        let blocks = seen.iter().filter_map(|seen| {
            let spec = pod.container(&seen.name)?;
            let rows = Kind::ALL.into_iter().filter_map(|kind| {
                let probe = spec.probe(kind)?;
                let worker = snapshot
                    .workers
                    .iter()
                    .find(|kept| kept.container == seen.name && kept.worker.kind() == kind)
                    .map(|kept| &kept.worker);
                let last = self.last.get(&(seen.name.clone(), kind));
                let next = match worker {
                    _ if !seen.state.is_running() => Next::Idle,
                    Some(worker) if worker.on_hold() => Next::Hold,
                    None => Next::Idle,
                    Some(_) if kind == Kind::Startup && seen.started => Next::Idle,
                    Some(_) if kind != Kind::Startup && !seen.started => Next::Gated,
                    Some(_) => {
                        let due = last.map_or(now, |last| last.began.saturating_add(probe.period));
                        Next::In(due.saturating_sub(now))
                    }
                };
                Some(Row {
                    kind,
                    state: worker.and_then(Worker::published),
                    run: worker.and_then(|worker| {
                        let (reading, run) = worker.run();
                        let of = match reading? {
                            Reading::Success => probe.success_threshold,
                            Reading::Failure | Reading::Unknown => probe.failure_threshold,
                        };
                        (run > 0).then_some((reading?, run, of))
                    }),
                    last: last.map(|last| (last.verdict, last.took)),
                    next,
                    detail: last.map(|last| last.detail.clone()).unwrap_or_default(),
                })
            });
            Some(Block {
                name: seen.name.clone(),
                running: seen.state.is_running(),
                started: seen.started,
                ready: seen.ready,
                restarts: seen.restarts,
                waits: waits(&seen.name),
                probes: rows.collect(),
            })
        });
        blocks.collect()
    }
}
