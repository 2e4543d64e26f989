//! A candidate for a Lease: a simple model of the election, with the product's times.

use crate::event::{LeaseSeen, LeaseTry};

#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) me: String,
    pub(crate) campaigning: bool,
    /// When the request was sent that last renewed it.
    renewed: Option<u64>,
    seen: Option<(LeaseSeen, u64)>,
    asking: bool,
    /// A Lease that was not seen to change for this long is free.
    lasts: u64,
}

impl Candidate {
    pub(crate) fn new(me: String, lasts: u64) -> Self {
        Self {
            me,
            campaigning: false,
            renewed: None,
            seen: None,
            asking: false,
            lasts,
        }
    }

    /// The next request, unless one is under way.
    pub(crate) fn attempt(&mut self, name: &str, now: u64) -> Option<LeaseTry> {
        if std::mem::replace(&mut self.asking, true) {
            return None;
        }
        let expired = self
            .seen
            .as_ref()
            .filter(|(_, since)| now - since >= self.lasts)
            .map(|(seen, _)| seen.clone());
        Some(LeaseTry {
            name: name.to_owned(),
            me: self.me.clone(),
            expired,
            release: false,
        })
    }

    pub(crate) fn answered(&mut self, now: u64, held: bool, seen: LeaseSeen, sent: u64) {
        self.asking = false;
        if held {
            self.renewed = Some(sent);
        } else {
            self.renewed = None;
        }
        if self.seen.as_ref().is_none_or(|(known, _)| *known != seen) {
            self.seen = Some((seen, now));
        }
    }

    pub(crate) fn lost(&mut self) {
        self.asking = false;
    }

    /// Whether it holds the Lease, counted from the start of its last request.
    pub(crate) fn holds(&self, now: u64, deadline: u64) -> bool {
        self.renewed.is_some_and(|sent| now - sent < deadline)
    }

    pub(crate) fn give_up(&mut self) {
        self.renewed = None;
        self.seen = None;
        self.asking = false;
    }
}
