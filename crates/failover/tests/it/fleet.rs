//! Zones of many nodes: evidence as large as it gets, in real objects, read by the real controller.
//!
//! `EVENKEEL_FLEET=5000` plays the zone of several cells in that size.
#![allow(
    clippy::print_stdout,
    reason = "with --nocapture it says how far a large zone is"
)]

use super::cluster::{Cluster, Replica, Setup, no_execute};
use super::zone::{Asked, Said, key, roster_keys, round, write};
use evenkeel_api::crd::{
    AgentStatus, AgentStatusSpec, NodeIncident, ZoneChallenge, ZoneHealth, ZoneReportSpec,
};
use evenkeel_api::names;
use evenkeel_api::zone::{KubeletEndpoint, ListedNode, Report};
use evenkeel_judge::Timing;
use evenkeel_testkit::{cluster, eventually};
use evenkeel_zone::engine::MOST_CARRIED;
use evenkeel_zone::roster::{Roster, cell_object_name};
use evenkeel_zone::wire::{Challenge, Renewal};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use rstest::rstest;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Requests under way at once.
const AT_ONCE: usize = 16;
/// How often a cell reports, and kubelets renew. Evidence that a node lives counts for 15 s, and a Lease for
/// 25 s.
const PERIOD: Duration = Duration::from_secs(3);
/// Cells that one agent with a link can speak for: its own, and those that it carries.
const CELLS_OF_A_LINK: usize = 1 + MOST_CARRIED;

/// A zone whose nodes all have agents.
struct Fleet {
    cluster: Cluster,
    names: Vec<String>,
    sequence: AtomicU64,
    /// Kubelets that renew.
    renewing: BTreeSet<String>,
    /// The last renewal of each Lease.
    renewals: BTreeMap<String, Renewal>,
}

/// A cell as its roster is published.
struct Cell {
    number: u32,
    roster: Roster,
    version: i64,
}

impl Cell {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.roster.members().iter().map(|member| member.name.as_str())
    }

    /// Majority of the cell, of those who are not among the dead; with one more, because nobody votes on
    /// itself.
    fn voters(&self, is_dead: impl Fn(&str) -> bool) -> Vec<&str> {
        let living = self.names().filter(|name| !is_dead(name));
        living.take(self.roster.len() / 2 + 2).collect()
    }
}

/// What is said of the members of a cell, and by whom.
type Saying<'a> = (&'a Cell, &'a str, &'a BTreeMap<&'a str, Said>);

impl Fleet {
    async fn start(size: usize) -> Self {
        let cluster = Cluster::without_nodes().await;
        let names: Vec<String> = (1..=size).map(|number| format!("m{number:05}")).collect();
        let fleet = Self {
            cluster,
            renewing: names.iter().cloned().collect(),
            names,
            sequence: AtomicU64::new(0),
            renewals: BTreeMap::new(),
        };
        let joins = fleet.names.iter().enumerate();
        let joins = joins.map(|(index, name)| fleet.join(index, name));
        stream::iter(joins)
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
        fleet.renew().await;
        fleet
    }

    /// A machine registers.
    async fn join(&self, index: usize, name: &str) {
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady"});
        let node: Node = self
            .cluster
            .create(json!({"metadata": {"name": name}, "status": {"conditions": [ready]}}))
            .await;
        let host = format!("10.9.{}.{}", index / 250, index % 250);
        let spec = AgentStatusSpec {
            node_uid: node.uid().unwrap(),
            public_key: key(name).public().to_base64(),
            address: format!("{host}:7959"),
            kubelet: Some(KubeletEndpoint {
                address: format!("{host}:10250"),
                certificate_sha256: "00".repeat(32),
            }),
            version: "0.1.0".to_owned(),
            ..AgentStatusSpec::default()
        };
        self.cluster.add(&AgentStatus::new(name, spec)).await;
    }

    fn leases(&self) -> cluster::Cluster {
        self.cluster.namespaced(names::NODE_LEASE_NAMESPACE)
    }

    /// Each kubelet that renews does so once.
    async fn renew(&self) {
        let leases = self.leases();
        let renewals = self.renewing.iter().map(|name| leases.renew(name, name));
        stream::iter(renewals)
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
    }

