//! A scenario as data: which faults come when, and for how long. A script prints as text that a person can
//! read.

use crate::malice::Malice;
use evenkeel_failover_rules::world::Kind;
use std::fmt;

/// A second in milliseconds.
pub const SECOND: u64 = 1_000;
/// Time before the first fault: agents have met, controllers have looked, everything is calm.
pub const WARM_UP: u64 = 40 * SECOND;

/// What breaks. Nodes are numbered from 1 over all zones, replicas from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The node's link to the cloud is cut: API server, both ways.
    CutCloud(usize),
    /// The node loses power.
    PowerOff(usize),
    /// Nothing of the node runs or answers; then it goes on where it was.
    Stall(usize),
    /// The node loses power and its disk: what its agent remembered is gone when it comes back.
    DiskLost(usize),
    /// The agent's process alone is stopped, and goes on where it was (SIGSTOP, SIGCONT).
    PauseAgent(usize),
    /// These nodes and all others do not reach each other; the cloud is reached by all.
    SplitLan(Vec<usize>),
    /// Nothing gets from the first nodes to the second ones; the other direction works.
    CutOneWay(Vec<usize>, Vec<usize>),
    /// Two nodes do not reach each other; all others reach both.
    CutPair(usize, usize),
    /// So many of a thousand datagrams are lost, where the network does not lose more.
    LossyLan(u64),
    /// The kubelet is down; pods go on.
    KubeletDown(usize),
    /// Whatever is asked of the kubelet, or asks by it, takes up to so many milliseconds longer.
    SlowKubelet(usize, u64),
    /// On the node's kubelet port somebody answers without proving to be this kubelet: another kubelet has
    /// the address, or the door is locked (401) and there is no certificate to compare with.
    StrangeKubelet(usize),
    /// The agent gets to each of its events up to so many milliseconds late.
    SlowAgent(usize, u64),
    /// Somebody sets the node's wall clock by so many milliseconds.
    WallClock(usize, i64),
    /// The node joins its zone; before, it was not there.
    Join(usize),
    /// The node is switched off for good, and its objects are deleted.
    Leave(usize),
    /// The node has another address from now on.
    NewAddress(usize),
    /// The node's agent starts anew with another key.
    NewKey(usize),
    /// The label of the node names a zone in which nobody else is.
    Relabel(usize),
    /// The agent is down, and comes back as another life of it.
    AgentDown(usize),
    /// The same, and the next life is of another version.
    AgentUpgrade(usize),
    /// No request to the API server succeeds, and all watches end.
    ApiDown {
        /// The stock controllers die with it and begin anew.
        stock_dies: bool,
    },
    /// Watches of this kind stay open and deliver nothing, at one replica.
    HalfOpen(usize, Kind),
    /// Every write takes so many milliseconds longer.
    SlowWrites(u64),
    /// Reads that need not be consistent return the state of so many milliseconds ago.
    StaleReads(u64),
    /// When it ends, rosters, challenges and reports are as they were when it began, and the replicas of the
    /// controller begin anew: the API server was restored from a backup.
    Restored,
    /// Somebody who may write it empties the report of this zone, counted from 0, once.
    EmptiedReport(usize),
    /// A firewall between nodes drops checks of kubelets, and nothing else.
    ChecksDropped,
    /// A replica of the controller is down; its memory is lost.
    ReplicaDown(usize),
    /// Whichever replica leads is down, if one does; its memory is lost.
    LeaderDown,
    /// The stock controllers are down; their memory is lost.
    StockDown,
    /// The node's agent breaks the rules, with its own valid key.
    Hostile(usize, Malice),
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it begins, in milliseconds from the start of the run.
    pub at: u64,
    /// How long it lasts.
    pub lasts: u64,
    pub fault: Fault,
}

impl Step {
    /// When it is over.
    pub fn ends(&self) -> u64 {
        self.at.saturating_add(self.lasts)
    }
}

