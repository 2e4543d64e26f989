//! Virtual nodes: a virtual kubelet framework that holds ten thousand of them in one process.
//!
//! A [`Provider`] runs containers somewhere; everything else that a kubelet does is done here: nodes are registered and
//! kept alive, pods are driven through init containers, sidecars, restarts and probes, status is reported by the
//! kubelet's rules, and the kubelet's HTTP API is served over TLS.
//!
//! | module | what it holds |
//! |---|---|
//! | [`core`] | **pure** rules: a pod's life, its status, environment, a node's life, its Lease |
//! | [`provider`] | what a provider is asked, and what it tells |
//! | [`node`] | registration, Lease, status and serving address of one node |
//! | [`objects`] | ConfigMaps, Secrets, Services and tokens that pods refer to |
//! | [`ownership`] | which replica serves which node |

pub mod core;
pub mod node;
pub mod objects;
pub mod ownership;
pub mod provider;

pub use provider::Provider;
