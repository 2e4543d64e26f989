//! The command line of `evenkeel probe`.

use super::endpoint::{self, Address};
use crate::core::{HttpGet, Kind};
use evenkeel_net::client::ClientArgs;
use evenkeel_net::duration;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Probe once, or run a manifest's probes, as a kubelet would
///
/// `http`, `tcp`, `grpc` and `exec` ask once and say what a kubelet would make of the answer. `run` does what
/// a kubelet does with all probes of a pod, and explains each change. `lint` finds probes that will bite.
#[derive(Clone, Debug, clap::Args)]
pub struct ProbeArgs {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one value per process, made once")]
pub(super) enum Command {
    /// Ask a URL
    Http(HttpArgs),
    /// Open a connection
    Tcp(TcpArgs),
    /// Ask a gRPC server for its health
    Grpc(GrpcArgs),
    /// Run a command on this machine
    Exec(ExecArgs),
    // Without a line of its own, so that the help is all of that of its arguments.
    Run(RunArgs),
    /// Find probes that will bite
    Lint(LintArgs),
}

/// How output looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// How the output of `run` looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Show {
    /// A table on a terminal, lines elsewhere
    #[default]
    Auto,
    /// A table that is kept up to date
    Table,
    /// One line for each change and event
    Lines,
    /// One JSON object a line
    Json,
}

/// As which probe an answer is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum As {
    /// startupProbe
    Startup,
    /// readinessProbe
    #[default]
    Readiness,
    /// livenessProbe
    Liveness,
}

impl From<As> for Kind {
    fn from(kind: As) -> Self {
        match kind {
            As::Startup => Self::Startup,
            As::Readiness => Self::Readiness,
            As::Liveness => Self::Liveness,
        }
    }
}

/// Of every single probe.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OnceArgs {
    /// Time for the whole attempt, as `timeoutSeconds`; fractions are possible.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = positive)]
    pub(super) timeout: Duration,
    /// What the result looks like.
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(super) output: Output,
    /// Evenkeel's strict rules instead of the kubelet's.
    #[arg(long)]
    pub(super) strict: bool,
    /// Which probe the texts speak of.
    #[arg(long = "as", value_enum, value_name = "KIND", default_value = "readiness")]
    pub(super) kind: As,
    /// How often to ask; the exit code is the highest of all.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) count: u32,
    /// Time from the start of one attempt to the next.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = positive)]
    pub(super) interval: Duration,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct HttpArgs {
    /// http:// or https:// URL; an IPv6 address stands in brackets. Certificates are not verified.
    #[arg(value_name = "URL", value_parser = endpoint::url)]
    pub(super) url: HttpGet,
    /// A request header, as in -H 'Host: shop.example'; can be repeated.
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = endpoint::header)]
    pub(super) header: Vec<(String, String)>,
    #[command(flatten)]
    pub(super) once: OnceArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct TcpArgs {
    /// Where to; an IPv6 address stands in brackets.
    #[arg(value_name = "HOST:PORT", value_parser = endpoint::address)]
    pub(super) address: Address,
    #[command(flatten)]
    pub(super) once: OnceArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct GrpcArgs {
    /// Where the server is; an IPv6 address stands in brackets.
    #[arg(value_name = "HOST:PORT", value_parser = endpoint::address)]
    pub(super) address: Address,
    /// Name of the service to ask for; the whole server without it.
    #[arg(long, value_name = "SERVICE", default_value = "")]
    pub(super) service: String,
    /// Over TLS, without verification. A kubelet cannot do that before 1.37.
    #[arg(long)]
    pub(super) tls: bool,
    #[command(flatten)]
    pub(super) once: OnceArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    pub(super) once: OnceArgs,
    /// The command and its arguments.
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub(super) command: Vec<String>,
}

/// Run all probes of a pod as a kubelet would
///
/// Without --cri the containers are taken to run already: what answers at the pod's address, or on this
/// machine, is their process. Nothing is ever killed: where a kubelet would kill a container, that is said, a
/// restart is counted, and probing goes on with a new container ID after the back-off of a kubelet. Exec
/// probes run on this machine.
///
/// With --cri the containers are those of the runtime, exec probes run in them, and what a kubelet would do
/// is said.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RunArgs {
    /// Manifest of a pod, or of something with a pod template; `-` is standard input.
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(super) filename: PathBuf,
    /// Only this container.
    #[arg(long, value_name = "NAME")]
    pub(super) container: Option<String>,
    /// The pod's address [default: its status.podIP, else 127.0.0.1].
    #[arg(long, value_name = "IP")]
    pub(super) address: Option<IpAddr>,
    /// Socket of the container runtime, as in /run/containerd/containerd.sock.
    #[arg(long, value_name = "SOCKET")]
    pub(super) cri: Option<PathBuf>,
    /// Evenkeel's strict rules instead of the kubelet's.
    #[arg(long)]
    pub(super) strict: bool,
    /// Where counters and results are kept for the next run.
    #[arg(long, value_name = "FILE")]
    pub(super) state: Option<PathBuf>,
    /// What is shown.
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "auto")]
    pub(super) output: Show,
    /// How long to run [default: until a signal].
    #[arg(long = "for", value_name = "DURATION", value_parser = positive)]
    pub(super) duration: Option<Duration>,
    /// End with 0 as soon as all containers are ready.
    #[arg(long)]
    pub(super) until_ready: bool,
    /// Where /healthz, /livez, /readyz and /metrics are served; without it they are not.
    #[arg(long, value_name = "ADDR")]
    pub(super) admin: Option<SocketAddr>,
    /// Write the events to the API server; the manifest must be of a pod with a uid.
    #[arg(long)]
    pub(super) events: bool,
    #[command(flatten, next_help_heading = "API server (with --events)")]
    pub(super) client: ClientArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct LintArgs {
    /// Manifest of a pod, or of something with a pod template; `-` is standard input.
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(super) filename: PathBuf,
    /// What the findings look like.
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(super) output: Output,
    /// A finding to leave out, by its code; can be repeated.
    #[arg(long, value_name = "CODE")]
    pub(super) allow: Vec<String>,
}

/// A duration of more than nothing.
fn positive(text: &str) -> Result<Duration, String> {
    let parsed = duration::parse(text)?;
    if parsed.is_zero() {
        return Err("it must be more than 0, as in 500ms or 1s".to_owned());
    }
    // Timers count from now; nobody waits that long.
    if parsed > Duration::from_secs(3_600 * 24 * 365) {
        return Err(format!("{text:?} is longer than a year; give less"));
    }
    Ok(parsed)
}
