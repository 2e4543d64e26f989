//! gRPC health checks (`grpc.health.v1`).
//!
//! In kubelet mode a connection that cannot be made is tried again until the time is over, as grpc-go does
//! beneath a kubelet, so that its failure is always a timeout. In strict mode the first failure is the
//! answer, with its reason.
//!
//! A probe starts no tasks: its connection lives and ends with its future. The peer can send what it likes:
//! header lists are bounded by 64 KiB, messages by 64 KiB, everything by the timeout. The connection is
//! closed by a reset (linger of zero), which leaves nothing in TIME_WAIT.

mod connection;

use crate::core::{Compat, Outcome, Probe, Target};
use connection::{Attempted, Connection};
use evenkeel_probe_handlers::{Go, wording};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::{Code, Status};
use tonic_health::pb::health_check_response::ServingStatus;

/// Waits between attempts to connect: grpc-go's back-off, without its jitter.
const BACKOFF: Duration = Duration::from_secs(1);
/// What each wait is multiplied by to make the next.
const BACKOFF_FACTOR: f64 = 1.6;
/// Longest wait between attempts to connect.
const BACKOFF_CAP: Duration = Duration::from_secs(120);
/// Longest timeout that is kept, so that a deadline can always be computed.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Asks for the health of `service`. Never an error: what goes wrong is a failure, as with the kubelet. A
/// target without an address fails at once, with the text that a kubelet has a timeout later.
pub async fn probe(port: u16, service: &str, target: &Target, probe: &Probe, compat: Compat) -> Outcome {
    let timeout = Go(probe.timeout);
    let late = |address: &str| {
        format!(
            "timeout: failed to connect service \"{address}\" within {timeout}: context deadline exceeded"
        )
    };
    let Some(address) = target.address else {
        return Outcome::failure(late(&format!(":{port}")));
    };
    let address = SocketAddr::new(address, port);
    let deadline = Instant::now() + probe.timeout.min(LONGEST);
    let tls = match (compat, probe.extras.grpc_tls) {
        (Compat::Strict, true) => Some(&probe.extras.tls),
        _ => None,
    };
    let connection = Connection::new(address, target.source, tls);
    let attempts = async {
        let mut pause = BACKOFF;
        loop {
            match Box::pin(connection.check(service, deadline)).await {
                Attempted::Answered(status) => return of_answer(status, timeout),
                Attempted::NotConnected(why) if compat == Compat::Strict => {
                    return failure(cannot_connect(address, &why));
                }
                Attempted::NotConnected(why) => {
                    tracing::debug!(%address, why, "no connection for a gRPC probe yet");
                }
            }
            sleep(pause).await;
            pause = pause.mul_f64(BACKOFF_FACTOR).min(BACKOFF_CAP);
        }
    };
    tokio::select! {
        // The deadline first: an answer that comes with it, such as the peer's own word that time is over, is
        // late.
        biased;
        () = sleep_until(deadline) => failure(if connection.is_open() {
            format!("timeout: health rpc did not complete within {timeout}")
        } else {
            late(&address.to_string())
        }),
        outcome = attempts => outcome,
    }
}

fn cannot_connect(address: SocketAddr, why: &str) -> String {
    format!("error: failed to connect service at \"{address}\": {why}")
}

fn of_answer(answer: Result<i32, Status>, timeout: Go) -> Outcome {
    let status = match answer {
        Ok(serving) if serving == ServingStatus::Serving as i32 => {
            return Outcome::success("service healthy");
        }
        Ok(other) => {
            let name = ServingStatus::try_from(other)
                .map_or_else(|_| other.to_string(), |status| status.as_str_name().to_owned());
            return failure(format!("service unhealthy (responded with \"{name}\")"));
        }
        Err(status) => status,
    };
    failure(match status.code() {
        Code::Unimplemented => format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            status.message()
        ),
        Code::DeadlineExceeded => format!("timeout: health rpc did not complete within {timeout}"),
        code => {
            // A status with a source was not sent by the peer: the connection broke, or what came is no gRPC.
            let error = match std::error::Error::source(&status) {
                Some(source) => rpc_error(Code::Unavailable, &evenkeel_net::log::causes(source)),
                None => rpc_error(code, status.message()),
            };
            format!("error: health rpc probe failed: {error}")
        }
    })
}

/// An error of a call as Go shows it.
pub(super) fn rpc_error(code: Code, message: &str) -> String {
    match code {
        Code::Cancelled => format!("rpc error: code = Canceled desc = {message}"),
        other => format!("rpc error: code = {other:?} desc = {message}"),
    }
}

/// A failure whose text is bounded: a peer's message can be as long as its headers.
fn failure(mut text: String) -> Outcome {
    wording::cut(&mut text, Outcome::OUTPUT);
    Outcome::failure(text)
}

#[cfg(test)]
mod tests;
