//! Which alerts are sent: no more than people can read.

use super::{Alert, Scene};
use std::collections::HashMap;
use std::time::Duration;

/// Alerts that are remembered; more are held back.
const KNOWN: usize = 10_000;

/// How many alerts are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One about the same scene, base and module is sent once in this time.
    pub same: Duration,
    /// Most alerts that are sent at once; at least 1.
    pub burst: u32,
    /// After a burst one is sent each time this has passed.
    pub every: Duration,
}

impl Default for Limits {
    /// Ten minutes; 20 a minute, which is what DingTalk takes of one robot.
    fn default() -> Self {
        Self {
            same: Duration::from_secs(600),
            burst: 20,
            every: Duration::from_secs(3),
        }
    }
}

/// What becomes of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Send {
        /// How many like it were held back since the last one.
        repeated: u64,
        /// How many others were held back since the last one that was sent, for there being too many.
        more: u64,
    },
    /// It was sent lately.
    Repeated,
    /// Too many are sent.
    TooMany,
}

/// Says which alerts are sent.
#[derive(Debug)]
pub(crate) struct Guard {
    limits: Limits,
    sent: HashMap<(Scene, String, Option<String>), Sent>,
    /// When the burst is as large as it can be again.
    full_at: Duration,
    more: u64,
}

#[derive(Debug)]
struct Sent {
    at: Duration,
    repeated: u64,
}

impl Guard {
    /// Nothing was sent yet.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            sent: HashMap::new(),
            full_at: Duration::ZERO,
            more: 0,
        }
    }

    /// What becomes of it. `now` never goes back; its origin is the caller's.
    pub(crate) fn admit(&mut self, now: Duration, alert: &Alert) -> Verdict {
        let key = (alert.scene, alert.base.clone(), alert.module.clone());
        let same = self.limits.same;
        let is_recent = |sent: &Sent| now.saturating_sub(sent.at) < same;
        let mut repeated = 0;
        if let Some(sent) = self.sent.get_mut(&key) {
            if is_recent(sent) {
                sent.repeated += 1;
                return Verdict::Repeated;
            }
            repeated = sent.repeated;
        } else if self.sent.len() >= KNOWN {
            self.sent.retain(|_, sent| is_recent(sent));
            if self.sent.len() >= KNOWN {
                self.more += 1;
                return Verdict::TooMany;
            }
        }
        // Each one that is sent moves the time on at which the burst is whole again; it may not be moved
        // beyond what the burst holds.
        let every = self.limits.every;
        let full_at = self.full_at.max(now) + every;
        if full_at.saturating_sub(now) > every * self.limits.burst.max(1) {
            self.more += 1;
            return Verdict::TooMany;
        }
        self.full_at = full_at;
        self.sent.insert(key, Sent { at: now, repeated: 0 });
        let more = std::mem::take(&mut self.more);
        Verdict::Send { repeated, more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn alert(scene: Scene, base: &str, module: Option<&str>) -> Alert {
        Alert {
            scene,
            base: base.to_owned(),
            module: module.map(str::to_owned),
            message: String::new(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    const FIRST: Verdict = Verdict::Send { repeated: 0, more: 0 };

    #[test]
    fn the_same_is_sent_once_in_ten_minutes_and_counted() {
        let mut guard = Guard::new(Limits::default());
        let lost = alert(Scene::BaseLost, "a", None);
        assert_eq!(guard.admit(at(0), &lost), FIRST);
        assert_eq!(guard.admit(at(1), &lost), Verdict::Repeated);
        assert_eq!(guard.admit(at(599), &lost), Verdict::Repeated);
        let again = Verdict::Send { repeated: 2, more: 0 };
        assert_eq!(guard.admit(at(600), &lost), again);
    }

    #[test]
    fn another_scene_base_or_module_is_another_alert() {
        let mut guard = Guard::new(Limits::default());
        for alert in [
            alert(Scene::InstallFailed, "a", Some("m:1")),
            alert(Scene::InstallFailed, "a", Some("m:2")),
            alert(Scene::InstallFailed, "b", Some("m:1")),
            alert(Scene::ManifestMismatch, "a", Some("m:1")),
        ] {
            assert_eq!(guard.admit(at(0), &alert), FIRST);
        }
    }

    #[test]
    fn a_storm_is_held_back_and_told_of() {
        let mut guard = Guard::new(Limits::default());
        let of = |base: usize| alert(Scene::BaseLost, &base.to_string(), None);
        let sent = (0..100)
            .filter(|base| guard.admit(at(0), &of(*base)) == FIRST)
            .count();
        assert_eq!(sent, 20);
        assert_eq!(guard.admit(at(2), &of(200)), Verdict::TooMany);
        let next = Verdict::Send {
            repeated: 0,
            more: 81,
        };
        assert_eq!(guard.admit(at(3), &of(200)), next);
        // What was held back was not sent, and may be later.
        assert_eq!(guard.admit(at(6), &of(99)), FIRST);
    }

    #[test]
    fn memory_has_an_end() {
        let limits = Limits {
            every: Duration::ZERO,
            ..Limits::default()
        };
        let mut guard = Guard::new(limits);
        for base in 0..KNOWN {
            guard.admit(at(0), &alert(Scene::BaseLost, &base.to_string(), None));
        }
        let more = alert(Scene::BaseLost, "more", None);
        assert_eq!(guard.admit(at(1), &more), Verdict::TooMany);
        assert_eq!(
            guard.admit(at(600), &more),
            Verdict::Send { repeated: 0, more: 1 }
        );
    }
}
