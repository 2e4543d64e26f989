//! Signals to the runner.

use nix::sys::signal::Signal;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind};

/// TERM and INT end the runner, the others are the command's.
const WATCHED: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// The signals that a runner takes, from now on for the whole process.
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub(super) fn watch() -> io::Result<Self> {
        let watch = |signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        WATCHED
            .into_iter()
            .map(watch)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next one. Nothing is lost when the future is dropped; of the same kind, several may be one.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}
