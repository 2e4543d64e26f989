//! Checks that a command can be run, before the first campaign.

use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Returned when a command is not found or is not executable. A retry does not help.
#[derive(Debug, thiserror::Error)]
#[error("cannot run `{}`: {source}", name.display())]
pub struct ProgramError {
    name: OsString,
    source: Error,
}

impl ProgramError {
    pub(crate) fn new(name: &OsStr, source: Error) -> Self {
        let name = name.to_owned();
        Self { name, source }
    }

    /// The exit codes of a shell: 127 for a command that is not found, 126 for one that cannot be run.
    pub fn exit_code(&self) -> u8 {
        if self.source.kind() == ErrorKind::NotFound {
            127
        } else {
            126
        }
    }
}

/// Refuses a command that is not found or is not executable. Searches as `execvp` does: on `path` if the name
/// has no slash.
pub(crate) fn check(name: &OsStr, path: Option<&OsStr>) -> Result<(), ProgramError> {
    let refuse = |kind, text: &str| Err(ProgramError::new(name, Error::new(kind, text)));
    if name.is_empty() {
        return refuse(ErrorKind::NotFound, "its name is empty");
    }
    if name.as_encoded_bytes().contains(&b'/') {
        return match executable(Path::new(name)) {
            Ok(true) => Ok(()),
            Ok(false) => refuse(ErrorKind::PermissionDenied, "not an executable file"),
            Err(error) => Err(ProgramError::new(name, error)),
        };
    }
    let mut there = false;
    for directory in std::env::split_paths(path.unwrap_or_default()) {
        match executable(&directory.join(name)) {
            Ok(true) => return Ok(()),
            Ok(false) => there = true,
            Err(_) => {}
        }
    }
    if there {
        return refuse(ErrorKind::PermissionDenied, "not an executable file");
    }
    refuse(ErrorKind::NotFound, "not found on $PATH")
}

fn executable(file: &Path) -> Result<bool, Error> {
    let metadata = file.metadata()?;
    Ok(metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_can_be_run_is_told_from_what_cannot() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            let path = home.path().join(name);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.into_os_string()
        };
        let (tool, text) = (file("tool", 0o755), file("text", 0o644));
        let path = std::env::join_paths([Path::new("/nowhere"), home.path()]).unwrap();
        let code = |name: &OsStr| {
            check(name, Some(&path)).map_err(|error| {
                assert!(error.to_string().contains(name.to_str().unwrap()), "{error}");
                error.exit_code()
            })
        };
        assert_eq!(code(&tool), Ok(()));
        assert_eq!(code(OsStr::new("tool")), Ok(()));
        assert_eq!(code(&text), Err(126));
        assert_eq!(code(OsStr::new("text")), Err(126));
        assert_eq!(code(home.path().as_os_str()), Err(126));
        assert_eq!(code(OsStr::new("/nowhere/tool")), Err(127));
        assert_eq!(code(OsStr::new("nothing")), Err(127));
        assert_eq!(code(OsStr::new("")), Err(127));
    }
}
