//! Log output of a process, by its flags.

use super::prompt::Prompt;
use crate::output::has_colours;
use crate::trace::{self, Spans, Traces};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// How many lines wait for a reader of standard error that does not read, before further ones are lost.
const BACKLOG: usize = 4096;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line for each event, for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Apart from the flags of the command, which each help is about.
const HEADING: &str = "Log output";

/// Flags of every process. Flatten into a clap struct.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Log level or filter, as in `info,evenkeel_zone=debug` [default: info; warn for the lab, for probes and
    /// for `status`].
    #[arg(long, env = "EVENKEEL_LOG", global = true, value_name = "FILTER", help_heading = HEADING)]
    pub log: Option<String>,
    /// Log format.
    #[arg(
        long,
        env = "EVENKEEL_LOG_FORMAT",
        default_value = "text",
        global = true,
        value_name = "FORMAT",
        help_heading = HEADING
    )]
    pub log_format: LogFormat,
}

impl LogArgs {
    /// Starts logging to standard error, by `default` where no filter was given. `Err` names the part of
    /// the filter that is wrong.
    pub fn init(&self, default: &str) -> Result<(), String> {
        self.init_to(default, std::io::stderr)
    }

    /// The same for a process that must not wait for whoever reads its standard error: a pager, a terminal
    /// after Ctrl-S, a log daemon that hangs. Up to 4096 lines are kept for it; further ones are lost.
    pub fn init_unhindered(&self, default: &str) -> Result<Lines, String> {
        let (writer, worker) = NonBlockingBuilder::default()
            .buffered_lines_limit(BACKLOG)
            .lossy(true)
            .thread_name("log")
            .finish(std::io::stderr());
        self.init_to(default, writer)?;
        Ok(Lines { _worker: worker })
    }

    /// The same for a process that runs for long. It waits for a pipe or a socket as little, and has no
    /// thread for that, which an agent's memory would feel: lines that do not fit are lost at once. Spans go
    /// to an OpenTelemetry collector if the environment names one and this build can do that. `service`: what
    /// the process is called there. To be called within a Tokio runtime.
    pub fn init_traced(&self, default: &str, service: &str) -> Result<Traces, String> {
        let filter = parse(self.log.as_deref().unwrap_or(default))?;
        trace::start(service, |spans| {
            let json = self.log_format == LogFormat::Json;
            let lines = tracing_subscriber::fmt::layer()
                .with_writer(move || Prompt {
                    out: std::io::stderr(),
                    json,
                })
                .log_internal_errors(false);
            let lines = match self.log_format {
                LogFormat::Text => lines.with_ansi(has_colours(&std::io::stderr())).boxed(),
                LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
            };
            let layers: Vec<Spans> = [lines.with_filter(filter).boxed()]
                .into_iter()
                .chain(spans)
                .collect();
            let started = tracing_subscriber::registry().with(layers).try_init();
            started.map_err(|error| format!("cannot start logging: {error}"))
        })
    }

    fn init_to<W>(&self, default: &str, writer: W) -> Result<(), String>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let filter = parse(self.log.as_deref().unwrap_or(default))?;
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            // Otherwise a line that standard error does not take, because its terminal is gone, is a panic.
            .log_internal_errors(false)
            .with_writer(writer);
        let started = match self.log_format {
            LogFormat::Text => lines.with_ansi(has_colours(&std::io::stderr())).try_init(),
            LogFormat::Json => lines
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .try_init(),
        };
        started.map_err(|error| format!("cannot start logging: {error}"))
    }
}

/// Log lines on their way. Dropping it waits for them to be written, for a second at most.
#[must_use = "without it the last lines are lost"]
#[derive(Debug)]
pub struct Lines {
    _worker: WorkerGuard,
}

/// The filter. A bare word must be a level: `debgu` would otherwise be a target that does not exist, and
/// silence.
fn parse(text: &str) -> Result<EnvFilter, String> {
    let parts: Vec<&str> = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    for part in &parts {
        let is_word = part
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':'));
        if is_word && part.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "--log: `{part}` is no level (off, error, warn, info, debug, trace); for a target write `{part}=LEVEL`"
            ));
        }
        part.parse::<Directive>()
            .map_err(|error| format!("--log: cannot use `{part}`: {error}"))?;
    }
    EnvFilter::builder()
        .parse(parts.join(","))
        .map_err(|error| format!("--log: cannot use `{text}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_targets_and_spans_are_accepted() {
        for text in [
            "info",
            "off",
            "",
            "info,evenkeel_zone=debug",
            "warn, hyper=off",
            "info,a[b{c=1}]=trace",
            "2",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_wrong_part_is_named() {
        for (text, part) in [
            ("debgu", "`debgu`"),
            ("info,evenkeel_zone=loud", "`evenkeel_zone=loud`"),
            ("info,evenkeel_zone", "`evenkeel_zone=LEVEL`"),
            ("info,a[b{c=1=trace", "`a[b{c=1=trace`"),
        ] {
            let error = parse(text).map(|filter| filter.to_string()).unwrap_err();
            assert!(error.starts_with("--log: ") && error.contains(part), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
