//! Signals that runner and keeper receive.

use evenkeel_net::shutdown;
use nix::sys::signal::Signal;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{self, SignalKind};

/// Of the runner: TERM and INT end it; the others are passed on to the command.
pub(crate) const OF_RUNNER: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// Of the keeper, which ends by each of them.
pub(crate) const OF_KEEPER: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Receives signals for the whole process, so that they do not have their default effect any more. HUP is
/// left alone where the process was started to ignore it (`nohup`): the command inherits that.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    pub(crate) fn watch(signals: &[Signal]) -> io::Result<Self> {
        let watch = |signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        let minds_sighup = shutdown::minds_sighup();
        signals
            .iter()
            .copied()
            .filter(|signal| *signal != Signal::SIGHUP || minds_sighup)
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
