//! How an agent acknowledges the roster of its cell, and how a learner says whom it has met (hazards 4 and
//! 43).
//!
//! The controller takes a roster for settled when most of the former voters have acknowledged it, and makes a
//! learner a voter when it has met the others. Where the API server was restored from a backup, it shows an
//! earlier roster than the one that is in force here, and the controller has to learn which it must go
//! beyond. Nobody else writes anything: a cell whose roster is settled, is shown, and has no learners
//! acknowledges nothing.

use super::Output;
use super::contacts::Contacts;
use super::context::Context;
use super::write::Write;
use crate::Millis;

/// The members of a cell acknowledge a roster over a time that grows with their number, so that not all of
/// them write at once: 64 members over 20 s.
const SPREAD_OF_ONE_MS: u64 = 300;
const LONGEST_SPREAD_MS: u64 = 20_000;
/// A learner that meets one member after the other says so this often, and that it has met all soon.
const MEETS_MS: u64 = 5_000;
const MET_ALL_MS: u64 = 500;
/// As long as an acknowledgement is owed it is repeated: the object may have been deleted and made anew.
const AGAIN_MS: u64 = 60_000;
/// Caches of API servers are not this far behind. Who shows an earlier roster for so long was restored from a
/// backup.
const RESTORED_MS: u64 = 30_000;

/// What this agent has acknowledged.
pub(super) struct Acknowledgement {
    write: Write,
    /// What was last written, and when the write began.
    told: Option<(Said, Millis)>,
    /// The version for whose first acknowledgement a time was drawn.
    due_for: u64,
    /// What the write under way says.
    saying: Said,
    /// Since when the API server shows an earlier roster than the one in force.
    behind: Option<Millis>,
}

/// Version of the roster in force, how many members were met, and how many of these have a vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    version: u64,
    met: usize,
    met_voters: usize,
}

impl Acknowledgement {
    pub(super) fn new() -> Self {
        Self {
            write: Write::NotOwed,
            told: None,
            due_for: 0,
            saying: Said::default(),
            behind: None,
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        self.write.deadline()
    }

    /// The API server shows this version of the roster.
    pub(super) fn take_shown(&mut self, cx: &mut Context, contacts: &Contacts, version: u64) {
        let is_behind = version < cx.roster().reference().version;
        if !is_behind {
            self.behind = None;
        } else if self.behind.is_none() {
            self.behind = Some(cx.now());
            // What was acknowledged before the backup is older than that, or lost.
            self.told = None;
            self.due_for = 0;
        }
        self.look_again(cx, contacts);
    }

    /// A roster came, or was settled, or somebody was met for the first time.
    pub(super) fn look_again(&mut self, cx: &mut Context, contacts: &Contacts) {
        let learner = cx.is_learner();
        let is_asked = learner || cx.roster().is_settling();
        let owes = cx.place().is_some() && (is_asked || self.behind.is_some());
        match self.write {
            Write::Writing { .. } => return,
            _ if !owes => {
                self.write = Write::NotOwed;
                return;
            }
            Write::Due { failures: 1.., .. } => return,
            Write::NotOwed | Write::Due { .. } => {}
        }
        let (now, members) = (Said::of(cx, contacts), cx.roster().len());
        let told = self.told.filter(|(told, _)| told.version == now.version);
        let Some((told, began)) = told else {
            // The time is drawn once: whom it meets until then makes it no sooner.
            if std::mem::replace(&mut self.due_for, now.version) != now.version {
                let spread = (members as u64 * SPREAD_OF_ONE_MS).min(LONGEST_SPREAD_MS);
                let restored = self.behind.filter(|_| !is_asked);
                let from = restored.map_or(cx.now(), |since| since.plus(RESTORED_MS));
                self.write = Write::due(from.plus(cx.draw(spread)));
            }
            return;
        };
        let at = if learner && told != now {
            let soon = if now.met + 1 >= members {
                MET_ALL_MS
            } else {
                MEETS_MS
            };
            cx.now().plus(cx.draw(soon))
        } else {
            began.plus(AGAIN_MS)
        };
        self.write = Write::due(at.min(self.write.deadline()));
    }

    /// Asks for the write that is due, or gives up the one that is under way.
    pub(super) fn step(&mut self, cx: &mut Context, contacts: &Contacts) {
        let now = cx.now();
        if self.write.is_given_up(now) {
            self.write.failed(cx);
        }
        if self.write.is_due(now) {
            self.write.begin(now);
            self.saying = Said::of(cx, contacts);
            cx.put(Output::Acknowledge {
                version: self.saying.version,
                met: self.saying.met,
                met_voters: self.saying.met_voters,
            });
        }
    }

    /// What became of the write that is under way. Of any other nothing follows.
    pub(super) fn take(&mut self, cx: &mut Context, contacts: &Contacts, written: bool) {
        let Write::Writing { since, .. } = self.write else {
            return;
        };
        if written {
            self.told = Some((self.saying, since));
            self.write = Write::NotOwed;
            self.look_again(cx, contacts);
        } else {
            self.write.failed(cx);
        }
    }
}

impl Said {
    fn of(cx: &Context, contacts: &Contacts) -> Self {
        let roster = cx.roster();
        Self {
            version: roster.reference().version,
            met: contacts.met().count(),
            met_voters: contacts.met().filter(|index| roster.has_vote(*index)).count(),
        }
    }
}
