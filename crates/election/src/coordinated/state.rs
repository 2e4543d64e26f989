//! The state of a coordinator: which Leases it has to reconcile when, and the requests of one reconciliation.

use super::coordinator::Coordinator;
use super::object;
use super::requests::{Failure, bounded};
use crate::core::coordinated::{Candidate, LeaseChange, Step, expired_candidates, reconcile};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::coordination::v1beta1::LeaseCandidate;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Namespace and name of a Lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    namespace: String,
    name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The fields of a Lease that change with every renewal and every change of holder, and with nothing else.
#[derive(Clone, Debug, PartialEq)]
struct Term {
    uid: Option<String>,
    holder: Option<String>,
    renew_time: Option<Timestamp>,
    transitions: Option<i32>,
}

impl Term {
    fn of(lease: &Lease) -> Self {
        let spec = lease.spec.as_ref();
        Self {
            uid: lease.uid(),
            holder: spec.and_then(|spec| spec.holder_identity.clone()),
            renew_time: spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0),
            transitions: spec.and_then(|spec| spec.lease_transitions),
        }
    }
}

/// What a coordinator knows, and what it has to do next.
pub(super) struct CoordinatorState {
    coordinator: Coordinator,
    candidates: Store<LeaseCandidate>,
    leases: Store<Lease>,
    /// Whether the first list of candidates and that of Leases are complete. Before that nobody is elected.
    synced: (bool, bool),
    /// When which Lease is to be reconciled.
    due: BTreeMap<Key, Instant>,
    /// Since when each Lease has been unchanged. This clock stands still while the machine is suspended,
    /// which only makes the coordinator wait longer.
    terms: BTreeMap<Key, (Term, Instant)>,
    /// The last failure of each Lease that was logged, so that it is logged once.
    logged: BTreeMap<Key, String>,
}

impl CoordinatorState {
    pub(super) fn new(
        coordinator: Coordinator,
        candidates: Store<LeaseCandidate>,
        leases: Store<Lease>,
    ) -> Self {
        Self {
            coordinator,
            candidates,
            leases,
            synced: (false, false),
            due: BTreeMap::new(),
            terms: BTreeMap::new(),
            logged: BTreeMap::new(),
        }
    }

    /// Whether all candidates and all Leases are known.
    pub(super) fn is_ready(&self) -> bool {
        self.synced == (true, true)
    }

