//! What was said of failing requests already, so that trouble is told once and not every retry period.

use crate::lock::LockError;
use std::collections::BTreeMap;

/// The last failure told, by verb. A verb of its own each: where reading is allowed and writing is not, every attempt
/// has one that succeeds and one that does not.
#[derive(Debug, Default)]
pub(crate) struct Complaints(BTreeMap<&'static str, LockError>);

impl Complaints {
    /// Notes a failure; whether it is worth telling.
    pub(crate) fn is_news(&mut self, verb: &'static str, failure: &LockError) -> bool {
        let before = self.0.insert(verb, failure.clone());
        before.is_none_or(|before| !alike(&before, failure))
    }

    /// Notes that a read succeeded; whether that was the last trouble.
    pub(crate) fn read(&mut self, verb: &'static str) -> bool {
        self.0.remove(verb).is_some() && self.0.is_empty()
    }

    /// Notes that a write succeeded, and with it all that an attempt needs; whether that ends a trouble.
    pub(crate) fn wrote(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

/// An API server that cannot be reached fails in ever different words. A refusal in other words is another one.
fn alike(one: &LockError, other: &LockError) -> bool {
    match (one, other) {
        (LockError::Unreachable(_), LockError::Unreachable(_)) => true,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> LockError {
        LockError::Refused(text.to_owned())
    }

    fn unreachable(text: &str) -> LockError {
        LockError::Unreachable(text.to_owned())
    }

    #[test]
    fn the_same_trouble_is_told_once_although_reading_works() {
        let mut told = Complaints::default();
        assert!(told.is_news("create", &refused("no namespace")));
        for _ in 0..3 {
            assert!(!told.read("get"), "reading had not failed");
            assert!(!told.is_news("create", &refused("no namespace")));
        }
        assert!(told.is_news("create", &refused("forbidden")), "another trouble");
        assert!(told.wrote());
        assert!(!told.wrote());
        assert!(
            told.is_news("create", &refused("forbidden")),
            "again, after it had ended"
        );
    }

    #[test]
    fn an_outage_is_one_trouble_in_whatever_words() {
        let mut told = Complaints::default();
        assert!(told.is_news("get", &unreachable("no answer")));
        assert!(!told.is_news("get", &unreachable("connection refused")));
        assert!(told.is_news("get", &refused("forbidden")));
        assert!(told.read("get"));
        assert!(told.is_news("get", &unreachable("no answer")));
    }
}
