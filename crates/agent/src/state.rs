//! What outlives a restart, so that an agent that is cut off can start again and keeps its vote.

use evenkeel_api::zone::SignedRoster;
use evenkeel_net::file::{WriteError, write_secret};
use evenkeel_zone::engine::Met;
use evenkeel_zone::keys::PublicKey;
use evenkeel_zone::roster::{MemberId, Roster, RosterKeys};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A life of an agent begins this many bits above the sequences that are remembered as used.
pub const SEQUENCE_BLOCK_BITS: u32 = 20;

/// No agent has used a sequence beyond this: by the clock they come to half of all numbers in 2248, and the
/// block after it must not overflow.
const HIGHEST_BASE: u64 = u64::MAX - (u64::MAX >> 2);
const FILE: &str = "agent-state.json";

/// Whom an agent has met is written after this time at the latest. At its start it meets up to eleven members
/// within a period, and one in each period later, and a flash card would be written for each. Whoever was met
/// shortly before a life ended is met again in the next one.
const GATHER: Duration = Duration::from_secs(5);
/// The same after it was written once: one member that checks find and do not find by turns must not wear the
/// card out.
const GATHER_AGAIN: Duration = Duration::from_secs(60);
/// What could not be written is tried again after this time, and told again after an hour.
const TRIES_AGAIN: Duration = Duration::from_secs(30);
const TOLD_AGAIN: Duration = Duration::from_secs(3_600);

/// Something to be remembered across restarts.
#[derive(Debug)]
pub(crate) enum Learned {
    /// A roster, and whom the agent has met.
    Roster(Arc<Roster>, Met),
    /// Name of the ZoneHealth of the node's cell.
    Cell(String),
    /// Whom the agent has met.
    Met(Met),
    /// Statements were signed with sequences up to this one.
    Sequence(u64),
}

/// Contents of the state file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Name of the Node.
    pub node: String,
    /// UID of the Node.
    pub node_uid: String,
    /// The zone that the node is in.
    pub zone: String,
    /// Name of the ZoneHealth of the node's cell; empty for the first cell of the zone.
    pub cell: String,
    /// The last roster, as it was published.
    pub signed_roster: Option<SignedRoster>,
    /// ID of the machine's boot in which they were.
    pub boot_id: String,
    /// Members that were seen alive since that boot: the public key of each, in base64, by its name in
    /// datagrams.
    pub seen_alive_as: BTreeMap<String, String>,
    /// Those that a check has found since: the address of the kubelet in the roster, by the same name.
    pub found_at: BTreeMap<String, String>,
    /// UIDs of those that a former version has seen alive.
    #[serde(skip_serializing)]
    seen_alive: BTreeSet<String>,
    /// No statement was signed with a sequence a block of [`SEQUENCE_BLOCK_BITS`] above this.
    pub sequence_base: u64,
}

impl Memory {
    /// Whom the agent has met, by their names on the wire.
    pub fn met(&self) -> Met {
        let seen_alive = self.seen_alive_as.iter();
        let found = self.found_at.iter();
        Met {
            seen_alive: seen_alive
                .filter_map(|(name, key)| {
                    Some((MemberId::from_hex(name)?, PublicKey::from_base64(key).ok()?))
                })
                .collect(),
            found: found
                .filter_map(|(name, address)| Some((MemberId::from_hex(name)?, address.clone())))
                .collect(),
        }
    }

    fn take_met(&mut self, met: &Met) {
        let seen_alive = met.seen_alive.iter();
        let found = met.found.iter();
        self.seen_alive_as = seen_alive
            .map(|(id, key)| (id.to_hex(), key.to_base64()))
            .collect();
        self.found_at = found
            .map(|(id, address)| (id.to_hex(), address.clone()))
            .collect();
    }

