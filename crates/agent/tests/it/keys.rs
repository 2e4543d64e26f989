//! An agent's key, its address or its kubelet's certificate changes: files, AgentStatus, rosters, and what
//! the neighbours make of it.

use crate::zone::{ZONE, Zone, now};
use evenkeel_api::crd::AgentStatus;
use evenkeel_api::zone::RosterMember;
use evenkeel_testkit::eventually;
use evenkeel_zone::verdict::{Link, Verdict};
use rstest::rstest;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

/// What a machine's AgentStatus says of its keys.
async fn said(zone: &Zone, machine: usize) -> (String, Option<String>) {
    let status: AgentStatus = zone.cluster.get(&zone.machines[machine].name).await;
    (status.spec.public_key, status.spec.next_public_key)
}

/// What the controller does: a roster has the keys and addresses that the agents say.
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
        let status: AgentStatus = zone.cluster.get(&known.name).await;
        member.address = status.spec.address;
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
    zone.power_off(victim, 0..3).await;
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

/// Whatever a machine goes through, until something is so: it is never called dead, as little as the others.
async fn until_so(zone: &Zone, what: &str, so: impl AsyncFn() -> bool) {
    eventually(what, LONG, || async {
        for machine in 0..zone.machines.len() {
            let verdict = zone.verdict(machine).await;
            assert!(
                !matches!(verdict, Verdict::Dead(_)),
                "{what}: {machine} is called dead"
            );
        }
        so().await.then_some(())
    })
    .await;
}

/// An agent has lost its key, and begins with another one. The controller makes it a learner first.
fn loses_its_key(zone: &mut Zone, machine: usize) {
    zone.machines[machine].kill_agent();
    std::fs::remove_file(zone.machines[machine].key_path()).unwrap();
    zone.machines[machine].start_agent();
}

