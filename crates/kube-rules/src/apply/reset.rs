//! Fields that a write does not change, so that nobody comes to own them by it.

use crate::gvk::Gvk;
use crate::strategy::has_status;

type Paths = &'static [&'static [&'static str]];

const STATUS: Paths = &[&["status"]];

/// The fields of a custom resource: `status` tells whether it has that subresource.
pub(super) fn of_custom(status: bool, subresource: &str) -> Paths {
    match subresource {
        "status" => &[&["metadata"], &["spec"]],
        _ if status => STATUS,
        _ => &[],
    }
}

/// The fields of a built-in kind.
pub(super) fn of_builtin(gvk: &Gvk, subresource: &str) -> Paths {
    match (gvk.group.as_str(), gvk.kind.as_str(), subresource) {
        ("certificates.k8s.io", "CertificateSigningRequest", "") => &[&["spec"], &["status"]],
        ("certificates.k8s.io", "CertificateSigningRequest", "status") => {
            &[&["spec"], &["status", "conditions"]]
        }
        ("certificates.k8s.io", "CertificateSigningRequest", "approval") => {
            &[&["spec"], &["status", "certificate"]]
        }
        ("apps", "Deployment", "status") => &[&["spec"], &["metadata", "labels"]],
        ("", "Pod", "status") => &[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ],
        (_, "PodGroup" | "ServiceCIDR" | "StorageVersionMigration" | "ResourceClaim", "status")
        | (
            _,
            "DeviceTaintRule" | "ResourcePoolStatusRequest" | "StorageVersion" | "VolumeAttachment",
            "status",
        )
        | (_, "FlowSchema" | "PriorityLevelConfiguration" | "ValidatingAdmissionPolicy", "status")
        | (_, "CustomResourceDefinition" | "APIService", "status") => &[&["metadata"], &["spec"]],
        (.., "status") => &[&["spec"]],
        _ if has_status(gvk) => STATUS,
        _ => &[],
    }
}
