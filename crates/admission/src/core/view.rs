//! What the webhook answers from: a snapshot of the nodes that are only disconnected.

use super::PassReason;
use evenkeel_api::crd::EndpointsPolicy;
use evenkeel_zone::Millis;
use std::collections::BTreeMap;

/// A view older than this is not acted upon (hazard 20): whoever refreshes it has stopped. Refreshed twice a second.
pub const VIEW_TTL_MS: u64 = 2_000;

/// The Disconnected nodes at one instant. The default knows nothing and lets everything pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// When this was made; `None` before the first complete look at the cluster.
    pub made_at: Option<Millis>,
    /// By node name. Nodes that are not here are none of the webhook's business.
    pub nodes: BTreeMap<String, Disconnected>,
}

/// A node that a majority of its peers vouches for while its own agent reports the cloud link down.
#[derive(Clone, Debug, PartialEq)]
pub struct Disconnected {
    /// UID of the Node: a machine that was registered again is another node.
    pub uid: String,
    /// Its Lease is known to be stale (`core::lease`). Needed where the write itself does not prove it: the stock
    /// node controller's writes do, the endpoint controllers' do not.
    pub lease_stale: bool,
    /// Before the silence its own kubelet said Ready=False: what is marked then is marked for good reason.
    pub says_not_ready: bool,
    /// What the policies say of its endpoints.
    pub endpoints: EndpointsPolicy,
}

impl Disconnected {
    /// Whether readiness is kept on this node at all; if not, why.
    pub(super) fn may_keep(&self) -> Result<(), PassReason> {
        if self.says_not_ready {
            return Err(PassReason::NotDisconnected);
        }
        if self.keeps_endpoints() {
            Ok(())
        } else {
            Err(PassReason::Policy)
        }
    }

    /// Whether its addresses stay ready. `keep-local` keeps them for everybody too: restricting them to consumers
    /// in the zone takes hints on *all* endpoints of a Service, which are their owner's to set.
    pub fn keeps_endpoints(&self) -> bool {
        match self.endpoints {
            EndpointsPolicy::Keep | EndpointsPolicy::KeepLocal => true,
            EndpointsPolicy::Stock => false,
        }
    }
}

impl View {
    /// Whether the view may be acted upon at `now`.
    pub fn is_live(&self, now: Millis) -> bool {
        self.made_at
            .is_some_and(|made_at| now.since(made_at) <= VIEW_TTL_MS)
    }
}
