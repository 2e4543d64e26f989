//! How a term is lost, recovered and ended, and how the lock is released.

use super::{Action, Announcement, Machine, Now, Phase};
use crate::core::config::OnLoss;
use crate::core::record::Record;
use crate::core::state::{FencingToken, Loss, State, StopReason};
use std::time::Duration;

/// Leadership that is proven.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lead {
    pub(super) token: FencingToken,
    /// When the last successful write was sent.
    pub(super) since: Duration,
    /// When the proof ends.
    pub(super) valid_until: Duration,
    /// Whether leadership was lost and recovered in this term.
    pub(super) recovered: bool,
}

/// A term whose leadership cannot be proven at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lost {
    pub(super) lead: Lead,
    pub(super) loss: Loss,
    /// When the recovery is given up.
    pub(super) give_up: Option<Duration>,
}

/// The end of a term whose guarded work was told to end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    /// Until when the work is waited for; `Duration::MAX` for as long as it takes.
    pub(super) until: Duration,
    /// The reason to report, if leadership lasts until the work has ended.
    pub(super) loss: Loss,
    pub(super) then: Then,
}

/// What follows the end of a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Then {
    /// The candidate ends.
    Stop(StopReason),
    /// The candidate campaigns again from this time on.
    Campaign { not_before: Duration },
}

/// Attempts of client-go's renew loop that share one renew deadline.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Round {
    pub(super) deadline: Duration,
    /// The tick at which the next attempt is due.
    pub(super) next: Duration,
}

impl Machine {
    /// Whether this candidate is in a term, proven or not.
    pub(super) fn has_term(&self) -> bool {
        self.lead.is_some() || self.lost.is_some()
    }

    /// When leadership is lost if no renewal succeeds before.
    pub(super) fn lose_at(&self) -> Option<Duration> {
        let lead = self.lead.as_ref()?;
        if self.client_go() {
            self.round.as_ref().map(|round| round.deadline)
        } else {
            Some(lead.valid_until)
        }
    }

    /// When the attempt that is under way is given up.
    pub(super) fn attempt_ends(&self) -> Option<Duration> {
        matches!(
            self.phase,
            Phase::Reading | Phase::Renewing { .. } | Phase::Taking { .. }
        )
        .then(|| self.attempt.saturating_add(self.config.renew_deadline))
    }

    /// The state to publish.
    pub(super) fn current(&self) -> State {
        if let Phase::Stopped { reason } = &self.phase {
            return State::Stopped {
                reason: reason.clone(),
            };
        }
        if let Some(lead) = &self.lead {
            let (token, valid_until) = (lead.token.clone(), lead.valid_until);
            return if lead.recovered {
                State::Recovered { token, valid_until }
            } else {
                State::Leading { token, valid_until }
            };
        }
        if let Some(lost) = &self.lost {
            return State::Lost {
                token: lost.lead.token.clone(),
                loss: lost.loss.clone(),
            };
        }
        let holder = self.seen.as_ref().map(|seen| &seen.observation.record);
        State::Following {
            leader: holder
                .filter(|record| !record.holder.is_empty() && !self.is_mine(record))
                .map(|record| record.holder.clone()),
        }
    }

    /// Why a record that was read ends our term; `None` if the term goes on.
    pub(super) fn loss_by(&self, record: &Record, uid: &str) -> Option<Loss> {
        if self.client_go() && self.lost.is_none() {
            // A leader under client-go's rules goes on trying until the deadline.
            return None;
        }
        let lead = self
            .lead
            .as_ref()
            .or_else(|| self.lost.as_ref().map(|lost| &lost.lead))?;
        if lead.token.lease_uid != uid && !self.client_go() {
            Some(Loss::Deleted)
        } else if record.holder.is_empty() {
            Some(Loss::Blanked)
        } else if record.holder != self.config.identity {
            Some(Loss::OtherHolder(record.holder.clone()))
        } else if record.transitions != lead.token.transitions && !self.client_go() {
            Some(Loss::Reassigned)
        } else {
            None
        }
    }

