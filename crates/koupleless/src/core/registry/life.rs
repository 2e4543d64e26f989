//! Whether bases live: silence, proof, return.

use super::merge::{Claim, Claims};
use super::{Change, Entry, Event, Evidence, Life, PodSeen, PodState, Refused, Registry, Settings, Why};
use crate::core::{Connection, Endpoint, Identity, PodRef};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

impl Entry {
    /// For how long nothing was heard of it.
    fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.heard)
    }

    /// For so long until now its silence was ours. Who was heard of meanwhile was not heard of in the future.
    pub(super) fn excuse(&mut self, time: Duration, now: Duration) {
        self.heard = (self.heard + time).min(now);
    }

    fn lose(&mut self, evidence: Evidence, now: Duration) -> Option<Event> {
        if !self.ours || matches!(self.life, Life::Lost(_)) {
            return None;
        }
        self.life = Life::Lost(evidence.clone());
        self.lost = now;
        Some(self.event(Change::Lost(evidence)))
    }
}

impl Registry {
    /// Bases of which the time alone may have something to say.
    pub(super) fn due(&self) -> impl Iterator<Item = &Identity> {
        let soonest = self.settings.silent.min(self.settings.gone);
        let due = move |(identity, entry): (_, &Entry)| {
            let due = entry.silence(self.now) >= soonest || entry.life != Life::Alive;
            due.then_some(identity)
        };
        self.bases.iter().filter_map(due)
    }

    /// Draws the conclusions from the time that has passed.
    pub(super) fn judge(&mut self, identity: &Identity, out: &mut Vec<Event>) {
        let ready = self.is_pod_ready(identity);
        let Self {
            bases,
            settings,
            now,
            cut,
            ..
        } = self;
        let (Some(entry), now) = (bases.get_mut(identity), *now) else {
            return;
        };
        let silence = entry.silence(now);
        if !entry.ours {
            if !entry.seen && silence >= settings.gone {
                // Nobody has made a Node of it.
                self.remove(identity, Change::Left, out);
            }
            return;
        }
        if entry.life == Life::Alive && silence >= settings.silent {
            entry.life = Life::Silent;
            out.push(entry.event(Change::Silent));
        }
        let over = silence >= settings.gone && !ready;
        let is_heard = cut.is_none() || entry.base.endpoint.by != Connection::Mqtt;
        if entry.life == Life::Silent && over && is_heard {
            out.extend(entry.lose(Evidence::Silence(silence), now));
        }
        let Life::Lost(evidence) = &entry.life else {
            return;
        };
        let is_left = entry.pods == Some(0) || now.saturating_sub(entry.lost) >= settings.leave;
        if is_left && (over || *evidence == Evidence::Deactivated) {
            let why = Why::Lost(evidence.clone());
            self.remove(identity, Change::Gone(why), out);
        }
    }

    /// The link to the broker stands from now on, or no more. The time in which it was cut is nobody's
    /// silence. After a long one there is time at least for a few hearts.
    pub(super) fn broker(&mut self, stands: bool) {
        if !stands {
            self.cut.get_or_insert(self.now);
            return;
        }
        let Some(since) = self.cut.take() else {
            return;
        };
        let cut = self.now.saturating_sub(since);
        let Settings { silent, gone, .. } = self.settings;
        let long_ago = self.now.saturating_sub(gone.saturating_sub(silent));
        let least = if cut >= silent { long_ago } else { Duration::ZERO };
        for entry in self.bases.values_mut() {
            if entry.base.endpoint.by == Connection::Mqtt && !matches!(entry.life, Life::Lost(_)) {
                entry.excuse(cut, self.now);
                entry.heard = entry.heard.max(least);
            }
        }
    }

    /// Whether its kubelet reports the base's pod Ready.
    fn is_pod_ready(&self, identity: &Identity) -> bool {
        let pod = self.bases.get(identity).and_then(|entry| entry.base.pod.as_ref());
        pod.and_then(|pod| self.pods.get(&pod.uid))
            .is_some_and(|pod| pod.ready)
    }

    /// A sign of life: what is claimed with it is merged, then the base is back.
    pub(super) fn revived(
        &mut self,
        identity: &Identity,
        update: impl FnOnce(&mut Claims),
        out: &mut Vec<Event>,
    ) {
        let now = self.now;
        let Some(entry) = self.bases.get_mut(identity) else {
            return;
        };
        entry.ended = None;
        entry.deactivated = None;
        entry.heard = now;
        // They were counted when it was gone.
        entry.pods = None;
        update(&mut entry.claims);
        let life = std::mem::replace(&mut entry.life, Life::Alive);
        self.refresh(identity, out);
        if life != Life::Alive
            && let Some(entry) = self.bases.get(identity)
        {
            out.push(entry.event(Change::Back));
        }
    }

