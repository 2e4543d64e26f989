//! A single probe: one attempt or several, judged and printed.

use super::args::{ExecArgs, GrpcArgs, HttpArgs, OnceArgs, Output, TcpArgs};
use super::endpoint::{self, Address};
use super::error::CliError;
use super::out::{self, Reader};
use super::program;
use super::text::{json, took};
use crate::core::{
    Attempt, Compat, Container, Event, Extras, Handler, HttpGet, Key, Kind, Outcome, Port, Probe, Target,
    Verdict,
};
use crate::handler::{Handlers, Prober as _};
use evenkeel_kube_values::terminal::clean;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The probe to be made, and how it is shown.
pub(super) struct Request {
    handler: Handler,
    address: Option<IpAddr>,
    extras: Extras,
    compat: Compat,
    /// What is probed, for people.
    target: String,
}

pub(super) fn http(args: &HttpArgs) -> Request {
    let get = HttpGet {
        headers: args.header.clone(),
        ..args.url.clone()
    };
    let target = endpoint::shown_url(&get, None);
    Request::new(Handler::HttpGet(get), target, &args.once)
}

pub(super) fn tcp(args: &TcpArgs) -> Request {
    let Address { host, port } = args.address.clone();
    let handler = Handler::TcpSocket {
        host: Some(host),
        port: Port::Number(i64::from(port)),
    };
    Request::new(handler, args.address.to_string(), &args.once)
}

/// A kubelet knows the address of its pod; here a name is looked up, once.
pub(super) async fn grpc(args: &GrpcArgs) -> Result<Request, CliError> {
    let Address { host, port } = &args.address;
    let found = tokio::time::timeout(RESOLVE, tokio::net::lookup_host((host.as_str(), *port))).await;
    let found: Vec<_> = match found {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(error)) => {
            return Err(CliError::usage(format!(
                "cannot find the address of {host:?}: {error}; give its IP address"
            )));
        }
        Err(_) => Vec::new(),
    };
    let address = which(&found)
        .await
        .ok_or_else(|| CliError::usage(format!("{host:?} has no address; give the server's IP address")))?;
    let handler = Handler::Grpc {
        port: *port,
        service: args.service.clone(),
    };
    let mut request = Request::new(handler, args.address.to_string(), &args.once);
    request.address = Some(address.ip());
    if args.tls {
        request.compat = Compat::Strict;
        request.extras.grpc_tls = true;
    }
    Ok(request)
}

pub(super) fn exec(args: &ExecArgs) -> Result<Request, CliError> {
    if let Some(program) = args.command.first() {
        program::find(program).map_err(CliError::usage)?;
    }
    let target = args.command.join(" ");
    // `$(NAME)` is for manifests: here a shell has had its turn, and what is left is meant as it stands.
    let command = args.command.iter().map(|word| word.replace('$', "$$")).collect();
    Ok(Request::new(Handler::Exec { command }, target, &args.once))
}

/// How long a name is looked up.
const RESOLVE: Duration = Duration::from_secs(10);
/// How long each of several addresses is tried: packets to one may be dropped.
const TRIED: Duration = Duration::from_secs(1);

/// Of several addresses the first that accepts a connection, as `localhost` has one of IPv6 at which many
/// servers do not listen. Where none does, the first, so that the probe says why.
async fn which(found: &[SocketAddr]) -> Option<SocketAddr> {
    for address in found.iter().filter(|_| found.len() > 1) {
        let connected = tokio::time::timeout(TRIED, TcpStream::connect(address)).await;
        if matches!(connected, Ok(Ok(_))) {
            return Some(*address);
        }
    }
    found.first().copied()
}

impl Request {
    fn new(handler: Handler, target: String, args: &OnceArgs) -> Self {
        Self {
            handler,
            address: None,
            extras: Extras::default(),
            compat: if args.strict {
                Compat::Strict
            } else {
                Compat::Kubelet
            },
            target,
        }
    }

    fn attempt(&self, args: &OnceArgs) -> Attempt {
        let probe = Probe {
            timeout: args.timeout,
            extras: self.extras.clone(),
            ..Probe::new(self.handler.clone())
        };
        Attempt {
            ticket: 0,
            key: Key {
                pod: "".into(),
                container: "".into(),
                kind: args.kind.into(),
            },
            target: Target {
                address: self.address,
                source: None,
                container: Arc::new(Container::default()),
                container_id: "".into(),
            },
            probe: Arc::new(probe),
            compat: self.compat,
            lag: Duration::ZERO,
        }
    }
}