    /// Ends the proof of leadership: the gate closes, so that no guarded write is made any more. The term
    /// waits for recovery only if no renewal succeeded in time ([`Loss::Deadline`]) and the configuration
    /// does not say [`OnLoss::Stop`]; else it ends. In a coordinated election it ends, too: Kubernetes'
    /// coordinator does not count transitions, so that a candidate that is chosen again cannot know whether
    /// another one led meanwhile.
    pub(super) fn lose(&mut self, now: Now, loss: Loss, actions: &mut Vec<Action>) {
        if self.round.take().is_some() {
            // client-go reports a new holder when its round of attempts is over.
            self.report(actions);
        }
        let Some(lead) = self.lead.take() else {
            if self.lost.is_none() || loss == Loss::Deadline {
                return;
            }
            if self.ending.is_none() {
                return self.end_term(now, StopReason::Lost(loss), actions);
            }
            // The work was already told to end. Only the recovery is given up.
            self.lost = None;
            self.abort(now, actions);
            self.phase = Phase::Draining;
            return;
        };
        actions.extend([Action::CloseGate, Action::Lost(loss.clone())]);
        if self.ending.is_some() {
            // The work was already told to end, so another renewal would be of no use.
            self.abort(now, actions);
            self.phase = Phase::Draining;
            self.announce_end(actions);
        } else if loss == Loss::Deadline && self.config.on_loss != OnLoss::Stop && !self.config.coordinated {
            let give_up = |deadline: Duration| now.at.saturating_add(deadline);
            self.lost = Some(Lost {
                lead,
                loss,
                give_up: self.config.recovery_deadline.map(give_up),
            });
            self.announce_end(actions);
            if self.client_go() {
                self.abort(now, actions);
                self.wait(now.at);
            }
        } else {
            self.end_term(now, StopReason::Lost(loss), actions);
        }
    }

    /// Ends the term. The guarded work may still run.
    pub(super) fn end_term(&mut self, now: Now, reason: StopReason, actions: &mut Vec<Action>) {
        self.abort(now, actions);
        self.lead = None;
        self.lost = None;
        let campaigns = self.config.on_loss == OnLoss::Campaign && reason != StopReason::DuplicateIdentity;
        let (until, then) = if campaigns {
            // Two terms of one process must not overlap, so the end of the first is waited for without a
            // limit.
            (Duration::MAX, Then::Campaign { not_before: now.at })
        } else {
            (
                now.at.saturating_add(self.config.lease_duration),
                Then::Stop(reason),
            )
        };
        if self.client_go() {
            return self.release(now, then, actions);
        }
        self.announce_end(actions);
        self.phase = Phase::Draining;
        let loss = Loss::Deadline;
        self.ending = Some(Ending { until, loss, then });
        actions.push(Action::Drain);
    }

    /// Ends the candidate because another process runs under its identity, without a release: the record in
    /// the lock may be that of the other process.
    pub(super) fn end_as_duplicate(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.lead.take().is_some() {
            actions.extend([Action::CloseGate, Action::Lost(Loss::DuplicateIdentity)]);
        }
        if self.ending.is_none() {
            self.end_term(now, StopReason::DuplicateIdentity, actions);
        } else {
            self.phase = Phase::Draining;
        }
        if let Some(ending) = &mut self.ending {
            ending.then = Then::Stop(StopReason::DuplicateIdentity);
        }
    }

    pub(super) fn cancel(&mut self, now: Now, actions: &mut Vec<Action>) {
        let stop = |drained| Then::Stop(StopReason::Cancelled { drained });
        let until = now.at.saturating_add(self.config.lease_duration);
        if let Some(ending) = &mut self.ending {
            if !matches!(ending.then, Then::Stop(_)) {
                ending.then = stop(true);
            }
            ending.until = ending.until.min(until);
        } else if self.client_go() {
            let had_term = self.has_term();
            if self.round.take().is_some() {
                self.report(actions);
            }
            if self.lead.take().is_some() {
                actions.extend([Action::CloseGate, Action::Lost(Loss::Cancelled)]);
            }
            self.abort(now, actions);
            if had_term {
                self.release(now, stop(true), actions);
            } else {
                self.finish(now, stop(true), actions);
            }
        } else if self.has_term() {
            if self.lead.is_none() {
                // The recovery is given up.
                self.abort(now, actions);
                self.phase = Phase::Draining;
            }
            self.ending = Some(Ending {
                until,
                loss: Loss::Cancelled,
                then: stop(true),
            });
            actions.push(Action::Drain);
        } else {
            let may_hold = matches!(self.phase, Phase::Taking { .. });
            self.abort(now, actions);
            if may_hold {
                self.release(now, stop(true), actions);
            } else {
                self.finish(now, stop(true), actions);
            }
        }
    }