    /// What a former version noted: who they were stands in the roster beside it. Whether checks reach them
    /// it did not know.
    fn take_former(&mut self) {
        let seen_alive = std::mem::take(&mut self.seen_alive);
        let Some(roster) = self.signed_roster.as_ref().filter(|_| !seen_alive.is_empty()) else {
            return;
        };
        let Ok(roster) = Roster::reopen(roster, &RosterKeys::default()) else {
            return;
        };
        let mut met = self.met();
        for member in roster
            .members()
            .iter()
            .filter(|member| seen_alive.contains(&member.uid))
        {
            met.note_seen_alive(member);
        }
        self.take_met(&met);
    }

    /// Others may have come in the place of those whom the agent has met, or may not be back yet.
    pub fn forget_met(&mut self) {
        self.take_met(&Met::default());
    }

    /// Statements were signed with sequences up to `sequence`.
    pub fn used(&mut self, sequence: u64) {
        self.sequence_base = self.sequence_base.max(sequence);
    }

    /// What a state file says, or for people why it says nothing.
    fn from_text(text: &[u8]) -> Result<Self, String> {
        let mut memory: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        memory.take_former();
        match memory.sequence_base {
            ..=HIGHEST_BASE => Ok(memory),
            base => Err(format!("no agent has used the sequence {base}")),
        }
    }

    fn to_text(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("strings, numbers and lists are JSON")
    }

    /// What a new life of this node remembers of the last one, with sequences reserved for it.
    fn begin(mut self, node: &str, boot_id: &str, unix_ms: u64) -> Self {
        if self.node != node {
            // Another node's state, or none: sequences keep growing in any case.
            self = Self {
                node: node.to_owned(),
                sequence_base: self.sequence_base,
                ..Self::default()
            };
        }
        if self.boot_id != boot_id {
            // A former version did not note the boot: an upgrade must not make everybody forget everybody.
            if !self.boot_id.is_empty() {
                self.forget_met();
            }
            boot_id.clone_into(&mut self.boot_id);
        }
        // A block for one millisecond, and for what a life has signed since it last wrote down how far it
        // came.
        let next = (self.sequence_base >> SEQUENCE_BLOCK_BITS).saturating_add(1);
        // No clock is right that says more than this, and no sequence may overflow: the year 2248.
        let latest = u64::MAX >> (SEQUENCE_BLOCK_BITS + 1);
        self.sequence_base = next.max(unix_ms.min(latest)) << SEQUENCE_BLOCK_BITS;
        self
    }
}

/// Why the state directory cannot be used. The message names it.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be made.
    #[error("cannot use --state-dir {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// The file in it cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file in it cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The state directory of one agent.
#[derive(Debug)]
pub struct StateDir {
    file: PathBuf,
    memory: Memory,
    /// The file says what the memory says.
    is_saved: bool,
}

