//! `evenkeel install`, `upgrade` and `uninstall`: their flags, and how they end.

use crate::install::{self, InstallError};
use crate::objects::{Options, agent_image, objects};
use crate::{manifest, uninstall};
use clap::{Args, ValueEnum};
use evenkeel_api::names;
use evenkeel_net::client::ClientArgs;
use evenkeel_net::duration;
use std::io::{self, Write as _};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Installs Evenkeel on a cluster.
///
/// A first installation has the mode `observe`: it decides, records and explains, and changes nothing. See
/// with `evenkeel status` what it would have done, and then let it act: `evenkeel upgrade --mode act`.
///
/// Exit code 0: it runs. 1: it failed, and what this command had made was removed again. 2: nothing was
/// changed, and the line says why.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  evenkeel install --dry-run                          # print every object, without a cluster
  evenkeel install --image registry.example/evenkeel:0.1.0
  evenkeel install --profile edge --zone-default shop-7
  evenkeel doctor                                     # what would go wrong on this cluster")]
pub struct InstallArgs {
    /// Print every object as YAML, and do nothing; needs no cluster.
    #[arg(long)]
    pub dry_run: bool,
    /// How it is to be.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Whom to wait for.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Brings an installation to this version, and changes its settings; those without a flag stay.
///
/// Agents and controllers are replaced one after the other, also in the middle of an incident: what was
/// decided stands in the NodeIncidents. What an earlier version had and this one has not is removed.
///
/// Exit code 0: done. 1: it failed on the way; repeat the command. 2: nothing was changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  evenkeel upgrade --mode act                         # from now on it acts
  evenkeel upgrade --image registry.example/evenkeel:0.2.0")]
pub struct UpgradeArgs {
    /// What is to change.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Whom to wait for.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Removes Evenkeel from a cluster, and everything that it has put on objects of others.
///
/// First the controllers stop, and the last of them gives back what it kept from the stock controllers. Then
/// taints, annotations, the webhook, policies, rights, custom resources and the namespace go. Keys of agents
/// stay on the nodes, in /var/lib/evenkeel.
///
/// Exit code 0: nothing is left. 1: something is, and the line says what; repeat the command. 2: nothing was
/// changed.
#[derive(Clone, Debug, Args)]
pub struct UninstallArgs {
    /// Namespace that it is installed in.
    #[arg(long, value_name = "NAME", env = "EVENKEEL_NAMESPACE", default_value = names::NAMESPACE, value_parser = names::parse_namespace)]
    pub namespace: String,
    /// How long to wait until everything is gone.
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = duration::parse)]
    pub timeout: Duration,
    /// Where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// How an installation is to be.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingArgs {
    /// Namespace of everything that has one [default: evenkeel-system].
    #[arg(long, value_name = "NAME", env = "EVENKEEL_NAMESPACE", value_parser = names::parse_namespace)]
    pub namespace: Option<String>,
    /// Image with the controller [default: evenkeel, with the version of this command].
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Image with the agent [default: beside the other, as NAME-agent].
    #[arg(long, value_name = "IMAGE")]
    pub agent_image: Option<String>,
    /// Whether it acts [default: observe].
    #[arg(long, value_name = "MODE")]
    pub mode: Option<ModeArg>,
    /// Defaults where no FailoverPolicy speaks [default: builtin].
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<ProfileArg>,
    /// Zone of nodes without a label topology.kubernetes.io/zone. Without it they are in no zone, and stock
    /// Kubernetes alone cares for them; with the profile `edge` it is `default`.
    #[arg(long, value_name = "NAME")]
    pub zone_default: Option<String>,
    /// Label that nodes need to run the controller; once for each. Without it nodes of the control plane are
    /// preferred, then nodes without a zone.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub controller_nodes: Vec<(String, String)>,
}

/// Whom to wait for.
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    /// How long to wait until controllers and agents run; 0: not at all.
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = duration::parse)]
    pub timeout: Duration,
}

/// Whether Evenkeel acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Decide, record and explain, and change nothing.
    Observe,
    /// Decide and act.
    Act,
}

/// Defaults where no FailoverPolicy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileArg {
    /// As close to stock Kubernetes as failover can be.
    Builtin,
    /// For zones that live through long cuts of their cloud link.
    Edge,
}

