//! Bearer tokens of bases: a file with one per line, read again when it has changed.

use evenkeel_net::file::Stamp;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use subtle::{Choice, ConstantTimeEq as _};
use tokio::time::Instant;

/// How often the file is checked for a change.
const RELOAD: Duration = Duration::from_secs(1);

/// The file with the tokens cannot be used. Worth a retry once it has been corrected.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the tokens of bases in {}: {source}", path.display())]
    Read {
        /// File as it was named.
        path: PathBuf,
        /// The error of reading it.
        #[source]
        source: std::io::Error,
    },
    #[error("{} holds no token; write one per line", .0.display())]
    Empty(PathBuf),
}

/// The tokens of a file. Cheap to clone.
#[derive(Clone)]
pub struct Tokens {
    path: Arc<Path>,
    state: Arc<Mutex<State>>,
}

struct State {
    /// Digests of the tokens, so that the time of a comparison does not depend on their lengths.
    digests: Vec<[u8; 32]>,
    stamp: Option<Stamp>,
    checked: Instant,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Tokens {
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let (digests, stamp) = digests(path)?;
        Ok(Self {
            path: path.into(),
            state: Arc::new(Mutex::new(State {
                digests,
                stamp: Some(stamp),
                checked: Instant::now(),
            })),
        })
    }

    /// Whether this is one of the tokens. Takes the same time whatever is wrong with it. A file that cannot
    /// be read any more leaves those that were read last.
    pub fn accepts(&self, token: &str) -> bool {
        // Nothing is half done when a holder panics: the fields are assigned one by one.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= RELOAD {
            state.checked = Instant::now();
            self.reload(&mut state);
        }
        let offered: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let mut found = Choice::from(0);
        for digest in &state.digests {
            found |= digest.ct_eq(&offered);
        }
        found.into()
    }

    fn reload(&self, state: &mut State) {
        let stamp = Stamp::of_file(&self.path).ok();
        if stamp.is_some() && stamp == state.stamp {
            return;
        }
        match digests(&self.path) {
            Ok((digests, stamp)) => {
                tracing::info!(path = %self.path.display(), tokens = digests.len(), "the tokens of bases have changed");
                (state.digests, state.stamp) = (digests, Some(stamp));
            }
            Err(error) => {
                // Logged once, until the file changes again.
                if state.stamp != stamp {
                    tracing::warn!(%error, "the tokens of bases stay those that were read last");
                }
                state.stamp = stamp;
            }
        }
    }
}

fn digests(path: &Path) -> Result<(Vec<[u8; 32]>, Stamp), TokenError> {
    let fail = |source| TokenError::Read {
        path: path.to_owned(),
        source,
    };
    // The stamp first: a change after it is found the next time.
    let stamp = Stamp::of_file(path).map_err(fail)?;
    let text = fs::read_to_string(path).map_err(fail)?;
    let tokens = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let digests: Vec<[u8; 32]> = tokens
        .map(|token| Sha256::digest(token.as_bytes()).into())
        .collect();
    if digests.is_empty() {
        return Err(TokenError::Empty(path.to_owned()));
    }
    Ok((digests, stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> (tempfile::TempDir, Tokens) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        fs::write(&path, text).unwrap();
        let tokens = Tokens::read(&path).unwrap();
        (directory, tokens)
    }

    #[test]
    fn each_line_is_a_token() {
        let (_directory, tokens) = tokens("old\n\n  new \n");
        assert!(tokens.accepts("old") && tokens.accepts("new"));
        for wrong in ["", "ol", "oldx", "OLD", "old\nnew"] {
            assert!(!tokens.accepts(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_without_tokens_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        assert!(matches!(Tokens::read(&path), Err(TokenError::Read { .. })));
        fs::write(&path, "\n \n").unwrap();
        let error = Tokens::read(&path).unwrap_err().to_string();
        assert!(error.contains("/tokens holds no token"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_read_again_and_a_broken_one_changes_nothing() {
        let (directory, tokens) = tokens("old");
        let path = directory.path().join("tokens");
        let replace = |text: &str| {
            let new = directory.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, &path).unwrap();
        };
        replace("new");
        assert!(!tokens.accepts("new"), "it was checked just now");
        tokio::time::advance(RELOAD).await;
        assert!(tokens.accepts("new") && !tokens.accepts("old"));
        replace("");
        tokio::time::advance(RELOAD).await;
        assert!(tokens.accepts("new"));
        fs::remove_file(&path).unwrap();
        tokio::time::advance(RELOAD).await;
        assert!(tokens.accepts("new"));
        fs::write(&path, "again").unwrap();
        tokio::time::advance(RELOAD).await;
        assert!(tokens.accepts("again") && !tokens.accepts("new"));
    }
}
