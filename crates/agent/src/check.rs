//! The check plugins: is a machine there, and is it the one we mean?
//!
//! A check answers one of three things, and only two of them are votes. *Alive with identity*: the other side
//! proved to hold the key of the node's kubelet, so whatever else is wrong, that node lives. *Failed*:
//! nothing usable came back. *Alive without identity* is an abstention: something accepted a connection,
//! which after an address change, behind NAT or behind a load balancer need not be the node.
//!
//! Checks connect and speak HTTP by the same code as the probe handlers.

mod dial;
pub(crate) mod kubelet;
mod outcome;
mod pin;
mod ping;

pub(crate) use dial::Dial;
pub(crate) use outcome::{Failure, Outcome};

use crate::args::CheckPlugin;
use evenkeel_api::zone::KubeletEndpoint;
use evenkeel_zone::engine::CheckResult;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Runs the plugins at the same time and sums up.
pub(crate) async fn check(
    plugins: &[CheckPlugin],
    endpoint: Option<&KubeletEndpoint>,
    source: Option<IpAddr>,
    within: Duration,
) -> CheckResult {
    let Some(address) = endpoint.and_then(|endpoint| endpoint.address.parse::<SocketAddr>().ok()) else {
        return CheckResult::Unavailable;
    };
    let pin = endpoint
        .map(|endpoint| endpoint.certificate_sha256.as_str())
        .filter(|pin| !pin.is_empty());
    let dial = Dial { address, source };
    let ping = async {
        if plugins.contains(&CheckPlugin::Ping) {
            Some(ping::connect(dial, within).await)
        } else {
            None
        }
    };
    let pinned = async {
        match pin.filter(|_| plugins.contains(&CheckPlugin::Kubelet)) {
            Some(pin) => Some(kubelet::check(dial, pin, within).await),
            None => None,
        }
    };
    let (ping, pinned) = tokio::join!(ping, pinned);
    tracing::debug!(%address, ?ping, kubelet = ?pinned, "checked");
    sum_up([ping, pinned].into_iter().flatten())
}

/// Identity outweighs everything; any sign that somebody is there outweighs silence (hazard 10).
fn sum_up(outcomes: impl Iterator<Item = Outcome>) -> CheckResult {
    let rank = |result: &CheckResult| match result {
        CheckResult::Identity => 3,
        CheckResult::Inconclusive => 2,
        CheckResult::Failed => 1,
        CheckResult::Unavailable => 0,
    };
    outcomes
        .map(|outcome| weigh(&outcome))
        .max_by_key(rank)
        .unwrap_or(CheckResult::Unavailable)
}

fn weigh(outcome: &Outcome) -> CheckResult {
    match outcome {
        outcome if outcome.proves_life() => CheckResult::Identity,
        Outcome::Failed(Failure::Timeout | Failure::Unreachable(_)) => CheckResult::Failed,
        // A failure of ours says nothing of the suspect.
        Outcome::Failed(Failure::Local(_)) => CheckResult::Unavailable,
        // Something refused, hung up, spoke nonsense or showed another certificate: somebody is there.
        Outcome::Alive { .. } | Outcome::WrongIdentity { .. } | Outcome::Failed(_) => {
            CheckResult::Inconclusive
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_outweighs_presence_and_presence_outweighs_silence() {
        let (silence, bare) = (
            Outcome::Failed(Failure::Timeout),
            Outcome::Alive { identity: false },
        );
        let known = Outcome::Alive { identity: true };
        let stranger = Outcome::WrongIdentity {
            expected: "a".into(),
            presented: "b".into(),
        };
        let ours = Outcome::Failed(Failure::Local("no socket".into()));
        let table: [(&[&Outcome], CheckResult); 9] = [
            (&[], CheckResult::Unavailable),
            (&[&ours], CheckResult::Unavailable),
            (&[&silence, &silence], CheckResult::Failed),
            (&[&ours, &silence], CheckResult::Failed),
            (&[&bare, &silence], CheckResult::Inconclusive),
            (&[&silence, &stranger], CheckResult::Inconclusive),
            (&[&Outcome::Failed(Failure::Refused)], CheckResult::Inconclusive),
            (&[&bare, &known], CheckResult::Identity),
            (
                &[&silence, &Outcome::Failed(Failure::NoStatus(String::new()))],
                CheckResult::Identity,
            ),
        ];
        for (outcomes, expected) in table {
            assert_eq!(
                sum_up(outcomes.iter().map(|outcome| (*outcome).clone())),
                expected,
                "{outcomes:?}"
            );
        }
    }

    #[tokio::test]
    async fn without_an_address_there_is_nothing_to_check() {
        let plugins = [CheckPlugin::Ping, CheckPlugin::Kubelet];
        let none = check(&plugins, None, None, Duration::from_millis(10)).await;
        let odd = KubeletEndpoint {
            address: "somewhere".into(),
            certificate_sha256: String::new(),
        };
        let bad = check(&plugins, Some(&odd), None, Duration::from_millis(10)).await;
        assert_eq!((none, bad), (CheckResult::Unavailable, CheckResult::Unavailable));
    }
}
