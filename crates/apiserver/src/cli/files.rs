//! Files that appear as a whole or not at all.

use super::CliError;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is going to be written: a temporary file beside it is open already, so that writing can hardly
/// fail. Without `write` nothing remains of it.
pub(super) struct Pending {
    flag: &'static str,
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl Pending {
    /// Tries that `path` can be written; `flag` is named in errors.
    pub(super) fn new(flag: &'static str, path: &Path) -> Result<Self, CliError> {
        let unwritable = |why: String| CliError::Unwritable {
            flag,
            path: path.to_owned(),
            why,
        };
        if path.is_dir() {
            return Err(unwritable("is a directory".to_owned()));
        }
        let Some(name) = path.file_name() else {
            return Err(unwritable("is not the name of a file".to_owned()));
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", crate::access::uid::random()));
        let temporary = path.with_file_name(hidden);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|error| unwritable(error.to_string()))?;
        Ok(Self {
            flag,
            path: path.to_owned(),
            temporary,
            file,
        })
    }

    /// Writes the text and puts the file at its place.
    pub(super) fn write(&mut self, text: &str) -> Result<(), CliError> {
        self.file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_all())
            .and_then(|()| std::fs::rename(&self.temporary, &self.path))
            .map_err(|error| CliError::Unwritable {
                flag: self.flag,
                path: self.path.clone(),
                why: error.to_string(),
            })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.temporary) {
            // Written: the temporary file is the file itself now.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(file = %self.temporary.display(), %error, "cannot remove a temporary file");
            }
            Ok(()) => {}
        }
    }
}

/// The text of a file, or `None` if there is none.
pub(super) fn read_if_there(path: &Path) -> std::io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
