//! Flags of `evenkeel agent`.

use crate::check::{CheckSettingsError, Checks, Registry};
use crate::own_file::who_else_writes;
use clap::{Args, Subcommand};
use evenkeel_api::names;
use evenkeel_election::Config;
use evenkeel_election::flags::{Candidacy, Defaults, FlagError, LeaderElectArgs};
use evenkeel_net::client::ClientArgs;
use evenkeel_net::duration;
use evenkeel_settings::{Configured, Settings as Configurable, SettingsError, Source};
use evenkeel_zone::keys::PublicKey;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Where kubelets listen (`KubeletConfiguration.port`).
const KUBELET_PORT: u16 = 10_250;

/// Flags of `evenkeel agent`. Flatten into a clap struct.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentArgs {
    /// Something else than running.
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
    /// Settings of a running agent.
    #[command(flatten)]
    pub run: Configured<RunArgs>,
}

/// Something else than running.
#[derive(Clone, Debug, Subcommand)]
pub enum AgentCommand {
    /// Make the private key of an agent.
    Keygen {
        /// File to write (mode 0600); an existing file is never overwritten.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Make the next key of an agent, which changes to it while it runs, within some two minutes and without
    /// a gap. While its node is cut off it is not announced.
    RotateKey {
        /// The agent's --key.
        #[arg(long, value_name = "FILE", default_value = "/var/lib/evenkeel/agent.key")]
        key: PathBuf,
    },
    /// Print the public half of a private key, as --roster-public-key takes it.
    Pubkey {
        /// File with the private key.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
}

/// Settings of a running agent.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Name of the Node this agent runs on.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node: Option<String>,
    /// Namespace that Evenkeel is installed in, for the Leases of cells.
    #[arg(long, value_name = "NAME", default_value = names::NAMESPACE, value_parser = names::parse_namespace)]
    pub namespace: String,
    /// UDP address to listen on. Where --advertise has an IPv6 address, 0.0.0.0 stands for all IPv6
    /// addresses.
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:7959")]
    pub listen: SocketAddr,
    /// UDP address that peers use; the listening address if that names one. Without a port, that of --listen.
    #[arg(long, value_name = "IP[:PORT]", value_parser = parse_advertise)]
    pub advertise: Option<SocketAddr>,
    /// Private key of this agent, as `evenkeel agent keygen` writes it; made where there is none. Nobody else
    /// may read it.
    #[arg(long, value_name = "FILE", default_value = "/var/lib/evenkeel/agent.key")]
    pub key: PathBuf,
    /// Directory for what outlives a restart: the last roster, and who was seen alive.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/evenkeel")]
    pub state_dir: PathBuf,
    /// For simulated machines: a file with the ID of the present boot and its time (RFC 3339), a line
    /// each; the kernel's if not given.
    #[arg(long, value_name = "FILE")]
    pub boot: Option<PathBuf>,
    /// The node's own kubelet, to be watched and to be pinned; port 10250 of the advertised IP if not
    /// given. With `none` peers have nothing to check: no vote ever finds this node dead.
    #[arg(long, value_name = "IP:PORT|none", value_parser = parse_kubelet)]
    pub kubelet: Option<KubeletFlag>,
    /// Where peers reach that kubelet; the advertised IP with the kubelet's port if not given.
    #[arg(long, value_name = "IP:PORT")]
    pub kubelet_advertise: Option<SocketAddr>,
    /// Zone of nodes without a zone label; without it they are in no zone.
    #[arg(long, value_name = "NAME")]
    pub zone_default: Option<String>,
    /// Public key of the controllers' --roster-key: rosters that are not signed with it do not count, and
    /// those that are can come from other members while the link to the API server is cut. Once more for a
    /// second key, while that key is being replaced.
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = PublicKey::from_base64)]
    pub roster_public_key: Vec<PublicKey>,
    /// Heartbeat period, 500ms to 60s.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_period)]
    pub heartbeat_period: Duration,
    /// How a suspect is checked before a vote: ping, kubelet, http, icmp or exec, each with parameters if
    /// need be, as in `ping,kubelet:timeout=0.5,retries=2,weight=0.7,port=10250`.
    #[arg(long, value_name = "PLUGINS", default_value = "ping,kubelet")]
    pub check: Vec<String>,
    /// Points that the checks which something answers must reach, so that a vote is not "dead": more than 0,
    /// 100 at most. An answer is worth 100 times the weight of its plugin.
    #[arg(
        long,
        value_name = "POINTS",
        default_value_t = 100.0,
        visible_aliases = ["health-check-scoreline", "healthcheckscoreline"]
    )]
    pub check_score_line: f64,
    /// Program and arguments of the exec check; stands in the node's own file alone (--config). The suspect
    /// is `$(NODE)` and `$(ADDRESS)`.
    #[arg(long, value_name = "COMMAND", hide = true)]
    pub check_command: Vec<String>,
    /// As SuperEdge's flag: parameters of the ping check.
    #[arg(long, value_name = "PARAMETERS", visible_alias = "pingplugin")]
    pub ping_plugin: Option<String>,
    /// As SuperEdge's flag: parameters of the http check.
    #[arg(long, value_name = "PARAMETERS", visible_alias = "kubeletplugin")]
    pub kubelet_plugin: Option<String>,
    /// As SuperEdge's flag: parameters of the kubelet check.
    #[arg(long, value_name = "PARAMETERS", visible_alias = "kubeletauthplugin")]
    pub kubelet_auth_plugin: Option<String>,
    /// Address of the health, readiness and metrics endpoints; without it there are none. A port alone is one
    /// at the advertised address.
    #[arg(long, value_name = "[IP:]PORT", value_parser = parse_admin)]
    pub admin: Option<AdminFlag>,
    /// Whether and how to stand for the zone's Lease, which names the agent that writes the zone's reports.
    #[command(flatten)]
    pub leader_elect: LeaderElectArgs,
    /// How the API server is found.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Where the node's own kubelet answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletFlag {
    /// At this address.
    At(SocketAddr),
    /// There is none that could be checked.
    None,
}

