//! Which terms processes of one identity have held on this machine: a proof for the next one that they have ended.
//!
//! A candidate that is started again under its own fixed identity finds its predecessor's record in the lock, and cannot
//! tell from it whether the predecessor still runs. It waits until the record has expired. With a [`TermFile`] it need not:
//! each process of the identity locks a file for as long as it lives, and notes in it the terms that it holds. Whoever gets
//! the file lock knows that the process which noted a term has ended, and takes what it held at once, as a new term with a
//! greater [`FencingToken`].
//!
//! The proof is that of the kernel which released the file lock. It holds for what was written into the very file that was
//! locked, so the notes name that file (device and inode) and the boot. A file that was copied, restored from a backup or
//! made anew proves nothing, and neither does one of another boot, thus of another machine that has the directory mounted.
//! The same goes where the record in the Lease is of another term, or was taken at another time: then somebody else has
//! used the identity.
//!
//! What is not covered: work in other processes, which the predecessor began and which outlives it; a file system whose
//! server takes locks away from clients that live (use a local directory); a virtual machine that is cloned with its memory;
//! candidates of other kinds under the same identity, which continue a record of their name in the same term.

use crate::core::{FencingToken, Term};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Differs from boot to boot, and from machine to machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// What cannot be done with the file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path}")]
pub struct TermFileError {
    what: &'static str,
    path: String,
    #[source]
    source: io::Error,
}

/// The file in which processes of one identity note the terms that they hold. Cheap to clone; one for all elections of a
/// process. The file lock is held until the last clone is dropped; each [`Work`](crate::Work) of a term has one.
#[derive(Clone)]
pub struct TermFile {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    path: PathBuf,
    file: File,
    /// Which file it is, and since when it can have been locked.
    origin: Origin,
    /// Whether the file lock is ours, and with it the file.
    owned: bool,
    /// By the name of the lock object.
    notes: BTreeMap<String, Note>,
    /// Those that predecessors wrote.
    former: BTreeMap<String, Note>,
}

/// What the notes are true of: one file, in one boot of one machine. A file that a living process has locked cannot have
/// the numbers of another one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Origin {
    boot: String,
    device: u64,
    inode: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notes {
    origin: Origin,
    terms: BTreeMap<String, Note>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    lease_uid: String,
    transitions: i32,
    acquired: Timestamp,
}

impl fmt::Debug for TermFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermFile")
            .field("path", &self.inner().path)
            .finish_non_exhaustive()
    }
}

impl TermFile {
    /// The file of `identity` in `directory`, which is made where it is missing, with rights for its owner alone. Another
    /// process of the identity may still hold the file lock.
    ///
    /// # Errors
    /// The directory or the file cannot be made or opened.
    pub fn open(directory: &Path, identity: &str) -> Result<Self, TermFileError> {
        let failed = |what, path: &Path| {
            let path = path.display().to_string();
            move |source| TermFileError { what, path, source }
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(failed("make the directory", directory))?;
        let path = directory.join(format!("terms-{}.json", file_name(identity)));
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open", &path))?;
        let about = file.metadata().map_err(failed("open", &path))?;
        let boot = fs::read_to_string(BOOT).map_err(failed("read", Path::new(BOOT)))?;
        let origin = Origin {
            boot: boot.trim().to_owned(),
            device: about.dev(),
            inode: about.ino(),
        };
        let inner = Inner {
            path,
            file,
            origin,
            owned: false,
            notes: BTreeMap::new(),
            former: BTreeMap::new(),
        };
        let inner = Arc::new(Mutex::new(inner));
        Ok(Self { inner })
    }

    /// The last term that a predecessor held of the lock object of this name, once all predecessors have ended.
    pub(crate) fn ended(&self, lock: &str) -> Result<Option<Term>, TermFileError> {
        let mut inner = self.inner();
        inner.own()?;
        Ok(inner.former.get(lock).map(Note::term))
    }

    /// Notes that this process holds a term. Nothing is noted while another process has the file.
    pub(crate) fn hold(&self, lock: &str, term: &Term) -> Result<(), TermFileError> {
        let Some(note) = Note::of(term) else {
            return Ok(());
        };
        let mut inner = self.inner();
        inner.own()?;
        if !inner.owned || inner.notes.get(lock) == Some(&note) {
            return Ok(());
        }
        inner.notes.insert(lock.to_owned(), note);
        inner.write()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes the file lock if it is free, and reads what predecessors noted.
    fn own(&mut self) -> Result<(), TermFileError> {
        if self.owned {
            return Ok(());
        }
        match self.file.try_lock() {
            Ok(()) => self.owned = true,
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(source)) => return Err(self.failed("lock", source)),
        }
        let mut text = Vec::new();
        if let Err(source) = self.file.read_to_end(&mut text) {
            return Err(self.failed("read", source));
        }
        if text.is_empty() {
            return Ok(());
        }
        let notes: Notes =
            serde_json::from_slice(&text).map_err(|error| self.failed("read", error.into()))?;
        if notes.origin == self.origin {
            self.former.clone_from(&notes.terms);
            // Those of locks that this process does not get to hold stay for the next one.
            self.notes = notes.terms;
        }
        Ok(())
    }

    /// In place, since the file lock is of this file and not of its name. A process that is ended half way leaves what
    /// cannot be read, which proves nothing. The notes need not outlive the machine, so nothing waits for the disk.
    fn write(&self) -> Result<(), TermFileError> {
        let notes = Notes {
            origin: self.origin.clone(),
            terms: self.notes.clone(),
        };
        let written = || {
            let text = serde_json::to_vec(&notes)?;
            self.file.set_len(0)?;
            self.file.write_all_at(&text, 0)
        };
        written().map_err(|source| self.failed("write", source))
    }

    fn failed(&self, what: &'static str, source: io::Error) -> TermFileError {
        TermFileError {
            what,
            path: self.path.display().to_string(),
            source,
        }
    }
}

impl Note {
    fn of(term: &Term) -> Option<Self> {
        Some(Self {
            lease_uid: term.token.lease_uid.clone(),
            transitions: term.token.transitions,
            acquired: term.acquired?,
        })
    }

    fn term(&self) -> Term {
        Term {
            token: FencingToken {
                lease_uid: self.lease_uid.clone(),
                transitions: self.transitions,
            },
            acquired: Some(self.acquired),
        }
    }
}

/// An identity as a part of a file's name, no two of them the same.
fn file_name(identity: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::new();
    for byte in identity.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

#[cfg(test)]
mod tests;
