//! The world outside the controllers: kubelets that renew Leases, and a zone whose agents sign what a test
//! wants them to say, in a new round each time.

use super::cluster::NODES;
use evenkeel_api::crd::{ZoneChallenge, ZoneHealth, ZoneReport, ZoneReportSpec};
use evenkeel_api::names;
use evenkeel_api::zone::{Report, RosterSpec, SignedRound};
use evenkeel_testkit::Cluster;
use evenkeel_zone::keys::SigningKey;
use evenkeel_zone::roster::{CellRef, MemberId, Roster, RosterKeys, report_object_name};
use evenkeel_zone::verdict::{Health, Link};
use evenkeel_zone::wire::{
    self, Answer, Ballot, Challenge, ConfirmRequest, Facts, Header, Nonce, Renewal, Said as Vote, Suspect,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often a kubelet renews here, and how often the zone reports.
const RENEWS: Duration = Duration::from_millis(250);
const REPORTS: Duration = Duration::from_millis(500);
/// Votes on a death are asked for this long after the last renewal at the earliest, so that none is on its
/// way.
const QUIET: Duration = Duration::from_millis(600);

/// What a majority says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nobody can reach it.
    Dead,
    /// It answers, and its link to the cloud is down.
    CutOff,
}

/// What the world outside does from now on; the tasks look at it.
#[derive(Default)]
struct Script {
    /// Nodes whose kubelet does not renew, and since when.
    silent: BTreeMap<String, Instant>,
    said: BTreeMap<String, Said>,
    /// Nobody reports.
    mute: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Outside(Arc<Mutex<Script>>);

impl Outside {
    pub(crate) fn start(&self, cluster: &Cluster, stop: &CancellationToken) {
        tokio::spawn(kubelets(cluster.clone(), self.clone(), stop.clone()));
        tokio::spawn(reporter(cluster.clone(), self.clone(), stop.clone()));
    }

    /// The kubelet renews no more.
    pub(crate) fn silence(&self, node: &str) {
        self.0
            .lock()
            .unwrap()
            .silent
            .insert(node.to_owned(), Instant::now());
    }

    /// The zone says so of a node, in round after round.
    pub(crate) fn say(&self, node: &str, said: Said) {
        self.0.lock().unwrap().said.insert(node.to_owned(), said);
    }

    /// The node loses power: it is silent, and its peers say that it is dead.
    pub(crate) fn kill(&self, node: &str) {
        self.silence(node);
        self.say(node, Said::Dead);
    }

    /// The node's link to the cloud is cut: it is silent, and its peers vouch for it.
    pub(crate) fn cut(&self, node: &str) {
        self.silence(node);
        self.say(node, Said::CutOff);
    }

    /// The node is well: its kubelet renews, and peers vouch for it in rounds that the controller asks for.
    pub(crate) fn revive(&self, node: &str) {
        let mut script = self.0.lock().unwrap();
        script.silent.remove(node);
        script.said.remove(node);
    }

    /// Nobody of the zone reports any more.
    pub(crate) fn mute(&self) {
        self.0.lock().unwrap().mute = true;
    }

    fn is_mute(&self) -> bool {
        self.0.lock().unwrap().mute
    }

    fn is_silent(&self, node: &str) -> bool {
        self.0.lock().unwrap().silent.contains_key(node)
    }

    fn renewing(&self) -> Vec<&'static str> {
        let script = self.0.lock().unwrap();
        NODES
            .into_iter()
            .filter(|name| !script.silent.contains_key(*name))
            .collect()
    }

    /// What is said of whom, and of which nodes rounds would find that they are well.
    fn said(&self, wanted: &[String]) -> Vec<(String, Option<Said>)> {
        let script = self.0.lock().unwrap();
        let mut all = Vec::new();
        for node in NODES {
            let quiet = script.silent.get(node).map(Instant::elapsed);
            let said = match script.said.get(node) {
                Some(Said::Dead) if quiet.is_none_or(|quiet| quiet < QUIET) => continue,
                Some(said) => Some(*said),
                None if quiet.is_none() && wanted.iter().any(|name| name == node) => None,
                None => continue,
            };
            all.push((node.to_owned(), said));
        }
        all
    }
}