    /// Whether an announcement may have been under way when the base's pod ended. `has_pod`: there is another
    /// pod.
    pub(super) fn is_late(&self, identity: &Identity, has_pod: bool) -> bool {
        let entry = self.bases.get(identity);
        let ended = entry.and_then(|entry| entry.ended.as_ref());
        ended.is_some_and(|(at, _)| !has_pod && self.now.saturating_sub(*at) < self.settings.late)
    }

    /// A base announces that it does not serve.
    pub(super) fn deactivated(&mut self, identity: &Identity, out: &mut Vec<Event>) {
        let now = self.now;
        let Some(entry) = self.bases.get_mut(identity) else {
            return;
        };
        entry.deactivated.get_or_insert(now);
        out.extend(entry.lose(Evidence::Deactivated, now));
        self.judge(identity, out);
    }

    /// A base was asked, and somebody answered.
    pub(super) fn answered(
        &mut self,
        identity: &Identity,
        endpoint: Endpoint,
        says: Option<Identity>,
        out: &mut Vec<Event>,
    ) {
        let Some(entry) = self.bases.get(identity) else {
            return;
        };
        if entry.base.endpoint != endpoint {
            // It has moved meanwhile.
            return;
        }
        let is_itself = says.as_ref() == Some(identity);
        let Some(other) = says.filter(|says| says != identity) else {
            let late = self.is_late(identity, self.is_pod_ready(identity));
            let is_active = entry.deactivated.is_none();
            let now = self.now;
            // Who does not say who it is may be another one at its port.
            if let Some(entry) = self.bases.get_mut(identity).filter(|_| is_itself) {
                entry.answered = Some((now, endpoint.clone()));
            }
            if is_active && !late {
                self.revived(identity, |claims| claims.confirm(&endpoint, now), out);
            }
            return;
        };
        let Some(socket) = endpoint.socket() else {
            return;
        };
        if entry.claims.is_announced() || entry.base.pod.is_none() {
            self.absent(identity, socket, Evidence::Replaced(socket, other), out);
            return;
        }
        // So far only the pod was known; now the base has sent its identity.
        let claim = Claim {
            name: None,
            version: None,
            cluster: None,
            host_name: None,
            endpoint,
            at: self.now,
        };
        let told = self
            .may_announce(&other, socket.ip(), None)
            .and_then(|()| self.serves(&other, claim, None, out));
        if let Err(refused) = told {
            tracing::debug!(%identity, %refused, "a base has another identity than its pod, and cannot have it");
        }
    }

    /// A base is not where it should be. That counts in silence alone: ports refuse for a moment in every
    /// restart.
    pub(super) fn absent(
        &mut self,
        identity: &Identity,
        socket: SocketAddr,
        evidence: Evidence,
        out: &mut Vec<Event>,
    ) {
        self.judge(identity, out);
        let now = self.now;
        let Some(entry) = self.bases.get_mut(identity) else {
            return;
        };
        if entry.base.socket() == Some(socket) {
            entry.answered = None;
        }
        if entry.life == Life::Silent && entry.base.socket() == Some(socket) {
            out.extend(entry.lose(evidence, now));
            self.judge(identity, out);
        }
    }

    /// A node is served here from now on, or no more.
    pub(super) fn served(&mut self, node: &Arc<str>, here: bool, out: &mut Vec<Event>) {
        let now = self.now;
        let Some(identity) = self.nodes.get(node).cloned() else {
            return;
        };
        let Some(entry) = self.bases.get_mut(&identity).filter(|entry| entry.ours != here) else {
            return;
        };
        entry.ours = here;
        entry.heard = now;
        entry.life = Life::Alive;
        entry.pods = None;
        if let Some((_, evidence)) = entry.ended.clone() {
            out.extend(entry.lose(evidence, now));
        } else if entry.deactivated.is_some() {
            out.extend(entry.lose(Evidence::Deactivated, now));
        }
    }

    /// A base pod is there.
    pub(super) fn pod(&mut self, seen: PodSeen, out: &mut Vec<Event>) {
        let uid = seen.pod.uid.clone();
        if seen.state == PodState::Ended {
            self.pod_ended(&uid, Evidence::PodEnded, out);
            return;
        }
        self.pods.put(seen, self.now);
        self.consider(&uid, out);
    }

