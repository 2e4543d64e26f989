//! Environment variables of the released module controller (2.2), so that this process takes the place of its
//! container as it is.
//!
//! Names, units and defaults are the released controller's. Where it took a malformed value for the default,
//! or for `false`, the process ends with an error here: what somebody wrote is not what would happen.

use clap::Args;
use evenkeel_arklet::mqtt::Password;
use evenkeel_settings::layers::{Layer, LayerError, settings};
use std::ffi::OsString;
use std::net::Ipv6Addr;

/// A variable that the released controller reads, or its samples set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of the environment variable.
    pub name: &'static str,
    /// The setting that takes it, by its flag; or why nothing does.
    pub here: Result<&'static str, &'static str>,
}

const fn to(name: &'static str, flag: &'static str) -> Variable {
    Variable { name, here: Ok(flag) }
}

const fn not(name: &'static str, reason: &'static str) -> Variable {
    Variable {
        name,
        here: Err(reason),
    }
}

const LOADS: &str = "replicas always share the nodes, by slots (--slots)";
const KUBELET: &str =
    "each node has a kubelet API of its own (--kubelet-port, --tls-cert-file), and no Service is needed";

/// All of them.
pub const VARIABLES: [Variable; 23] = [
    to("CLIENT_ID", "--identity"),
    to("ENV", "--base-env"),
    to("ENABLE_HTTP_TUNNEL", "--no-heartbeat"),
    to("HTTP_TUNNEL_LISTEN_PORT", "--heartbeat"),
    to("ENABLE_MQTT_TUNNEL", "--mqtt-broker"),
    to("MQTT_BROKER", "--mqtt-broker"),
    to("MQTT_PORT", "--mqtt-broker"),
    to("MQTT_USERNAME", "--mqtt-username"),
    to("MQTT_PASSWORD", "--mqtt-password-file"),
    to("MQTT_CLIENT_PREFIX", "--mqtt-client-prefix"),
    to("MQTT_CA_PATH", "--mqtt-ca-file"),
    to("MQTT_CLIENT_CRT_PATH", "--mqtt-cert-file"),
    to("MQTT_CLIENT_KEY_PATH", "--mqtt-key-file"),
    to("ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE", "--peers"),
    to("REPORT_HOOKS", "--report-hooks"),
    not("IS_CLUSTER", LOADS),
    not("WORKLOAD_MAX_LEVEL", LOADS),
    not(
        "VNODE_WORKER_NUM",
        "work is limited per base, not by workers per node",
    ),
    not("KUBELET_PROXY_ENABLED", KUBELET),
    not("KUBELET_PROXY_PORT", KUBELET),
    not("NAMESPACE", KUBELET),
    not(
        "TRACKER_CONFIG_PATH",
        "there is no tracker: Events, metrics and alerts tell what happened",
    ),
    not(
        "ENABLE_MODULE_DEPLOYMENT_CONTROLLER",
        "the released controller does not read it, either; peers are ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE's",
    ),
];

/// Of the connection to the broker; they count where there is a broker.
const BROKER: [(&str, &str); 5] = [
    ("MQTT_USERNAME", "mqtt_username"),
    ("MQTT_CLIENT_PREFIX", "mqtt_client_prefix"),
    ("MQTT_CA_PATH", "mqtt_ca_file"),
    ("MQTT_CLIENT_CRT_PATH", "mqtt_cert_file"),
    ("MQTT_CLIENT_KEY_PATH", "mqtt_key_file"),
];
/// The released controller's defaults where it uses a broker.
const DEFAULT_BROKER: &str = "test-broker";
const DEFAULT_BROKER_PORT: u16 = 1883;
const DEFAULT_USERNAME: &str = "test-username";
const DEFAULT_HEARTBEAT_PORT: u16 = 7777;

/// What the variables say.
#[derive(Debug, Default)]
pub struct Variables {
    /// The settings that the variables stand for.
    pub layer: Layer,
    /// `MQTT_PASSWORD`. There is no flag for it: a command line is there for all to read.
    pub password: Option<Password>,
    /// What is logged about them at the start.
    pub notes: Vec<Note>,
}