/// The key of a node's agent.
pub(crate) fn key(node: &str) -> SigningKey {
    let mut seed = [0; 32];
    seed[..node.len()].copy_from_slice(node.as_bytes());
    SigningKey::from_seed(&seed).unwrap()
}

/// The key that signs rosters.
pub(crate) fn roster_key() -> SigningKey {
    SigningKey::from_seed(&[91; 32]).unwrap()
}

/// Who may publish rosters.
pub(crate) fn roster_keys() -> RosterKeys {
    RosterKeys::new(vec![roster_key().public().clone()])
}

/// What a cell's object says of its roster, which has to be signed.
pub(crate) fn roster_of(object: &ZoneHealth) -> Option<RosterSpec> {
    let (name, uid) = (object.metadata.name.as_deref()?, object.metadata.uid.as_deref()?);
    let published = object.spec.published()?;
    Roster::open(&published, CellRef { name, uid }, &roster_keys()).ok()?;
    object.spec.read_roster()
}

/// Until the test ends, which takes the API server away.
async fn kubelets(cluster: Cluster, outside: Outside, stop: CancellationToken) {
    let leases = cluster.namespaced(names::NODE_LEASE_NAMESPACE);
    let mut tick = tokio::time::interval(RENEWS);
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        for name in outside.renewing() {
            leases.renew(name, name).await;
        }
    }
}

/// Reports what is said, signed by the other two, and renews the Lease of the zone.
async fn reporter(cluster: Cluster, outside: Outside, stop: CancellationToken) {
    let zones = cluster.api::<ZoneHealth>();
    let challenges = cluster.api::<ZoneChallenge>();
    let leases = cluster.namespaced(names::NODE_LEASE_NAMESPACE).api::<Lease>();
    let reports = cluster.api::<ZoneReport>();
    let home = cluster.namespaced(names::NAMESPACE);
    let mut tick = tokio::time::interval(REPORTS);
    let mut sequence = 0_u64;
    // Of nodes that are silent, the renewal that was read after the loss: what the kubelet writes behind the
    // watches of the controller, these rounds do not know either.
    let mut renewals: BTreeMap<String, Renewal> = BTreeMap::new();
    while stop.run_until_cancelled(tick.tick()).await.is_some() {
        if outside.is_mute() {
            continue;
        }
        let Ok(Some(zone)) = zones.get_opt(names::DEFAULT_ZONE).await else {
            continue;
        };
        let published = zone.spec.published();
        let roster = published.map(|published| Roster::reopen(&published, &roster_keys()));
        let Some(Ok(roster)) = roster else {
            continue;
        };
        let name_of = |uid: &String| {
            let member = roster.members().iter().find(|member| member.uid == *uid);
            member.map(|member| member.name.clone())
        };
        let Ok(Some(challenges)) = challenges.get_opt(names::DEFAULT_ZONE).await else {
            continue;
        };
        let wanted: Vec<String> = challenges.spec.wanted.iter().filter_map(name_of).collect();
        let challenge = Challenge::from_base64(&challenges.spec.current.value).unwrap();
        sequence += 1;
        renewals.retain(|node, _| outside.is_silent(node));
        let mut rounds = Vec::new();
        for (node, said) in outside.said(&wanted) {
            if !roster.members().iter().any(|member| member.name == node) {
                continue;
            }
            if !renewals.contains_key(&node) {
                // While the API server is away nobody reads a Lease, and the next round finds it again.
                let Ok(lease) = leases.get_opt(&node).await else {
                    continue;
                };
                let renewal = lease.map_or(Renewal::NO_LEASE, |lease: Lease| {
                    Renewal(lease.metadata.resource_version.unwrap().parse().unwrap())
                });
                renewals.insert(node.clone(), renewal);
            }
            let asked = Asked {
                node: &node,
                said,
                renewal: renewals[&node],
            };
            let voters: Vec<&str> = NODES.into_iter().filter(|voter| *voter != node).collect();
            rounds.push(round(&roster, &[asked], &voters, (challenge, sequence)));
        }
        let spec = ZoneReportSpec {
            zone: names::DEFAULT_ZONE.to_owned(),
            cell: 0,
            reporter: "n1".to_owned(),
            report: Report {
                roster_version: zone.spec.read_roster().map_or(0, |roster| roster.version),
                sequence: i64::try_from(sequence).unwrap(),
                members: 3,
                rounds,
                ..Report::default()
            },
        };
        // Refused while the API server is away: the next report finds it again.
        let _ = write(&reports, spec).await;
        let lease = names::zone_lease(names::DEFAULT_ZONE);
        home.renew(&lease, "n1").await;
    }
}

