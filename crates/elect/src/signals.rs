//! Signals that the runner process receives.

use nix::sys::signal::Signal;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind};

/// TERM and INT end the runner; the others are passed on to the command.
const WATCHED: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Receives these signals for the whole process, so that they do not have their default effect any more.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub(crate) fn watch() -> io::Result<Self> {
        let watch = |signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        WATCHED
            .into_iter()
            .map(watch)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next signal. Cancel safe. Several signals of the same kind may be reported as one.
    pub(crate) async fn next(&mut self) -> Signal {
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