impl StateDir {
    /// Opens the directory, makes it if needed, and reserves sequences for a new life. `unix_ms` only helps
    /// where the file was lost: sequences grow with it then, too. Who was seen alive before the boot
    /// `boot_id` is forgotten: it may not be back yet.
    ///
    /// A file that cannot be understood is put aside under another name, with a warning, and counts as lost.
    /// One that can be read and not written, as on a full disk, is no reason to keep an agent from running:
    /// without it, its node could not be told from a dead one. The next life then uses the same sequences
    /// only if the machine's clock is wrong as well.
    pub fn open(directory: &Path, node: &str, boot_id: &str, unix_ms: u64) -> Result<Self, StateError> {
        fs::create_dir_all(directory).map_err(|source| StateError::Directory {
            path: directory.to_owned(),
            source,
        })?;
        let file = directory.join(FILE);
        let ran_before = file.exists();
        let memory = read(&file)?.begin(node, boot_id, unix_ms);
        let mut state = Self {
            file,
            memory,
            is_saved: false,
        };
        match state.save() {
            Err(error) if ran_before => warn_of_failed_write(&error),
            other => other?,
        }
        Ok(state)
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether all that is remembered is written down.
    pub fn is_saved(&self) -> bool {
        self.is_saved
    }

    /// Changes what is remembered, and writes it if that, or an earlier change, is not written yet.
    pub fn update(&mut self, change: impl FnOnce(&mut Memory)) -> Result<(), StateError> {
        let before = self.memory.clone();
        change(&mut self.memory);
        self.is_saved &= self.memory == before;
        if self.is_saved { Ok(()) } else { self.save() }
    }

    fn save(&mut self) -> Result<(), StateError> {
        let written = write_secret(&self.file, &self.memory.to_text());
        self.is_saved = written.is_ok();
        Ok(written?)
    }
}

/// The state file cannot be written, and the agent goes on.
pub(crate) fn warn_of_failed_write(error: &StateError) {
    tracing::warn!(%error, "not remembered across a restart");
}

/// Writes down what was learned, off the loop: a slow disk must not delay heartbeats.
pub(crate) async fn remember(mut state: StateDir, mut learned: mpsc::UnboundedReceiver<Learned>) {
    let mut told = (!state.is_saved()).then(Instant::now);
    let mut not_before = Instant::now();
    while let Some(news) = next(&mut learned, state.is_saved(), not_before).await {
        if matches!(news.last(), Some(Learned::Met(_))) {
            not_before = Instant::now() + GATHER_AGAIN;
        }
        let written = tokio::task::spawn_blocking(move || {
            let outcome = state.update(|memory| news.into_iter().for_each(|news| learn(memory, news)));
            (state, outcome)
        });
        let outcome;
        (state, outcome) = match written.await {
            Ok(back) => back,
            Err(error) => {
                tracing::error!(%error, "nothing is remembered any more");
                return;
            }
        };
        match outcome {
            Ok(()) if told.take().is_some() => tracing::info!("the state file is written again"),
            Ok(()) => {}
            Err(error) if told.is_none_or(|at| at.elapsed() >= TOLD_AGAIN) => {
                told = Some(Instant::now());
                warn_of_failed_write(&error);
            }
            Err(error) => tracing::debug!(%error, "still not remembered across a restart"),
        }
    }
}

/// What was learned since, or nothing when it is time to try again what could not be written. `None`: the
/// agent ends.
async fn next(
    learned: &mut mpsc::UnboundedReceiver<Learned>,
    is_saved: bool,
    not_before: Instant,
) -> Option<Vec<Learned>> {
    let first = if is_saved {
        learned.recv().await?
    } else {
        match tokio::time::timeout(TRIES_AGAIN, learned.recv()).await {
            Ok(first) => first?,
            Err(_) => return Some(Vec::new()),
        }
    };
    Some(gather(first, learned, not_before).await)
}

/// News of the time in which one write is made of all. Only whom it has met is kept back: a life that ends
/// before its sequences are written would be followed by one that uses them again, and one that ends before a
/// roster is written may have no other way to it.
async fn gather(
    first: Learned,
    learned: &mut mpsc::UnboundedReceiver<Learned>,
    not_before: Instant,
) -> Vec<Learned> {
    let until = not_before.max(Instant::now() + GATHER);
    let mut news = vec![first];
    while matches!(news.last(), Some(Learned::Met(_)))
        && let Ok(Some(next)) = tokio::time::timeout_at(until, learned.recv()).await
    {
        news.push(next);
    }
    news
}

fn learn(memory: &mut Memory, news: Learned) {
    match news {
        Learned::Roster(roster, met) => {
            memory.take_met(&met);
            memory.signed_roster = Some(SignedRoster::clone(roster.published()));
        }
        Learned::Met(met) => memory.take_met(&met),
        Learned::Cell(cell) => memory.cell = cell,
        Learned::Sequence(used) => memory.used(used),
    }
}

fn read(file: &Path) -> Result<Memory, StateError> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Memory::default()),
        Err(source) => {
            return Err(StateError::Read {
                path: file.to_owned(),
                source,
            });
        }
    };
    match Memory::from_text(&bytes) {
        Ok(memory) => Ok(memory),
        Err(error) => {
            let aside = file.with_extension("json.bad");
            tracing::warn!(file = %file.display(), aside = %aside.display(), error, "state file cannot be understood");
            fs::rename(file, &aside).map_err(|source| StateError::Read {
                path: file.to_owned(),
                source,
            })?;
            Ok(Memory::default())
        }
    }
}

