//! The bases that are known, what is known of each, and whether it lives.
//!
//! Sources report what they see (`Observation`); what follows from it comes out as [`Event`]s. Of each base
//! the claims of its sources are merged by its identity. A base lives in four steps:
//!
//! ```text
//!            25 s of silence            proof, or 60 s of silence
//!   Alive ───────────────────▶ Silent ───────────────────────────▶ Lost ──▶ gone
//!     ▲  ╲                        │  (pods are evicted from here on) │
//!     │   ╲────────── proof, deactivation ──────────────────────────▶│
//!     └────────────────── any sign of life ──────────────────────────┘
//! ```
//!
//! * *Proof* is that its pod was deleted or has ended (by UID), or, in silence, that its port refuses
//!   connections or somebody else answers there.
//! * Silence alone proves nothing while a kubelet reports the base's pod Ready: then the link is cut, not the
//!   base. It stays Silent for as long as that lasts, and its node is never removed.
//! * After proof the node stays until 60 s of silence, so that a base that restarts finds it again, and until
//!   its pods are gone or have had 8 s to go. After a deactivation it stays for its pods alone.
//! * While the link to the broker is cut, the silence of bases that are heard of by it is ours: they become
//!   Silent, and are lost by proof alone.
//! * Only the replica that serves a node judges its base. Whoever begins to serve one begins with a full
//!   measure of silence, and time in which this process itself did not run counts for nobody's silence.

mod admit;
mod adopt;
mod event;
mod life;
mod merge;
mod newcomers;
mod observation;
mod pods;

#[cfg(test)]
mod tests;

pub(crate) use admit::Refused;
pub use event::{Change, Event, Evidence, Life, Why};
pub(crate) use observation::{Announcement, Observation, PodSeen, PodState};

use super::{Base, Connection, Endpoint, Identity, Profile};
use merge::{Claim, Claims};
use newcomers::Newcomers;
use pods::Pods;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A name that stock bases give where they know none.
pub const UNNAMED: &str = "TO_BE_IMPLEMENTED";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// After so long without a sign of life the link to a base counts as cut. 25 s, as in the released
    /// controller: two heartbeats of 12 s.
    pub silent: Duration,
    /// After so long without a sign of life a base counts as gone. 60 s.
    pub gone: Duration,
    /// So long the Node of a base that is lost stays for the sake of its pods, which are deleted meanwhile.
    /// Pods that come, or do not go, hold it no longer. 8 s.
    pub leave: Duration,
    /// So long after its pod's end a base's announcements may still be under way, and do not revive it. 3 s.
    pub late: Duration,
    /// A ready pod of which no base has announced anything waits so long before it counts as a base with its
    /// address for its identity: it may have another one, and says so every 12 s. 15 s.
    pub announcement: Duration,
    /// A pause between two calls of `Registry::tick` beyond this is this process' own and counts for
    /// nobody's silence. 5 s.
    pub pause: Duration,
    /// Port of arklet where nobody says another. 1238.
    pub port: u16,
    /// Bases at most. 50,000.
    pub most: usize,
    /// Unknown bases per peer and minute at most, if not in known pods. 60.
    pub newcomers: u32,
    /// Whether a base that speaks over HTTP must do so from the address that it claims, or claim that of a
    /// known base pod. Without, anybody who reaches the server may have this process connect anywhere.
    pub check_addresses: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            silent: Duration::from_secs(25),
            gone: Duration::from_secs(60),
            leave: Duration::from_secs(8),
            late: Duration::from_secs(3),
            announcement: Duration::from_secs(15),
            pause: Duration::from_secs(5),
            port: 1238,
            most: 50_000,
            newcomers: 60,
            check_addresses: true,
        }
    }
}

/// All bases that are known, and what is believed of each.
#[derive(Debug)]
pub(crate) struct Registry {
    settings: Settings,
    profile: Arc<Profile>,
    env: Arc<str>,
    bases: BTreeMap<Identity, Entry>,
    nodes: HashMap<Arc<str>, Identity>,
    /// Bases by their address.
    addresses: HashMap<IpAddr, BTreeSet<Identity>>,
    /// Bases by the UID of their pod.
    links: HashMap<Arc<str>, Identity>,
    pods: Pods,
    newcomers: Newcomers,
    /// Nodes that are being removed, and since when: what is still written of them is no sign of anything.
    doomed: HashMap<Arc<str>, Duration>,
    /// Since when the link to the MQTT broker is cut.
    cut: Option<Duration>,
    /// Time never goes back.
    now: Duration,
    ticked: Option<Duration>,
}

