//! Admission webhooks (`admissionregistration.k8s.io/v1`).
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | the configurations, compiled once per generation |
//! | `review` | **pure**: the AdmissionReview sent, and what its answer means |
//! | `client` | the call: where to, TLS, connection reuse, time-out |
//! | `tls` | which serving certificates are accepted |

mod client;
mod config;
mod review;
#[cfg(test)]
mod tests;
mod tls;

use super::expression::Scope;
use super::matching::exempt;
use super::versioned::Versioned;
use super::{Warnings, merge};
use crate::access::errors::internal;
use crate::options::PodRoutes;
use crate::request::{Attributes, Reader};
use arc_swap::ArcSwapOption;
use config::{Compiled, Kind, SideEffects, Webhook};
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use futures::future::join_all;
use review::{Answer, Sent};
use serde_json::Value;

/// The webhooks of one server.
#[derive(Default)]
pub(super) struct Webhooks {
    mutating: ArcSwapOption<Compiled>,
    validating: ArcSwapOption<Compiled>,
    pods: PodRoutes,
}

/// Runs the built-in plugins again after a webhook changed the object.
type Again<'a> = &'a (dyn Fn(&mut Attributes) -> ApiResult<()> + Sync);

impl Webhooks {
    /// Those of Services are reached by `pods`.
    pub(super) fn new(pods: PodRoutes) -> Self {
        Self {
            pods,
            ..Self::default()
        }
    }

    /// One webhook after the other, by name of configuration. If one changes the object, the built-in plugins
    /// run again, and so do those called before it that ask for it (`reinvocationPolicy: IfNeeded`), once.
    pub(super) async fn mutate(
        &self,
        attributes: &mut Attributes,
        reader: &dyn Reader,
        redefault: &(dyn Fn(&mut Value) + Sync),
        again: Again<'_>,
    ) -> ApiResult<Warnings> {
        let mut warnings = Warnings::new();
        if exempt(&attributes.gvr) {
            return Ok(warnings);
        }
        let compiled = Compiled::current(&self.mutating, Kind::Mutating, reader, &self.pods);
        // Called webhooks, and whether the object changed after their call.
        let mut called: Vec<(&Webhook, bool)> = Vec::new();
        let mut changed = false;
        for webhook in &compiled.webhooks {
            let Some(patched) = mutate_by(webhook, attributes, reader, &mut warnings).await? else {
                continue;
            };
            let changes = attributes.object.as_ref() != Some(&patched) && attributes.object.is_some();
            if changes {
                attributes.object = Some(patched);
                redefault_object(attributes, redefault);
                changed = true;
                for (_, stale) in &mut called {
                    *stale = true;
                }
            }
            called.push((webhook, false));
        }
        if !changed {
            return Ok(warnings);
        }
        let before = attributes.object.clone();
        again(attributes)?;
        let plugins_changed = before != attributes.object;
        for (webhook, stale) in called {
            if !webhook.reinvoke || !(stale || plugins_changed) {
                continue;
            }
            if let Some(patched) = mutate_by(webhook, attributes, reader, &mut warnings).await?
                && attributes.object.is_some()
            {
                attributes.object = Some(patched);
                redefault_object(attributes, redefault);
            }
        }
        Ok(warnings)
    }

    /// All at once; the first refusal by order of the configurations is the answer.
    pub(super) async fn validate(&self, attributes: &Attributes, reader: &dyn Reader) -> ApiResult<Warnings> {
        if exempt(&attributes.gvr) {
            return Ok(Warnings::new());
        }
        let compiled = Compiled::current(&self.validating, Kind::Validating, reader, &self.pods);
        let mut wanted = Vec::new();
        for webhook in &compiled.webhooks {
            if let Some(sent) = prepare(webhook, attributes, reader)? {
                wanted.push((webhook, sent));
            }
        }
        let answers = join_all(wanted.iter().map(|(webhook, sent)| ask(webhook, sent, reader))).await;
        let mut warnings = Warnings::new();
        for answer in answers {
            if let Some(answer) = answer? {
                merge(&mut warnings, answer.warnings);
                if let Some(refusal) = answer.refusal {
                    return Err(refusal);
                }
            }
        }
        Ok(warnings)
    }
}

