//! `evenkeel vnode --provider koupleless`: its settings, as flags, and the environment variables of the
//! released controller.

mod healing;
pub mod variables;

pub(crate) use healing::HealingArgs;

use crate::core::identity::label_value;
use crate::core::profile::{self, Profile};
use evenkeel_net::duration;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The koupleless provider's own. Flags, the fields of a file and [variables] are the same settings: what
/// they mean together is judged once, by [`Settings`](crate::process::settings::Settings).
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags")]
pub struct KouplelessArgs {
    /// koupleless: names to use.
    #[arg(long, value_name = "PROFILE", default_value = "koupleless", value_parser = profile)]
    pub profile: &'static Profile,
    /// koupleless: environment that is served: part of nodes' names, taints and MQTT topics.
    #[arg(long, value_name = "NAME", default_value = "dev", value_parser = environment)]
    pub base_env: String,
    /// koupleless: where bases send heartbeats (`POST /heartbeat`) and ask for baselines (`POST
    /// /queryBaseline`).
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "0.0.0.0:7777",
        overrides_with = "no_heartbeat"
    )]
    pub heartbeat: SocketAddr,
    /// koupleless: take no heartbeats over HTTP.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = clap::ArgAction::Set)]
    pub no_heartbeat: bool,
    /// koupleless: file with bearer tokens, one a line, that heartbeats need; read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub heartbeat_token_file: Option<PathBuf>,
    /// koupleless: heartbeats may claim any address, not only the one that they come from or that of a known
    /// base pod.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = clap::ArgAction::Set)]
    pub heartbeat_from_anywhere: bool,
    /// koupleless: serving certificate (PEM, leaf first) for heartbeats, which are then taken over TLS alone;
    /// read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub heartbeat_tls_cert_file: Option<PathBuf>,
    /// koupleless: its private key (PEM).
    #[arg(long, value_name = "FILE")]
    pub heartbeat_tls_key_file: Option<PathBuf>,
    /// koupleless: authorities (PEM) of client certificates, one of which a heartbeat needs then; read again
    /// when it changes. With --heartbeat-token-file either will do.
    #[arg(long, value_name = "FILE")]
    pub heartbeat_client_ca_file: Option<PathBuf>,
    /// koupleless: MQTT broker, HOST or HOST:PORT; without it bases are reached over HTTP alone.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub mqtt_broker: Option<String>,
    /// koupleless: what this replica's client ID at the broker begins with; @@@ and the replica's identity
    /// follow.
    #[arg(long, value_name = "TEXT", default_value = "koupleless")]
    pub mqtt_client_prefix: String,
    /// koupleless: user name at the broker.
    #[arg(long, value_name = "NAME")]
    pub mqtt_username: Option<String>,
    /// koupleless: file with the password; read again for every connection.
    #[arg(long, value_name = "FILE")]
    pub mqtt_password_file: Option<PathBuf>,
    /// koupleless: authorities (PEM) of the broker's certificate; with it the connection is TLS.
    #[arg(long, value_name = "FILE")]
    pub mqtt_ca_file: Option<PathBuf>,
    /// koupleless: client certificate (PEM) for the broker.
    #[arg(long, value_name = "FILE")]
    pub mqtt_cert_file: Option<PathBuf>,
    /// koupleless: its key (PEM).
    #[arg(long, value_name = "FILE")]
    pub mqtt_key_file: Option<PathBuf>,
    /// koupleless: watch pods with these labels: they are bases.
    #[arg(long, value_name = "SELECTOR")]
    pub base_pod_selector: Option<String>,
    /// koupleless: kubeconfig of the cluster that bases run in, if it is another one.
    #[arg(long, value_name = "FILE")]
    pub base_kubeconfig: Option<PathBuf>,
    /// koupleless: silence after which a base's node is Unknown; nothing moves for that.
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = duration::parse)]
    pub base_silent: Duration,
    /// koupleless: silence after which a base counts as gone, unless its pod is Ready.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub base_gone: Duration,
    /// koupleless: capacity of a node in pods, instead of the profile's.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub base_pods: Option<u32>,
    /// koupleless: leave a new version that the base does not activate as it is, instead of switching to it.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = clap::ArgAction::Set)]
    pub no_switch: bool,
    /// koupleless: a module of a base belongs to one pod, and another that names it waits; without this, pods
    /// share it as with the released controller, and it goes with its last pod. With --profile v2-design it
    /// is so anyway.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = clap::ArgAction::Set)]
    pub exclusive_modules: bool,
    /// koupleless: what stands in each line of a base's log that is a module's, with {module} for its name.
    #[arg(long, value_name = "TEXT")]
    pub log_mark: Option<String>,
    /// koupleless: replicas of Deployments with the strategy `peer` follow the number of bases.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = clap::ArgAction::Set)]
    pub peers: bool,
    /// koupleless: heal bases that run out of metaspace: taint, drain, uninstall, evict the base's pod.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = clap::ArgAction::Set)]
    pub heal: bool,
    /// When and how that is done.
    #[command(flatten)]
    pub healing: HealingArgs,
    /// koupleless: webhooks that hear of failures, `;` between them. They are often secrets: better
    /// --report-hooks-file.
    #[arg(long, value_name = "URLS", overrides_with = "report_hooks_file")]
    pub report_hooks: Option<String>,
    /// koupleless: file with webhooks that hear of failures, one a line or `;` between them; read at the
    /// start.
    #[arg(long, value_name = "FILE", overrides_with = "report_hooks")]
    pub report_hooks_file: Option<PathBuf>,
}

fn profile(name: &str) -> Result<&'static Profile, String> {
    Profile::named(name).ok_or_else(|| {
        let names = profile::PROFILES.map(|profile| profile.name);
        format!("possible are {}", names.join(" and "))
    })
}

fn environment(text: &str) -> Result<String, &'static str> {
    if label_value(text).as_deref() == Some(text) {
        Ok(text.to_owned())
    } else {
        Err(
            "it is part of labels and names: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        )
    }
}
