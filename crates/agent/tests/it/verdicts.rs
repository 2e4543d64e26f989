//! What a zone of real agents tells its readers.

use crate::machine::Machine;
use crate::zone::Zone;
use evenkeel_testkit::until;
use evenkeel_zone::verdict::{Health, Link, Verdict};

fn is_dead(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Dead(_))
}

fn is_cut_off(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Alive(alive) if alive.cloud == Link::Down)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_power_is_dead_with_evidence_that_a_reader_checks() {
    let mut zone = Zone::of(3).await;
    for machine in 0..3 {
        zone.is_off_the_list(machine, 20).await;
    }
    // The reporter is the victim: its death must cost nothing.
    let victim = zone.leader().await;
    zone.power_off(victim, 0..3).await;
    zone.becomes(victim, "the victim is dead", 20, is_dead).await;
    let name = zone.machines[victim].name.clone();
    let report = zone.report_on(victim).await.unwrap();
    let listed = report.nodes.iter().find(|node| node.name == name).unwrap();
    assert_eq!(
        (
            report.rounds.len(),
            report.rounds[0].ballots.len(),
            report.members
        ),
        (1, 2, 3),
        "{report:?}"
    );
    assert!(
        listed.since.as_ref().is_some_and(|since| since.ends_with('Z')),
        "{:?}",
        listed.since
    );
    assert!(
        report.summary.contains(&format!("{name} dead")),
        "{}",
        report.summary
    );
    // A new roster and a restarted agent do not forget the dead.
    zone.reissue_roster().await;
    let survivor = (victim + 1) % 3;
    zone.machines[survivor].kill_agent();
    zone.machines[survivor].start_agent();
    evenkeel_testkit::until("the death is confirmed again", async || {
        assert!(is_dead(&zone.verdict(victim).await));
        let again = zone.report_on(victim).await;
        again.is_some_and(|again| again.rounds != report.rounds && again.roster_version == 2)
    })
    .await;
    assert!(is_dead(&zone.verdict(victim).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_cut_from_the_cloud_is_alive_also_when_its_agent_restarts_meanwhile() {
    let mut zone = Zone::of(3).await;
    let cut = zone.leader().await;
    zone.machines[cut].cut_cloud(true);
    let verdict = zone
        .becomes(cut, "the neighbours vouch for it", 30, is_cut_off)
        .await;
    let Verdict::Alive(alive) = verdict else {
        panic!("vouched for: {verdict:?}");
    };
    assert_eq!((alive.kubelet, alive.runtime), (Health::Ok, Health::Unknown));
    // It starts again with nothing but what it remembers.
    zone.machines[cut].kill_agent();
    zone.machines[cut].start_agent();
    let before = zone.report_on(cut).await;
    evenkeel_testkit::until("it is vouched for again", async || {
        let verdict = zone.verdict(cut).await;
        assert!(!is_dead(&verdict));
        is_cut_off(&verdict) && zone.report_on(cut).await != before
    })
    .await;
    zone.machines[cut].cut_cloud(false);
    zone.is_off_the_list(cut, 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wanted_machine_is_vouched_for_though_it_is_well() {
    let zone = Zone::of(3).await;
    let reporter = zone.leader().await;
    zone.is_off_the_list(reporter, 20).await;
    zone.want(&[reporter]).await;
    let vouched_for = |verdict: &Verdict| matches!(verdict, Verdict::Alive(alive) if alive.cloud == Link::Up && alive.kubelet == Health::Ok);
    zone.becomes(reporter, "its neighbours vouch for it", 20, vouched_for)
        .await;
    zone.want(&[]).await;
    zone.is_off_the_list(reporter, 30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_ready_once_it_is_in_a_roster_and_shows_numbers() {
    let zone = Zone::of(1).await;
    let ask = |path: &str| zone.machines[0].ask(path).unwrap();
    assert!(ask("/readyz").starts_with("HTTP/1.1 200"));
    let metrics = ask("/metrics");
    for name in [
        "evenkeel_agent_datagrams_received",
        "evenkeel_agent_zone_members 1",
        "process_resident_memory_bytes",
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
}

/// A roll-out that closes the agents' port must not go on.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_nobody_answers_any_more_is_not_ready() {
    let mut zone = Zone::of(3).await;
    until("whom the first has met is written down", async || {
        zone.machines[0]
            .memory()
            .is_some_and(|memory| memory.met().seen_alive.len() == 2)
    })
    .await;
    zone.machines.iter_mut().for_each(Machine::kill_agent);
    zone.machines[0].start_agent();
    let answers = async |zone: &Zone, what: &str, peers: &str| {
        until(what, async || {
            let answer = zone.machines[0].ask("/readyz?verbose").unwrap_or_default();
            answer.contains("[+]roster ok") && answer.contains(peers)
        })
        .await;
    };
    answers(
        &zone,
        "it says that nobody answers",
        "[-]peers failed: no other member",
    )
    .await;
    zone.machines[1].start_agent();
    answers(&zone, "it is ready", "[+]peers ok").await;
    zone.machines[1].kill_agent();
    until("it has lost the other one", async || {
        let metrics = zone.machines[0].ask("/metrics").unwrap_or_default();
        metrics.contains("\nevenkeel_agent_zone_members_within_reach 0")
    })
    .await;
    answers(&zone, "it stays ready", "[+]peers ok").await;
}
