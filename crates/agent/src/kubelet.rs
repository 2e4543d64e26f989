//! The node's own kubelet: does it answer, and with which certificate?

use crate::check::{Outcome, kubelet};
use evenkeel_api::zone::KubeletEndpoint;
use evenkeel_zone::verdict::Health;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_secs(2);
const WITHIN: Duration = Duration::from_secs(1);
/// Failures in a row before the kubelet counts as failing: a restart takes a few seconds.
const FAILURES: u32 = 3;

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OwnKubelet {
    pub(crate) health: Health,
    /// It was looked at for long enough to say that it does not answer, if it did not.
    pub(crate) is_looked_at: bool,
    /// As peers can check it; `None` until its certificate was seen.
    pub(crate) endpoint: Option<KubeletEndpoint>,
}

/// Watches it until shutdown. Its certificate may change when it restarts; on the node itself whoever holds
/// the kubelet's port is the kubelet. Where its address is only assumed, it does not fail before it has
/// answered once: it may be elsewhere.
pub(crate) async fn watch(
    (local, is_assumed): (SocketAddr, bool),
    advertised: SocketAddr,
    state: watch::Sender<OwnKubelet>,
    shutdown: CancellationToken,
) {
    let mut timer = tokio::time::interval(EVERY);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = timer.tick() => {}
        }
        let pin = state
            .borrow()
            .endpoint
            .as_ref()
            .map(|endpoint| endpoint.certificate_sha256.clone());
        let (answers, pin) = inspect(local, pin).await;
        failures = if answers { 0 } else { failures + 1 };
        state.send_if_modified(|state| {
            let before = state.clone();
            if answers {
                state.health = Health::Ok;
            } else if failures >= FAILURES && (!is_assumed || state.endpoint.is_some()) {
                state.health = Health::Failing;
            }
            state.is_looked_at |= answers || failures >= FAILURES;
            if let Some(certificate_sha256) = pin {
                state.endpoint = Some(KubeletEndpoint {
                    address: advertised.to_string(),
                    certificate_sha256,
                });
            }
            if *state != before {
                tracing::info!(kubelet = %local, health = ?state.health, "the node's own kubelet");
            }
            *state != before
        });
    }
}

/// Whether it answers, and its certificate's digest where that is news.
async fn inspect(local: SocketAddr, pin: Option<String>) -> (bool, Option<String>) {
    if let Some(pin) = pin {
        match kubelet::check(local, &pin, WITHIN).await {
            Outcome::Alive { identity: true } => return (true, None),
            Outcome::WrongIdentity { .. } => {}
            other => {
                tracing::debug!(kubelet = %local, outcome = %other, "the node's own kubelet does not answer");
                return (false, None);
            }
        }
    }
    match kubelet::fetch_pin(local, WITHIN).await {
        Ok(pin) => (true, Some(pin)),
        Err(failure) => {
            tracing::debug!(kubelet = %local, %failure, "the node's own kubelet shows no certificate");
            (false, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn looked_at(local: SocketAddr, is_assumed: bool) -> Health {
        let (sender, mut state) = watch::channel(OwnKubelet::default());
        let stop = CancellationToken::new();
        tokio::spawn(watch((local, is_assumed), local, sender, stop.clone()));
        let health = state.wait_for(|state| state.is_looked_at).await.unwrap().health;
        stop.cancel();
        health
    }

    #[tokio::test]
    async fn where_its_address_is_assumed_silence_is_no_failure() {
        evenkeel_net::init_crypto();
        // A port where nobody listens any more.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        drop(port);
        let both = tokio::join!(looked_at(address, true), looked_at(address, false));
        assert_eq!(both, (Health::Unknown, Health::Failing));
    }
}
