//! The agent's own objects: where its Node is, and what its AgentStatus says.

use super::back_off::{self, BackOff};
use super::error::CloudError;
use super::{Cloud, Home};
use crate::check::Checks;
use crate::kubelet::OwnKubelet;
use crate::rotation::Said;
use evenkeel_api::crd::{AgentStatusSpec, FencingOffer};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Node and AgentStatus are compared with what they should be after this time and up to half as much again,
/// by two requests. What takes an agent out of its cell's roster has them compared at once.
const REGISTER_AGAIN: Duration = Duration::from_secs(240);
/// Whom checks do not find is told again after this time at the earliest.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// The schema of AgentStatus takes no more characters in `checkProblem`.
const LONGEST_PROBLEM: usize = 1_024;

/// What an agent says of itself, but for its kubelet.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) keys: watch::Receiver<Said>,
    pub(crate) address: String,
    pub(crate) zone_default: Option<String>,
}

/// Keeps AgentStatus as it should be until shutdown, and looks anew when `again` is notified. Returns early,
/// with where the Node is now, when it is no longer the Node this agent began with.
pub(crate) async fn stay_registered(
    cloud: Cloud,
    home: Home,
    mut registration: Registration,
    (mut kubelet, mut checks, mut not_found): (
        watch::Receiver<OwnKubelet>,
        watch::Receiver<Checks>,
        watch::Receiver<BTreeSet<String>>,
    ),
    again: Arc<Notify>,
    shutdown: CancellationToken,
) -> Option<Home> {
    let mut back_off = BackOff::default();
    // A roster with the kubelet's certificate at once, instead of two, of which one has nothing that peers
    // could check. Where no kubelet is watched, the sender is gone.
    let looked = kubelet.wait_for(|kubelet| kubelet.is_looked_at);
    tokio::select! {
        () = shutdown.cancelled() => return None,
        _ = looked => {}
    }
    let mut is_tried = false;
    loop {
        let Said { key, next } = registration.keys.borrow_and_update().clone();
        let spec = AgentStatusSpec {
            node_uid: home.node_uid.clone(),
            public_key: key.to_base64(),
            next_public_key: next.as_ref().map(|next| next.public().to_base64()),
            next_key_proof: next.map(|next| next.proof_as_next(&home.node_uid, &key)),
            address: registration.address.clone(),
            kubelet: kubelet.borrow_and_update().endpoint.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            fencing: FencingOffer::default(),
            check_problem: check_problem(
                checks.borrow_and_update().lacking().problem,
                &not_found.borrow_and_update(),
            ),
            // These are left out, and so left alone.
            link_proofs: 0,
            roster: None,
        };
        let outcome = async {
            let now = cloud.home(registration.zone_default.as_deref()).await?;
            if now == home {
                cloud.register(&spec).await?;
            }
            Ok::<_, CloudError>(now)
        };
        let (wait, is_registered) = match outcome.await {
            Ok(now) if now != home => return Some(now),
            Ok(_) => {
                back_off.end();
                (REGISTER_AGAIN.mul_f64(1.0 + rand::random::<f64>() / 2.0), true)
            }
            Err(error) => {
                let wait = back_off.next(back_off::LONGEST, rand::random());
                tracing::warn!(%error, retry_in = ?wait, "not registered");
                (wait, false)
            }
        };
        if is_registered && !is_tried {
            is_tried = true;
            if cloud.may_write_for_others().await {
                tracing::warn!(
                    "this agent may write the AgentStatus of other nodes, so that one hostile node can replace every key: apply \
                     deploy/policies.yaml (Kubernetes 1.31 or later)"
                );
            }
        }
        let changed = async {
            // The health alone is no reason to write.
            while kubelet.changed().await.is_ok() {
                if kubelet.borrow_and_update().endpoint != spec.kubelet {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        let lost = async {
            // A member that checks find and do not find by turns causes no more writes than that.
            tokio::time::sleep(TOLD_AGAIN).await;
            not_found.changed().await
        };
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(wait) => {}
            () = changed => {}
            Ok(()) = checks.changed() => {}
            Ok(()) = lost => {}
            Ok(()) = registration.keys.changed() => {}
            () = again.notified(), if is_registered => {}
        }
    }
}

/// What keeps this agent's checks from saying anything: what it cannot make, and nodes that they do not find
/// though their agents answer.
fn check_problem(lacking: Option<String>, not_found: &BTreeSet<String>) -> Option<String> {
    let unfound = not_found.first().map(|first| {
        let others = match not_found.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        format!(
            "no check finds {first}{others}, though the agent there answers: open the kubelet's TCP port (10250) between the nodes of \
             the zone; this agent votes none of them dead until then"
        )
    });
    let problems: Vec<String> = unfound.into_iter().chain(lacking).collect();
    let text: String = problems.join("; ").chars().take(LONGEST_PROBLEM).collect();
    Some(text).filter(|text| !text.is_empty())
}

/// Asks where this agent belongs until there is an answer; `None` at shutdown.
pub(crate) async fn find_home(
    cloud: &Cloud,
    zone_default: Option<&str>,
    shutdown: &CancellationToken,
) -> Option<Home> {
    let mut back_off = BackOff::default();
    loop {
        let error = tokio::select! {
            () = shutdown.cancelled() => return None,
            home = cloud.home(zone_default) => match home {
                Ok(home) => return Some(home),
                Err(error) => error,
            },
        };
        let wait = back_off.next(back_off::LONGEST, rand::random());
        tracing::warn!(%error, retry_in = ?wait, "the agent does not know its zone yet");
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(None, &[], None)]
    #[case(Some("icmp: no right"), &[], Some(("icmp: no right", "icmp: no right")))]
    #[case(None, &["a"], Some(("no check finds a, though", "none of them dead until then")))]
    #[case(Some("icmp: no right"), &["a", "b"], Some(("no check finds a and 1 more, though", "; icmp: no right")))]
    fn what_checks_lack_and_whom_they_do_not_find_is_said(
        #[case] lacking: Option<&str>,
        #[case] not_found: &[&str],
        #[case] said: Option<(&str, &str)>,
    ) {
        let not_found = not_found.iter().map(|name| (*name).to_owned()).collect();
        let problem = check_problem(lacking.map(str::to_owned), &not_found);
        assert_eq!(problem.is_some(), said.is_some());
        if let (Some(problem), Some((begin, end))) = (problem, said) {
            assert!(problem.starts_with(begin) && problem.ends_with(end), "{problem}");
        }
    }

    #[test]
    fn no_more_is_said_than_the_schema_takes() {
        let problem = check_problem(Some("x".repeat(2_000)), &BTreeSet::new());
        assert_eq!(problem.map(|problem| problem.len()), Some(LONGEST_PROBLEM));
    }
}