    /// When the next reconciliation is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    pub(super) fn candidate_event(&mut self, event: watcher::Event<LeaseCandidate>) {
        match event {
            watcher::Event::Apply(object) | watcher::Event::Delete(object) => self.schedule_lease_of(&object),
            watcher::Event::Init | watcher::Event::InitApply(_) => {}
            watcher::Event::InitDone => {
                self.synced.0 = true;
                for object in self.candidates.state() {
                    self.schedule_lease_of(&object);
                }
            }
        }
    }

    pub(super) fn lease_event(&mut self, event: watcher::Event<Lease>) {
        match event {
            watcher::Event::Apply(lease) | watcher::Event::Delete(lease) => self.schedule(&lease),
            watcher::Event::Init | watcher::Event::InitApply(_) => {}
            watcher::Event::InitDone => {
                self.synced.1 = true;
                for lease in self.leases.state() {
                    self.schedule(&lease);
                }
            }
        }
    }

    fn schedule_lease_of(&mut self, object: &LeaseCandidate) {
        let Some(spec) = &object.spec else { return };
        let key = Key {
            namespace: object.namespace().unwrap_or_default(),
            name: spec.lease_name.clone(),
        };
        self.due.insert(key, Instant::now());
    }

    /// Schedules a Lease that has candidates. Most Leases have none.
    fn schedule(&mut self, lease: &Lease) {
        let key = Key {
            namespace: lease.namespace().unwrap_or_default(),
            name: lease.name_any(),
        };
        if !self.candidates_for(&key).is_empty() {
            self.observe(&key);
            self.due.insert(key, Instant::now());
        }
    }

    fn candidates_for(&self, key: &Key) -> Vec<Arc<LeaseCandidate>> {
        let stands_for = |object: &LeaseCandidate| {
            object.metadata.namespace.as_deref() == Some(key.namespace.as_str())
                && object
                    .spec
                    .as_ref()
                    .is_some_and(|spec| spec.lease_name == key.name)
        };
        self.candidates.state_filter(|object| stands_for(object))
    }

    /// The Lease, and for how long it has been unchanged.
    fn observe(&mut self, key: &Key) -> Option<(Arc<Lease>, Duration)> {
        let lease = self.leases.get(&ObjectRef::new(&key.name).within(&key.namespace));
        let Some(lease) = lease else {
            self.terms.remove(key);
            return None;
        };
        let term = Term::of(&lease);
        let now = Instant::now();
        let seen = self
            .terms
            .entry(key.clone())
            .and_modify(|seen| {
                if seen.0 != term {
                    *seen = (term.clone(), now);
                }
            })
            .or_insert_with(|| (term.clone(), now));
        let unchanged_for = now.saturating_duration_since(seen.1);
        Some((lease, unchanged_for))
    }

    pub(super) async fn reconcile_due(&mut self) {
        let now = Instant::now();
        let due: Vec<Key> = self
            .due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            self.due.remove(&key);
            if let Some(again) = self.reconcile(&key).await {
                self.due.insert(key, Instant::now() + again);
            }
        }
    }

    /// Reconciles one Lease. Returns after how long to do it again at the latest.
    async fn reconcile(&mut self, key: &Key) -> Option<Duration> {
        let objects = self.candidates_for(key);
        let candidates: Vec<Candidate> = objects.iter().map(|object| object::candidate(object)).collect();
        let lease = self.observe(key);
        let view = lease
            .as_ref()
            .map(|(lease, unchanged_for)| object::view(lease, Some(*unchanged_for)));
        let Coordinator {
            strategies, timing, ..
        } = &self.coordinator;
        let now = object::now();
        let step = match reconcile(view.as_ref(), &candidates, strategies, timing, now) {
            Ok(step) => step,
            Err(refusal) => {
                let text = refusal.to_string();
                if self.logged.get(key) != Some(&text) {
                    tracing::warn!(lease = %key, reason = %text, "election without a result; trying again");
                    self.logged.insert(key.clone(), text);
                }
                return Some(self.coordinator.timing.requeue);
            }
        };
        let again = step.requeue(timing);
        let done = match step {
            Step::Idle => {
                self.terms.remove(key);
                self.logged.remove(key);
                Ok(())
            }
            Step::Settled { .. } => Ok(()),
            Step::Poll { ping } => self.ping(&objects, &ping, now).await,
            Step::Write(change) => self.write(key, lease.map(|(lease, _)| lease), change, now).await,
        };
        match done {
            Ok(()) => {}
            // Somebody else wrote first. The watch delivers that change and schedules the Lease again.
            Err(failure) if failure.is_conflict() || failure.is_missing() => {
                tracing::debug!(lease = %key, %failure, "the election was overtaken");
            }
            Err(failure) => {
                tracing::warn!(lease = %key, %failure, "cannot write the step of an election; trying again");
            }
        }
        again
    }

    /// Asks these candidates to renew their objects. All requests are sent at once, so that every candidate
    /// has the same time to answer.
    async fn ping(
        &self,
        objects: &[Arc<LeaseCandidate>],
        names: &[String],
        now: Timestamp,
    ) -> Result<(), Failure> {
        let pings = objects
            .iter()
            .filter(|object| names.contains(&object.name_any()))
            .map(|object| async move {
                let api: Api<LeaseCandidate> =
                    self.coordinator.in_one(&object.namespace().unwrap_or_default());
                let patch = Patch::Merge(object::ping(object, now));
                bounded(api.patch(&object.name_any(), &PatchParams::default(), &patch)).await
            });
        for pinged in futures::future::join_all(pings).await {
            pinged?;
        }
        Ok(())
    }

    async fn write(
        &mut self,
        key: &Key,
        lease: Option<Arc<Lease>>,
        change: LeaseChange,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let timing = &self.coordinator.timing;
        let api: Api<Lease> = self.coordinator.in_one(&key.namespace);
        let patch = lease.and_then(|lease| object::lease_patch(&lease, &change, timing, now));
        match (patch, &change) {
            (Some(patch), _) => {
                bounded(api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))).await?;
            }
            (None, LeaseChange::Create { strategy, holder }) => {
                let lease =
                    object::new_lease(&key.namespace, &key.name, strategy, holder.clone(), timing, now);
                bounded(api.create(&PostParams::default(), &lease)).await?;
            }
            // The other changes need a Lease, and there is none.
            (None, _) => return Ok(()),
        }
        self.logged.remove(key);
        match change {
            LeaseChange::Create {
                strategy,
                holder: Some(holder),
            }
            | LeaseChange::Assign { strategy, holder } => {
                tracing::info!(lease = %key, %holder, %strategy, "elected");
            }
            LeaseChange::Prefer { strategy, holder } => {
                tracing::info!(lease = %key, preferred = %holder, %strategy, "requested a hand-over from the holder");
            }
            LeaseChange::Create {
                strategy,
                holder: None,
            }
            | LeaseChange::Label { strategy } => {
                tracing::info!(lease = %key, %strategy, "labelled; the strategy is carried out by somebody else");
            }
        }
        Ok(())
    }

    /// Deletes the objects of candidates that have ended without deleting them.
    pub(super) async fn delete_expired_candidates(&self) {
        let known = self.candidates.state();
        for object in known {
            if self.is_alive(&object) {
                continue;
            }
            if let Err(failure) = self.delete_expired(&object).await
                && !failure.is_conflict()
                && !failure.is_missing()
            {
                tracing::warn!(candidate = %object.name_any(), %failure, "cannot delete an expired lease candidate");
            }
        }
    }

    fn is_alive(&self, object: &LeaseCandidate) -> bool {
        let candidate = object::candidate(object);
        expired_candidates([&candidate], &self.coordinator.timing, Timestamp::now()).is_empty()
    }

    async fn delete_expired(&self, object: &LeaseCandidate) -> Result<(), Failure> {
        let name = object.name_any();
        let api: Api<LeaseCandidate> = self.coordinator.in_one(&object.namespace().unwrap_or_default());
        let live = bounded(api.get(&name)).await?;
        if self.is_alive(&live) {
            return Ok(());
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: live.metadata.uid,
                resource_version: live.metadata.resource_version,
            }),
            ..DeleteParams::default()
        };
        bounded(api.delete(&name, &params)).await?;
        tracing::info!(candidate = %name, "deleted an expired lease candidate");
        Ok(())
    }
}