/// Where the admin endpoints are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminFlag {
    /// At this address.
    At(SocketAddr),
    /// At this port of the advertised address.
    Port(u16),
}

/// Fields of the file that a running agent takes over.
pub(crate) const RELOADED: [&str; 7] = [
    "check",
    "checkCommand",
    "checkScoreLine",
    "kubeletAuthPlugin",
    "kubeletPlugin",
    "pingPlugin",
    "rosterPublicKey",
];

/// Settings that hold together.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the Node.
    pub node: String,
    /// Where the agent listens for datagrams.
    pub listen: SocketAddr,
    /// Where peers send their datagrams.
    pub advertise: SocketAddr,
    /// Where the admin endpoints are served.
    pub admin: Option<SocketAddr>,
    /// Address to make checks from; `None`: the system's choice.
    pub source: Option<IpAddr>,
    /// The node's own kubelet.
    pub kubelet: Option<SocketAddr>,
    /// Nobody said where it is: that it does not answer there means nothing until it did once.
    pub kubelet_assumed: bool,
    /// Where peers reach it.
    pub kubelet_advertise: Option<SocketAddr>,
    /// Zone of nodes without a label.
    pub zone_default: Option<String>,
    /// Time from one heartbeat to the next.
    pub period: Duration,
    /// Keys of those who may publish rosters.
    pub roster_keys: Vec<PublicKey>,
    /// How a suspect is checked before a vote.
    pub checks: Checks,
    /// How to stand for the zone's Lease, as an identity that begins with this one; `None`: report without
    /// it, whenever the zone's ranking says so.
    pub election: Option<Candidacy>,
}

/// A setting that makes no sense. The message names it.
#[derive(Debug, thiserror::Error)]
pub enum ArgsError {
    /// One setting, or where it comes from.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The check plugins.
    #[error(transparent)]
    Checks(#[from] CheckSettingsError),
    /// No Node name.
    #[error("--node NAME is missing: name the Node this agent runs on")]
    Node,
    /// Nobody could reach the agent.
    #[error("--listen {0} names no address that peers could use: give --advertise IP:PORT")]
    Advertise(SocketAddr),
    /// An address for a kubelet that is not there.
    #[error("--kubelet-advertise {0} has no meaning with --kubelet none: leave one of them out")]
    NoKubelet(SocketAddr),
    /// The election's flags.
    #[error(transparent)]
    Election(#[from] FlagError),
    /// The zone's Lease cannot be named.
    #[error(
        "--leader-elect-resource-name and -namespace cannot be given: an agent stands for its zone's Lease"
    )]
    Lease,
}

impl Configurable for RunArgs {
    const KIND: &str = "AgentConfiguration";

