//! What is remembered of a base.

use super::Settings;
use crate::core::claims::Owner;
use crate::core::identity::digest;
use crate::core::module::Module;
use crate::core::{Base, Claims, Endpoint};
use evenkeel_arklet::health::Health;
use evenkeel_arklet::{ModuleId, ModuleList};
use evenkeel_vnode::provider::{ContainerId, Doing, Fault, FaultKind, PodId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as Lock, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Reason of pods that wait for a module which another pod has.
pub(super) const CLAIMED: &str = "ModuleClaimed";

/// All bases of which something is remembered, by node.
#[derive(Default)]
pub(super) struct Table {
    nodes: Mutex<HashMap<Arc<str>, Arc<Memory>>>,
}

impl Table {
    pub(super) fn of(&self, node: &str, settings: &Settings) -> Arc<Memory> {
        let mut nodes = self.lock();
        if let Some(memory) = nodes.get(node) {
            return memory.clone();
        }
        let memory = Arc::new(Memory::new(settings.operations));
        nodes.insert(node.into(), memory.clone());
        memory
    }

    /// What is remembered of a node that is served.
    pub(super) fn known(&self, node: &str) -> Option<Arc<Memory>> {
        self.lock().get(node).cloned()
    }

    pub(super) fn forget(&self, node: &str) {
        self.lock().remove(node);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Memory>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A base with what is remembered of it.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) node: Arc<str>,
    pub(super) base: Arc<Base>,
    pub(super) memory: Arc<Memory>,
}

/// What is remembered of a base. Each lock is held for a moment alone, but those of operations.
pub(super) struct Memory {
    state: Mutex<State>,
    /// Operations under way at a time.
    operations: Arc<Semaphore>,
    /// One operation at a time for all versions of a name: they switch each other off and on.
    names: Mutex<HashMap<String, Weak<Lock<()>>>>,
    /// Held while the journal is read or written.
    pub(super) journal: Lock<()>,
    /// Held while the base is inspected, so that one answer serves all who ask.
    pub(super) inspection: Lock<()>,
}

/// The part that changes.
#[derive(Default)]
pub(super) struct State {
    /// Who has which module.
    pub(super) claims: Claims,
    /// The journal was read.
    pub(super) read: bool,
    /// Digests of the URLs of the jars that claimed modules are installed from.
    pub(super) jars: BTreeMap<ModuleId, String>,
    /// Pods that an earlier process installed something for, and that this one has not met.
    pub(super) unmet: HashSet<Arc<str>>,
    /// Changes of the claims so far, and how many of them are written.
    pub(super) changes: u64,
    pub(super) written: u64,
    /// Pods of which something is being removed: who wants their modules must wait, not fail.
    pub(super) leaving: HashSet<Arc<str>>,
    /// What runs, as it was last reported to the framework, by module and UID of the pod.
    pub(super) running: HashMap<(ModuleId, Arc<str>), Running>,
    /// When the base last answered as itself, and where.
    pub(super) itself: Option<(Instant, Endpoint)>,
    /// That another base answers in its place was logged.
    pub(super) another: bool,
    /// What the base held when it was last asked.
    pub(super) seen: Option<(Instant, Arc<ModuleList>)>,
    /// What it said of its health last.
    pub(super) health: Option<Arc<Health>>,
    /// Names of modules that are being changed.
    pub(super) busy: HashSet<String>,
}

/// A module that runs.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) pod: PodId,
    pub(super) container: ContainerId,
    /// When it was created, in milliseconds by the base's clock: another creation is another instance.
    pub(super) created: Option<i64>,
    /// As last reported.
    pub(super) doing: Doing,
    /// Where the jar is, by the pod's word.
    pub(super) url: Arc<str>,
}

