//! Cases, and how the two sides are compared.

use super::kubelet::Kubelet;
use super::server::{Serve, Servers, Step};
use evenkeel_probe::core::{
    Attempt, Compat, Container, Handler, HttpGet, Key, Kind, Port, Probe, Scheme, Target,
};
use evenkeel_probe::handler::Handlers;
use futures::StreamExt as _;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Long enough for a busy machine.
const PATIENT: Duration = Duration::from_secs(10);

/// Where a case has this port, it means its first server's.
pub(crate) const SERVER: i64 = -77;

/// One question, and the servers that it concerns.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    name: String,
    handler: Handler,
    address: Option<IpAddr>,
    timeout: Duration,
    container: Container,
    servers: Vec<Serve>,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, handler: Handler) -> Self {
        Self {
            name: name.into(),
            handler,
            address: Some(Ipv4Addr::LOCALHOST.into()),
            timeout: PATIENT,
            container: Container::default(),
            servers: Vec::new(),
        }
    }

    /// `GET /` of the first server.
    pub(crate) fn http(name: impl Into<String>) -> Self {
        let get = HttpGet {
            scheme: Scheme::Http,
            host: None,
            port: Port::Number(SERVER),
            path: "/".to_owned(),
            headers: Vec::new(),
        };
        Self::new(name, Handler::HttpGet(get))
    }

    pub(crate) fn get(mut self, change: impl FnOnce(&mut HttpGet)) -> Self {
        let Handler::HttpGet(get) = &mut self.handler else {
            panic!("{} is no HTTP probe", self.name)
        };
        change(get);
        self
    }

    pub(crate) fn https(self) -> Self {
        self.get(|get| get.scheme = Scheme::Https)
    }

    pub(crate) fn address(mut self, address: Option<IpAddr>) -> Self {
        self.address = address;
        self
    }

    pub(crate) fn v6(self) -> Self {
        self.address(Some(Ipv6Addr::LOCALHOST.into()))
    }

    /// For cases that end by their timeout.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn container(mut self, change: impl FnOnce(&mut Container)) -> Self {
        change(&mut self.container);
        self
    }

    pub(crate) fn serve(mut self, server: Serve) -> Self {
        self.servers.push(server);
        self
    }

    /// One more server, with the same script for every connection.
    pub(crate) fn script(self, steps: Vec<Step>) -> Self {
        self.serve(Serve::Scripts(vec![steps]))
    }

    /// One more server, which sends this after the head of a request and closes.
    pub(crate) fn replies(self, reply: impl Into<Vec<u8>>) -> Self {
        self.script(vec![Step::Head, Step::Send(reply.into())])
    }

    fn is_https(&self) -> bool {
        matches!(&self.handler, Handler::HttpGet(get) if get.scheme == Scheme::Https)
    }

    fn aimed(&self, servers: &Servers) -> (Target, Probe) {
        let mut handler = self.handler.clone();
        let first = servers.ports.first().copied();
        match &mut handler {
            Handler::HttpGet(HttpGet { port, .. }) | Handler::TcpSocket { port, .. } => {
                if *port == Port::Number(SERVER) {
                    *port = Port::Number(first.unwrap().into());
                }
            }
            Handler::Grpc { port, .. } => *port = first.unwrap_or(*port),
            Handler::Exec { .. } => {}
        }
        let mut container = self.container.clone();
        for (_, port) in &mut container.ports {
            *port = first.unwrap_or(*port);
        }
        let target = Target {
            address: self.address,
            source: None,
            container: Arc::new(container),
            container_id: "containerd://0".into(),
        };
        let mut probe = Probe::new(handler);
        probe.timeout = self.timeout;
        (target, probe)
    }
}

/// What one side said, and what its servers received, with ports by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `failure`, and whether with an error.
    verdict: String,
    /// Output and error.
    text: String,
    received: Vec<String>,
}

impl Seen {
    fn new(case: &Case, verdict: &str, (output, error): (&str, Option<&str>), servers: &Servers) -> Self {
        let plain = |text: &str| normal(text, &servers.ports, case.is_https());
        let verdict = match error {
            None => verdict.to_owned(),
            Some(_) => format!("{verdict} with an error"),
        };
        let mut received: Vec<String> = servers.received().iter().map(|text| plain(text)).collect();
        if matches!(case.handler, Handler::Grpc { .. }) {
            // Go's library asks once more on a new connection after GOAWAY, and dials again after a second,
            // a fifth more or less by chance. For ours the next period is soon enough.
            received.dedup();
        }
        Self {
            verdict,
            text: format!("{}{}", plain(output), plain(error.unwrap_or_default())),
            received,
        }
    }
}

