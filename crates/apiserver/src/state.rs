//! What every request of one server shares.

use crate::access::Access;
use crate::allocator::Allocator;
use crate::kinds::Registry;
use crate::kubelet::Kubelets;
use crate::kubelet::measure::Measurements;
use crate::lifetime::Lifetime;
use crate::options::Options;
use crate::signing::controller::{Controllers, State};
use crate::store::Store;
use crate::traffic::Traffic;
use evenkeel_net::admin::Admin;
use evenkeel_net::pki::Ca;
use std::sync::Arc;

/// What every request of one server shares.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) registry: Arc<Registry>,
    pub(crate) store: Store,
    pub(crate) access: Access,
    pub(crate) services: Allocator,
    pub(crate) ca: Ca,
    pub(crate) admin: Admin,
    pub(crate) kubelets: Arc<Kubelets>,
    pub(crate) usage: Arc<Measurements>,
    pub(crate) signing: State,
    pub(crate) lifetime: Lifetime,
    /// Of a server for tests alone.
    pub(crate) traffic: Option<Traffic>,
}

impl Shared {
    /// The controllers of certificate signing requests.
    pub(crate) fn signers(&self) -> Controllers<'_> {
        Controllers {
            store: &self.store,
            authorizer: &self.access.authorizer,
            ca: &self.ca,
            state: &self.signing,
            approve_kubelet_serving: self.options.approve_kubelet_serving,
            loopback_is_of_nodes: self.options.kubelet.proxy_to_any_address,
        }
    }
}
