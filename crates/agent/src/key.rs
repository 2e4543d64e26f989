//! The private key of an agent: a PEM file that only its owner may read.

use evenkeel_net::file::{Readers, read_secret, sync_name, write_secret};
use evenkeel_zone::keys::{KeyError, PublicKey, SigningKey};
use evenkeel_zone::roster::Member;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, chown};
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
    /// The key is about to change.
    #[error("{} exists: the key changes already; wait until it is gone, or remove it if no agent runs here", path.display())]
    Changing { path: PathBuf },
    /// There is no key that could change.
    #[error("{} is no file: an agent makes its first key itself", path.display())]
    None { path: PathBuf },
    /// The file cannot be written.
    #[error("cannot write the agent's key {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What the roster in force, or an AgentStatus, says of an agent's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) key: PublicKey,
    pub(crate) next: Option<PublicKey>,
}

impl Claims {
    /// What a roster says of a member.
    pub(crate) fn of(member: &Member) -> Self {
        Self {
            key: member.key.clone(),
            next: member.next_key.clone(),
        }
    }
}

/// The file of an agent's key, and those beside it while the key changes: `FILE.next` and `FILE.former`.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    pub fn new(path: &Path) -> Self {
        let path = path.to_owned();
        Self { path }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    fn next(&self) -> PathBuf {
        self.beside(".next")
    }

    fn former(&self) -> PathBuf {
        self.beside(".former")
    }

    /// The agent's key, which is made where there is none: with a new key the agent has no vote until it has
    /// met the others again.
    pub fn load_or_make(&self) -> Result<SigningKey, KeyFileError> {
        let path = &*self.path;
        // A start that was killed, or found the disk full, has left the name alone behind.
        if fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0) {
            tracing::warn!(path = %path.display(), "the key file is empty: a key is made anew");
            fs::remove_file(path).map_err(failed_at(path))?;
        }
        if let Some(key) = load_if_there(path)? {
            return Ok(key);
        }
        if let Some(directory) = path.parent() {
            let made = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory);
            made.map_err(failed_at(path))?;
        }
        let public = generate(path)?;
        tracing::info!(path = %path.display(), public, "made a key for this agent");
        load(path)
    }

    /// The key that shall take the place of the present one, if there is one.
    pub fn load_next(&self) -> Result<Option<SigningKey>, KeyFileError> {
        load_if_there(&self.next())
    }

    /// The key whose place `present` took a moment ago, if there is one.
    pub fn load_former(&self, present: &SigningKey) -> Result<Option<SigningKey>, KeyFileError> {
        let former = load_if_there(&self.former())?;
        if former
            .as_ref()
            .is_some_and(|former| former.public() == present.public())
        {
            // What a kill between the two halves of `take_next` left.
            self.remove_former()?;
            return Ok(None);
        }
        Ok(former)
    }

    /// Makes the key that shall take the place of the present one. Returns its public half in base64.
    pub fn make_next(&self) -> Result<String, KeyFileError> {
        if !self.path.is_file() {
            return Err(KeyFileError::None {
                path: self.path.clone(),
            });
        }
        for path in [self.next(), self.former()] {
            if path.exists() {
                return Err(KeyFileError::Changing { path });
            }
        }
        // Whole or not at all, and readable by the agent, which may run as another user than who calls this.
        let next = self.next();
        let key = random_key(&next)?;
        let pem = key.to_pem().map_err(malformed_at(&next))?;
        write_secret(&next, pem.as_bytes()).map_err(|error| failed_at(&next)(error.source))?;
        let owned = fs::metadata(&self.path).and_then(|own| chown(&next, Some(own.uid()), Some(own.gid())));
        owned.map_err(failed_at(&next))?;
        Ok(key.public().to_base64())
    }

    /// The next key takes the place of the present one, which stays beside it. At each moment the file has
    /// one of both.
    pub fn take_next(&self) -> Result<(), KeyFileError> {
        let former = self.former();
        remove(&former)?;
        fs::hard_link(&self.path, &former).map_err(failed_at(&former))?;
        fs::rename(self.next(), &self.path).map_err(failed_at(&self.path))?;
        self.keep();
        Ok(())
    }

    /// Nobody uses the former key any more.
    pub fn remove_former(&self) -> Result<(), KeyFileError> {
        remove(&self.former())?;
        self.keep();
        Ok(())
    }

    /// Names survive a crash once their directory is on disk. Where that fails the step is made all the same:
    /// after a crash the files may be those of before it, which is a step that is made again.
    fn keep(&self) {
        if let Err(error) = sync_name(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the directory of the key is not on disk yet");
        }
    }
}

/// Removes a file, or finds that somebody has.
fn remove(path: &Path) -> Result<(), KeyFileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(failed_at(path)),
    }
}

fn malformed_at(path: &Path) -> impl FnOnce(KeyError) -> KeyFileError + Copy {
    move |source| KeyFileError::Malformed {
        path: path.to_owned(),
        source,
    }
}

fn random_key(path: &Path) -> Result<SigningKey, KeyFileError> {
    SigningKey::from_seed(&rand::random()).map_err(malformed_at(path))
}

fn failed_at(path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |source| KeyFileError::Write { path, source }
}

fn load_if_there(path: &Path) -> Result<Option<SigningKey>, KeyFileError> {
    match load(path) {
        Err(KeyFileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
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
    SigningKey::from_pem(&text).map_err(malformed_at(path))
}

/// Makes a key and writes it, readable by its owner only. Never overwrites. Returns the public half in
/// base64.
pub fn generate(path: &Path) -> Result<String, KeyFileError> {
    let key = random_key(path)?;
    let pem = key.to_pem().map_err(malformed_at(path))?;
    let opened = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let written = opened.and_then(|mut file| {
        let filled = file.write_all(pem.as_bytes()).and_then(|()| file.sync_all());
        // What is half written is no key, and would keep every later start from making one.
        filled.or_else(|full| fs::remove_file(path).and(Err(full)))
    });
    match written {
        Ok(()) => Ok(key.public().to_base64()),
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Err(KeyFileError::Exists {
            path: path.to_owned(),
        }),
        Err(source) => Err(failed_at(path)(source)),
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
        let made = || KeyFile::new(&path).load_or_make().unwrap().public().to_base64();
        assert_eq!(made(), made());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    /// Its first start was killed between making the file and filling it.
    #[test]
    fn an_agent_whose_key_file_is_empty_makes_a_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.key");
        fs::write(&path, "").unwrap();
        let made = KeyFile::new(&path).load_or_make().unwrap().public().to_base64();
        assert_eq!(load(&path).unwrap().public().to_base64(), made);
        fs::write(&path, "half a ke").unwrap();
        let error = KeyFile::new(&path).load_or_make().unwrap_err();
        assert!(matches!(error, KeyFileError::Malformed { .. }), "{error}");
    }

    #[test]
    fn a_key_that_others_may_read_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.key");
        generate(&path).unwrap();
        for mode in [0o644, 0o640, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = KeyFile::new(&path).load_or_make().unwrap_err().to_string();
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
