//! Which plugins there are, and how they come from settings.

use super::command::Exec;
use super::http::Http;
use super::icmp::Icmp;
use super::kubelet::Kubelet;
use super::parameters::{self, CheckSettingsError, Parameters};
use super::ping::Ping;
use super::plugin::Plugin;
use super::weigh::{Checks, Weighed};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Makes a plugin of its own parameters: those that all plugins have are taken already. What it leaves in
/// there is refused by name.
pub type Make = fn(&mut Parameters) -> Result<Arc<dyn Plugin>, String>;

/// The plugins that there are, by their names. [`Registry::default`] has ours; a program with others adds
/// them.
#[derive(Clone)]
pub struct Registry {
    plugins: BTreeMap<&'static str, Kind>,
}

#[derive(Clone, Copy)]
struct Kind {
    make: Make,
    /// Attempts where nothing is said of them.
    attempts: u32,
}

impl Default for Registry {
    /// A packet that is lost is sent again by the kernel after a second, which is too late for a vote:
    /// plugins whose attempt is one packet make three. A handshake takes several packets, and has the whole
    /// second.
    fn default() -> Self {
        Self {
            plugins: BTreeMap::new(),
        }
        .with("ping", 3, |parameters| Ok(Arc::new(Ping::new(parameters)?)))
        .with("kubelet", 1, |parameters| Ok(Arc::new(Kubelet::new(parameters)?)))
        .with("http", 1, |parameters| Ok(Arc::new(Http::new(parameters)?)))
        .with("icmp", 3, |_| Ok(Arc::new(Icmp)))
        .with("exec", 1, |parameters| Ok(Arc::new(Exec::new(parameters)?)))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.plugins.keys()).finish()
    }
}

impl Registry {
    /// With one more, or with another one of this name. `attempts`: how many are made at most, 1 to 3, where
    /// nobody says it.
    #[must_use]
    pub fn with(mut self, name: &'static str, attempts: u32, make: Make) -> Self {
        self.plugins.insert(name, Kind { make, attempts });
        self
    }

    /// The checks that `--check` names, with what other flags say of one of them: the flag, the plugin's
    /// name, and the parameters, which take the place of those in `--check`.
    pub(crate) fn checks<'a>(
        &self,
        check: &'a [String],
        flags: impl Iterator<Item = (&'static str, &'static str, &'a str)>,
        command: &[String],
        line: f64,
    ) -> Result<Checks, CheckSettingsError> {
        let mut named = parameters::read_check(check)?;
        for (flag, name, text) in flags {
            let parameters = Parameters::read(flag, text)?;
            named.retain(|(known, _)| known != name);
            named.push((name.to_owned(), parameters));
        }
        let mut plugins = Vec::new();
        for (name, mut parameters) in named {
            let Some(kind) = self.plugins.get(name.as_str()) else {
                let known: Vec<&str> = self.plugins.keys().copied().collect();
                return Err(parameters.refuse(format!(
                    "there is no check plugin {name:?}; there are {}",
                    known.join(", ")
                )));
            };
            parameters.command = command.to_vec();
            plugins.push(Self::plugin(&name, *kind, parameters)?);
        }
        if !command.is_empty() && !plugins.iter().any(|plugin| plugin.name == "exec") {
            return Err(CheckSettingsError::idle_command());
        }
        Checks::new(plugins, line)
    }

    fn plugin(name: &str, kind: Kind, mut parameters: Parameters) -> Result<Weighed, CheckSettingsError> {
        let (weight, attempts, timeout) = parameters.common(kind.attempts)?;
        let plugin = (kind.make)(&mut parameters);
        let plugin = plugin.map_err(|why| parameters.refuse(why))?;
        parameters.end(name)?;
        Ok(Weighed {
            name: name.to_owned(),
            plugin,
            weight,
            attempts,
            timeout,
        })
    }
}
