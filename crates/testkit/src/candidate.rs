//! Candidates of leader elections as processes of their own: client-go's (`interop/clientgo`) and ours (the
//! example `candidate` of `evenkeel-election`). Both take the same flags and print the same lines.

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde::Deserialize;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// Timing of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For how long others leave an unrenewed Lease alone; whole seconds, as client-go would cut off the
    /// rest.
    pub lease_duration: Duration,
    /// When a leader that cannot renew stops.
    pub renew_deadline: Duration,
    /// Time between attempts. At least 1 s beside client-go: it compares records by whole seconds, and
    /// overlooks a renewal within the second of the one before.
    pub retry_period: Duration,
}

impl Timing {
    /// From seconds.
    pub const fn seconds(lease_duration: u64, renew_deadline: u64, retry_period: u64) -> Self {
        Self {
            lease_duration: Duration::from_secs(lease_duration),
            renew_deadline: Duration::from_secs(renew_deadline),
            retry_period: Duration::from_secs(retry_period),
        }
    }
}

/// What a candidate is told on its command line.
#[derive(Clone, Debug)]
pub struct CandidateArgs {
    /// Where the API server is.
    pub kubeconfig: PathBuf,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease; with `count` > 1 the beginning of the names.
    pub name: String,
    /// Identity of the candidate.
    pub identity: String,
    /// Its timing.
    pub timing: Timing,
    /// Whether it gives the Lease back when told to stop.
    pub release: bool,
    /// Number of independent elections in the process.
    pub count: usize,
}

impl CandidateArgs {
    /// The flags. The candidate ends with its standard input, so with the test.
    pub fn words(&self) -> Vec<String> {
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        let values = [
            ("--kubeconfig", self.kubeconfig.display().to_string()),
            ("--namespace", self.namespace.clone()),
            ("--name", self.name.clone()),
            ("--identity", self.identity.clone()),
            ("--lease-duration", millis(self.timing.lease_duration)),
            ("--renew-deadline", millis(self.timing.renew_deadline)),
            ("--retry-period", millis(self.timing.retry_period)),
            ("--count", self.count.to_string()),
        ];
        let mut words: Vec<String> = values
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect();
        words.push("--tied".to_owned());
        if self.release {
            words.push("--release".to_owned());
        }
        words
    }
}

/// What a line tells.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// The candidate leads.
    Started,
    /// It does not any more.
    Stopped,
    /// It sees another leader; none, if the name is empty.
    Leader,
    /// Number of API requests so far.
    Requests,
    /// The process ends.
    Exit,
}

/// A line of a candidate's standard output.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Line {
    /// What happened.
    pub event: Told,
    /// Identity of the candidate.
    pub identity: String,
    /// `NAMESPACE/NAME`; empty for [`Told::Exit`].
    #[serde(default)]
    pub lease: String,
    /// Who leads, for [`Told::Leader`].
    #[serde(default)]
    pub leader: String,
    /// For [`Told::Requests`].
    #[serde(default)]
    pub requests: u64,
    /// `leaseTransitions` of the term, for [`Told::Started`] and [`Told::Stopped`]; ours only.
    pub transitions: Option<i64>,
    /// Last time, by [`boot_time`] in nanoseconds, at which the gate was open, for [`Told::Stopped`]; ours
    /// only.
    pub acted_until_ns: Option<u64>,
    /// [`boot_time`] of the line, in nanoseconds.
    pub at_boot_ns: u64,
}

impl Line {
    /// [`boot_time`] of the line.
    pub fn at(&self) -> Duration {
        Duration::from_nanos(self.at_boot_ns)
    }
}

/// A candidate's process. Killed when it is dropped.
#[derive(Debug)]
pub struct Candidate {
    /// Its identity.
    pub identity: String,
    child: Child,
    lines: watch::Receiver<Vec<Line>>,
}

