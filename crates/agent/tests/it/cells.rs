//! An agent follows to the cell that the controller gives it, and writes for another one that has no link.

use crate::machine::Machine;
use crate::zone::{ZONE, Zone, issued, now, read};
use evenkeel_api::crd::{
    AgentStatus, ZoneChallenge, ZoneChallengeSpec, ZoneHealth, ZoneHealthSpec, ZoneReport,
};
use evenkeel_api::names;
use evenkeel_api::zone::{RosterContact, RosterMember, RosterSpec};
use evenkeel_testkit::{eventually, until, until_within};
use evenkeel_zone::roster::Roster;
use evenkeel_zone::verdict::{Book, Link, Verdict};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

const SECOND_CELL: &str = "shore.1";
const MINUTE: Duration = Duration::from_secs(60);

/// The holder of the second cell's Lease, once it is another than `before`.
async fn next_holder(zone: &Zone, before: &str) -> String {
    let home = zone.cluster.namespaced(names::NAMESPACE);
    let name = names::zone_lease(SECOND_CELL);
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

/// What the controller does when it divides a zone: the second cell, and then the first one without its
/// members.
async fn divide(
    zone: &Zone,
    first: RosterSpec,
    (members, contacts): (Vec<RosterMember>, Vec<RosterContact>),
) {
    let second = ZoneHealthSpec {
        zone: ZONE.into(),
        cell: 1,
        ..ZoneHealthSpec::default()
    };
    zone.cluster.add(&ZoneHealth::new(SECOND_CELL, second)).await;
    let agents: Api<AgentStatus> = Api::all(zone.cluster.client.clone());
    let told = Patch::Merge(json!({ "status": { "cell": SECOND_CELL } }));
    for member in &members {
        agents
            .patch_status(&member.name, &PatchParams::default(), &told)
            .await
            .unwrap();
    }
    let of_second = RosterSpec {
        version: 1,
        members,
        contacts,
        ..RosterSpec::default()
    };
    zone.publish(SECOND_CELL, of_second).await;
    zone.publish(ZONE, first).await;
}

/// What a reader makes of the reports about the second cell that machine `a` has written, by node: it knows
/// no other challenge than the present one.
async fn verdict(zone: &Zone, machine: usize) -> Option<Verdict> {
    let health: ZoneHealth = zone.cluster.get(SECOND_CELL).await;
    let asked: ZoneChallenge = zone.cluster.get(SECOND_CELL).await;
    let report: ZoneReport = zone.cluster.find("shore.1.a").await?;
    let mut book = Book::new();
    let roster = Roster::from_spec(&health.spec.read_roster()?).unwrap();
    book.roster(now(), SECOND_CELL, roster);
    book.challenges(now(), SECOND_CELL, &[read(asked.spec.current)]);
    // The first state of a cell is void: it may have stood there for long.
    let mut earlier = report.spec.report.clone();
    earlier.rounds.clear();
    earlier.sequence -= 1;
    book.report(now(), SECOND_CELL, "a", &earlier);
    book.report(now(), SECOND_CELL, "a", &report.spec.report);
    Some(book.verdict(&zone.uid(machine).await))
}

/// Real sockets, and the rights of an agent.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_for_a_cell_of_which_nobody_has_a_link() {
    let mut zone = Zone::of(4).await;
    let roster = zone.roster().await;
    let carrier = zone.machines[0].name.clone();
    let (here, there): (Vec<RosterMember>, Vec<RosterMember>) = roster
        .members
        .iter()
        .cloned()
        .partition(|member| member.name == carrier);
    let contact = RosterContact {
        uid: here[0].uid.clone(),
        address: here[0].address.clone(),
        public_key: here[0].public_key.clone(),
    };
    let challenge = ZoneChallengeSpec {
        zone: ZONE.into(),
        cell: 1,
        current: issued(),
        ..ZoneChallengeSpec::default()
    };
    zone.cluster
        .add(&ZoneChallenge::new(SECOND_CELL, challenge))
        .await;
    let first = RosterSpec {
        version: 2,
        members: here,
        ..roster
    };
    divide(&zone, first, (there, vec![contact])).await;
    until("all are in the second cell", async || {
        let cell = |machine: &Machine| machine.remembers().map(|roster| roster.cell);
        let machines = &zone.machines[1..];
        machines
            .iter()
            .all(|machine| cell(machine).as_deref() == Some(SECOND_CELL))
    })
    .await;

    for machine in &zone.machines[1..] {
        machine.cut_cloud(true);
    }
    let alive = async |zone: &Zone, machine| {
        let verdict = verdict(zone, machine).await;
        matches!(verdict, Some(Verdict::Alive(alive)) if alive.cloud == Link::Down)
    };
    until_within("they are vouched for", MINUTE, async || {
        alive(&zone, 1).await && alive(&zone, 2).await && alive(&zone, 3).await
    })
    .await;
    let carried = |zone: &Zone| {
        let answer = zone.machines[0].ask("/metrics").unwrap_or_default();
        let line = answer
            .lines()
            .find(|line| line.starts_with("evenkeel_agent_carried_cells "));
        line.and_then(|line| line.rsplit_once(' ')?.1.trim().parse::<usize>().ok())
    };
    assert_eq!(carried(&zone), Some(1));

    let another = json!({ "spec": { "current": issued() } });
    zone.cluster.merge::<ZoneChallenge>(SECOND_CELL, another).await;
    until_within(
        "they sign the challenge that the carrier brought",
        MINUTE,
        async || alive(&zone, 1).await && alive(&zone, 2).await && alive(&zone, 3).await,
    )
    .await;

    zone.power_off(3, 1..4).await;
    until_within("its death is told", MINUTE, async || {
        matches!(verdict(&zone, 3).await, Some(Verdict::Dead(_)))
    })
    .await;
    for machine in &zone.machines[1..] {
        machine.cut_cloud(false);
    }
    until_within("it writes for them no more", MINUTE, async || {
        carried(&zone) == Some(0)
    })
    .await;
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
    let agents: Api<AgentStatus> = Api::all(zone.cluster.client.clone());
    let first = RosterSpec { version: 2, ..roster };
    divide(&zone, first, (there, Vec::new())).await;

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
