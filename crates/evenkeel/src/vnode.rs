//! `evenkeel vnode`: virtual nodes by one of the providers that there are.

use evenkeel_api::names;
use evenkeel_election::unique_identity_of;
use evenkeel_koupleless::cli::KouplelessArgs;
use evenkeel_koupleless::cli::variables::Variables;
use evenkeel_koupleless::process::settings::{Settings, SettingsError};
use evenkeel_koupleless::process::{self, Process, ProcessError};
use evenkeel_settings::file::{self, FileError};
use evenkeel_settings::layers::{Layer, LayerError, Layered, settings};
use evenkeel_vnode::cli::{self, Prepared, ServeArgs, VnodeError};
use evenkeel_vnode_simulated::cli::{self as simulated, SimulatedArgs};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Bases that one process may have, for its limit of open files.
const BASES: usize = 1000;
/// `kind` of the file.
const KIND: &str = "VnodeConfiguration";

/// Serve virtual nodes, many in one process.
///
/// Registers nodes and runs the pods that are bound to them by way of a provider. Ended by a signal it leaves
/// nodes and pods as they are: the next process takes them over.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VnodeArgs {
    /// What runs the pods.
    #[arg(long, value_name = "NAME")]
    provider: ProviderArg,
    /// File with settings (YAML, kind VnodeConfiguration): its fields are the flags in camelCase, and flags
    /// win over them.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Layered<SettingsArgs>,
}

/// What flags, a file and variables may set.
#[derive(Clone, Debug, clap::Args)]
struct SettingsArgs {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    simulated: SimulatedArgs,
    #[command(flatten)]
    koupleless: KouplelessArgs,
}

/// What runs the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ProviderArg {
    /// Nothing runs: pods start, log, serve, crash and end as their annotations say.
    Simulated,
    /// Koupleless bases are nodes, the modules in them are containers. Environment variables of the released
    /// module controller are understood.
    Koupleless,
}

/// Settings that cannot be. Not worth a retry.
#[derive(Debug, thiserror::Error)]
enum ConfigError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl From<ConfigError> for VnodeError {
    fn from(error: ConfigError) -> Self {
        Self::Config(evenkeel_net::log::causes(&error))
    }
}

pub(crate) async fn run(args: VnodeArgs, shutdown: CancellationToken) -> Result<(), VnodeError> {
    let file = match &args.config {
        Some(path) => {
            let refuses = |id: &str| args.provider.refuses(id);
            file::read::<SettingsArgs>(path, KIND, refuses).map_err(ConfigError::from)?
        }
        None => Layer::default(),
    };
    args.provider.knows(&args.settings)?;
    match args.provider {
        ProviderArg::Simulated => {
            let (args, _) = args.settings.over(&[&file]).map_err(ConfigError::from)?;
            let prepared = simulated::prepare(&args.simulated)?;
            cli::run(args.serve, simulated::NAME, async |_| Ok(prepared), shutdown).await
        }
        ProviderArg::Koupleless => {
            let (args, settings) = koupleless(&args.settings, &file, |name| std::env::var_os(name))?;
            let identity = args.serve.identity.clone();
            let identity = identity.unwrap_or_else(|| unique_identity_of("koupleless"));
            let prepare = async |around: cli::Surroundings<'_>| {
                let process =
                    Process::prepare(settings, around.access, &identity, names::NAMESPACE, around.stop);
                let process = process.await.map_err(refused)?;
                Ok(Prepared {
                    provider: Arc::new(process.provider()),
                    nodes: BASES,
                    files: process::FILES,
                    change: Box::new(process.change()),
                    metrics: Box::new(process.metrics()),
                    begin: Box::new(move |fleet| process.begin(fleet)),
                })
            };
            cli::run(args.serve, "koupleless", prepare, shutdown).await
        }
    }
}

/// Flags over a file over the released controller's variables.
fn koupleless(
    flags: &Layered<SettingsArgs>,
    file: &Layer,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(SettingsArgs, Settings), ConfigError> {
    let given = |id: &str| flags.gives(id) || file.gives(id);
    let variables = Variables::read::<SettingsArgs>(variable, given)?;
    for note in &variables.notes {
        tracing::info!(
            variable = note.name,
            reason = note.reason,
            "a variable of the released controller does not set what it set there"
        );
    }
    let (args, origins) = flags.over(&[file, &variables.layer])?;
    let settings = Settings::new(&args.koupleless, variables.password, &origins)?;
    Ok((args, settings))
}

impl ProviderArg {
    /// Refuses flags of the other provider: they would do nothing.
    fn knows(self, flags: &Layered<SettingsArgs>) -> Result<(), VnodeError> {
        for id in settings::<SettingsArgs>().iter().filter(|id| flags.gives(id)) {
            if let Some(other) = self.other(id) {
                let flag = id.replace('_', "-");
                return Err(VnodeError::Config(format!(
                    "--{flag}: it is the {other} provider's"
                )));
            }
        }
        Ok(())
    }

    /// The other provider, if a setting is its.
    fn other(self, id: &str) -> Option<&'static str> {
        let is_of = |settings: Vec<String>| settings.iter().any(|setting| setting == id);
        match self {
            Self::Simulated => is_of(settings::<KouplelessArgs>()).then_some("koupleless"),
            Self::Koupleless => is_of(settings::<SimulatedArgs>()).then_some(simulated::NAME),
        }
    }

    /// Why a setting cannot stand in the file of a process with this provider, if it cannot.
    fn refuses(self, id: &str) -> Option<String> {
        if let Some(other) = self.other(id) {
            return Some(format!("it is the {other} provider's"));
        }
        let secret = id == "report_hooks";
        secret.then(|| {
            "URLs of hooks are secrets: put them into a file of their own, reportHooksFile".to_owned()
        })
    }
}

fn refused(error: ProcessError) -> VnodeError {
    VnodeError::Config(evenkeel_net::log::causes(&error))
}

#[cfg(test)]
mod tests;
