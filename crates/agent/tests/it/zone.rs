//! A zone of machines, the controller's part of it, and a reader of its verdicts.

use crate::machine::{Machine, roster_key};
use evenkeel_api::crd::{
    AgentStatus, ZoneChallenge, ZoneChallengeSpec, ZoneHealth, ZoneHealthSpec, ZoneReport,
};
use evenkeel_api::names;
use evenkeel_api::zone::{IssuedChallenge, Report, RosterMember, RosterSpec};
use evenkeel_testkit::{Cluster, ServedApi, eventually, until, until_within};
use evenkeel_zone::Millis;
use evenkeel_zone::keys::SigningKey;
use evenkeel_zone::roster::{MemberId, Roster, publish};
use evenkeel_zone::verdict::{Book, Issued, Verdict};
use evenkeel_zone::wire::Challenge;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub(crate) const ZONE: &str = "shore";

pub(crate) struct Zone {
    pub(crate) machines: Vec<Machine>,
    pub(crate) cluster: Cluster,
    _api: ServedApi,
    reader: Mutex<Reader>,
}

#[derive(Default)]
struct Reader {
    book: Book,
    renewed: Option<String>,
}

impl Zone {
    /// Machines `a`, `b`, … that know each other and report.
    pub(crate) async fn of(count: usize) -> Self {
        Self::of_candidates(count, evenkeel_election::Config::new).await
    }

    /// The same, with another way to stand for the zone's Lease.
    pub(crate) async fn of_candidates(count: usize, election: fn(&str) -> evenkeel_election::Config) -> Self {
        let (api, cluster) = cluster().await;
        let labels = json!({ names::ZONE_LABELS[0]: ZONE });
        let mut machines = Vec::new();
        for name in ["a", "b", "c", "d", "e"].iter().take(count) {
            cluster
                .create::<Node>(json!({ "metadata": { "name": name, "labels": labels } }))
                .await;
            let mut machine = Machine::new(name, &api).await;
            machine.election = election(name);
            machines.push(machine);
        }
        for machine in &mut machines {
            machine.start_agent();
        }
        let zone = Self {
            machines,
            cluster,
            _api: api,
            reader: Mutex::default(),
        };
        zone.make_roster(count).await;
        eventually(
            "somebody reports for the zone",
            Duration::from_secs(40),
            || async {
                zone.look().await;
                zone.reader.lock().unwrap().book.advanced(ZONE)
            },
        )
        .await;
        zone
    }

    /// What the controller does: of Nodes and AgentStatus objects, a roster.
    async fn make_roster(&self, count: usize) {
        let members = eventually(
            "every agent has registered with its kubelet",
            Duration::from_secs(40),
            || async {
                let listed: Vec<AgentStatus> = self.cluster.list().await;
                let members: Vec<RosterMember> = listed
                    .iter()
                    .filter(|status| status.spec.kubelet.is_some())
                    .map(|status| RosterMember {
                        name: status.name_any(),
                        uid: status.spec.node_uid.clone(),
                        address: status.spec.address.clone(),
                        public_key: status.spec.public_key.clone(),
                        kubelet: status.spec.kubelet.clone(),
                        next_public_key: None,
                        learner: false,
                    })
                    .collect();
                (members.len() == count).then_some(members)
            },
        )
        .await;
        let roster = RosterSpec {
            version: 1,
            members,
            ..RosterSpec::default()
        };
        let spec = ZoneHealthSpec {
            zone: ZONE.into(),
            ..ZoneHealthSpec::default()
        };
        self.cluster.add(&ZoneHealth::new(ZONE, spec)).await;
        self.publish(ZONE, roster).await;
        let challenge = ZoneChallengeSpec {
            zone: ZONE.into(),
            current: issued(),
            ..ZoneChallengeSpec::default()
        };
        self.cluster.add(&ZoneChallenge::new(ZONE, challenge)).await;
    }

    /// Signs a roster and publishes it in a cell's object.
    pub(crate) async fn publish(&self, object: &str, roster: RosterSpec) {
        self.publish_signed(object, roster, &roster_key()).await;
    }

    /// The same with another key.
    pub(crate) async fn publish_signed(&self, object: &str, roster: RosterSpec, key: &SigningKey) {
        let cell: ZoneHealth = self.cluster.get(object).await;
        let roster = RosterSpec {
            cell: object.into(),
            cell_uid: cell.uid().unwrap(),
            ..roster
        };
        let patch = json!({ "spec": { "signedRoster": publish(&roster, Some(key)) } });
        self.cluster.merge::<ZoneHealth>(object, patch).await;
    }

    pub(crate) async fn roster(&self) -> RosterSpec {
        self.roster_of(ZONE).await
    }

    pub(crate) async fn roster_of(&self, object: &str) -> RosterSpec {
        let object: ZoneHealth = self.cluster.get(object).await;
        object.spec.read_roster().expect("a roster that can be read")
    }

    /// What each reporter has written, by its name.
    pub(crate) async fn reports(&self) -> BTreeMap<String, Report> {
        let reports: Vec<ZoneReport> = self.cluster.list().await;
        let of = |report: ZoneReport| (report.spec.reporter, report.spec.report);
        reports.into_iter().map(of).collect()
    }

    /// Takes a machine's power once all others of its cell may vote on it: none calls a node dead that its
    /// checks have not found before.
    pub(crate) async fn power_off(&mut self, victim: usize, cell: Range<usize>) {
        let uid = self.uid(victim).await;
        let has_found = |other: usize| {
            self.machines[other]
                .memory()
                .is_some_and(|memory| memory.met().found.contains_key(&MemberId::of(&uid)))
        };
        until("the others of its cell have found it", async || {
            cell.clone().all(|other| other == victim || has_found(other))
        })
        .await;
        self.machines[victim].power_off();
    }

