//! The API client of every component: found, built and kept alive in one way.

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

mod retry;
mod silence;

use retry::ReadsAgain;
use silence::SilenceLayer;
pub use silence::SilentServer;

/// For how long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(5);

/// Flags by which a process finds its API server. Flatten into a clap struct.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClientArgs {
    /// Kubeconfig file; without it $KUBECONFIG, then the in-cluster account, then ~/.kube/config.
    #[arg(long, env = "EVENKEEL_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be read or does not hold together. Not worth a retry.
    #[error("cannot use kubeconfig {path}: {reason}")]
    Kubeconfig {
        /// File as it was named.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// No configuration was found anywhere. Not worth a retry.
    #[error("no API server configured: give --kubeconfig FILE ({0})")]
    NotFound(String),
    /// The client could not be built from a readable configuration.
    #[error("cannot build an API client")]
    Build(#[source] kube::Error),
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
    /// A client; no request is made. `component` ends up in the User-Agent. Connect, read and write time-outs
    /// are set so that a silent server is noticed within seconds, not in 15 minutes.
    pub async fn client(&self, component: &str) -> Result<Client, ClientError> {
        client_for(self.config().await?, component)
    }

    /// The configuration by which [`Self::client`] builds its client.
    pub async fn config(&self) -> Result<Config, ClientError> {
        self.config_in(&Surroundings::read()).await
    }

    async fn config_in(&self, around: &Surroundings) -> Result<Config, ClientError> {
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
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| refuse(&error))
    }
}

/// A client for a configuration from elsewhere, with the same User-Agent and time-outs.
pub fn client_for(mut config: Config, component: &str) -> Result<Client, ClientError> {
    crate::init_crypto();
    if let Some(proxy_url) = &config.proxy_url {
        return Err(ClientError::Build(kube::Error::ProxyProtocolUnsupported {
            proxy_url: Box::new(proxy_url.clone()),
        }));
    }
    let agent = format!("evenkeel-{component}/{}", env!("CARGO_PKG_VERSION"));
    match http::HeaderValue::try_from(&agent) {
        Ok(agent) => config.headers.push((http::header::USER_AGENT, agent)),
        Err(error) => tracing::warn!(%agent, %error, "not usable as a User-Agent"),
    }
    let https = config
        .rustls_https_connector_with_connector(tcp())
        .map_err(ClientError::Build)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .build::<_, kube::client::Body>(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(SilenceLayer)
        .layer(RetryLayer::new(ReadsAgain::new()))
        .option_layer(config.auth_layer().map_err(ClientError::Build)?)
        .layer(config.extra_headers_layer().map_err(ClientError::Build)?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

/// Connections that end by themselves when the other host is gone, also while nothing is sent on them (a watch):
/// after 10 s of silence the kernel asks each 5 s, and after 20 s without an acknowledgement it gives up.
fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(Duration::from_secs(10)));
    connector.set_keepalive_interval(Some(Duration::from_secs(5)));
    connector.set_keepalive_retries(Some(3));
    connector.set_tcp_user_timeout(Some(Duration::from_secs(20)));
    connector
}

/// Kubeconfigs are read by us, so that a missing file is told apart from a broken one in one line.
fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, String> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        kube::config::KubeconfigError::ReadConfig(source, _) => source.to_string(),
        other => other.to_string(),
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
