//! The serving certificate: of files, or of the cluster's signer; replaced while connections are open. And
//! the authority of client certificates, replaced likewise.
//!
//! One [`ServerTls`](evenkeel_net::serve::ServerTls) serves all nodes of a process. It begins without a
//! certificate: until one is there, handshakes fail.

pub mod clients;
pub mod files;
pub mod signed;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often files are read again.
pub const AGAIN: Duration = Duration::from_secs(60);

/// A file could not be read. Worth a retry where somebody is about to write it.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} {}: {source}", path.display())]
pub struct Unreadable {
    /// What it should hold.
    pub what: &'static str,
    /// File as it was named.
    pub path: PathBuf,
    /// What the system says.
    #[source]
    pub source: std::io::Error,
}

async fn read(what: &'static str, path: &Path) -> Result<String, Unreadable> {
    tokio::fs::read_to_string(path)
        .await
        .map_err(|source| Unreadable {
            what,
            path: path.to_owned(),
            source,
        })
}
