//! An agent's key changes while it runs: files, AgentStatus, rosters, and what the neighbours make of it.

use crate::zone::{ZONE, Zone};
use evenkeel_api::crd::AgentStatus;
use evenkeel_testkit::eventually;
use evenkeel_zone::verdict::{Link, Verdict};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

/// What a machine's AgentStatus says of its keys.
async fn said(zone: &Zone, machine: usize) -> (String, Option<String>) {
    let status: AgentStatus = zone.cluster.get(&zone.machines[machine].name).await;
    (status.spec.public_key, status.spec.next_public_key)
}

/// What the controller does: a roster has the keys that the agents say.
async fn publish(zone: &Zone) {
    let mut roster = zone.roster().await;
    let before = roster.members.clone();
    for (machine, known) in zone.machines.iter().enumerate() {
        let (key, next) = said(zone, machine).await;
        let member = roster
            .members
            .iter_mut()
            .find(|member| member.name == known.name)
            .unwrap();
        (member.public_key, member.next_public_key) = (key, next);
    }
    if roster.members != before {
        roster.version += 1;
        zone.publish(ZONE, roster).await;
    }
}

/// Until a machine has this key alone. Meanwhile no reporter doubts anybody.
async fn becomes(zone: &Zone, machine: usize, next: &str) {
    let file = zone.machines[machine].key_file();
    eventually("the key is another one", LONG, || async {
        publish(zone).await;
        for other in 0..zone.machines.len() {
            let report = zone.report_on(other).await;
            assert_eq!(report.map(|report| report.summary), None, "{other} is listed");
        }
        let present = file.load_or_make().unwrap();
        let is_done = present.public().to_base64() == next && file.load_former(&present).unwrap().is_none();
        is_done.then_some(())
    })
    .await;
    assert_eq!(said(zone, machine).await, (next.to_owned(), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_reporter_and_of_another_member_change_and_nobody_is_doubted() {
    let mut zone = Zone::of(3).await;
    for machine in 0..3 {
        zone.is_off_the_list(machine, 20).await;
    }
    let reporter = zone.leader().await;
    for machine in [reporter, (reporter + 1) % 3] {
        let next = zone.machines[machine].key_file().make_next().unwrap();
        becomes(&zone, machine, &next).await;
    }
    // The third one is found dead by the votes of both.
    let victim = (reporter + 2) % 3;
    zone.machines[victim].power_off();
    let is_dead = |verdict: &Verdict| matches!(verdict, Verdict::Dead(_));
    zone.becomes(victim, "the victim is dead", 20, is_dead).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_machine_is_cut_off_its_key_stays_and_its_neighbours_vouch_for_it() {
    let mut zone = Zone::of(3).await;
    let cut = zone.leader().await;
    let (before, _) = said(&zone, cut).await;
    zone.machines[cut].cut_cloud(true);
    let is_cut_off =
        |verdict: &Verdict| matches!(verdict, Verdict::Alive(alive) if alive.cloud == Link::Down);
    zone.becomes(cut, "the neighbours vouch for it", 30, is_cut_off)
        .await;
    let next = zone.machines[cut].key_file().make_next().unwrap();
    // It begins anew in the middle, with both files.
    zone.machines[cut].kill_agent();
    zone.machines[cut].start_agent();
    evenkeel_testkit::until("it is vouched for again", async || {
        let verdict = zone.verdict(cut).await;
        assert!(!matches!(verdict, Verdict::Dead(_)));
        is_cut_off(&verdict)
    })
    .await;
    publish(&zone).await;
    assert_eq!(said(&zone, cut).await, (before.clone(), None));
    let present = zone.machines[cut].key_file().load_or_make().unwrap();
    assert_eq!(present.public().to_base64(), before);
    zone.machines[cut].cut_cloud(false);
    zone.is_off_the_list(cut, 60).await;
    becomes(&zone, cut, &next).await;
}
