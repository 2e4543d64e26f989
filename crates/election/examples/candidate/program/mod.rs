//! Flags, lines and signals of the candidate. What touches the election itself is in `campaign`.

mod campaign;
mod lines;

use anyhow::Context as _;
use campaign::Election;
use clap::Parser;
use evenkeel_net::client::ClientArgs;
use lines::Printer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Campaigns for a Lease until SIGTERM or SIGINT, also after a loss. Standard output has one JSON object a
/// line. SIGUSR1 asks for one line per Lease with the number of API requests sent so far.
#[derive(Clone, Debug, Parser)]
struct Args {
    #[command(flatten)]
    client: ClientArgs,
    /// Namespace of the Lease.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Name of the Lease.
    #[arg(long)]
    name: String,
    /// Identity of this candidate.
    #[arg(long)]
    identity: String,
    /// How long others leave an unrenewed Lease alone, in milliseconds, as `5000ms`.
    #[arg(long, default_value = "5000ms", value_parser = millis)]
    lease_duration: Duration,
    /// How long a leader goes on without a renewal.
    #[arg(long, default_value = "3000ms", value_parser = millis)]
    renew_deadline: Duration,
    /// Time between attempts.
    #[arg(long, default_value = "1000ms", value_parser = millis)]
    retry_period: Duration,
    /// Give the Lease back when told to stop.
    #[arg(long)]
    release: bool,
    /// Run so many elections, on the Leases NAME-0 and on, begun evenly over one retry period.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Print the number of API requests at the end.
    #[arg(long)]
    requests: bool,
    /// End when standard input is closed.
    #[arg(long)]
    tied: bool,
}

fn millis(text: &str) -> Result<Duration, String> {
    text.strip_suffix("ms")
        .and_then(|number| number.parse().ok())
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is no number of milliseconds, as in `1500ms`"))
}

/// Runs to the end, which is asked for by a signal. Ends the process with code 2 if the words, the first of
/// which is the program's name, cannot be used.
#[tokio::main]
pub(crate) async fn run(words: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    let args = Args::parse_from(words);
    evenkeel_net::init_crypto();
    evenkeel_net::log::LogArgs {
        log: None,
        log_format: evenkeel_net::log::LogFormat::Text,
    }
    .init("info")
    .map_err(anyhow::Error::msg)?;
    let shutdown = evenkeel_net::shutdown::on_signals().context("cannot listen for signals")?;
    if args.tied {
        tokio::spawn(stop_with_standard_input(shutdown.clone()));
    }
    let client = args.client.client("candidate").await?;
    let out = Printer::new(&args.identity);
    let elections: Vec<Arc<Election>> = (0..args.count)
        .map(|number| {
            let name = if args.count > 1 {
                format!("{}-{number}", args.name)
            } else {
                args.name.clone()
            };
            let delay = args.retry_period * number / args.count;
            let requests = Arc::new(AtomicU64::new(0));
            Arc::new(Election {
                client: counted(client.clone(), requests.clone()),
                lease: format!("{}/{name}", args.namespace),
                name,
                delay,
                requests,
                args: args.clone(),
            })
        })
        .collect();
    let running = elections.iter().map(|election| {
        let (election, shutdown, out) = (election.clone(), shutdown.clone(), out.clone());
        tokio::spawn(async move { election.campaign(shutdown, &out).await })
    });
    let running: Vec<_> = running.collect();
    let tell = || {
        for election in &elections {
            out.requests(&election.lease, election.requests.load(Ordering::Relaxed));
        }
    };
    let mut asked = signal(SignalKind::user_defined1()).context("cannot listen for SIGUSR1")?;
    let all = futures::future::try_join_all(running);
    tokio::pin!(all);
    let ended = loop {
        tokio::select! {
            ended = &mut all => break ended,
            Some(()) = asked.recv() => tell(),
        }
    };
    if args.requests {
        tell();
    }
    out.exit();
    ended?.into_iter().collect()
}

async fn stop_with_standard_input(shutdown: CancellationToken) {
    let mut input = tokio::io::stdin();
    let mut ignored = [0; 64];
    // An error is an end as well.
    while matches!(input.read(&mut ignored).await, Ok(1..)) {}
    shutdown.cancel();
}

/// The same client, which counts its requests. One that the client repeats by itself counts once.
fn counted(client: kube::Client, requests: Arc<AtomicU64>) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        requests.fetch_add(1, Ordering::Relaxed);
        let client = client.clone();
        async move { client.send(request).await }
    });
    kube::Client::new(service, namespace)
}
