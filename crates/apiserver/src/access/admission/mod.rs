//! What is changed or refused on the way in.
//!
//! Built-in plugins, in upstream's order: NamespaceLifecycle, ServiceAccount, TaintNodesByCondition,
//! Priority, DefaultTolerationSeconds, StorageObjectInUseProtection, DefaultStorageClass, RuntimeClass; then
//! MutatingAdmissionWebhook, CertificateApproval, CertificateSigning, CertificateSubjectRestriction,
//! ValidatingAdmissionPolicy and ValidatingAdmissionWebhook. Not built: NodeRestriction (a kubelet may write
//! other nodes), LimitRanger, ResourceQuota, MutatingAdmissionPolicy.
//!
//! | module | what it holds |
//! |---|---|
//! | `matching` | **pure**: which webhooks, policies and bindings a request is for |
//! | `versioned` | **pure**: the request as they see it |
//! | `expression` | **pure**: expressions in CEL, and what they cost |
//! | `parameters` | **pure**: the objects that a binding names as parameters of its policy |
//! | `policy` | **pure**: what policies have against a request |
//! | `webhook` | webhooks, which are asked over the network |

pub(crate) mod certificates;
mod expression;
mod matching;
mod namespace;
mod parameters;
mod pods;
mod policy;
#[cfg(test)]
mod policy_tests;
mod runtime_class;
mod service_account;
mod storage;
#[cfg(test)]
mod tests;
mod versioned;
mod webhook;

use crate::access::rbac::Authorizer;
use crate::kinds::Registry;
use crate::options::Options;
use crate::request::{Attributes, Reader};
use evenkeel_kube_rules::names;
use evenkeel_kube_rules::status::ApiResult;
use serde_json::Value;
use std::sync::Arc;

/// Built-in plugins, policies and webhooks.
pub(crate) struct Admission {
    tolerations: pods::TolerationSeconds,
    policies: policy::Policies,
    webhooks: webhook::Webhooks,
    authorizer: Arc<Authorizer>,
}

/// Lines for `Warning` headers, without code and quotes.
pub(crate) type Warnings = Vec<String>;

impl Admission {
    /// Plugins with the settings of `options`. `kinds`: what may be parameters of policies.
    pub(crate) fn new(options: &Options, kinds: Arc<Registry>, authorizer: Arc<Authorizer>) -> Self {
        Self {
            tolerations: pods::TolerationSeconds {
                not_ready: options.default_not_ready_toleration_seconds,
                unreachable: options.default_unreachable_toleration_seconds,
            },
            policies: policy::Policies::new(kinds),
            webhooks: webhook::Webhooks::new(options.pods.clone()),
            authorizer,
        }
    }

    /// Mutating plugins, then mutating webhooks. `redefault` sets an object's defaults again after a webhook
    /// changed it. The order upstream: mutate, then validation of the object, then [`Admission::validate`].
    pub(crate) async fn mutate(
        &self,
        attributes: &mut Attributes,
        reader: &dyn Reader,
        redefault: &(dyn Fn(&mut Value) + Sync),
    ) -> ApiResult<Warnings> {
        self.builtin(attributes, reader)?;
        let again = |attributes: &mut Attributes| self.builtin(attributes, reader);
        self.webhooks.mutate(attributes, reader, redefault, &again).await
    }

    /// Validating plugins, then policies, then validating webhooks, all at once.
    pub(crate) async fn validate(&self, attributes: &Attributes, reader: &dyn Reader) -> ApiResult<Warnings> {
        pods::validate_priority_class(attributes, reader)?;
        runtime_class::validate(attributes, reader)?;
        certificates::validate(attributes, &self.authorizer, reader)?;
        let mut warnings = self.policies.validate(attributes, reader)?;
        merge(&mut warnings, self.webhooks.validate(attributes, reader).await?);
        Ok(warnings)
    }

    /// The mutating plugins; doing it twice changes nothing more.
    fn builtin(&self, attributes: &mut Attributes, reader: &dyn Reader) -> ApiResult<()> {
        namespace::lifecycle(attributes, reader)?;
        service_account::admit(attributes, reader)?;
        pods::taint_new_node(attributes);
        pods::priority(attributes, reader)?;
        self.tolerations.admit(attributes);
        storage::protect(attributes);
        storage::default_class(attributes, reader);
        runtime_class::admit(attributes, reader)
    }
}

/// Each line once, in the order of their coming.
fn merge(warnings: &mut Warnings, more: Vec<String>) {
    for line in more {
        if !warnings.contains(&line) {
            warnings.push(line);
        }
    }
}

/// Whether a request is for this resource of the core group itself, not for a subresource.
fn is_core(attributes: &Attributes, resource: &str) -> bool {
    attributes.gvr.group.is_empty()
        && attributes.gvr.resource == resource
        && attributes.subresource.is_empty()
}

/// What upstream's storage says of a name under which nothing can lie.
fn unusable_name(name: &str) -> Option<String> {
    let wrong = names::path_segment(name);
    (!wrong.is_empty()).then(|| format!("invalid resource name {name:?}: [{}]", wrong.join(" ")))
}

/// Appends to an array member, which is made if it is missing or null.
fn append(object: &mut Value, member: &str, items: impl IntoIterator<Item = Value>) {
    match object[member].as_array_mut() {
        Some(array) => array.extend(items),
        None => object[member] = items.into_iter().collect(),
    }
}