/// How datagrams travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Shortest and longest way in milliseconds. Each directed pair of nodes has a base within the lower
    /// half, and jitter on top.
    pub latency: (u64, u64),
    /// Datagrams lost in a thousand.
    pub lost: u64,
    /// Datagrams that arrive twice in a thousand.
    pub doubled: u64,
    /// Datagrams in a thousand that come so late that others overtake them.
    pub delayed: u64,
    /// Datagrams in a thousand of which a byte is changed.
    pub corrupted: u64,
    /// Losses in bursts, each directed link by itself.
    pub bursts: Option<Bursts>,
}

/// Losses in bursts. Times are means in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// How long a link is good between two bursts.
    pub every: u64,
    /// How long it is bad.
    pub lasts: u64,
    /// Datagrams lost in a thousand meanwhile.
    pub lost: u64,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Which group of scenarios it belongs to.
    pub group: Group,
    /// The seed of everything that is not written here.
    pub seed: u64,
    /// Number of nodes of each zone.
    pub zones: Vec<usize>,
    /// Defaults of the edge profile rather than the built-in ones.
    pub edge: bool,
    pub network: Network,
    /// By how many millionths clocks of machines run too fast or too slowly, at most.
    pub drift: u64,
    /// By how many milliseconds the clock of the second replica of the controller is ahead.
    pub replicas_apart: i64,
    /// Real Ed25519 rather than the stand-in.
    pub ed25519: bool,
    /// A third of the agents are of the former version of Evenkeel, and a third of the next one, of which who
    /// publishes rosters is, too.
    pub mixed_versions: bool,
    pub steps: Vec<Step>,
    /// How long the run goes on after the last fault.
    pub rest: u64,
}

/// What of the system a run plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Everything.
    System,
    /// Stock Kubernetes alone, to compare with.
    Stock,
    /// The zones alone: agents, the API server with reports and Leases, and a reader. There are no pods,
    /// stock controllers and planners, so it is fast enough for thousands of nodes.
    Zones,
}

/// A group of scenarios. The numbers are those of docs/hazards.md, "Scenarios".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// A node loses power, nothing else: the plain case.
    PowerOff,
    /// A node is cut off from the cloud, nothing else but an edit of its label.
    CutOff,
    /// 1: one node of three to seven dies, a second one while the first stays dead, or two at once.
    Kills,
    /// 2: a rack of 25 or 40 % of a zone dies, or three of five, on the level of zones; a node of it returns.
    Racks,
    /// 4: any directed links between up to four nodes are cut, and any of their links to the cloud.
    Matrices,
    /// 6: a node joins, moves, or changes its key, or a zone grows from five to eleven, while one is cut off.
    Rosters,
    /// 8: the power of a whole zone goes and comes back, here sooner and there later; one node falls again.
    PowerCut,
    /// 9: all agents or all our parts are down, then a node loses power.
    NeverLaterThanStock,
    /// Nodes are kept while they are cut off, and one that was cut off with them dies for good: the stock
    /// controller has to find a turn for it.
    StockQueue,
    /// 10: an API outage of 60 s and half-open watches with an Isolated node, the controller killed at any
    /// step.
    ApiOutageIsolated,
    /// 11: Isolated for long, then dead.
    IsolatedThenDead,
    /// 12: a reporter is on the smaller side of a split, stopped in the middle of a write, or lies by leaving
    /// nodes out.
    Reporters,
    /// 13: the replicas that guard a cut-off node restart, or are down for up to 4 minutes.
    GuardRestarts,
    /// 14: somebody else answers on a kubelet's port, of a node that lives or of one that is off.
    Addresses,
    /// 16: a node stalls for 2 to 10 s, healthy, cut off or isolated, once or again and again.
    Stalls,
    /// 17: a LAN split 3|2 with the cloud whole, kubelets restarted meanwhile.
    LanSplit,
    /// 18: three zones of different sizes and fates at once.
    ThreeZones,
    /// 20: a zone outgrows a cell while one node is cut off and another one dies.
    Growth,
    /// A zone grows from 3 to 70 nodes and shrinks to 10 again, while nodes die and come back, whichever
    /// replica of the controller leads is killed every 10 s, and all agents get new keys or all machines
    /// boot.
    Lifetime,
    /// 22: the fleet runs the former version, this one and the next, while nodes die, are cut off, join, move
    /// or change keys.
    MixedVersions,
    /// 23: the API server restarts while a node is cut off.
    ApiRestart,
    /// The API server is restored from a backup in which rosters are older, then a node dies or is cut off,
    /// which may have joined since.
    Restores,
    /// A firewall drops checks all the time, while agents restart and links are cut.
    Firewall,
    /// 24: a node returns while its cell has no majority.
    ReturnWithoutMajority,
    /// 25: agents restart while a node is cut off.
    AgentRestarts,
    /// 42: a zone of two cells or more is split 45/55 or 49/51 while most of its nodes are cut off from the
    /// cloud, so that each side may have the majority of a cell.
    Splits,
    /// 59: all nodes of a zone of two cells or more are cut off from the cloud but a few.
    Carriers,
    /// 39: one member is hostile, while nothing else happens, or another one dies, stalls or is cut off.
    Hostile,
    /// The same on the level of zones, also with 64 members.
    HostileZones,
    /// Two or more faults of any kind at the same time, for 3 minutes and longer.
    Random,
    /// The same on the level of zones, with up to 100 nodes in a zone.
    RandomZones,
}

