//! The private key of an agent: a PEM file that only its owner may read.

use evenkeel_net::file::{Readers, read_secret};
use evenkeel_zone::keys::{KeyError, SigningKey};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Why there is no key. Each message names the file and what to do; the contents of the file never appear.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot read the agent's key {}: {source}; make one with `evenkeel agent keygen --out {}`", path.display(), path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Somebody else may have read it.
    #[error("the agent's key {} is not used: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// It does not hold a key.
    #[error("the agent's key {} is no key: {source}; make one with `evenkeel agent keygen --out FILE`", path.display())]
    Malformed { path: PathBuf, source: KeyError },
    /// There is such a file already.
    #[error("{} exists and is not overwritten: peers know its key; remove it first if that is meant", path.display())]
    Exists { path: PathBuf },
    /// The file cannot be written.
    #[error("cannot write the agent's key {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The agent's key, which is made where there is none: with a new key the agent has no vote until it has met
/// the others again.
pub fn load_or_make(path: &Path) -> Result<SigningKey, KeyFileError> {
    match load(path) {
        Err(KeyFileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            if let Some(directory) = path.parent() {
                let made = fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(directory);
                made.map_err(|source| KeyFileError::Write {
                    path: path.to_owned(),
                    source,
                })?;
            }
            let public = generate(path)?;
            tracing::info!(path = %path.display(), public, "made a key for this agent");
            load(path)
        }
        other => other,
    }
}

/// The key in a file that nobody else may read.
pub fn load(path: &Path) -> Result<SigningKey, KeyFileError> {
    let text = read_secret(path, Readers::Owner).map_err(|source| {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::PermissionDenied && fs::metadata(&path).is_ok() {
            KeyFileError::Open { path, source }
        } else {
            KeyFileError::Read { path, source }
        }
    })?;
    SigningKey::from_pem(&text).map_err(|source| KeyFileError::Malformed {
        path: path.to_owned(),
        source,
    })
}

/// Makes a key and writes it, readable by its owner only. Never overwrites. Returns the public half in
/// base64.
pub fn generate(path: &Path) -> Result<String, KeyFileError> {
    let malformed = |source| KeyFileError::Malformed {
        path: path.to_owned(),
        source,
    };
    let key = SigningKey::from_seed(&rand::random()).map_err(malformed)?;
    let pem = key.to_pem().map_err(malformed)?;
    let opened = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(pem.as_bytes())?;
        file.sync_all()
    });
    match written {
        Ok(()) => Ok(key.public().to_base64()),
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Err(KeyFileError::Exists {
            path: path.to_owned(),
        }),
        Err(source) => Err(KeyFileError::Write {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_generated_key_is_private_loads_again_and_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.key");
        let public = generate(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load(&path).unwrap().public().to_base64(), public);
        let error = generate(&path).unwrap_err().to_string();
        assert!(error.contains("agent.key exists"), "{error}");
        assert_eq!(load(&path).unwrap().public().to_base64(), public);
    }

    #[test]
    fn an_agent_without_a_key_makes_one_and_keeps_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("evenkeel/agent.key");
        let public = load_or_make(&path).unwrap().public().to_base64();
        assert_eq!(load_or_make(&path).unwrap().public().to_base64(), public);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_key_that_others_may_read_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.key");
        generate(&path).unwrap();
        for mode in [0o644, 0o640, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = load_or_make(&path).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
            assert!(
                error.contains(&format!("mode {mode:04o}")) && error.contains("chmod 600"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_a_key_is_one_line_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("none.key");
        let malformed = directory.path().join("bad.key");
        fs::write(&malformed, "secret but wrong").unwrap();
        fs::set_permissions(&malformed, fs::Permissions::from_mode(0o600)).unwrap();
        for path in [&missing, &malformed, &directory.path().to_owned()] {
            let error = load(path).unwrap_err().to_string();
            assert!(
                error.contains(&path.display().to_string()) && !error.contains('\n'),
                "{error}"
            );
            assert!(
                error.contains("evenkeel agent keygen --out") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