/// Writes a report, as its reporter does again and again.
pub(crate) async fn write(reports: &Api<ZoneReport>, spec: ZoneReportSpec) -> kube::Result<ZoneReport> {
    let name = report_object_name(&spec.zone, spec.cell, &spec.reporter);
    let patch = Patch::Merge(json!({"spec": &spec}));
    let written = reports.patch(&name, &PatchParams::default(), &patch).await;
    if written.is_ok() {
        return written;
    }
    let fresh = ZoneReport::new(&name, spec);
    reports.create(&PostParams::default(), &fresh).await
}

/// A suspect of a round.
pub(crate) struct Asked<'a> {
    pub(crate) node: &'a str,
    /// What all voters but itself say of it; without anything said: that it is well.
    pub(crate) said: Option<Said>,
    /// Its last renewal, as the reporter read it.
    pub(crate) renewal: Renewal,
}

/// A new round, with the ballots of these voters.
pub(crate) fn round(
    roster: &Roster,
    asked: &[Asked<'_>],
    voters: &[&str],
    (challenge, sequence): (Challenge, u64),
) -> SignedRound {
    let member = |name: &str| {
        let mut members = roster.members().iter();
        members.find(|member| member.name == name).unwrap()
    };
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&sequence.to_be_bytes());
    let suspects = asked.iter().map(|asked| Suspect {
        member: MemberId::of(&member(asked.node).uid),
        renewal: Some(asked.renewal),
    });
    let request = ConfirmRequest {
        round: Nonce(nonce),
        roster: roster.reference(),
        budget: 1_000,
        challenge,
        suspects: suspects.collect(),
        ..ConfirmRequest::default()
    };
    let vote = |(index, asked): (usize, &Asked<'_>)| {
        let (answer, contact_age, cloud) = match asked.said {
            Some(Said::Dead) => (Answer::No, u32::MAX, Link::Down),
            Some(Said::CutOff) => (Answer::Yes, 0, Link::Down),
            None => (Answer::Yes, 0, Link::Up),
        };
        Vote {
            index: u8::try_from(index).unwrap(),
            answer,
            contact_age,
            facts: Facts {
                cloud,
                kubelet: Health::Ok,
                runtime: Health::Ok,
            },
        }
    };
    let sign = |voter: &&str| {
        let others = asked.iter().enumerate();
        let others = others.filter(|(_, asked)| asked.node != *voter);
        let ballot = Ballot {
            request: request.digest(),
            roster: roster.reference(),
            uptime: 3_600,
            said: others.map(vote).collect(),
        };
        let header = Header {
            from: member(voter).id,
            sequence,
            ..Header::default()
        };
        wire::to_evidence(&wire::sign(&header, ballot, &key(voter)))
    };
    SignedRound {
        age_ms: 20,
        request: wire::to_evidence(&request.to_bytes()),
        ballots: voters.iter().map(sign).collect(),
    }
}
