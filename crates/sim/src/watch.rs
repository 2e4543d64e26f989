//! Watches, one for each client and kind. A watch keeps the order of its events and has a delay of its own.

use evenkeel_failover_rules::world::Kind;

/// Somebody who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Replica(usize),
    Stock,
    /// Who reads reports in a run of zones alone.
    Reader,
}

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) client: Client,
    pub(crate) kind: Kind,
    /// Events of a former connection are void.
    pub(crate) epoch: u64,
    pub(crate) connected: bool,
    /// Open, and delivers nothing.
    pub(crate) silent: bool,
    /// Events up to this version are on their way or delivered.
    pub(crate) sent: u64,
    /// The next event is not delivered before this.
    pub(crate) not_before: u64,
    /// Everything of this version or before was delivered.
    pub(crate) delivered: u64,
    /// A complete list was delivered in this life of the client.
    pub(crate) listed: bool,
}

impl Watch {
    /// One that is not connected yet.
    pub(crate) fn new(client: Client, kind: Kind) -> Self {
        Self {
            client,
            kind,
            epoch: 0,
            connected: false,
            silent: false,
            sent: 0,
            not_before: 0,
            delivered: 0,
            listed: false,
        }
    }
}
