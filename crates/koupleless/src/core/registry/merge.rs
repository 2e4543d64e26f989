//! What the sources say of one base, and what is made of it.

use super::pods::Pod;
use super::{Settings, UNNAMED};
use crate::core::{Base, Connection, Endpoint, Identity, PodRef};
use std::net::IpAddr;
use std::time::Duration;

/// What one source says.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) name: Option<String>,
    pub(super) version: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) host_name: Option<String>,
    pub(super) endpoint: Endpoint,
    /// When it was said, or last found to be true.
    pub(super) at: Duration,
}

/// What all sources say, pods apart.
#[derive(Debug, Default)]
pub(super) struct Says {
    http: Option<Said>,
    mqtt: Option<Said>,
    /// By way of the Node.
    record: Option<Said>,
    pod: Option<PodRef>,
}

impl Says {
    pub(super) fn word(said: Said) -> Self {
        let mut says = Self::default();
        says.put(said);
        says
    }

    pub(super) fn record(record: &Base, now: Duration) -> Self {
        let mut says = Self::default();
        says.note(record, now);
        says
    }

    /// Takes a base's own word.
    pub(super) fn put(&mut self, said: Said) {
        self.only_at(said.endpoint.address);
        match said.endpoint.by {
            Connection::Http(_) => self.http = Some(said),
            Connection::Mqtt => self.mqtt = Some(said),
        }
    }

    /// Takes what a Node records.
    pub(super) fn note(&mut self, record: &Base, now: Duration) {
        self.only_at(record.endpoint.address);
        self.record = Some(Said {
            name: record.name.clone(),
            version: record.version.clone(),
            cluster: record.cluster.clone(),
            host_name: record.host_name.clone(),
            endpoint: record.endpoint.clone(),
            at: now,
        });
        self.pod.clone_from(&record.pod);
    }

    /// The base answered there.
    pub(super) fn confirm(&mut self, endpoint: &Endpoint, now: Duration) {
        for said in [&mut self.http, &mut self.mqtt, &mut self.record]
            .into_iter()
            .flatten()
        {
            if said.endpoint == *endpoint {
                said.at = said.at.max(now);
            }
        }
    }

    /// Forgets what was said of this address.
    pub(super) fn forget(&mut self, address: IpAddr) {
        for said in [&mut self.http, &mut self.mqtt, &mut self.record] {
            said.take_if(|said| said.endpoint.address == address);
        }
        self.pod = None;
    }

    /// Forgets what pod was recorded.
    pub(super) fn without_pod(&mut self) {
        self.pod = None;
    }

    fn only_at(&mut self, address: IpAddr) {
        let mut moved = false;
        for said in [&mut self.http, &mut self.mqtt, &mut self.record] {
            moved |= said.take_if(|said| said.endpoint.address != address).is_some();
        }
        if moved {
            self.pod = None;
        }
    }

    /// Whether the base itself has spoken.
    pub(super) fn is_word(&self) -> bool {
        self.http.is_some() || self.mqtt.is_some()
    }

    /// Where it is by its own word, or by the record.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let all = [&self.http, &self.mqtt, &self.record];
        let newest = all.into_iter().flatten().max_by_key(|said| said.at);
        newest.map(|said| said.endpoint.address)
    }

    /// What is known of the base; `None` if not even an address is. `pod`: the one it runs in; `ended`: the
    /// one it ran in, while there is no other; `former`: what was known.
    pub(super) fn merged(
        &self,
        identity: &Identity,
        pod: Option<&Pod>,
        ended: Option<&PodRef>,
        former: Option<&Base>,
        now: Duration,
        settings: &Settings,
    ) -> Option<Base> {
        let endpoint = self
            .endpoint(pod, now, settings)
            .or_else(|| former.map(|base| base.endpoint.clone()))?;
        let mut words = [&self.http, &self.mqtt];
        words.sort_by_key(|said| std::cmp::Reverse(said.as_ref().map(|said| said.at)));
        // What a Node records is older than any word.
        let record = self.record.as_ref().filter(|_| !self.is_word());
        // Of a pod that was replaced the successor says the same, until it says otherwise.
        let former = former.filter(|_| !self.is_word());
        let field = |of: fn(&Said) -> &Option<String>,
                     declared: Option<&String>,
                     was: fn(&Base) -> &Option<String>| {
            let words = words.into_iter().flatten().filter_map(|said| of(said).as_ref());
            let said: Vec<&String> = words
                .chain(declared)
                .chain(record.and_then(|said| of(said).as_ref()))
                .collect();
            let known = said
                .iter()
                .find(|text| !text.is_empty() && text.as_str() != UNNAMED);
            let known = known.or(said.first()).copied();
            known.or(former.and_then(|base| was(base).as_ref())).cloned()
        };
        let recorded = self.pod.as_ref().filter(|_| pod.is_none());
        let reference = pod.map(|pod| &pod.reference).or(ended).or(recorded);
        let host = pod.map(|pod| pod.reference.name.to_string());
        Some(Base {
            identity: identity.clone(),
            name: field(
                |said| &said.name,
                pod.and_then(|pod| pod.name.as_ref()),
                |base| &base.name,
            ),
            version: field(
                |said| &said.version,
                pod.and_then(|pod| pod.version.as_ref()),
                |base| &base.version,
            ),
            cluster: field(
                |said| &said.cluster,
                pod.and_then(|pod| pod.cluster.as_ref()),
                |base| &base.cluster,
            ),
            host_name: field(|said| &said.host_name, host.as_ref(), |base| &base.host_name),
            endpoint,
            pod: reference.cloned(),
        })
    }

    /// The best of what is fresh, else the best of all: its own word for HTTP, a declared port, a recorded
    /// one, MQTT, and last the usual port of its pod.
    fn endpoint(&self, pod: Option<&Pod>, now: Duration, settings: &Settings) -> Option<Endpoint> {
        let stale = |said: &Said| now.saturating_sub(said.at) >= settings.gone;
        let said = |said: &Option<Said>, rank: u8| {
            let said = said.as_ref()?;
            Some((stale(said), rank, said.endpoint.clone()))
        };
        let record = match self.record.as_ref().map(|said| said.endpoint.by) {
            Some(Connection::Http(_)) => 2,
            _ => 4,
        };
        let of_pod = pod.and_then(|pod| {
            let endpoint = Endpoint {
                address: pod.address?,
                by: Connection::Http(pod.port.unwrap_or(settings.port)),
            };
            Some((false, if pod.port.is_some() { 1 } else { 5 }, endpoint))
        });
        let all = [
            said(&self.http, 0),
            of_pod,
            said(&self.record, record),
            said(&self.mqtt, 3),
        ];
        let best = all
            .into_iter()
            .flatten()
            .min_by_key(|(stale, rank, _)| (*stale, *rank));
        best.map(|(_, _, endpoint)| endpoint)
    }
}
