//! The right verdict in time, whatever is lost between machines. By hand: `cargo test -p evenkeel --test it
//! netns::shore::verdicts -- --ignored --nocapture --test-threads 1`.

use super::{CLOUD, Ip, KUBELET, LAN, Shore, clock};
use evenkeel_testkit::{eventually, netns, skipped};
use rstest::rstest;
use std::time::Duration;

/// From a fault to the announced death: 6 s in 99 of 100 cases, 8 s where packets are lost, and what a busy
/// machine adds. The measured times are printed.
const DEATH: Duration = Duration::from_secs(10);
/// From a cut cloud link to Disconnected: 25 s of silence of the Lease.
const CUT: Duration = Duration::from_secs(50);

/// So long nothing may happen: a verdict comes within 4 s, and its mark in the store soon after.
const QUIET: Duration = Duration::from_secs(15);

#[rstest]
#[case::ipv4("power_off_is_a_death::ipv4", Ip::V4)]
#[case::ipv6("power_off_is_a_death::ipv6", Ip::V6)]
#[ignore = "needs a machine that does nothing else; .ci/real plays it"]
fn power_off_is_a_death(#[case] test: &str, #[case] ip: Ip) {
    if let Some(why) = netns::missing() {
        return skipped(test, &why);
    }
    let mut shore = Shore::start(3, ip);
    // Several periods: who was not met is not voted dead.
    shore.quiet_for(Duration::from_secs(8));
    shore.power_off(2);
    shore.until_state(2, "Dead", DEATH);
    shore.stays_for(QUIET, &[(2, "Dead")]);
}

#[test]
#[ignore = "needs a machine that does nothing else; .ci/real plays it"]
fn a_cut_cloud_link_is_no_death() {
    if let Some(why) = netns::missing() {
        return skipped("a_cut_cloud_link_is_no_death", &why);
    }
    let shore = Shore::start(3, Ip::V4);
    shore.on(3).cut(&[CLOUD, KUBELET]);
    shore.until_state(3, "Disconnected", CUT);
    shore.stays_for(Duration::from_secs(30), &[(3, "Disconnected")]);
    shore.heal(3);
    shore.until_calm();
}

/// A broken way between two neighbours is bridged by the others; of a machine that hears nobody, or that
/// nobody hears, its renewals tell that it lives.
#[test]
#[ignore = "needs a machine that does nothing else; .ci/real plays it"]
fn broken_ways_between_neighbours_convict_nobody() {
    if let Some(why) = netns::missing() {
        return skipped("broken_ways_between_neighbours_convict_nobody", &why);
    }
    let shore = Shore::start(4, Ip::V4);
    for (from, to) in [(&[2][..], &[][..]), (&[], &[2]), (&[2], &[2])] {
        shore.part(1, from, to);
        shore.quiet_for(QUIET);
        shore.heal(1);
    }
    // Nobody hears it: its neighbours vote it dead, and it renews.
    shore.part(3, &[], &[1, 2, 4]);
    shore.until_state(3, "Isolated", DEATH);
    shore.stays_for(QUIET, &[(3, "Isolated")]);
    shore.heal(3);
    shore.until_calm();
    // It hears nobody, and so accuses nobody.
    shore.part(4, &[1, 2, 3], &[]);
    shore.watch_for(QUIET, |node, state| match state {
        // Its own datagrams arrive, and it answers nobody: it may be found cut off, and not dead.
        Some("Isolated") => node == "shore-4",
        other => other.is_none(),
    });
    shore.heal(4);
    shore.until_calm();
    // Half of an even cell decides nothing.
    for number in [1, 2] {
        shore.part(number, &[3, 4], &[3, 4]);
    }
    shore.quiet_for(2 * QUIET);
    for number in [1, 2] {
        shore.heal(number);
    }
    shore.quiet_for(QUIET);
}