#[derive(Debug)]
struct Entry {
    node: Arc<str>,
    base: Arc<Base>,
    claims: Claims,
    /// Last sign of life.
    heard: Duration,
    life: Life,
    /// Since when it is lost.
    lost: Duration,
    /// Since when it says that it does not serve.
    deactivated: Option<Duration>,
    /// Its pod's end, and when that was learned.
    ended: Option<(Duration, Evidence)>,
    /// This process serves its node.
    ours: bool,
    /// Its Node has been seen.
    seen: bool,
    /// What its Node recorded last.
    record: Option<Base>,
    /// Pods on its node, where known.
    pods: Option<usize>,
    /// When and where it last answered a question.
    answered: Option<(Duration, Endpoint)>,
}

impl Registry {
    /// Without bases. `env`: the environment that this process serves.
    pub(crate) fn new(settings: Settings, profile: Arc<Profile>, env: &str) -> Self {
        Self {
            newcomers: Newcomers::new(settings.newcomers),
            settings,
            profile,
            env: env.into(),
            bases: BTreeMap::new(),
            nodes: HashMap::new(),
            addresses: HashMap::new(),
            links: HashMap::new(),
            pods: Pods::default(),
            doomed: HashMap::new(),
            cut: None,
            now: Duration::ZERO,
            ticked: None,
        }
    }

    /// Takes note of an observation. `now`: by a clock that never jumps. `Err`: it is not believed, and
    /// changes nothing.
    pub(crate) fn observe(&mut self, observation: Observation, now: Duration) -> Result<Vec<Event>, Refused> {
        self.now = self.now.max(now);
        let mut events = Vec::new();
        let out = &mut events;
        match observation {
            Observation::HttpHeartbeat {
                announcement,
                port,
                peer,
            } => {
                let has_port = port != 0;
                let port = if has_port { port } else { self.settings.port };
                self.announced(
                    announcement,
                    Connection::Http(port),
                    has_port,
                    Some(peer.to_canonical()),
                    out,
                )?;
            }
            Observation::MqttHeartbeat(announcement) => {
                self.announced(announcement, Connection::Mqtt, false, None, out)?;
            }
            Observation::Node { node, record } => self.node(&node, record, out)?,
            Observation::NodeGone(node) => self.node_gone(&node, out),
            Observation::Pod(seen) => self.pod(seen, out),
            Observation::PodDeleted(uid) => self.pod_ended(&uid, Evidence::PodDeleted, out),
            Observation::PodForgotten(uid) => self.pod_forgotten(&uid, out),
            Observation::Answered {
                identity,
                endpoint,
                says,
            } => self.answered(&identity, endpoint, says, out),
            Observation::PortRefused { identity, socket } => {
                self.absent(&identity, socket, Evidence::PortRefused(socket), out);
            }
            Observation::Served { node, here } => self.served(&node, here, out),
            Observation::Broker { stands } => self.broker(stands),
            Observation::Pods { node, count } => {
                if let Some(identity) = self.nodes.get(&node).cloned()
                    && let Some(entry) = self.bases.get_mut(&identity)
                    && matches!(entry.life, Life::Lost(_))
                {
                    // Of a base that is back it is late.
                    entry.pods = Some(count);
                    self.judge(&identity, out);
                }
            }
        }
        Ok(events)
    }

    /// What follows from the time alone. To be called every second. Bases that are known by their pods alone
    /// may be refused, too.
    pub(crate) fn tick(&mut self, now: Duration) -> (Vec<Event>, Vec<Refused>) {
        self.now = self.now.max(now);
        let slept = self.now.saturating_sub(self.ticked.unwrap_or(self.now));
        self.ticked = Some(self.now);
        if slept > self.settings.pause {
            for entry in self.bases.values_mut() {
                entry.excuse(slept, self.now);
            }
        }
        self.newcomers.forget(self.now);
        let (now, gone) = (self.now, self.settings.gone);
        self.doomed.retain(|_, since| now.saturating_sub(*since) < gone);
        let (mut events, mut refused) = (Vec::new(), Vec::new());
        let due: Vec<Identity> = self.due().cloned().collect();
        for identity in due {
            self.judge(&identity, &mut events);
        }
        self.found(&mut events, &mut refused);
        (events, refused)
    }

