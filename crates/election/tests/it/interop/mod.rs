//! Our candidates and client-go's on one Lease, each a process, through crashes, pauses, releases and
//! outages.
//!
//! What must hold is judged by the recorded history alone. client-go has no gate: a candidate of its may
//! believe that it leads for up to the retry period beyond the lease, and after a pause. For both kinds it is
//! checked that the Lease is taken in time and counted alike; for ours, that they acted only while it was
//! theirs.

mod history;
mod history_tests;
#[path = "../../../examples/candidate/program/mod.rs"]
mod program;
mod recorder;
mod scenario;

use evenkeel_testkit::candidate::{CandidateArgs, Timing};
use evenkeel_testkit::interop::build_clientgo;
use evenkeel_testkit::skipped;
use history::{Violation, terms};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use scenario::Peer::{ClientGo, Ours};
use scenario::Step::{
    Cut, Held, Kill, Leads, Loses, Mend, Pause, Released, Resume, Settle, Start, Stops, Terminate,
};
use scenario::{Peer, Setting, Step, World};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tokio::process::Command;

const US: Peer = Ours(1);
const THEM: Peer = ClientGo(1);

/// Client-go's retry period is 1 s at least: it compares records by whole seconds.
const SETTING: Setting = Setting {
    timing: Timing::seconds(3, 2, 1),
    clientgo_releases: false,
};

/// The flags of [`candidate_process`], one a line.
const FLAGS: &str = "EVENKEEL_TEST_CANDIDATE";

/// A process that is our candidate: this test binary, which cannot be older than what it tests.
pub(crate) fn our_candidate(args: &CandidateArgs) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--ignored",
            "--exact",
            "interop::candidate_process",
            "--quiet",
            "--nocapture",
        ])
        .env(FLAGS, args.words().join("\n"));
    command
}

#[test]
#[ignore = "is started by the tests of this module as a process of its own"]
fn candidate_process() {
    if let Ok(flags) = std::env::var(FLAGS) {
        let program = std::iter::once("candidate").chain(flags.lines());
        program::run(program.map(str::to_owned)).unwrap();
    }
}

/// Client-go's candidate, built once; `None` where Go is missing.
fn clientgo(test: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let go = evenkeel_testkit::go()?;
        Some(
            build_clientgo(&go, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap_or_else(|why| panic!("{why}")),
        )
    });
    if built.is_none() {
        skipped(test, "no go on PATH");
    }
    built.clone()
}

/// Plays the steps and returns who held the Lease, with the transitions.
async fn play(test: &str, setting: Setting, steps: &[Step]) -> Option<Vec<(String, i64)>> {
    let mut world = World::new(clientgo(test)?, setting).await;
    world.play(steps).await;
    let (history, violations) = world.judged().await;
    let none: [Violation; 0] = [];
    assert_eq!(violations, none, "{history:#?}\n{}", listed(&violations));
    Some(terms(&history))
}

/// In words, after the history, so that the end of a failure's text says what was wrong.
fn listed(violations: &[Violation]) -> String {
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    lines.join("\n")
}

