//! What happens to candidates of both kinds on one Lease, step by step.

use super::history::{Act, Revision, Violation, check};
use super::recorder::Recorder;
use evenkeel_testkit::candidate::Told::{Leader, Started, Stopped};
use evenkeel_testkit::candidate::{Candidate, CandidateArgs, Line, Timing, boot_time};
use evenkeel_testkit::{Link, ServedApi, eventually, until};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;

/// Long enough for any machine.
const DEADLINE: Duration = Duration::from_secs(60);

const NAMESPACE: &str = "default";
const NAME: &str = "leader";

/// A candidate; the number tells those of one kind apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// Evenkeel's.
    Ours(u8),
    /// client-go's.
    ClientGo(u8),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(number) => write!(f, "ours-{number}"),
            Self::ClientGo(number) => write!(f, "clientgo-{number}"),
        }
    }
}

/// Something that is done or awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Its process is started, with the same identity as before.
    Start(Peer),
    /// SIGKILL.
    Kill(Peer),
    /// SIGSTOP.
    Pause(Peer),
    /// SIGCONT.
    Resume(Peer),
    /// SIGTERM; it exits with 0.
    Terminate(Peer),
    /// Its link to the API server falls silent.
    Cut(Peer),
    /// Awaits that something is held back on its cut link.
    Held(Peer),
    /// Its link works again; what was held back arrives.
    Mend(Peer),
    /// Awaits that it stands in the Lease and says that it leads.
    Leads(Peer),
    /// Awaits that it says that it does not lead.
    Stops(Peer),
    /// Awaits that somebody else stands in the Lease.
    Loses(Peer),
    /// Awaits that the Lease has been released at some time.
    Released,
    /// Awaits that somebody leads and that all others that run say that they follow.
    Settle,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(peer) => write!(f, "start {peer}"),
            Self::Kill(peer) => write!(f, "kill {peer}"),
            Self::Pause(peer) => write!(f, "pause {peer}"),
            Self::Resume(peer) => write!(f, "resume {peer}"),
            Self::Terminate(peer) => write!(f, "terminate {peer}"),
            Self::Cut(peer) => write!(f, "cut the link of {peer}"),
            Self::Held(peer) => write!(f, "the link of {peer} holds something back"),
            Self::Mend(peer) => write!(f, "mend the link of {peer}"),
            Self::Leads(peer) => write!(f, "{peer} leads"),
            Self::Stops(peer) => write!(f, "{peer} stops"),
            Self::Loses(peer) => write!(f, "somebody else takes the lease of {peer}"),
            Self::Released => write!(f, "somebody releases the lease"),
            Self::Settle => write!(f, "one leads, and all others follow"),
        }
    }
}

/// How candidates are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) timing: Timing,
    /// Whether those of client-go release. A lost Lease, too: see
    /// `clientgo_releases_a_lease_that_it_has_lost`.
    pub(crate) clientgo_releases: bool,
}

/// An API server, a Lease, and candidates.
pub(crate) struct World {
    api: ServedApi,
    recorder: Recorder,
    clientgo: PathBuf,
    setting: Setting,
    links: BTreeMap<Peer, Link>,
    running: BTreeMap<Peer, Candidate>,
    /// Of processes that ended.
    acts: Vec<Act>,
    /// Steps taken, with the time since boot.
    script: Vec<String>,
}

impl World {
    pub(crate) async fn new(clientgo: PathBuf, setting: Setting) -> Self {
        let api = ServedApi::start().await;
        let recorder = Recorder::start(&api.server, NAMESPACE, NAME).await;
        Self {
            api,
            recorder,
            clientgo,
            setting,
            links: BTreeMap::new(),
            running: BTreeMap::new(),
            acts: Vec::new(),
            script: Vec::new(),
        }
    }

