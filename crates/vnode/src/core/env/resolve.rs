//! Variables in their order.

use super::{Found, Location, Resolved, field, is_literal, service};
use crate::core::Event;
use evenkeel_probe::handler::exec::{MOST_EXPANDED, TooLong, expand_with};
use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, Container, EnvFromSource, EnvVar, EnvVarSource, Pod, SecretKeySelector,
};
use std::collections::HashMap;

/// How much of an event is a list of names: events are short.
const MOST_LISTED: usize = 768;

/// Resolves a container's environment and command line.
pub fn resolve(pod: &Pod, container: &Container, found: &Found, location: &Location) -> Resolved {
    let mut resolver = Resolver {
        pod,
        container,
        found,
        location,
        events: Vec::new(),
    };
    Resolved {
        container: resolver.container(),
        events: resolver.events,
    }
}

struct Resolver<'a> {
    pod: &'a Pod,
    container: &'a Container,
    found: &'a Found,
    location: &'a Location,
    events: Vec<Event>,
}

/// Variables in the order in which their names first came.
struct Variables {
    list: Vec<(String, String)>,
    index: HashMap<String, usize>,
    /// How many bytes there may still be: a page of manifest can mean more than any memory holds.
    room: usize,
}

impl Variables {
    fn new() -> Self {
        Self {
            list: Vec::new(),
            index: HashMap::new(),
            room: MOST_EXPANDED,
        }
    }

    fn charge(&mut self, bytes: usize) -> Result<(), String> {
        self.room = self.room.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    fn set(&mut self, name: String, value: String) -> Result<(), String> {
        self.charge(name.len() + value.len())?;
        if let Some(&at) = self.index.get(&name) {
            self.list[at].1 = value;
        } else {
            self.index.insert(name.clone(), self.list.len());
            self.list.push((name, value));
        }
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.index.get(name).map(|&at| self.list[at].1.as_str())
    }
}

fn too_large() -> String {
    format!("the container's environment is too large: {TooLong}")
}

impl Resolver<'_> {
    fn container(&mut self) -> Result<Container, String> {
        let services = service::variables(self.pod, &self.found.services);
        let mut variables = Variables::new();
        for from in self.container.env_from.iter().flatten() {
            self.from(from, &mut variables)?;
        }
        for variable in self.container.env.iter().flatten() {
            let value = match &variable.value_from {
                Some(source) if !is_literal(variable) => self.value(variable, source)?,
                _ => {
                    let known = |name: &str| {
                        let own = variables.get(name);
                        own.or_else(|| services.get(name).map(String::as_str))
                    };
                    let text = variable.value.as_deref().unwrap_or_default();
                    let mut room = variables.room;
                    Some(expand_with(text, known, &mut room).map_err(|_| too_large())?)
                }
            };
            if let Some(value) = value {
                variables.set(variable.name.clone(), value)?;
            }
        }
        for (name, value) in services {
            if variables.get(&name).is_none() {
                variables.set(name, value)?;
            }
        }
        let mut room = MOST_EXPANDED;
        let mut expand = |words: &Option<Vec<String>>| {
            let words = words.as_ref()?;
            let expanded = words
                .iter()
                .map(|word| expand_with(word, |name| variables.get(name), &mut room));
            Some(expanded.collect::<Result<Vec<String>, TooLong>>())
        };
        let too_long = |error: TooLong| format!("the container's command is too long: {error}");
        let command = expand(&self.container.command).transpose().map_err(too_long)?;
        let args = expand(&self.container.args).transpose().map_err(too_long)?;
        let env = variables.list.into_iter().map(|(name, value)| EnvVar {
            name,
            value: Some(value),
            value_from: None,
        });
        Ok(Container {
            env: Some(env.collect()),
            env_from: None,
            command,
            args,
            ..self.container.clone()
        })
    }

    /// All of a ConfigMap or Secret.
    fn from(&mut self, from: &EnvFromSource, variables: &mut Variables) -> Result<(), String> {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(source) = &from.config_map_ref {
            let name = source.name.as_str();
            let Some(object) = self.found.config_map(name) else {
                let message = format!("configmap {name:?} not found");
                return self.missing(source.optional, CONFIG_MAP, message);
            };
            let data = object.data.iter().flatten();
            let data = data.map(|(key, value)| (key.as_str(), value.as_bytes()));
            self.all_of("configmap", name, prefix, data, variables)
        } else if let Some(source) = &from.secret_ref {
            let name = source.name.as_str();
            let Some(object) = self.found.secret(name) else {
                let message = format!("secret {name:?} not found");
                return self.missing(source.optional, SECRET, message);
            };
            let data = object.data.iter().flatten();
            let data = data.map(|(key, value)| (key.as_str(), value.0.as_slice()));
            self.all_of("secret", name, prefix, data, variables)
        } else {
            Err("an entry of envFrom has a source that this node does not know; use configMapRef or secretRef".into())
        }
    }

