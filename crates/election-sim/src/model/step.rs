//! The steps of a script, and how they are printed.

use super::{Model, State};
use std::fmt;

/// One event in a script. The candidates are 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Time passes, by this number of seconds on each clock.
    Pass([u8; 2]),
    /// The candidate wakes and reads its clock.
    Wake(u8),
    /// Its request takes effect.
    Commit(u8),
    /// It receives the answer.
    Answer(u8),
    /// It gives the request up; a write may yet take effect.
    Fail(u8),
    /// A write that it gave up takes effect.
    Late(u8),
    /// Its watch delivers the lock as it is now.
    Change(u8),
    /// Its watch delivers the lock as it was before the last change.
    StaleChange(u8),
    /// Its guarded work has ended.
    Drained(u8),
    /// Its process dies and starts again.
    Crash(u8),
    /// It is told to stop.
    Cancel(u8),
    /// It is told to hand over.
    HandOver(u8),
    /// The lock object is deleted.
    Delete,
}

impl Step {
    /// All steps of one candidate, including those that cannot be taken now.
    pub(super) fn of(node: u8) -> [Self; 11] {
        [
            Self::Wake(node),
            Self::Commit(node),
            Self::Answer(node),
            Self::Fail(node),
            Self::Late(node),
            Self::Change(node),
            Self::StaleChange(node),
            Self::Drained(node),
            Self::Crash(node),
            Self::Cancel(node),
            Self::HandOver(node),
        ]
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: &u8| if *node == 0 { 'a' } else { 'b' };
        match self {
            Self::Pass([a, b]) => write!(f, "time passes: {a} s on the clock of a, {b} s on that of b"),
            Self::Wake(node) => write!(f, "{} wakes", name(node)),
            Self::Commit(node) => write!(f, "{}'s request takes effect", name(node)),
            Self::Answer(node) => write!(f, "{} receives the answer", name(node)),
            Self::Fail(node) => write!(f, "{} gives the request up", name(node)),
            Self::Late(node) => write!(f, "a write that {} gave up takes effect", name(node)),
            Self::Change(node) => write!(f, "{} is told of the lock as it is", name(node)),
            Self::StaleChange(node) => write!(f, "{} is told of the lock as it was before", name(node)),
            Self::Drained(node) => write!(f, "{}'s guarded work has ended", name(node)),
            Self::Crash(node) => write!(f, "{} crashes and starts anew", name(node)),
            Self::Cancel(node) => write!(f, "{} is told to stop", name(node)),
            Self::HandOver(node) => write!(f, "{} is told to hand over", name(node)),
            Self::Delete => f.write_str("an administrator deletes the lock"),
        }
    }
}

/// A script and its model, from which every state can be computed again.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The steps in order.
    steps: Vec<Step>,
    model: Model,
}

impl Trace {
    pub(super) fn new(steps: Vec<Step>, model: Model) -> Self {
        Self { steps, model }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(mut state) = self.model.start() else {
            return Ok(());
        };
        let mut clocks = [0, 0];
        for step in &self.steps {
            if let Step::Pass([a, b]) = step {
                clocks = [clocks[0] + u64::from(*a), clocks[1] + u64::from(*b)];
            }
            let end = match state.after(*step, &self.model) {
                Some(Ok(next)) => {
                    state = next;
                    state.to_string()
                }
                Some(Err(violation)) => violation.to_string(),
                None => "cannot happen".to_owned(),
            };
            writeln!(f, "a {:>2} s, b {:>2} s: {step}; {end}", clocks[0], clocks[1])?;
        }
        Ok(())
    }
}

impl State {
    /// Which gates are open, in words.
    pub(super) fn gates(&self) -> String {
        match self.open_gates() {
            [false, false] => "no gate open".to_owned(),
            [true, false] => "a's gate open".to_owned(),
            [false, true] => "b's gate open".to_owned(),
            [true, true] => "both gates open".to_owned(),
        }
    }
}
