//! The command line of `evenkeel elect`.

use crate::core::event::OnLost;
use evenkeel_election::{Config, OnLoss};
use evenkeel_kube_values::names::{is_label, is_subdomain};
use evenkeel_net::client::ClientArgs;
use evenkeel_net::duration;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// Run a command only while holding a lease
///
/// The command starts when this process holds the lease, and is ended (TERM, then KILL) before anybody else
/// can hold it: also when this process hangs or is killed. When it ends by itself, the lease is given back at
/// once.
///
/// In its environment the command finds EVENKEEL_FENCING_TOKEN (the lease's UID, a slash, and a number that
/// grows with each term: stamp it on writes), EVENKEEL_LEASE_UID and EVENKEEL_LEASE_TRANSITIONS (its two
/// parts), EVENKEEL_LEASE and EVENKEEL_IDENTITY. Its standard input is empty.
///
/// TERM and INT end the command and then this process; a second one kills. HUP, QUIT, USR1, USR2 and WINCH
/// are passed on; HUP is not where it was ignored at the start (nohup).
#[derive(Clone, Debug, clap::Args)]
pub struct ElectArgs {
    /// Where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The Lease to hold: namespace and name. It is made if there is none.
    #[arg(long, value_name = "NS/NAME")]
    pub lease: LeaseName,
    /// Name of this candidate, different from every other's; made of host name and chance without it.
    #[arg(long, value_name = "NAME")]
    pub identity: Option<String>,
    /// What to do with the command when leadership is lost.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "exit")]
    pub on_lost: OnLost,
    /// Where /leader (JSON), /healthz, /livez, /readyz and /metrics are served; without it they are not.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// Time between a stop signal to this process and KILL for a command that does not end.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration::parse)]
    pub grace: Duration,
    /// How long others leave an unrenewed lease alone.
    #[arg(long, alias = "leader-elect-lease-duration", value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub lease_duration: Duration,
    /// How long the command runs on without a successful renewal; what is left of the lease duration is its
    /// time to end.
    #[arg(long, alias = "leader-elect-renew-deadline", value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    pub renew_deadline: Duration,
    /// Time between attempts to take or renew the lease.
    #[arg(long, alias = "leader-elect-retry-period", value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub retry_period: Duration,
    /// The command and its arguments.
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub command: Vec<OsString>,
}

impl ElectArgs {
    /// The candidate's configuration.
    pub(crate) fn config(&self, identity: &str) -> Config {
        Config {
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            release_on_cancel: true,
            on_loss: match self.on_lost {
                OnLost::Exit => OnLoss::Stop,
                OnLost::Stop | OnLost::Kill => OnLoss::Campaign,
            },
            ..Config::new(identity)
        }
    }
}

/// Namespace and name of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Namespace: an RFC 1123 label.
    pub namespace: String,
    /// Name: an RFC 1123 subdomain.
    pub name: String,
}

impl FromStr for LeaseName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = text
            .split_once('/')
            .ok_or("give NAMESPACE/NAME, as in jobs/mailer")?;
        if !is_label(namespace) {
            return Err(format!(
                "`{namespace}` is no namespace: up to 63 of a-z, 0-9 and -"
            ));
        }
        if !is_subdomain(name) {
            return Err(format!(
                "`{name}` is no name of a Lease: up to 253 of a-z, 0-9, - and ."
            ));
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "give IP:PORT, as in 127.0.0.1:4040 or [::]:4040".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn an_address_is_a_number_and_a_port() {
        assert_eq!(address("[::1]:0").map(|address| address.port()), Ok(0));
        for text in ["localhost:4040", ":4040", "127.0.0.1", "127.0.0.1:99999"] {
            let error = address(text).unwrap_err();
            assert!(error.starts_with("give IP:PORT"), "{text}: {error}");
        }
    }

    #[rstest]
    #[case("jobs/mailer", true)]
    #[case("a/b.c-1.d", true)]
    #[case("mailer", false)]
    #[case("/mailer", false)]
    #[case("jobs/", false)]
    #[case("jobs/mailer/x", false)]
    #[case("Jobs/mailer", false)]
    #[case("jobs/-mailer", false)]
    #[case("jobs/mail..er", false)]
    #[case("jobs.x/mailer", false)]
    #[case("jobs/mail er", false)]
    fn a_lease_is_namespace_and_name(#[case] text: &str, #[case] good: bool) {
        let got = text.parse::<LeaseName>();
        assert_eq!(got.is_ok(), good, "{got:?}");
        assert!(got.is_err() || got.unwrap().to_string() == text);
    }
}