impl Candidate {
    /// Starts a command that runs a candidate of this identity. Standard error is appended to `log`.
    pub fn start(mut command: Command, identity: &str, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.expect("the log can be written"))
            .kill_on_drop(true)
            .spawn()
            .expect("the candidate starts");
        let stdout = child.stdout.take().expect("standard output is piped");
        let (publish, lines) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut text = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = text.next_line().await {
                // A test binary that plays the candidate says things of its own before.
                if line.starts_with('{') {
                    let line: Line = serde_json::from_str(&line).expect("candidates print JSON lines");
                    publish.send_modify(|lines| lines.push(line));
                }
            }
        });
        Self {
            identity: identity.to_owned(),
            child,
            lines,
        }
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<Line> {
        self.lines.borrow().clone()
    }

    /// Waits until `wanted` finds something in all lines so far; fails the test after `deadline` with `what`.
    #[expect(clippy::panic, reason = "fails the test")]
    pub async fn until<T>(&self, what: &str, deadline: Duration, wanted: impl Fn(&[Line]) -> Option<T>) -> T {
        let mut lines = self.lines.clone();
        let found = async {
            loop {
                if let Some(found) = wanted(&lines.borrow_and_update()) {
                    return Some(found);
                }
                if lines.changed().await.is_err() {
                    // The last line may have come together with the end.
                    return wanted(&lines.borrow());
                }
            }
        };
        let Ok(found) = tokio::time::timeout(deadline, found).await else {
            let (who, lines) = (&self.identity, self.lines());
            panic!("not within {deadline:?}: {who}: {what}; it said {lines:?}")
        };
        found.unwrap_or_else(|| {
            panic!(
                "{} ended before this: {what}; it said {:?}",
                self.identity,
                self.lines()
            )
        })
    }

    /// SIGSTOP: the process stands still until [`Self::resume`].
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// SIGUSR1: it tells how many requests it has sent, a line for each Lease.
    pub fn ask_for_requests(&self) {
        self.signal(Signal::SIGUSR1);
    }

    /// SIGKILL. Returns when it was gone for certain, by [`boot_time`].
    pub async fn kill(&mut self) -> Duration {
        self.child.kill().await.expect("the process is ours");
        boot_time()
    }

    /// Waits for its end and returns its exit code; fails the test after `deadline`.
    #[expect(clippy::panic, reason = "fails the test")]
    pub async fn ended(&mut self, deadline: Duration) -> Option<i32> {
        let Ok(status) = tokio::time::timeout(deadline, self.child.wait()).await else {
            panic!("{} does not end within {deadline:?}", self.identity)
        };
        status.expect("the process can be waited for").code()
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("the process was not waited for");
        let id = i32::try_from(id).expect("process IDs are small");
        kill(Pid::from_raw(id), signal).expect("the process is ours");
    }
}

/// Time since boot, the time asleep included; the same for every process of the machine.
pub fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has had CLOCK_BOOTTIME since 2.6.39");
    Duration::from(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_kinds_are_read() {
        let theirs = r#"{"event":"leader","identity":"a","lease":"ns/n","leader":"b","at_boot_ns":5}"#;
        let line: Line = serde_json::from_str(theirs).unwrap();
        assert_eq!((line.event, line.leader.as_str()), (Told::Leader, "b"));
        assert_eq!(line.at(), Duration::from_nanos(5));
        let ours = r#"{"event":"stopped","identity":"a","lease":"ns/n","transitions":3,"acted_until_ns":4,"at_boot_ns":5}"#;
        let line: Line = serde_json::from_str(ours).unwrap();
        assert_eq!((line.transitions, line.acted_until_ns), (Some(3), Some(4)));
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const SOON: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_process_is_heard_signalled_and_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let script = r#"trap 'exit 7' TERM; exec 3<&0; echo "something else"
            echo '{"event":"started","identity":"me","at_boot_ns":1}'; cat <&3 >/dev/null & wait"#;
        let mut process = Candidate::start(shell(script), "me", &home.path().join("log"));
        let first = process
            .until("a line", SOON, |lines| lines.first().cloned())
            .await;
        assert_eq!((first.event, first.identity.as_str()), (Told::Started, "me"));
        process.terminate();
        assert_eq!(process.ended(SOON).await, Some(7));
    }

    #[tokio::test]
    #[should_panic(expected = "me ended before this: a line")]
    async fn a_process_that_ends_too_early_fails_the_test() {
        let home = tempfile::tempdir().unwrap();
        let process = Candidate::start(shell("exit 3"), "me", &home.path().join("log"));
        process
            .until("a line", SOON, |lines| lines.first().cloned())
            .await;
    }
}
