//! Carries actions out: each idempotent, with preconditions, and only while this replica leads.

mod node;
mod pod;
mod record;

use super::cache::LastSigns;
use super::metrics::Metrics;
use crate::core::action::{Action, NodeRef};
use evenkeel_api::names;
use evenkeel_election as election;
use kube::Client;
use kube::api::PatchParams;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What became of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Done, or there was nothing left to do.
    Done,
    /// The object changed meanwhile: the next look decides anew.
    Stale,
    /// A sign of life, or leadership was lost: it must not be done.
    Refused(String),
}

/// Why an action was not carried out. All are worth another try.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActionError {
    /// The API server said no, or nothing.
    #[error("cannot {what}")]
    Api {
        /// What was tried, with the object's name.
        what: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
    /// An object of ours could not be written as JSON.
    #[error("cannot write {what} as JSON")]
    Json {
        /// Which.
        what: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

pub(super) type Result<T> = std::result::Result<T, ActionError>;

/// What every write passes (S3): this replica leads, and can prove it now.
#[derive(Clone, Default)]
pub(super) struct Gate {
    /// Set while a term lasts.
    pub(super) leading: Arc<AtomicBool>,
    /// The proof; `None` where there is no election.
    pub(super) proof: Option<election::Gate>,
}

impl Gate {
    fn is_open(&self) -> bool {
        let proven = self.proof.as_ref().is_none_or(election::Gate::is_open);
        proven && self.leading.load(Ordering::Acquire)
    }
}

/// What actions are carried out with. Cheap to clone.
#[derive(Clone)]
pub(super) struct Executor {
    client: Client,
    gate: Gate,
    metrics: Metrics,
}

impl Executor {
    pub(super) fn new(client: Client, gate: Gate, metrics: Metrics) -> Self {
        Self {
            client,
            gate,
            metrics,
        }
    }

    /// Carries an action out. `signs`: what was last seen of the node's own writes when the action was planned.
    pub(super) async fn perform(&self, action: &Action, signs: &LastSigns) -> Result<Outcome> {
        let outcome = self.attempt(action, signs).await;
        let label = match &outcome {
            Ok(Outcome::Done) => "done",
            Ok(Outcome::Stale) => "stale",
            Ok(Outcome::Refused(_)) => "refused",
            Err(_) => "failed",
        };
        self.metrics.acted(kind(action), label);
        outcome
    }

    async fn attempt(&self, action: &Action, signs: &LastSigns) -> Result<Outcome> {
        if let Some(refused) = self.refuse() {
            return Ok(refused);
        }
        match action {
            Action::Taint { node, taint, proof } => {
                if proof.is_some()
                    && let Some(refused) = self.still_silent(node, signs).await?
                {
                    return Ok(refused);
                }
                self.taint(node, taint).await
            }
            Action::Untaint { node, taints } => self.untaint(node, taints).await,
            Action::MarkNodeUnknown {
                node,
                version,
                message,
            } => self.mark_node_unknown(node, version, message).await,
            Action::MarkPodNotReady {
                pod,
                version,
                reason,
                message,
            } => self.mark_pod(pod, version, "False", reason, message).await,
            Action::RestorePodReady { pod, version } => self.mark_pod(pod, version, "True", "", "").await,
            Action::Evict {
                pod,
                node,
                message,
                dead_since: _,
                proof: _,
            } => {
                if let Some(refused) = self.still_silent(node, signs).await? {
                    return Ok(refused);
                }
                self.evict(pod, message).await
            }
            Action::MirrorVerdict { node, healthy } => self.mirror(node, *healthy).await,
            Action::SaveIncident(incident) => self.save_incident(incident).await,
            Action::DeleteIncident { name, uid } => self.delete_incident(name, uid).await,
            Action::PublishRoster { zone, roster } => self.publish_roster(zone, roster).await,
            Action::SavePolicyStatus { policy, status } => self.save_policy_status(policy, status).await,
            Action::Event(notice) => self.event(notice).await,
        }
    }

    /// A leader that lost its Lease writes nothing more (S3). Asked again before each write.
    fn refuse(&self) -> Option<Outcome> {
        (!self.gate.is_open()).then(|| Outcome::Refused("this replica does not lead any more".to_owned()))
    }
}

/// Name of an action in metrics and logs.
pub(super) fn kind(action: &Action) -> &'static str {
    match action {
        Action::Taint { .. } => "taint",
        Action::Untaint { .. } => "untaint",
        Action::MarkNodeUnknown { .. } => "mark-node-unknown",
        Action::MarkPodNotReady { .. } => "mark-pod-not-ready",
        Action::RestorePodReady { .. } => "restore-pod-ready",
        Action::Evict { .. } => "evict",
        Action::MirrorVerdict { .. } => "mirror-verdict",
        Action::SaveIncident(_) => "save-incident",
        Action::DeleteIncident { .. } => "delete-incident",
        Action::PublishRoster { .. } => "publish-roster",
        Action::SavePolicyStatus { .. } => "save-policy-status",
        Action::Event(_) => "event",
    }
}

/// The node whose signs of life an action depends on.
pub(super) fn depends_on(action: &Action) -> Option<&NodeRef> {
    match action {
        Action::Taint {
            node, proof: Some(_), ..
        }
        | Action::Evict { node, .. } => Some(node),
        _ => None,
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Reads the answer to a write: gone means that nothing is left to do, a conflict that the object changed.
fn settled<T>(what: String, answer: std::result::Result<T, kube::Error>) -> Result<Outcome> {
    match answer {
        Ok(_) => Ok(Outcome::Done),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Outcome::Done),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Outcome::Stale),
        Err(source) => Err(ActionError::Api { what, source }),
    }
}
