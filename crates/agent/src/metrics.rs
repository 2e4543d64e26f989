//! Numbers of an agent. Memory is among the process's own metrics.

use evenkeel_net::admin::Admin;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Why a datagram was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Reason {
    pub(crate) reason: &'static str,
}

/// What a report said of a node, or what became of a write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Result {
    pub(crate) result: &'static str,
}

evenkeel_net::metrics! {
    /// All of them. Cheap to clone.
    pub(crate) struct Metrics {
        pub(crate) received: Counter = "datagrams_received", "Datagrams received";
        pub(crate) sent: Counter = "datagrams_sent", "Datagrams sent";
        pub(crate) sent_bytes: Counter = "datagram_bytes_sent", "Bytes of datagrams sent, without headers";
        pub(crate) send_errors: Counter = "datagram_send_errors", "Datagrams that could not be sent";
        pub(crate) refused: Family<Reason, Counter> = "datagrams_refused", "Datagrams refused, by reason";
        pub(crate) checks: Family<Result, Counter> = "checks", "Checks of suspects, by result";
        pub(crate) lacking: Gauge =
            "check_plugins_lacking", "Plugins of --check that this agent cannot run; its log says why";
        pub(crate) rounds: Family<Result, Counter> =
            "confirm_rounds", "Confirm rounds that changed a verdict, by outcome";
        pub(crate) reports: Family<Result, Counter> = "reports", "Writes of ZoneReport, by result";
        pub(crate) link_proofs: Family<Result, Counter> =
            "link_proofs", "Writes of AgentStatus that prove the link to the API server, by result";
        pub(crate) members: Gauge = "zone_members", "Members of the roster";
        pub(crate) within_reach: Gauge = "zone_members_within_reach", "Watched members with recent contact";
        pub(crate) carried: Gauge = "carried_cells", "Cells without a link for which this agent writes";
        pub(crate) leading: Gauge = "zone_leading", "1 while this agent holds the zone's Lease";
    }
}

impl Metrics {
    pub(crate) fn register(admin: &Admin) -> Self {
        let metrics = Self::default();
        admin.register(|registry| metrics.register_in(registry.sub_registry_with_prefix("evenkeel_agent")));
        metrics
    }
}
