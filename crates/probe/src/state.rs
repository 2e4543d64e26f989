//! What survives a restart of the prober, in a file.

use crate::core::engine::Snapshot;
use crate::manager::Shared;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between two writes at the least.
const PAUSE: Duration = Duration::from_secs(1);

/// After a write that failed, until it is tried again though nothing has changed.
const AGAIN: Duration = Duration::from_secs(30);

/// Writing takes one part in so many of the time at most: with ten thousand workers it is megabytes.
const SHARE: u32 = 20;

/// Largest file that is read, in bytes: ten thousand workers are some eight million.
const BYTES: u64 = 256 << 20;

/// The layout that is written, and the only one that is read.
const VERSION: u32 = 1;

/// A file that holds the state of a manager, as JSON: `{"version":1,"state":{"workers":[…]}}`. Readable by
/// its owner only; replaced whole, so that a crash leaves the old content or the new.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Content<S> {
    version: u32,
    state: S,
}

/// Only this, so that another layout is told apart from a broken file.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Why a file holds no state.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("it has version {0}, this prober reads version {VERSION}")]
    Version(u32),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

impl StateFile {
    /// The file at `path`; its directory must exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// What is in it; nothing if it does not exist. A file that cannot be read, or is larger than 256 MiB,
    /// starts the prober afresh, with a warning; one that is no state is renamed to `….broken` for whoever
    /// wants to know. Blocks.
    pub fn load(&self) -> Snapshot {
        let path = self.path.display();
        let bytes = match read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Snapshot::default(),
            Err(error) => {
                tracing::warn!(%path, %error, "cannot read the prober's state: every probe starts afresh");
                return Snapshot::default();
            }
        };
        parse(&bytes).unwrap_or_else(|error| {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".broken");
            match std::fs::rename(&self.path, &aside) {
                Ok(()) => tracing::warn!(
                    %path, %error, aside = %aside.display(),
                    "the file holds no state of a prober: it is put aside, and every probe starts afresh",
                ),
                Err(rename) => tracing::warn!(
                    %path, %error, %rename,
                    "the file holds no state of a prober and cannot be put aside: it will be overwritten, and every probe starts afresh",
                ),
            }
            Snapshot::default()
        })
    }

    /// Writes the state of a manager each time that something has changed, and at the end.
    pub(crate) async fn keep(self, shared: Arc<Shared>) {
        let mut failed = false;
        loop {
            let changed = async {
                if failed {
                    // Either will do: it is worth another try even if nothing changes any more.
                    let _ = tokio::time::timeout(AGAIN, shared.changed.notified()).await;
                } else {
                    shared.changed.notified().await;
                }
            };
            let ending = shared.shutdown.run_until_cancelled(changed).await.is_none();
            if ending {
                // What attempts find after the shutdown is not counted, but what they do may be.
                shared.tasks.wait().await;
            }
            let began = Instant::now();
            failed = self.save(shared.snapshot(), failed).await;
            if ending {
                return;
            }
            let pause = PAUSE.max(began.elapsed().saturating_mul(SHARE));
            // On a shutdown the loop comes round at once.
            shared
                .shutdown
                .run_until_cancelled(tokio::time::sleep_until(began + pause))
                .await;
        }
    }

    /// Writes off the runtime; whether that failed. It is said once until it succeeds again.
    async fn save(&self, snapshot: Snapshot, failed: bool) -> bool {
        let path = self.path.clone();
        let write = move || {
            let content = Content {
                version: VERSION,
                state: snapshot,
            };
            let bytes = serde_json::to_vec(&content).map_err(|error| error.to_string())?;
            evenkeel_net::file::write_secret(&path, &bytes).map_err(|error| error.to_string())
        };
        let error = match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => {
                if failed {
                    tracing::info!(path = %self.path.display(), "the prober's state can be written again");
                }
                return false;
            }
            Ok(Err(error)) => error,
            Err(error) => error.to_string(),
        };
        if !failed {
            tracing::warn!(%error, "cannot write the prober's state: after a restart it starts where it was written last");
        }
        true
    }
}

/// The whole of a regular file. What else may stand under the name (a device, a pipe) has no end, or keeps
/// waiting.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let unusable = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if !file.metadata()?.is_file() {
        return Err(unusable("this is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES {
        return Err(unusable(format!("it is larger than {BYTES} bytes")));
    }
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<Snapshot, Broken> {
    let Version { version } = serde_json::from_slice(bytes)?;
    if version != VERSION {
        return Err(Broken::Version(version));
    }
    let content: Content<Snapshot> = serde_json::from_slice(bytes)?;
    Ok(content.state)
}

#[cfg(test)]
mod tests;
