//! Flags, variables and a file, in this order.

use crate::file::{self, FileError, field_of};
use crate::layers::{Layer, LayerError, Layered, Origins, command};
use crate::names::nearest;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the file of a running program is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Variables begin with this.
const PREFIX: &str = "EVENKEEL_";

/// Settings that can come from flags, from variables and from a file.
pub trait Settings: Args + Clone {
    /// `kind` of the file.
    const KIND: &str;

    /// Why a setting cannot come from a source, if it cannot.
    fn refuses(id: &str, source: Source<'_>) -> Option<String> {
        let _ = (id, source);
        None
    }
}

/// Who gives a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<'a> {
    /// The command line.
    Flag,
    /// The environment.
    Variable,
    /// The file of this name.
    File(&'a Path),
}

/// Settings that cannot be. One line that names the source; not worth a retry.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// One value, or all of them together.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// A source may not give this setting.
    #[error("{by}: {reason}")]
    Source {
        /// Who gives it: `--flag`, `$VARIABLE`.
        by: String,
        /// Why not.
        reason: String,
    },
}

/// The settings `A`, and the flag `--config`. Flatten it instead of `A`.
#[derive(Clone, Debug)]
pub struct Configured<A> {
    config: Option<PathBuf>,
    flags: Layered<A>,
}

const CONFIG: &str = "config";
const CONFIG_VARIABLE: &str = "EVENKEEL_CONFIG";

fn config_flag<A: Settings>() -> Arg {
    let help = format!(
        "File with settings (YAML, kind {}): its fields are the flags in camelCase. Each flag is a variable, too: \
         {PREFIX}NAME, in capitals and with underscores. Flags win over variables, variables over the file",
        A::KIND
    );
    Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help(help)
}

impl<A: Settings> Args for Configured<A> {
    fn augment_args(command: Command) -> Command {
        Layered::<A>::augment_args(command.arg(config_flag::<A>()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Layered::<A>::augment_args_for_update(command.arg(config_flag::<A>()))
    }
}

impl<A: Settings> FromArgMatches for Configured<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            config: matches.get_one(CONFIG).cloned(),
            flags: Layered::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        if let Some(config) = matches.get_one(CONFIG) {
            self.config = Some(PathBuf::clone(config));
        }
        self.flags.update_from_arg_matches(matches)
    }
}

impl<A: Settings> Configured<A> {
    /// The settings as flags, this process's variables and the file give them, and who gives which.
    pub fn read(&self) -> Result<(A, Origins), SettingsError> {
        self.read_with(std::env::vars_os())
    }

    /// The same with other variables.
    pub fn read_with(
        &self,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(A, Origins), SettingsError> {
        let variables = given(variables);
        let path = self.path(&variables);
        let file = path.as_deref().map(|path| (path, std::fs::read_to_string(path)));
        let (settings, origins, _) = self.over(variables, file)?;
        Ok((settings, origins))
    }

    /// The settings, and what the file says while the program runs.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn follow(&self) -> Result<(A, Changes<A>), SettingsError> {
        let variables = given(std::env::vars_os());
        let path = self.path(&variables);
        let read = path.as_deref().map(std::fs::read_to_string);
        let text = read.as_ref().and_then(|read| read.as_ref().ok()).cloned();
        let (settings, _, file) = self.over(variables, path.as_deref().zip(read))?;
        let configured = self.clone();
        let changes = Changes {
            path,
            configured,
            text,
            first: file.clone(),
            file,
        };
        Ok((settings, changes))
    }

    /// The file: as the flag names it, else as the variable does.
    fn path(&self, variables: &[(OsString, OsString)]) -> Option<PathBuf> {
        let named = variables.iter().find(|(name, _)| *name == *CONFIG_VARIABLE);
        self.config.clone().or_else(|| named.map(|(_, path)| path.into()))
    }