impl SettingArgs {
    /// These settings, and `before` where there is no flag.
    pub(crate) fn over(&self, before: Options) -> Options {
        let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map(|value| value.get_name().to_owned())
        };
        let mode = name(&|| self.mode.and_then(|mode| mode.to_possible_value()));
        let profile = name(&|| self.profile.and_then(|profile| profile.to_possible_value()));
        let image = self.image.clone().unwrap_or(before.image);
        let beside = self.image.is_some().then(|| agent_image(&image));
        Options {
            namespace: self.namespace.clone().unwrap_or(before.namespace),
            agent_image: self.agent_image.clone().or(beside).unwrap_or(before.agent_image),
            image,
            mode: mode.unwrap_or(before.mode),
            profile: profile.unwrap_or(before.profile),
            zone_default: self.zone_default.clone().or(before.zone_default),
            controller_nodes: match self.controller_nodes.as_slice() {
                [] => before.controller_nodes,
                named => named.to_vec(),
            },
        }
    }
}

/// `KEY=VALUE`.
fn label(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give KEY=VALUE, as in tier=cloud"),
    }
}

/// `evenkeel install`. Call [`evenkeel_net::init_crypto`] before.
pub async fn install(args: InstallArgs, shutdown: CancellationToken) -> Result<(), InstallError> {
    let options = args.settings.over(Options::default());
    if args.dry_run {
        let text = manifest::print(&objects(&options))
            .map_err(|error| InstallError::Output(io::Error::other(error)))?;
        return print(&text);
    }
    let client = args.client.client("install").await?;
    let told = install::install(&client, &options, args.wait.timeout, &shutdown).await?;
    print(&told)
}

/// `evenkeel upgrade`.
pub async fn upgrade(args: UpgradeArgs, shutdown: CancellationToken) -> Result<(), InstallError> {
    let client = args.client.client("upgrade").await?;
    let told = install::upgrade(&client, &args.settings, args.wait.timeout, &shutdown).await?;
    print(&told)
}

/// `evenkeel uninstall`.
pub async fn uninstall(args: UninstallArgs, shutdown: CancellationToken) -> Result<(), InstallError> {
    let client = args.client.client("uninstall").await?;
    let told = uninstall::uninstall(&client, &args.namespace, args.timeout, &shutdown).await?;
    print(&told)
}

/// A reader that has seen enough (`head`) is no failure.
fn print(text: &str) -> Result<(), InstallError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(InstallError::Output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        settings: SettingArgs,
    }

    fn over(line: &str, before: Options) -> Options {
        let words = std::iter::once("evenkeel").chain(line.split_whitespace());
        Cli::try_parse_from(words)
            .map(|cli| cli.settings.over(before))
            .unwrap()
    }

    #[test]
    fn without_flags_everything_stays() {
        let before = Options {
            namespace: "pier".to_owned(),
            controller_nodes: vec![("a".to_owned(), "b".to_owned())],
            mode: "act".to_owned(),
            agent_image: "other:1".to_owned(),
            ..Options::default()
        };
        assert_eq!(over("", before.clone()), before);
    }

    #[test]
    fn a_flag_changes_what_it_names() {
        let line =
            "--image mirror/evenkeel:2 --mode act --profile edge --zone-default shore --controller-nodes a=b";
        let changed = over(line, Options::default());
        let expected = Options {
            namespace: names::NAMESPACE.to_owned(),
            image: "mirror/evenkeel:2".to_owned(),
            agent_image: "mirror/evenkeel-agent:2".to_owned(),
            mode: "act".to_owned(),
            profile: "edge".to_owned(),
            zone_default: Some("shore".to_owned()),
            controller_nodes: vec![("a".to_owned(), "b".to_owned())],
        };
        assert_eq!(changed, expected);
        assert_eq!(
            over("--image a:1 --agent-image b:2", Options::default()).agent_image,
            "b:2"
        );
    }

    #[test]
    fn a_label_without_a_value_is_refused() {
        let refused = Cli::try_parse_from(["evenkeel", "--controller-nodes", "cloud"]).map(|_| ());
        assert!(refused.unwrap_err().to_string().contains("KEY=VALUE"));
    }
}
