//! Which actor serves which node, and which pods are probed.

use super::mailbox::Mailbox;
use crate::ownership::Term;
use crate::pods::Message;
use crate::provider::PodId;
use kube::Client;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A node's actor, as others see it.
pub(crate) struct Handle {
    /// Unique in the process: a node that is served, lost and served again has another.
    pub(crate) id: u64,
    /// The node's name.
    pub(crate) name: Arc<str>,
    /// For how long it serves.
    pub(crate) term: Term,
    mailbox: Mailbox<Message>,
    /// The list of pods before which the actor came: what later ones say it hears in full.
    since: AtomicU32,
    /// All pods of the node are known to the actor.
    listed: AtomicBool,
    /// A list for this node alone is under way.
    listing: AtomicBool,
    /// The Node exists, as far as the actor knows.
    registered: AtomicBool,
    /// The provider has answered a ping, or failed to in time.
    heard: AtomicBool,
    ill: Mutex<Option<Arc<str>>>,
    /// Behind the gate of the node's slot.
    client: OnceLock<Arc<Client>>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// Of an actor that serves during a term.
    pub(crate) fn during(id: u64, name: Arc<str>, term: Term) -> (Arc<Self>, MailboxReader) {
        let handle = Arc::new(Self {
            id,
            name,
            term,
            mailbox: Mailbox::new(),
            since: AtomicU32::new(0),
            listed: AtomicBool::new(false),
            listing: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            ill: Mutex::new(Some("the node is not registered yet".into())),
            client: OnceLock::new(),
        });
        (handle.clone(), MailboxReader(handle))
    }

    /// By which the node is served.
    pub(crate) fn set_client(&self, client: &Arc<Client>) {
        // Once, by who made the handle.
        let _ = self.client.set(client.clone());
    }

    pub(crate) fn client(&self) -> Option<Client> {
        self.client.get().map(|client| Client::clone(client))
    }

    #[cfg(test)]
    pub(crate) fn new(id: u64, name: Arc<str>) -> (Arc<Self>, MailboxReader) {
        Self::during(id, name, Term::default())
    }

    /// Into the mailbox; an actor that has ended hears nothing.
    pub(crate) fn send(&self, message: Message) {
        self.mailbox.put(message);
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.mailbox.is_closed()
    }

    /// From now on all pods of the node are known.
    pub(crate) fn listed(&self) {
        self.listed.store(true, Ordering::Release);
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// The first ping has ended, in whatever way.
    pub(crate) fn heard(&self) {
        self.heard.store(true, Ordering::Release);
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Acquire)
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    pub(crate) fn set_registered(&self, registered: bool) {
        self.registered.store(registered, Ordering::Release);
    }

    /// Why the node is not well.
    pub(crate) fn ill(&self) -> Option<Arc<str>> {
        self.lock().clone()
    }

    pub(crate) fn set_ill(&self, why: Option<Arc<str>>) {
        *self.lock() = why;
    }

    /// A single assignment is done under it.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.ill.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an actor finds what it is told. Closed when it is dropped.
#[derive(Debug)]
pub(crate) struct MailboxReader(Arc<Handle>);

impl MailboxReader {
    /// The next message; waits for one. `None` once closed and empty. Cancel safe.
    pub(crate) async fn recv(&self) -> Option<Message> {
        self.0.mailbox.take().await
    }

    /// The next message, if there is one.
    #[cfg(test)]
    pub(crate) fn try_recv(&self) -> Option<Message> {
        self.0.mailbox.try_take()
    }

    /// From now on the actor hears nothing.
    pub(crate) fn close(&self) {
        self.0.mailbox.close();
    }
}

impl Drop for MailboxReader {
    fn drop(&mut self) {
        self.close();
        // A message may hold its node's handle.
        while self.0.mailbox.try_take().is_some() {}
    }
}

/// All nodes that this replica serves.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    nodes: RwLock<Nodes>,
    /// Pods that have probes, by UID.
    probed: RwLock<Probed>,
}

type Probed = HashMap<Arc<str>, (PodId, Arc<Handle>)>;

#[derive(Debug, Default)]
struct Nodes {
    by_name: HashMap<Arc<str>, Arc<Handle>>,
    /// Number of the list of pods that is under way, or was the last.
    epoch: u32,
}

impl Directory {
    pub(crate) fn add(&self, handle: &Arc<Handle>) {
        let mut nodes = self.write();
        handle.since.store(nodes.epoch, Ordering::Release);
        nodes.by_name.insert(handle.name.clone(), handle.clone());
    }