#[cfg(test)]
mod decoder_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_zone::fixture::Fixture;
    use evenkeel_zone::roster::publish;

    const BOOT: &str = "f00d";

    #[test]
    fn sequences_grow_with_every_life_whatever_the_clock_says() {
        let directory = tempfile::tempdir().unwrap();
        let base = |unix_ms| {
            StateDir::open(directory.path(), "a", BOOT, unix_ms)
                .unwrap()
                .memory()
                .sequence_base
        };
        let lives = [base(1_000), base(5), base(5), base(2_000), base(0)];
        assert!(
            lives.is_sorted() && lives.windows(2).all(|pair| pair[1] - pair[0] >= 1 << 20),
            "{lives:?}"
        );
    }

    #[test]
    fn a_long_life_without_a_clock_is_outgrown_too() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = StateDir::open(directory.path(), "a", BOOT, 0).unwrap();
        let used = state.memory().sequence_base + (5 << SEQUENCE_BLOCK_BITS) + 17;
        state.update(|memory| memory.used(used)).unwrap();
        state.update(|memory| memory.used(3)).unwrap();
        drop(state);
        let next = StateDir::open(directory.path(), "a", BOOT, 0).unwrap();
        assert!(next.memory().sequence_base > used);
        // A clock that has gone mad neither overflows nor loses what was used.
        let mad = StateDir::open(directory.path(), "a", BOOT, u64::MAX).unwrap();
        assert!(mad.memory().sequence_base > next.memory().sequence_base);
    }

    #[test]
    fn what_was_learned_is_there_after_a_restart_of_the_same_node() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = StateDir::open(directory.path(), "a", BOOT, 1).unwrap();
        let roster = SignedRoster {
            text: "{}".into(),
            ..SignedRoster::default()
        };
        let learned = roster.clone();
        state
            .update(|memory| (memory.signed_roster, memory.node_uid) = (Some(learned), "u".into()))
            .unwrap();
        drop(state);
        let again = StateDir::open(directory.path(), "a", BOOT, 1).unwrap();
        assert_eq!(
            (
                again.memory().signed_roster.as_ref(),
                again.memory().node_uid.as_str()
            ),
            (Some(&roster), "u")
        );
        let other = StateDir::open(directory.path(), "b", BOOT, 1).unwrap();
        assert_eq!(other.memory().signed_roster, None);
    }

    #[test]
    fn a_broken_file_is_put_aside_and_a_bad_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let aside = directory.path().join("agent-state.json.bad");
        // With the second one sequences would begin at 0 again.
        for broken in ["{".to_owned(), format!(r#"{{"sequenceBase":{}}}"#, u64::MAX - 1)] {
            fs::write(directory.path().join(FILE), &broken).unwrap();
            let state = StateDir::open(directory.path(), "a", BOOT, 1).unwrap();
            assert_eq!(fs::read_to_string(&aside).unwrap(), broken);
            assert_eq!(state.memory().sequence_base, 1 << SEQUENCE_BLOCK_BITS);
        }
        let error = StateDir::open(&directory.path().join(FILE).join("x"), "a", BOOT, 1)
            .unwrap_err()
            .to_string();
        assert!(error.contains("--state-dir") && error.contains(FILE), "{error}");
    }

    #[test]
    fn who_was_met_is_met_no_longer_after_a_boot_and_still_is_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let met = |boot_id: &str| {
            let state = StateDir::open(directory.path(), "a", boot_id, 1).unwrap();
            state.memory().met().seen_alive.len()
        };
        let mut state = StateDir::open(directory.path(), "a", BOOT, 1).unwrap();
        state.update(|memory| memory.take_met(&met_so_many(1))).unwrap();
        assert_eq!([met(BOOT), met("another"), met(BOOT)], [1, 0, 0]);
        // A state of a former version.
        let roster = publish(&Fixture::stand_in(3).spec(), None);
        let former =
            serde_json::json!({"node": "a", "seenAlive": [Fixture::uid(2), "u"], "signedRoster": roster});
        fs::write(directory.path().join(FILE), former.to_string()).unwrap();
        let state = StateDir::open(directory.path(), "a", BOOT, 1).unwrap();
        let known = state.memory().met();
        assert!(known.seen_alive.keys().eq([&Fixture::id(2)]) && known.found.is_empty());
        assert_eq!([met(BOOT), met("another")], [1, 0]);
    }

    fn met_so_many(count: usize) -> Met {
        let zone = Fixture::stand_in(u8::try_from(count).unwrap());
        let mut met = Met::default();
        for member in zone.roster().members() {
            met.note_seen_alive(member);
        }
        met
    }

    fn stored(directory: &Path) -> Memory {
        serde_json::from_slice(&fs::read(directory.join(FILE)).unwrap()).unwrap()
    }

    /// A life that meets a whole cell, with the times at which its file changed, in milliseconds.
    #[tokio::test(start_paused = true)]
    async fn whoever_meets_a_whole_cell_writes_once_and_then_at_most_once_a_minute() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let (news, learned) = mpsc::unbounded_channel();
        let state = StateDir::open(&path, "a", BOOT, 1).unwrap();
        let base = state.memory().sequence_base;
        let remembering = tokio::spawn(remember(state, learned));
        let start = Instant::now();
        let met = |path: &Path| stored(path).met().seen_alive.len();
        for count in 1..=62 {
            news.send(Learned::Met(met_so_many(count))).unwrap();
            tokio::time::sleep(Duration::from_millis(70)).await;
            assert_eq!(met(&path), 0, "after {:?}", start.elapsed());
        }
        tokio::time::sleep_until(start + GATHER + Duration::from_millis(1)).await;
        assert_eq!(met(&path), 62);
        news.send(Learned::Met(met_so_many(61))).unwrap();
        tokio::time::sleep(GATHER_AGAIN / 2).await;
        assert_eq!(met(&path), 62);
        tokio::time::sleep(GATHER_AGAIN / 2).await;
        assert_eq!(met(&path), 61);
        // What must not be lost is written at once, with what waits.
        news.send(Learned::Met(met_so_many(63))).unwrap();
        news.send(Learned::Sequence(base + 7)).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!((met(&path), stored(&path).sequence_base), (63, base + 7));
        // And so is what waits when the agent ends.
        news.send(Learned::Met(met_so_many(64))).unwrap();
        drop(news);
        remembering.await.unwrap();
        assert_eq!(met(&path), 64);
    }

    /// Its directory is away for a while, as where a disk is mounted anew.
    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_written_is_written_later_though_nothing_more_is_learned() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (news, learned) = mpsc::unbounded_channel();
        let state = StateDir::open(&path, "a", BOOT, 1).unwrap();
        fs::remove_dir_all(&path).unwrap();
        let remembering = tokio::spawn(remember(state, learned));
        news.send(Learned::Cell("shore.1".into())).unwrap();
        tokio::time::sleep(TRIES_AGAIN).await;
        fs::create_dir(&path).unwrap();
        tokio::time::sleep(TRIES_AGAIN + Duration::from_secs(1)).await;
        assert_eq!(stored(&path).cell, "shore.1");
        drop(news);
        remembering.await.unwrap();
    }
}
