//! The runner's loop: turns the world into events of the [core](super::core), and its actions into deeds.

use super::args::LeaseName;
use super::command::{Kept, Launch};
use super::core::{Action, Event, Runner};
use super::deadlines::Deadlines;
use super::orders::{Order, Report};
use super::serve::View;
use super::signals::Signals;
use crate::clock::{Clock as _, SystemClock};
use crate::core::{FencingToken, State, StopReason};
use crate::{Election, Work};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A command that was started.
pub(super) struct Running {
    kept: Kept,
    /// In whose term.
    token: String,
    /// Holds back the release of the lease.
    _work: Option<Work>,
}

/// A runner at work.
pub(super) struct Shell {
    pub(super) core: Runner,
    pub(super) launch: Launch,
    pub(super) lease: LeaseName,
    pub(super) identity: String,
    /// `None` once it has ended.
    pub(super) election: Option<Election>,
    /// Ends the candidacy.
    pub(super) withdrawal: CancellationToken,
    pub(super) signals: Signals,
    pub(super) view: watch::Sender<View>,
    pub(super) command: Option<Running>,
    /// How often renewals are looked for: twice in each period.
    pub(super) tick: Duration,
}

impl Shell {
    /// Until the core says to exit, and with which code.
    pub(super) async fn run(mut self) -> u8 {
        loop {
            let event = self.next().await;
            let mut actions = self.core.step(SystemClock.boot(), event);
            while !actions.is_empty() {
                let mut failed = false;
                for action in std::mem::take(&mut actions) {
                    tracing::debug!(?action, "acting");
                    if let Action::Exit(code) = action {
                        return code;
                    }
                    failed |= !self.act(action).await;
                }
                if failed {
                    self.bury().await;
                    actions = self.core.step(SystemClock.boot(), Event::KeeperGone);
                }
            }
        }
    }

