//! What goes into the core, and what comes out.

use crate::core::{FencingToken, StopReason};
use crate::runner::deadlines::Deadlines;
use crate::runner::status::Ended;
use nix::sys::signal::Signal;
use std::time::Duration;

/// What follows when leadership is lost while the command runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnLost {
    /// TERM, then KILL before the lease is free; then campaign again
    Stop,
    /// KILL at once; then campaign again
    Kill,
    /// TERM, then KILL before the lease is free; then exit with 75
    #[default]
    Exit,
}

/// Exit code: leadership was lost, the command has been stopped. `EX_TEMPFAIL`: start again.
pub const LOST: u8 = 75;
/// Exit code: another candidate runs under this identity. `EX_CONFIG`: give each its own.
pub const DUPLICATE: u8 = 78;
/// Exit code: the command could not be kept (no process could be made, or its keeper was killed), or the candidate died
/// of a defect.
pub const FAILED: u8 = 1;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This candidate leads: a new term, a recovered one, or a renewal of the one that is known.
    Leads {
        /// Names the term.
        token: FencingToken,
        /// For how long that is good.
        deadlines: Deadlines,
    },
    /// It does not lead (any more).
    Follows,
    /// The candidate has ended; without a reason: it died of a defect. Comes once, and nothing of the election after it.
    ElectionEnded(Option<StopReason>),
    /// The runner got a signal.
    Signal(Signal),
    /// No process of the command is left.
    Ended(Ended),
    /// The keeper could not be started, or has ended without a word. The command has been killed.
    KeeperGone,
    /// The time of [`Runner::wake_at`](super::Runner::wake_at) has come. Harmless at any other time.
    Wake,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the command for this term.
    Start {
        /// What it may stamp on its writes.
        token: FencingToken,
        /// Up to when it may run.
        deadlines: Deadlines,
    },
    /// The term was renewed.
    Extend(Deadlines),
    /// Pass a signal on to the command's main process.
    Forward(Signal),
    /// Make the command end: the signal to all of its processes, and KILL at a time. Again for a command that is
    /// ending: at most the time is brought forward.
    Stop {
        /// First word.
        signal: Signal,
        /// Last word. Earlier if the lease asks for it.
        kill_at: Duration,
    },
    /// KILL, now.
    Kill,
    /// The keeper does not do its work: kill it and the command.
    Destroy,
    /// End the candidacy, which gives the lease back.
    Withdraw,
    /// End the runner with this code.
    Exit(u8),
}