fn redefault_object(attributes: &mut Attributes, redefault: &(dyn Fn(&mut Value) + Sync)) {
    if let Some(object) = &mut attributes.object {
        redefault(object);
    }
}

/// The object as a mutating webhook wants it; `None` if it was not asked or failed and may be ignored.
async fn mutate_by(
    webhook: &Webhook,
    attributes: &Attributes,
    reader: &dyn Reader,
    warnings: &mut Warnings,
) -> ApiResult<Option<Value>> {
    let Some(sent) = prepare(webhook, attributes, reader)? else {
        return Ok(None);
    };
    let Some(answer) = ask(webhook, &sent, reader).await? else {
        return Ok(None);
    };
    merge(warnings, answer.warnings);
    if let Some(refusal) = answer.refusal {
        return Err(refusal);
    }
    let Some(patch) = answer.patch else {
        return Ok(Some(attributes.object.clone().unwrap_or_default()));
    };
    let Some(object) = &attributes.object else {
        return Err(internal(&format!(
            "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
            webhook.name
        )));
    };
    let mut patched = sent.versioned.to_version(object);
    match json_patch::patch(&mut patched, &patch) {
        Ok(()) => Ok(Some(sent.versioned.back(&patched))),
        Err(error) => fail(webhook, &error.to_string()).map(|_ignored| None),
    }
}

/// What is to be sent to a webhook, if the request is for it.
fn prepare(webhook: &Webhook, attributes: &Attributes, reader: &dyn Reader) -> ApiResult<Option<Sent>> {
    let Some(version) = webhook.constraints.version_for(attributes, reader)? else {
        return Ok(None);
    };
    let versioned = Versioned::new(attributes, &version);
    let held = if webhook.conditions.is_empty() {
        Ok(true)
    } else {
        webhook.conditions.hold(&Scope::new(&versioned))
    };
    match held {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(_) if webhook.ignore_failures => return Ok(None),
        Err(error) => {
            return Err(crate::access::errors::refused(attributes, &error));
        }
    }
    if attributes.dry_run && webhook.side_effects != SideEffects::NoneOnDryRun {
        return Err(ApiError::bad_request(format!(
            "admission webhook \"{}\" does not support dry run",
            webhook.name
        )));
    }
    Ok(Some(Sent::new(versioned)))
}

/// Calls a webhook; `None` if it failed and may be ignored.
async fn ask(webhook: &Webhook, sent: &Sent, reader: &dyn Reader) -> ApiResult<Option<Answer>> {
    let started = tokio::time::Instant::now();
    let outcome = match webhook.client.post(&sent.review, webhook.timeout, reader).await {
        Ok(body) => Answer::read(&webhook.name, sent.uid(), &body),
        Err(error) => Err(format!("failed to call webhook: {error}")),
    };
    let elapsed_ms = started.elapsed().as_millis() as u64;
    match outcome {
        Ok(answer) => {
            tracing::debug!(webhook = %webhook.name, elapsed_ms, allowed = answer.refusal.is_none(), "webhook answered");
            Ok(Some(answer))
        }
        Err(error) => {
            tracing::debug!(webhook = %webhook.name, elapsed_ms, %error, "webhook failed");
            fail(webhook, &error).map(|()| None)
        }
    }
}

/// What a failure means under the webhook's `failurePolicy`.
fn fail(webhook: &Webhook, why: &str) -> ApiResult<()> {
    if webhook.ignore_failures {
        return Ok(());
    }
    Err(internal(&format!(
        "failed calling webhook \"{}\": {why}",
        webhook.name
    )))
}
