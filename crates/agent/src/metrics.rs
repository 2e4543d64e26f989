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
        pub(crate) received: Counter = "datagrams_received", "Datagrams received, those that are refused among them";
        pub(crate) sent: Counter = "datagrams_sent", "Datagrams sent to other agents";
        pub(crate) sent_bytes: Counter = "datagram_bytes_sent", "Bytes of datagrams sent, without the headers of IP and UDP";
        pub(crate) send_errors: Counter = "datagram_send_errors", "Datagrams that the system did not send, as when there is no route";
        pub(crate) refused: Family<Reason, Counter> = "datagrams_refused", "Datagrams that were thrown away, by reason";
        pub(crate) checks: Family<Result, Counter> = "checks", "Checks of silent nodes that this agent made before it voted";
        pub(crate) lacking: Gauge =
            "check_plugins_lacking", "Plugins of --check that this agent cannot run; its log and spec.checkProblem of its AgentStatus say why";
        pub(crate) rounds: Family<Result, Counter> =
            "confirm_rounds", "Votes that this agent counted and that changed the verdict on a node, by outcome";
        pub(crate) reports: Family<Result, Counter> = "reports", "Reports of the votes (ZoneReport) that this agent wrote, or could not write";
        pub(crate) link_proofs: Family<Result, Counter> =
            "link_proofs", "Writes of AgentStatus by which this agent proves that it reaches the API server";
        pub(crate) members: Gauge = "zone_members", "Members of the agent's cell, this agent among them; 0 while it is in no roster";
        pub(crate) kept_out: Gauge =
            "kept_out", "1 while labels keep the node out of every roster, so that this agent has nothing to do";
        pub(crate) within_reach: Gauge = "zone_members_within_reach", "Members that this agent watches and has heard of lately";
        pub(crate) carried: Gauge = "carried_cells", "Other cells for which this agent writes reports, because none of their members reaches the API server";
        pub(crate) leading: Gauge = "zone_leading", "1 while this agent holds the Lease of its cell, which keeps reporters from writing the same twice";
    }
}

impl Metrics {
    pub(crate) fn register(admin: &Admin) -> Self {
        let metrics = Self::default();
        admin.register(|registry| metrics.register_in(registry.sub_registry_with_prefix("evenkeel_agent")));
        metrics
    }
}
