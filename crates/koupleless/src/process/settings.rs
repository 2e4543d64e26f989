//! What is asked for, judged as a whole.
//!
//! Each setting for itself was judged when it was read, by the parser of its flag. Here is what they mean
//! together, whoever gave them.

use crate::cli::{HealingArgs, KouplelessArgs};
use crate::core::Profile;
use crate::core::alert::{Hook, Shape, hooks};
use crate::core::budget::Limit;
use crate::core::claims::Sharing;
use crate::core::heal;
use crate::discovery::listener::{HeartbeatTls, Heartbeats};
use crate::provider::Activation;
use evenkeel_arklet::mqtt::{Credentials, Password, TlsFiles};
use evenkeel_kubelet_api::tls::files::Files;
use evenkeel_settings::layers::{Origins, settings};
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

/// Ports of brokers, without TLS and with it.
const PLAIN: u16 = 1883;
const TLS: u16 = 8883;

/// All that the provider is set up with.
#[derive(Clone, Debug)]
pub struct Settings {
    pub profile: &'static Profile,
    /// The environment that is served.
    pub env: String,
    /// Whether and how heartbeats are taken over HTTP.
    pub heartbeats: Option<Heartbeats>,
    /// The broker, if there is one.
    pub broker: Option<Broker>,
    /// Pods that are bases, if there are such.
    pub pods: Option<BasePods>,
    /// Silence after which a base's node is Unknown; less than `gone`.
    pub silent: Duration,
    /// Silence after which a base counts as gone.
    pub gone: Duration,
    /// Whether a base speaks for its own address alone.
    pub check_addresses: bool,
    /// Capacity of a node in pods, instead of the profile's.
    pub capacity: Option<u32>,
    /// What becomes of a new version of a module.
    pub activation: Activation,
    /// Whether pods may have the same module of a base.
    pub sharing: Sharing,
    /// What marks a module's lines in a base's log.
    pub log_mark: Option<String>,
    /// Whether replicas of peer Deployments follow bases.
    pub peers: bool,
    /// Webhooks that are notified of failures.
    pub hooks: Vec<Hook>,
    /// Whether and how bases are healed that run out of metaspace.
    pub healing: Option<Healing>,
}

/// How the broker is reached.
#[derive(Clone, Debug)]
pub struct Broker {
    /// Name or address of the broker.
    pub host: String,
    /// Port of the broker.
    pub port: u16,
    /// What the client ID begins with.
    pub client_prefix: String,
    /// User name and password.
    pub credentials: Option<Credentials>,
    /// Files for TLS; without them the connection is not encrypted.
    pub tls: Option<TlsFiles>,
}

/// How bases are healed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Healing {
    pub settings: heal::Settings,
    /// How many bases at a time, over all replicas.
    pub limit: Limit,
}

/// Pods that are bases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePods {
    /// Labels that they have.
    pub selector: String,
    /// Kubeconfig of their cluster, if it is another one.
    pub kubeconfig: Option<PathBuf>,
}

/// Settings that make no sense. Not worth a retry.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// One of them, or one beside another.
    #[error("{by}: {why}")]
    Setting {
        /// Who gave it: a flag, a field of a file, a variable.
        by: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A file that one of them names.
    #[error("{by}: cannot read {}: {source}", path.display())]
    Read {
        by: String,
        /// The file that was named.
        path: PathBuf,
        /// The error of reading it.
        #[source]
        source: std::io::Error,
    },
}

