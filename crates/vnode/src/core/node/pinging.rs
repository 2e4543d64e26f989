//! One ping at a time, every interval; silence counts as an answer.

use super::Settings;
use std::time::Duration;

/// When the provider is asked how a node is.
#[derive(Debug, Default)]
pub(super) struct Pinging {
    /// Since when a ping is under way.
    asked: Option<Duration>,
    /// It has been silent for too long, and that was said.
    is_overdue: bool,
    /// Another one is wanted as soon as this one has ended.
    again: bool,
    /// When the next one begins.
    next: Duration,
    /// An answer has come, or silence has.
    is_heard: bool,
}

impl Pinging {
    /// Whether anything is known of the node's health.
    pub(super) fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Ask as soon as may be.
    pub(super) fn hurry(&mut self, now: Duration) {
        if self.asked.is_some() {
            self.again = true;
        } else {
            self.next = now;
        }
    }

    /// An answer has come. `random` is uniform in `[0, 1)`: the second ping comes after a part of the
    /// interval, so that the pings of nodes that began together spread.
    pub(super) fn answered(&mut self, settings: &Settings, now: Duration, random: f64) {
        let is_first = !self.is_heard;
        self.is_heard = true;
        self.is_overdue = false;
        let Some(asked) = self.asked.take() else { return };
        self.next = if std::mem::take(&mut self.again) {
            now
        } else if is_first {
            now.saturating_add(settings.ping.mul_f64(random))
        } else {
            asked.saturating_add(settings.ping).max(now)
        };
    }

    /// Whether the ping under way has just become overdue.
    pub(super) fn expires(&mut self, settings: &Settings, now: Duration) -> bool {
        let expired = !self.is_overdue
            && self
                .asked
                .is_some_and(|asked| asked.saturating_add(settings.ping_timeout) <= now);
        if expired {
            self.is_overdue = true;
            self.is_heard = true;
        }
        expired
    }

    /// Whether a ping is to begin now.
    pub(super) fn begins(&mut self, now: Duration) -> bool {
        let begins = self.asked.is_none() && self.next <= now;
        if begins {
            self.asked = Some(now);
        }
        begins
    }

    /// When it is next of use to look; `None` while only an answer is.
    pub(super) fn due(&self, settings: &Settings) -> Option<Duration> {
        match self.asked {
            None => Some(self.next),
            Some(_) if self.is_overdue => None,
            Some(asked) => Some(asked.saturating_add(settings.ping_timeout)),
        }
    }
}
