//! The events of a world, in words.

use evenkeel_election::core::{FencingToken, Loss};
use std::fmt;
use std::time::Duration;

/// One line of a script.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The true time of the event.
    pub(super) at: Duration,
    /// The candidate that it concerns, and the boot clock there.
    pub(super) who: Option<(String, Duration)>,
    /// The event.
    pub(super) what: What,
}

/// An event in a script.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A process starts.
    Starts,
    /// A fault of this duration begins.
    Fault(super::Fault, Duration),
    /// A fault is over: the candidate goes on, or its link works again.
    Over(super::Fault),
    /// A request is sent.
    Sends(&'static str, u64),
    /// A request takes effect, or is refused (`false`), with the lock's holder and version after that.
    Arrives(u64, bool, String),
    /// The machine receives this event.
    Hears(String),
    /// The gate opens until this time on the boot clock.
    Opens(FencingToken, Duration),
    /// The gate closes.
    Closes,
    /// Leadership was lost.
    Loses(Loss),
    /// The candidate ended by itself.
    Ends(String),
    /// No more faults from here.
    Calm,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.6} s ", self.at.as_secs_f64())?;
        if let Some((who, boot)) = &self.who {
            write!(f, "{who} (its clock {:.6}) ", boot.as_secs_f64())?;
        }
        match &self.what {
            What::Starts => f.write_str("starts"),
            What::Fault(fault, spell) => write!(f, "{fault:?} for {:.6} s", spell.as_secs_f64()),
            What::Over(fault) => write!(f, "{fault:?} is over"),
            What::Sends(request, id) => write!(f, "sends {request} #{id}"),
            What::Arrives(id, done, lock) => {
                write!(
                    f,
                    "#{id} {}; {lock}",
                    if *done { "takes effect" } else { "is refused" }
                )
            }
            What::Hears(event) => write!(f, "hears {event}"),
            What::Opens(token, until) => write!(f, "OPENS with {token} up to {:.6}", until.as_secs_f64()),
            What::Closes => f.write_str("closes"),
            What::Loses(loss) => write!(f, "loses: {loss}"),
            What::Ends(reason) => write!(f, "ends: {reason}"),
            What::Calm => f.write_str("no more faults"),
        }
    }
}
