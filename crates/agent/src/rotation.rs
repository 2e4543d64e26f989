//! The change of an agent's key while it runs.
//!
//! `evenkeel agent rotate-key` puts the next key beside the present one. The agent announces it in its
//! AgentStatus, and goes on with the present one until the roster in force has had both for some time: by
//! then the members that can be reached know them. It proves what it says with the new key from then on, and
//! takes the former one away when the roster has had the new one alone for as long. While it is cut off
//! nothing is announced; what was announced before goes on.

use crate::key::{Claims, KeyFile, KeyFileError};
use crate::zone::Event;
use evenkeel_zone::keys::{PublicKey, SigningKey};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// For how long the members of a cell are given to hear of a roster. It passes from member to member within
/// seconds, also where only one of them reaches the API server.
pub const OVERLAP: Duration = Duration::from_secs(60);
/// What takes longer than this is told to people.
const LATE: Duration = Duration::from_secs(300);
/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What an agent says of its keys.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) key: PublicKey,
    /// With the private half, which proves that it is this agent's.
    pub(crate) next: Option<Arc<SigningKey>>,
}

/// The keys of an agent, and how far a change of them is.
#[derive(Debug)]
pub struct Rotation {
    file: KeyFile,
    key: Arc<SigningKey>,
    other: Option<(Other, Arc<SigningKey>)>,
    /// Since when the roster in force has said what is waited for.
    since: Option<Instant>,
    overlap: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Next,
    Former,
}

impl Rotation {
    /// Reads the files, where a change may have been going on. Makes a key where there is none. Each step of
    /// a change waits for `overlap`, which is [`OVERLAP`] but in tests.
    pub fn open(file: KeyFile, overlap: Duration) -> Result<Self, KeyFileError> {
        let key = Arc::new(file.load_or_make()?);
        let mut rotation = Self {
            file,
            key,
            other: None,
            since: None,
            overlap,
        };
        // An agent that has its key runs, whatever is beside it.
        let others = rotation
            .file
            .load_former(&rotation.key)
            .and_then(|former| match former {
                Some(former) => Ok(Some((Other::Former, Arc::new(former)))),
                None => rotation.load_next(),
            });
        match others {
            Ok(other) => rotation.other = other,
            Err(error) => tracing::error!(%error, "the agent's key does not change"),
        }
        Ok(rotation)
    }

    fn load_next(&self) -> Result<Option<(Other, Arc<SigningKey>)>, KeyFileError> {
        let next = self.file.load_next()?;
        Ok(next.map(|next| (Other::Next, Arc::new(next))))
    }

    /// What the agent says of its keys, and proves.
    pub(crate) fn said(&self) -> Said {
        let next = self.other.clone().filter(|(which, _)| *which == Other::Next);
        Said {
            key: self.key.public().clone(),
            next: next.map(|(_, next)| next),
        }
    }

    /// The key that proves what the agent says.
    pub(crate) fn key(&self) -> &Arc<SigningKey> {
        &self.key
    }

    /// The next key or the former one, while the key changes.
    pub(crate) fn other(&self) -> Option<&Arc<SigningKey>> {
        self.other.as_ref().map(|(_, other)| other)
    }

    /// What a roster shall say.
    pub(crate) fn claims(&self) -> Claims {
        let Said { key, next } = self.said();
        let next = next.map(|next| next.public().clone());
        Claims { key, next }
    }

    /// Goes one step further if it is time. `published`: what the roster in force says. Returns whether the
    /// keys are others now.
    fn step(&mut self, published: Option<&Claims>, now: Instant) -> Result<bool, KeyFileError> {
        let Some((which, other)) = self.other.clone() else {
            self.other = self.load_next()?;
            return Ok(self.other.is_some());
        };
        if which == Other::Next {
            // Somebody has thought better of it, or has made another one.
            let next = self.load_next()?;
            let public = |next: &Option<(Other, Arc<SigningKey>)>| {
                next.as_ref().map(|(_, next)| next.public().clone())
            };
            if public(&next) != public(&self.other) {
                (self.other, self.since) = (next, None);
                return Ok(true);
            }
        }
        if published != Some(&self.claims()) {
            self.since = None;
            return Ok(false);
        }
        if now < *self.since.get_or_insert(now) + self.overlap {
            return Ok(false);
        }
        match which {
            Other::Next => {
                self.file.take_next()?;
                let former = std::mem::replace(&mut self.key, other);
                self.other = Some((Other::Former, former));
                tracing::info!(
                    public_key = self.key.public().to_base64(),
                    "the agent has a new key"
                );
            }
            Other::Former => {
                self.file.remove_former()?;
                self.other = None;
                tracing::info!("the agent's former key is gone");
            }
        }
        self.since = None;
        Ok(true)
    }

