//! What the API server has to do for agents of a calm zone, and of one that was without it.

use crate::machine::{Exchange, Machine};
use crate::zone::Zone;
use evenkeel_agent::args;
use evenkeel_api::zone::Report;
use evenkeel_testkit::until;
use std::time::Duration;

/// What each agent asked since the last call; nothing of it was forbidden, but for the one write by which an
/// agent finds out at its start whether the policies are in force.
fn asked(zone: &Zone) -> Vec<Vec<String>> {
    let words = |exchange: Exchange| {
        let is_trial = exchange.request.contains("dryRun=All");
        assert_eq!(exchange.code == Some(403), is_trial, "{exchange:?}");
        (!is_trial).then_some(exchange.request)
    };
    let machines = zone.machines.iter();
    machines
        .map(|machine| machine.requests.take().into_iter().filter_map(words).collect())
        .collect()
}

fn count(requests: &[String], words: &str) -> usize {
    requests.iter().filter(|request| request.contains(words)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_calm_zone_asks_the_api_server_for_little_and_for_nothing_that_it_may_not_have() {
    let zone = Zone::of_candidates(3, args::election).await;
    for machine in 0..3 {
        zone.is_off_the_list(machine, 20).await;
    }
    until("three reporters watch the Lease", async || {
        let watches = |machine: &Machine| machine.requests.has(&["evenkeel-zone-shore", "watch=true"]);
        zone.machines.iter().all(watches)
    })
    .await;
    for begun in asked(&zone) {
        assert!(count(&begun, "/zonehealth?") <= 2, "{begun:#?}");
        assert!(count(&begun, "/zonechallenges?") <= 2, "{begun:#?}");
        assert_eq!(
            count(&begun, "GET /apis/evenkeel.io/v1alpha1/zonehealth/"),
            0,
            "{begun:#?}"
        );
    }
    let calm = Duration::from_secs(40);
    tokio::time::sleep(calm).await;
    let asked = asked(&zone).concat();
    // The Lease is renewed four times. Three agents may ask for 0.1 per second each, which is 12.
    assert!(count(&asked, "evenkeel-zone-shore") >= 3, "{asked:#?}");
    assert!(asked.len() <= 8, "{asked:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_without_an_api_server_ask_for_it_less_and_less_and_are_back_by_themselves() {
    let zone = Zone::of(3).await;
    for machine in &zone.machines {
        machine.refuse_cloud();
    }
    asked(&zone);
    zone.reissue_roster().await;
    zone.want(&[0]).await;
    let outage = Duration::from_secs(15);
    tokio::time::sleep(outage).await;
    for asked in asked(&zone) {
        let (first, second) = (count(&asked, "/zonehealth?"), count(&asked, "/zonechallenges?"));
        // After 0.75, 1.5, and then every 2.5 s or more.
        assert!((1..=7).contains(&first) && second <= 1, "{asked:#?}");
    }
    for machine in &zone.machines {
        machine.cut_cloud(false);
    }
    let name = &zone.machines[0].name;
    until("it is reported as wanted, under the new roster", async || {
        let reports = zone.reports().await;
        let lists = |report: &Report| report.nodes.iter().any(|node| node.name == *name);
        reports
            .values()
            .any(|report| report.roster_version == 2 && lists(report))
    })
    .await;
}
