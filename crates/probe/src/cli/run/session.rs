//! A run: what the prober notices goes to the containers, what becomes of them goes to the prober, and all of
//! it is shown.

use super::super::error::CliError;
use super::super::kubelet::{Action, Seen};
use super::super::once::verdict;
use super::super::record::{Record, What};
use super::super::table::View;
use super::super::text::stamp;
use super::board::{Board, Last};
use super::containers::Containers;
use super::display::Display;
use super::reporting::Reporting;
use super::setup::Setup;
use crate::core::engine::Notice;
use crate::core::{Kind, Pod, Reading};
use crate::manager::{Clock, Manager};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two draws of the table.
const DRAW: Duration = Duration::from_millis(200);
/// Between two checks whether anybody reads.
const CHECK_READER: Duration = Duration::from_secs(1);

/// Why a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// SIGINT or SIGTERM.
    Signal,
    /// `--for` is over.
    Time,
    /// `--until-ready`, and they are.
    Ready,
    /// Nothing of the pod runs any more, nor will.
    Failed,
    /// Nobody reads the output any more.
    Unread,
}

/// What a run is made of.
pub(super) struct Parts {
    pub(super) pod: Arc<Pod>,
    pub(super) manager: Manager,
    pub(super) containers: Containers,
    pub(super) reporting: Reporting,
    pub(super) display: Display,
    pub(super) clock: Clock,
    /// Set to whether all containers are ready.
    pub(super) published: Arc<AtomicBool>,
    /// Whether the run is for that alone.
    pub(super) until_ready: bool,
}

pub(super) struct Session {
    parts: Parts,
    board: Board,
    began: Duration,
    /// When the reader was checked last.
    checked: Duration,
    /// As shown last.
    seen: Vec<Seen>,
    ready: Option<bool>,
    kills: u64,
}

impl Session {
    pub(super) fn new(parts: Parts) -> Self {
        let began = parts.clock.now().mono;
        Self {
            began,
            checked: began,
            parts,
            board: Board::default(),
            seen: Vec::new(),
            ready: None,
            kills: 0,
        }
    }

    /// Starts to probe.
    pub(super) fn begin(&mut self, setup: &Setup) -> Result<(), CliError> {
        self.show(What::Start {
            namespace: self.parts.pod.namespace.clone(),
            pod: self.parts.pod.name.clone(),
            uid: self.parts.pod.uid.clone(),
            mode: if setup.strict { "strict" } else { "kubelet" },
            address: self.parts.containers.address().map(|address| address.to_string()),
        })?;
        for note in &setup.notes {
            self.show(What::Note {
                message: note.clone(),
            })?;
        }
        self.parts.manager.add_pod(self.parts.pod.clone());
        self.synchronise()?;
        self.draw()
    }

    pub(super) fn manager(&self) -> &Manager {
        &self.parts.manager
    }

    /// Whether all containers are ready.
    pub(super) fn ready(&self) -> bool {
        self.parts.containers.ready()
    }

    /// Whether there is nothing left to probe.
    pub(super) fn failed(&self) -> bool {
        self.parts.containers.failed()
    }

    /// Whether nobody reads the output any more.
    pub(super) fn unread(&self) -> bool {
        self.parts.display.unread()
    }

    /// How often [`Session::tick`] wants to be called.
    pub(super) fn tick_every(&self) -> Duration {
        if self.parts.display.draws() {
            DRAW
        } else {
            CHECK_READER / 2
        }
    }

    /// In how long [`Session::advance`] has something to do.
    pub(super) fn due(&self) -> Option<Duration> {
        let due = self.parts.containers.due()?;
        Some(due.saturating_sub(self.parts.clock.now().mono))
    }

    /// Something has happened.
    pub(super) fn take(&mut self, notice: &Notice) -> Result<(), CliError> {
        match notice {
            Notice::Published {
                key,
                container_id,
                reading,
                why,
            } => {
                self.show(What::State {
                    container: key.container.clone(),
                    probe: key.kind,
                    container_id: container_id.clone(),
                    state: *reading,
                    why: why.clone(),
                })?;
                if *reading == Reading::Failure && key.kind != Kind::Readiness {
                    let now = self.parts.clock.now();
                    let actions = self
                        .parts
                        .containers
                        .fail(&key.container, container_id, key.kind, now);
                    self.done(actions)?;
                }
                self.synchronise()
            }
            Notice::Ended {
                key,
                outcome,
                took,
                lag,
                starved,
            } => {
                let verdict = if *starved { "starved" } else { verdict(outcome) };
                let last = Last {
                    verdict,
                    took: *took,
                    began: self.parts.clock.now().mono.saturating_sub(*took),
                    detail: outcome.error.as_ref().unwrap_or(&outcome.output).clone(),
                };
                self.board.attempt(key.container.clone(), key.kind, last);
                self.show(What::Attempt {
                    container: key.container.clone(),
                    probe: key.kind,
                    verdict,
                    output: outcome.output.clone(),
                    error: outcome.error.clone(),
                    seconds: took.as_secs_f64(),
                    lag_seconds: lag.as_secs_f64(),
                })
            }
            Notice::Event { key, event } => self.show(What::Event {
                container: key.container.clone(),
                probe: key.kind,
                event: event.clone().into(),
            }),
            Notice::Stopped { key } => self.show(What::Stopped {
                container: key.container.clone(),
                probe: key.kind,
            }),
        }
    }

