//! Events that the pure runner takes, and actions that it asks for.

use super::deadlines::Deadlines;
use super::status::Ended;
use evenkeel_election::{FencingToken, StopReason};
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

/// Exit code after leadership was lost and the command has been stopped: `EX_TEMPFAIL`, so start it again.
pub(crate) const LOST: u8 = 75;
/// Exit code when another candidate runs under this identity: `EX_CONFIG`, so give each candidate its own.
pub(crate) const DUPLICATE: u8 = 78;
/// Exit code when no keeper could be started, when the keeper was killed, or when the candidate ended because
/// of a defect.
pub(crate) const FAILED: u8 = 1;

/// An input of [`Runner::step`](super::runner::Runner::step).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// This candidate leads: a new term, a recovered one, or a renewal of the one that is known.
    Leads {
        /// Fencing token of the term.
        token: FencingToken,
        /// Until when the command of this term may run.
        deadlines: Deadlines,
    },
    /// This candidate does not lead, or not any more.
    Follows,
    /// The candidate has ended. `None` stands for a defect, such as a panic of the election task. This event
    /// comes at most once, and no other event of the election comes after it.
    ElectionEnded(Option<StopReason>),
    /// The runner process received a signal.
    Signal(Signal),
    /// No process of the command is left.
    Ended(Ended),
    /// The keeper could not be started, or has ended without a report. The command has been killed.
    KeeperGone,
    /// The time of [`Runner::wake_at`](super::runner::Runner::wake_at) has come. Harmless at any other time.
    Wake,
}

/// An output of [`Runner::step`](super::runner::Runner::step), to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start the command for this term.
    Start {
        /// Fencing token of the term; the command may stamp it on its writes.
        token: FencingToken,
        /// Until when the command may run.
        deadlines: Deadlines,
    },
    /// Give the keeper later deadlines, because the term was renewed.
    Extend(Deadlines),
    /// Pass a signal on to the command's main process.
    Forward(Signal),
    /// Make the command end. For a command that is already ending, this can only bring KILL forward.
    Stop {
        /// Sent to all of its processes at once.
        signal: Signal,
        /// When they get KILL; earlier if the lease runs out before.
        kill: Duration,
    },
    /// Send KILL to all processes of the command now.
    Kill,
    /// Kill the keeper and the command, because the keeper did not end the command in time.
    Destroy,
    /// End the candidacy, which gives the lease back.
    Withdraw,
    /// End the runner with this code.
    Exit(u8),
}
