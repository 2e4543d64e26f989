//! An agent follows to the cell that the controller gives it.

use crate::zone::{ZONE, Zone};
use evenkeel_api::crd::{AgentStatus, ZoneHealth, ZoneHealthSpec};
use evenkeel_api::names;
use evenkeel_api::zone::RosterSpec;
use evenkeel_testkit::{eventually, until};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

const SECOND_CELL: &str = "shore.1";

/// The holder of the second cell's Lease, once it is another than `before`.
async fn next_holder(zone: &Zone, before: &str) -> String {
    let home = zone.cluster.namespaced(names::NAMESPACE);
    let name = format!("{}{SECOND_CELL}", names::ZONE_LEASE_PREFIX);
    eventually(
        "the second cell's Lease changes hands",
        Duration::from_secs(60),
        || async {
            let lease: Option<Lease> = home.find(&name).await;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity)?;
            (!holder.is_empty() && holder != before).then_some(holder)
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_goes_to_the_cell_that_it_is_told_and_is_there_after_a_restart_too() {
    let mut zone = Zone::of(3).await;
    let mut roster = zone.roster().await;
    let moves = zone.machines[2].name.clone();
    let (there, here) = roster
        .members
        .into_iter()
        .partition(|member| member.name == moves);
    roster.members = here;
    let of_second = RosterSpec {
        version: 1,
        members: there,
        ..RosterSpec::default()
    };
    let second = ZoneHealthSpec {
        zone: ZONE.into(),
        cell: 1,
        ..ZoneHealthSpec::default()
    };
    zone.cluster.add(&ZoneHealth::new(SECOND_CELL, second)).await;
    zone.publish(SECOND_CELL, of_second).await;
    let agents: Api<AgentStatus> = Api::all(zone.cluster.client.clone());
    let told = Patch::Merge(json!({ "status": { "cell": SECOND_CELL } }));
    agents
        .patch_status(&moves, &PatchParams::default(), &told)
        .await
        .unwrap();
    roster.version = 2;
    zone.publish(ZONE, roster).await;

    let first_life = next_holder(&zone, "").await;
    assert!(first_life.starts_with(&format!("{moves}_")), "{first_life}");
    zone.machines[2].kill_agent();
    zone.machines[2].start_agent();
    let second_life = next_holder(&zone, &first_life).await;
    assert!(second_life.starts_with(&format!("{moves}_")), "{second_life}");

    // And back: its cell is emptied, with a version that the other one has not come to.
    let back = zone.roster_of(SECOND_CELL).await.members;
    let empty = RosterSpec {
        version: 90,
        ..RosterSpec::default()
    };
    let mut whole = zone.roster().await;
    whole.members.extend(back);
    whole.version = 3;
    zone.publish(ZONE, whole).await;
    let told = Patch::Merge(json!({ "status": { "cell": "" } }));
    agents
        .patch_status(&moves, &PatchParams::default(), &told)
        .await
        .unwrap();
    zone.publish(SECOND_CELL, empty).await;
    until("its roster holds it again", async || {
        zone.machines[2]
            .remembers()
            .is_some_and(|roster| roster.version == 3)
    })
    .await;
    zone.machines[2].cut_cloud(true);
    until("its neighbours speak of it", async || {
        zone.report_on(2).await.is_some()
    })
    .await;
}