    /// Notices were lost: what they would have led to is made up for.
    pub(super) fn lost(&mut self, count: u64) -> Result<(), CliError> {
        self.show(What::Lost { count })?;
        for seen in self.parts.containers.seen() {
            for kind in [Kind::Startup, Kind::Liveness] {
                let reading = self
                    .parts
                    .manager
                    .reading(&self.parts.pod.uid, &seen.name, kind, &seen.id);
                if reading == Some(Reading::Failure) {
                    let actions =
                        self.parts
                            .containers
                            .fail(&seen.name, &seen.id, kind, self.parts.clock.now());
                    self.done(actions)?;
                }
            }
        }
        self.synchronise()
    }

    /// A container is due to start again.
    pub(super) fn advance(&mut self) -> Result<(), CliError> {
        let actions = self.parts.containers.advance(self.parts.clock.now());
        self.done(actions)?;
        self.synchronise()
    }

    /// Does what is done again and again.
    pub(super) fn tick(&mut self) -> Result<(), CliError> {
        let now = self.parts.clock.now().mono;
        if now.saturating_sub(self.checked) >= CHECK_READER {
            self.checked = now;
            self.parts.display.check_reader();
        }
        self.draw()
    }

    /// Waits until the runtime's containers are others, for [`Session::found`].
    pub(super) async fn changed(&mut self) -> Vec<String> {
        self.parts.containers.changed().await
    }

    /// The runtime's containers are others.
    pub(super) fn found(&mut self, notes: Vec<String>) -> Result<(), CliError> {
        for message in notes {
            self.show(What::Note { message })?;
        }
        self.synchronise()
    }

    /// Waits until everything is written elsewhere. The prober has stopped.
    pub(super) async fn finish(&mut self) {
        self.parts.reporting.finish().await;
    }

    /// Shows the last record, and returns the exit code.
    pub(super) fn end(&mut self, ending: Ending) -> Result<u8, CliError> {
        let ready = self.parts.containers.ready();
        let good = match ending {
            Ending::Ready => true,
            Ending::Failed => false,
            Ending::Signal | Ending::Time | Ending::Unread => {
                ready && self.kills == 0 && !self.parts.until_ready
            }
        };
        let exit_code = u8::from(!good);
        let reason = match ending {
            Ending::Signal => "signal",
            Ending::Time => "time",
            Ending::Ready => "ready",
            Ending::Failed => "failed",
            Ending::Unread => return Ok(exit_code),
        };
        self.draw()?;
        self.show(What::End {
            reason,
            ready,
            kills: self.kills,
            exit_code,
        })?;
        self.draw()?;
        Ok(exit_code)
    }

    fn done(&mut self, actions: Vec<Action>) -> Result<(), CliError> {
        for action in actions {
            if let Action::Kill { container, event, .. } = &action {
                self.kills = self.kills.saturating_add(1);
                self.parts
                    .reporting
                    .record(&self.parts.pod, container, event.clone());
            }
            self.show(action.into())?;
        }
        Ok(())
    }

    /// Reports to the prober how the containers are, and the containers what the prober makes of them.
    fn synchronise(&mut self) -> Result<(), CliError> {
        let status = self.parts.containers.status();
        let reports = self.parts.manager.update_status(&self.parts.pod.uid, status);
        self.parts.containers.take(&reports);
        let seen = self.parts.containers.seen();
        for now in &seen {
            let known = self.seen.iter().any(|before| before == now);
            if known {
                continue;
            }
            let what = What::Container {
                container: now.name.clone(),
                container_id: now.id.clone(),
                running: now.state.is_running(),
                started: now.started,
                ready: now.ready,
                restarts: now.restarts,
            };
            self.show(what)?;
        }
        self.seen = seen;
        let ready = self.parts.containers.ready();
        self.parts.published.store(ready, Ordering::Relaxed);
        if self.ready.replace(ready) != Some(ready) {
            self.show(What::Pod { ready })?;
        }
        Ok(())
    }

    fn show(&mut self, what: What) -> Result<(), CliError> {
        let record = Record {
            time: stamp(self.parts.clock.now().wall),
            what,
        };
        self.parts.display.show(&record)
    }

    fn draw(&mut self) -> Result<(), CliError> {
        if !self.parts.display.draws() {
            return Ok(());
        }
        let now = self.parts.clock.now().mono;
        let snapshot = self.parts.manager.snapshot();
        let view = View {
            pod: format!("{}/{}", self.parts.pod.namespace, self.parts.pod.name),
            ready: self.parts.containers.ready(),
            elapsed: now.saturating_sub(self.began),
            containers: self.board.blocks(
                &self.parts.pod,
                &self.seen,
                &snapshot,
                |container| self.parts.containers.waits(container, now),
                now,
            ),
        };
        self.parts.display.draw(&view)
    }
}
