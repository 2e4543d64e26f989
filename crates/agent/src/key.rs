//! The private key of an agent: a PEM file that only its owner may read.

use evenkeel_zone::keys::{KeyError, SigningKey};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Why there is no key. Each message names the file and what to do; the contents of the file never appear.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot read the agent's key {}: {source}; make one with `evenkeel agent keygen --out {}`", path.display(), path.display())]
    Read { path: PathBuf, source: io::Error },
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

pub fn load(path: &Path) -> Result<SigningKey, KeyFileError> {
    let text = fs::read_to_string(path).map_err(|source| KeyFileError::Read {
        path: path.to_owned(),
        source,
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
    fn what_is_wrong_with_a_key_is_one_line_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("none.key");
        let malformed = directory.path().join("bad.key");
        fs::write(&malformed, "secret but wrong").unwrap();
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