    /// The newest report of a reporter that lists a machine.
    pub(crate) async fn report_on(&self, machine: usize) -> Option<Report> {
        let name = &self.machines[machine].name;
        let reports = self.reports().await.into_values();
        let mut listing: Vec<Report> = reports
            .filter(|report| report.nodes.iter().any(|node| node.name == *name))
            .collect();
        listing.sort_by(|a, b| a.written_at.cmp(&b.written_at));
        listing.pop()
    }

    /// One look of a reader: ZoneHealth and the zone's Lease.
    async fn look(&self) {
        let challenges: ZoneChallenge = self.cluster.get(ZONE).await;
        let (roster, reports) = (self.roster().await, self.reports().await);
        let home = self.cluster.namespaced(names::NAMESPACE);
        let lease: Option<Lease> = home.find(&zone_lease()).await;
        let spec = lease.and_then(|lease| lease.spec).unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let renewed = spec.renew_time.map(|time| format!("{time:?} {holder}"));
        let mut reader = self.reader.lock().unwrap();
        let current = std::iter::once(challenges.spec.current);
        let issued: Vec<Issued> = current.chain(challenges.spec.previous).map(read).collect();
        let mut refused = reader.book.challenges(now(), ZONE, &issued);
        refused.extend(
            reader
                .book
                .roster(now(), ZONE, Roster::from_spec(&roster).unwrap()),
        );
        for (reporter, report) in &reports {
            refused.extend(reader.book.report(now(), ZONE, reporter, report));
        }
        // A round of before a change may be refused after it; the test that asks for a verdict would fail if
        // that went on.
        #[expect(clippy::print_stderr, reason = "shown with the test that fails")]
        for why in refused {
            eprintln!("refused: {why}");
        }
        if renewed.is_some() && renewed != reader.renewed {
            reader.renewed = renewed;
            let node = holder.rsplit_once('_').map_or("", |(node, _)| node);
            reader.book.heartbeat(now(), ZONE, node);
        }
    }

    pub(crate) async fn verdict(&self, machine: usize) -> Verdict {
        self.look().await;
        let uid = self.uid(machine).await;
        self.reader.lock().unwrap().book.verdict(&uid)
    }

    pub(crate) async fn uid(&self, machine: usize) -> String {
        self.cluster
            .get::<Node>(&self.machines[machine].name)
            .await
            .uid()
            .unwrap()
    }

    pub(crate) async fn becomes(
        &self,
        machine: usize,
        what: &str,
        within: u64,
        test: fn(&Verdict) -> bool,
    ) -> Verdict {
        eventually(what, Duration::from_secs(within), || async {
            let verdict = self.verdict(machine).await;
            test(&verdict).then_some(verdict)
        })
        .await
    }

    /// Waits until the reporters do not list a machine.
    pub(crate) async fn is_off_the_list(&self, machine: usize, within: u64) {
        until_within("it is off the list", Duration::from_secs(within), async || {
            self.report_on(machine).await.is_none()
        })
        .await;
    }

    /// Which machine holds the zone's Lease.
    pub(crate) async fn leader(&self) -> usize {
        let holder = self
            .cluster
            .namespaced(names::NAMESPACE)
            .holder(&zone_lease())
            .await;
        self.machines
            .iter()
            .position(|machine| holder.starts_with(&format!("{}_", machine.name)))
            .unwrap()
    }

    /// What the controller does when it needs rounds about these machines.
    pub(crate) async fn want(&self, machines: &[usize]) {
        let mut wanted = Vec::new();
        for machine in machines {
            wanted.push(self.uid(*machine).await);
        }
        let before: ZoneChallenge = self.cluster.get(ZONE).await;
        let before = before.spec.current;
        let patch = json!({ "spec": { "current": issued(), "previous": before, "wanted": wanted } });
        self.cluster.merge::<ZoneChallenge>(ZONE, patch).await;
    }

    /// Raises the roster's version, as a change of members would.
    pub(crate) async fn reissue_roster(&self) {
        let roster = RosterSpec {
            version: 2,
            ..self.roster().await
        };
        self.publish(ZONE, roster).await;
    }
}

pub(crate) fn now() -> Millis {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let since = START.get_or_init(Instant::now).elapsed().as_millis();
    Millis(u64::try_from(since).unwrap() + 1_000_000)
}

/// An API server with what an agent finds where Evenkeel is installed, and its administrator.
pub(crate) async fn cluster() -> (ServedApi, Cluster) {
    let api = ServedApi::start().await;
    let cluster = Cluster::of(&api.server);
    cluster.install().await;
    // Kubernetes itself lets no kubelet write these (NodeRestriction); agents in pods do.
    let group = "rbac.authorization.k8s.io";
    let leases = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "leases-of-units", "namespace": names::NAMESPACE},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "evenkeel-agent"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
    });
    cluster.create_any(leases).await;
    (api, cluster)
}

/// A challenge as a reader knows it that has not drawn it.
pub(crate) fn read(issued: IssuedChallenge) -> Issued {
    Issued {
        challenge: Challenge::from_base64(&issued.value).unwrap(),
        drawn: None,
    }
}

/// A challenge as the controller draws it.
pub(crate) fn issued() -> IssuedChallenge {
    IssuedChallenge {
        value: Challenge(rand::random()).to_base64(),
        created_at: format!("{:.3}", jiff::Timestamp::now()),
        created_by: "controller".into(),
    }
}

fn zone_lease() -> String {
    names::zone_lease(ZONE)
}
