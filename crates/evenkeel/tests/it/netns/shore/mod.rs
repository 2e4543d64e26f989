//! A cell of machines: real agents, each on a machine with a network of its own, beside a kubelet's port and
//! Lease; the API server and a controller on another one. Packets are dropped by nftables.

mod clock;
mod floods;
mod keys;
mod kubelet;
mod numbers;
mod verdicts;

use super::process::{Process, client, install};
use crate::support::evenkeel;
use evenkeel_api::crd::NodeIncident;
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::eventually;
use evenkeel_testkit::netns::{self, Namespace};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Devices of a machine: to its neighbours; to the API server; and to the API server for the kubelet, so that
/// what an agent sends there can be counted alone.
const LAN: &str = "lan";
const CLOUD: &str = "cloud";
const KUBELET: &str = "kubelet";
const ZONE: &str = "shore";
/// The API server, on the networks of the agents' and of the kubelets' devices.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 254);
const KUBELETS_SERVER: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 254);
const PORT: u16 = 6443;
/// Where each agent serves its metrics, on its own machine.
const ADMIN: &str = "127.0.0.1:9851";
/// Ticks of a process's times in `/proc`, per second (`sysconf(_SC_CLK_TCK)` on Linux).
const TICKS: f64 = 100.0;
/// For what only a broken machine needs longer for.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a machine's neighbours know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ip {
    V4,
    V6,
}

impl Ip {
    fn of(self, number: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 78, 0, number).into(),
            Self::V6 => Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, u16::from(number)).into(),
        }
    }

    fn length(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }

    /// What nftables calls it.
    fn family(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }
}

/// One machine. Number 1 is node `shore-1`.
struct Machine {
    number: u8,
    // Dropped in this order: processes before their namespace.
    agent: Option<Process>,
    kubelet: Option<Process>,
    namespace: Namespace,
}

impl Machine {
    fn name(&self) -> String {
        name(self.number)
    }

    /// Members of its agent's roster, and how many of those that it watches it reaches.
    fn metrics(&self) -> Option<[u64; 2]> {
        let answer = self.namespace.inside(|| {
            let mut stream = TcpStream::connect(ADMIN)?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        });
        let answer = answer.ok()?;
        let number = |name: &str| {
            let line = answer
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line?.parse().ok()
        };
        Some([
            number("evenkeel_agent_zone_members")?,
            number("evenkeel_agent_zone_members_within_reach")?,
        ])
    }

    /// Processor time that its agent has used so far, in seconds.
    fn cpu_of_agent(&self) -> f64 {
        let pid = self.agent.as_ref().expect("it runs").id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        // The second field is the name in brackets, which may hold spaces.
        let (_, fields) = stat.rsplit_once(')').expect("proc(5)");
        let field = |number: usize| -> f64 {
            let text = fields.split_whitespace().nth(number - 3).expect("proc(5)");
            text.parse().expect("proc(5)")
        };
        (field(14) + field(15)) / TICKS
    }

    /// Nothing passes through these devices any more.
    fn cut(&self, devices: &[&str]) {
        let links = format!("{{ {} }}", devices.join(", "));
        let (incoming, outgoing) = (format!("iifname {links}"), format!("oifname {links}"));
        self.namespace.drop_matching(&[&incoming], &[&outgoing]);
    }
}

/// Flags of a client of the API server at one of its addresses; `@` is the test's directory.
fn access(server: Ipv4Addr) -> String {
    format!(
        "--server https://{server}:{PORT} --certificate-authority @pki/ca.crt --client-certificate @pki/admin.crt \
         --client-key @pki/admin.key --tls-server-name localhost"
    )
}

fn name(number: u8) -> String {
    format!("shore-{number}")
}

/// All machines.
struct Shore {
    machines: Vec<Machine>,
    server: Vec<Process>,
    cloud: Namespace,
    lan: Namespace,
    home: TempDir,
    ip: Ip,
    /// The library by which each agent has a wall clock of its own.
    faketime: Option<PathBuf>,
    /// Public half of the key that signs rosters.
    roster_key: String,
}

