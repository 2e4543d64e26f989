//! Flags of `evenkeel agent`.

use clap::{Args, Subcommand, ValueEnum};
use evenkeel_api::names;
use evenkeel_election::Config;
use evenkeel_election::flags::{Defaults, FlagError, LeaderElectArgs};
use evenkeel_net::client::ClientArgs;
use evenkeel_net::duration;
use evenkeel_zone::keys::PublicKey;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Where kubelets listen (`KubeletConfiguration.port`).
const KUBELET_PORT: u16 = 10_250;

/// Flags of `evenkeel agent`. Flatten into a clap struct.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct AgentArgs {
    /// Something else than running.
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
    /// Flags of a running agent.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Something else than running.
#[derive(Clone, Debug, Subcommand)]
pub enum AgentCommand {
    /// Makes the private key of an agent.
    Keygen {
        /// File to write (mode 0600); an existing file is never overwritten.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Prints the public half of a private key, as --roster-public-key takes it.
    Pubkey {
        /// File with the private key.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
}

/// Flags of a running agent.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Name of the Node this agent runs on.
    #[arg(long, env = "NODE_NAME", value_name = "NAME", required = true)]
    pub node: Option<String>,
    /// UDP address to listen on.
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:7959")]
    pub listen: SocketAddr,
    /// UDP address that peers use; the listening address if that names one.
    #[arg(long, value_name = "IP:PORT")]
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
    #[arg(long, value_name = "KEY", value_parser = PublicKey::from_base64)]
    pub roster_public_key: Vec<PublicKey>,
    /// Heartbeat period, 500ms to 60s.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_period)]
    pub heartbeat_period: Duration,
    /// How a suspect is checked before a vote.
    #[arg(
        long,
        value_name = "PLUGINS",
        value_delimiter = ',',
        default_value = "ping,kubelet"
    )]
    pub check: Vec<CheckPlugin>,
    /// Address of the health, readiness and metrics endpoints; without it there are none.
    #[arg(long, value_name = "IP:PORT")]
    pub admin: Option<SocketAddr>,
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

/// How a suspect is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckPlugin {
    /// A TCP connection to the kubelet's address. Success alone is an abstention: it proves no identity.
    Ping,
    /// The kubelet over TLS, recognised by its pinned serving certificate.
    Kubelet,
}

/// Flags that hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the Node.
    pub node: String,
    /// Where peers send their datagrams.
    pub advertise: SocketAddr,
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
    /// The plugins that check a suspect before a vote.
    pub checks: Vec<CheckPlugin>,
    /// How to stand for the zone's Lease, as an identity that begins with this one; `None`: report without
    /// it, whenever the zone's ranking says so.
    pub election: Option<Config>,
}

/// A flag that makes no sense. The message names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
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

impl RunArgs {
    /// Checks the flags against each other.
    pub fn settings(&self) -> Result<Settings, ArgsError> {
        let node = self
            .node
            .clone()
            .filter(|node| !node.is_empty())
            .ok_or(ArgsError::Node)?;
        let specific = Some(self.listen.ip()).filter(|ip| !ip.is_unspecified());
        let advertise = match (self.advertise, specific) {
            (Some(address), _) => address,
            (None, Some(_)) => self.listen,
            (None, None) => return Err(ArgsError::Advertise(self.listen)),
        };
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
            advertise,
            source: specific,
            kubelet,
            kubelet_assumed: self.kubelet.is_none(),
            kubelet_advertise: self.kubelet_advertise.or(beside),
            zone_default: self.zone_default.clone(),
            period: self.heartbeat_period,
            roster_keys: self.roster_public_key.clone(),
            checks: self.check.clone(),
            election: self.election()?,
        })
    }

    /// How to stand for the zone's Lease. The name in there is not used: each zone has its own.
    fn election(&self) -> Result<Option<Config>, ArgsError> {
        let flags = &self.leader_elect;
        if flags.leader_elect_resource_name.is_some() || flags.leader_elect_resource_namespace.is_some() {
            return Err(ArgsError::Lease);
        }
        let candidacy = flags.resolve(Defaults {
            namespace: names::NAMESPACE.to_owned(),
            name: names::ZONE_LEASE_PREFIX.to_owned(),
            config: election(self.node.as_deref().unwrap_or_default()),
        })?;
        Ok(candidacy.map(|candidacy| candidacy.config))
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
        parse(line).unwrap().run.settings()
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

    #[test]
    fn the_stock_flags_set_how_to_stand_for_the_zones_lease() {
        let base = "--node a --listen 127.77.0.1:7959";
        let election = |flags: &str| settings(&format!("{base} {flags}")).map(|settings| settings.election);
        let ours = election("").unwrap().unwrap();
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
        let slow = election(slow).unwrap().unwrap();
        assert_eq!(
            (slow.lease_duration, slow.renew_deadline, slow.retry_period),
            (
                Duration::from_secs(15),
                Duration::from_secs(10),
                Duration::from_secs(2)
            )
        );
        assert_eq!(election("--leader-elect=false"), Ok(None));
        let renamed = election("--leader-elect-resource-name other");
        assert_eq!(renamed, Err(ArgsError::Lease));
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
        assert_eq!(error, Err(ArgsError::NoKubelet("1.2.3.4:5".parse().unwrap())));
        let error = parse("--node a --kubelet somewhere").unwrap_err();
        assert!(error.contains("IP:PORT, or none"), "{error}");
    }

    #[test]
    fn periods_and_plugins_are_bounded() {
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
        assert!(parse("--node a --check pong").unwrap_err().contains("pong"));
    }

    #[test]
    fn keygen_needs_no_flags_of_a_running_agent() {
        let args = parse("keygen --out k").unwrap();
        assert!(matches!(args.command, Some(AgentCommand::Keygen { .. })));
    }
}
