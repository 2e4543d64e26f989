//! `evenkeel vnode --provider koupleless`: flags, and the environment variables of the released controller.

mod healing;

pub use healing::HealingArgs;

use crate::core::profile::{self, Profile};
use evenkeel_net::duration;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The koupleless provider's own. Environment variables of the released module controller are understood.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags")]
pub struct KouplelessArgs {
    /// koupleless: names to use.
    #[arg(long, value_name = "PROFILE", default_value = "koupleless", value_parser = profile)]
    pub profile: &'static Profile,
    /// koupleless: environment that is served: part of nodes' names, taints and MQTT topics. Without it $ENV, then `dev`.
    #[arg(long, value_name = "NAME")]
    pub base_env: Option<String>,
    /// koupleless: where bases send heartbeats (`POST /heartbeat`) and ask for baselines (`POST /queryBaseline`).
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:7777")]
    pub heartbeat: SocketAddr,
    /// koupleless: take no heartbeats over HTTP.
    #[arg(long)]
    pub no_heartbeat: bool,
    /// koupleless: file with bearer tokens, one a line, that heartbeats need; read again when it changes.
    #[arg(long, value_name = "FILE")]
    pub heartbeat_token_file: Option<PathBuf>,
    /// koupleless: heartbeats may claim any address, not only the one that they come from or that of a known base pod.
    #[arg(long)]
    pub heartbeat_from_anywhere: bool,
    /// koupleless: MQTT broker, HOST or HOST:PORT; without it bases are reached over HTTP alone.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub mqtt_broker: Option<String>,
    /// koupleless: user name at the broker. Without it $MQTT_USERNAME.
    #[arg(long, value_name = "NAME")]
    pub mqtt_username: Option<String>,
    /// koupleless: file with the password.
    #[arg(long, value_name = "FILE")]
    pub mqtt_password_file: Option<PathBuf>,
    /// koupleless: authorities (PEM) of the broker's certificate; with it the connection is TLS. Without it $MQTT_CA_PATH.
    #[arg(long, value_name = "FILE")]
    pub mqtt_ca_file: Option<PathBuf>,
    /// koupleless: client certificate (PEM) for the broker. Without it $MQTT_CLIENT_CRT_PATH.
    #[arg(long, value_name = "FILE")]
    pub mqtt_cert_file: Option<PathBuf>,
    /// koupleless: its key (PEM). Without it $MQTT_CLIENT_KEY_PATH.
    #[arg(long, value_name = "FILE")]
    pub mqtt_key_file: Option<PathBuf>,
    /// koupleless: watch pods with these labels: they are bases.
    #[arg(long, value_name = "SELECTOR")]
    pub base_pod_selector: Option<String>,
    /// koupleless: kubeconfig of the cluster that bases run in, if it is another one.
    #[arg(long, value_name = "FILE", requires = "base_pod_selector")]
    pub base_kubeconfig: Option<PathBuf>,
    /// koupleless: silence after which a base's node is Unknown; nothing moves for that.
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = duration::parse)]
    pub base_silent: Duration,
    /// koupleless: silence after which a base counts as gone, unless its pod is Ready.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse)]
    pub base_gone: Duration,
    /// koupleless: capacity of a node in pods, instead of the profile's.
    #[arg(long, value_name = "NUMBER")]
    pub base_pods: Option<u32>,
    /// koupleless: leave a new version that the base does not activate as it is, instead of switching to it.
    #[arg(long)]
    pub no_switch: bool,
    /// koupleless: what stands in each line of a base's log that is a module's, with {module} for its name.
    #[arg(long, value_name = "TEXT")]
    pub log_mark: Option<String>,
    /// koupleless: replicas of Deployments with the strategy `peer` follow the number of bases; also with
    /// $ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE=true.
    #[arg(long)]
    pub peers: bool,
    /// koupleless: heal bases that run out of metaspace: taint, drain, uninstall, evict the base's pod.
    #[arg(long)]
    pub heal: bool,
    /// When and how that is done.
    #[command(flatten)]
    pub healing: HealingArgs,
    /// koupleless: webhooks that hear of failures, `;` between them. Without it $REPORT_HOOKS.
    #[arg(long, value_name = "URLS")]
    pub report_hooks: Option<String>,
}

fn profile(name: &str) -> Result<&'static Profile, String> {
    Profile::named(name).ok_or_else(|| {
        let names = profile::PROFILES.map(|profile| profile.name);
        format!("possible are {}", names.join(" and "))
    })
}