impl Settings {
    /// Judges settings. `password`: the broker's, where a variable gives it; `origins`: who gave what, for
    /// messages. Blocks: hooks are read.
    pub fn new(
        args: &KouplelessArgs,
        password: Option<Password>,
        origins: &Origins,
    ) -> Result<Self, SettingsError> {
        let judge = Judge { args, origins };
        let settings = Self {
            profile: args.profile,
            env: args.base_env.clone(),
            heartbeats: judge.heartbeats()?,
            broker: judge.broker(password)?,
            pods: judge.pods()?,
            silent: args.base_silent,
            gone: args.base_gone,
            check_addresses: !args.heartbeat_from_anywhere,
            capacity: args.base_pods,
            activation: if args.no_switch {
                Activation::Keep
            } else {
                Activation::Switch
            },
            sharing: if args.exclusive_modules {
                Sharing::Exclusive
            } else {
                args.profile.sharing
            },
            log_mark: args.log_mark.clone(),
            peers: args.peers,
            hooks: judge.hooks()?,
            healing: judge.healing()?,
        };
        if settings.heartbeats.is_none() && settings.broker.is_none() && settings.pods.is_none() {
            let why = "no base would ever be found; add --mqtt-broker or --base-pod-selector";
            return Err(judge.wrong("no_heartbeat", why));
        }
        if args.base_silent.is_zero() {
            return Err(judge.wrong("base_silent", "it must be more than 0; bases speak every 10 s"));
        }
        if args.base_silent >= args.base_gone {
            let why = format!("it must be less than {}", origins.of("base_gone"));
            return Err(judge.wrong("base_silent", &why));
        }
        Ok(settings)
    }
}

struct Judge<'a> {
    args: &'a KouplelessArgs,
    origins: &'a Origins,
}