    /// Unless another actor serves the node by now.
    pub(crate) fn remove(&self, handle: &Handle) {
        let mut nodes = self.write();
        if nodes
            .by_name
            .get(&handle.name)
            .is_some_and(|known| known.id == handle.id)
        {
            nodes.by_name.remove(&handle.name);
        }
    }

    pub(crate) fn node(&self, name: &str) -> Option<Arc<Handle>> {
        self.read().by_name.get(name).cloned()
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Handle>> {
        self.read().by_name.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.read().by_name.len()
    }

    /// A new list of all pods begins. Actors that are there by now hear all of it.
    pub(crate) fn list_begins(&self) -> u32 {
        let mut nodes = self.write();
        nodes.epoch = nodes.epoch.wrapping_add(1);
        nodes.epoch
    }

    /// It is complete.
    pub(crate) fn list_ends(&self) {
        let nodes = self.read();
        for handle in nodes.by_name.values() {
            if handle.since.load(Ordering::Acquire) != nodes.epoch {
                handle.send(Message::Listed(nodes.epoch));
            }
        }
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.read().epoch
    }

    /// Nodes that neither a list that was complete nor one that is under way tells everything about.
    pub(crate) fn unlisted(&self) -> Vec<Arc<Handle>> {
        let nodes = self.read();
        let uncovered = |handle: &&Arc<Handle>| {
            !handle.is_listed()
                && !handle.listing.load(Ordering::Acquire)
                && handle.since.load(Ordering::Acquire) == nodes.epoch
        };
        nodes.by_name.values().filter(uncovered).cloned().collect()
    }

    /// A list for this node alone begins; it ends with the actor's being listed.
    pub(crate) fn listing(handle: &Handle) {
        handle.listing.store(true, Ordering::Release);
    }

    pub(crate) fn probe(&self, pod: PodId, handle: Arc<Handle>) {
        let mut probed = self.probed.write().unwrap_or_else(PoisonError::into_inner);
        probed.insert(pod.uid.clone(), (pod, handle));
    }

    /// Returns whether it was probed.
    pub(crate) fn unprobe(&self, uid: &str) -> bool {
        let mut probed = self.probed.write().unwrap_or_else(PoisonError::into_inner);
        probed.remove(uid).is_some()
    }

    pub(crate) fn probed(&self, uid: &str) -> Option<(PodId, Arc<Handle>)> {
        let probed = self.probed.read().unwrap_or_else(PoisonError::into_inner);
        probed.get(uid).cloned()
    }

    /// Single insertions and removals are done under it.
    fn read(&self) -> RwLockReadGuard<'_, Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Nodes> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_comes_in_the_midst_of_a_list_is_not_told_that_it_was_complete() {
        let directory = Directory::default();
        let (early, told) = Handle::new(1, "early".into());
        let (late, not_told) = Handle::new(2, "late".into());
        directory.add(&early);
        assert_eq!(directory.list_begins(), 1);
        directory.add(&late);
        let unlisted: Vec<u64> = directory.unlisted().iter().map(|handle| handle.id).collect();
        assert_eq!(unlisted, [2]);
        directory.list_ends();
        assert!(matches!(told.try_recv(), Some(Message::Listed(1))));
        assert!(not_told.try_recv().is_none());
        assert_eq!(directory.list_begins(), 2);
        assert!(directory.unlisted().is_empty());
        directory.list_ends();
        assert!(matches!(not_told.try_recv(), Some(Message::Listed(2))));
    }

    #[test]
    fn an_actor_that_ends_late_does_not_take_its_successor_along() {
        let directory = Directory::default();
        let (former, _mailbox) = Handle::new(1, "node".into());
        let (present, _mailbox) = Handle::new(2, "node".into());
        directory.add(&former);
        directory.add(&present);
        directory.remove(&former);
        assert_eq!(directory.node("node").unwrap().id, 2);
        directory.remove(&present);
        assert!(directory.node("node").is_none());
    }
}