    /// Makes the candidate end with the release that is under way.
    pub(super) fn stop_after_release(&mut self) {
        if !matches!(self.then, Some(Then::Stop(_))) {
            self.then = Some(Then::Stop(StopReason::Cancelled { drained: true }));
        }
    }

    /// Hands over. After `EndOfTerm` the lock is not renewed any more, because the coordinator wants another
    /// leader.
    pub(super) fn step_down(&mut self, now: Now, loss: Loss, actions: &mut Vec<Action>) {
        if !self.has_term() || self.ending.is_some() {
            return;
        }
        // A term that was lost is not recovered any more.
        if matches!(loss, Loss::EndOfTerm(_)) || self.lead.is_none() {
            self.abort(now, actions);
            self.phase = Phase::Draining;
        }
        let until = now.at.saturating_add(self.config.lease_duration);
        // Others get a lease duration to take the lock. A coordinator may choose this candidate again at
        // once.
        let not_before = if self.config.coordinated { now.at } else { until };
        self.ending = Some(Ending {
            until,
            loss,
            then: Then::Campaign { not_before },
        });
        actions.push(Action::Drain);
    }

    /// Handles the end of the guarded work, or of the time that it had.
    pub(super) fn end(&mut self, now: Now, drained: bool, actions: &mut Vec<Action>) {
        let Some(mut ending) = self.ending.take() else {
            return;
        };
        let may_hold = matches!(self.phase, Phase::Taking { .. } | Phase::Renewing { .. }) || self.holds();
        self.abort(now, actions);
        if self.lead.take().is_some() {
            actions.extend([Action::CloseGate, Action::Lost(ending.loss.clone())]);
        }
        self.lost = None;
        self.announce_end(actions);
        if !drained && matches!(ending.then, Then::Campaign { .. }) {
            self.phase = Phase::Draining;
            ending.until = Duration::MAX;
            self.ending = Some(ending);
            return;
        }
        if let Then::Stop(StopReason::Cancelled { drained: all }) = &mut ending.then {
            *all = drained;
        }
        let duplicate = ending.then == Then::Stop(StopReason::DuplicateIdentity);
        if drained && may_hold && !duplicate {
            self.release(now, ending.then, actions);
        } else {
            self.finish(now, ending.then, actions);
        }
    }

    /// Releases the lock if the configuration says so and the lock is ours, and goes on with `then`.
    fn release(&mut self, now: Now, then: Then, actions: &mut Vec<Action>) {
        self.lost = None;
        if !self.config.release_on_cancel {
            return self.finish(now, then, actions);
        }
        self.then = Some(then);
        self.phase = Phase::ReleaseReading {
            until: now.at.saturating_add(self.config.renew_deadline),
        };
        self.request(Action::Get, actions);
    }

    /// Goes on after a release. If the release has failed, the lock expires.
    pub(super) fn released(&mut self, now: Now, actions: &mut Vec<Action>) {
        let then = self.then.take();
        let then = then.unwrap_or(Then::Stop(StopReason::Cancelled { drained: true }));
        self.finish(now, then, actions);
    }

    fn finish(&mut self, now: Now, then: Then, actions: &mut Vec<Action>) {
        self.announce_end(actions);
        self.lost = None;
        match then {
            Then::Stop(reason) => self.phase = Phase::Stopped { reason },
            Then::Campaign { not_before } => {
                self.not_before = self.not_before.max(not_before);
                self.report(actions);
                let held = |seen: &super::Seen| !seen.observation.record.holder.is_empty();
                let next = match self.expiry() {
                    Some(expiry) if self.seen.as_ref().is_some_and(held) => {
                        self.jittered(now).min(self.spread(now, expiry.max(now.at)))
                    }
                    _ => self.spread(now, now.at),
                };
                self.wait(next);
            }
        }
    }

    fn announce_end(&mut self, actions: &mut Vec<Action>) {
        if std::mem::take(&mut self.announced) {
            actions.push(Action::Announce(Announcement::StoppedLeading));
        }
    }

    /// Whether the record that was seen last is our own.
    fn holds(&self) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| self.is_mine(&seen.observation.record))
    }
}