    /// The base of a node.
    pub(crate) fn base(&self, node: &str) -> Option<&Arc<Base>> {
        self.of(node).map(|entry| &entry.base)
    }

    /// Whether the base of a node lives.
    pub(crate) fn life(&self, node: &str) -> Option<&Life> {
        self.of(node).map(|entry| &entry.life)
    }

    /// The node of a base.
    pub(crate) fn node_of(&self, identity: &Identity) -> Option<&Arc<str>> {
        self.bases.get(identity).map(|entry| &entry.node)
    }

    /// All nodes with their bases, in the order of identities.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Base>)> {
        self.bases.values().map(|entry| (&entry.node, &entry.base))
    }

    /// Whether this process serves a node, as far as it was told.
    pub(crate) fn is_ours(&self, node: &str) -> bool {
        self.of(node).is_some_and(|entry| entry.ours)
    }

    /// For how long nothing was heard of the base of a node.
    pub(crate) fn silence(&self, node: &str, now: Duration) -> Option<Duration> {
        Some(now.max(self.now).saturating_sub(self.of(node)?.heard))
    }

    /// Nodes of which no Node has been seen, and whether they are ours.
    pub(crate) fn unseen(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Base>, bool)> {
        let unseen = self.bases.values().filter(|entry| !entry.seen);
        unseen.map(|entry| (&entry.node, &entry.base, entry.ours))
    }

    /// Nodes that record something else than what is known, and whether they are ours.
    pub(crate) fn outdated(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Base>, bool)> {
        let outdated = |entry: &&Entry| entry.record.as_ref().is_some_and(|record| *record != *entry.base);
        let entries = self.bases.values().filter(outdated);
        entries.map(|entry| (&entry.node, &entry.base, entry.ours))
    }

    /// How many bases there are.
    pub(crate) fn len(&self) -> usize {
        self.bases.len()
    }

    fn of(&self, node: &str) -> Option<&Entry> {
        self.bases.get(self.nodes.get(node)?)
    }

    /// A base announces itself. `has_port`: the port is from its message.
    fn announced(
        &mut self,
        announcement: Announcement,
        by: Connection,
        has_port: bool,
        peer: Option<IpAddr>,
        out: &mut Vec<Event>,
    ) -> Result<(), Refused> {
        let identity = announcement.identity.clone();
        let known = self.bases.get(&identity).map(|entry| entry.base.endpoint.address);
        let own = || identity.as_str().parse().ok();
        let claimed = announcement.address.or(peer).or(known).or_else(own);
        let address = claimed.ok_or_else(|| Refused::NoAddress(identity.clone()))?;
        let address = address.to_canonical();
        self.may_announce(&identity, address, peer)?;
        // In a pod several ports may lead to one base.
        if has_port && !self.pods.is_address(address) {
            self.may_have(&identity, &Endpoint { address, by })?;
        }
        if !announcement.active {
            self.deactivated(&identity, out);
            return Ok(());
        }
        let claim = Claim {
            name: announcement.name,
            version: announcement.version,
            cluster: announcement.cluster,
            host_name: announcement.host_name,
            endpoint: Endpoint { address, by },
            at: self.now,
        };
        self.serves(&identity, claim, peer, out)
    }

    /// A base announces that it serves, and may.
    fn serves(
        &mut self,
        identity: &Identity,
        claim: Claim,
        peer: Option<IpAddr>,
        out: &mut Vec<Event>,
    ) -> Result<(), Refused> {
        let address = claim.endpoint.address;
        let socket = claim.endpoint.socket();
        let pod = self.pods.of(identity, address).map(|pod| pod.uid.clone());
        if self.bases.contains_key(identity) {
            if self.is_late(identity, pod.is_some()) {
                return Ok(());
            }
            self.revived(identity, |claims| claims.put(claim), out);
        } else {
            let peer = peer.filter(|_| pod.is_none());
            let claims = Claims::announced(claim);
            self.add(identity, claims, None, peer, out)?;
        }
        if let Some(uid) = pod {
            self.pods.unmute(&uid);
        }
        self.rename(identity, address, socket, out);
        Ok(())
    }

    /// Adds a base that is known from now on.
    fn add(
        &mut self,
        identity: &Identity,
        claims: Claims,
        adopted: Option<(&Arc<str>, Base)>,
        peer: Option<IpAddr>,
        out: &mut Vec<Event>,
    ) -> Result<(), Refused> {
        let address = claims.address().or_else(|| self.pods.address_of(identity));
        let address = address.ok_or_else(|| Refused::NoAddress(identity.clone()))?;
        let pod = self.pods.of(identity, address);
        let base = claims.merged(identity, pod, None, None, self.now, &self.settings);
        let base = Arc::new(base.ok_or_else(|| Refused::NoAddress(identity.clone()))?);
        let node = match &adopted {
            Some((node, _)) => (*node).clone(),
            None => self.profile.node_name(&base, &self.env).into(),
        };
        if let Some(other) = self.nodes.get(&node) {
            return Err(Refused::SameNode {
                node,
                identity: identity.clone(),
                other: other.clone(),
            });
        }
        if self.bases.len() >= self.settings.most {
            return Err(Refused::Full(self.settings.most));
        }
        if let Some(peer) = peer {
            self.newcomers.admit(peer, self.now)?;
        }
        let entry = Entry {
            node: node.clone(),
            base: base.clone(),
            claims,
            heard: self.now,
            life: Life::Alive,
            lost: self.now,
            deactivated: None,
            ended: None,
            ours: false,
            seen: adopted.is_some(),
            record: adopted.map(|(_, record)| record),
            pods: None,
            answered: None,
        };
        self.doomed.remove(&node);
        self.nodes.insert(node, identity.clone());
        self.index(identity, None, Some(&base));
        out.push(entry.event(Change::Online));
        self.bases.insert(identity.clone(), entry);
        Ok(())
    }

    fn remove(&mut self, identity: &Identity, change: Change, out: &mut Vec<Event>) {
        let Some(entry) = self.bases.remove(identity) else {
            return;
        };
        self.nodes.remove(&entry.node);
        if matches!(change, Change::Gone(_)) {
            self.doomed.insert(entry.node.clone(), self.now);
        }
        self.index(identity, Some(&entry.base), None);
        if entry.deactivated.is_some()
            && let Some(pod) = &entry.base.pod
        {
            // Its pod alone does not bring it back.
            self.pods.mute(&pod.uid);
        }
        out.push(entry.event(change));
    }

    /// Merges anew what is known of a base.
    fn refresh(&mut self, identity: &Identity, out: &mut Vec<Event>) {
        let Some(entry) = self.bases.get_mut(identity) else {
            return;
        };
        let address = entry.claims.address().unwrap_or(entry.base.endpoint.address);
        let pod = self.pods.of(identity, address);
        let ended = entry.ended.as_ref().and(entry.base.pod.as_ref());
        let former = Some(&*entry.base);
        let merged = entry
            .claims
            .merged(identity, pod, ended, former, self.now, &self.settings);
        let Some(base) = merged.filter(|base| *base != *entry.base) else {
            return;
        };
        let base = Arc::new(base);
        let from = std::mem::replace(&mut entry.base, base.clone());
        out.push(entry.event(Change::Changed { from: from.clone() }));
        self.index(identity, Some(&from), Some(&base));
    }

    fn index(&mut self, identity: &Identity, from: Option<&Base>, to: Option<&Base>) {
        if let Some(from) = from {
            let address = from.endpoint.address;
            if let Some(there) = self.addresses.get_mut(&address) {
                there.remove(identity);
                if there.is_empty() {
                    self.addresses.remove(&address);
                }
            }
            if let Some(pod) = &from.pod
                && self.links.get(&pod.uid) == Some(identity)
            {
                self.links.remove(&pod.uid);
            }
        }
        if let Some(to) = to {
            let there = self.addresses.entry(to.endpoint.address).or_default();
            there.insert(identity.clone());
            if let Some(pod) = &to.pod {
                self.links.insert(pod.uid.clone(), identity.clone());
            }
        }
    }
}

impl Entry {
    fn event(&self, change: Change) -> Event {
        Event {
            node: self.node.clone(),
            base: self.base.clone(),
            change,
        }
    }
}
