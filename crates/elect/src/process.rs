//! The runner's loop: what happens becomes events for the pure [`Runner`], whose actions are carried out
//! here.

use crate::args::LeaseName;
use crate::core::deadlines::Deadlines;
use crate::core::event::{Action, Event, FAILED};
use crate::core::orders::{Order, Report};
use crate::core::runner::Runner;
use crate::keeper_handle::{KeeperHandle, Launch};
use crate::serve::View;
use crate::signals::Signals;
use evenkeel_election::clock::{Clock as _, SystemClock};
use evenkeel_election::{Election, FencingToken, State, StopReason, Work};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A command that was started.
pub(crate) struct Running {
    keeper: KeeperHandle,
    /// Fencing token of the term in which it was started.
    token: String,
    /// As long as this exists, the lease is not released.
    _work: Option<Work>,
}

/// A runner at work.
pub(crate) struct Shell {
    pub(crate) core: Runner,
    pub(crate) launch: Launch,
    pub(crate) lease: LeaseName,
    pub(crate) identity: String,
    /// `None` once the candidate has ended.
    pub(crate) election: Option<Election>,
    /// Cancelling this ends the candidacy and releases the lease.
    pub(crate) withdrawal: CancellationToken,
    pub(crate) signals: Signals,
    pub(crate) view: watch::Sender<View>,
    pub(crate) command: Option<Running>,
    pub(crate) renewals: watch::Receiver<()>,
}

impl Shell {
    /// Runs until the core decides to exit, and returns its exit code. What does not die is the end, too:
    /// beside it no second command may start, and the lease may not be given back.
    pub(crate) async fn run(mut self) -> u8 {
        loop {
            let Some(event) = self.next().await else {
                return FAILED;
            };
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
                    if !self.destroy_command().await {
                        return FAILED;
                    }
                    actions = self.core.step(SystemClock.boot(), Event::KeeperGone);
                }
            }
        }
    }

    /// Waits for the next event. `None` if processes of the command do not die.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let wake = self.core.wake_at();
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    tracing::info!(%signal, "received a signal");
                    return Some(Event::Signal(signal));
                }
                state = change(&mut self.election) => if let Some(event) = self.election_changed(state) {
                    return Some(event);
                },
                report = report(&mut self.command) => match report {
                    Some(Report::Started(id)) => self.log_start(id),
                    report => return self.ended(report).await,
                },
                () = until(wake) => return Some(Event::Wake),
                Ok(()) = self.renewals.changed(), if self.election.is_some() => if let Some(event) = self.renewed() {
                    return Some(event);
                },
            }
        }
    }

    fn election_changed(&mut self, state: Option<State>) -> Option<Event> {
        let lease = &self.lease;
        match state {
            Some(State::Following { leader }) => {
                // Only for debugging, here and below: the elector itself logs each change of state.
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

    /// The event for the term as far as it is proven now; `None` while this candidate does not lead.
    fn renewed(&self) -> Option<Event> {
        let election = self.election.as_ref()?;
        // `expires_at` is read first. If a renewal comes in between, the window is too small by that renewal,
        // which is safe. In the other order it would be too large.
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

    /// Carries out one action. `false` if the keeper could not be started or reached, or must be destroyed.
    async fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Start { token, deadlines } => self.start(&token, deadlines).await,
            Action::Extend(deadlines) => self.order(Order::Until(deadlines)).await,
            Action::Forward(signal) => self.order(Order::Forward(signal as i32)).await,
            Action::Stop { signal, kill } => {
                let signal = signal as i32;
                self.order(Order::Stop { signal, kill }).await
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
            // `run` returns at an exit and does not pass it on.
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
        match KeeperHandle::start(&self.launch, &environment) {
            Ok(keeper) => {
                let work = self.election.as_ref().and_then(Election::work);
                let token = token.to_string();
                self.command = Some(Running {
                    keeper,
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
        match command.keeper.order(order).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, ?order, "cannot reach the command's keeper");
                false
            }
        }
    }

    fn log_start(&self, id: i32) {
        let token = self.command.as_ref().map(|command| command.token.as_str());
        tracing::info!(lease = %self.lease, token, id, "the command runs");
    }

    /// The event after the keeper's last report. `None` if processes of the command do not die.
    async fn ended(&mut self, report: Option<Report>) -> Option<Event> {
        match report {
            Some(Report::Ended(ended)) => {
                tracing::info!(how = %ended.status, told = ended.stopped, "the command has ended");
                if let Some(command) = self.command.take() {
                    command.keeper.reap().await;
                }
                return Some(Event::Ended(ended));
            }
            Some(Report::Failed(reason)) => tracing::error!(%reason, "the command cannot be started"),
            None | Some(Report::Started(_)) => tracing::error!("the command's keeper has died"),
        }
        self.destroy_command().await.then_some(Event::KeeperGone)
    }

    /// Kills what is left of keeper and command. Returns whether nothing of them is left.
    async fn destroy_command(&mut self) -> bool {
        match self.command.take() {
            Some(command) => command.keeper.destroy().await,
            None => true,
        }
    }
}

/// The next change of state of the candidate. Pending for ever once it has ended.
async fn change(election: &mut Option<Election>) -> Option<State> {
    match election {
        Some(election) => election.next().await,
        None => std::future::pending().await,
    }
}

/// The next report of the keeper. Pending for ever while no command runs.
async fn report(command: &mut Option<Running>) -> Option<Report> {
    match command {
        Some(command) => command.keeper.report().await,
        None => std::future::pending().await,
    }
}

/// Ends at this time. Pending for ever without one.
async fn until(at: Option<Duration>) {
    match at {
        Some(at) => SystemClock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
