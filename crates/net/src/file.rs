//! Files that hold secrets.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
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
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(
        ".{}-{}",
        std::process::id(),
        SERIAL.fetch_add(1, Ordering::Relaxed)
    ));
    let temporary = directory.join(temporary);

    let written = fill(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        if let Err(left) = fs::remove_file(&temporary)
            && left.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %temporary.display(), error = %left, "a temporary file stays behind");
        }
        return Err(fail(error));
    }
    // The rename itself survives a crash only once the directory is on disk.
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(fail)
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
