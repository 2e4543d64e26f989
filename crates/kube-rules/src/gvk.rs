//! The names of kinds and resources: group, version, kind, plural.

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvk {
    /// Empty for the core group.
    pub group: String,
    /// As in `v1`.
    pub version: String,
    /// As in `Pod`.
    pub kind: String,
}

impl Gvk {
    /// By `apiVersion` and kind.
    pub fn of(api_version: &str, kind: &str) -> Self {
        let (group, version) = split_api_version(api_version);
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

/// Group, version and resource (plural, lower case).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvr {
    /// Empty for the core group.
    pub group: String,
    /// As in `v1`.
    pub version: String,
    /// As in `pods`.
    pub resource: String,
}

/// As in `v1` or `apps/v1`.
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// As in `pods` or `deployments.apps`.
pub fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

/// Splits an `apiVersion` into group and version.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