/// A variable that does not do what its name says here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Name of the environment variable.
    pub name: &'static str,
    /// Why, or what happens instead.
    pub reason: String,
}

impl Variables {
    /// Reads the variables as settings of `A`. Empty ones are not set. `variable` looks one up; `given`:
    /// whether a flag or a file gives a setting.
    pub fn read<A: Args>(
        variable: impl Fn(&str) -> Option<OsString>,
        given: impl Fn(&str) -> bool,
    ) -> Result<Self, LayerError> {
        let reader = Reader { variable, given };
        let mut found = Self::default();
        for known in VARIABLES {
            if let (Err(reason), Some(_)) = (known.here, reader.raw(known.name)) {
                found.note(known.name, reason);
            }
        }
        for (name, id) in [("CLIENT_ID", "identity"), ("REPORT_HOOKS", "report_hooks")] {
            if let Some(value) = reader.text(name)? {
                found.give::<A>(id, value, name)?;
            }
        }
        match reader.text("ENV")? {
            // In a shell it is a start-up file.
            Some(file) if file.contains('/') => found.note("ENV", "it names a file, as shells have it"),
            Some(env) => found.give::<A>("base_env", env, "ENV")?,
            None => {}
        }
        let peers = "ENABLE_MODULE_REPLICAS_SYNC_WITH_BASE";
        if let Some(value) = reader.boolean(peers)? {
            found.give::<A>("peers", value.to_string(), peers)?;
        }
        let mqtt = reader.boolean("ENABLE_MQTT_TUNNEL")?;
        found.heartbeats::<A>(&reader, mqtt == Some(true))?;
        found.broker::<A>(&reader, mqtt == Some(true))?;
        Ok(found)
    }

    fn heartbeats<A: Args>(
        &mut self,
        reader: &Reader<impl Look, impl Know>,
        mqtt: bool,
    ) -> Result<(), LayerError> {
        let enabled = reader.boolean("ENABLE_HTTP_TUNNEL")?;
        let port = reader.port("HTTP_TUNNEL_LISTEN_PORT")?;
        let name = "HTTP_TUNNEL_LISTEN_PORT";
        let on = match (enabled, mqtt) {
            (Some(on), _) => on,
            // With settings of MQTT alone the released controller does without HTTP.
            (None, true) => false,
            // With settings of neither it does not start; this process' own default holds then.
            (None, false) if port.is_none() => return Ok(()),
            (None, false) => true,
        };
        if on {
            let port = port.unwrap_or(DEFAULT_HEARTBEAT_PORT);
            return self.give::<A>("heartbeat", format!("0.0.0.0:{port}"), name);
        }
        // Somebody who says where they are taken, or from whom, wants heartbeats.
        let wanted = settings::<A>()
            .into_iter()
            .any(|id| id.starts_with("heartbeat") && (reader.given)(&id));
        if port.is_some() && !wanted {
            self.note(name, "ENABLE_HTTP_TUNNEL is not true");
        }
        if wanted {
            return Ok(());
        }
        let by = if enabled.is_some() {
            "ENABLE_HTTP_TUNNEL"
        } else {
            "ENABLE_MQTT_TUNNEL"
        };
        self.give::<A>("no_heartbeat", "true".to_owned(), by)
    }

