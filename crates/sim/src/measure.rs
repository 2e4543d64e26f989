//! What runs of zones measure.

use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of an IPv4 header and a UDP header, which every datagram has.
const HEADERS: u64 = 20 + 8;

/// What one node sent since the meter was reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    pub datagrams: u64,
    /// Bytes to peers, with IP and UDP headers.
    pub bytes: u64,
    /// Requests to the API server.
    pub requests: u64,
    /// How often it began or ceased to stand for its zone's Lease.
    pub stands: u64,
}

impl Meter {
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes as u64 + HEADERS;
    }
}

/// What a run of zones showed.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// By node, since [`Window::from`] and until its end.
    pub meters: Vec<Meter>,
    /// Every time that the reader began to hold a node dead: when, and which node.
    pub deaths: Vec<(u64, usize)>,
    /// Changes of the reader's verdict by node: `dead` or not.
    pub changes: BTreeMap<usize, u64>,
    /// Size of the largest report that was written, as JSON.
    pub largest_report: usize,
    /// Agents that stand for the Lease of the first cell at the end, and how often one began or ceased to in
    /// the window.
    pub standing: usize,
    pub stands: u64,
    /// Verdicts of death on nodes that enough of their peers could reach.
    pub false_deaths: u64,
    /// Requests of all nodes to the API server in each second of the window.
    pub requests: Vec<u64>,
    /// How long the reader took for the rosters, challenges and reports of the window.
    pub reading: Duration,
}

/// When meters count, in milliseconds from the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: u64,
    pub until: u64,
}