    /// Draws the conclusions from a pod's being there.
    fn consider(&mut self, uid: &Arc<str>, out: &mut Vec<Event>) {
        for identity in self.concerned(uid) {
            self.refresh(&identity, out);
            let Some(entry) = self.bases.get(&identity) else {
                continue;
            };
            let linked = entry.base.pod.as_ref().is_some_and(|pod| pod.uid == *uid);
            // Where no base announces itself, a new pod that is ready is the sign of life.
            if linked && entry.ended.is_some() && entry.deactivated.is_none() && self.is_pod_ready(&identity)
            {
                self.revived(&identity, |_| {}, out);
            }
        }
    }

    /// Bases that a pod may be the pod of.
    fn concerned(&self, uid: &Arc<str>) -> Vec<Identity> {
        let pod = self.pods.get(uid);
        let there = pod.and_then(|pod| self.addresses.get(&pod.address?));
        let mut concerned: Vec<Identity> = self.links.get(uid).cloned().into_iter().collect();
        concerned.extend(pod.and_then(|pod| pod.identity.clone()));
        concerned.extend(there.into_iter().flatten().cloned());
        concerned.sort();
        concerned.dedup();
        concerned
    }

    /// A pod has ended, or is deleted.
    pub(super) fn pod_ended(&mut self, uid: &str, evidence: fn(String) -> Evidence, out: &mut Vec<Event>) {
        let now = self.now;
        self.pods.remove(uid);
        let Some(identity) = self.links.get(uid).cloned() else {
            return;
        };
        let Some(entry) = self
            .bases
            .get_mut(&identity)
            .filter(|entry| entry.ended.is_none())
        else {
            return;
        };
        let pod = entry.base.pod.as_ref();
        let path = pod.map(|pod| format!("{}/{}", pod.namespace, pod.name));
        let evidence = evidence(path.unwrap_or_default());
        entry.ended = Some((now, evidence.clone()));
        entry.claims.forget(entry.base.endpoint.address);
        out.extend(entry.lose(evidence, now));
        self.judge(&identity, out);
        // Another pod may be there already.
        let entry = self.bases.get(&identity);
        let other = entry.and_then(|entry| self.pods.of(&identity, entry.base.endpoint.address));
        if let Some(uid) = other.map(|pod| pod.uid.clone()) {
            self.consider(&uid, out);
        }
    }

    /// A pod is none of ours any more; of its base that says nothing.
    pub(super) fn pod_forgotten(&mut self, uid: &str, out: &mut Vec<Event>) {
        self.pods.remove(uid);
        if let Some(identity) = self.links.get(uid).cloned() {
            if let Some(entry) = self.bases.get_mut(&identity) {
                entry.claims.without_pod();
            }
            self.refresh(&identity, out);
        }
    }

    /// Takes on bases of which only the pods are known.
    pub(super) fn found(&mut self, out: &mut Vec<Event>, refusals: &mut Vec<Refused>) {
        for uid in self.pods.waiting() {
            let Some(pod) = self.pods.get(&uid) else {
                continue;
            };
            let Some(address) = pod.address else {
                continue;
            };
            let there = self.addresses.contains_key(&address);
            if self.links.contains_key(&uid) || (there && pod.identity.is_none()) {
                continue;
            }
            if self.now.saturating_sub(pod.since) < self.settings.announcement {
                continue;
            }
            let named = pod.identity.clone();
            let Ok(identity) = named.map_or_else(|| Identity::new(&address.to_string()), Ok) else {
                continue;
            };
            if self.bases.contains_key(&identity) {
                continue;
            }
            if let Err(refused) = self.add(&identity, Claims::default(), None, None, out) {
                self.pods.again(&uid, self.now);
                refusals.push(refused);
            }
        }
    }

    /// A base has sent its identity: the node that was made of its pod alone is given up for the base's own.
    pub(super) fn rename(
        &mut self,
        identity: &Identity,
        address: IpAddr,
        socket: Option<SocketAddr>,
        out: &mut Vec<Event>,
    ) {
        let Ok(unnamed) = Identity::new(&address.to_string()) else {
            return;
        };
        let Some(entry) = self.bases.get(&unnamed).filter(|_| unnamed != *identity) else {
            return;
        };
        let same_pod = |pod: &PodRef| {
            let of = self.bases.get(identity);
            of.and_then(|entry| entry.base.pod.as_ref())
                .is_some_and(|own| own.uid == pod.uid)
        };
        let same = entry.base.pod.as_ref().is_some_and(same_pod);
        if entry.claims.is_announced() || !same || (socket.is_some() && entry.base.socket() != socket) {
            return;
        }
        let change = if entry.ours {
            Change::Gone(Why::Renamed(identity.clone()))
        } else if entry.seen {
            // Who serves it removes it.
            return;
        } else {
            Change::Left
        };
        self.remove(&unnamed, change, out);
    }
}
