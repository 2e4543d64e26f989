//! What a container has beside its record once it does something: output, sockets, a process.

use super::log::Ring;
use jiff::Timestamp;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) ring: Ring,
    /// Told when there is more output, and when it ends.
    pub(super) changed: Arc<Notify>,
    /// An end that was asked for by a signal: when, and with which code.
    pub(super) dying: Option<(Timestamp, i32)>,
    /// Ends its sockets.
    pub(super) sockets: Option<DropGuard>,
    /// Ends connections to it within the process; made with the first.
    pub(super) connections: Option<(CancellationToken, DropGuard)>,
    /// Ends its process.
    pub(super) process: Option<Process>,
}

/// A main process that is run (`run: command`).
#[derive(Debug)]
pub(super) struct Process {
    /// Ends it when it is dropped.
    pub(super) _ends: DropGuard,
    /// Told to all who are attached.
    pub(super) output: tokio::sync::broadcast::Sender<bytes::Bytes>,
    pub(super) input: Arc<super::commands::Tty>,
}

impl Live {
    /// Ends whatever works for the container.
    pub(super) fn end(&mut self) {
        self.sockets = None;
        self.connections = None;
        self.process = None;
        self.changed.notify_waiters();
    }

    /// Cancelled when the container ends or is forgotten.
    pub(super) fn connection(&mut self) -> CancellationToken {
        self.connections.get_or_insert_with(Self::token).0.clone()
    }

    /// A new token and what cancels it.
    pub(super) fn token() -> (CancellationToken, DropGuard) {
        let token = CancellationToken::new();
        (token.clone(), token.drop_guard())
    }
}
