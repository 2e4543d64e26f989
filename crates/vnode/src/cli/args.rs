//! Flags of `evenkeel vnode`.

use evenkeel_api::names;
use evenkeel_election::flags::{Candidacy, Defaults, FlagError, LeaderElectArgs};
use evenkeel_election::{self as election, unique_identity};
use evenkeel_kube_values::names::{is_label_value, is_subdomain};
use evenkeel_kubelet_api::auth::Mode;
use evenkeel_net::client::ClientArgs;
use evenkeel_net::duration;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What all providers have in common.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Address that nodes publish, and that their kubelet API listens on; without it the one by which this
    /// machine reaches the API server.
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Port of the first node's kubelet API; the others follow. 0: any free ports.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub kubelet_port: u16,
    /// Serve no kubelet API: no logs, exec, attach, port-forward, metrics.
    #[arg(long)]
    pub no_kubelet_api: bool,
    /// Serving certificate of the kubelet API (PEM), read again when it changes; without it one is requested
    /// from the cluster (signer `kubernetes.io/kubelet-serving`).
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Secret in which a certificate that was requested outlives the process, NAMESPACE/NAME; without it and
    /// --state-dir each start needs an approval.
    #[arg(long, value_name = "SECRET", value_parser = secret, conflicts_with_all = ["state_dir", "tls_cert_file"])]
    pub certificate_secret: Option<SecretName>,
    /// Directory in which it outlives the process instead. With --identity, also where the next process under
    /// it finds that this one has ended, so that it does not wait for its Leases to expire. Each process has
    /// its own.
    #[arg(long, value_name = "DIR", conflicts_with = "tls_cert_file")]
    pub state_dir: Option<PathBuf>,
    /// Authorities of client certificates that the kubelet API accepts (PEM); without it those that the API
    /// server publishes.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Whether requests to the kubelet API without a credential are those of `system:anonymous`; as the
    /// kubelet's flag.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = clap::ArgAction::Set)]
    pub anonymous_auth: bool,
    /// Who decides what users of the kubelet API may: the API server (`Webhook`), or nobody (`AlwaysAllow`);
    /// as the kubelet's flag. Without a credential logs, commands and ports are then reached from this
    /// machine alone.
    #[arg(long, value_name = "MODE", value_enum, default_value = "Webhook")]
    pub authorization_mode: Mode,
    /// Only pods with these labels are run.
    #[arg(long, value_name = "SELECTOR")]
    pub pod_selector: Option<String>,
    /// A pod that cannot run here becomes Failed, so that its controller replaces it, by one that fails
    /// likewise; without this it stays Pending with the reason, and runs once it can.
    #[arg(long)]
    pub fail_refused_pods: bool,
    /// Value of the label `type` of virtual nodes; empty: they have none.
    #[arg(long, value_name = "VALUE", default_value = names::vnode::VIRTUAL_NODE_LABEL.1, value_parser = label_value)]
    pub node_type: String,
    /// Time between renewals of a node's Lease; the Lease lasts four times as long.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = interval)]
    pub lease_renew_interval: Duration,
    /// Where /healthz, /livez, /readyz and /metrics are served.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9860")]
    pub admin: SocketAddr,
    /// Whether and how to share the nodes with other replicas.
    #[command(flatten)]
    pub leader_elect: LeaderElectArgs,
    /// Into how many slots the nodes fall, each with a Lease of its own; the same for all replicas.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub slots: u16,
    /// Name of this replica in the election; made of host name and process without it.
    #[arg(long, value_name = "NAME")]
    pub identity: Option<String>,
}

/// A Secret by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretName {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret in its namespace.
    pub name: String,
}

fn secret(text: &str) -> Result<SecretName, String> {
    let (namespace, name) = text
        .split_once('/')
        .filter(|(namespace, name)| is_subdomain(namespace) && is_subdomain(name))
        .ok_or("a Secret is named NAMESPACE/NAME, as in evenkeel-system/evenkeel-vnode-serving")?;
    Ok(SecretName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

impl ServeArgs {
    /// For which Leases to stand; `None`: this process alone serves all nodes. 10/7/2 s unless flags say
    /// otherwise: the nodes of a replica that died are served again within 15 s.
    pub fn candidacy(&self, provider: &str) -> Result<Option<Candidacy>, FlagError> {
        let identity = self.identity.clone().unwrap_or_else(unique_identity);
        let mut config = election::Config::new(&identity);
        config.lease_duration = Duration::from_secs(10);
        config.renew_deadline = Duration::from_secs(7);
        config.retry_period = Duration::from_secs(2);
        self.leader_elect.resolve(Defaults {
            // Every cluster has it, and these are Leases of nodes, too.
            namespace: names::NODE_LEASE_NAMESPACE.to_owned(),
            name: format!("{}-{provider}", names::vnode::SLOT_LEASE),
            config,
        })
    }
}

/// What Kubernetes takes as the value of a label.
fn label_value(text: &str) -> Result<String, String> {
    if !is_label_value(text) {
        return Err(
            "a label's value has letters, digits, '-', '_' and '.', begins and ends with a letter or digit, and has 63 \
             characters at most"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// A Lease lasts whole seconds, four times this.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text)?;
    if interval < Duration::from_millis(250) {
        return Err("it must be 250ms or more".to_owned());
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rstest::rstest;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn cli(line: &str) -> Result<Cli, clap::Error> {
        let words = std::iter::once("evenkeel").chain(line.split_whitespace());
        Cli::try_parse_from(words)
    }

    #[rstest]
    #[case("--tls-cert-file a", "--tls-private-key-file")]
    #[case("--certificate-secret a", "NAMESPACE/NAME")]
    #[case("--certificate-secret a/B", "NAMESPACE/NAME")]
    #[case("--certificate-secret a/b --state-dir c", "--state-dir")]
    #[case("--state-dir c --tls-cert-file a --tls-private-key-file b", "--tls-cert-file")]
    #[case("--node-type a/b", "a label's value")]
    #[case("--node-type a-", "a label's value")]
    fn a_wrong_flag_is_named_with_what_to_write(#[case] line: &str, #[case] words: &str) {
        let error = cli(line).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn a_dead_replica_is_missed_for_ten_seconds_unless_flags_say_otherwise() {
        let candidacy = |line: &str| cli(line).unwrap().serve.candidacy("simulated");
        let ours = candidacy("--identity me").unwrap().unwrap();
        assert_eq!(
            (ours.namespace.as_str(), ours.name.as_str()),
            (names::NODE_LEASE_NAMESPACE, "evenkeel-vnode-simulated")
        );
        assert_eq!(ours.config.lease_duration, Duration::from_secs(10));
        assert_eq!(candidacy("--leader-elect=false"), Ok(None));
    }
}
