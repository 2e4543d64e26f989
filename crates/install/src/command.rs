//! `evenkeel install`, `upgrade` and `uninstall`: their flags, and how they end.

use crate::error::InstallError;
use crate::install::{self as steps, Change};
use crate::manifest;
use crate::objects::{Options, objects};
use crate::settings::{SettingArgs, installable};
use clap::Args;
use evenkeel_api::names;
use evenkeel_net::client::ClientArgs;
use evenkeel_net::duration;
use evenkeel_net::output::print;
use std::io;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Installs Evenkeel on a cluster.
///
/// A first installation has the mode `observe`: it decides, records and explains, and changes nothing. See
/// with `evenkeel status` what it would have done, and then let it act: `evenkeel upgrade --mode act`.
#[derive(Clone, Debug, Args)]
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
#[derive(Clone, Debug, Args)]
pub struct UpgradeArgs {
    /// Also where the command that was used last is of a newer version: what only that one knows is lost.
    #[arg(long)]
    pub downgrade: bool,
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
#[derive(Clone, Debug, Args)]
pub struct UninstallArgs {
    /// Namespace that it is installed in.
    #[arg(long, value_name = "NAME", env = "EVENKEEL_NAMESPACE", default_value = names::NAMESPACE, value_parser = installable)]
    pub namespace: String,
    /// How long to wait until everything is gone.
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = duration::parse)]
    pub timeout: Duration,
    /// Where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Whom to wait for.
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    /// How long to wait until controllers and agents run; 0: not at all.
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = duration::parse)]
    pub timeout: Duration,
}

/// `evenkeel install`. Call [`evenkeel_net::init_crypto`] before.
pub async fn install(args: InstallArgs, shutdown: CancellationToken) -> Result<(), InstallError> {
    args.settings.check()?;
    let options = args.settings.over(Options::default());
    if args.dry_run {
        let text = manifest::print(&objects(&options))
            .map_err(|error| InstallError::Output(io::Error::other(error)))?;
        return print(&text).map_err(InstallError::Output);
    }
    let client = args.client.client("install").await?;
    let told = steps::install(&client, &options, args.wait.timeout, &shutdown).await?;
    print(&told).map_err(InstallError::Output)
}

/// `evenkeel upgrade`.
pub async fn upgrade(args: UpgradeArgs, shutdown: CancellationToken) -> Result<(), InstallError> {
    let client = args.client.client("upgrade").await?;
    let change = Change {
        settings: &args.settings,
        downgrade: args.downgrade,
    };
    let told = steps::upgrade(&client, change, args.wait.timeout, &shutdown).await?;
    print(&told).map_err(InstallError::Output)
}

/// `evenkeel uninstall`.
pub async fn uninstall(args: UninstallArgs, shutdown: CancellationToken) -> Result<(), InstallError> {
    let client = args.client.client("uninstall").await?;
    let told = crate::uninstall(&client, &args.namespace, args.timeout, &shutdown).await?;
    print(&told).map_err(InstallError::Output)
}
