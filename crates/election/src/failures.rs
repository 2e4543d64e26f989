//! Which failures of requests have been logged, so that a problem is logged once and not at every retry.

use crate::lock::LockError;
use std::collections::BTreeMap;

/// The last failure of each verb. They are kept apart because an account may be allowed to read and not to
/// write: then every attempt has one request that succeeds and one that fails.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(BTreeMap<&'static str, LockError>);

impl FailureLog {
    /// Records a failure. Returns whether it differs from the last one, and should be logged.
    pub(crate) fn is_new(&mut self, verb: &'static str, failure: &LockError) -> bool {
        let before = self.0.insert(verb, failure.clone());
        before.is_none_or(|before| !alike(&before, failure))
    }

    /// Records that a read succeeded. Returns whether this ends the last failure.
    pub(crate) fn read(&mut self, verb: &'static str) -> bool {
        self.0.remove(verb).is_some() && self.0.is_empty()
    }

    /// Records that a write succeeded, so that nothing fails any more. Returns whether something had failed
    /// before.
    pub(crate) fn wrote(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

/// Whether two failures are the same problem. An API server that cannot be reached fails with a different
/// text each time, so those are all alike; a refusal with another text is another problem.
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
    fn the_same_problem_is_logged_once_although_reading_works() {
        let mut failures = FailureLog::default();
        assert!(failures.is_new("create", &refused("no namespace")));
        for _ in 0..3 {
            assert!(!failures.read("get"), "reading had not failed");
            assert!(!failures.is_new("create", &refused("no namespace")));
        }
        assert!(
            failures.is_new("create", &refused("forbidden")),
            "another problem"
        );
        assert!(failures.wrote());
        assert!(!failures.wrote());
        assert!(
            failures.is_new("create", &refused("forbidden")),
            "again, after it had ended"
        );
    }

    #[test]
    fn an_outage_is_one_problem_with_any_text() {
        let mut failures = FailureLog::default();
        assert!(failures.is_new("get", &unreachable("no answer")));
        assert!(!failures.is_new("get", &unreachable("connection refused")));
        assert!(failures.is_new("get", &refused("forbidden")));
        assert!(failures.read("get"));
        assert!(failures.is_new("get", &unreachable("no answer")));
    }
}
