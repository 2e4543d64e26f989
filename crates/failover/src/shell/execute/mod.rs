//! Carries actions out: each idempotent, with preconditions, and only while this replica leads.

mod node;
mod pod;
mod record;

use super::RosterSigning;
use super::metrics::Metrics;
use crate::clock::Clock;
use evenkeel_api::names::{self, annotations};
use evenkeel_api::policy::ModePolicy;
use evenkeel_election as election;
use evenkeel_failover_rules::dispatch::Ended;
use evenkeel_failover_rules::planner::action::{Action, NodeRef};
use evenkeel_failover_rules::world::{Decisions, Judged, LastSigns};
use evenkeel_judge::{Dead, NodeState};
use evenkeel_zone::Millis;
use kube::Client;
use kube::api::{DeleteParams, PatchParams, Preconditions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use tokio::sync::Mutex;

/// A consistent read of a node's Lease and Node speaks for all evictions on it that begin within this time. A
/// node that writes meanwhile is seen by the watches, and the planner asks for no more of them.
const SILENCE_HOLDS_MS: u64 = 5_000;
/// Nodes whose last read is remembered.
const READS_KEPT: usize = 256;

/// What became of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Done, or there was nothing left to do.
    Done,
    /// The object has changed; the next look decides again.
    Stale,
}

/// Why an action was not carried out. What the planner still wants is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActionError {
    /// It must not be done: the node gave a sign of life, or this replica leads no longer.
    #[error("{0}")]
    Refused(String),
    /// The API server said no, or nothing.
    #[error("cannot {what}")]
    Api {
        /// What was tried, with the object's name.
        what: String,
        #[source]
        source: kube::Error,
    },
    /// An object of ours could not be written as JSON.
    #[error("cannot write {what} as JSON")]
    Json {
        what: String,
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
    reads: Reads,
    /// What the latest look allows. What was planned before it asks again.
    allowed: Arc<SyncMutex<Allowed>>,
    issuer: Issuer,
}

/// UIDs of nodes against which something may be done, where policies let us act.
#[derive(Default)]
struct Allowed {
    /// Their death is confirmed.
    dead: BTreeSet<String>,
    /// Evictions from them are kept from the stock controllers.
    kept: BTreeSet<String>,
}

/// Who draws challenges and signs rosters, and by which clock.
#[derive(Clone)]
pub(super) struct Issuer {
    pub(super) clock: Clock,
    /// Name of this process in what it draws.
    pub(super) life: String,
    pub(super) rosters: RosterSigning,
}

/// By node UID: with which signs the node was last found silent, and when.
type Reads = Arc<SyncMutex<BTreeMap<String, Arc<Mutex<Option<(LastSigns, Millis)>>>>>>;

impl Executor {
    pub(super) fn new(client: Client, gate: Gate, metrics: Metrics, issuer: Issuer) -> Self {
        Self {
            client,
            gate,
            metrics,
            reads: Reads::default(),
            allowed: Arc::default(),
            issuer,
        }
    }

    /// Takes what the latest look allows.
    pub(super) fn take_allowed(&self, decisions: &Decisions) {
        let nodes = |which: fn(&Judged) -> bool| {
            let may_act =
                |judged: &&Judged| judged.decision.may_harm() && judged.settings.mode == ModePolicy::Act;
            let nodes = decisions
                .nodes
                .values()
                .filter(may_act)
                .filter(|judged| which(judged));
            nodes.map(|judged| judged.uid.clone()).collect()
        };
        let allowed = Allowed {
            dead: nodes(|judged| judged.decision.state() == NodeState::Dead(Dead::Confirmed)),
            kept: nodes(|judged| judged.protection.evictions),
        };
        *self.allowed.lock().unwrap_or_else(PoisonError::into_inner) = allowed;
    }

    /// The same, writing through another client and gate.
    pub(super) fn through(&self, client: Client, gate: Gate) -> Self {
        Self::new(client, gate, self.metrics.clone(), self.issuer.clone())
    }

