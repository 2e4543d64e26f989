//! Pods that the provider has and the API server does not know.
//!
//! They are left over when an object was deleted by force while nobody served its node. Deleting one that is
//! not left over would end a workload: it takes two looks, half a minute apart, at a complete list that a
//! live watch keeps up to date, and a direct question to the API server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// What was sighted, by UID.
#[derive(Debug, Default)]
pub(super) struct Strays {
    first: HashMap<Arc<str>, FirstSeen>,
}

#[derive(Debug)]
struct FirstSeen {
    at: Duration,
    /// It is being dealt with.
    taken: bool,
}

/// What a look found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// For the first time.
    pub(super) new: Vec<usize>,
    /// For the second, long enough after the first.
    pub(super) due: Vec<usize>,
}

impl Strays {
    /// Pods that were found unknown at a time; `apart`: how long the first sighting must be ago. The answer
    /// holds indices of `unknown`.
    pub(super) fn inspect(&mut self, unknown: &[Arc<str>], now: Duration, apart: Duration) -> Found {
        self.first.retain(|uid, seen| seen.taken || unknown.contains(uid));
        let mut found = Found::default();
        for (index, uid) in unknown.iter().enumerate() {
            match self.first.get_mut(uid) {
                None => {
                    let seen = FirstSeen {
                        at: now,
                        taken: false,
                    };
                    self.first.insert(uid.clone(), seen);
                    found.new.push(index);
                }
                Some(seen) if !seen.taken && now.saturating_sub(seen.at) >= apart => {
                    seen.taken = true;
                    found.due.push(index);
                }
                Some(_) => {}
            }
        }
        found
    }

    /// It was dealt with; `over`: and need not be looked at again. Otherwise it begins anew.
    pub(super) fn dealt(&mut self, uid: &str) {
        self.first.remove(uid);
    }

    /// Whether somebody must look again soon.
    pub(super) fn pending(&self) -> bool {
        !self.first.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_stray_is_due_at_its_second_sighting_and_not_before_the_time() {
        let mut strays = Strays::default();
        let unknown: [Arc<str>; 2] = ["a".into(), "b".into()];
        let mut inspect = |unknown: &[Arc<str>], at| strays.inspect(unknown, seconds(at), seconds(30));
        assert_eq!(inspect(&unknown, 0).new, [0, 1]);
        assert_eq!(inspect(&unknown[..1], 29), Found::default());
        // "b" was known in between, and so is seen for the first time again.
        let found = inspect(&unknown, 30);
        assert_eq!((found.new, found.due), (vec![1], vec![0]));
        assert_eq!(inspect(&unknown, 59), Found::default());
        assert_eq!(inspect(&unknown, 60).due, [1]);
        strays.dealt("a");
        strays.dealt("b");
        assert!(!strays.pending());
        assert_eq!(strays.inspect(&unknown, seconds(90), seconds(30)).new, [0, 1]);
    }
}
