//! The command line of `evenkeel controller`.

use super::RosterSigning;
use crate::webhook::WebhookAddress;
use evenkeel_api::names;
use evenkeel_api::policy::{ModePolicy, Profile};
use evenkeel_election::flags::{Candidacy, Defaults, LeaderElectArgs};
use evenkeel_election::{self as election, unique_identity};
use evenkeel_failover_rules::world::Config;
use evenkeel_judge::Timing;
use evenkeel_net::client::ClientArgs;
use evenkeel_net::duration;
use evenkeel_net::file::{Readers, read_secret};
use evenkeel_settings::Settings as Configurable;
use evenkeel_zone::keys::{PublicKey, SigningKey};
use evenkeel_zone::roster::RosterKeys;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Flags of the controller.
#[derive(Clone, Debug, clap::Args)]
pub struct ControllerArgs {
    /// Where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Namespace that Evenkeel is installed in: its Leases, the webhook's Secret, and the annotation that
    /// pauses it.
    #[arg(long, value_name = "NAME", default_value = names::NAMESPACE, value_parser = names::parse_namespace)]
    pub namespace: String,
    /// Where /healthz, /livez, /readyz and /metrics are served.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9850")]
    pub admin: SocketAddr,
    /// Defaults where no FailoverPolicy speaks.
    #[arg(long, value_name = "PROFILE", default_value = "builtin")]
    pub profile: Profile,
    /// Whether to act; `observe` holds on every node, whatever a FailoverPolicy says.
    #[arg(long, value_name = "MODE", default_value = "act")]
    pub mode: ModePolicy,
    /// A node's Lease not seen renewed for this long is stale.
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = duration::parse)]
    pub stale_after: Duration,
    /// How often kubelets renew their Leases; irreversible steps wait for 1.5 times as long.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub lease_renew_interval: Duration,
    /// As kube-controller-manager's flag of the same name: how long the stock node controller waits for a
    /// silent node.
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = duration::parse)]
    pub node_monitor_grace_period: Duration,
    /// As kube-apiserver's flag of the same name: the seconds that admission adds to pods.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub default_unreachable_toleration_seconds: i64,
    /// Zone of nodes without a zone label; without it such nodes are in no zone (the edge profile:
    /// `default`).
    #[arg(long, value_name = "NAME")]
    pub zone_default: Option<String>,
    /// Private key that signs rosters (PEM, as `evenkeel agent keygen` writes it), the same for all
    /// controllers; without it rosters are not signed, and agents do not pass them on to each other.
    #[arg(long, value_name = "FILE")]
    pub roster_key: Option<PathBuf>,
    /// Another public key whose rosters count (`evenkeel agent pubkey` prints it), while --roster-key is
    /// being replaced; once for each.
    #[arg(long, value_name = "KEY", requires = "roster_key", value_delimiter = ',', value_parser = PublicKey::from_base64)]
    pub roster_public_key: Vec<PublicKey>,
    /// Where the admission webhook listens; without it this process serves none.
    #[arg(long, value_name = "ADDR", requires = "webhook_address")]
    pub webhook_listen: Option<SocketAddr>,
    /// How the API server reaches the webhook: `https://HOST:PORT`, or `service/NAMESPACE/NAME[:PORT]`.
    #[arg(
        long,
        visible_alias = "webhook-url",
        value_name = "WHERE",
        requires = "webhook_listen"
    )]
    pub webhook_address: Option<WebhookAddress>,
    /// Whether and how to stand for election.
    #[command(flatten)]
    pub leader_elect: LeaderElectArgs,
    /// Name of this replica in the election; made of host name and process without it.
    #[arg(long, value_name = "NAME")]
    pub identity: Option<String>,
}

impl Configurable for ControllerArgs {
    const KIND: &str = "ControllerConfiguration";
}

/// What each time may be, by its flag.
const RANGES: [(&str, Range); 3] = [
    ("--stale-after", |args| (args.stale_after, 1, 600)),
    ("--lease-renew-interval", |args| {
        (args.lease_renew_interval, 1, 60)
    }),
    ("--node-monitor-grace-period", |args| {
        (args.node_monitor_grace_period, 10, 3_600)
    }),
];
/// A time, and the least and the most that it may be, in seconds.
type Range = fn(&ControllerArgs) -> (Duration, u64, u64);
/// The most that `--default-unreachable-toleration-seconds` may be: a day.
const LONGEST_TOLERATION: i64 = 86_400;

impl ControllerArgs {
    /// Name of this replica in the election.
    pub fn replica(&self) -> String {
        self.identity.clone().unwrap_or_else(unique_identity)
    }

    /// For which Lease to stand; `None`: for none. 5/3/1 s unless flags say otherwise: a crashed leader is
    /// replaced within 6 s.
    pub fn candidacy(&self, identity: &str) -> Result<Option<Candidacy>, String> {
        let resolved = self.leader_elect.resolve(Defaults {
            namespace: self.namespace.clone(),
            name: names::CONTROLLER_LEASE.to_owned(),
            config: election::Config::new(identity),
        });
        resolved.map_err(|error| error.to_string())
    }

    /// What a controller with these settings would not start for, beside its surroundings.
    pub(super) fn check(&self) -> Result<(), String> {
        self.config("").map(drop)?;
        self.candidacy("check").map(drop)?;
        self.roster_signing().map(drop)
    }