    fn broker<A: Args>(
        &mut self,
        reader: &Reader<impl Look, impl Know>,
        enabled: bool,
    ) -> Result<(), LayerError> {
        let elsewhere = (reader.given)("mqtt_broker");
        let (broker, port) = (reader.text("MQTT_BROKER")?, reader.port("MQTT_PORT")?);
        if !enabled || elsewhere {
            let reason = if elsewhere {
                "a flag or a file names the broker"
            } else {
                "ENABLE_MQTT_TUNNEL is not true"
            };
            let unused = [("MQTT_BROKER", broker.is_some()), ("MQTT_PORT", port.is_some())];
            for (name, _) in unused.into_iter().filter(|(_, set)| *set) {
                self.note(name, reason);
            }
        } else {
            if broker.is_none() {
                let reason =
                    format!("it is not set: the broker is {DEFAULT_BROKER}, as in the released controller");
                self.note("MQTT_BROKER", &reason);
            }
            let host = broker.unwrap_or_else(|| DEFAULT_BROKER.to_owned());
            let host = if host.parse::<Ipv6Addr>().is_ok() {
                format!("[{host}]")
            } else if host.contains([':', '/']) {
                let reason = "give a name or an address alone; the port is MQTT_PORT's".to_owned();
                return Err(refused("MQTT_BROKER", host, reason));
            } else {
                host
            };
            let port = port.unwrap_or(DEFAULT_BROKER_PORT);
            self.give::<A>("mqtt_broker", format!("{host}:{port}"), "MQTT_BROKER")?;
            self.give::<A>("mqtt_username", DEFAULT_USERNAME.to_owned(), "MQTT_USERNAME")?;
        }
        let password = reader.text("MQTT_PASSWORD")?;
        if !enabled && !elsewhere {
            for (name, _) in BROKER {
                if reader.raw(name).is_some() {
                    self.note(name, "there is no broker: ENABLE_MQTT_TUNNEL is not true");
                }
            }
            if password.is_some() {
                self.note(
                    "MQTT_PASSWORD",
                    "there is no broker: ENABLE_MQTT_TUNNEL is not true",
                );
            }
            return Ok(());
        }
        for (name, id) in BROKER {
            if let Some(value) = reader.text(name)? {
                self.give::<A>(id, value, name)?;
            }
        }
        if (reader.given)("mqtt_password_file") {
            if password.is_some() {
                self.note(
                    "MQTT_PASSWORD",
                    "a flag or a file names the file with the password",
                );
            }
            return Ok(());
        }
        self.password = password.map(Password::Text);
        Ok(())
    }

    fn give<A: Args>(&mut self, id: &str, value: String, name: &str) -> Result<(), LayerError> {
        self.layer.give::<A>(id, vec![value.into()], &format!("${name}"))
    }

    fn note(&mut self, name: &'static str, reason: &str) {
        let reason = reason.to_owned();
        self.notes.push(Note { name, reason });
    }
}

trait Look: Fn(&str) -> Option<OsString> {}
impl<T: Fn(&str) -> Option<OsString>> Look for T {}
trait Know: Fn(&str) -> bool {}
impl<T: Fn(&str) -> bool> Know for T {}

struct Reader<V, G> {
    variable: V,
    given: G,
}

impl<V: Look, G: Know> Reader<V, G> {
    fn raw(&self, name: &str) -> Option<OsString> {
        (self.variable)(name).filter(|value| !value.to_string_lossy().trim().is_empty())
    }

    fn text(&self, name: &str) -> Result<Option<String>, LayerError> {
        let Some(value) = self.raw(name) else {
            return Ok(None);
        };
        // Not shown: it may be a secret, and is no text anyway.
        let garbled = |_| refused(name, "...".to_owned(), "it is not UTF-8".to_owned());
        value.into_string().map(Some).map_err(garbled)
    }

    fn boolean(&self, name: &str) -> Result<Option<bool>, LayerError> {
        match self.text(name)?.as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(refused(
                name,
                other.to_owned(),
                "possible are true and false".to_owned(),
            )),
        }
    }

    fn port(&self, name: &str) -> Result<Option<u16>, LayerError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match text.parse() {
            Ok(port) if port > 0 => Ok(Some(port)),
            _ => Err(refused(
                name,
                text,
                "possible are the ports 1 to 65535".to_owned(),
            )),
        }
    }
}

fn refused(name: &str, value: String, reason: String) -> LayerError {
    LayerError::Value {
        by: format!("${name}"),
        value,
        reason,
    }
}

#[cfg(test)]
mod tests;