impl Memory {
    fn new(operations: usize) -> Self {
        Self {
            state: Mutex::default(),
            operations: Arc::new(Semaphore::new(operations.max(1))),
            names: Mutex::default(),
            journal: Lock::default(),
            inspection: Lock::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a module's turn.
    pub(super) async fn turn(self: &Arc<Self>, of: &str) -> Turn {
        let lock = {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.retain(|_, lock| lock.strong_count() > 0);
            if let Some(lock) = names.get(of).and_then(Weak::upgrade) {
                lock
            } else {
                let lock = Arc::new(Lock::default());
                names.insert(of.to_owned(), Arc::downgrade(&lock));
                lock
            }
        };
        // First the name, so that whoever waits for it takes nobody else's permit.
        let name = lock.lock_owned().await;
        let permit = self.operations.clone().acquire_owned().await.ok();
        self.state().busy.insert(of.to_owned());
        Turn {
            memory: self.clone(),
            of: of.to_owned(),
            _name: name,
            permit,
        }
    }

    /// Whether the base has answered as itself lately, where it is now held to be.
    pub(super) fn is_itself(&self, endpoint: &Endpoint, lately: Duration) -> bool {
        let state = self.state();
        let known = state.itself.as_ref();
        known.is_some_and(|(at, place)| place == endpoint && at.elapsed() < lately)
    }

    /// Whether it is time to inspect the base again.
    pub(super) fn is_stale(&self, after: Duration) -> bool {
        let state = self.state();
        let after = if state.busy.is_empty() { after } else { after / 2 };
        state.seen.as_ref().is_none_or(|(at, _)| at.elapsed() >= after)
    }
}

impl State {
    /// A pod has a module no more.
    pub(super) fn forget(&mut self, uid: &str, module: &ModuleId) {
        self.running.remove(&(module.clone(), uid.into()));
        self.claims.release(uid, module);
        if self.claims.owners(module).is_empty() {
            self.jars.remove(module);
        }
        self.changed();
    }

    /// A module is installed from the jar that this one names.
    pub(super) fn note_jar(&mut self, module: &Module) {
        let jar = digest(&module.url);
        if self.jars.get(&module.key) != Some(&jar) {
            self.jars.insert(module.key.clone(), jar);
            self.changed();
        }
    }

    /// What a container's ID stands for.
    pub(super) fn module(&self, pod: &PodId, container: &ContainerId) -> Option<ModuleId> {
        let found = self
            .running
            .iter()
            .find(|(_, running)| running.container == *container && running.pod.uid == pod.uid);
        found.map(|((id, _), _)| id.clone())
    }

    /// A module as it runs for a pod other than this one.
    pub(super) fn anothers(&self, uid: &str, module: &ModuleId) -> Option<&Running> {
        let mut running = self.running.iter();
        let found = running.find(|((id, owner), _)| id == module && **owner != *uid);
        found.map(|(_, running)| running)
    }

    /// Why a pod cannot share a module with those who have it. All of them leave: it may be on its way out,
    /// and is installed anew once it is gone. Or it was installed from another jar.
    pub(super) fn cannot_share(&self, base: &Base, uid: &str, module: &Module) -> Option<Fault> {
        let Module { key, .. } = module;
        let owners = self.claims.owners(key);
        let first = owners.first()?;
        if owners.iter().any(|owner| *owner.uid == *uid) {
            return None;
        }
        if owners.iter().all(|owner| self.leaving.contains(&owner.uid)) {
            let message = format!(
                "module {key} on {base} belongs to pod {}, which leaves",
                first.pod
            );
            return Some(Fault::new(FaultKind::Later, CLAIMED, message));
        }
        // Until such a pod is met, or has turned out to be no more, the journal alone knows the jar.
        let is_unmet = |owner: &Owner| self.unmet.contains(&owner.uid);
        let jar = self.jars.get(key).filter(|_| owners.iter().all(is_unmet));
        if jar.is_some_and(|jar| *jar != digest(&module.url)) {
            let message = format!(
                "module {key} on {base} was installed from another jar for pod {}, of which nothing is known yet since this process \
                 began",
                first.pod
            );
            return Some(Fault::new(FaultKind::Later, CLAIMED, message));
        }
        self.other_jar(base, uid, module)
    }

    /// Why a pod cannot share a module that runs for another pod: it was installed from another jar, and
    /// nobody is to run old code under a new image.
    pub(super) fn other_jar(&self, base: &Base, uid: &str, module: &Module) -> Option<Fault> {
        let Module { key, url } = module;
        let other = self.anothers(uid, key).filter(|other| other.url != *url)?;
        let message = format!(
            "module {key} on {base} was installed from {} for pod {}, and this pod names {url}: give the new jar a version of \
             its own, or delete the other pods first",
            other.url, other.pod
        );
        Some(Fault::new(FaultKind::Never, CLAIMED, message))
    }
}

/// The right to change one module of a base.
pub(super) struct Turn {
    memory: Arc<Memory>,
    of: String,
    _name: OwnedMutexGuard<()>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// Gives back its permit among the base's operations, and keeps the module.
    pub(super) fn release_permit(&mut self) {
        self.permit = None;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.memory.state().busy.remove(&self.of);
    }
}
