//! May they: role-based access control.

mod bootstrap;
mod compiled;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use bootstrap::bootstrap_objects;
pub(crate) use compiled::aggregate;

use crate::access::errors::details;
use crate::request::{Reader, RequestInfo, UserInfo};
use arc_swap::ArcSwapOption;
use compiled::Compiled;
use evenkeel_kube_rules::gvk::qualified;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use rules::Rule;
use serde_json::{Value, json};
use std::sync::Arc;

/// API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// Members may do everything; no role can take that away.
const MASTERS: &str = "system:masters";

/// What the authorizer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Whether the request may go on.
    pub(crate) allowed: bool,
    /// Why, for people; empty where upstream says nothing.
    pub(crate) reason: String,
}

/// Decides by Roles, ClusterRoles and their bindings; compiled once per generation of these.
pub(crate) struct Authorizer {
    rbac: bool,
    compiled: ArcSwapOption<Compiled>,
}

impl Authorizer {
    /// `rbac = false` allows everything to everybody.
    pub(crate) fn new(rbac: bool) -> Self {
        Self {
            rbac,
            compiled: ArcSwapOption::empty(),
        }
    }

    /// Whether `user` may do what `info` says.
    pub(crate) fn authorize(&self, user: &UserInfo, info: &RequestInfo, reader: &dyn Reader) -> Decision {
        if self.privileged(user) {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        let compiled = self.compiled(reader);
        let grants = compiled.grants(user, &info.namespace);
        if let Some(grant) = grants
            .iter()
            .find(|grant| grant.rules.iter().any(|rule| rule.allows(info)))
        {
            return Decision {
                allowed: true,
                reason: grant.explain(user),
            };
        }
        let missing = compiled.missing(user, &info.namespace);
        Decision {
            allowed: false,
            reason: if missing.is_empty() {
                String::new()
            } else {
                format!("RBAC: {}", missing.join(", "))
            },
        }
    }

    /// The same, as the error that a client gets.
    pub(crate) fn check(&self, user: &UserInfo, info: &RequestInfo, reader: &dyn Reader) -> ApiResult<()> {
        let decision = self.authorize(user, info, reader);
        // Kubernetes' audit log tells the same: who needs which right.
        tracing::trace!(
            user = user.name,
            allowed = decision.allowed,
            verb = info.verb,
            group = info.group,
            resource = info.resource,
            subresource = info.subresource,
            namespace = info.namespace,
            name = info.name,
            "asked"
        );
        if decision.allowed {
            Ok(())
        } else {
            Err(forbidden(user, info, &decision.reason))
        }
    }

    /// The rules that hold for `user` in a namespace, as SelfSubjectRulesReview reports them: those for
    /// resources, then those for other paths.
    pub(crate) fn rules(
        &self,
        user: &UserInfo,
        namespace: &str,
        reader: &dyn Reader,
    ) -> (Vec<Value>, Vec<Value>) {
        if self.privileged(user) {
            return (
                vec![json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})],
                vec![json!({"verbs": ["*"], "nonResourceURLs": ["*"]})],
            );
        }
        let compiled = self.compiled(reader);
        compiled
            .grants(user, namespace)
            .iter()
            .flat_map(|grant| grant.rules.iter())
            .map(Rule::describe)
            .partition(|rule| rule["nonResourceURLs"].is_null())
    }

    fn privileged(&self, user: &UserInfo) -> bool {
        !self.rbac || user.groups.iter().any(|group| group == MASTERS)
    }

    fn compiled(&self, reader: &dyn Reader) -> Arc<Compiled> {
        let generations = Compiled::generations(reader);
        if let Some(compiled) = self.compiled.load_full()
            && compiled.of == generations
        {
            return compiled;
        }
        let compiled = Arc::new(Compiled::new(generations, reader));
        self.compiled.store(Some(compiled.clone()));
        compiled
    }
}

/// 403 as upstream words it.
pub(crate) fn forbidden(user: &UserInfo, info: &RequestInfo, reason: &str) -> ApiError {
    let mut text = if info.is_resource {
        let resource = qualified(&info.group, &info.resource);
        let subject = if info.name.is_empty() {
            resource
        } else {
            format!("{resource} \"{}\"", info.name)
        };
        let full = if info.subresource.is_empty() {
            info.resource.clone()
        } else {
            format!("{}/{}", info.resource, info.subresource)
        };
        let scope = if info.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{}\"", info.namespace)
        };
        format!(
            "{subject} is forbidden: User \"{}\" cannot {} resource \"{full}\" in API group \"{}\" {scope}",
            user.name, info.verb, info.group
        )
    } else {
        format!(
            "forbidden: User \"{}\" cannot {} path \"{}\"",
            user.name, info.verb, info.path
        )
    };
    if !reason.is_empty() {
        text.push_str(": ");
        text.push_str(reason);
    }
    let mut error = ApiError::new(403, "Forbidden", text);
    error.details = if info.is_resource {
        details(&info.group, &info.resource, &info.name)
    } else {
        json!({})
    };
    error
}
