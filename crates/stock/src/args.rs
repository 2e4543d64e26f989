//! The flags of `evenkeel node-lifecycle`: names and defaults are kube-controller-manager's.

use evenkeel_net::client::ClientArgs;
use evenkeel_net::duration;
use evenkeel_stock_rules::health::Grace;
use evenkeel_stock_rules::zones::Rates;
use jiff::SignedDuration;
use std::net::SocketAddr;
use std::time::Duration;

/// Stand-in for the stock node lifecycle and taint eviction controllers.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeLifecycleArgs {
    /// How to reach the API server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Address of /healthz, /livez, /readyz and /metrics, as in 127.0.0.1:9091; without it they are not
    /// served.
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<SocketAddr>,
    /// Time between looks at the nodes.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub node_monitor_period: Duration,
    /// For how long a node may be silent before it is marked Unknown.
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = duration::parse)]
    pub node_monitor_grace_period: Duration,
    /// For how long a node that never reported may be silent.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub node_startup_grace_period: Duration,
    /// Nodes tainted NoExecute per second, in each zone.
    #[arg(long, value_name = "RATE", default_value_t = 0.1)]
    pub node_eviction_rate: f64,
    /// The same in a large zone that is partially disrupted; in a small one it is 0.
    #[arg(long, value_name = "RATE", default_value_t = 0.01)]
    pub secondary_node_eviction_rate: f64,
    /// Zones with more nodes than this are large.
    #[arg(long, value_name = "NODES", default_value_t = 50)]
    pub large_cluster_size_threshold: usize,
    /// Share of nodes not ready from which a zone is partially disrupted.
    #[arg(long, value_name = "SHARE", default_value_t = 0.55)]
    pub unhealthy_zone_threshold: f64,
}

impl NodeLifecycleArgs {
    /// Refuses what cannot work; the text names the flag.
    pub fn validate(&self) -> Result<(), String> {
        for (flag, rate) in [
            ("--node-eviction-rate", self.node_eviction_rate),
            (
                "--secondary-node-eviction-rate",
                self.secondary_node_eviction_rate,
            ),
        ] {
            if !rate.is_finite() || rate < 0.0 {
                return Err(format!("{flag} {rate}: must be 0 or more nodes per second"));
            }
        }
        if !(0.0..=1.0).contains(&self.unhealthy_zone_threshold) {
            let share = self.unhealthy_zone_threshold;
            return Err(format!(
                "--unhealthy-zone-threshold {share}: must be a share from 0 to 1"
            ));
        }
        if self.node_monitor_period.is_zero() {
            return Err("--node-monitor-period 0: must be more than 0".to_owned());
        }
        Ok(())
    }

    pub(super) fn grace(&self) -> Grace {
        Grace {
            monitor: signed(self.node_monitor_grace_period),
            startup: signed(self.node_startup_grace_period),
        }
    }

    pub(super) fn rates(&self) -> Rates {
        Rates {
            eviction: self.node_eviction_rate,
            secondary: self.secondary_node_eviction_rate,
            large_zone: self.large_cluster_size_threshold,
            unhealthy_share: self.unhealthy_zone_threshold,
        }
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rstest::rstest;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: NodeLifecycleArgs,
    }

    fn parse(flags: &[&str]) -> Result<NodeLifecycleArgs, clap::Error> {
        let flags = ["node-lifecycle"].iter().chain(flags);
        Command::try_parse_from(flags).map(|command| command.args)
    }

    #[test]
    fn without_flags_everything_is_as_in_kubernetes_1_36() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.node_monitor_period, Duration::from_secs(5));
        assert_eq!(args.grace(), Grace::default());
        assert_eq!(args.rates(), Rates::default());
        assert_eq!(args.validate(), Ok(()));
    }

    #[rstest]
    #[case::rate(&["--node-eviction-rate", "-1"])]
    #[case::share(&["--unhealthy-zone-threshold", "1.5"])]
    #[case::not_a_number(&["--secondary-node-eviction-rate", "NaN"])]
    #[case::period(&["--node-monitor-period", "0"])]
    fn what_cannot_work_is_refused_by_the_name_of_its_flag(#[case] flags: &[&str]) {
        let joined = [format!("{}={}", flags[0], flags[1])];
        let joined: Vec<&str> = joined.iter().map(String::as_str).collect();
        let error = parse(&joined).unwrap().validate().unwrap_err();
        assert!(error.starts_with(flags[0]), "{error}");
    }
}
