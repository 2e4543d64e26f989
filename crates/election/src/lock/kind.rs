//! The values of `--leader-elect-resource-lock`.

use std::fmt;
use std::str::FromStr;

/// Kind of lock object that a component elects over, by its name in the stock flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// `leases`, the only kind that Kubernetes still has.
    #[default]
    Leases,
}

/// Returned for a kind of lock that cannot be used, in client-go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockKindError {
    /// The kind was removed from Kubernetes. Move with a [`MultiLock`](super::MultiLock), or stop all
    /// candidates and start them with `leases`.
    #[error("{0} lock is removed, {migrate} to leases", migrate = migrate(.0))]
    Removed(String),
    /// There has never been such a kind.
    #[error("Invalid lock-type {0}")]
    Unknown(String),
}

/// The verb of client-go's message, which differs for one of the kinds.
fn migrate(kind: &str) -> &'static str {
    match kind {
        "configmapsleases" => "migrated",
        _ => "migrate",
    }
}

impl FromStr for LockKind {
    type Err = LockKindError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "leases" => Ok(Self::Leases),
            "endpoints" | "configmaps" | "endpointsleases" | "configmapsleases" => {
                Err(LockKindError::Removed(text.to_owned()))
            }
            _ => Err(LockKindError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leases => f.write_str("leases"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn leases_are_what_is_left() {
        assert_eq!("leases".parse(), Ok(LockKind::Leases));
        assert_eq!(LockKind::default().to_string(), "leases");
    }

    #[rstest]
    #[case("endpoints", "endpoints lock is removed, migrate to leases")]
    #[case("configmaps", "configmaps lock is removed, migrate to leases")]
    #[case("endpointsleases", "endpointsleases lock is removed, migrate to leases")]
    #[case("configmapsleases", "configmapsleases lock is removed, migrated to leases")]
    #[case("Leases", "Invalid lock-type Leases")]
    #[case("etcd", "Invalid lock-type etcd")]
    #[case("", "Invalid lock-type ")]
    fn others_are_refused_in_upstreams_words(#[case] kind: &str, #[case] text: &str) {
        assert_eq!(kind.parse::<LockKind>().unwrap_err().to_string(), text);
    }
}
