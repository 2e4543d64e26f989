//! A process that is ended without a farewell, and the next one of its name.

use crate::rivals::{leads, until};
use evenkeel_election::lock::LeaseLock;
use evenkeel_election::terms::TermFile;
use evenkeel_election::{Config, Elector, State};
use evenkeel_testkit::{api_server, ends};
use kube::Client;
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Long enough that no test sees a lease expire.
const HOUR: Duration = Duration::from_secs(3_600);

fn elector(client: &Client, home: &Path) -> Elector {
    let config = Config {
        lease_duration: HOUR,
        renew_deadline: HOUR / 2,
        ..Config::new("web-0")
    };
    let lock = LeaseLock::new(client.clone(), "default", "web").unwrap();
    let terms = TermFile::open(home, "web-0").unwrap();
    Elector::new(lock, config).unwrap().with_term_file(&terms)
}

/// The transitions of the term that it gets to hold.
async fn transitions(elector: Elector) -> i32 {
    let mut election = elector.run(CancellationToken::new());
    until(&mut election, "leads", leads).await;
    let transitions = election.gate().token().unwrap().transitions;
    election.abort();
    // The file is let go with the task, as it is with a process.
    election.stopped().await;
    transitions
}

#[tokio::test]
async fn the_next_process_of_a_name_takes_the_lock_at_once_and_in_a_new_term() {
    let (api, home) = (api_server(), tempfile::tempdir().unwrap());
    for life in 0..3 {
        let got = transitions(elector(&api.client(), home.path())).await;
        assert_eq!(got, life);
    }
}

#[tokio::test]
async fn while_a_process_of_the_name_runs_or_on_another_machine_the_lock_is_left_alone() {
    let (api, home) = (api_server(), tempfile::tempdir().unwrap());
    let mut first = elector(&api.client(), home.path()).run(CancellationToken::new());
    until(&mut first, "leads", leads).await;
    let elsewhere = tempfile::tempdir().unwrap();
    for directory in [home.path(), elsewhere.path()] {
        let mut other = elector(&api.client(), directory).run(CancellationToken::new());
        let refused = |state: &State| matches!(state, State::Stopped { .. });
        // The first one renews every second: two of one name are told apart by that.
        until(&mut other, "ends as the second of its name", refused).await;
        ends("it ends", other.stopped()).await;
    }
    assert!(leads(&first.state()));
    first.abort();
}
