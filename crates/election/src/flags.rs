//! The `--leader-elect-…` flags that Kubernetes components with leader election have.
//!
//! Names, meanings and refusals are those of the core components; the caller sets the defaults. Flatten
//! [`LeaderElectArgs`] into a clap struct and call [`LeaderElectArgs::resolve`].

use crate::core::{Config, ConfigError, OnLoss};
use crate::lock::check_lock_kind;
use evenkeel_kube_values::duration;
use std::time::Duration;

/// Flags of a process that elects.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct LeaderElectArgs {
    /// Stand for election before doing work; `false` works at once, for a single replica.
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = clap::ArgAction::Set, value_parser = boolean)]
    pub leader_elect: bool,
    /// How long others leave an unrenewed lease alone; the longest a crashed leader is missed.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub leader_elect_lease_duration: Option<Duration>,
    /// How long a leader works without a successful renewal; less than the lease duration.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub leader_elect_renew_deadline: Option<Duration>,
    /// Time between attempts to take or renew the lease.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub leader_elect_retry_period: Option<Duration>,
    /// Type of the lock object: `leases`.
    #[arg(long, value_name = "TYPE", default_value = "leases")]
    pub leader_elect_resource_lock: String,
    /// Name of the lease.
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,
    /// Namespace of the lease.
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_elect_resource_namespace: Option<String>,
    /// After a loss, keep the work and try for so long to get the lease back while nobody else has held it;
    /// 0: without end.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub leader_elect_recovery_deadline: Option<Duration>,
}

/// The values of flags that are not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// The candidate's configuration.
    pub config: Config,
}

/// The Lease to campaign for, and the configuration of the candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// The candidate's configuration, which was validated.
    pub config: Config,
}

