//! One slot: its election, told as changes.

use super::Change;
use evenkeel_election::{Election, State, Work};
use kube::Client;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// Follows a slot's election to its end.
pub(super) async fn follow(
    slot: u16,
    mut election: Election,
    client: Client,
    give_back: Arc<Notify>,
    told: mpsc::UnboundedSender<Change>,
) {
    let writer = election.gate().client(&client);
    let mut share: Option<Work> = None;
    // Who does not listen any more serves nothing: the share is dropped with the change.
    let tell = |change| drop(told.send(change));
    loop {
        let is_over = tokio::select! {
            biased;
            () = stopped(share.as_ref()) => true,
            () = give_back.notified() => {
                election.step_down();
                false
            }
            state = election.next() => match state {
                Some(State::Leading { .. } | State::Recovered { .. }) => {
                    if share.is_none() && let Some(work) = election.work() {
                        share = Some(work);
                        tell(Change::Gained { slot, client: writer.clone() });
                    }
                    false
                }
                Some(State::Following { .. } | State::Lost { .. } | State::Stopped { .. }) => true,
                None => break,
            },
        };
        if is_over && let Some(work) = share.take() {
            tell(Change::Lost {
                slot,
                done: Some(work),
            });
        }
    }
    if let Some(work) = share.take() {
        tell(Change::Lost {
            slot,
            done: Some(work),
        });
    }
    if let Some(reason) = election.stopped().await {
        tracing::info!(slot, %reason, "no longer standing for a slot");
    }
}

async fn stopped(share: Option<&Work>) {
    match share {
        Some(work) => work.stopped().await,
        None => std::future::pending().await,
    }
}
