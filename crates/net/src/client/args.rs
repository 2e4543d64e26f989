//! Where the API server is: flags, then the surroundings of the process.

use super::endpoints::Endpoint;
use super::server::ServerArgs;
use super::{Access, ClientError, one_line, proxy};
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::{Path, PathBuf};

/// Flags by which a process finds its API server. Flatten into a clap struct.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClientArgs {
    /// Kubeconfig file; without it $KUBECONFIG, then the in-cluster account, then ~/.kube/config.
    #[arg(long, env = "EVENKEEL_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The API server by flags.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Further address of the same API server (same certificates), used when the others do not answer;
    /// repeatable.
    #[arg(
        long,
        env = "EVENKEEL_API_ENDPOINTS",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    pub api_endpoint: Vec<Endpoint>,
}

/// Where a process looks for its API server when no flag says so.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    /// $KUBECONFIG, if set and not empty.
    kubeconfig: Option<String>,
    /// Whether the variables of a pod with an account are set.
    in_cluster: bool,
    /// ~/.kube/config, if there is a home.
    home: Option<PathBuf>,
}

impl Surroundings {
    fn read() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            kubeconfig: set("KUBECONFIG"),
            in_cluster: set("KUBERNETES_SERVICE_HOST").is_some(),
            home: set("HOME").map(|home| Path::new(&home).join(".kube/config")),
        }
    }
}

impl ClientArgs {
    /// A client; no request is made. `component` ends up in the User-Agent.
    pub async fn client(&self, component: &str) -> Result<Client, ClientError> {
        self.access().await?.client(component)
    }

    /// The API server that the flags name: for processes that need more than one client.
    pub async fn access(&self) -> Result<Access, ClientError> {
        Access::new(self.config().await?, &self.api_endpoint)
    }

    /// The configuration by which [`Self::client`] builds its client; further addresses are not in it.
    pub async fn config(&self) -> Result<Config, ClientError> {
        self.config_in(&Surroundings::read()).await
    }

    async fn config_in(&self, around: &Surroundings) -> Result<Config, ClientError> {
        let other = match (&self.kubeconfig, &self.context) {
            (Some(_), _) => Some("--kubeconfig (or $EVENKEEL_KUBECONFIG)"),
            (None, Some(_)) => Some("--context"),
            (None, None) => None,
        };
        if let Some(config) = self.server.config(other).await? {
            return Ok(config);
        }
        if let Some(path) = &self.kubeconfig {
            return self.merged(std::slice::from_ref(path)).await;
        }
        if let Some(list) = &around.kubeconfig {
            let paths: Vec<PathBuf> = std::env::split_paths(list)
                .filter(|path| !path.as_os_str().is_empty())
                .collect();
            // As kubectl does: of a list, files that do not exist are passed over.
            let found: Vec<PathBuf> = paths.iter().filter(|path| path.exists()).cloned().collect();
            return self.merged(if found.is_empty() { &paths } else { &found }).await;
        }
        if around.in_cluster && self.context.is_none() {
            return Config::incluster().map_err(|error| {
                ClientError::NotFound(one_line(&format!(
                    "the in-cluster account cannot be used: {error}"
                )))
            });
        }
        match &around.home {
            Some(path) if path.exists() => self.merged(std::slice::from_ref(path)).await,
            Some(path) => Err(ClientError::NotFound(format!(
                "$KUBECONFIG is not set, this is no pod, and there is no {}",
                path.display()
            ))),
            None => Err(ClientError::NotFound(
                "$KUBECONFIG and $HOME are not set, and this is no pod".to_owned(),
            )),
        }
    }

    async fn merged(&self, paths: &[PathBuf]) -> Result<Config, ClientError> {
        let name = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>()
            .join(":");
        let refuse = |reason: &dyn std::fmt::Display| ClientError::Kubeconfig {
            path: name.clone(),
            reason: one_line(&reason.to_string()),
        };
        let mut merged: Option<Kubeconfig> = None;
        for path in paths {
            let next = read_kubeconfig(path).map_err(|reason| refuse(&reason))?;
            merged = Some(match merged {
                None => next,
                Some(first) => first.merge(next).map_err(|error| refuse(&error))?,
            });
        }
        let Some(kubeconfig) = merged else {
            return Err(refuse(&"$KUBECONFIG names no file"));
        };
        if kubeconfig
            .current_context
            .as_deref()
            .unwrap_or_default()
            .is_empty()
            && self.context.is_none()
        {
            return Err(refuse(&"it has no current-context: give --context NAME"));
        }
        if let Some(wanted) = &self.context
            && !kubeconfig.contexts.iter().any(|context| context.name == *wanted)
        {
            let known: Vec<&str> = kubeconfig
                .contexts
                .iter()
                .map(|context| context.name.as_str())
                .collect();
            return Err(refuse(&format!(
                "it has no context `{wanted}`, only: {}",
                known.join(", ")
            )));
        }
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: None,
            user: None,
        };
        let names_proxy = proxy::is_named(&kubeconfig, self.context.as_deref());
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let config = config.map_err(|error| refuse(&error))?;
        if names_proxy {
            return Ok(config);
        }
        proxy::passed_by(config, &Matcher::from_env())
    }
}

/// Kubeconfigs are read by us, so that a missing file is told apart from a broken one in one line.
fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, String> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        kube::config::KubeconfigError::ReadConfig(source, _) => source.to_string(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests;