/// Probes as often as the flags say, prints each result, and returns the highest exit code.
pub(super) async fn run(
    request: &Request,
    handlers: &Handlers,
    args: &OnceArgs,
    shutdown: &CancellationToken,
) -> Result<u8, CliError> {
    let attempt = request.attempt(args);
    let mut code = 0;
    for turn in 0..args.count {
        let began = Instant::now();
        let outcome = tokio::select! {
            outcome = handlers.probe(&attempt) => outcome,
            () = shutdown.cancelled() => {
                return Err(CliError::later("stopped by a signal before there was an answer"));
            }
        };
        let answer = Answer::new(request, args.kind.into(), &outcome, began.elapsed());
        code = code.max(answer.code());
        let line = match args.output {
            Output::Text => answer.text(),
            Output::Json => json(&answer)
                .map_err(|error| CliError::later(format!("cannot write the answer as JSON: {error}")))?,
        };
        let written = out::put(&format!("{line}\n"))
            .map_err(|error| CliError::later(format!("cannot write to standard output: {error}")))?;
        if written == Reader::Gone {
            break;
        }
        if turn + 1 < args.count {
            tokio::select! {
                () = tokio::time::sleep_until(began + args.interval) => {}
                () = shutdown.cancelled() => break,
            }
        }
    }
    Ok(code)
}

/// An answer as programs get it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    /// `success`, `warning`, `failure`, `unknown`, `error`.
    verdict: &'static str,
    handler: &'static str,
    target: &'a str,
    output: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<EventJson>,
    seconds: f64,
}

/// An event as programs get it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventJson {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl From<Event> for EventJson {
    fn from(event: Event) -> Self {
        Self {
            kind: if event.warning { "Warning" } else { "Normal" },
            reason: event.reason,
            message: event.message,
        }
    }
}

impl<'a> Answer<'a> {
    fn new(request: &'a Request, kind: Kind, outcome: &'a Outcome, took: Duration) -> Self {
        Self {
            verdict: verdict(outcome),
            handler: request.handler.field(),
            target: &request.target,
            output: &outcome.output,
            error: outcome.error.as_deref(),
            event: Event::of(kind, outcome).map(EventJson::from),
            seconds: took.as_secs_f64(),
        }
    }

    fn code(&self) -> u8 {
        match self.verdict {
            "success" | "warning" => 0,
            "failure" => 1,
            _ => 3,
        }
    }

    /// `VERDICT in TIME: TEXT`, where the text is that of the event if there is one.
    fn text(&self) -> String {
        let time = took(Duration::from_secs_f64(self.seconds));
        let text = match &self.event {
            Some(event) => clean(event.message.trim_end()),
            None if self.output.is_empty() => clean(self.target),
            None => format!("{}: {}", clean(self.target), clean(self.output.trim_end())),
        };
        format!("{} in {time}: {text}", self.verdict)
    }
}

/// `success`, `warning`, `failure`, `unknown`; `error` when the attempt counts for nothing.
pub(super) fn verdict(outcome: &Outcome) -> &'static str {
    match (&outcome.error, outcome.verdict) {
        (Some(_), _) => "error",
        (None, Verdict::Success) => "success",
        (None, Verdict::Warning) => "warning",
        (None, Verdict::Failure) => "failure",
        (None, Verdict::Unknown) => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn request() -> Request {
        Request {
            handler: Handler::Exec { command: Vec::new() },
            address: None,
            extras: Extras::default(),
            compat: Compat::Kubelet,
            target: "true".to_owned(),
        }
    }

    #[test]
    fn an_answer_is_told_in_one_line_with_the_text_of_the_event() {
        for (outcome, code, wanted) in [
            (Outcome::success("ok\n"), 0, "success in 2.0 ms: true: ok"),
            (Outcome::success(""), 0, "success in 2.0 ms: true"),
            (
                Outcome::warning("Probe terminated redirects"),
                0,
                "warning in 2.0 ms: Liveness probe warning: Probe terminated redirects",
            ),
            (
                Outcome::failure("a\x1b[31m\nb"),
                1,
                "failure in 2.0 ms: Liveness probe failed: a\\u{1b}[31m\\nb",
            ),
            (
                Outcome::error(Verdict::Unknown, "no such file"),
                3,
                "error in 2.0 ms: Liveness probe errored and resulted in unknown state: no such file",
            ),
        ] {
            let request = request();
            let answer = Answer::new(&request, Kind::Liveness, &outcome, Duration::from_millis(2));
            assert_eq!((answer.text().as_str(), answer.code()), (wanted, code));
        }
    }

    #[tokio::test]
    async fn of_several_addresses_the_one_that_accepts_is_probed() {
        let listening = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listening.local_addr().unwrap();
        let ended = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = ended.local_addr().unwrap();
        drop(ended);
        for (found, wanted) in [
            (vec![closed, open], Some(open)),
            (vec![closed, closed], Some(closed)),
            (vec![closed], Some(closed)),
            (vec![], None),
        ] {
            assert_eq!(which(&found).await, wanted, "{found:?}");
        }
    }

    #[test]
    fn programs_get_everything_unescaped() {
        let outcome = Outcome::failure("a\nb");
        let request = request();
        let answer = Answer::new(&request, Kind::Startup, &outcome, Duration::from_millis(2));
        let json = serde_json::to_value(&answer).unwrap();
        let wanted = serde_json::json!({
            "verdict": "failure", "handler": "exec", "target": "true", "output": "a\nb", "seconds": 0.002,
            "event": {"type": "Warning", "reason": "Unhealthy", "message": "Startup probe failed: a\nb"},
        });
        assert_eq!(json, wanted);
    }
}