    fn refuses(id: &str, source: Source<'_>) -> Option<String> {
        if id != "check_command" {
            return None;
        }
        let who = match source {
            Source::File(path) => who_else_writes(path)?,
            Source::Flag | Source::Variable => "whoever can change the agent's pod".to_owned(),
        };
        Some(format!(
            "{who} would run commands on the node: put it into a file of the node itself that root alone may write, and name that \
             with --config"
        ))
    }
}

impl RunArgs {
    /// Checks the settings against each other.
    pub fn settings(&self, plugins: &Registry) -> Result<Settings, ArgsError> {
        let node = self
            .node
            .clone()
            .filter(|node| !node.is_empty())
            .ok_or(ArgsError::Node)?;
        let specific = Some(self.listen.ip()).filter(|ip| !ip.is_unspecified());
        let advertise = match (self.advertise, specific) {
            (Some(address), _) if address.port() == 0 => SocketAddr::new(address.ip(), self.listen.port()),
            (Some(address), _) => address,
            (None, Some(_)) => self.listen,
            (None, None) => return Err(ArgsError::Advertise(self.listen)),
        };
        let listen = match (self.listen, advertise) {
            (SocketAddr::V4(listen), SocketAddr::V6(_)) if listen.ip().is_unspecified() => {
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, listen.port()))
            }
            (listen, _) => listen,
        };
        let admin = self.admin.map(|admin| match admin {
            AdminFlag::At(address) => address,
            AdminFlag::Port(port) => SocketAddr::new(advertise.ip(), port),
        });
        let kubelet = match self.kubelet {
            Some(KubeletFlag::At(address)) => Some(address),
            Some(KubeletFlag::None) => None,
            None => Some(SocketAddr::new(advertise.ip(), KUBELET_PORT)),
        };
        if let (None, Some(address)) = (kubelet, self.kubelet_advertise) {
            return Err(ArgsError::NoKubelet(address));
        }
        let beside = kubelet.map(|kubelet| SocketAddr::new(advertise.ip(), kubelet.port()));
        Ok(Settings {
            node,
            listen,
            advertise,
            admin,
            source: specific,
            kubelet,
            kubelet_assumed: self.kubelet.is_none(),
            kubelet_advertise: self.kubelet_advertise.or(beside),
            zone_default: self.zone_default.clone(),
            period: self.heartbeat_period,
            roster_keys: self.roster_public_key.clone(),
            checks: self.checks(plugins)?,
            election: self.election()?,
        })
    }

    /// The plugins, and what SuperEdge's flags say of theirs.
    pub(crate) fn checks(&self, plugins: &Registry) -> Result<Checks, CheckSettingsError> {
        let flags = [
            ("--ping-plugin", "ping", &self.ping_plugin),
            ("--kubelet-plugin", "http", &self.kubelet_plugin),
            ("--kubelet-auth-plugin", "kubelet", &self.kubelet_auth_plugin),
        ];
        let flags = flags.into_iter().filter_map(|(flag, name, parameters)| {
            let parameters = parameters.as_deref()?;
            Some((flag, name, parameters))
        });
        plugins.checks(&self.check, flags, &self.check_command, self.check_score_line)
    }

    /// How to stand for the zone's Lease. The name in there is not used: each zone has its own.
    fn election(&self) -> Result<Option<Candidacy>, ArgsError> {
        let flags = &self.leader_elect;
        if flags.leader_elect_resource_name.is_some() || flags.leader_elect_resource_namespace.is_some() {
            return Err(ArgsError::Lease);
        }
        Ok(flags.resolve(Defaults {
            namespace: self.namespace.clone(),
            name: names::ZONE_LEASE_PREFIX.to_owned(),
            config: election(self.node.as_deref().unwrap_or_default()),
        })?)
    }
}

/// How to stand for the Lease of a cell, unless flags say otherwise: 30, 20 and 10 s. The Lease only avoids
/// that several reporters write the same, and shows readers that the cell is alive, which they doubt after
/// 30 s. While it has no holder the other reporters write, a second later than a holder would. Its renewals
/// are most of the requests of a calm fleet, see `cloud`.
pub fn election(node: &str) -> Config {
    Config {
        lease_duration: Duration::from_secs(30),
        renew_deadline: Duration::from_secs(20),
        retry_period: Duration::from_secs(10),
        ..Config::new(node)
    }
}

