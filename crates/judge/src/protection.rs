//! What the webhook keeps from the stock controllers: a projection of the decision, and nothing of its own.

use crate::decide::Decision;
use crate::evidence::Timing;
use crate::policy::Settings;
use crate::sight::View;
use crate::state::{Dead, NodeState};
use evenkeel_api::policy::{EndpointsPolicy, ModePolicy};
use evenkeel_zone::Millis;

/// What is kept from the stock controllers on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// The NoExecute taint `unreachable` is stripped, so that no pod is evicted.
    pub evictions: bool,
    /// Pods keep their readiness, and endpoints stay ready.
    pub readiness: bool,
}

/// What a decision protects. In mode `observe`, and where nothing can be seen, it protects nothing.
pub fn protection(decision: &Decision, settings: &Settings, timing: &Timing, now: Millis) -> Protection {
    if settings.mode == ModePolicy::Observe || decision.view == View::Lost {
        return Protection::default();
    }
    let within = |since: Millis, limit: u64| now.since(since) < limit;
    match decision.state() {
        NodeState::Disconnected => Protection {
            evictions: true,
            readiness: settings.endpoints == EndpointsPolicy::Keep,
        },
        NodeState::Dark => {
            let autonomy = u64::try_from(settings.autonomy_seconds).unwrap_or_default();
            Protection {
                evictions: within(decision.memory.since, autonomy.saturating_mul(1000)),
                // Nobody vouches for what endpoints would promise (hazard 18).
                readiness: false,
            }
        }
        // Not confirmed: nothing irreversible before the time at which stock Kubernetes would begin (hazard
        // 58).
        NodeState::Dead(Dead::Announced | Dead::AtStockPace | Dead::Paused) => Protection {
            evictions: decision
                .memory
                .silent_from()
                .is_some_and(|life| within(life, timing.stock_grace + timing.patience)),
            readiness: false,
        },
        NodeState::Dead(Dead::Confirmed)
        | NodeState::Healthy
        | NodeState::KubeletDown
        | NodeState::Isolated
        | NodeState::Unknown => Protection::default(),
    }
}

#[cfg(test)]
#[path = "protection_tests.rs"]
mod tests;