/// Asserts that each took over from the other, unless the test was skipped. More terms than planned are none
/// of its business: on a starved machine a leader can lose the Lease by itself.
fn assert_both_ways(terms: Option<Vec<(String, i64)>>) {
    if let Some(terms) = terms {
        for (from, to) in [(US, THEM), (THEM, US)] {
            let taken = terms
                .windows(2)
                .any(|pair| pair[0].0 == from.to_string() && pair[1].0 == to.to_string());
            assert!(taken, "{to} never took over from {from}: {terms:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_takes_over_from_the_other_after_a_crash() {
    let steps = [
        Start(US),
        Leads(US),
        Start(THEM),
        Settle,
        Kill(US),
        Leads(THEM),
        Start(US),
        Settle,
        Kill(THEM),
        Leads(US),
    ];
    let terms = play("each_takes_over_from_the_other_after_a_crash", SETTING, &steps).await;
    assert_both_ways(terms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_takes_over_from_the_other_while_it_is_paused() {
    let steps = [
        Start(US),
        Leads(US),
        Start(THEM),
        Settle,
        Pause(US),
        Leads(THEM),
        Resume(US),
        Settle,
        Pause(THEM),
        Leads(US),
        Resume(THEM),
        Settle,
    ];
    let terms = play(
        "each_takes_over_from_the_other_while_it_is_paused",
        SETTING,
        &steps,
    )
    .await;
    assert_both_ways(terms);
}

/// The lease is so long that nobody could take it over within the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_takes_what_the_other_releases() {
    let patient = Setting {
        timing: Timing::seconds(3_600, 40, 1),
        clientgo_releases: true,
    };
    let steps = [
        Start(US),
        Leads(US),
        Start(THEM),
        Settle,
        Terminate(US),
        Leads(THEM),
        Start(US),
        Settle,
        Terminate(THEM),
        Leads(US),
        Terminate(US),
    ];
    let terms = play("each_takes_what_the_other_releases", patient, &steps).await;
    assert_both_ways(terms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_takes_over_when_the_other_is_cut_off() {
    let steps = [
        Start(US),
        Leads(US),
        Start(THEM),
        Settle,
        Cut(US),
        Leads(THEM),
        Stops(US),
        Mend(US),
        Settle,
        Cut(THEM),
        Leads(US),
        Stops(THEM),
        Mend(THEM),
        Settle,
    ];
    let terms = play("each_takes_over_when_the_other_is_cut_off", SETTING, &steps).await;
    assert_both_ways(terms);
}

/// A defect of client-go before 1.38: a leader that wakes up with a request under way and its deadline behind
/// it gives up without another look, and releases what it then finds, which is the record of the new leader.
/// Nobody can prevent that; the new leader has to notice, and to stop or to take the Lease anew. Where this
/// test fails, client-go has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clientgo_releases_a_lease_that_it_has_lost() {
    let Some(clientgo) = clientgo("clientgo_releases_a_lease_that_it_has_lost") else {
        return;
    };
    // So much longer than the deadline that this is over when the Lease is taken.
    let setting = Setting {
        timing: Timing::seconds(8, 4, 1),
        clientgo_releases: true,
    };
    let mut world = World::new(clientgo, setting).await;
    let steps = [
        Start(THEM),
        Leads(THEM),
        Start(US),
        Settle,
        Cut(THEM),
        Held(THEM),
        Pause(THEM),
        Leads(US),
        Resume(THEM),
        Mend(THEM),
        Released,
        Settle,
    ];
    world.play(&steps).await;
    let (history, violations) = world.judged().await;
    let other = violations
        .iter()
        .find(|violation| !matches!(violation, Violation::Outlived { holder, .. } if holder.is_empty()));
    assert_eq!(other, None, "{history:#?}");
    // Ours was killed: no revision without holder is its own.
    let released = history.windows(2).find(|pair| pair[1].holder.is_empty());
    assert_eq!(
        released.map(|pair| pair[0].holder.clone()),
        Some(US.to_string()),
        "{history:#?}"
    );
}

/// Who leads afterwards is open: the one before may find its own record, the other an expired one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_api_ends_leadership_and_is_survived() {
    let steps = [
        Start(US),
        Leads(US),
        Start(THEM),
        Settle,
        Cut(US),
        Cut(THEM),
        Stops(US),
        Mend(US),
        Mend(THEM),
        Settle,
        Kill(US),
        Leads(THEM),
        Start(US),
        Settle,
        Cut(US),
        Cut(THEM),
        Stops(THEM),
        Mend(US),
        Mend(THEM),
        Settle,
    ];
    play(
        "an_outage_of_the_api_ends_leadership_and_is_survived",
        SETTING,
        &steps,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_befalls_two_of_each_there_is_one_leader() {
    const ROUNDS: usize = 5;
    let Some(clientgo) = clientgo("whatever_befalls_two_of_each_there_is_one_leader") else {
        return;
    };
    let seed = match std::env::var("EVENKEEL_TEST_SEED") {
        Ok(seed) => seed.parse().expect("EVENKEEL_TEST_SEED is a number"),
        Err(_) => rand::random::<u64>(),
    };
    eprintln!("EVENKEEL_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let peers = [Ours(1), ClientGo(1), Ours(2), ClientGo(2)];
    let mut world = World::new(clientgo, SETTING).await;
    world.play(&peers.map(Start)).await;
    for _ in 0..ROUNDS {
        let leader = world.settled().await;
        let others: Vec<Peer> = peers.into_iter().filter(|peer| *peer != leader).collect();
        let other = *others.choose(&mut random).unwrap();
        let faults: [&[Step]; 6] = [
            &[Kill(leader), Settle, Start(leader)],
            &[Pause(leader), Loses(leader), Resume(leader)],
            &[Terminate(leader), Settle, Start(leader)],
            &[Cut(leader), Loses(leader), Mend(leader)],
            &[Kill(other), Kill(leader), Settle, Start(other), Start(leader)],
            &[Pause(other), Kill(leader), Start(leader), Resume(other)],
        ];
        world.play(faults.choose(&mut random).unwrap()).await;
    }
    world.play(&[Settle]).await;
    let (history, violations) = world.judged().await;
    let none: [Violation; 0] = [];
    assert_eq!(
        violations,
        none,
        "{history:#?}\nseed {seed}: {}",
        listed(&violations)
    );
    assert!(terms(&history).len() > 1, "nobody took over: {history:#?}");
}
