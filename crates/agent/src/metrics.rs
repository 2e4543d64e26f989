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

/// All of them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) send_errors: Counter,
    pub(crate) refused: Family<Reason, Counter>,
    pub(crate) checks: Family<Result, Counter>,
    pub(crate) rounds: Family<Result, Counter>,
    pub(crate) reports: Family<Result, Counter>,
    pub(crate) link_proofs: Family<Result, Counter>,
    pub(crate) members: Gauge,
    pub(crate) within_reach: Gauge,
    pub(crate) leading: Gauge,
}

impl Metrics {
    pub(crate) fn register(admin: &Admin) -> Self {
        let metrics = Self::default();
        admin.register(|registry| {
            let all = registry.sub_registry_with_prefix("evenkeel_agent");
            all.register(
                "datagrams_received",
                "Datagrams received",
                metrics.received.clone(),
            );
            all.register("datagrams_sent", "Datagrams sent", metrics.sent.clone());
            all.register(
                "datagram_bytes_sent",
                "Bytes of datagrams sent, without headers",
                metrics.sent_bytes.clone(),
            );
            all.register(
                "datagram_send_errors",
                "Datagrams that could not be sent",
                metrics.send_errors.clone(),
            );
            all.register(
                "datagrams_refused",
                "Datagrams refused, by reason",
                metrics.refused.clone(),
            );
            all.register("checks", "Checks of suspects, by result", metrics.checks.clone());
            all.register(
                "confirm_rounds",
                "Confirm rounds that changed a verdict, by outcome",
                metrics.rounds.clone(),
            );
            all.register(
                "reports",
                "Writes of ZoneHealth, by result",
                metrics.reports.clone(),
            );
            all.register(
                "link_proofs",
                "Writes of AgentStatus that prove the link to the API server, by result",
                metrics.link_proofs.clone(),
            );
            all.register("zone_members", "Members of the roster", metrics.members.clone());
            all.register(
                "zone_members_within_reach",
                "Watched members with recent contact",
                metrics.within_reach.clone(),
            );
            all.register(
                "zone_leading",
                "1 while this agent holds the zone's Lease",
                metrics.leading.clone(),
            );
        });
        metrics
    }
}