    /// The settings, who gives which, and what the file says.
    fn over(
        &self,
        variables: Vec<(OsString, OsString)>,
        file: Option<(&Path, std::io::Result<String>)>,
    ) -> Result<(A, Origins, Layer), SettingsError> {
        for arg in command::<A>().get_arguments() {
            let id = arg.get_id().as_str();
            let reason = A::refuses(id, Source::Flag).filter(|_| self.flags.gives(id));
            if let Some(reason) = reason {
                let by = format!("--{}", id.replace('_', "-"));
                return Err(SettingsError::Source { by, reason });
            }
        }
        let file = match file {
            Some((path, read)) => {
                let refuses = |id: &str| A::refuses(id, Source::File(path));
                file::of_text::<A>(path, read, A::KIND, refuses)?
            }
            None => Layer::default(),
        };
        let variables = self.variables(variables)?;
        let (settings, origins) = self.flags.over(&[&variables, &file])?;
        Ok((settings, origins, file))
    }

    fn variables(&self, variables: Vec<(OsString, OsString)>) -> Result<Layer, SettingsError> {
        let command = command::<A>();
        let mut layer = Layer::default();
        for (name, value) in variables {
            let is_its = |arg: &&Arg| variable(arg) == name;
            let Some(arg) = command.get_arguments().find(is_its) else {
                let known = command
                    .get_arguments()
                    .map(|arg| variable(arg).to_string_lossy().into_owned());
                warn_of_near(&name.to_string_lossy(), known);
                continue;
            };
            let id = arg.get_id().as_str();
            if self.flags.gives(id) {
                continue;
            }
            let by = format!("${}", name.to_string_lossy());
            if let Some(reason) = A::refuses(id, Source::Variable) {
                return Err(SettingsError::Source { by, reason });
            }
            layer.give::<A>(id, vec![value], &by)?;
        }
        Ok(layer)
    }
}

/// An empty variable is none: manifests have them.
fn given(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    variables.filter(|(_, value)| !value.is_empty()).collect()
}

/// A variable of ours that no setting has, and that looks like one.
fn warn_of_near(name: &str, known: impl Iterator<Item = String>) {
    let near = Some(name)
        .filter(|name| name.starts_with(PREFIX) && *name != CONFIG_VARIABLE)
        .and_then(|name| nearest(name, known));
    if let Some(near) = near {
        tracing::warn!(
            variable = name,
            near,
            "there is no such variable: is it the other one?"
        );
    }
}

/// The variable of a setting: its own name for it, or one made of its flag.
fn variable(arg: &Arg) -> OsString {
    match arg.get_env() {
        Some(name) => name.to_owned(),
        None => format!("{PREFIX}{}", arg.get_id().as_str().to_ascii_uppercase()).into(),
    }
}

/// The file of a running program.
#[derive(Debug)]
pub struct Changes<A> {
    path: Option<PathBuf>,
    configured: Configured<A>,
    /// Of the file; `None`: it cannot be read.
    text: Option<String>,
    /// What it said at the start.
    first: Layer,
    /// What it last said that made sense.
    file: Layer,
}

/// What a file says anew.
#[derive(Clone, Debug)]
pub struct Change<A> {
    /// All settings.
    pub settings: A,
    /// Fields of the file that say something else than before and that no flag and no variable overrules.
    pub fields: Vec<String>,
    /// The same, with what it said at the start.
    pub since_start: Vec<String>,
}

impl<A: Settings> Changes<A> {
    /// Waits until the file says something else, and reads all settings anew; for ever where there is no
    /// file. Losing the wait loses nothing.
    pub async fn next(&mut self) -> Result<Change<A>, SettingsError> {
        let Some(path) = &self.path else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A slow disk holds up nothing else of the program.
            let read = tokio::fs::read_to_string(path).await;
            let text = read.as_ref().ok();
            if self.text.as_ref() != text {
                self.text = text.cloned();
                let variables = given(std::env::vars_os());
                let (settings, origins, file) = self.configured.over(variables, Some((path, read)))?;
                let path = path.display().to_string();
                let is_the_files = |id: &String| !origins.gives(id) || origins.of(id).starts_with(&path);
                let than = |before: &Layer| {
                    let differing = before.differing(&file).into_iter().filter(is_the_files);
                    differing.map(|id| field_of(&id)).collect()
                };
                let (fields, since_start) = (than(&self.file), than(&self.first));
                self.file = file;
                return Ok(Change {
                    settings,
                    fields,
                    since_start,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
