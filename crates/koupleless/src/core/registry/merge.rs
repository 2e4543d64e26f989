//! What the sources claim about one base, and what is concluded from it.

use super::pods::Pod;
use super::{Settings, UNNAMED};
use crate::core::{Base, Connection, Endpoint, Identity, PodRef};
use std::net::IpAddr;
use std::time::Duration;

/// What one source claims.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) name: Option<String>,
    pub(super) version: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) host_name: Option<String>,
    pub(super) endpoint: Endpoint,
    /// When it was claimed, or last found to be true.
    pub(super) at: Duration,
}

/// What all sources claim, pods apart.
#[derive(Debug, Default)]
pub(super) struct Claims {
    http: Option<Claim>,
    mqtt: Option<Claim>,
    /// From the Node's annotations.
    record: Option<Claim>,
    pod: Option<PodRef>,
}

impl Claims {
    pub(super) fn announced(claim: Claim) -> Self {
        let mut claims = Self::default();
        claims.put(claim);
        claims
    }

    pub(super) fn record(record: &Base, now: Duration) -> Self {
        let mut claims = Self::default();
        claims.put_record(record, now);
        claims
    }

    /// Takes what a base announces of itself.
    pub(super) fn put(&mut self, claim: Claim) {
        self.only_at(claim.endpoint.address);
        match claim.endpoint.by {
            Connection::Http(_) => self.http = Some(claim),
            Connection::Mqtt => self.mqtt = Some(claim),
        }
    }

    /// Takes what a Node records.
    pub(super) fn put_record(&mut self, record: &Base, now: Duration) {
        self.only_at(record.endpoint.address);
        self.record = Some(Claim {
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
        for claim in [&mut self.http, &mut self.mqtt, &mut self.record]
            .into_iter()
            .flatten()
        {
            if claim.endpoint == *endpoint {
                claim.at = claim.at.max(now);
            }
        }
    }

    /// Forgets what was claimed of this address.
    pub(super) fn forget(&mut self, address: IpAddr) {
        for claim in [&mut self.http, &mut self.mqtt, &mut self.record] {
            claim.take_if(|claim| claim.endpoint.address == address);
        }
        self.pod = None;
    }

    /// Forgets what pod was recorded.
    pub(super) fn without_pod(&mut self) {
        self.pod = None;
    }

    fn only_at(&mut self, address: IpAddr) {
        let mut moved = false;
        for claim in [&mut self.http, &mut self.mqtt, &mut self.record] {
            moved |= claim.take_if(|claim| claim.endpoint.address != address).is_some();
        }
        if moved {
            self.pod = None;
        }
    }

    /// Whether the base itself has announced anything.
    pub(super) fn is_announced(&self) -> bool {
        self.http.is_some() || self.mqtt.is_some()
    }

    /// Where it is as it announces, or as the Node records.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let all = [&self.http, &self.mqtt, &self.record];
        let newest = all.into_iter().flatten().max_by_key(|claim| claim.at);
        newest.map(|claim| claim.endpoint.address)
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
        let mut announced = [&self.http, &self.mqtt];
        announced.sort_by_key(|claim| std::cmp::Reverse(claim.as_ref().map(|claim| claim.at)));
        // What a Node records is older than any announcement.
        let record = self.record.as_ref().filter(|_| !self.is_announced());
        // Of a pod that was replaced the successor says the same, until it says otherwise.
        let former = former.filter(|_| !self.is_announced());
        let field = |of: fn(&Claim) -> &Option<String>,
                     declared: Option<&String>,
                     was: fn(&Base) -> &Option<String>| {
            let announced = announced
                .into_iter()
                .flatten()
                .filter_map(|claim| of(claim).as_ref());
            let values: Vec<&String> = announced
                .chain(declared)
                .chain(record.and_then(|claim| of(claim).as_ref()))
                .collect();
            let known = values
                .iter()
                .find(|text| !text.is_empty() && text.as_str() != UNNAMED);
            let known = known.or(values.first()).copied();
            known.or(former.and_then(|base| was(base).as_ref())).cloned()
        };
        let recorded = self.pod.as_ref().filter(|_| pod.is_none());
        let reference = pod.map(|pod| &pod.reference).or(ended).or(recorded);
        let host = pod.map(|pod| pod.reference.name.to_string());
        Some(Base {
            identity: identity.clone(),
            name: field(
                |claim| &claim.name,
                pod.and_then(|pod| pod.name.as_ref()),
                |base| &base.name,
            ),
            version: field(
                |claim| &claim.version,
                pod.and_then(|pod| pod.version.as_ref()),
                |base| &base.version,
            ),
            cluster: field(
                |claim| &claim.cluster,
                pod.and_then(|pod| pod.cluster.as_ref()),
                |base| &base.cluster,
            ),
            host_name: field(|claim| &claim.host_name, host.as_ref(), |base| &base.host_name),
            endpoint,
            pod: reference.cloned(),
        })
    }

    /// The best of what is fresh, else the best of all: what it announces for HTTP, a declared port, a
    /// recorded one, MQTT, and last the usual port of its pod.
    fn endpoint(&self, pod: Option<&Pod>, now: Duration, settings: &Settings) -> Option<Endpoint> {
        let stale = |claim: &Claim| now.saturating_sub(claim.at) >= settings.gone;
        let ranked = |claim: &Option<Claim>, rank: u8| {
            let claim = claim.as_ref()?;
            Some((stale(claim), rank, claim.endpoint.clone()))
        };
        let record = match self.record.as_ref().map(|claim| claim.endpoint.by) {
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
            ranked(&self.http, 0),
            of_pod,
            ranked(&self.record, record),
            ranked(&self.mqtt, 3),
        ];
        let best = all
            .into_iter()
            .flatten()
            .min_by_key(|(stale, rank, _)| (*stale, *rank));
        best.map(|(_, _, endpoint)| endpoint)
    }
}