/// Returned for flags that cannot work. A retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// One flag is wrong.
    #[error("--leader-elect-{flag}: {reason}")]
    Flag {
        /// Name of the flag without `leader-elect-`.
        flag: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// The configuration as a whole is refused, in client-go's words.
    #[error("--leader-elect: {0}")]
    Config(#[from] ConfigError),
}

impl LeaderElectArgs {
    /// The candidacy that the flags describe; `None` with `--leader-elect=false`, whatever the other flags
    /// say.
    pub fn resolve(&self, defaults: Defaults) -> Result<Option<Candidacy>, FlagError> {
        if !self.leader_elect {
            return Ok(None);
        }
        let Defaults {
            namespace,
            name,
            mut config,
        } = defaults;
        let timing = [
            (&mut config.lease_duration, self.leader_elect_lease_duration),
            (&mut config.renew_deadline, self.leader_elect_renew_deadline),
            (&mut config.retry_period, self.leader_elect_retry_period),
        ];
        for (place, flag) in timing {
            *place = flag.unwrap_or(*place);
        }
        if let Some(deadline) = self.leader_elect_recovery_deadline {
            config.on_loss = OnLoss::Recover;
            config.recovery_deadline = (!deadline.is_zero()).then_some(deadline);
        }
        let candidacy = Candidacy {
            namespace: self.leader_elect_resource_namespace.clone().unwrap_or(namespace),
            name: self.leader_elect_resource_name.clone().unwrap_or(name),
            config,
        };
        self.check(&candidacy)?;
        Ok(Some(candidacy))
    }

    /// Checks what the core components check before they make an elector, then what the elector itself
    /// checks.
    fn check(&self, candidacy: &Candidacy) -> Result<(), FlagError> {
        let Candidacy {
            namespace,
            name,
            config,
        } = candidacy;
        let positive = "must be greater than zero";
        let refusals = [
            ("lease-duration", config.lease_duration.is_zero(), positive),
            ("renew-deadline", config.renew_deadline.is_zero(), positive),
            ("retry-period", config.retry_period.is_zero(), positive),
            (
                "lease-duration",
                config.lease_duration <= config.renew_deadline,
                "must be greater than the renew deadline",
            ),
            (
                "resource-lock",
                self.leader_elect_resource_lock.is_empty(),
                "must not be empty",
            ),
            ("resource-namespace", namespace.is_empty(), "must not be empty"),
            ("resource-name", name.is_empty(), "must not be empty"),
        ];
        for (flag, refused, reason) in refusals {
            if refused {
                let reason = reason.to_owned();
                return Err(FlagError::Flag { flag, reason });
            }
        }
        check_lock_kind(&self.leader_elect_resource_lock).map_err(|error| FlagError::Flag {
            flag: "resource-lock",
            reason: error.to_string(),
        })?;
        Ok(config.validate()?)
    }
}

/// A boolean flag as Go reads it.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("give true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use rstest::rstest;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        elect: LeaderElectArgs,
    }

    fn parse(flags: &[&str]) -> Result<LeaderElectArgs, String> {
        let line = std::iter::once("test").chain(flags.iter().copied());
        Cli::try_parse_from(line)
            .map(|cli| cli.elect)
            .map_err(|error| error.to_string())
    }

    fn resolve(flags: &[&str]) -> Result<Option<Candidacy>, String> {
        let defaults = Defaults {
            namespace: "ours".into(),
            name: "controller".into(),
            config: Config::new("me"),
        };
        let args = parse(flags)?;
        args.resolve(defaults).map_err(|error| error.to_string())
    }

    #[test]
    fn without_flags_the_callers_defaults_hold() {
        let expected = Candidacy {
            namespace: "ours".into(),
            name: "controller".into(),
            config: Config::new("me"),
        };
        assert_eq!(resolve(&[]), Ok(Some(expected)));
    }

    #[rstest]
    #[case(&["--leader-elect"], true)]
    #[case(&["--leader-elect=true"], true)]
    #[case(&["--leader-elect=1"], true)]
    #[case(&["--leader-elect=false"], false)]
    #[case(&["--leader-elect=F"], false)]
    // Nothing else is looked at then, as with the core components.
    #[case(&["--leader-elect=false", "--leader-elect-lease-duration=0s", "--leader-elect-resource-lock=x"], false)]
    fn standing_for_election_can_be_switched_off(#[case] flags: &[&str], #[case] elects: bool) {
        assert_eq!(resolve(flags).unwrap().is_some(), elects);
    }

    #[test]
    fn every_flag_reaches_the_configuration() {
        let got = resolve(&[
            "--leader-elect-lease-duration=15s",
            "--leader-elect-renew-deadline=10s",
            "--leader-elect-retry-period",
            "2s",
            "--leader-elect-resource-lock=leases",
            "--leader-elect-resource-name=cloud",
            "--leader-elect-resource-namespace=kube-system",
            "--leader-elect-recovery-deadline=1m30s",
        ]);
        let expected = Candidacy {
            namespace: "kube-system".into(),
            name: "cloud".into(),
            config: Config {
                lease_duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                retry_period: Duration::from_secs(2),
                on_loss: OnLoss::Recover,
                recovery_deadline: Some(Duration::from_secs(90)),
                ..Config::new("me")
            },
        };
        assert_eq!(got, Ok(Some(expected)));
    }

    #[test]
    fn a_recovery_deadline_of_zero_never_comes() {
        let config = resolve(&["--leader-elect-recovery-deadline=0s"])
            .unwrap()
            .unwrap()
            .config;
        assert_eq!(
            (config.on_loss, config.recovery_deadline),
            (OnLoss::Recover, None)
        );
    }

    #[rstest]
    #[case(
        "lease-duration=0s",
        "--leader-elect-lease-duration: must be greater than zero"
    )]
    #[case(
        "renew-deadline=0s",
        "--leader-elect-renew-deadline: must be greater than zero"
    )]
    #[case("retry-period=0", "--leader-elect-retry-period: must be greater than zero")]
    #[case(
        "lease-duration=3s",
        "--leader-elect-lease-duration: must be greater than the renew deadline"
    )]
    #[case(
        "retry-period=2500ms",
        "--leader-elect: renewDeadline must be greater than retryPeriod*JitterFactor"
    )]
    #[case("resource-lock=", "--leader-elect-resource-lock: must not be empty")]
    #[case(
        "resource-lock=endpoints",
        "--leader-elect-resource-lock: endpoints lock is removed, migrate to leases"
    )]
    #[case(
        "resource-lock=configmaps",
        "--leader-elect-resource-lock: configmaps lock is removed, migrate to leases"
    )]
    #[case(
        "resource-lock=endpointsleases",
        "--leader-elect-resource-lock: endpointsleases lock is removed, migrate to leases"
    )]
    #[case(
        "resource-lock=configmapsleases",
        "--leader-elect-resource-lock: configmapsleases lock is removed, migrated to leases"
    )]
    #[case(
        "resource-lock=zookeeper",
        "--leader-elect-resource-lock: Invalid lock-type zookeeper"
    )]
    #[case("resource-name=", "--leader-elect-resource-name: must not be empty")]
    #[case("resource-namespace=", "--leader-elect-resource-namespace: must not be empty")]
    fn what_cannot_work_is_refused_by_name(#[case] flag: &str, #[case] expected: &str) {
        let flag = format!("--leader-elect-{flag}");
        assert_eq!(resolve(&[&flag]), Err(expected.to_owned()));
    }

    #[rstest]
    #[case("--leader-elect-lease-duration=15", "has no unit")]
    #[case("--leader-elect-renew-deadline=-1s", "is negative")]
    #[case("--leader-elect-retry-period=soon", "is not a duration")]
    #[case("--leader-elect-recovery-deadline=-1s", "is negative")]
    #[case("--leader-elect=perhaps", "give true or false")]
    fn what_cannot_be_read_is_refused_by_name(#[case] flag: &str, #[case] reason: &str) {
        let error = parse(&[flag]).unwrap_err();
        let name = flag.split('=').next().unwrap_or_default();
        assert!(error.contains(reason) && error.contains(name), "{error}");
    }
}
