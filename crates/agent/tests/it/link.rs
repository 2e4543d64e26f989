//! A listed agent proves by writes that its node reaches the API server.

use crate::zone::{ZONE, Zone};
use evenkeel_api::crd::AgentStatus;
use evenkeel_testkit::{eventually, until};
use kube::api::Api;
use std::time::Duration;

async fn proofs(zone: &Zone, machine: usize) -> i64 {
    let statuses: Api<AgentStatus> = Api::all(zone.cluster.client.clone());
    let status = statuses.get(&zone.machines[machine].name).await.unwrap();
    status.spec.link_proofs
}

async fn proofs_grow(zone: &Zone, machine: usize, above: i64) -> i64 {
    eventually("the link is proven", Duration::from_secs(40), || async {
        Some(proofs(zone, machine).await).filter(|count| *count > above)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_agent_writes_again_and_again_also_after_a_restart() {
    let mut zone = Zone::of(3).await;
    zone.want(&[0]).await;
    let mut count = proofs(&zone, 0).await;
    for _ in 0..2 {
        count = proofs_grow(&zone, 0, count).await;
    }
    zone.machines[0].kill_agent();
    zone.machines[0].start_agent();
    // The new life goes on from the count that stands in the object.
    proofs_grow(&zone, 0, count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_cut_off_proves_its_link_when_it_is_back() {
    let zone = Zone::of(3).await;
    zone.machines[1].cut_cloud(true);
    until("its neighbours list it", async || {
        zone.report_on(1).await.is_some()
    })
    .await;
    zone.want(&[1]).await;
    let while_cut_off = proofs(&zone, 1).await;
    zone.machines[1].cut_cloud(false);
    proofs_grow(&zone, 1, while_cut_off).await;
}

/// Its neighbours pass the roster on, signed as it was published, and it is there after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_has_the_newest_roster_from_its_neighbours() {
    let mut zone = Zone::of(3).await;
    zone.machines[1].cut_cloud(true);
    until("its neighbours list it", async || {
        zone.report_on(1).await.is_some()
    })
    .await;
    zone.reissue_roster().await;
    let newest = |zone: &Zone| zone.machines[1].remembers().map(|roster| roster.version);
    until("the roster has come", async || newest(&zone) == Some(2)).await;
    zone.machines[1].kill_agent();
    zone.machines[1].start_agent();
    until("it is in force in the next life", async || {
        let answer = zone.machines[1].ask("/readyz");
        answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    })
    .await;
    assert_eq!(newest(&zone), Some(2));
}

/// As after a restore of the API server from a backup: the controller learns which version it must go beyond.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_roster_than_the_one_that_is_shown_is_acknowledged() {
    let zone = Zone::of(3).await;
    let former = zone.roster().await;
    zone.reissue_roster().await;
    let has_newest = |at: usize| {
        zone.machines[at]
            .remembers()
            .is_some_and(|roster| roster.version == 2)
    };
    until("the roster has come", async || (0..3).all(has_newest)).await;
    zone.publish(ZONE, former).await;
    eventually("all acknowledge theirs", Duration::from_secs(60), || async {
        let statuses: Vec<AgentStatus> = zone.cluster.list().await;
        let said = statuses.iter().filter_map(|status| status.spec.roster.as_ref());
        (said.filter(|said| said.version == 2).count() == 3).then_some(())
    })
    .await;
}
