//! A leader and a standby of one kind, through steady days, a crash, and planned hand-overs.

use evenkeel_testkit::ServedApi;
use evenkeel_testkit::candidate::Told::{Leader, Requests, Started};
use evenkeel_testkit::candidate::{Candidate, CandidateArgs, Line, Timing, boot_time};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;

/// First word by which this binary plays our candidate.
pub(crate) const PLAY_CANDIDATE: &str = "candidate";

/// More than the longest take-over.
const DEADLINE: Duration = Duration::from_secs(60);

/// For how long requests are counted.
const STEADY: Duration = Duration::from_secs(20);

/// Planned hand-overs, one after the other, of so many elections each: few, as it is not the burst of
/// requests that shall be measured.
pub(crate) const HANDOVERS: usize = 20;
pub(crate) const HANDED_OVER: usize = 10;

/// Whose elector.
pub(crate) enum Kind {
    Evenkeel,
    /// The program.
    ClientGo(PathBuf),
}

impl Kind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Evenkeel => "evenkeel",
            Self::ClientGo(_) => "client-go",
        }
    }
}

/// What was measured, one entry an election and event.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// From SIGKILL of the leader to the start of the standby.
    pub(crate) crash: Vec<Duration>,
    /// From SIGTERM of a leader that releases to the start of the standby.
    pub(crate) handover: Vec<Duration>,
    /// Requests per minute and election of a leader.
    pub(crate) leader_requests: f64,
    /// The same of a standby.
    pub(crate) standby_requests: f64,
}

pub(crate) async fn race(api: &ServedApi, kind: &Kind, timing: Timing, elections: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let track = Track {
        api,
        kind,
        timing,
        elections,
        lease: "crash",
    };
    track.steady_and_crash(&mut outcome).await;
    let track = Track {
        elections: HANDED_OVER,
        lease: "handover",
        ..track
    };
    track.hand_over(&mut outcome).await;
    outcome
}

/// What all processes of a race have in common.
struct Track<'a> {
    api: &'a ServedApi,
    kind: &'a Kind,
    timing: Timing,
    elections: usize,
    /// Part of the Leases' names.
    lease: &'static str,
}

impl Track<'_> {
    /// Counts requests, then kills the leader.
    async fn steady_and_crash(&self, outcome: &mut Outcome) {
        let mut leader = self.start(0);
        self.lead(&leader).await;
        let standby = self.start(1);
        self.follow(&standby, &leader).await;

        tokio::join!(self.count_requests(&leader), self.count_requests(&standby));
        tokio::time::sleep(STEADY).await;
        tokio::join!(self.count_requests(&leader), self.count_requests(&standby));
        outcome.leader_requests = per_minute(&leader.lines());
        outcome.standby_requests = per_minute(&standby.lines());

        let crash = boot_time();
        leader.kill().await;
        outcome.crash = self.take_overs(&standby, crash).await;
    }

    /// Has a leader release, again and again.
    async fn hand_over(&self, outcome: &mut Outcome) {
        let mut leader = self.start(0);
        self.lead(&leader).await;
        for number in 1..=HANDOVERS {
            let standby = self.start(number);
            self.follow(&standby, &leader).await;
            let told = boot_time();
            leader.terminate();
            outcome.handover.extend(self.take_overs(&standby, told).await);
            leader.ended(DEADLINE).await;
            leader = standby;
        }
    }

    fn start(&self, number: usize) -> Candidate {
        let name = format!("{}-{}", self.kind.name(), self.lease);
        let identity = format!("{name}-{number}");
        let args = CandidateArgs {
            kubeconfig: self.api.direct(&identity),
            namespace: "default".to_owned(),
            name,
            identity,
            timing: self.timing,
            release: true,
            count: self.elections,
        };
        let mut command = match self.kind {
            Kind::Evenkeel => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.arg(PLAY_CANDIDATE);
                command
            }
            Kind::ClientGo(program) => Command::new(program),
        };
        command.args(args.words());
        Candidate::start(command, &args.identity, &self.api.home.path().join("log"))
    }

    /// Waits until it leads in all elections, and returns when it began to.
    async fn lead(&self, candidate: &Candidate) -> Vec<Duration> {
        candidate
            .until("leads in all elections", DEADLINE, |lines| {
                let started = first_of_each(lines, |line| line.event == Started);
                (started.len() == self.elections).then_some(started)
            })
            .await
    }

    /// Waits until it sees `leader` in all elections.
    async fn follow(&self, candidate: &Candidate, leader: &Candidate) {
        candidate
            .until("follows in all elections", DEADLINE, |lines| {
                let seen = |line: &Line| line.event == Leader && line.leader == leader.identity;
                (first_of_each(lines, seen).len() == self.elections).then_some(())
            })
            .await;
    }

    /// How long after `since` it led in each election.
    async fn take_overs(&self, candidate: &Candidate, since: Duration) -> Vec<Duration> {
        let started = self.lead(candidate).await;
        started.iter().map(|at| at.saturating_sub(since)).collect()
    }

    /// Has it tell its requests, and waits for that.
    async fn count_requests(&self, candidate: &Candidate) {
        let counts = |lines: &[Line]| lines.iter().filter(|line| line.event == Requests).count();
        let wanted = counts(&candidate.lines()) + self.elections;
        candidate.ask_for_requests();
        candidate
            .until("tells its requests", DEADLINE, |lines| {
                (counts(lines) >= wanted).then_some(())
            })
            .await;
    }
}

/// The time of the first such line of each election.
fn first_of_each(lines: &[Line], such: impl Fn(&Line) -> bool) -> Vec<Duration> {
    let mut first: BTreeMap<&str, Duration> = BTreeMap::new();
    for line in lines.iter().filter(|line| such(line)) {
        first.entry(&line.lease).or_insert(line.at());
    }
    first.into_values().collect()
}

/// Requests per minute and election between the first count and the last.
fn per_minute(lines: &[Line]) -> f64 {
    let mut counts: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.event == Requests) {
        counts.entry(&line.lease).or_default().push(line);
    }
    let rates = counts.values().map(|counts| {
        let (first, last) = (counts[0], counts[counts.len() - 1]);
        let minutes = last.at().saturating_sub(first.at()).as_secs_f64() / 60.0;
        (last.requests - first.requests) as f64 / minutes
    });
    rates.sum::<f64>() / counts.len() as f64
}
