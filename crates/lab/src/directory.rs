//! The lab's directory: one lab at a time, and files that only their owner reads.

use evenkeel_net::file::write_secret;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// Where a lab lives unless `--dir` says otherwise.
pub const DEFAULT: &str = ".evenkeel/lab";

/// Why a directory cannot be used. Not worth a retry, except `InUse` once the other lab has ended.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another lab runs there.
    #[error("a lab is running in {directory}{}: stop it, or choose another directory with --dir", owner(*.pid))]
    InUse {
        directory: PathBuf,
        /// The process that holds it, where it said so.
        pid: Option<u32>,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {path}: {source}; choose a writable directory with --dir")]
    Unwritable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// A directory that this process holds. The lock goes with the process, however it ends.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the directory (mode 0700) where it is missing, locks it, and clears what an earlier lab left.
    pub fn claim(root: &Path) -> Result<Self, DirectoryError> {
        make_dir(root)?;
        let root = std::path::absolute(root).map_err(|source| unwritable(root, source))?;
        let path = root.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|source| unwritable(&path, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // Who holds it is a courtesy; that it is held is already known.
                let _ = lock.read_to_string(&mut pid);
                return Err(DirectoryError::InUse {
                    directory: root,
                    pid: pid.trim().parse().ok(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(unwritable(&path, source)),
        }
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(|source| unwritable(&path, source))?;
        let directory = Self { root, _lock: lock };
        for leftover in [directory.control_socket(), directory.kubeconfig()] {
            remove(&leftover)?;
        }
        make_dir(&directory.logs())?;
        Ok(directory)
    }

    /// The directory, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Where the running lab takes orders.
    pub fn control_socket(&self) -> PathBuf {
        control_socket(&self.root)
    }

    /// Folder of the log files, one for each process.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Log file of a process.
    pub fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    /// A folder of one process (`nodes/shore-1`, `controller`), made where it is missing.
    pub fn folder(&self, name: &str) -> Result<PathBuf, DirectoryError> {
        let path = self.root.join(name);
        make_dir(&path)?;
        Ok(path)
    }

    /// Writes a file that only its owner reads (mode 0600), in one step.
    pub fn write_secret(&self, path: &Path, content: &str) -> Result<(), DirectoryError> {
        write_secret(path, content.as_bytes()).map_err(|error| unwritable(path, error.source))
    }

    /// Removes what must not outlive the lab: nobody listens at the socket, and the credentials open nothing.
    pub fn clean(&self) -> Result<(), DirectoryError> {
        remove(&self.control_socket())?;
        remove(&self.kubeconfig())
    }
}

/// Where a lab in this directory takes orders.
pub fn control_socket(root: &Path) -> PathBuf {
    root.join("control.sock")
}

fn unwritable(path: &Path, source: io::Error) -> DirectoryError {
    DirectoryError::Unwritable {
        path: path.to_owned(),
        source,
    }
}

fn make_dir(path: &Path) -> Result<(), DirectoryError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| unwritable(path, source))
}

fn remove(path: &Path) -> Result<(), DirectoryError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(unwritable(path, source)),
    }
}
