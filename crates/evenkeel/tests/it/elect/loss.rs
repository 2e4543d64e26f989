//! Leadership that is lost: no command outlives its term.

use super::runner::{fill, signal_to};
use super::world::{DILIGENT, STUBBORN, World};
use crate::support::{children_of, parent_of};
use evenkeel_testkit::{SOON, eventually, skipped, until};
use k8s_openapi::api::coordination::v1::Lease;
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use std::collections::BTreeSet;

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_killed_leaves_no_command_behind() {
    let world = World::new().await;
    let mut first = world.runner("first").diary(STUBBORN);
    let run = world.running("first", 0).await;
    let keeper = first.keeper();
    let _second = world.runner("second").diary(DILIGENT);
    first.signal(Signal::SIGKILL);
    first.exit_code().await;
    run.ended().await;
    world.running("second", 0).await;
    world.assert_no_overlap(&["first", "second"]);
    until("the keeper ends too", async || parent_of(keeper).is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_stopped_leaves_its_command_to_the_keeper() {
    let world = World::new().await;
    let mut first = world.runner("first").diary(STUBBORN);
    let run = world.running("first", 0).await;
    let _second = world.runner("second").diary(DILIGENT);
    first.signal(Signal::SIGSTOP);
    run.ended().await;
    world.running("second", 0).await;
    world.assert_no_overlap(&["first", "second"]);
    assert!(first.runs(), "it stands still");
    first.signal(Signal::SIGCONT);
    assert_eq!(first.exit_code().await, 75, "{}", first.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_keeps_no_command_alive() {
    let world = World::new().await;
    for (signal, name, other) in [
        (Signal::SIGKILL, "killed", "after-killed"),
        (Signal::SIGSTOP, "stopped", "after-stopped"),
    ] {
        let (_unread, mut log) = std::io::pipe().expect("a pipe");
        let copy = log.try_clone().expect("the handle can be copied");
        let first = world.runner(name).telling(copy).diary(STUBBORN);
        let run = world.running(name, 0).await;
        fill(&mut log);
        let mut second = world.runner(other).diary(DILIGENT);
        first.signal(signal);
        world.running(other, 0).await;
        run.ended().await;
        world.assert_no_overlap(&[name, other]);
        second.signal(Signal::SIGTERM);
        assert_eq!(second.exit_code().await, 0, "{}", second.output());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_ends_its_command_before_another_leads() {
    let world = World::new().await;
    let link = world.link().await;
    let mut first = world.runner("first").through(&link).diary(STUBBORN);
    world.running("first", 0).await;
    let _second = world.runner("second").diary(DILIGENT);
    link.cut();
    assert_eq!(first.exit_code().await, 75, "{}", first.output());
    world.running("second", 0).await;
    world.assert_no_overlap(&["first", "second"]);
}

/// Between a renewal and the end of what the one before it proved there are 0.6 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_late_in_its_time_reaches_the_command() {
    let world = World::new().await;
    let mut first = world.runner("first").retrying("2400ms").diary(DILIGENT);
    world.running("first", 0).await;
    let mut renewals = BTreeSet::new();
    until("the lease was renewed six times", async || {
        let lease = world.get::<Lease>("mailer").await;
        renewals.extend(lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0));
        renewals.len() > 6 || !first.runs()
    })
    .await;
    assert!(first.runs(), "{}", first.output());
    assert_eq!(world.runs(&["first"]).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_that_stands_still_is_no_excuse() {
    let world = World::new().await;
    let link = world.link().await;
    let first = world
        .runner("first")
        .through(&link)
        .with(&["--on-lost=stop"])
        .diary(STUBBORN);
    let run = world.running("first", 0).await;
    let _second = world.runner("second").diary(DILIGENT);
    signal_to(first.keeper(), Signal::SIGSTOP);
    link.cut();
    run.ended().await;
    world.running("second", 0).await;
    world.assert_no_overlap(&["first", "second"]);
    first.says("does not end the command in time").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_was_told_to_campaigns_again() {
    let world = World::new().await;
    let link = world.link().await;
    let mut second = None;
    let mut runs = 0;
    for on_lost in ["stop", "kill"] {
        let name = format!("first-{on_lost}");
        let mut first = world
            .runner(&name)
            .through(&link)
            .with(&["--on-lost", on_lost])
            .diary(DILIGENT);
        let run = world.running(&name, 0).await;
        let other = format!("second-{on_lost}");
        let standby = second.insert(world.runner(&other).diary(DILIGENT));
        link.cut();
        run.ended().await;
        world.running(&other, 0).await;
        link.heal();
        first.leader(|leader| leader["name"] == other.as_str()).await;
        standby.signal(Signal::SIGTERM);
        assert_eq!(standby.exit_code().await, 0, "{}", standby.output());
        world.running(&name, 1).await;
        let all = world.assert_no_overlap(&[&name, &other]);
        assert_eq!(all.len(), 3, "{all:?}");
        let told: &[&str] = if on_lost == "stop" { &["term"] } else { &[] };
        assert_eq!(all[0].words, told, "--on-lost {on_lost}");
        first.signal(Signal::SIGTERM);
        assert_eq!(first.exit_code().await, 0, "{}", first.output());
        runs += all.len();
    }
    assert_eq!(runs, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_deleted_ends_the_term() {
    let world = World::new().await;
    let mut runner = world.runner("me").diary(DILIGENT);
    let run = world.running("me", 0).await;
    world.delete::<Lease>("mailer").await;
    assert_eq!(runner.exit_code().await, 75, "{}", runner.output());
    assert!(!run.lives());
    assert!(
        runner.output().contains("the lease was deleted"),
        "{}",
        runner.output()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_candidate_of_the_same_name_is_refused() {
    let world = World::new().await;
    let mut first = world.runner("twin").diary(DILIGENT);
    let run = world.running("twin", 0).await;
    let mut second = world
        .runner("twin")
        .with(&["--on-lost=stop"])
        .run(&["sleep", "1000"]);
    assert_eq!(second.exit_code().await, 78, "{}", second.output());
    assert!(second.output().contains("same identity"), "{}", second.output());
    assert!(
        first.runs() && run.lives(),
        "the first one goes on: {}",
        first.output()
    );
}

/// The runner is root without the right to signal other users, and its command becomes another user's.
#[tokio::test(flavor = "multi_thread")]
async fn beside_a_command_that_cannot_be_killed_no_other_is_started() {
    if !Uid::effective().is_root() {
        return skipped(
            "beside_a_command_that_cannot_be_killed_no_other_is_started",
            "only root can become other users",
        );
    }
    let world = World::new().await;
    let link = world.link().await;
    let first = world.runner("first").through(&link);
    let first = first.under(&["setpriv", "--bounding-set=-kill"]);
    let command = ["setpriv", "--reuid=65534", "--clear-groups", "sleep", "600"];
    let mut first = first.with(&["--on-lost=stop"]).run(&command);
    first.says("the command runs").await;
    let keeper = u32::try_from(first.keeper()).expect("process IDs are positive");
    let sleep = eventually("the command is another user's", SOON, || async {
        children_of(keeper, &["sleep"]).first().copied()
    });
    let sleep = sleep.await;
    link.cut();
    first.says("the keeper does not end the command in time").await;
    link.heal();
    let code = first.exit_code().await;
    let lives = parent_of(sleep).is_some();
    signal_to(sleep, Signal::SIGKILL);
    assert_eq!(code, 1, "{}", first.output());
    assert!(lives, "somebody could end it");
    let named = format!("processes of the command do not die ids=[{sleep}]");
    assert!(first.output().contains(&named), "{}", first.output());
    assert_eq!(world.holder().await, "first", "it is not given back");
}
