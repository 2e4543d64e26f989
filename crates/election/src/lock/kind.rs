//! The values of `--leader-elect-resource-lock`.

/// Why an object of a kind cannot be elected over, in client-go's words.
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

/// Refuses every kind but `leases`, the only one that Kubernetes still has.
pub fn check_lock_kind(kind: &str) -> Result<(), LockKindError> {
    match kind {
        "leases" => Ok(()),
        "endpoints" | "configmaps" | "endpointsleases" | "configmapsleases" => {
            Err(LockKindError::Removed(kind.to_owned()))
        }
        _ => Err(LockKindError::Unknown(kind.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn leases_are_what_is_left() {
        assert_eq!(check_lock_kind("leases"), Ok(()));
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
        assert_eq!(check_lock_kind(kind).unwrap_err().to_string(), text);
    }
}