    /// What happens next.
    async fn next(&mut self) -> Event {
        loop {
            let tick = SystemClock.boot() + self.tick;
            let wake = self.core.wake_at();
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    tracing::info!(%signal, "received a signal");
                    return Event::Signal(signal);
                }
                state = change(&mut self.election) => if let Some(event) = self.election_changed(state) {
                    return event;
                },
                report = report(&mut self.command) => if let Some(event) = self.reported(report).await {
                    return event;
                },
                () = until(wake) => return Event::Wake,
                () = SystemClock.sleep_until(tick), if self.election.is_some() => if let Some(event) = self.renewed() {
                    return event;
                },
            }
        }
    }

    fn election_changed(&mut self, state: Option<State>) -> Option<Event> {
        let lease = &self.lease;
        match state {
            Some(State::Following { leader }) => {
                // The candidate has told it, here and below.
                tracing::debug!(%lease, ?leader, "following");
                let holder = leader.unwrap_or_default();
                self.view.send_replace(View { holder, term: None });
                Some(Event::Follows)
            }
            Some(State::Leading { token, .. } | State::Recovered { token, .. }) => {
                tracing::debug!(%lease, %token, "leading");
                let holder = self.identity.clone();
                self.view.send_replace(View { holder, term: None });
                self.renewed()
            }
            Some(State::Lost { loss, .. }) => {
                tracing::debug!(%lease, reason = %loss, "leadership is lost");
                self.view.send_modify(|view| view.term = None);
                Some(Event::Follows)
            }
            Some(State::Stopped { reason }) => Some(self.election_over(Some(reason))),
            None => Some(self.election_over(None)),
        }
    }

    fn election_over(&mut self, reason: Option<StopReason>) -> Event {
        let lease = &self.lease;
        match &reason {
            Some(reason @ StopReason::Cancelled { .. }) => {
                tracing::debug!(%lease, %reason, "the candidacy has ended");
            }
            Some(reason) => tracing::error!(%lease, %reason, "the candidacy has ended"),
            None => tracing::error!(%lease, "the election died of a defect"),
        }
        self.election = None;
        self.view.send_modify(|view| view.term = None);
        Event::ElectionEnded(reason)
    }

    /// The term as it is proven now, if it is.
    fn renewed(&self) -> Option<Event> {
        let election = self.election.as_ref()?;
        // In this order: between the two a renewal only makes the window smaller.
        let expires_at = election.expires_at()?;
        let (token, valid_until) = (election.gate().token()?, election.gate().valid_until()?);
        let term = Some((token.clone(), valid_until));
        self.view.send_if_modified(|view| {
            let changed = view.term != term;
            view.term = term;
            changed
        });
        let deadlines = Deadlines::new(valid_until, expires_at);
        Some(Event::Leads { token, deadlines })
    }

    /// Does it; whether it could.
    async fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Start { token, deadlines } => self.start(&token, deadlines).await,
            Action::Extend(deadlines) => self.order(Order::Until(deadlines)).await,
            Action::Forward(signal) => self.order(Order::Forward(signal as i32)).await,
            Action::Stop { signal, kill_at } => {
                let signal = signal as i32;
                self.order(Order::Stop { signal, kill_at }).await
            }
            Action::Kill => self.order(Order::Kill).await,
            Action::Destroy => {
                tracing::error!("the keeper does not end the command in time, killing both");
                false
            }
            Action::Withdraw => {
                self.withdrawal.cancel();
                true
            }
            // Ends the loop before it comes here.
            Action::Exit(_) => true,
        }
    }

    async fn start(&mut self, token: &FencingToken, deadlines: Deadlines) -> bool {
        let environment = [
            ("EVENKEEL_FENCING_TOKEN", token.to_string()),
            ("EVENKEEL_LEASE_UID", token.lease_uid.clone()),
            ("EVENKEEL_LEASE_TRANSITIONS", token.transitions.to_string()),
            ("EVENKEEL_LEASE", self.lease.to_string()),
            ("EVENKEEL_IDENTITY", self.identity.clone()),
        ];
        match Kept::start(&self.launch, &environment) {
            Ok(kept) => {
                let work = self.election.as_ref().and_then(Election::work);
                let token = token.to_string();
                self.command = Some(Running {
                    kept,
                    token,
                    _work: work,
                });
                self.order(Order::Until(deadlines)).await
            }
            Err(error) => {
                tracing::error!(%error, "cannot start a keeper for the command");
                false
            }
        }
    }

    async fn order(&mut self, order: Order) -> bool {
        let Some(command) = &mut self.command else {
            return false;
        };
        match command.kept.order(order).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, ?order, "cannot reach the command's keeper");
                false
            }
        }
    }

    async fn reported(&mut self, report: Option<Report>) -> Option<Event> {
        match report {
            Some(Report::Started(id)) => {
                let token = self.command.as_ref().map(|command| command.token.as_str());
                tracing::info!(lease = %self.lease, token, id, "the command runs");
                None
            }
            Some(Report::Ended(ended)) => {
                tracing::info!(how = %ended.status, told = ended.stopped, "the command has ended");
                if let Some(command) = self.command.take() {
                    command.kept.reaped().await;
                }
                Some(Event::Ended(ended))
            }
            Some(Report::Failed(reason)) => {
                tracing::error!(%reason, "the command cannot be started");
                self.bury().await;
                Some(Event::KeeperGone)
            }
            None => {
                tracing::error!("the command's keeper has died, and the command with it");
                self.bury().await;
                Some(Event::KeeperGone)
            }
        }
    }

    /// Kills what is left of keeper and command.
    async fn bury(&mut self) {
        if let Some(command) = self.command.take() {
            command.kept.destroy().await;
        }
    }
}

/// The next change of the election; never, once it has ended.
async fn change(election: &mut Option<Election>) -> Option<State> {
    match election {
        Some(election) => election.next().await,
        None => std::future::pending().await,
    }
}

/// The next report of the keeper, if there is one.
async fn report(command: &mut Option<Running>) -> Option<Report> {
    match command {
        Some(command) => command.kept.report().await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Duration>) {
    match at {
        Some(at) => SystemClock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
