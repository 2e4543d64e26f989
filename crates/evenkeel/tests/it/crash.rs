//! `kill -9` of our own processes: the verdicts stay right, and the next failure is handled.

use crate::installed::incident;
use crate::support::{Lab, parent_of};
use evenkeel_api::names;
use evenkeel_testkit::until;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::collections::BTreeMap;

/// Kills the lab's child whose command line holds `words`, and waits until another one has taken its place.
async fn kill_and_await_successor(lab: &Lab, words: &[&str]) {
    let [victim] = lab.children(words)[..] else {
        panic!("one process with {words:?}: {:?}", lab.children(words))
    };
    kill(Pid::from_raw(victim), Signal::SIGKILL).expect("the process is ours");
    until("the killed process is started again", async || {
        let found = lab.children(words);
        found.len() == 1 && found[0] != victim
    })
    .await;
}

/// Waits until another controller than `former` leads and has watched the node's Lease being renewed. Of a
/// node whose Lease the leader has never seen renewed, nothing is evicted faster than by stock Kubernetes.
async fn leader_knows(lab: &Lab, former: Option<&str>, node: &str) {
    until("another controller leads", async || {
        let leader = leader(lab).await;
        leader.is_some() && leader.as_deref() != former
    })
    .await;
    // The first one may come before its watches have begun.
    for _ in 0..2 {
        let before = renewed(lab, node).await;
        until("the Lease is renewed", async || {
            renewed(lab, node).await != before
        })
        .await;
    }
}

async fn lease(lab: &Lab, namespace: &str, name: &str) -> LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(lab.client.clone(), namespace);
    let lease = leases.get(name).await.expect("the Lease is there");
    lease.spec.expect("it has a holder")
}

async fn leader(lab: &Lab) -> Option<String> {
    lease(lab, names::NAMESPACE, names::CONTROLLER_LEASE)
        .await
        .holder_identity
}

async fn renewed(lab: &Lab, node: &str) -> Option<MicroTime> {
    lease(lab, names::NODE_LEASE_NAMESPACE, node).await.renew_time
}

/// Ready pods by node.
fn ready_by_node(pods: &[Pod]) -> BTreeMap<String, usize> {
    let mut by_node = BTreeMap::new();
    for pod in pods {
        let conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default();
        let ready = conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        if let (true, Some(node)) = (ready, pod.spec.as_ref().and_then(|spec| spec.node_name.clone())) {
            *by_node.entry(node).or_default() += 1;
        }
    }
    by_node
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_stay_right_and_the_next_failure_is_handled_after_kill_9() {
    let lab = Lab::start(5, 43).await;
    until("the sample workload is ready", async || {
        let pods = lab.pods("default").await;
        ready_by_node(&pods).values().sum::<usize>() == 9
    })
    .await;

    kill_and_await_successor(&lab, &["agent", "--node shore-1"]).await;
    let former = leader(&lab).await;
    kill_and_await_successor(&lab, &["controller"]).await;
    leader_knows(&lab, former.as_deref(), "shore-3").await;
    assert_eq!(
        lab.verdict("shore-1").await.filter(|verdict| verdict == "Dead"),
        None,
        "a crashed agent is no dead node"
    );

    // The next failure: a machine loses its power while the agent and the controller have just come back.
    let (code, text) = lab.command(&["kill", "shore-3"]);
    assert_eq!(code, 0, "{text}");
    until("a majority confirms that shore-3 is dead", async || {
        assert_ne!(
            lab.verdict("shore-1").await.as_deref(),
            Some("Dead"),
            "shore-1 is alive"
        );
        lab.verdict("shore-3").await.as_deref() == Some("Dead")
    })
    .await;
    // Kill the controller once more, in the middle of the failover. Its successor never sees a renewal of the
    // Lease, and knows of the one before the death from the incident.
    until("the controller has recorded it", async || {
        incident(&lab, "shore-3")
            .await
            .is_some_and(|state| state.starts_with("Dead"))
    })
    .await;
    kill_and_await_successor(&lab, &["controller"]).await;
    until(
        "no pod of shore-3 is ready, six Deployment pods are ready elsewhere",
        async || {
            let pods = lab.pods("default").await;
            let deployment: Vec<Pod> = pods
                .iter()
                .filter(|pod| owner(pod) == Some("ReplicaSet"))
                .cloned()
                .collect();
            let by_node = ready_by_node(&pods);
            let elsewhere: usize = ready_by_node(&deployment).values().sum();
            !by_node.contains_key("shore-3") && elsewhere == 6
        },
    )
    .await;

    // S2: the StatefulSet pod of the dead node has not been made a second time.
    let pods = lab.pods("default").await;
    let stateful: Vec<&str> = pods
        .iter()
        .filter(|pod| owner(pod) == Some("StatefulSet"))
        .filter_map(|pod| pod.metadata.name.as_deref())
        .collect();
    assert_eq!(stateful.len(), 3, "{stateful:?}");
}

fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref()?;
    owners.first().map(|owner| owner.kind.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_child_outlives_a_lab_that_was_killed() {
    let lab = Lab::start(2, 44).await;
    let children = lab.children(&[]);
    assert!(
        children.len() >= 4,
        "two agents, the controller and the stand-in: {children:?}"
    );
    lab.kill_9();
    until("every child has ended", async || {
        let left: Vec<&i32> = children.iter().filter(|id| parent_of(**id).is_some()).collect();
        left.is_empty()
    })
    .await;
}