impl Group {
    /// All of them, with their names on a command line.
    const NAMES: [(Self, &str); 31] = [
        (Self::PowerOff, "power-off"),
        (Self::CutOff, "cut-off"),
        (Self::Kills, "1-kills"),
        (Self::Racks, "2-racks"),
        (Self::Matrices, "4-matrices"),
        (Self::Rosters, "6-rosters"),
        (Self::PowerCut, "8-power-cut"),
        (Self::NeverLaterThanStock, "9-never-later-than-stock"),
        (Self::StockQueue, "stock-queue"),
        (Self::ApiOutageIsolated, "10-api-outage-isolated"),
        (Self::IsolatedThenDead, "11-isolated-then-dead"),
        (Self::Reporters, "12-reporters"),
        (Self::GuardRestarts, "13-guard-restarts"),
        (Self::Addresses, "14-addresses"),
        (Self::Stalls, "16-stalls"),
        (Self::LanSplit, "17-lan-split"),
        (Self::ThreeZones, "18-three-zones"),
        (Self::Growth, "20-growth"),
        (Self::Lifetime, "lifetime"),
        (Self::MixedVersions, "22-mixed-versions"),
        (Self::ApiRestart, "23-api-restart"),
        (Self::Restores, "restores"),
        (Self::Firewall, "firewall"),
        (Self::ReturnWithoutMajority, "24-return-without-majority"),
        (Self::AgentRestarts, "25-agent-restarts"),
        (Self::Splits, "42-splits"),
        (Self::Carriers, "59-carriers"),
        (Self::Hostile, "39-hostile"),
        (Self::HostileZones, "hostile-zones"),
        (Self::Random, "random"),
        (Self::RandomZones, "random-zones"),
    ];

