//! The base pods that exist.

use super::{PodSeen, PodState};
use crate::core::{Identity, PodRef};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A pod that has not ended.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) reference: PodRef,
    pub(super) uid: Arc<str>,
    pub(super) address: Option<IpAddr>,
    pub(super) identity: Option<Identity>,
    pub(super) name: Option<String>,
    pub(super) version: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) ready: bool,
    /// Since when it is ready, or when it was last tried in vain.
    pub(super) since: Duration,
    /// Its base has said that it does not serve: the pod alone does not say otherwise.
    muted: bool,
}

impl Pod {
    /// `NAMESPACE/NAME` of the pod.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.reference.namespace, self.reference.name)
    }
}

#[derive(Debug, Default)]
pub(super) struct Pods {
    live: HashMap<Arc<str>, Pod>,
    addresses: HashMap<IpAddr, BTreeSet<Arc<str>>>,
    identities: HashMap<Identity, BTreeSet<Arc<str>>>,
    /// Pods that are ready and may be bases of which nobody has spoken.
    waiting: BTreeSet<Arc<str>>,
}

impl Pods {
    pub(super) fn get(&self, uid: &str) -> Option<&Pod> {
        self.live.get(uid)
    }

    /// Takes note of a pod that has not ended.
    pub(super) fn put(&mut self, seen: PodSeen, now: Duration) {
        let uid = seen.pod.uid.clone();
        let ready = seen.state == PodState::Ready;
        let former = self.remove(&uid);
        let since = former.as_ref().filter(|pod| pod.ready).map(|pod| pod.since);
        let muted = former.is_some_and(|pod| pod.muted);
        let address = seen.address.map(|address| address.to_canonical());
        if let Some(address) = address {
            self.addresses.entry(address).or_default().insert(uid.clone());
        }
        if let Some(identity) = &seen.identity {
            let named = self.identities.entry(identity.clone()).or_default();
            named.insert(uid.clone());
        }
        if ready && !muted {
            self.waiting.insert(uid.clone());
        }
        let pod = Pod {
            uid: uid.clone(),
            address,
            identity: seen.identity,
            name: seen.name,
            version: seen.version,
            cluster: seen.cluster,
            port: seen.port,
            reference: seen.pod,
            ready,
            since: since.unwrap_or(now),
            muted,
        };
        self.live.insert(uid, pod);
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<Pod> {
        let pod = self.live.remove(uid)?;
        self.waiting.remove(uid);
        if let Some(address) = &pod.address {
            drop_from(&mut self.addresses, address, uid);
        }
        if let Some(identity) = &pod.identity {
            drop_from(&mut self.identities, identity, uid);
        }
        Some(pod)
    }

    /// The pod that a base runs in: the one that is declared to be it, else the one at its address.
    pub(super) fn of(&self, identity: &Identity, address: IpAddr) -> Option<&Pod> {
        let declared = self.identities.get(identity).into_iter().flatten();
        let declared = declared.filter_map(|uid| self.live.get(uid));
        declared
            .max_by_key(|pod| (pod.address == Some(address), pod.ready, pod.since))
            .or_else(|| self.at(address))
    }

    /// The pod at an address that is not declared to be a certain base; none where there are several (host
    /// network).
    pub(super) fn at(&self, address: IpAddr) -> Option<&Pod> {
        let mut there = self.all_at(address).filter(|pod| pod.identity.is_none());
        there.next().filter(|_| there.next().is_none())
    }

    /// Where the pod that is declared to be this base is, or its own address if that is its name.
    pub(super) fn address_of(&self, identity: &Identity) -> Option<IpAddr> {
        let declared = self.identities.get(identity).into_iter().flatten();
        let mut addresses = declared.filter_map(|uid| self.live.get(uid)?.address);
        addresses.next().or_else(|| identity.as_str().parse().ok())
    }

    /// Whether a base pod has this address.
    pub(super) fn is_address(&self, address: IpAddr) -> bool {
        self.addresses.contains_key(&address)
    }

    /// If all pods at an address are declared to be other bases: one of them.
    pub(super) fn other_at(&self, address: IpAddr, identity: &Identity) -> Option<String> {
        let mut other = None;
        for pod in self.all_at(address) {
            match &pod.identity {
                Some(declared) if declared != identity => other = Some(pod.path()),
                _ => return None,
            }
        }
        other
    }

    fn all_at(&self, address: IpAddr) -> impl Iterator<Item = &Pod> {
        let there = self.addresses.get(&address).into_iter().flatten();
        there.filter_map(|uid| self.live.get(uid))
    }

    /// Pods that may be bases of which nobody has spoken.
    pub(super) fn waiting(&self) -> Vec<Arc<str>> {
        self.waiting.iter().cloned().collect()
    }

    /// Was tried in vain: it is tried again later.
    pub(super) fn again(&mut self, uid: &str, now: Duration) {
        if let Some(pod) = self.live.get_mut(uid) {
            pod.since = now;
        }
    }

    pub(super) fn mute(&mut self, uid: &Arc<str>) {
        if let Some(pod) = self.live.get_mut(uid) {
            pod.muted = true;
        }
        self.waiting.remove(uid);
    }

    pub(super) fn unmute(&mut self, uid: &str) {
        if let Some(pod) = self.live.get_mut(uid) {
            pod.muted = false;
        }
    }
}

fn drop_from<K: std::hash::Hash + Eq>(map: &mut HashMap<K, BTreeSet<Arc<str>>>, key: &K, uid: &str) {
    if let Some(uids) = map.get_mut(key) {
        uids.remove(uid);
        if uids.is_empty() {
            map.remove(key);
        }
    }
}
