//! One election: the only place of the example that knows the election's API.

use super::Args;
use super::lines::{Printer, boot_time};
use anyhow::Context as _;
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::{Config, Elector, FencingToken, State, StopReason};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often a leader "acts", which is to ask the gate.
const ACT: Duration = Duration::from_millis(5);

/// One election of the process.
pub(crate) struct Election {
    pub(crate) client: kube::Client,
    /// `NAMESPACE/NAME`.
    pub(crate) lease: String,
    pub(crate) name: String,
    /// Wait before it begins.
    pub(crate) delay: Duration,
    /// Requests sent.
    pub(crate) requests: Arc<AtomicU64>,
    pub(crate) args: Args,
}

/// A time of leading, by what the gate said.
struct Term {
    token: FencingToken,
    acted_until: Duration,
}

impl Election {
    /// Campaigns until `shutdown`, and tells what the gate says.
    pub(crate) async fn campaign(&self, shutdown: CancellationToken, out: &Printer) -> anyhow::Result<()> {
        let delay = tokio::time::sleep(self.delay);
        if shutdown.run_until_cancelled(delay).await.is_none() {
            return Ok(());
        }
        let args = &self.args;
        let config = Config {
            lease_duration: args.lease_duration,
            renew_deadline: args.renew_deadline,
            retry_period: args.retry_period,
            release_on_cancel: args.release,
            ..Config::new(&args.identity)
        };
        let lock = LeaseLock::new(self.client.clone(), &args.namespace, &self.name)?;
        let election = Elector::new(lock, config)?.run(shutdown);
        let mut states = election.watch();
        let mut term: Option<Term> = None;
        let mut told = None;
        loop {
            let state = states.borrow_and_update().clone();
            // Read before the gate is asked: if that is open afterwards, it was open at this time too.
            let now = boot_time();
            let token = election.gate().token();
            match &mut term {
                Some(term) if token.as_ref() == Some(&term.token) => term.acted_until = now,
                term => {
                    if let Some(term) = term.take() {
                        out.stopped(&self.lease, term.token.transitions, term.acted_until);
                    }
                    if let Some(token) = token {
                        out.started(&self.lease, token.transitions);
                        *term = Some(Term {
                            token,
                            acted_until: now,
                        });
                    }
                }
            }
            let leader = match state {
                State::Leading { .. } | State::Recovered { .. } => Some(args.identity.clone()),
                State::Following { leader } => Some(leader.unwrap_or_default()),
                // Who leads, if anybody, is not known.
                State::Lost { .. } => None,
                State::Stopped { .. } => break,
            };
            if let Some(leader) = leader.filter(|leader| told.as_ref() != Some(leader)) {
                out.leader(&self.lease, &leader);
                told = Some(leader);
            }
            tokio::select! {
                changed = states.changed() => {
                    if changed.is_err() {
                        break;
                    }
                }
                () = tokio::time::sleep(ACT), if term.is_some() => {}
            }
        }
        if let Some(term) = term {
            out.stopped(&self.lease, term.token.transitions, term.acted_until);
        }
        let reason = election.stopped().await.context("the election died")?;
        let asked_for = matches!(reason, StopReason::Cancelled { .. });
        anyhow::ensure!(asked_for, "{}: {reason}", self.lease);
        Ok(())
    }
}
