//! Records which terms the processes of one identity have held on this machine, to prove that earlier ones
//! have ended.
//!
//! A candidate that is started again under its own fixed identity finds its predecessor's record in the lock,
//! from which it cannot see whether the predecessor still runs. It waits until the record has expired. With a
//! [`TermFile`] it need not wait: each process of the identity locks a file for as long as it lives, and
//! records in it the terms that it holds. A process that gets the file lock knows that the one which recorded
//! a term has ended. It takes the lock at once, as a new term with a greater [`FencingToken`].
//!
//! The proof is that the kernel has released the lock of the very file that holds the records. So the records
//! name that file (device and inode) and the boot. A file that was copied, restored from a backup or created
//! again proves nothing, and neither does one of another boot, and so of another machine that has the
//! directory mounted. They prove nothing either if the record in the Lease is of another term or was taken at
//! another time: then somebody else has used the identity.
//!
//! Not covered are: other processes that the predecessor started and that outlive it; a file system whose
//! server takes locks away from clients that still run (use a local directory); a virtual machine that is
//! cloned with its memory; candidates of other kinds under the same identity, which continue a record of
//! their name in the same term.

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

/// A text that differs from boot to boot and from machine to machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Returned when a term file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path}")]
pub struct TermFileError {
    what: &'static str,
    path: String,
    #[source]
    source: io::Error,
}

/// The file in which the processes of one identity record the terms that they hold. One serves all elections
/// of a process; cheap to clone. The file lock is held until the last clone is dropped; each
/// [`Work`](crate::Work) has one.
#[derive(Clone)]
pub struct TermFile {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    path: PathBuf,
    file: File,
    /// The file that is locked, and the boot in which it is.
    origin: Origin,
    /// Whether this process holds the file lock, and so may write the file.
    owned: bool,
    /// The last term of each lock object, by the object's name.
    notes: BTreeMap<String, Note>,
    /// The notes that predecessors wrote.
    former: BTreeMap<String, Note>,
}

/// The file, and the boot of the machine, for which the notes are true. As long as a process has a file open,
/// no other file gets its numbers.
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
    /// The file of `identity` in `directory`, which is created for its owner alone if it does not exist.
    /// Another process of the identity may still hold the file lock.
    ///
    /// # Errors
    /// The directory or the file cannot be created or opened.
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

    /// The last term that a predecessor held of the lock object with this name, once all predecessors have
    /// ended.
    pub(crate) fn ended(&self, lock: &str) -> Result<Option<Term>, TermFileError> {
        let mut inner = self.inner();
        inner.own()?;
        Ok(inner.former.get(lock).map(Note::term))
    }

    /// Records that this process holds a term. Does nothing while another process holds the file lock.
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
    /// Takes the file lock if it is free, and reads the notes of predecessors.
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
            // Notes about locks that this process never holds stay in the file for the next process.
            self.notes = notes.terms;
        }
        Ok(())
    }

    /// Writes the file in place, because the lock belongs to this file and not to its name. A process that is
    /// killed half way leaves a file that cannot be read, which proves nothing. The file is of no use after a
    /// reboot, so it is not synced to disk.
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

/// An identity as part of a file name. Different identities give different names.
fn file_name(identity: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::new();
    for byte in identity.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    name
}

#[cfg(test)]
mod tests;
