//! The names under which this program runs: `evenkeel`, and `kubectl evenkeel` as a plug-in of kubectl.

use clap::Command;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// File name by which kubectl finds its plug-in `evenkeel` on PATH.
const PLUGIN: &str = "kubectl-evenkeel";

/// How the user has called this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// By its own name, or by any other.
    Evenkeel,
    /// By way of kubectl, which starts plug-ins by the name of their file.
    Plugin,
}

impl Program {
    /// `called`: the first word of the command line, which may be a path.
    pub(crate) fn of(called: Option<&OsStr>) -> Self {
        match called.and_then(|called| Path::new(called).file_name()) {
            Some(name) if name == PLUGIN => Self::Plugin,
            _ => Self::Evenkeel,
        }
    }

    /// What the user types to start it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Evenkeel => "evenkeel",
            Self::Plugin => "kubectl evenkeel",
        }
    }

    /// A command line, with the help of this name.
    pub(crate) fn command<C: clap::Parser>(self) -> Command {
        crate::help::explained(C::command(), self.name()).bin_name(self.name())
    }

    /// Reads a command line. The first word is the name of the program.
    pub(crate) fn parse<C: clap::Parser>(
        self,
        line: impl IntoIterator<Item = OsString>,
    ) -> Result<C, clap::Error> {
        let mut command = self.command::<C>();
        let matches = command.try_get_matches_from_mut(line)?;
        C::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

#[cfg(test)]
mod tests;