#[test]
#[ignore = "needs a machine that does nothing else; .ci/real plays it"]
fn with_30_percent_of_packets_lost_the_dead_are_found_and_nobody_else() {
    if let Some(why) = netns::missing() {
        return skipped(
            "with_30_percent_of_packets_lost_the_dead_are_found_and_nobody_else",
            &why,
        );
    }
    let mut shore = Shore::start(5, Ip::V4);
    for machine in &shore.machines {
        // On each way, so that of what is sent and answered half is lost.
        let lost = format!("iifname {LAN} numgen random mod 100 < 30");
        machine.namespace.drop_matching(&[&lost], &[]);
    }
    shore.quiet_for(2 * QUIET);
    for machine in &shore.machines {
        assert!(machine.namespace.dropped() > 0, "the fault was no fault");
    }
    shore.power_off(5);
    shore.until_state(5, "Dead", DEATH);
    shore.stays_for(QUIET, &[(5, "Dead")]);
}

/// Whoever holds the cell's Lease is among those that are killed.
#[test]
#[ignore = "needs a machine that does nothing else; .ci/real plays it"]
fn agents_that_stop_or_end_convict_nobody_and_a_death_is_found_without_them() {
    if let Some(why) = netns::missing() {
        return skipped(
            "agents_that_stop_or_end_convict_nobody_and_a_death_is_found_without_them",
            &why,
        );
    }
    let mut shore = Shore::start(5, Ip::V4);
    let agent = |shore: &Shore, number: u8| shore.on(number).agent.as_ref().expect("it runs").pause();
    agent(&shore, 1);
    shore.quiet_for(QUIET);
    shore.on(1).agent.as_ref().expect("it runs").resume();
    shore.quiet_for(QUIET);
    let reporter = shore.inside(async |shore| {
        let client = shore.client().await;
        shore.holder(&client, |_| true).await
    });
    // Another agent ends, and begins a new life.
    let other = if reporter == 4 { 5 } else { 4 };
    shore.machine_mut(other).agent = None;
    shore.quiet_for(QUIET);
    shore.begin_agent(other);
    shore.quiet_for(QUIET);
    let victim = if reporter == 2 { 3 } else { 2 };
    shore.machine_mut(reporter).agent = None;
    shore.power_off(victim);
    shore.until_state(victim, "Dead", DEATH);
    shore.stays_for(2 * QUIET, &[(victim, "Dead")]);
}

/// Somebody sets clocks by an hour: ahead on the machine that reports, back on another one.
#[test]
#[ignore = "needs a machine that does nothing else; .ci/real plays it"]
fn clocks_that_are_set_by_an_hour_convict_nobody_and_hide_no_death() {
    const TEST: &str = "clocks_that_are_set_by_an_hour_convict_nobody_and_hide_no_death";
    if let Some(why) = netns::missing() {
        return skipped(TEST, &why);
    }
    let library = match clock::library() {
        Ok(library) => library,
        Err(why) => return skipped(TEST, &why),
    };
    let mut shore = Shore::start_by(Some(library), 4, Ip::V4);
    let reporter = shore.inside(async |shore| {
        let client = shore.client().await;
        shore.holder(&client, |_| true).await
    });
    let others: Vec<u8> = (1..=4).filter(|number| *number != reporter).collect();
    shore.set_clock(reporter, 3_600);
    shore.set_clock(others[0], -3_600);
    // Times in the cell's Lease are of its holder's clock: they show that it is set.
    shore.inside(async |shore| {
        let client = shore.client().await;
        let ahead = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(50);
        eventually(
            "the reporter's clock is an hour ahead",
            super::PATIENCE,
            || async { (shore.renewed(&client).await? > ahead).then_some(()) },
        )
        .await;
    });
    shore.quiet_for(2 * QUIET);
    shore.power_off(others[1]);
    shore.until_state(others[1], "Dead", DEATH);
    shore.stays_for(QUIET, &[(others[1], "Dead")]);
    // And back to the right time, in the middle of a death.
    shore.set_clock(reporter, 0);
    shore.set_clock(others[0], 0);
    shore.stays_for(2 * QUIET, &[(others[1], "Dead")]);
}
