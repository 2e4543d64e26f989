//! What outlives a restart, so that an agent that is cut off can start again and keeps its vote.

use evenkeel_api::zone::RosterSpec;
use evenkeel_net::file::{WriteError, write_secret};
use evenkeel_zone::roster::MemberId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A life of an agent begins this many bits above the sequences that are remembered as used.
pub const SEQUENCE_BLOCK_BITS: u32 = 20;

const FILE: &str = "agent-state.json";

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
    pub roster: Option<RosterSpec>,
    /// ID of the machine's boot in which they were.
    pub boot_id: String,
    /// UIDs of members that were seen alive since that boot.
    pub seen_alive: BTreeSet<String>,
    /// No statement was signed with a sequence a block of [`SEQUENCE_BLOCK_BITS`] above this.
    pub sequence_base: u64,
}

impl Memory {
    /// The members that were seen alive, by their names on the wire.
    pub fn seen_ids(&self) -> BTreeSet<MemberId> {
        self.seen_alive.iter().map(|uid| MemberId::of(uid)).collect()
    }

    /// Statements were signed with sequences up to `sequence`.
    pub fn used(&mut self, sequence: u64) {
        self.sequence_base = self.sequence_base.max(sequence);
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
}

impl StateDir {
    /// Opens the directory, makes it if needed, and reserves sequences for a new life. `unix_ms` only helps
    /// where the file was lost: sequences grow with it then, too. Who was seen alive before the boot `boot_id`
    /// is forgotten: it may not be back yet.
    ///
    /// A file that cannot be understood is put aside under another name, with a warning, and counts as lost.
    pub fn open(directory: &Path, node: &str, boot_id: &str, unix_ms: u64) -> Result<Self, StateError> {
        fs::create_dir_all(directory).map_err(|source| StateError::Directory {
            path: directory.to_owned(),
            source,
        })?;
        let file = directory.join(FILE);
        let mut memory = read(&file)?;
        if memory.node != node {
            // Another node's state, or none: sequences keep growing in any case.
            memory = Memory {
                node: node.to_owned(),
                sequence_base: memory.sequence_base,
                ..Memory::default()
            };
        }
        if memory.boot_id != boot_id {
            memory.boot_id = boot_id.to_owned();
            memory.seen_alive.clear();
        }
        // A block for one millisecond, and for what a life has signed since it last wrote down how far it
        // came.
        let next = (memory.sequence_base >> SEQUENCE_BLOCK_BITS).saturating_add(1);
        // No clock is right that says more than this, and no sequence may overflow: the year 2248.
        memory.sequence_base =
            next.max(unix_ms.min(u64::MAX >> (SEQUENCE_BLOCK_BITS + 1))) << SEQUENCE_BLOCK_BITS;
        let state = Self { file, memory };
        state.save()?;
        Ok(state)
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Changes what is remembered, and writes it if that makes a difference.
    pub fn update(&mut self, change: impl FnOnce(&mut Memory)) -> Result<(), StateError> {
        let before = self.memory.clone();
        change(&mut self.memory);
        if self.memory == before {
            Ok(())
        } else {
            self.save()
        }
    }

    fn save(&self) -> Result<(), StateError> {
        let text = serde_json::to_vec_pretty(&self.memory).expect("strings, numbers and lists are JSON");
        Ok(write_secret(&self.file, &text)?)
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
    match serde_json::from_slice(&bytes) {
        Ok(memory) => Ok(memory),
        Err(error) => {
            let aside = file.with_extension("json.bad");
            tracing::warn!(file = %file.display(), aside = %aside.display(), %error, "state file cannot be understood");
            fs::rename(file, &aside).map_err(|source| StateError::Read {
                path: file.to_owned(),
                source,
            })?;
            Ok(Memory::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let roster = RosterSpec {
            version: 4,
            members: vec![],
        };
        let learned = roster.clone();
        state
            .update(|memory| (memory.roster, memory.node_uid) = (Some(learned), "u".into()))
            .unwrap();
        drop(state);
        let again = StateDir::open(directory.path(), "a", BOOT, 1).unwrap();
        assert_eq!(
            (again.memory().roster.as_ref(), again.memory().node_uid.as_str()),
            (Some(&roster), "u")
        );
        let other = StateDir::open(directory.path(), "b", BOOT, 1).unwrap();
        assert_eq!(other.memory().roster, None);
    }

    #[test]
    fn a_broken_file_is_put_aside_and_a_bad_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), "{").unwrap();
        StateDir::open(directory.path(), "a", BOOT, 1).unwrap();
        assert!(directory.path().join("agent-state.json.bad").exists());
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
            state.memory().seen_alive.len()
        };
        let mut state = StateDir::open(directory.path(), "a", BOOT, 1).unwrap();
        state
            .update(|memory| memory.seen_alive = BTreeSet::from(["u".into()]))
            .unwrap();
        assert_eq!([met(BOOT), met("another"), met(BOOT)], [1, 0, 0]);
    }
}
