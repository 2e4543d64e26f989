//! An API server named by flags instead of a kubeconfig.

use super::{ClientError, one_line, proxy};
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use std::path::{Path, PathBuf};

/// What the parts of the configuration in memory are called; nobody sees it.
const NAME: &str = "flags";

/// Flags by which an API server is named without a kubeconfig; kubectl's names. Secrets are read from files:
/// a command line can be read by everybody on the machine.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServerArgs {
    /// URL of the API server, instead of a kubeconfig.
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// With --server: certificates (PEM) of the authority behind the server's own; without it the system's.
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// With --server: client certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub client_certificate: Option<PathBuf>,
    /// With --server: key (PEM) of the client certificate.
    #[arg(long, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// With --server: bearer token without a line break at its end; read again each minute.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// With --server: name that the server's certificate must bear, if it is not the URL's host.
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,
}

impl ServerArgs {
    /// The first flag of the group that was given.
    fn first_given(&self) -> Option<&'static str> {
        [
            ("--server", self.server.is_some()),
            ("--certificate-authority", self.certificate_authority.is_some()),
            ("--client-certificate", self.client_certificate.is_some()),
            ("--client-key", self.client_key.is_some()),
            ("--token-file", self.token_file.is_some()),
            ("--tls-server-name", self.tls_server_name.is_some()),
        ]
        .into_iter()
        .find_map(|(flag, given)| given.then_some(flag))
    }

    /// The configuration that the flags describe, `None` without any of them. `other` is a flag that names
    /// another API server, if one was given. Reads every file named, so that a wrong one is found before
    /// anything starts.
    pub(super) async fn config(&self, other: Option<&str>) -> Result<Option<Config>, ClientError> {
        let Some(given) = self.first_given() else {
            return Ok(None);
        };
        let refuse = |text: String| Err(ClientError::Flags(text));
        let Some(server) = &self.server else {
            return refuse(format!("{given} needs --server URL; a kubeconfig has its own"));
        };
        if let Some(other) = other {
            return refuse(format!(
                "--server and {other} exclude each other: give one of them"
            ));
        }
        let url: http::Uri = match server.parse::<http::Uri>() {
            Ok(url) if url.host().is_some() && matches!(url.scheme_str(), Some("http" | "https")) => url,
            _ => return refuse(format!("--server {server}: give https://HOST:PORT")),
        };
        if url
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'))
        {
            return refuse("--server: give no user or password in the URL, but --token-file".to_owned());
        }
        match (&self.client_certificate, &self.client_key) {
            (Some(_), None) => return refuse("--client-certificate needs --client-key FILE".to_owned()),
            (None, Some(_)) => return refuse("--client-key needs --client-certificate FILE".to_owned()),
            _ => {}
        }
        if self.client_certificate.is_some() && self.token_file.is_some() {
            return refuse(
                "--client-certificate and --token-file exclude each other: give one of them".to_owned(),
            );
        }
        if url.scheme_str() == Some("http") {
            let rest = Self {
                server: None,
                ..self.clone()
            };
            if let Some(flag) = rest.first_given() {
                return refuse(format!("{flag} needs TLS: give --server https://HOST:PORT"));
            }
        }
        self.read_files()?;
        let config = self.assemble(server).await?;
        crate::init_crypto();
        // Certificates and keys are taken apart only here.
        config.rustls_client_config().map_err(|error| {
            ClientError::Flags(one_line(&format!("cannot use --server {server}: {error}")))
        })?;
        Ok(Some(config))
    }

    fn read_files(&self) -> Result<(), ClientError> {
        for (flag, path) in [
            ("--certificate-authority", &self.certificate_authority),
            ("--client-certificate", &self.client_certificate),
            ("--client-key", &self.client_key),
            ("--token-file", &self.token_file),
        ] {
            let Some(path) = path else { continue };
            let refuse = |why: &dyn std::fmt::Display| {
                ClientError::Flags(one_line(&format!("{flag} {}: {why}", path.display())))
            };
            let text = std::fs::read(path).map_err(|error| refuse(&error))?;
            if text.trim_ascii().is_empty() {
                return Err(refuse(&"the file is empty"));
            }
            // kube sends the file as it is, and would find only at each request that no header can carry it.
            if flag == "--token-file" && text.iter().any(u8::is_ascii_control) {
                return Err(refuse(
                    &"there is a line break or another control character in it, also at its end; write the token alone",
                ));
            }
            if flag != "--token-file" && !text.windows(11).any(|window| window == b"-----BEGIN ") {
                return Err(refuse(&"the file is not PEM"));
            }
        }
        Ok(())
    }

    async fn assemble(&self, server: &str) -> Result<Config, ClientError> {
        let text = |path: &Option<PathBuf>| path.as_deref().map(Path::to_string_lossy).map(String::from);
        let kubeconfig = Kubeconfig {
            current_context: Some(NAME.to_owned()),
            clusters: vec![NamedCluster {
                name: NAME.to_owned(),
                cluster: Some(Cluster {
                    server: Some(server.to_owned()),
                    certificate_authority: text(&self.certificate_authority),
                    tls_server_name: self.tls_server_name.clone(),
                    ..Cluster::default()
                }),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: NAME.to_owned(),
                auth_info: Some(AuthInfo {
                    client_certificate: text(&self.client_certificate),
                    client_key: text(&self.client_key),
                    token_file: text(&self.token_file),
                    ..AuthInfo::default()
                }),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: NAME.to_owned(),
                context: Some(Context {
                    cluster: NAME.to_owned(),
                    user: Some(NAME.to_owned()),
                    ..Context::default()
                }),
                ..NamedContext::default()
            }],
            ..Kubeconfig::default()
        };
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let refuse = |error| ClientError::Flags(one_line(&format!("cannot use --server {server}: {error}")));
        proxy::passed_by(config.map_err(refuse)?, &Matcher::from_env())
    }
}

#[cfg(test)]
mod tests;