    /// All of them.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        Self::NAMES.into_iter().map(|(group, _)| group)
    }

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        let mut names = Self::NAMES.into_iter();
        names
            .find_map(|(group, name)| (group == self).then_some(name))
            .unwrap_or_default()
    }

    /// How many scripts of another group take as long as one of it.
    pub fn cost(self) -> u64 {
        match self {
            Self::Growth => 30,
            // Of the first two, all machines boot in one, and all agents get new keys in the other.
            Self::Lifetime => 35,
            // The first six hold more than 1,000 rounds of votes.
            Self::Splits => 11,
            Self::Carriers => 80,
            Self::Hostile | Self::HostileZones => 10,
            _ => 1,
        }
    }

    /// Faults of any kind: of these most seeds are played.
    pub fn is_random(self) -> bool {
        matches!(self, Self::Random | Self::RandomZones)
    }

    /// One member breaks the rules.
    pub fn is_hostile(self) -> bool {
        matches!(self, Self::Hostile | Self::HostileZones)
    }

    /// What its scripts play.
    pub fn level(self) -> Level {
        match self {
            Self::Racks | Self::Matrices | Self::RandomZones | Self::HostileZones => Level::Zones,
            _ => Level::System,
        }
    }

    /// The group of a name, or of the number that it begins with.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |group: &Self| {
            group
                .name()
                .split_once('-')
                .is_some_and(|(number, _)| number == text)
        };
        Self::all().find(|group| group.name() == text || number(group))
    }
}

impl Script {
    /// Number of all nodes.
    pub fn nodes(&self) -> usize {
        self.zones.iter().sum()
    }

    /// When the last fault is over.
    pub fn last_fault_ends(&self) -> u64 {
        self.steps.iter().map(Step::ends).max().unwrap_or(WARM_UP)
    }

    /// Whether two faults are there at the same time, once at least.
    pub fn overlaps(&self) -> bool {
        let at_once = |one: &Step, other: &Step| one.at < other.ends() && other.at < one.ends();
        let mut steps = self.steps.iter().enumerate();
        steps.any(|(index, one)| self.steps.iter().skip(index + 1).any(|other| at_once(one, other)))
    }

    /// When the run is over.
    pub fn end(&self) -> u64 {
        self.last_fault_ends().saturating_add(self.rest)
    }

    /// Whether a node breaks the rules at an instant.
    pub fn is_hostile(&self, node: usize, at: u64) -> bool {
        self.faults_of(node)
            .any(|step| matches!(step.fault, Fault::Hostile(..)) && step.at <= at && at < step.ends())
    }

    /// Faults of one node itself.
    pub fn faults_of(&self, node: usize) -> impl Iterator<Item = &Step> {
        self.steps
            .iter()
            .filter(move |step| step.fault.node() == Some(node))
    }
}