    pub(crate) async fn play(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(*step).await;
        }
    }

    async fn step(&mut self, step: Step) {
        self.script.push(format!("{:10.3?}  {step}", boot_time()));
        match step {
            Step::Start(peer) => self.start(peer).await,
            Step::Kill(peer) => {
                let mut candidate = self.take(peer);
                let until = candidate.kill().await;
                self.acts.extend(acts(&candidate.lines(), until));
            }
            Step::Pause(peer) => self.peer(peer).pause(),
            Step::Resume(peer) => self.peer(peer).resume(),
            Step::Terminate(peer) => {
                let mut candidate = self.take(peer);
                candidate.terminate();
                assert_eq!(candidate.ended(DEADLINE).await, Some(0), "exit code of {peer}");
                // Its end is the last line.
                candidate
                    .until("it says that it ends", DEADLINE, |lines| {
                        lines.last().filter(|line| line.lease.is_empty()).map(|_| ())
                    })
                    .await;
                self.acts.extend(acts(&candidate.lines(), boot_time()));
            }
            Step::Cut(peer) => self.links[&peer].cut(),
            Step::Held(peer) => {
                let held = tokio::time::timeout(DEADLINE, self.links[&peer].holds()).await;
                assert!(held.is_ok(), "not within {DEADLINE:?}: {step}");
            }
            Step::Mend(peer) => self.links[&peer].mend(),
            Step::Leads(peer) => {
                let what = step.to_string();
                until(&what, async || {
                    self.recorder.holder() == peer.to_string() && leads(&self.peer(peer).lines())
                })
                .await;
            }
            Step::Stops(peer) => {
                let stopped = |lines: &[Line]| (!leads(lines)).then_some(());
                self.peer(peer).until(&step.to_string(), DEADLINE, stopped).await;
            }
            Step::Loses(peer) => {
                until(&step.to_string(), async || {
                    let holder = self.recorder.holder();
                    !holder.is_empty() && holder != peer.to_string()
                })
                .await;
            }
            Step::Released => self.recorder.released(DEADLINE).await,
            Step::Settle => {
                self.settled().await;
            }
        }
    }

    /// Waits as [`Step::Settle`] does, and returns who leads.
    pub(crate) async fn settled(&self) -> Peer {
        eventually(&Step::Settle.to_string(), DEADLINE, || async {
            let holder = self.recorder.holder();
            let settled = self.running.iter().all(|(peer, candidate)| {
                let lines = candidate.lines();
                let leader = lines.iter().rev().find(|line| line.event == Leader);
                leads(&lines) == (peer.to_string() == holder)
                    && leader.is_some_and(|line| line.leader == holder)
            });
            let leader = self.running.keys().find(|peer| peer.to_string() == holder);
            leader.copied().filter(|_| settled)
        })
        .await
    }

    /// Kills what runs, and returns the history and the rules that it breaks.
    pub(crate) async fn judged(&mut self) -> (Vec<Revision>, Vec<Violation>) {
        let running: Vec<Peer> = self.running.keys().copied().collect();
        for peer in running {
            self.step(Step::Kill(peer)).await;
        }
        let history = self.recorder.history(DEADLINE).await;
        let violations = check(&history, &self.acts, self.setting.timing.lease_duration.as_secs());
        (history, violations)
    }

    async fn start(&mut self, peer: Peer) {
        if !self.links.contains_key(&peer) {
            let link = self.api.link(&peer.to_string()).await;
            self.links.insert(peer, link);
        }
        let args = CandidateArgs {
            kubeconfig: self.links[&peer].kubeconfig().to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: NAME.to_owned(),
            identity: peer.to_string(),
            timing: self.setting.timing,
            release: match peer {
                Peer::Ours(_) => true,
                Peer::ClientGo(_) => self.setting.clientgo_releases,
            },
            count: 1,
        };
        let command = match peer {
            Peer::Ours(_) => super::our_candidate(&args),
            Peer::ClientGo(_) => {
                let mut command = Command::new(&self.clientgo);
                command.args(args.words());
                command
            }
        };
        let candidate = Candidate::start(command, &args.identity, &self.api.home.path().join("log"));
        assert!(
            self.running.insert(peer, candidate).is_none(),
            "{peer} runs already"
        );
    }

    fn peer(&self, peer: Peer) -> &Candidate {
        &self.running[&peer]
    }

    fn take(&mut self, peer: Peer) -> Candidate {
        self.running
            .remove(&peer)
            .unwrap_or_else(|| panic!("{peer} does not run"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.api.home.path().join("log")).unwrap_or_default();
            eprintln!("--- steps, by the time since boot\n{}", self.script.join("\n"));
            eprintln!("--- what the candidates logged\n{log}");
        }
    }
}

fn leads(lines: &[Line]) -> bool {
    let last = lines
        .iter()
        .rev()
        .find(|line| matches!(line.event, Started | Stopped));
    last.is_some_and(|line| line.event == Started)
}

/// The times in which a candidate acted. A term that was not ended lasted until `end`. Candidates without a
/// gate tell no terms and have none.
fn acts(lines: &[Line], end: Duration) -> Vec<Act> {
    let mut acts = Vec::new();
    for line in lines {
        match (line.event, line.transitions) {
            (Started, Some(transitions)) => acts.push(Act {
                identity: line.identity.clone(),
                transitions,
                from: line.at(),
                until: end,
            }),
            (Stopped, Some(_)) => {
                let act = acts.last_mut().expect("what stops was started");
                // A term can be over before it was acted in.
                act.until = line
                    .acted_until_ns
                    .map_or(act.from, Duration::from_nanos)
                    .max(act.from);
            }
            _ => {}
        }
    }
    acts
}