    /// Looks after the files until shutdown.
    pub(crate) async fn run(
        mut self,
        published: watch::Receiver<Option<Claims>>,
        said: watch::Sender<Said>,
        events: mpsc::Sender<Event>,
        shutdown: CancellationToken,
    ) {
        let mut timer = tokio::time::interval(LOOK_EVERY.min(self.overlap));
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut told = String::new();
        let (mut begun, mut is_late) = (Instant::now(), false);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = timer.tick() => {}
            }
            let published = published.borrow().clone();
            // Off the loop: a slow disk must not delay heartbeats.
            let roster = published.clone();
            let step = tokio::task::spawn_blocking(move || {
                let outcome = self.step(roster.as_ref(), Instant::now());
                (self, outcome)
            });
            let outcome;
            (self, outcome) = match step.await {
                Ok(back) => back,
                Err(error) => {
                    tracing::error!(%error, "the agent's key does not change any more");
                    return;
                }
            };
            match outcome {
                Ok(false) if self.other.is_some() && !is_late && begun.elapsed() >= LATE => {
                    is_late = true;
                    let key = self.key.public().to_base64();
                    tracing::warn!(
                        key, roster = ?published, "the agent's key waits for a roster that says what its AgentStatus says"
                    );
                }
                Ok(false) => {}
                Ok(true) => {
                    (begun, is_late) = (Instant::now(), false);
                    if self.claims().next.is_some() {
                        tracing::info!("the agent announces its next key");
                    }
                    let (key, other) = (self.key.clone(), self.other().cloned());
                    if events.send(Event::Keys { key, other }).await.is_err() {
                        return;
                    }
                    said.send_replace(self.said());
                }
                Err(error) => {
                    let error = error.to_string();
                    if error != told {
                        tracing::error!(error, "the agent's key does not change");
                        told = error;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Around {
        directory: tempfile::TempDir,
        now: Instant,
    }

    impl Around {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let now = Instant::now();
            Self { directory, now }
        }

        fn file(&self) -> KeyFile {
            KeyFile::new(&self.directory.path().join("agent.key"))
        }

        /// As after a restart.
        fn open(&self) -> Rotation {
            Rotation::open(self.file(), OVERLAP).unwrap()
        }

        /// So many seconds later.
        fn step(&mut self, rotation: &mut Rotation, published: &Claims, seconds: u64) -> bool {
            self.now += Duration::from_secs(seconds);
            rotation.step(Some(published), self.now).unwrap()
        }

        fn files(&self) -> Vec<String> {
            let files = std::fs::read_dir(self.directory.path()).unwrap();
            let mut names: Vec<String> = files
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn a_key_changes_when_the_roster_has_said_so_for_long_enough() {
        let mut around = Around::new();
        let mut rotation = around.open();
        let before = rotation.claims();
        assert!(!around.step(&mut rotation, &before, 5) && before.next.is_none());
        let next = around.file().make_next().unwrap();
        assert!(around.step(&mut rotation, &before, 5));
        let announced = rotation.claims();
        assert_eq!(
            (&announced.key, announced.next.as_ref().unwrap().to_base64()),
            (&before.key, next)
        );
        // The roster does not say so yet; then it does, then it does not, then it does.
        assert!(!around.step(&mut rotation, &before, 600));
        assert!(!around.step(&mut rotation, &announced, 5));
        assert!(!around.step(&mut rotation, &announced, 59));
        assert!(!around.step(&mut rotation, &before, 1));
        assert!(!around.step(&mut rotation, &announced, 1));
        assert!(!around.step(&mut rotation, &announced, 59));
        assert!(around.step(&mut rotation, &announced, 1));
        let switched = rotation.claims();
        assert_eq!(
            (Some(&switched.key), &switched.next),
            (announced.next.as_ref(), &None)
        );
        assert_eq!(rotation.other().unwrap().public(), &before.key);
        assert_eq!(around.files(), ["agent.key", "agent.key.former"]);
        assert!(!around.step(&mut rotation, &announced, 600));
        assert!(!around.step(&mut rotation, &switched, 5));
        assert!(around.step(&mut rotation, &switched, 60));
        assert!(rotation.other().is_none());
        assert_eq!(around.files(), ["agent.key"]);
        assert_eq!(around.open().claims(), switched);
    }

    #[test]
    fn a_restart_goes_on_where_the_change_was() {
        let mut around = Around::new();
        let mut rotation = around.open();
        around.file().make_next().unwrap();
        let before = rotation.claims();
        around.step(&mut rotation, &before, 1);
        let mut rotation = around.open();
        let announced = rotation.claims();
        assert!(announced.next.is_some());
        around.step(&mut rotation, &announced, 1);
        assert!(around.step(&mut rotation, &announced, 60));
        let rotation = around.open();
        assert_eq!(Some(rotation.claims().key), announced.next);
        assert_eq!(rotation.other().unwrap().public(), &announced.key);
    }

    #[test]
    fn a_kill_between_two_files_loses_no_key() {
        let around = Around::new();
        let key = around.open().claims().key;
        let next = around.file().make_next().unwrap();
        // The first half of the step alone.
        let path = around.directory.path().join("agent.key");
        std::fs::hard_link(&path, around.directory.path().join("agent.key.former")).unwrap();
        let mut rotation = around.open();
        let announced = rotation.claims();
        assert_eq!(
            (&announced.key, announced.next.as_ref().unwrap().to_base64()),
            (&key, next)
        );
        let now = Instant::now();
        assert!(!rotation.step(Some(&announced), now).unwrap());
        assert!(rotation.step(Some(&announced), now + OVERLAP).unwrap());
        assert_eq!(around.files(), ["agent.key", "agent.key.former"]);
        assert_eq!(rotation.other().unwrap().public(), &key);
    }

    #[test]
    fn a_former_key_that_somebody_else_removed_ends_the_change() {
        let mut around = Around::new();
        let mut rotation = around.open();
        around.file().make_next().unwrap();
        let before = rotation.claims();
        around.step(&mut rotation, &before, 1);
        let announced = rotation.claims();
        around.step(&mut rotation, &announced, 1);
        assert!(around.step(&mut rotation, &announced, 60));
        std::fs::remove_file(around.directory.path().join("agent.key.former")).unwrap();
        let switched = rotation.claims();
        around.step(&mut rotation, &switched, 1);
        assert!(around.step(&mut rotation, &switched, 60));
        assert!(rotation.other().is_none());
    }

    #[test]
    fn a_next_key_that_is_taken_away_is_not_announced_any_more() {
        let mut around = Around::new();
        let mut rotation = around.open();
        let before = rotation.claims();
        around.file().make_next().unwrap();
        assert!(around.step(&mut rotation, &before, 1));
        std::fs::remove_file(around.directory.path().join("agent.key.next")).unwrap();
        assert!(around.step(&mut rotation, &before, 1));
        assert_eq!(rotation.claims(), before);
    }

    #[test]
    fn a_next_key_that_is_replaced_is_announced_anew_and_no_key_is_used_that_no_file_has() {
        let mut around = Around::new();
        let mut rotation = around.open();
        let before = rotation.claims();
        around.file().make_next().unwrap();
        assert!(around.step(&mut rotation, &before, 1));
        let first = rotation.claims();
        assert!(!around.step(&mut rotation, &first, 1));
        std::fs::remove_file(around.directory.path().join("agent.key.next")).unwrap();
        let second = around.file().make_next().unwrap();
        assert!(
            around.step(&mut rotation, &first, 59),
            "in time for the change to the first one"
        );
        let announced = rotation.claims();
        assert_eq!(announced.next.as_ref().unwrap().to_base64(), second);
        assert!(!around.step(&mut rotation, &announced, 1));
        assert!(around.step(&mut rotation, &announced, 60));
        assert_eq!(around.open().claims().key, rotation.claims().key);
    }

    #[test]
    fn what_is_beside_the_key_keeps_no_agent_from_running() {
        let around = Around::new();
        let key = around.open().claims();
        for name in ["agent.key.next", "agent.key.former"] {
            std::fs::write(around.directory.path().join(name), "half a key").unwrap();
            assert_eq!(around.open().claims(), key);
        }
    }

    #[test]
    fn one_change_at_a_time() {
        let around = Around::new();
        let _ = around.open();
        around.file().make_next().unwrap();
        let error = around.file().make_next().unwrap_err().to_string();
        assert!(error.contains("agent.key.next exists"), "{error}");
        around.file().take_next().unwrap();
        let error = around.file().make_next().unwrap_err().to_string();
        assert!(error.contains("agent.key.former exists"), "{error}");
    }
}
