//! Files that hold secrets, and files that change.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file could not be written. The message names the file; not worth a retry without a change outside.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct WriteError {
    /// File as it was named.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Distinguishes one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// The version that the file has now; of a symbolic link, the file that it names.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// Who beside its owner may read a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Nobody.
    Owner,
    /// Its group: a volume of a pod that does not run as root gives secrets to the pod's group.
    Group,
}

/// Reads a text that is secret, if it is a file that nobody else may read or write. The message of an error
/// says what to do, and does not name the file.
pub fn read_secret(path: &Path, readers: Readers) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no file"));
    }
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    let refuse = |text: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    let others = match readers {
        Readers::Owner => 0o077,
        Readers::Group => 0o027,
    };
    let mode = found.mode() & 0o7777;
    if mode & others != 0 {
        let fix = match readers {
            Readers::Owner => "`chmod 600`",
            Readers::Group => "`chmod 600`, or `defaultMode: 0440` for the volume of a Secret",
        };
        return refuse(format!(
            "with mode {mode:04o} others may read or write it: {fix}, and replace it if somebody may have read it"
        ));
    }
    // Who owns a file can change its mode.
    let (owner, own) = (found.uid(), effective_uid()?);
    if owner != own && owner != 0 {
        return refuse(format!(
            "user {owner} owns it, and this process runs as user {own}: `chown {own}`"
        ));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// The user that this process runs as. The owner of a process's own directory in `/proc` is its effective
/// user (proc(5)).
pub fn effective_uid() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}

/// Writes a file that only its owner may read (0600), whole or not at all: a reader sees the old content or
/// the new, also after a crash. A symbolic link is replaced, not followed.
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let fail = |source| WriteError {
        path: path.to_owned(),
        source,
    };
    let Some(name) = path.file_name() else {
        return Err(fail(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this names no file",
        )));
    };
    let mut temporary;
    let filled = loop {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(
            ".{}-{}",
            std::process::id(),
            SERIAL.fetch_add(1, Ordering::Relaxed)
        ));
        temporary = directory_of(path).join(hidden);
        match fill(&temporary, bytes) {
            // A process of the same number that was killed has left it. In containers all are 1.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            filled => break filled,
        }
    };
    let written = filled.and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        if let Err(left) = fs::remove_file(&temporary)
            && left.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %temporary.display(), error = %left, "a temporary file stays behind");
        }
        return Err(fail(error));
    }
    sync_name(path).map_err(fail)
}

/// Has the name of a file on disk, as it is now. A file that was made, renamed or removed is so after a crash
/// only once its directory is on disk.
pub fn sync_name(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn fill(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn entries(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn a_secret_is_private_and_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        fs::write(&path, "old and longer than the new one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_secret(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(entries(directory.path()), 1);
    }

    #[test]
    fn what_a_killed_process_of_the_same_number_left_hinders_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        for serial in 0..1_000 {
            let left = format!(".key.pem.{}-{serial}", std::process::id());
            fs::write(directory.path().join(left), "half").unwrap();
        }
        write_secret(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn a_secret_is_read_where_nobody_else_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        fs::write(&path, "secret").unwrap();
        for (mode, owner, group) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o640, false, true),
            (0o440, false, true),
            (0o620, false, false),
            (0o604, false, false),
            (0o644, false, false),
            (0o666, false, false),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            for (readers, allowed) in [(Readers::Owner, owner), (Readers::Group, group)] {
                match read_secret(&path, readers) {
                    Ok(text) => assert!(allowed && text == "secret", "{mode:o} {readers:?}"),
                    Err(error) => {
                        assert!(!allowed, "{mode:o} {readers:?}: {error}");
                        assert!(error.to_string().contains(&format!("mode {mode:04o}")), "{error}");
                    }
                }
            }
        }
        let error = read_secret(directory.path(), Readers::Group).unwrap_err();
        assert_eq!(error.to_string(), "this is no file");
    }

    #[test]
    fn a_secret_of_somebody_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        fs::write(&path, "secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if effective_uid().unwrap() != 0 {
            return; // Only root gives files away.
        }
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        let error = read_secret(&path, Readers::Owner).unwrap_err().to_string();
        assert!(error.starts_with("user 12345 owns it"), "{error}");
    }

    #[test]
    fn errors_name_the_file_and_leave_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("no/such/key.pem");
        let error = write_secret(&missing, b"x").unwrap_err().to_string();
        assert!(
            error.contains("no/such/key.pem") && error.contains("No such file"),
            "{error}"
        );

        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = write_secret(&taken, b"x").unwrap_err().to_string();
        assert!(error.contains("/taken: "), "{error}");
        assert_eq!(entries(directory.path()), 1);

        assert!(write_secret(Path::new("/"), b"x").is_err());
    }
}
