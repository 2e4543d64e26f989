//! How the broker is reached.

use super::topic;
use crate::command::InvalidRequest;
use rumqttc::{TlsConfiguration, Transport};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of a command; arklet's limit over HTTP.
pub(super) const MOST_REQUEST: usize = 1 << 20;

/// Settings of the connection, deadlines and limits.
#[derive(Clone, Debug)]
pub struct MqttOptions {
    /// The broker's name or address; with TLS its certificate must be for it.
    pub host: String,
    /// Its port: 1883, or 8883 with TLS.
    pub port: u16,
    /// Must differ between all clients of the broker, or they push each other out for ever: put the name of
    /// the pod into it.
    pub client_id: String,
    /// Environments to serve, as bases have them in their topics. Compared in lower case.
    pub environments: Vec<String>,
    /// User name and password.
    pub credentials: Option<Credentials>,
    /// With it the connection is TLS, and the broker is verified. There is no way around that.
    pub tls: Option<TlsFiles>,
    /// A broker that says nothing for up to twice as long is given up. Whole seconds, 1 to 65535.
    pub keep_alive: Duration,
    /// Longest message in bytes. A longer one breaks the connection, so limit it at the broker, too.
    pub message: usize,
    /// Most calls at a time.
    pub calls: usize,
    /// Events that may wait to be taken; further ones are dropped and counted.
    pub events: usize,
    /// Deadline of a query, and of waiting for the broker to be connected.
    pub query: Duration,
    /// Deadline of an install.
    pub install: Duration,
    /// Deadline of an uninstall.
    pub uninstall: Duration,
    /// Deadline of a baseline.
    pub batch: Duration,
    /// First pause before reconnecting.
    pub reconnect: Duration,
    /// Longest such pause.
    pub reconnect_most: Duration,
    /// How log messages name the settings that the broker has refused.
    pub names: SettingNames,
}

/// Names of the settings that a broker may refuse, as the user knows them. A command line gives the names of
/// its flags, so that the message says what to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingNames {
    /// Name of the setting for [`MqttOptions::client_id`].
    pub client_id: &'static str,
    /// Name of the setting for [`Credentials::username`].
    pub username: &'static str,
    /// Name of the setting for [`Credentials::password`].
    pub password: &'static str,
}

impl Default for SettingNames {
    fn default() -> Self {
        Self {
            client_id: "client_id",
            username: "username",
            password: "password",
        }
    }
}

impl MqttOptions {
    /// The defaults for a broker.
    pub fn new(host: impl Into<String>, port: u16, client_id: impl Into<String>, environment: &str) -> Self {
        Self {
            host: host.into(),
            port,
            client_id: client_id.into(),
            environments: vec![environment.to_lowercase()],
            credentials: None,
            tls: None,
            keep_alive: Duration::from_secs(15),
            message: 16 << 20,
            calls: 1024,
            events: 4096,
            query: Duration::from_secs(10),
            install: Duration::from_secs(300),
            uninstall: Duration::from_secs(60),
            batch: Duration::from_secs(600),
            reconnect: Duration::from_millis(500),
            reconnect_most: Duration::from_secs(30),
            names: SettingNames::default(),
        }
    }
}

/// User name and password for the broker.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The user name.
    pub username: String,
    /// The password. None, or an empty one, is not sent at all: the released controller connects so with its
    /// own settings, and a broker may refuse a password that it does not know.
    pub password: Option<Password>,
}

/// A password, never shown.
#[derive(Clone)]
pub enum Password {
    /// The password as a text.
    Text(String),
    /// In a file, without the line's end; read again for every connection.
    File(PathBuf),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(hidden)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// PEM files; read again for every connection.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Who may sign the broker's certificate.
    pub ca: PathBuf,
    /// Our certificate and its key, if the broker wants one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What is wrong with the settings, or with a file that they name.
#[derive(Debug, thiserror::Error)]
pub enum MqttError {
    /// No environment, or one that cannot be part of a topic.
    #[error("MQTT environment")]
    Environment(#[source] InvalidRequest),
    /// Something else is out of range.
    #[error("MQTT {0}")]
    Option(&'static str),
    /// A file cannot be read.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of reading it.
        #[source]
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path} holds no {what}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What the file should hold.
        what: &'static str,
        /// Why, if it holds something like it.
        #[source]
        source: Option<rustls::pki_types::pem::Error>,
    },
    /// Certificate and key are refused.
    #[error("cannot use the MQTT client certificate")]
    Tls(#[source] rustls::Error),
}

impl MqttOptions {
    /// The same with environments in lower case, if all is in order.
    pub(super) fn checked(mut self) -> Result<Self, MqttError> {
        for environment in &mut self.environments {
            *environment = environment.to_lowercase();
            topic::check("environment", environment).map_err(MqttError::Environment)?;
        }
        let ranges = [
            (self.environments.is_empty(), "needs an environment to serve"),
            (self.client_id.is_empty(), "client ID is empty"),
            (self.client_id.len() > 65535, "client ID is too long"),
            (self.host.is_empty(), "broker has no name"),
            (self.message < 1 << 10, "messages of less than 1 KiB are no use"),
            (self.calls == 0, "needs room for at least one call"),
            (
                !(1..=65535).contains(&self.keep_alive.as_secs()),
                "keep-alive is not between 1 s and 65535 s",
            ),
            (self.reconnect.is_zero(), "needs a pause between connections"),
        ];
        match ranges.into_iter().find(|(wrong, _)| *wrong) {
            Some((_, what)) => Err(MqttError::Option(what)),
            None => Ok(self),
        }
    }

