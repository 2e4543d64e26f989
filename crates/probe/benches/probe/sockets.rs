//! Sockets that probes leave in TIME_WAIT.

use crate::load::run;
use crate::pods::{grpc, http, tcp};
use crate::server::Servers;
use crate::table::Table;
use std::time::Duration;

const PROBES: usize = 10_000;
/// As in Linux' `tcp_states.h`.
const TIME_WAIT: &str = "06";

pub(crate) fn left(servers: &Servers, table: &mut Table) {
    for (name, handler, port) in [
        ("HTTP", http(servers.http), servers.http),
        ("TCP", tcp(servers.tcp), servers.tcp),
        ("gRPC", grpc(servers.grpc), servers.grpc),
    ] {
        let before = waiting(port);
        assert_eq!(run(&handler, Duration::from_secs(60), PROBES), PROBES, "{name}");
        // Closing goes on for a moment after the last probe has ended.
        std::thread::sleep(Duration::from_millis(200));
        let left = waiting(port).saturating_sub(before);
        table.below(
            &format!("sockets in TIME_WAIT after {PROBES} {name} probes"),
            left as f64,
            Some(100.0),
            "",
        );
    }
}

/// Sockets in TIME_WAIT with this port on either side.
fn waiting(port: u16) -> usize {
    let port = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (local, remote, state) = (words.next(), words.next(), words.next());
            state == Some(TIME_WAIT)
                && [local, remote]
                    .iter()
                    .flatten()
                    .any(|address| address.ends_with(&port))
        })
        .count()
}