    /// How rosters are signed. `Err` names the flag and what is wrong with it.
    pub fn roster_signing(&self) -> Result<RosterSigning, String> {
        let Some(path) = &self.roster_key else {
            return Ok(RosterSigning::default());
        };
        let file = path.display();
        let text = read_secret(path, Readers::Group).map_err(|error| {
            let make = match error.kind() {
                io::ErrorKind::NotFound => format!("; make one with `evenkeel agent keygen --out {file}`"),
                _ => String::new(),
            };
            format!("--roster-key {file}: {error}{make}")
        })?;
        let key = SigningKey::from_pem(&text).map_err(|error| format!("--roster-key {file}: {error}"))?;
        let mut trusted = vec![key.public().clone()];
        trusted.extend(self.roster_public_key.iter().cloned());
        Ok(RosterSigning {
            key: Some(Arc::new(key)),
            trusted: RosterKeys::new(trusted),
        })
    }

    /// What the planner is told. `Err` names the flag and what is wrong with it.
    pub fn config(&self, identity: &str) -> Result<Config, String> {
        for (flag, range) in RANGES {
            let (time, least, most) = range(self);
            if !(Duration::from_secs(least)..=Duration::from_secs(most)).contains(&time) {
                return Err(format!("{flag} {time:?}: give {least}s to {most}s"));
            }
        }
        let renew = millis(self.lease_renew_interval);
        let timing = Timing {
            stale_after: millis(self.stale_after),
            stock_grace: millis(self.node_monitor_grace_period),
            ..Timing::for_renew_interval(renew)
        };
        if timing.stale_after < timing.confirm_after {
            return Err(format!(
                "--stale-after {}ms is below 1.5 times --lease-renew-interval ({}ms): healthy nodes would count as stale",
                timing.stale_after, timing.confirm_after
            ));
        }
        let toleration = self.default_unreachable_toleration_seconds;
        if !(0..=LONGEST_TOLERATION).contains(&toleration) {
            return Err(format!(
                "--default-unreachable-toleration-seconds {toleration}: give 0 to {LONGEST_TOLERATION}"
            ));
        }
        let named = (self.profile == Profile::Edge).then(|| names::DEFAULT_ZONE.to_owned());
        Ok(Config {
            timing,
            profile: self.profile,
            default_zone: self.zone_default.clone().or(named),
            default_toleration_seconds: self.default_unreachable_toleration_seconds,
            namespace: self.namespace.clone(),
            identity: identity.to_owned(),
            life: unique_identity(),
            mode: self.mode,
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rstest::rstest;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        controller: ControllerArgs,
    }

    fn parse(line: &str) -> Result<ControllerArgs, clap::Error> {
        Cli::try_parse_from(std::iter::once("evenkeel").chain(line.split_whitespace()))
            .map(|cli| cli.controller)
    }

    #[test]
    fn without_flags_the_documented_defaults_hold() {
        let config = parse("").unwrap().config("me").unwrap();
        assert_eq!(config.timing, Timing::default());
        assert_eq!((config.profile, config.default_zone), (Profile::Builtin, None));
        assert_eq!(config.default_toleration_seconds, 300);
    }

    #[test]
    fn the_stock_flags_say_for_which_lease_to_stand() {
        let candidacy = |line| parse(line).unwrap().candidacy("me");
        let ours = candidacy("").unwrap().unwrap();
        assert_eq!(
            (ours.namespace.as_str(), ours.name.as_str()),
            (names::NAMESPACE, names::CONTROLLER_LEASE)
        );
        assert_eq!(ours.config, election::Config::new("me"));
        let installed = candidacy("--namespace pier").unwrap().unwrap();
        assert_eq!(installed.namespace, "pier");
        let other = "--leader-elect-resource-name a --leader-elect-resource-namespace b --leader-elect-recovery-deadline 30s";
        let other = candidacy(other).unwrap().unwrap();
        assert_eq!((other.namespace.as_str(), other.name.as_str()), ("b", "a"));
        assert_eq!(other.config.recovery_deadline, Some(Duration::from_secs(30)));
        assert_eq!(candidacy("--leader-elect=false"), Ok(None));
        let refused = candidacy("--leader-elect-retry-period 3s").unwrap_err();
        assert!(refused.contains("--leader-elect"), "{refused}");
    }

    #[test]
    fn the_edge_profile_names_a_zone_and_a_flag_another() {
        let zone = |line| parse(line).unwrap().config("me").unwrap().default_zone;
        assert_eq!(zone("--profile edge").as_deref(), Some("default"));
        assert_eq!(
            zone("--profile edge --zone-default pier").as_deref(),
            Some("pier")
        );
    }

    #[rstest]
    #[case("--stale-after soon", "1m30s")]
    #[case("--stale-after=-5s", "1m30s")]
    #[case("--webhook-listen 127.0.0.1:1", "--webhook-address")]
    #[case("--profile sea", "edge")]
    #[case("--namespace Sea", "lower case letters")]
    fn a_wrong_flag_is_named_with_what_to_write(#[case] line: &str, #[case] words: &str) {
        let error = parse(line).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }

    #[rstest]
    #[case("--stale-after 14s", "--stale-after")]
    #[case("--lease-renew-interval 0", "--lease-renew-interval")]
    #[case(
        "--default-unreachable-toleration-seconds=-1",
        "--default-unreachable-toleration-seconds -1: give 0 to"
    )]
    #[case("--default-unreachable-toleration-seconds 86401", "--default-unreachable")]
    #[case("--stale-after 601s", "--stale-after 601s: give 1s to 600s")]
    #[case("--lease-renew-interval 61s", "--lease-renew-interval 61s: give 1s to 60s")]
    #[case(
        "--node-monitor-grace-period 9s",
        "--node-monitor-grace-period 9s: give 10s to 3600s"
    )]
    fn flags_that_contradict_each_other_are_refused(#[case] line: &str, #[case] words: &str) {
        let error = parse(line).unwrap().config("me").unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}