async fn is_admitted_anew(zone: &Zone, machine: usize) {
    let new = zone.machines[machine]
        .key_file()
        .load_or_make()
        .unwrap()
        .public()
        .to_base64();
    until_so(zone, "it has registered with its new key", async || {
        said(zone, machine).await.0 == new
    })
    .await;
    let name = &zone.machines[machine].name;
    let mut roster = zone.roster().await;
    roster.version += 1;
    for member in roster.members.iter_mut().filter(|member| member.name == *name) {
        (member.public_key, member.learner) = (new.clone(), true);
    }
    zone.publish(ZONE, roster.clone()).await;
    until_so(zone, "it has met the others", async || {
        let status: AgentStatus = zone.cluster.get(name).await;
        status
            .spec
            .roster
            .is_some_and(|said| said.version == roster.version && said.met == 2)
    })
    .await;
    roster.version += 1;
    roster
        .members
        .iter_mut()
        .for_each(|member| member.learner = false);
    zone.publish(ZONE, roster).await;
    until_so(zone, "nobody is listed", async || {
        for machine in 0..zone.machines.len() {
            if zone.report_on(machine).await.is_some() {
                return false;
            }
        }
        true
    })
    .await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_lost_its_key_is_doubted_by_nobody_and_votes_again(
    #[values(false, true)] is_reporter: bool,
) {
    let mut zone = Zone::of(3).await;
    let reporter = zone.leader().await;
    let machine = if is_reporter { reporter } else { (reporter + 1) % 3 };
    loses_its_key(&mut zone, machine);
    is_admitted_anew(&zone, machine).await;
    let victim = (machine + 1) % 3;
    zone.power_off(victim, 0..3).await;
    let is_dead = |verdict: &Verdict| matches!(verdict, Verdict::Dead(_));
    zone.becomes(victim, "the victim is dead by its vote", 20, is_dead)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_agent_that_loses_its_key_while_it_is_cut_off_the_kubelet_says_that_it_lives() {
    let mut zone = Zone::of(3).await;
    let cut = zone.leader().await;
    zone.machines[cut].cut_cloud(true);
    let lives = |verdict: &Verdict| matches!(verdict, Verdict::Alive(_));
    zone.becomes(cut, "the neighbours vouch for it", 30, lives).await;
    loses_its_key(&mut zone, cut);
    let before = zone.report_on(cut).await.map(|report| report.rounds);
    until_so(&zone, "it is vouched for again", async || {
        lives(&zone.verdict(cut).await) && zone.report_on(cut).await.map(|report| report.rounds) != before
    })
    .await;
    zone.machines[cut].cut_cloud(false);
    is_admitted_anew(&zone, cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelets_new_certificate_is_published_and_while_it_cannot_be_it_convicts_nobody() {
    let mut zone = Zone::of(3).await;
    let machine = zone.leader().await;
    let pin = async |zone: &Zone| {
        let status: AgentStatus = zone.cluster.get(&zone.machines[machine].name).await;
        status.spec.kubelet.unwrap().certificate_sha256
    };
    let first = pin(&zone).await;
    zone.machines[machine].renew_certificate();
    until_so(&zone, "the new certificate is published", async || {
        pin(&zone).await != first
    })
    .await;
    // Cut off, and with yet another one: its agent answers.
    zone.machines[machine].cut_cloud(true);
    let lives = |verdict: &Verdict| matches!(verdict, Verdict::Alive(_));
    zone.becomes(machine, "the neighbours vouch for it", 30, lives)
        .await;
    zone.machines[machine].renew_certificate();
    let before = zone.report_on(machine).await.map(|report| report.rounds);
    until_so(&zone, "it is vouched for again", async || {
        lives(&zone.verdict(machine).await)
            && zone.report_on(machine).await.map(|report| report.rounds) != before
    })
    .await;
    // Then the agent ends, too: something answers that nobody can recognise, and all abstain.
    zone.machines[machine].kill_agent();
    until_so(&zone, "nobody vouches for it any more", async || {
        let verdict = zone.verdict(machine).await;
        !matches!(verdict, Verdict::Alive(alive) if alive.until > now())
    })
    .await;
    let unknown = tokio::time::Instant::now() + Duration::from_secs(10);
    until_so(&zone, "ten seconds pass", async || {
        tokio::time::Instant::now() >= unknown
    })
    .await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_has_another_address_is_doubted_by_nobody(
    #[values(false, true)] is_reporter: bool,
    #[values(false, true)] is_cut: bool,
) {
    let mut zone = Zone::of(3).await;
    let reporter = zone.leader().await;
    let machine = if is_reporter { reporter } else { (reporter + 1) % 3 };
    let lives = |verdict: &Verdict| matches!(verdict, Verdict::Alive(_));
    if is_cut {
        zone.machines[machine].cut_cloud(true);
        zone.becomes(machine, "the neighbours vouch for it", 30, lives)
            .await;
    }
    zone.machines[machine].move_agent();
    if is_cut {
        // A round that was held before it moved may be published after that, the next one is none of those.
        for _ in 0..2 {
            let before = zone.report_on(machine).await.map(|report| report.rounds);
            until_so(&zone, "it is vouched for where it is", async || {
                let verdict = zone.verdict(machine).await;
                matches!(verdict, Verdict::Alive(alive) if alive.cloud == Link::Down)
                    && zone.report_on(machine).await.map(|report| report.rounds) != before
            })
            .await;
        }
        zone.machines[machine].cut_cloud(false);
    }
    let name = &zone.machines[machine].name;
    let address = zone.machines[machine].address().to_string();
    until_so(
        &zone,
        "its address is in the roster, and nobody is listed",
        async || {
            publish(&zone).await;
            let roster = zone.roster().await;
            let is_there = |member: &RosterMember| (&member.name, &member.address) == (name, &address);
            roster.members.iter().any(is_there) && zone.report_on(machine).await.is_none()
        },
    )
    .await;
    let victim = (machine + 1) % 3;
    zone.power_off(victim, 0..3).await;
    let is_dead = |verdict: &Verdict| matches!(verdict, Verdict::Dead(_));
    zone.becomes(victim, "the victim is dead by its vote", 20, is_dead)
        .await;
}