    /// These kubelets reach the API server no more.
    async fn cut(&mut self, names: impl Iterator<Item = String>) {
        for name in names {
            self.renewing.remove(&name);
        }
        let leases: Vec<Lease> = self.leases().list().await;
        let renewal = |lease: Lease| {
            let version = lease.resource_version().unwrap().parse().unwrap();
            (lease.name_any(), Renewal(version))
        };
        self.renewals = leases.into_iter().map(renewal).collect();
    }

    /// The cells, once everybody is in one and nobody in two.
    async fn cells(&self) -> Vec<Cell> {
        let all = self.names.len();
        let cells = eventually("all nodes are in cells", Duration::from_secs(300), || async {
            let objects: Vec<ZoneHealth> = self.cluster.list().await;
            let cells = objects.iter().filter_map(|object| {
                let published = object.spec.published()?;
                Some(Cell {
                    number: object.spec.cell,
                    roster: Roster::reopen(&published, &roster_keys()).ok()?,
                    version: published.version,
                })
            });
            let cells: Vec<Cell> = cells.collect();
            let members = cells.iter().map(|cell| cell.roster.len()).sum::<usize>();
            let nodes: BTreeSet<&str> = cells.iter().flat_map(Cell::names).collect();
            // Who moves stands in two cells for a while.
            (members == all && nodes.len() == all).then_some(cells)
        });
        cells.await
    }

    /// A member of a cell, or who carries it, reports what is said of whom.
    async fn report(&self, cell: &Cell, reporter: &str, said: &BTreeMap<&str, Said>) -> usize {
        let sequence = 1 + self.sequence.fetch_add(1, Ordering::Relaxed);
        let object = cell_object_name(names::DEFAULT_ZONE, cell.number);
        let challenge = self
            .cluster
            .until_some(&object, "has a challenge", |known: &ZoneChallenge| {
                Challenge::from_base64(&known.spec.current.value)
            });
        let challenge = challenge.await;
        let asked = said.iter().map(|(node, said)| Asked {
            node,
            said: Some(*said),
            renewal: self.renewals[*node],
        });
        let asked: Vec<Asked<'_>> = asked.collect();
        let voters = cell.voters(|name| said.get(name) == Some(&Said::Dead));
        // Where those that answer are no majority, a reporter has no round to show, and says that of each.
        let is_majority = 2 * voters.len() > cell.roster.len();
        let rounds = if asked.is_empty() || !is_majority {
            Vec::new()
        } else {
            vec![round(&cell.roster, &asked, &voters, (challenge, sequence))]
        };
        let undecided = asked.iter().filter(|_| !is_majority).filter_map(|asked| {
            let mut members = cell.roster.members().iter();
            let member = members.find(|member| member.name == asked.node)?;
            Some(ListedNode {
                name: member.name.clone(),
                uid: member.uid.clone(),
                ..ListedNode::default()
            })
        });
        let spec = ZoneReportSpec {
            zone: names::DEFAULT_ZONE.to_owned(),
            cell: cell.number,
            reporter: reporter.to_owned(),
            report: Report {
                roster_version: cell.version,
                sequence: i64::try_from(sequence).unwrap(),
                members: i32::try_from(cell.roster.len()).unwrap(),
                rounds,
                nodes: undecided.collect(),
                ..Report::default()
            },
        };
        let size = serde_json::to_vec(&spec).unwrap().len();
        write(&self.cluster.api(), spec).await.unwrap();
        size
    }

    /// A controller, once it has seen all kubelets renew and all cells report.
    async fn controlled(&self) -> (Replica, Vec<Cell>) {
        let setup = Setup {
            timing: Timing::default(),
            ..Setup::default()
        };
        let replica = self.cluster.replica(setup).await;
        let cells = self.cells().await;
        let nothing = BTreeMap::new();
        for _ in 0..2 {
            self.renew().await;
            for cell in &cells {
                let reporter = cell.names().next().unwrap().to_owned();
                self.report(cell, &reporter, &nothing).await;
            }
        }
        (replica, cells)
    }