    /// The fencing token of the present term, as an annotation of what is written: whoever orders writes of
    /// two leaders later can tell them apart.
    fn stamp(&self) -> BTreeMap<&'static str, Option<String>> {
        let token = self.gate.proof.as_ref().and_then(election::Gate::token);
        let stamp = token.map(|token| (annotations::FENCING_TOKEN, Some(token.to_string())));
        stamp.into_iter().collect()
    }

    /// Carries an action out. `signs`: what was last seen of the node's own writes when the action was
    /// planned.
    pub(super) async fn perform(&self, action: &Action, signs: &LastSigns) -> Result<Outcome> {
        let outcome = self.attempt(action, signs).await;
        let label = match &outcome {
            Ok(Outcome::Done) => "done",
            Ok(Outcome::Stale) => "stale",
            Err(ActionError::Refused(_)) => "refused",
            Err(_) => "failed",
        };
        self.metrics.acted(kind(action), label);
        outcome
    }

    async fn attempt(&self, action: &Action, signs: &LastSigns) -> Result<Outcome> {
        self.check_leads()?;
        match action {
            Action::Taint { node, taint, proof } => {
                let mut found = None;
                if proof.is_some() {
                    found = Some(self.still_silent(node, signs).await?);
                    self.check_dead(node)?;
                }
                self.taint(node, taint, found).await
            }
            Action::TaintForStock { node, version, taint } => {
                self.taint_for_stock(node, version, taint).await
            }
            Action::Untaint { node, taints } => self.untaint(node, taints).await,
            Action::MarkNodeUnknown {
                node,
                version,
                message,
            } => {
                self.still_silent(node, signs).await?;
                self.check_dead(node)?;
                self.mark_node_unknown(node, version, message).await
            }
            Action::MarkPodNotReady {
                pod,
                version,
                reason,
                message,
            } => self.mark_pod(pod, version, "False", reason, message).await,
            Action::RestorePodReady {
                pod,
                version,
                message,
            } => {
                let reason = names::conditions::REASON_GIVEN_BACK;
                self.mark_pod(pod, version, "True", reason, message).await
            }
            Action::Evict {
                pod,
                node,
                message,
                dead_since: _,
                proof: _,
            } => {
                self.silent_for_all(node, signs).await?;
                self.evict(pod, None, message, &|| self.check_dead(node)).await
            }
            Action::EvictFromKept {
                pod,
                node,
                version,
                message,
            } => {
                self.silent_for_all(node, signs).await?;
                let check = || self.check_kept(node);
                self.evict(pod, Some(version), message, &check).await
            }
            Action::MirrorVerdict { node, healthy } => self.mirror(node, *healthy).await,
            Action::SaveIncident(incident) => self.save_incident(incident).await,
            Action::DeleteIncident { name, uid } => self.delete_incident(name, uid).await,
            Action::PublishCell { zone, cell, roster } => self.publish_cell(zone, *cell, roster).await,
            Action::Challenge {
                zone,
                cell,
                replaces,
                draw,
                wanted,
            } => {
                self.challenge((zone, *cell), replaces.as_deref(), *draw, wanted)
                    .await
            }
            Action::DeleteCell { object, uid } => self.delete_cell(object, uid).await,
            Action::TellCell { node, object } => self.tell_cell(node, object).await,
            Action::SavePolicyStatus { policy, status } => self.save_policy_status(policy, status).await,
            Action::Event(notice) => self.event(notice).await,
        }
    }

    /// As `still_silent`, once for all evictions that begin within [`SILENCE_HOLDS_MS`].
    async fn silent_for_all(&self, node: &NodeRef, signs: &LastSigns) -> Result<()> {
        let read = {
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            if reads.len() >= READS_KEPT && !reads.contains_key(&node.uid) {
                reads.clear();
            }
            Arc::clone(reads.entry(node.uid.clone()).or_default())
        };
        let mut read = read.lock().await;
        let began = self.issuer.clock.now();
        let holds = |(known, at): &(LastSigns, Millis)| known == signs && began.since(*at) < SILENCE_HOLDS_MS;
        if read.as_ref().is_some_and(holds) {
            return self.check_leads();
        }
        *read = None;
        self.still_silent(node, signs).await?;
        *read = Some((signs.clone(), began));
        Ok(())
    }

    /// Its neighbours may have vouched for the node, or somebody has paused everything, while the API server
    /// took its time.
    fn check_dead(&self, node: &NodeRef) -> Result<()> {
        self.check(node, "confirmed dead", |allowed| &allowed.dead)
    }

    /// The same of its link.
    fn check_kept(&self, node: &NodeRef) -> Result<()> {
        self.check(node, "kept", |allowed| &allowed.kept)
    }

    fn check(&self, node: &NodeRef, what: &str, nodes: fn(&Allowed) -> &BTreeSet<String>) -> Result<()> {
        self.check_leads()?;
        let allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &node.name;
        let why = || format!("node {name} is not {what} any more, or nothing may be done");
        refuse_unless(nodes(&allowed).contains(&node.uid), why)
    }

    /// A leader that lost its Lease writes nothing more (S3). Asked again before each write.
    fn check_leads(&self) -> Result<()> {
        refuse_unless(self.gate.is_open(), || {
            "this replica does not lead any more".to_owned()
        })
    }
}

fn refuse_unless(allowed: bool, why: impl Fn() -> String) -> Result<()> {
    allowed.then_some(()).ok_or_else(|| ActionError::Refused(why()))
}

/// What the dispatcher takes an outcome for.
pub(super) fn counts_as(outcome: &Result<Outcome>) -> Ended {
    match outcome {
        Ok(Outcome::Done) => Ended::Done,
        Ok(Outcome::Stale) => Ended::Stale,
        Err(_) => Ended::Failed,
    }
}

/// Name of an action in metrics and logs.
pub(super) fn kind(action: &Action) -> &'static str {
    match action {
        Action::Taint { .. } => "taint",
        Action::TaintForStock { .. } => "taint-for-stock",
        Action::Untaint { .. } => "untaint",
        Action::MarkNodeUnknown { .. } => "mark-node-unknown",
        Action::MarkPodNotReady { .. } => "mark-pod-not-ready",
        Action::RestorePodReady { .. } => "restore-pod-ready",
        Action::Evict { .. } => "evict",
        Action::EvictFromKept { .. } => "evict-from-kept",
        Action::MirrorVerdict { .. } => "mirror-verdict",
        Action::SaveIncident(_) => "save-incident",
        Action::DeleteIncident { .. } => "delete-incident",
        Action::PublishCell { .. } => "publish-cell",
        Action::Challenge { .. } => "challenge",
        Action::DeleteCell { .. } => "delete-cell",
        Action::TellCell { .. } => "tell-cell",
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
        | Action::MarkNodeUnknown { node, .. }
        | Action::Evict { node, .. }
        | Action::EvictFromKept { node, .. } => Some(node),
        _ => None,
    }
}

/// Deletes the object of this UID and no later one of its name; of this version only, if one is given.
fn only(uid: &str, version: Option<String>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: version,
    })
}

fn params() -> PatchParams {
    PatchParams::apply(names::FIELD_MANAGER)
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