impl Shore {
    /// So many machines, whose agents have a roster, and whose cell has been heard of.
    fn start(count: u8, ip: Ip) -> Self {
        Self::start_by(None, count, ip)
    }

    /// The same; with this library each agent has a wall clock of its own.
    fn start_by(faketime: Option<PathBuf>, count: u8, ip: Ip) -> Self {
        netns::allow_neighbours(usize::from(count));
        let (cloud, lan) = (Namespace::new("cloud"), Namespace::new("lan"));
        cloud.be_switch();
        lan.be_switch();
        // The server's own plug.
        cloud.plug(
            &cloud,
            CLOUD,
            &[format!("{SERVER}/24"), format!("{KUBELETS_SERVER}/24")],
        );
        let mut shore = Self {
            machines: Vec::new(),
            server: Vec::new(),
            cloud,
            lan,
            home: TempDir::new().expect("a temporary directory"),
            ip,
            faketime,
            roster_key: String::new(),
        };
        let line =
            format!("apiserver --bind 0.0.0.0 --port {PORT} --kubeconfig-out @kubeconfig --cert-dir @pki");
        let server = shore.process("apiserver", &shore.cloud.command(evenkeel().get_program()), &line);
        shore.server.push(server);
        shore.inside(async |shore| shore.furnish(count).await);
        shore.key("keygen", "--out", "roster");
        shore.roster_key = shore.key("pubkey", "--key", "roster");
        let line = format!(
            "controller --kubeconfig @kubeconfig --admin 127.0.0.1:9850 --zone-default {ZONE} --roster-key @roster.key"
        );
        let controller = shore.process(
            "controller",
            &shore.cloud.command(evenkeel().get_program()),
            &line,
        );
        shore.server.push(controller);
        for number in 1..=count {
            let machine = shore.machine(number);
            shore.machines.push(machine);
        }
        shore.inside(async |shore| shore.settle().await);
        shore
    }

    fn machine(&self, number: u8) -> Machine {
        let namespace = Namespace::new(&name(number));
        let address = self.ip.of(number);
        self.lan
            .plug(&namespace, LAN, &[format!("{address}/{}", self.ip.length())]);
        self.cloud
            .plug(&namespace, CLOUD, &[format!("10.79.0.{number}/24")]);
        self.cloud
            .plug(&namespace, KUBELET, &[format!("10.80.0.{number}/24")]);
        let mut machine = Machine {
            number,
            agent: None,
            kubelet: None,
            namespace,
        };
        self.start_kubelet(&mut machine);
        self.key("keygen", "--out", &machine.name());
        self.start_agent(&mut machine);
        machine
    }

    /// Makes a key, or shows its public half: what is printed.
    fn key(&self, command: &str, flag: &str, name: &str) -> String {
        let file = self.home.path().join(format!("{name}.key"));
        let output = evenkeel().args(["agent", command, flag]).arg(file).output();
        let output = output.expect("the command starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    fn start_kubelet(&self, machine: &mut Machine) {
        let command = kubelet::command(&machine.namespace, self, machine.number);
        machine.kubelet = Some(self.process(&format!("kubelet-{}", machine.name()), &command, ""));
    }

    fn start_agent(&self, machine: &mut Machine) {
        let name = machine.name();
        let listen = std::net::SocketAddr::new(self.ip.of(machine.number), 7959);
        let line = format!(
            "agent {} --node {name} --listen {listen} --key @{name}.key --state-dir @{name} --boot @boot --zone-default {ZONE} --admin {ADMIN} \
             --roster-public-key {}",
            access(SERVER),
            self.roster_key
        );
        let mut command = machine.namespace.command(evenkeel().get_program());
        if let Some(library) = &self.faketime {
            self.set_clock(machine.number, 0);
            clock::fake(&mut command, library, &self.clock_of(machine.number));
        }
        machine.agent = Some(self.process(&format!("agent-{name}"), &command, &line));
    }

    /// Starts a process; `@` is the test's directory.
    fn process(&self, name: &str, inside: &Command, line: &str) -> Process {
        let at = format!("{}/", self.home.path().display());
        let mut command = Command::new(inside.get_program());
        command
            .args(inside.get_args())
            .envs(inside.get_envs().filter_map(|(key, value)| Some((key, value?))))
            .args(line.split_whitespace().map(|word| word.replace('@', &at)));
        Process::start(name, &mut command, self.home.path().join(format!("{name}.log")))
    }

    /// Runs this on the server's machine.
    fn inside<T: Send>(&self, work: impl AsyncFnOnce(&Self) -> T + Send) -> T {
        self.cloud.inside(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(work(self))
        })
    }

