//! Settings from several sources: flags win over all others, which win over the defaults.
//!
//! What another source says is put before the flags as if it had been written on the command line.

use clap::builder::ArgAction;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;
use std::marker::PhantomData;

/// Settings of one source.
#[derive(Clone, Default)]
pub struct Layer {
    given: BTreeMap<String, Given>,
}

#[derive(Clone)]
struct Given {
    values: Vec<OsString>,
    by: String,
}

/// Settings that cannot be. Not worth a retry.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// A value that its setting does not take.
    #[error("{by}: {value:?}: {reason}")]
    Value {
        /// Who says so: `FILE:3:1: heartbeat`, `$ENV`.
        by: String,
        /// The value that was refused.
        value: String,
        /// Why not, or what is possible.
        reason: String,
    },
    /// There is no such setting.
    #[error("{by}: there is no setting {id:?}")]
    Unknown {
        /// Who says so.
        by: String,
        /// Name of the argument.
        id: String,
    },
    /// All of them together make no sense.
    #[error("{0}")]
    Together(String),
}

/// Who has given a setting, for messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(BTreeMap<String, String>);

impl Origins {
    /// Whether anybody has given a setting.
    pub fn gives(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// As a message names it: `--base-env`, `FILE:3:1: baseEnv`, `$ENV`. One that nobody has given goes by
    /// its flag.
    pub fn of(&self, id: &str) -> String {
        self.0.get(id).cloned().unwrap_or_else(|| flag(id))
    }
}

/// The flag of a setting.
fn flag(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

impl Layer {
    /// Whether a setting is given here.
    pub fn gives(&self, id: &str) -> bool {
        self.given.contains_key(id)
    }

    /// Names of the settings that one of both gives otherwise, or alone.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let values = |layer: &Self, id: &str| layer.given.get(id).map(|given| given.values.clone());
        let ids: BTreeSet<&String> = self.given.keys().chain(other.given.keys()).collect();
        let differ = |id: &&String| values(self, id) != values(other, id);
        ids.into_iter().filter(differ).cloned().collect()
    }

    /// Adds a setting of `A`, if its values are such as it takes. `by`: who says so, for messages.
    pub fn give<A: Args>(&mut self, id: &str, values: Vec<OsString>, by: &str) -> Result<(), LayerError> {
        let command = command::<A>();
        let arg = argument(&command, id).ok_or_else(|| LayerError::Unknown {
            by: by.to_owned(),
            id: id.to_owned(),
        })?;
        let line = std::iter::once(OsString::from("settings")).chain(words(arg, &values));
        if let Err(error) = command.clone().try_get_matches_from(line)
            && let Some(reason) = reason(&error)
        {
            let texts: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
            return Err(LayerError::Value {
                by: by.to_owned(),
                value: texts.join(","),
                reason,
            });
        }
        let by = by.to_owned();
        self.given.insert(id.to_owned(), Given { values, by });
        Ok(())
    }
}

impl fmt::Debug for Layer {
    /// Without values: some are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.given.keys()).finish()
    }
}

/// Arguments of which the command line is one source among others. Flatten it instead of `A`.
#[derive(Clone, Debug)]
pub struct Layered<A> {
    flags: Layer,
    arguments: PhantomData<fn() -> A>,
}

impl<A: Args> Args for Layered<A> {
    fn augment_args(command: Command) -> Command {
        A::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        A::augment_args_for_update(command)
    }
}

impl<A: Args> FromArgMatches for Layered<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut layered = Self {
            flags: Layer::default(),
            arguments: PhantomData,
        };
        layered.update_from_arg_matches(matches)?;
        Ok(layered)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        // What does not fit is said in clap's own words.
        A::from_arg_matches(matches)?;
        for arg in command::<A>().get_arguments() {
            let id = arg.get_id().as_str();
            if matches.value_source(id) != Some(clap::parser::ValueSource::CommandLine) {
                continue;
            }
            let values = if is_switch(arg) {
                vec!["true".into()]
            } else {
                let raw = matches.get_raw(id).into_iter().flatten();
                raw.map(OsString::from).collect()
            };
            let by = flag(id);
            self.flags.given.insert(id.to_owned(), Given { values, by });
        }
        Ok(())
    }
}

impl<A: Args> Layered<A> {
    /// Whether the command line gives a setting.
    pub fn gives(&self, id: &str) -> bool {
        self.flags.gives(id)
    }

    /// The settings, with those of `layers` (the strongest first) where no flag speaks, and who has given
    /// what.
    pub fn over(&self, layers: &[&Layer]) -> Result<(A, Origins), LayerError> {
        let command = command::<A>();
        let mut line = vec![OsString::from("settings")];
        let mut origins = Origins::default();
        let strongest_first: Vec<&Layer> = std::iter::once(&self.flags)
            .chain(layers.iter().copied())
            .collect();
        // The weakest come first: an argument that overrides another overrides the weaker one.
        for (place, layer) in strongest_first.iter().enumerate().rev() {
            for arg in command.get_arguments() {
                let id = arg.get_id().as_str();
                let stronger = strongest_first[..place].iter().any(|layer| layer.gives(id));
                if let Some(given) = layer.given.get(id).filter(|_| !stronger) {
                    line.extend(words(arg, &given.values));
                    origins.0.insert(id.to_owned(), given.by.clone());
                }
            }
        }
        let together = |error: clap::Error| LayerError::Together(told(&error));
        let matches = command.try_get_matches_from(line).map_err(together)?;
        let args = A::from_arg_matches(&matches).map_err(together)?;
        Ok((args, origins))
    }
}

/// Names of the settings of `A`.
pub fn settings<A: Args>() -> Vec<String> {
    let command = command::<A>();
    let ids = command.get_arguments().map(|arg| arg.get_id().to_string());
    ids.collect()
}

/// A command with the arguments of `A` alone.
pub(crate) fn command<A: Args>() -> Command {
    A::augment_args(Command::new("settings"))
}

pub(crate) fn argument<'a>(command: &'a Command, id: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_id() == id)
}

/// Whether it is on where it stands, and off elsewhere.
pub(crate) fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// What a command line would say.
fn words(arg: &Arg, values: &[OsString]) -> Vec<OsString> {
    let long = flag(arg.get_id().as_str());
    if is_switch(arg) {
        let on = values.iter().any(|value| value == "true");
        return on.then(|| long.into()).into_iter().collect();
    }
    let word = |value: &OsString| {
        let mut word = OsString::from(format!("{long}="));
        word.push(value);
        word
    };
    values.iter().map(word).collect()
}

/// Why a value is refused; `None` if it is something else that is wrong, such as another argument that is
/// missing.
fn reason(error: &clap::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::ValueValidation => Some(error.source().map_or_else(|| told(error), ToString::to_string)),
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(possible)) if !possible.is_empty() => {
                Some(format!("possible are {}", possible.join(", ")))
            }
            _ => Some("it must not be empty".to_owned()),
        },
        ErrorKind::TooManyValues | ErrorKind::WrongNumberOfValues | ErrorKind::InvalidUtf8 => {
            Some(told(error))
        }
        _ => None,
    }
}

/// What clap says, without usage and colours, on one line.
fn told(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\nUsage").next().unwrap_or_default();
    let text = text.trim_start_matches("error:").split("\n\nFor more").next();
    let words: Vec<&str> = text.unwrap_or_default().split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests;
