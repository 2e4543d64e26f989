//! The name of a lock object.

use evenkeel_kube_values::names::{LABEL_LIMIT, SUBDOMAIN_LIMIT, is_label, is_subdomain};
use kube::core::ApiResource;
use std::fmt;

/// Returned when no object can have this namespace or name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockNameError {
    /// The namespace is empty.
    #[error("resourceNamespace is required")]
    NamespaceRequired,
    /// The name is empty.
    #[error("resourceName is required")]
    NameRequired,
    /// Kubernetes does not accept the name.
    #[error(
        "{field} `{value}` is no Kubernetes name: use at most {most} lower-case letters, digits and {signs}, \
         with a letter or digit at both ends"
    )]
    Invalid {
        /// The field that is wrong: `resourceNamespace` or `resourceName`.
        field: &'static str,
        /// The value that was given.
        value: String,
        /// The longest length that is allowed.
        most: usize,
        /// The characters that are allowed beside letters and digits.
        signs: &'static str,
    },
}

/// Kind, namespace and name of an object.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) resource: ApiResource,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Target {
    /// Refuses names that the API server would refuse, and those that would change the path of the request.
    pub(super) fn new(resource: ApiResource, namespace: &str, name: &str) -> Result<Self, LockNameError> {
        if namespace.is_empty() {
            return Err(LockNameError::NamespaceRequired);
        }
        if name.is_empty() {
            return Err(LockNameError::NameRequired);
        }
        if !is_label(namespace) {
            return Err(LockNameError::Invalid {
                field: "resourceNamespace",
                value: namespace.to_owned(),
                most: LABEL_LIMIT,
                signs: "`-`",
            });
        }
        if !is_subdomain(name) {
            return Err(LockNameError::Invalid {
                field: "resourceName",
                value: name.to_owned(),
                most: SUBDOMAIN_LIMIT,
                signs: "`-` or `.`",
            });
        }
        Ok(Self {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Returns `namespace/name`.
    pub(super) fn describe(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The name of the resource in RBAC rules, such as `leases.coordination.k8s.io` or `configmaps`.
    pub(super) fn plural(&self) -> String {
        match self.resource.group.as_str() {
            "" => self.resource.plural.clone(),
            group => format!("{}.{group}", self.resource.plural),
        }
    }
}

/// Prints `Lease namespace/name`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.resource.kind, self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::Lease;
    use rstest::rstest;

    fn target(namespace: &str, name: &str) -> Result<Target, LockNameError> {
        Target::new(ApiResource::erase::<Lease>(&()), namespace, name)
    }

    #[test]
    fn an_object_is_named_as_operators_name_it() {
        let target = target("kube-system", "my.controller-1").unwrap();
        assert_eq!(target.describe(), "kube-system/my.controller-1");
        assert_eq!(target.plural(), "leases.coordination.k8s.io");
        assert_eq!(target.to_string(), "Lease kube-system/my.controller-1");
    }

    #[rstest]
    #[case("", "name", "resourceNamespace is required")]
    #[case("ns", "", "resourceName is required")]
    #[case("ns/../x", "name", "resourceNamespace `ns/../x` is no Kubernetes name")]
    #[case("a.b", "name", "resourceNamespace `a.b` is no Kubernetes name")]
    #[case("ns", "a/status", "resourceName `a/status` is no Kubernetes name")]
    #[case("ns", "Upper", "resourceName `Upper` is no Kubernetes name")]
    #[case("ns", "a..b", "resourceName `a..b` is no Kubernetes name")]
    #[case("ns", "-a", "resourceName `-a` is no Kubernetes name")]
    fn names_that_cannot_be_are_refused(#[case] namespace: &str, #[case] name: &str, #[case] text: &str) {
        let error = target(namespace, name).unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }

    #[test]
    fn lengths_are_those_of_rfc_1123() {
        assert!(target(&"n".repeat(63), &"n".repeat(253)).is_ok());
        assert!(target(&"n".repeat(64), "name").is_err());
        assert!(target("ns", &"n".repeat(254)).is_err());
    }
}