    fn all_of<'d>(
        &mut self,
        kind: &str,
        object: &str,
        prefix: &str,
        data: impl Iterator<Item = (&'d str, &'d [u8])>,
        variables: &mut Variables,
    ) -> Result<(), String> {
        let mut invalid = Vec::new();
        for (key, value) in data {
            // Before it is made: as many keys as an object has room for, each with a prefix as long as a pod
            // has room for.
            variables.charge(prefix.len() + key.len())?;
            let name = format!("{prefix}{key}");
            if is_variable(&name) {
                variables.set(name, text_of(kind, object, key, value)?)?;
            } else {
                invalid.push(name);
            }
        }
        if !invalid.is_empty() {
            let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
            self.event(
                "InvalidEnvironmentVariableNames",
                format!(
                    "keys [{}] from {kind} {namespace}/{object} were skipped since they are invalid as environment variable names",
                    listed(&invalid)
                ),
            );
        }
        Ok(())
    }

    /// The value of one source; none: an optional one that is not there.
    fn value(&mut self, variable: &EnvVar, source: &EnvVarSource) -> Result<Option<String>, String> {
        if let Some(selector) = &source.field_ref {
            field::of_pod(self.pod, selector, self.location).map(Some)
        } else if let Some(selector) = &source.resource_field_ref {
            field::of_resources(self.pod, Some(self.container), selector, self.location).map(Some)
        } else if let Some(selector) = &source.config_map_key_ref {
            self.of_config_map(variable, selector)
        } else if let Some(selector) = &source.secret_key_ref {
            self.of_secret(variable, selector)
        } else {
            Err(format!(
                "environment variable {:?} has a source that this node does not know (fileKeyRef is not supported); use \
                 configMapKeyRef, secretKeyRef, fieldRef or resourceFieldRef",
                variable.name
            ))
        }
    }

    fn of_config_map(
        &mut self,
        variable: &EnvVar,
        selector: &ConfigMapKeySelector,
    ) -> Result<Option<String>, String> {
        let (name, key) = (selector.name.as_str(), selector.key.as_str());
        let Some(object) = self.found.config_map(name) else {
            let message = format!("configmap {name:?} not found");
            return self.skip(variable, selector.optional, CONFIG_MAP, message);
        };
        if let Some(value) = object.data.as_ref().and_then(|data| data.get(key)) {
            return Ok(Some(value.clone()));
        }
        let message = format!("key {key:?} does not exist in configmap {name:?}");
        self.skip(variable, selector.optional, CONFIG_MAP_KEY, message)
            .map_err(|_| format!("couldn't find key {key} in ConfigMap {}/{name}", self.namespace()))
    }

    fn of_secret(
        &mut self,
        variable: &EnvVar,
        selector: &SecretKeySelector,
    ) -> Result<Option<String>, String> {
        let (name, key) = (selector.name.as_str(), selector.key.as_str());
        let Some(object) = self.found.secret(name) else {
            let message = format!("secret {name:?} not found");
            return self.skip(variable, selector.optional, SECRET, message);
        };
        if let Some(value) = object.data.as_ref().and_then(|data| data.get(key)) {
            return text_of("secret", name, key, &value.0).map(Some);
        }
        let message = format!("key {key:?} does not exist in secret {name:?}");
        self.skip(variable, selector.optional, SECRET_KEY, message)
            .map_err(|_| format!("couldn't find key {key} in Secret {}/{name}", self.namespace()))
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The same for one variable.
    fn skip(
        &mut self,
        variable: &EnvVar,
        optional: Option<bool>,
        reasons: Reasons,
        message: String,
    ) -> Result<Option<String>, String> {
        if optional == Some(true) {
            let message = format!("skipping optional envvar {:?}: {message}", variable.name);
            self.event(reasons.optional, message);
            return Ok(None);
        }
        self.event(reasons.mandatory, message.clone());
        Err(message)
    }

    /// Records that something is not there; an error if it must be.
    fn missing(&mut self, optional: Option<bool>, reasons: Reasons, message: String) -> Result<(), String> {
        if optional == Some(true) {
            self.event(reasons.optional, message);
            return Ok(());
        }
        self.event(reasons.mandatory, message.clone());
        Err(message)
    }

    fn event(&mut self, reason: &'static str, message: String) {
        self.events.push(Event {
            warning: true,
            reason,
            message,
        });
    }
}

/// Reasons of events about what is not there.
#[derive(Clone, Copy)]
struct Reasons {
    optional: &'static str,
    mandatory: &'static str,
}

const CONFIG_MAP: Reasons = Reasons {
    optional: "OptionalConfigMapNotFound",
    mandatory: "MandatoryConfigMapNotFound",
};
const CONFIG_MAP_KEY: Reasons = Reasons {
    optional: "OptionalConfigMapKeyNotFound",
    mandatory: "MandatoryConfigMapKeyNotFound",
};
const SECRET: Reasons = Reasons {
    optional: "OptionalSecretNotFound",
    mandatory: "MandatorySecretNotFound",
};
const SECRET_KEY: Reasons = Reasons {
    optional: "OptionalSecretKeyNotFound",
    mandatory: "MandatorySecretKeyNotFound",
};

/// Bytes as the text that a variable is: a runtime's interface takes nothing else. The bytes are not said.
fn text_of(kind: &str, object: &str, key: &str, value: &[u8]) -> Result<String, String> {
    match std::str::from_utf8(value) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(format!(
            "key {key:?} of {kind} {object:?} is not UTF-8 text, as an environment variable must be; mount it as a volume"
        )),
    }
}

/// Whether it can be the name of a variable: letters, digits, `-`, `_`, `.`, no digit first, and no `..`.
fn is_variable(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'.' | b'_');
    name.as_bytes().first().copied().is_some_and(letter)
        && name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
        && name != "."
        && !name.starts_with("..")
}

/// As many names as an event has room for.
fn listed(names: &[String]) -> String {
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        if text.len() + name.len() > MOST_LISTED {
            let more = format!("and {} more", names.len() - at);
            return if at == 0 { more } else { format!("{text}, {more}") };
        }
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
    }
    text
}