impl Fault {
    /// The node whose own fault it is.
    pub fn node(&self) -> Option<usize> {
        match self {
            Self::CutCloud(node)
            | Self::PowerOff(node)
            | Self::DiskLost(node)
            | Self::PauseAgent(node)
            | Self::Stall(node)
            | Self::KubeletDown(node)
            | Self::SlowKubelet(node, _)
            | Self::StrangeKubelet(node)
            | Self::SlowAgent(node, _)
            | Self::WallClock(node, _)
            | Self::Join(node)
            | Self::Leave(node)
            | Self::NewAddress(node)
            | Self::NewKey(node)
            | Self::Relabel(node)
            | Self::AgentDown(node)
            | Self::AgentUpgrade(node)
            | Self::Hostile(node, _) => Some(*node),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutCloud(node) => write!(f, "cut the cloud link of node {node}"),
            Self::PowerOff(node) => write!(f, "power off node {node}"),
            Self::Leave(node) => write!(f, "node {node} leaves for good"),
            Self::Stall(node) => write!(f, "stall node {node}"),
            Self::DiskLost(node) => write!(f, "power off node {node}, whose disk is lost"),
            Self::PauseAgent(node) => write!(f, "pause the agent of node {node}"),
            Self::CutOneWay(from, to) => write!(f, "let nothing pass from nodes {from:?} to nodes {to:?}"),
            Self::CutPair(one, other) => write!(f, "cut nodes {one} and {other} from each other"),
            Self::LossyLan(lost) => write!(f, "lose {lost}/1000 datagrams"),
            Self::SlowKubelet(node, by) => write!(f, "kubelet of node {node} up to {by} ms slower"),
            Self::StrangeKubelet(node) => write!(f, "somebody else answers for the kubelet of node {node}"),
            Self::SlowAgent(node, by) => write!(f, "agent of node {node} up to {by} ms slower"),
            Self::WallClock(node, by) => write!(f, "set the wall clock of node {node} by {by} ms"),
            Self::Join(node) => write!(f, "node {node} joins"),
            Self::NewAddress(node) => write!(f, "node {node} moves to another address"),
            Self::NewKey(node) => write!(f, "the agent of node {node} begins anew with another key"),
            Self::Relabel(node) => write!(f, "label node {node} for another zone"),
            Self::SplitLan(nodes) => write!(f, "split nodes {nodes:?} from the LAN"),
            Self::KubeletDown(node) => write!(f, "stop the kubelet of node {node}"),
            Self::AgentDown(node) => write!(f, "stop the agent of node {node}"),
            Self::AgentUpgrade(node) => write!(f, "upgrade the agent of node {node}"),
            Self::ApiDown { stock_dies: true } => f.write_str("API server and stock controllers down"),
            Self::ApiDown { stock_dies: false } => f.write_str("API server down"),
            Self::HalfOpen(replica, kind) => {
                write!(f, "half-open watch of {} at replica {replica}", kind.name())
            }
            Self::StaleReads(by) => write!(f, "reads {by} ms old"),
            Self::Restored => f.write_str("restore what agents and controllers wrote"),
            Self::ChecksDropped => f.write_str("drop checks of kubelets"),
            Self::EmptiedReport(zone) => write!(f, "empty the report of zone {}", zone + 1),
            Self::SlowWrites(by) => write!(f, "writes {by} ms slower"),
            Self::ReplicaDown(replica) => write!(f, "kill controller replica {replica}"),
            Self::LeaderDown => f.write_str("kill the leading replica"),
            Self::StockDown => f.write_str("kill the stock controllers"),
            Self::Hostile(node, malice) => write!(f, "node {node} is hostile: {malice}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: u64| {
            let text = format!("{:.3}", ms as f64 / 1000.0);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        write!(f, "at {:>7} s  {}", seconds(self.at), self.fault)?;
        write!(f, " for {} s", seconds(self.lasts))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.latency;
        write!(f, "LAN {low} to {high} ms")?;
        for (of_thousand, what) in [
            (self.lost, "lost"),
            (self.doubled, "doubled"),
            (self.delayed, "delayed"),
            (self.corrupted, "corrupted"),
        ] {
            if of_thousand > 0 {
                write!(f, ", {of_thousand}/1000 {what}")?;
            }
        }
        if let Some(Bursts { every, lasts, lost }) = self.bursts {
            write!(f, ", {lost}/1000 lost for {lasts} ms after every {every} ms")?;
        }
        Ok(())
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profile = if self.edge { "edge" } else { "built-in" };
        writeln!(
            f,
            "group {} seed {}: zones of {:?} nodes, {profile} profile",
            self.group.name(),
            self.seed,
            self.zones
        )?;
        write!(f, "{}", self.network)?;
        if self.drift > 0 {
            write!(f, "; clocks up to {} millionths off", self.drift)?;
        }
        if self.replicas_apart != 0 {
            write!(f, "; clocks of replicas {} ms apart", self.replicas_apart)?;
        }
        if self.mixed_versions {
            write!(
                f,
                "; a third of the agents of the former version, a third of the next one"
            )?;
        }
        writeln!(f)?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        write!(f, "  end after {} s", self.end() / SECOND)
    }
}

impl Script {
    /// The nodes of a node's zone, itself among them.
    pub fn zone_members(&self, node: usize) -> impl Iterator<Item = usize> {
        let zone = self.zone_of(node);
        (1..=self.nodes()).filter(move |other| self.zone_of(*other) == zone)
    }

    /// Index of the zone of a node.
    pub fn zone_of(&self, node: usize) -> usize {
        let mut first = 1;
        for (zone, count) in self.zones.iter().enumerate() {
            first += count;
            if node < first {
                return zone;
            }
        }
        self.zones.len()
    }
}
