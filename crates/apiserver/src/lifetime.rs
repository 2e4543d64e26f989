//! Whether the server runs, and what ends with it when it crashes.
//!
//! A crash is played, not caused: the objects stay in memory, as they would in etcd, and everything that
//! belongs to the process ends. That is its listeners, its connections, its requests, and the history that
//! watches are served from.

use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The present life of the server.
#[derive(Clone, Debug)]
pub(crate) enum Life {
    /// It answers. The token is cancelled by a crash.
    Up(CancellationToken),
    /// It has crashed and not come back yet.
    Down,
}

/// Follows the server through its crashes.
#[derive(Debug)]
pub(crate) struct Lifetime {
    life: watch::Sender<Life>,
    /// Held while the server goes down or comes back, so that two callers do not do half of each.
    turn: Mutex<()>,
}

impl Default for Lifetime {
    fn default() -> Self {
        Self {
            life: watch::Sender::new(Life::Up(CancellationToken::new())),
            turn: Mutex::default(),
        }
    }
}

impl Lifetime {
    /// The token of the present life; `None` while the server is down.
    pub(crate) fn present(&self) -> Option<CancellationToken> {
        match &*self.life.borrow() {
            Life::Up(token) => Some(token.clone()),
            Life::Down => None,
        }
    }

    /// Waits until the server answers, and returns the token of that life.
    pub(crate) async fn up(&self) -> CancellationToken {
        let mut life = self.life.subscribe();
        loop {
            if let Life::Up(token) = &*life.borrow_and_update() {
                return token.clone();
            }
            if life.changed().await.is_err() {
                // The sender lives as long as the server, and the server is borrowed here.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Ends the present life. `false` if the server is down already.
    pub(crate) fn end(&self) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // First the state, so that nobody who sees the token cancelled finds the server up.
        match self.life.send_replace(Life::Down) {
            Life::Up(token) => {
                token.cancel();
                true
            }
            Life::Down => false,
        }
    }

    /// Begins a new life after `prepare`. `false`, without `prepare`, if the server is up already.
    pub(crate) fn begin(&self, prepare: impl FnOnce()) -> bool {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.present().is_some() {
            return false;
        }
        prepare();
        self.life.send_replace(Life::Up(CancellationToken::new()));
        true
    }
}