    /// What rumqttc wants to know, with the files as they are now.
    pub(super) fn wire(&self) -> Result<rumqttc::MqttOptions, MqttError> {
        let broker = rumqttc::Broker::tcp(self.host.clone(), self.port);
        let mut wire = rumqttc::MqttOptions::new(self.client_id.clone(), broker);
        let outgoing = MOST_REQUEST + (64 << 10);
        wire.set_keep_alive(u16::try_from(self.keep_alive.as_secs()).unwrap_or(u16::MAX))
            .set_max_packet_size(self.message, outgoing)
            .set_inflight(u16::try_from(self.calls).unwrap_or(u16::MAX));
        if let Some(credentials) = &self.credentials {
            let username = credentials.username.clone();
            let password = match &credentials.password {
                None => String::new(),
                Some(Password::Text(text)) => text.clone(),
                Some(Password::File(path)) => {
                    let text = String::from_utf8_lossy(&read(path)?).into_owned();
                    text.trim_end_matches(['\r', '\n']).to_owned()
                }
            };
            if password.is_empty() {
                wire.set_username(username);
            } else {
                wire.set_credentials(username, password);
            }
        }
        if let Some(tls) = &self.tls {
            let config = TlsConfiguration::Rustls(Arc::new(tls.config()?));
            wire.set_transport(Transport::tls_with_config(config));
        }
        Ok(wire)
    }
}

impl TlsFiles {
    fn config(&self) -> Result<rustls::ClientConfig, MqttError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).map_err(MqttError::Tls)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(MqttError::Tls)?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else {
            return Ok(config.with_no_client_auth());
        };
        let pem = read(key)?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|source| MqttError::Pem {
            path: key.clone(),
            what: "private key",
            source: Some(source),
        })?;
        config
            .with_client_auth_cert(certificates(certificate)?, key)
            .map_err(MqttError::Tls)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, MqttError> {
    let wrong = |source| MqttError::Pem {
        path: path.to_owned(),
        what: "certificate",
        source,
    };
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|source| wrong(Some(source)))?;
    if found.is_empty() {
        return Err(wrong(None));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, MqttError> {
    std::fs::read(path).map_err(|source| MqttError::File {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_with_what_is_wrong() {
        let plain = || MqttOptions::new("broker", 1883, "c1", "DEV");
        assert_eq!(plain().checked().unwrap().environments, ["dev"]);
        let refused = |change: &dyn Fn(&mut MqttOptions)| {
            let mut options = plain();
            change(&mut options);
            options.checked().unwrap_err().to_string()
        };
        assert_eq!(
            refused(&|o| o.environments = vec!["a/b".to_owned()]),
            "MQTT environment"
        );
        assert_eq!(
            refused(&|o| o.environments.clear()),
            "MQTT needs an environment to serve"
        );
        assert_eq!(refused(&|o| o.client_id.clear()), "MQTT client ID is empty");
        assert_eq!(
            refused(&|o| o.keep_alive = Duration::from_millis(900)),
            "MQTT keep-alive is not between 1 s and 65535 s"
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        let credentials = Credentials {
            username: "u".to_owned(),
            password: Some(Password::Text("secret".to_owned())),
        };
        let mut options = MqttOptions::new("broker", 1883, "c1", "dev");
        options.credentials = Some(credentials);
        assert!(!format!("{options:?}").contains("secret"));
    }

    #[test]
    fn files_that_are_wrong_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let mut options = MqttOptions::new("broker", 8883, "c1", "dev");
        options.tls = Some(TlsFiles {
            ca: path.clone(),
            identity: None,
        });
        let error = |options: &MqttOptions| options.wire().err().unwrap().to_string();
        assert_eq!(error(&options), format!("cannot read {}", path.display()));
        std::fs::write(&path, "hello").unwrap();
        assert_eq!(
            error(&options),
            format!("{} holds no certificate", path.display())
        );
    }
}
