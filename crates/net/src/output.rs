//! What a command prints on standard output, and whether it may use colours.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use serde::Serialize;
use std::io::{self, Write as _};

/// How a command that has a table to show prints it: the flag `--output` of each such command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl Format {
    /// A value in this format. `table`: the value for people; its parameter says whether it is to be wide.
    pub fn of<T: Serialize>(self, value: &T, table: impl FnOnce(&T, bool) -> String) -> io::Result<String> {
        match self {
            Self::Table => Ok(table(value, false)),
            Self::Wide => Ok(table(value, true)),
            Self::Json => {
                let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
                Ok(format!("{text}\n"))
            }
            Self::Yaml => {
                // By way of JSON values, so that both formats have the same fields in the same form.
                let value = serde_json::to_value(value).map_err(io::Error::other)?;
                serde_saphyr::to_string(&value).map_err(io::Error::other)
            }
        }
    }
}

/// Prints a text. A reader that has seen enough (`head`) is no failure.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Whether colours may go to a stream: by the rules that clap has for the help of commands. It must be a
/// terminal that can show them, and NO_COLOR must not be set.
pub fn has_colours<S: RawStream>(stream: &S) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}