/// Names instead of ports that differ from run to run.
fn normal(text: &str, ports: &[u16], https: bool) -> String {
    let mut text = text.to_owned();
    for (number, port) in ports.iter().enumerate() {
        text = text.replace(&format!(":{port}"), &format!(":PORT{number}"));
    }
    // `read tcp 127.0.0.1:47826->127.0.0.1:PORT0: …`
    if let Some((before, after)) = text.split_once("->")
        && let Some((start, _)) = before.rsplit_once(' ')
    {
        text = format!("{start} HERE->{after}");
    }
    // For HTTPS Go has several timers for one deadline, and any may win.
    if text.contains("\"https:") {
        text = text
            .replace(" (Client.Timeout exceeded while awaiting headers)", "")
            .replace(" while waiting for connection", "");
    }
    if https {
        text = text.replace(" (Client.Timeout or context cancellation while reading body)", "");
    }
    text = text.replace("net/http: request canceled", "context deadline exceeded");
    if let Some((before, after)) = text.split_once("grpc-timeout: ")
        && let Some((_, rest)) = after.split_once('\n')
    {
        // What is left of it.
        text = format!("{before}grpc-timeout: SOME\n{rest}");
    }
    text
}

/// What may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Verdict,
    Text,
    Request,
}

/// A difference that is known, and stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// Name of the case.
    pub(crate) case: &'static str,
    pub(crate) part: Part,
    /// Why it stays.
    pub(crate) why: &'static str,
}

impl Allowed {
    pub(crate) const fn new(case: &'static str, part: Part, why: &'static str) -> Self {
        Self { case, part, why }
    }
}

/// Puts all cases to both sides, and fails with all differences that are not allowed, and with all allowed
/// ones that are none.
pub(crate) async fn compare(test: &str, ours: Handlers, cases: Vec<Case>, allowed: &[Allowed]) {
    let Some(kubelet) = Kubelet::start(test) else {
        return;
    };
    let (kubelet, ours) = (&kubelet, &ours);
    let differences: Vec<String> = futures::stream::iter(&cases)
        .map(|case| async move {
            let (theirs, ours) = tokio::join!(ask_kubelet(kubelet, case), ask_us(ours, case));
            judge(case, &theirs, &ours, allowed)
        })
        .buffered(16)
        .concat()
        .await;
    let unknown = allowed
        .iter()
        .filter(|known| !cases.iter().any(|case| case.name == known.case))
        .map(|known| format!("{}: allowed, but there is no such case", known.case));
    let all: Vec<String> = differences.into_iter().chain(unknown).collect();
    assert!(all.is_empty(), "{} differences:\n{}", all.len(), all.join("\n"));
}

async fn ask_kubelet(kubelet: &Kubelet, case: &Case) -> Seen {
    let servers = Servers::start(&case.servers);
    let (target, probe) = case.aimed(&servers);
    let answer = kubelet.ask(&target, &probe).await;
    let error = (!answer.error.is_empty()).then_some(answer.error.as_str());
    Seen::new(case, &answer.result, (&answer.output, error), &servers)
}

async fn ask_us(handlers: &Handlers, case: &Case) -> Seen {
    let servers = Servers::start(&case.servers);
    let (target, probe) = case.aimed(&servers);
    let attempt = Attempt {
        ticket: 0,
        key: Key {
            pod: "pod".into(),
            container: "container".into(),
            kind: Kind::Liveness,
        },
        target,
        probe: Arc::new(probe),
        compat: Compat::Kubelet,
        lag: Duration::ZERO,
    };
    let outcome = tokio::time::timeout(
        case.timeout + Duration::from_secs(60),
        Box::pin(handlers.once(&attempt)),
    )
    .await
    .unwrap_or_else(|_| panic!("{}: no end", case.name));
    let verdict = format!("{:?}", outcome.verdict).to_lowercase();
    let said = (outcome.output.as_str(), outcome.error.as_deref());
    Seen::new(case, &verdict, said, &servers)
}

fn judge(case: &Case, theirs: &Seen, ours: &Seen, allowed: &[Allowed]) -> Vec<String> {
    let parts = [
        (Part::Verdict, theirs.verdict == ours.verdict),
        (Part::Text, theirs.text == ours.text),
        (Part::Request, theirs.received == ours.received),
    ];
    let mut told = Vec::new();
    for (part, same) in parts {
        let known = allowed
            .iter()
            .find(|known| known.case == case.name && known.part == part);
        match (same, known) {
            (true, Some(known)) => told.push(format!(
                "{}: {part:?} is allowed to differ ({}), and does not",
                case.name, known.why
            )),
            (false, None) => {
                let mut text = format!("{}: {part:?}\n", case.name);
                for (whose, seen) in [("theirs", theirs), ("ours", ours)] {
                    let Seen {
                        verdict,
                        text: said,
                        received,
                    } = seen;
                    match part {
                        Part::Request => writeln!(text, "  {whose:7}{received:?}").unwrap(),
                        _ => writeln!(text, "  {whose:7}{verdict}: {:?}", short(said)).unwrap(),
                    }
                }
                told.push(text);
            }
            _ => {}
        }
    }
    told
}

fn short(text: &str) -> String {
    let mut short: String = text.chars().take(600).collect();
    if short.len() < text.len() {
        write!(short, "… ({} bytes)", text.len()).unwrap();
    }
    short
}