/// `10.0.0.1:7959`, or `10.0.0.1`, which has port 0 here.
fn parse_advertise(text: &str) -> Result<SocketAddr, &'static str> {
    let bare = || text.parse().map(|ip: IpAddr| SocketAddr::new(ip, 0));
    text.parse().or_else(|_| bare()).map_err(|_| "give IP or IP:PORT")
}

/// `127.0.0.1:9851`, or `9851`.
fn parse_admin(text: &str) -> Result<AdminFlag, &'static str> {
    let port = || text.parse().map(AdminFlag::Port);
    let address = text.parse().map(AdminFlag::At);
    address.or_else(|_| port()).map_err(|_| "give IP:PORT, or a port")
}

/// `10.0.0.1:10250`, or `none`.
fn parse_kubelet(text: &str) -> Result<KubeletFlag, String> {
    if text == "none" {
        return Ok(KubeletFlag::None);
    }
    let address = text.parse().map_err(|_| "give IP:PORT, or none".to_owned())?;
    Ok(KubeletFlag::At(address))
}

/// `500ms`, `2s`; 500 ms to 60 s.
fn parse_period(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(500)..=Duration::from_secs(60);
    duration::parse(text)
        .ok()
        .filter(|period| allowed.contains(period))
        .ok_or_else(|| "give 500ms to 60s, as in 2s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rstest::rstest;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        agent: AgentArgs,
    }

    fn parse(line: &str) -> Result<AgentArgs, String> {
        let words = std::iter::once("agent").chain(line.split_whitespace());
        Cli::try_parse_from(words)
            .map(|cli| cli.agent)
            .map_err(|error| error.to_string())
    }

    fn settings(line: &str) -> Result<Settings, ArgsError> {
        let (run, _) = parse(line).unwrap().run.read_with(std::iter::empty())?;
        run.settings(&Registry::default())
    }

    #[test]
    fn the_listening_address_is_advertised_if_it_names_one() {
        let named = settings("--node a --listen 127.77.0.1:7959").unwrap();
        assert_eq!(named.advertise.to_string(), "127.77.0.1:7959");
        assert_eq!(named.source, Some("127.77.0.1".parse().unwrap()));
        let error = settings("--node a").unwrap_err();
        assert!(error.to_string().contains("give --advertise"), "{error}");
        let outer = settings("--node a --listen 127.77.0.1:7959 --advertise 127.78.0.1:7959").unwrap();
        assert_eq!(outer.advertise.to_string(), "127.78.0.1:7959");
    }

    #[rstest]
    #[case("--advertise 10.0.0.7", "0.0.0.0:7959", "10.0.0.7:7959", "10.0.0.7:9851")]
    #[case("--advertise fd00::7", "[::]:7959", "[fd00::7]:7959", "[fd00::7]:9851")]
    #[case("--advertise [fd00::7]:7960", "[::]:7959", "[fd00::7]:7960", "[fd00::7]:9851")]
    #[case(
        "--listen [fd00::7]:7959",
        "[fd00::7]:7959",
        "[fd00::7]:7959",
        "[fd00::7]:9851"
    )]
    #[case(
        "--listen 127.0.0.1:1 --advertise fd00::7",
        "127.0.0.1:1",
        "[fd00::7]:1",
        "[fd00::7]:9851"
    )]
    fn an_address_without_a_port_is_enough(
        #[case] line: &str,
        #[case] listen: &str,
        #[case] advertise: &str,
        #[case] admin: &str,
    ) {
        let settings = settings(&format!("--node a {line} --admin 9851")).unwrap();
        assert_eq!(settings.listen.to_string(), listen);
        assert_eq!(settings.advertise.to_string(), advertise);
        assert_eq!(settings.admin.unwrap().to_string(), admin);
    }

    #[test]
    fn the_stock_flags_set_how_to_stand_for_the_zones_lease() {
        let base = "--node a --listen 127.77.0.1:7959";
        let election = |flags: &str| settings(&format!("{base} {flags}")).map(|settings| settings.election);
        let ours = election("--namespace pier").unwrap().unwrap();
        assert_eq!(ours.namespace, "pier");
        let ours = ours.config;
        assert_eq!(ours.validate(), Ok(()));
        assert_eq!(
            (ours.lease_duration, ours.renew_deadline, ours.retry_period),
            (
                Duration::from_secs(30),
                Duration::from_secs(20),
                Duration::from_secs(10)
            )
        );
        let slow = "--leader-elect-lease-duration 15s --leader-elect-renew-deadline 10s --leader-elect-retry-period 2s";
        let slow = election(slow).unwrap().unwrap().config;
        assert_eq!(
            (slow.lease_duration, slow.renew_deadline, slow.retry_period),
            (
                Duration::from_secs(15),
                Duration::from_secs(10),
                Duration::from_secs(2)
            )
        );
        assert_eq!(election("--leader-elect=false").unwrap(), None);
        let renamed = election("--leader-elect-resource-name other");
        assert!(matches!(renamed, Err(ArgsError::Lease)));
        let error = election("--leader-elect-renew-deadline 31s")
            .unwrap_err()
            .to_string();
        assert!(error.contains("--leader-elect-lease-duration"), "{error}");
    }

    #[test]
    fn the_kubelet_is_advertised_beside_the_agent() {
        let line = "--node a --listen 127.77.0.1:7959 --advertise 127.78.0.1:7959 --kubelet 127.77.0.1:10250";
        assert_eq!(
            settings(line).unwrap().kubelet_advertise.unwrap().to_string(),
            "127.78.0.1:10250"
        );
        let usual = settings("--node a --listen 127.77.0.1:7959 --advertise 127.78.0.1:7959").unwrap();
        let expected = Some("127.78.0.1:10250".parse().unwrap());
        assert_eq!((usual.kubelet, usual.kubelet_advertise), (expected, expected));
        assert!(usual.kubelet_assumed && !settings(line).unwrap().kubelet_assumed);
    }

    #[test]
    fn a_node_without_a_kubelet_has_to_say_so() {
        let without = settings("--node a --listen 127.77.0.1:7959 --kubelet none").unwrap();
        assert_eq!((without.kubelet, without.kubelet_advertise), (None, None));
        let error =
            settings("--node a --listen 127.77.0.1:7959 --kubelet none --kubelet-advertise 1.2.3.4:5");
        let error = error.unwrap_err().to_string();
        assert!(error.contains("--kubelet-advertise 1.2.3.4:5"), "{error}");
        let error = parse("--node a --kubelet somewhere").unwrap_err();
        assert!(error.contains("IP:PORT, or none"), "{error}");
    }

    #[test]
    fn periods_are_bounded() {
        assert_eq!(
            settings("--node a --listen 1.2.3.4:1 --heartbeat-period 500ms")
                .unwrap()
                .period
                .as_millis(),
            500
        );
        for bad in ["1ms", "61s", "2", "two", "-1s"] {
            let error = parse(&format!("--node a --heartbeat-period={bad}")).unwrap_err();
            assert!(error.contains("500ms to 60s"), "{error}");
        }
    }

    #[test]
    fn a_command_comes_from_a_file_of_the_node_alone() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let text = "apiVersion: evenkeel.io/v1alpha1\nkind: AgentConfiguration\ncheck: [kubelet, exec]\ncheckCommand: [/bin/true]\n";
        std::fs::write(file("agent.yaml"), text).unwrap();
        let of_file = |name: &str| {
            let config = file(name);
            settings(&format!(
                "--node a --listen 1.2.3.4:1 --config {}",
                config.display()
            ))
        };
        assert!(of_file("agent.yaml").unwrap().checks.has("exec"));
        std::fs::set_permissions(file("agent.yaml"), std::fs::Permissions::from_mode(0o664)).unwrap();
        let error = of_file("agent.yaml").unwrap_err().to_string();
        assert!(
            error.contains("agent.yaml:4:1: checkCommand: others (by the mode 0664 of"),
            "{error}"
        );
        // As a kubelet shows a ConfigMap.
        std::fs::create_dir(file("..2026_11_26_12_00_00.1")).unwrap();
        std::fs::write(file("..2026_11_26_12_00_00.1/volume.yaml"), text).unwrap();
        symlink("..2026_11_26_12_00_00.1", file("..data")).unwrap();
        symlink("..data/volume.yaml", file("volume.yaml")).unwrap();
        let error = of_file("volume.yaml").unwrap_err().to_string();
        assert!(
            error.contains("whoever may change the object that fills this volume"),
            "{error}"
        );
        let error = settings("--node a --check-command /bin/true")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--check-command: whoever can change the agent's pod"),
            "{error}"
        );
    }

    #[test]
    fn keygen_needs_no_flags_of_a_running_agent() {
        let args = parse("keygen --out k").unwrap();
        assert!(matches!(args.command, Some(AgentCommand::Keygen { .. })));
    }
}