    /// The state of each node that has an open incident.
    async fn states(&self) -> BTreeMap<String, String> {
        let incidents: Vec<NodeIncident> = self.cluster.list().await;
        let open = incidents.into_iter().filter_map(|incident| {
            let status = incident.status.filter(|status| status.closed_at.is_none())?;
            Some((incident.spec.node_name, status.decision.state))
        });
        open.collect()
    }

    /// Kubelets renew, and cells report, until this is dropped.
    async fn goes_on(&self, reports: &[Saying<'_>]) -> ! {
        loop {
            let period = Instant::now();
            self.renew().await;
            let reports = reports
                .iter()
                .map(|(cell, reporter, said)| self.report(cell, reporter, said));
            stream::iter(reports)
                .buffer_unordered(AT_ONCE)
                .collect::<Vec<usize>>()
                .await;
            tokio::time::sleep(PERIOD.saturating_sub(period.elapsed())).await;
        }
    }

    /// Nodes whose state does not begin as is wanted (nothing: no incident), by what is wanted and what is.
    async fn wrong(
        &self,
        wanted: impl Fn(&str) -> Option<&'static str>,
    ) -> BTreeMap<(&'static str, String), Vec<&str>> {
        let states = self.states().await;
        let mut wrong: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for name in &self.names {
            let (wanted, state) = (wanted(name), states.get(name));
            let is_right = match (state, wanted) {
                (None, None) => true,
                (Some(state), Some(wanted)) => state.starts_with(wanted),
                _ => false,
            };
            if !is_right {
                let state = state.map_or_else(|| "nothing".to_owned(), Clone::clone);
                wrong
                    .entry((wanted.unwrap_or("nothing"), state))
                    .or_default()
                    .push(name);
            }
        }
        wrong
    }

    /// Lets time pass, with these reports and renewals again and again, until the state of every node begins
    /// as is wanted; nothing: it has no incident.
    async fn until(&self, what: &str, reports: &[Saying<'_>], wanted: impl Fn(&str) -> Option<&'static str>) {
        let began = Instant::now();
        let look = eventually(what, Duration::from_secs(300), || async {
            let wrong = self.wrong(&wanted).await;
            println!(
                "{:5.1} s: {} of {} are not yet {what}",
                began.elapsed().as_secs_f64(),
                wrong.values().map(Vec::len).sum::<usize>(),
                self.names.len()
            );
            for ((wanted, state), names) in &wrong {
                println!(
                    "  {} are {state} instead of {wanted}, first {}",
                    names.len(),
                    names[0]
                );
            }
            tokio::time::sleep(PERIOD).await;
            wrong.is_empty().then_some(())
        });
        tokio::select! {
            _ = self.goes_on(reports) => {}
            () = look => {}
        }
    }

    /// The same for so many periods from now on.
    async fn stays(
        &self,
        periods: u32,
        reports: &[Saying<'_>],
        wanted: impl Fn(&str) -> Option<&'static str>,
    ) {
        let look = async {
            for _ in 0..periods {
                assert_eq!(self.wrong(&wanted).await, BTreeMap::new());
                tokio::time::sleep(PERIOD).await;
            }
        };
        tokio::select! {
            _ = self.goes_on(reports) => {}
            () = look => {}
        }
    }

    async fn nobody_is_evicted(&self) {
        let nodes: Vec<Node> = self.cluster.list().await;
        let evicted: Vec<String> = nodes
            .iter()
            .filter(|node| no_execute(node))
            .map(kube::ResourceExt::name_any)
            .collect();
        assert_eq!(evicted, [] as [String; 0]);
    }
}

/// All that a cell of 64 can have to say of itself, written by who carries it or by its last member with a
/// link.
#[rstest]
#[case::whole(0)]
#[case::all_but_one(1)]
#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_is_cut_off_is_vouched_for(#[case] linked: usize) {
    let mut fleet = Fleet::start(64).await;
    let (_replica, cells) = fleet.controlled().await;
    let cell = &cells[0];
    let cut: Vec<String> = fleet.names[linked..].to_vec();
    fleet.cut(cut.iter().cloned()).await;
    let said: BTreeMap<&str, Said> = cut.iter().map(|name| (name.as_str(), Said::CutOff)).collect();
    let size = fleet.report(cell, "m00001", &said).await;
    assert!(size <= 40_000, "{size} bytes");
    let wanted = |name: &str| said.contains_key(name).then_some("Disconnected");
    fleet
        .until("vouched for", &[(cell, "m00001", &said)], wanted)
        .await;
    fleet.nobody_is_evicted().await;
}

/// Of 64, 25 die, which leaves a majority; or 37, which leaves none: then nobody is convicted, and nobody is
/// taken for cut off.
#[rstest]
#[case::a_majority_lives(25, "Dead")]
#[case::no_majority_lives(37, "Unknown")]
#[tokio::test(flavor = "multi_thread")]
async fn a_large_part_of_a_cell_dies(#[case] dead: usize, #[case] state: &'static str) {
    let mut fleet = Fleet::start(64).await;
    let (_replica, cells) = fleet.controlled().await;
    let cell = &cells[0];
    // A calm cell is seen to report by its Lease.
    let lease = names::zone_lease(&cell_object_name(names::DEFAULT_ZONE, cell.number));
    let leases = fleet.cluster.namespaced(names::NAMESPACE);
    for _ in 0..2 {
        leases.renew(&lease, "m00001").await;
    }
    let dead: Vec<String> = fleet.names[64 - dead..].to_vec();
    fleet.cut(dead.iter().cloned()).await;
    let said: BTreeMap<&str, Said> = dead.iter().map(|name| (name.as_str(), Said::Dead)).collect();
    let wanted = |name: &str| said.contains_key(name).then_some(state);
    let reports = [(cell, "m00001", &said)];
    fleet.until(state, &reports, wanted).await;
    fleet.stays(5, &reports, wanted).await;
    // And where nobody is convicted, the incident says why.
    let incidents: Vec<NodeIncident> = fleet.cluster.list().await;
    for incident in incidents.iter().filter(|_| state == "Unknown") {
        let decision = incident.status.as_ref().map(|status| &status.decision);
        let says_why = decision.is_some_and(|decision| decision.reason.contains("no majority"));
        assert!(says_why, "{decision:?}");
    }
}

/// Those with a link speak for their own cells and for eight others each; whoever else has none is called
/// Dark.
#[rstest]
#[case::too_few_links(1)]
#[case::enough_links(10)]
#[tokio::test(flavor = "multi_thread")]
async fn a_zone_of_many_cells_keeps_few_links(#[case] linked: usize) {
    let size = std::env::var("EVENKEEL_FLEET").map_or(704, |size| size.parse().unwrap());
    let mut fleet = Fleet::start(size).await;
    let (_replica, cells) = fleet.controlled().await;
    let linked: Vec<String> = cells
        .iter()
        .take(linked)
        .map(|cell| cell.names().next().unwrap().to_owned())
        .collect();
    let cut: BTreeSet<String> = fleet
        .names
        .iter()
        .filter(|name| !linked.contains(name))
        .cloned()
        .collect();
    fleet.cut(cut.iter().cloned()).await;
    let spoken_for = &cells[..cells.len().min(CELLS_OF_A_LINK * linked.len())];
    let said: Vec<BTreeMap<&str, Said>> = spoken_for
        .iter()
        .map(|cell| {
            cell.names()
                .filter(|name| cut.contains(*name))
                .map(|name| (name, Said::CutOff))
                .collect()
        })
        .collect();
    let reports: Vec<_> = spoken_for
        .iter()
        .zip(&said)
        .enumerate()
        .map(|(index, (cell, said))| (cell, linked[index % linked.len()].as_str(), said))
        .collect();
    let protected: BTreeSet<&str> = said.iter().flat_map(|said| said.keys().copied()).collect();
    let wanted = |name: &str| match (protected.contains(name), cut.contains(name)) {
        (true, _) => Some("Disconnected"),
        (false, true) => Some("Dark"),
        (false, false) => None,
    };
    fleet.until("protected or named", &reports, wanted).await;
    fleet.nobody_is_evicted().await;
}
