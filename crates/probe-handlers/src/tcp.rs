//! TCP probes.

use super::dial::Destination;
use super::port;
use crate::{Outcome, Port, Target, Verdict};
use std::time::Duration;

/// Opens a connection and closes it; nothing is sent. A connection that cannot be opened is a failure, a port
/// that cannot be one is an error.
pub async fn probe(host: Option<&str>, port: &Port, target: &Target, timeout: Duration) -> Outcome {
    let port = match port::resolve(port, &target.container) {
        Ok(port) => port,
        Err(error) => return Outcome::error(Verdict::Unknown, error),
    };
    let destination = match (host.filter(|host| !host.is_empty()), target.address) {
        (Some(host), _) => Destination::new(host, port),
        (None, Some(address)) => Destination::Address((address, port).into()),
        // Go dials the machine itself then, whose open port says nothing about the pod.
        (None, None) => return Outcome::failure(format!("dial tcp :{port}: the pod has no address yet")),
    };
    match tokio::time::timeout(timeout, destination.open(target.source, timeout)).await {
        Ok(Ok(_connection)) => Outcome::success(""),
        Ok(Err(error)) => Outcome::failure(error),
        Err(_) => Outcome::failure(destination.timed_out()),
    }
}

#[cfg(test)]
mod tests;