impl Judge<'_> {
    fn wrong(&self, id: &str, why: &str) -> SettingsError {
        SettingsError::Setting {
            by: self.origins.of(id),
            why: why.to_owned(),
        }
    }

    /// None of these is given, but by variables, which a deployment of the released controller may have
    /// beside a tunnel that is switched off.
    fn none_of(&self, ids: &[&str], why: &str) -> Result<(), SettingsError> {
        let is_given = |id: &&&str| self.origins.gives(id) && !self.origins.of(id).starts_with('$');
        ids.iter()
            .find(is_given)
            .map_or(Ok(()), |id| Err(self.wrong(id, why)))
    }

    /// Two files, or none.
    fn pair(
        &self,
        one: (&str, Option<&PathBuf>),
        other: (&str, Option<&PathBuf>),
    ) -> Result<Option<(PathBuf, PathBuf)>, SettingsError> {
        let alone = |there: &str, missing: &str| {
            let missing = missing.replace('_', "-");
            Err(self.wrong(there, &format!("it goes together with --{missing}")))
        };
        match (one.1, other.1) {
            (Some(first), Some(second)) => Ok(Some((first.clone(), second.clone()))),
            (None, None) => Ok(None),
            (Some(_), None) => alone(one.0, other.0),
            (None, Some(_)) => alone(other.0, one.0),
        }
    }

    fn heartbeats(&self) -> Result<Option<Heartbeats>, SettingsError> {
        let args = self.args;
        let clients = args.heartbeat_client_ca_file.clone();
        let files = self.pair(
            ("heartbeat_tls_cert_file", args.heartbeat_tls_cert_file.as_ref()),
            ("heartbeat_tls_key_file", args.heartbeat_tls_key_file.as_ref()),
        )?;
        if clients.is_some() && files.is_none() {
            let why = "it needs --heartbeat-tls-cert-file: without TLS nobody shows a certificate";
            return Err(self.wrong("heartbeat_client_ca_file", why));
        }
        if args.no_heartbeat {
            return Ok(None);
        }
        Ok(Some(Heartbeats {
            address: args.heartbeat,
            tokens: args.heartbeat_token_file.clone(),
            tls: files.map(|(certificate, key)| HeartbeatTls {
                files: Files { certificate, key },
                clients,
            }),
        }))
    }

    fn broker(&self, password: Option<Password>) -> Result<Option<Broker>, SettingsError> {
        let args = self.args;
        let identity = self.pair(
            ("mqtt_cert_file", args.mqtt_cert_file.as_ref()),
            ("mqtt_key_file", args.mqtt_key_file.as_ref()),
        )?;
        if identity.is_some() && args.mqtt_ca_file.is_none() {
            let why = "it needs --mqtt-ca-file: without it there is no TLS";
            return Err(self.wrong("mqtt_cert_file", why));
        }
        let Some(broker) = &args.mqtt_broker else {
            let without = [
                "mqtt_username",
                "mqtt_password_file",
                "mqtt_ca_file",
                "mqtt_client_prefix",
            ];
            self.none_of(&without, "it needs --mqtt-broker")?;
            return Ok(None);
        };
        let file = args.mqtt_password_file.clone().map(Password::File);
        let credentials = match (args.mqtt_username.clone(), file.or(password)) {
            (Some(username), password) => Some(Credentials { username, password }),
            (None, None) => None,
            (None, Some(Password::File(_))) => {
                return Err(self.wrong("mqtt_password_file", "it goes together with --mqtt-username"));
            }
            (None, Some(Password::Text(_))) => {
                return Err(SettingsError::Setting {
                    by: "$MQTT_PASSWORD".to_owned(),
                    why: "it goes together with --mqtt-username (or $MQTT_USERNAME)".to_owned(),
                });
            }
        };
        let usual = if args.mqtt_ca_file.is_some() { TLS } else { PLAIN };
        let (host, port) = self.host_and_port(broker, usual)?;
        Ok(Some(Broker {
            host,
            port,
            client_prefix: args.mqtt_client_prefix.clone(),
            credentials,
            tls: args.mqtt_ca_file.clone().map(|ca| TlsFiles { ca, identity }),
        }))
    }

    fn host_and_port(&self, broker: &str, usual: u16) -> Result<(String, u16), SettingsError> {
        let (host, port) = match broker.rsplit_once(':') {
            _ if broker.parse::<Ipv6Addr>().is_ok() => (broker, usual),
            Some((host, port)) if !broker.ends_with(']') => {
                let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
                    self.wrong("mqtt_broker", &format!("{port:?} is no port; write HOST:PORT"))
                })?;
                (host, port)
            }
            _ => (broker, usual),
        };
        let host = host.trim_matches(['[', ']']);
        if host.is_empty() || host.contains('/') {
            let why = format!("{broker:?} is no broker; write HOST or HOST:PORT");
            return Err(self.wrong("mqtt_broker", &why));
        }
        Ok((host.to_owned(), port))
    }

    fn pods(&self) -> Result<Option<BasePods>, SettingsError> {
        let kubeconfig = self.args.base_kubeconfig.clone();
        match &self.args.base_pod_selector {
            None if kubeconfig.is_some() => Err(self.wrong(
                "base_kubeconfig",
                "it needs --base-pod-selector: without it no pods are looked for",
            )),
            None => {
                let why = "it needs --base-pod-selector: logs are those of base pods";
                self.none_of(&["log_mark"], why)?;
                Ok(None)
            }
            Some(selector) => Ok(Some(BasePods {
                selector: selector.clone(),
                kubeconfig,
            })),
        }
    }

    fn healing(&self) -> Result<Option<Healing>, SettingsError> {
        let args = &self.args.healing;
        if !self.args.heal {
            let mut of_healing = settings::<HealingArgs>().into_iter();
            return match of_healing.find(|id| self.origins.gives(id)) {
                Some(id) => Err(self.wrong(&id, "it needs --heal")),
                None => Ok(None),
            };
        }
        let settings = args.settings();
        settings.validate().map_err(|error| match error {
            heal::SettingsError::Marks { low, high } => {
                let than = self.origins.of("heal_high_threshold");
                self.wrong(
                    "heal_low_threshold",
                    &format!("{low} must be less than {high}, {than}"),
                )
            }
            heal::SettingsError::Readings => self.wrong("heal_readings", "it must be 1 or more"),
            // All other times are not for flags.
            heal::SettingsError::Time(_) => self.wrong("heal_drain_timeout", "it must be more than 0"),
        })?;
        Ok(Some(Healing {
            settings,
            limit: args.heal_max_unavailable,
        }))
    }

    fn hooks(&self) -> Result<Vec<Hook>, SettingsError> {
        let (id, text) = match (&self.args.report_hooks_file, &self.args.report_hooks) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
                    by: self.origins.of("report_hooks_file"),
                    path: path.clone(),
                    source,
                })?;
                ("report_hooks_file", text.replace(['\r', '\n'], ";"))
            }
            (None, Some(text)) => ("report_hooks", text.clone()),
            (None, None) => return Ok(Vec::new()),
        };
        hooks(&text, Shape::DingTalk).map_err(|error| self.wrong(id, &error.to_string()))
    }
}

#[cfg(test)]
mod tests;
