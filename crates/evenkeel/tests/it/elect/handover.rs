//! Leadership that is given up, and what a command gets while it lasts.

use super::runner::{Runner, ended, signal_to};
use super::world::{DILIGENT, STUBBORN, World};
use crate::support::parent_of;
use evenkeel_testkit::{SOON, eventually, until};
use k8s_openapi::api::coordination::v1::Lease;
use nix::sys::signal::Signal;
use std::fs;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_only_while_leading_and_is_handed_over_at_a_stop() {
    let world = World::new().await;
    let mut first = world.runner("first").diary(DILIGENT);
    let run = world.running("first", 0).await;
    let second = world.runner("second").diary(DILIGENT);
    let body = second.leader(|leader| leader["name"] == "first").await;
    assert_eq!(
        body, r#"{"name":"first","identity":"second","leading":false,"token":null,"valid_for_seconds":null}"#,
        "the holder's name comes first"
    );
    assert_eq!(world.runs(&["second"]).len(), 0, "a standby runs nothing");

    first.signal(Signal::SIGTERM);
    assert_eq!(first.exit_code().await, 0, "{}", first.output());
    assert!(!run.lives());
    world.running("second", 0).await;
    let runs = world.assert_no_overlap(&["first", "second"]);
    assert_eq!(
        runs[0].words,
        ["term"],
        "the command was told to end, and could say so"
    );
    let token = format!("{}/{}", runs[1].uid, runs[1].transitions);
    let body = second.leader(|leader| leader["leading"] == true).await;
    assert!(
        body.starts_with(r#"{"name":"second","identity":"second","leading":true,"#) && body.contains(&token),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_tells_the_command_in_which_term_it_runs() {
    let world = World::new().await;
    let file = world.path("environment");
    let script = format!("env | grep ^EVENKEEL_ > '{}'", file.display());
    let mut runner = world.runner("me").run(&["sh", "-c", &script]);
    assert_eq!(runner.exit_code().await, 0, "{}", runner.output());
    let lease = world.get::<Lease>("mailer").await;
    let uid = lease.metadata.uid.unwrap();
    let text = fs::read_to_string(file).unwrap();
    let inherited = |line: &&str| {
        let name = line.split('=').next().unwrap_or_default();
        std::env::var_os(name).is_some()
    };
    let mut lines: Vec<&str> = text.lines().filter(|line| !inherited(line)).collect();
    lines.sort_unstable();
    let expected = [
        format!("EVENKEEL_FENCING_TOKEN={uid}/0"),
        "EVENKEEL_IDENTITY=me".to_owned(),
        "EVENKEEL_LEASE=default/mailer".to_owned(),
        "EVENKEEL_LEASE_TRANSITIONS=0".to_owned(),
        format!("EVENKEEL_LEASE_UID={uid}"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(
        lease.spec.unwrap().holder_identity.as_deref(),
        Some(""),
        "given back"
    );
}

/// Runs a script to its end; the exit code.
async fn code_of(world: &World, script: &str) -> i32 {
    let mut runner = world.runner("me").run(&["sh", "-c", script]);
    let code = runner.exit_code().await;
    assert_eq!(world.holder().await, "", "given back after {script:?}");
    code
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_is_the_commands() {
    let world = World::new().await;
    assert_eq!(code_of(&world, "exit 7").await, 7);
    assert_eq!(code_of(&world, "kill -SEGV $$").await, 128 + 11);
    // It has no standard input: reading ends at once.
    assert_eq!(code_of(&world, "read line || exit 9").await, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_command() {
    let world = World::new().await;
    let traps = "for name in HUP QUIT USR1 USR2 WINCH; do trap \"stamp $name\" $name; done";
    let runner = world.runner("me").diary(traps);
    world.running("me", 0).await;
    let signals = [
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
    ];
    for (number, (signal, name)) in signals.into_iter().enumerate() {
        runner.signal(signal);
        until(&format!("{name} arrives"), async || {
            let words = &world.runs(&["me"])[0].words;
            words.len() == number + 1 && words[number] == name
        })
        .await;
    }
}

/// A terminal that goes away signals all three: runner, keeper and command.
#[tokio::test(flavor = "multi_thread")]
async fn nohup_survives_a_hang_up() {
    let world = World::new().await;
    let runner = world
        .runner("me")
        .under(&["nohup"])
        .diary("trap 'stamp asked' USR1");
    world.running("me", 0).await;
    let (keeper, me) = (runner.keeper(), runner.id());
    for id in [keeper, me] {
        signal_to(id, Signal::SIGHUP);
    }
    // Whoever had taken the other signal would end the command before this one reached it.
    for count in 1..=2 {
        runner.signal(Signal::SIGUSR1);
        until("the command answers", async || {
            world.runs(&["me"])[0].words.len() == count
        })
        .await;
    }
    assert_eq!(runner.keeper(), keeper);
}

/// A leader with a command that does not listen to TERM, and has said that it does not.
async fn stubborn(world: &World, flags: &[&str]) -> Runner {
    let runner = world.runner("me").with(flags).diary(STUBBORN);
    world.running("me", 0).await;
    runner
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ignores_a_stop_is_killed_after_the_grace_time() {
    let world = World::new().await;
    let mut runner = stubborn(&world, &["--grace=300ms"]).await;
    runner.signal(Signal::SIGTERM);
    assert_eq!(runner.exit_code().await, 137, "{}", runner.output());
    assert_eq!(world.holder().await, "", "given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_drains_it_leads() {
    let world = World::new().await;
    let mut runner = stubborn(&world, &["--grace=1h"]).await;
    runner.signal(Signal::SIGTERM);
    // Longer than any lease that is not renewed: seen by the renewals.
    let renewed = async || world.get::<Lease>("mailer").await.metadata.resource_version;
    let mut last = renewed().await;
    for _ in 0..12 {
        let before = last.clone();
        last = eventually("a renewal", SOON, || async {
            Some(renewed().await).filter(|now| *now != before)
        })
        .await;
    }
    assert!(runner.runs() && world.runs(&["me"])[0].lives());
    assert_eq!(world.holder().await, "me");

    // A second signal does not wait.
    runner.signal(Signal::SIGINT);
    assert_eq!(runner.exit_code().await, 130, "{}", runner.output());
    assert!(!world.runs(&["me"])[0].lives());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_the_command_started_outlives_it() {
    let world = World::new().await;
    let file = world.path("ids");
    // One in the command's process group, one that has left it, and one that has left it twice.
    let script = format!(
        "sleep 1000 & echo $! >> '{0}'
         setsid sh -c 'echo $$ >> \"{0}\"; exec sleep 1000' &
         setsid sh -c 'setsid sh -c \"echo \\$\\$ >> {0}; trap \\\"\\\" TERM; while :; do sleep 1; done\" & sleep 0.1' &
         while [ $(wc -l < '{0}') -lt 3 ]; do sleep 0.02; done; exit 3",
        file.display()
    );
    let mut runner = world
        .runner("me")
        .with(&["--grace=300ms"])
        .run(&["sh", "-c", &script]);
    assert_eq!(runner.exit_code().await, 3, "{}", runner.output());
    let text = fs::read_to_string(file).unwrap();
    let ids: Vec<i32> = text.lines().map(|id| id.trim().parse().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    let left: Vec<&i32> = ids.iter().filter(|id| parent_of(**id).is_some()).collect();
    assert!(
        left.is_empty(),
        "when the runner has ended, so have all: {left:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_that_is_killed_takes_the_command_with_it() {
    let world = World::new().await;
    let file = world.path("id");
    // One process that has left the command's group, and that nothing ties to the keeper.
    let escape = format!(
        "{STUBBORN}; setsid sh -c 'echo $$ > \"{}\"; exec sleep 1000' &",
        file.display()
    );
    let mut runner = world.runner("me").diary(&escape);
    let run = world.running("me", 0).await;
    let escaped: i32 = eventually("a process escapes", SOON, || async {
        fs::read_to_string(&file).ok()?.trim().parse().ok()
    })
    .await;
    signal_to(runner.keeper(), Signal::SIGKILL);
    assert_eq!(runner.exit_code().await, 1, "{}", runner.output());
    assert!(
        !run.lives() && parent_of(escaped).is_none(),
        "{}",
        runner.output()
    );
    assert_eq!(world.holder().await, "", "given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_are_served() {
    let world = World::new().await;
    let runner = world.runner("me").diary(DILIGENT);
    world.running("me", 0).await;
    let (status, body) = runner.get("/healthz?verbose").await;
    assert!(
        status.contains("200") && body.contains("[+]leaderElection ok"),
        "{status}\n{body}"
    );
    let (_, metrics) = runner.get("/metrics").await;
    let wanted = r#"leader_election_master_status{name="default/mailer"} 1"#;
    assert!(
        metrics.contains(wanted) || metrics.contains(r#"leader_election_master_status{name="mailer"} 1"#),
        "{metrics}"
    );
    assert!(metrics.contains(r#"component="elect""#), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_can_be_named_by_flags() {
    let world = World::new().await;
    let [authority, certificate, key] = world.credentials();
    let server = world.url();
    let (code, text) = to_its_end(&[
        "--lease=default/mailer",
        "--server",
        &server,
        "--certificate-authority",
        &authority,
        "--client-certificate",
        &certificate,
        "--client-key",
        &key,
        "--",
        "sh",
        "-c",
        "exit 5",
    ])
    .await;
    assert_eq!(code, 5, "{text}");
    assert_eq!(world.holder().await, "", "given back");
}

/// Runs `evenkeel elect ARGS` to its end, beside the API server.
async fn to_its_end(args: &[&str]) -> (i32, String) {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let ran = tokio::task::spawn_blocking(move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        ended(&args)
    });
    ran.await.expect("no panic")
}