    async fn client(&self) -> Client {
        client(&self.home.path().join("kubeconfig")).await
    }

    /// Definitions, a namespace and nodes that components expect, and a boot of an hour ago for all machines:
    /// nobody shall take them for back from a power cut.
    async fn furnish(&self, count: u8) {
        let client = self.client().await;
        install(&client).await;
        let nodes: Api<Node> = Api::all(client.clone());
        for number in 1..=count {
            let labels = json!({ "topology.kubernetes.io/zone": ZONE });
            let node =
                serde_json::from_value(json!({ "metadata": { "name": name(number), "labels": labels } }));
            nodes.add(&node.expect("a Node")).await;
        }
        let booted = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1);
        let boot = format!("c0ffee\n{booted}\n");
        std::fs::write(self.home.path().join("boot"), boot).expect("the directory is writable");
    }

    /// Waits until every node votes, with its kubelet, in a settled roster, and somebody holds the cell's
    /// Lease.
    async fn settle(&self) {
        let client = self.client().await;
        let zones: Api<evenkeel_api::crd::ZoneHealth> = Api::all(client.clone());
        let count = self.machines.len();
        // Learners become voters one roster after the other, of which there is one in 10 s.
        let patience = PATIENCE.max(Duration::from_secs(6) * count as u32);
        eventually("everybody is in the roster", patience, || async {
            let roster = zones.get_opt(ZONE).await.ok()??.spec.read_roster()?;
            let members = roster.members.iter();
            let checked = members.filter(|member| member.kubelet.is_some() && !member.learner);
            (checked.count() == count && roster.settled_voters.is_empty()).then_some(())
        })
        .await;
        self.holder(&client, |_| true).await;
        // Everybody has the last roster, and has met the others.
        for machine in &self.machines {
            let watched = (count - 1).min(10);
            eventually(
                &format!("{} has met its neighbours", machine.name()),
                patience,
                || async {
                    let met = machine.metrics()?;
                    (met == [count as u64, watched as u64]).then_some(())
                },
            )
            .await;
        }
    }

    /// Waits until a node that passes holds the cell's Lease; its number.
    async fn holder(&self, client: &Client, passes: impl Fn(u8) -> bool) -> u8 {
        eventually("a reporter holds the cell's Lease", PATIENCE, || async {
            let holder = self.lease(client).await?.holder_identity?;
            let numbers = self.machines.iter().map(|machine| machine.number);
            let mut of_holder = numbers.filter(|number| holder.split('_').next() == Some(&name(*number)));
            of_holder.next().filter(|number| passes(*number))
        })
        .await
    }

    /// The cell's Lease.
    async fn lease(&self, client: &Client) -> Option<LeaseSpec> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), "evenkeel-system");
        let lease = leases.get_opt(&format!("evenkeel-zone-{ZONE}")).await.ok()??;
        lease.spec
    }

    /// When it was renewed, by its holder's clock.
    async fn renewed(&self, client: &Client) -> Option<jiff::Timestamp> {
        Some(self.lease(client).await?.renew_time?.0)
    }

    /// The power of a machine goes: nothing of it is heard any more, and its processes are gone.
    fn power_off(&mut self, number: u8) {
        let machine = self.machine_mut(number);
        for device in [LAN, CLOUD, KUBELET] {
            machine.namespace.set_link(device, false);
        }
        (machine.agent, machine.kubelet) = (None, None);
    }

    /// A machine's agent, which has ended, begins a new life.
    fn begin_agent(&mut self, number: u8) {
        let place = usize::from(number) - 1;
        let mut machine = self.machines.remove(place);
        self.start_agent(&mut machine);
        self.machines.insert(place, machine);
    }

    fn machine_mut(&mut self, number: u8) -> &mut Machine {
        &mut self.machines[usize::from(number) - 1]
    }

    fn on(&self, number: u8) -> &Machine {
        &self.machines[usize::from(number) - 1]
    }

    /// An expression of nftables: packets that come from this neighbour.
    fn from(&self, number: u8) -> String {
        format!("iifname {LAN} {} saddr {}", self.ip.family(), self.ip.of(number))
    }

    /// And packets that go to it.
    fn to(&self, number: u8) -> String {
        format!("oifname {LAN} {} daddr {}", self.ip.family(), self.ip.of(number))
    }

    /// Drops on one machine what comes from and goes to these neighbours.
    fn part(&self, number: u8, from: &[u8], to: &[u8]) {
        let incoming: Vec<String> = from.iter().map(|neighbour| self.from(*neighbour)).collect();
        let outgoing: Vec<String> = to.iter().map(|neighbour| self.to(*neighbour)).collect();
        let incoming: Vec<&str> = incoming.iter().map(String::as_str).collect();
        let outgoing: Vec<&str> = outgoing.iter().map(String::as_str).collect();
        self.on(number).namespace.drop_matching(&incoming, &outgoing);
    }

    /// Lets all packets of a machine through again, of which some were dropped.
    fn heal(&self, number: u8) {
        let namespace = &self.on(number).namespace;
        assert!(namespace.dropped() > 0, "the fault was no fault");
        namespace.heal();
    }

    /// By node, what its open incident says.
    async fn states(&self, client: &Client) -> BTreeMap<String, String> {
        let incidents: Api<NodeIncident> = Api::all(client.clone());
        let list = incidents
            .list(&Default::default())
            .await
            .expect("the API server answers");
        let open = list.into_iter().filter_map(|incident| {
            let status = incident.status.filter(|status| status.closed_at.is_none())?;
            Some((incident.spec.node_name.clone(), status.state))
        });
        open.collect()
    }

    /// Waits until a node's incident begins with this; how long that took.
    fn until_state(&self, number: u8, state: &str, within: Duration) -> Duration {
        let start = Instant::now();
        self.inside(async |shore| {
            let client = shore.client().await;
            let what = format!("{} is {state}", name(number));
            eventually(&what, within, || async {
                let states = shore.states(&client).await;
                states
                    .get(&name(number))
                    .filter(|found| found.starts_with(state))
                    .map(drop)
            })
            .await;
        });
        let took = start.elapsed();
        eprintln!("{}: {state} after {:.1} s", name(number), took.as_secs_f64());
        took
    }

    /// Looks for so long, and asserts that these nodes have incidents all the time, in a state that begins
    /// so, and that no other node has one.
    fn stays_for(&self, length: Duration, states: &[(u8, &str)]) {
        self.watch_for(length, |node, state| {
            let expected = states.iter().find(|(number, _)| name(*number) == node);
            expected.map(|(_, begins)| *begins)
                == state.map(|state| {
                    let (begins, _) = state.split_once(',').unwrap_or((state, ""));
                    begins
                })
        });
    }

    /// The same without any incident.
    fn quiet_for(&self, length: Duration) {
        self.stays_for(length, &[]);
    }

    /// Looks for so long, and asserts that what the incidents say of each node is `right`.
    fn watch_for(&self, length: Duration, right: impl Fn(&str, Option<&str>) -> bool + Send + Sync) {
        self.inside(async |shore| {
            let client = shore.client().await;
            let start = Instant::now();
            while start.elapsed() < length {
                let states = shore.states(&client).await;
                for machine in &shore.machines {
                    let node = machine.name();
                    let state = states.get(&node).map(String::as_str);
                    assert!(
                        right(&node, state),
                        "{node} is {state:?} after {:?}",
                        start.elapsed()
                    );
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
    }

    /// Waits until no incident is open.
    fn until_calm(&self) {
        self.inside(async |shore| {
            let client = shore.client().await;
            eventually("all is well again", PATIENCE, || async {
                shore.states(&client).await.is_empty().then_some(())
            })
            .await;
        });
    }
}
