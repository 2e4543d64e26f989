//! Virtual nodes: a virtual kubelet framework that holds ten thousand of them in one process.
//!
//! A [`Provider`] runs containers somewhere; everything else that a kubelet does is done here: nodes are
//! registered and kept alive, pods are driven through init containers, sidecars, restarts and probes,
//! status is reported by the kubelet's rules, and the kubelet's HTTP API (`evenkeel-kubelet-api`) is served
//! over TLS where that is wanted.
//!
//! | module | what it holds |
//! |---|---|
//! | [`core`] | **pure** rules: a pod's life, its status, environment, a node's life, its Lease |
//! | [`provider`] | what is requested of a provider, and what it reports |
//! | [`fleet`] | many nodes in one process: one watch, one timer wheel, one actor per node |
//! | [`node`] | registration, Lease, status and serving address of one node |
//! | [`pods`] | the pods of one node: the actor that carries out what [`core::pod`] decides |
//! | [`objects`] | ConfigMaps, Secrets, Services and tokens that pods refer to |
//! | [`ownership`] | which replica serves which node |
//!
//! # Using this crate alone
//! A [`Provider`] has seven methods that must be written; the others have an answer that suits a provider
//! without the ability in question. Without features there is no server, no gRPC and no command line in
//! what this crate needs.
//! `interop/outside/virtual-node` is a whole program.
//!
//! | feature | what it adds |
//! |---|---|
//! | `kubelet-server` | the kubelet's HTTP API of the nodes, by `evenkeel_kubelet_api::kubelet` |
//! | `grpc` | probes by gRPC; without it such a probe comes out as *unknown*, with that reason |
//! | `cli` | what the command `evenkeel vnode` is made of, and all of the above |
//!
//! `evenkeel-vnode-simulated` is a provider without containers, for tests and the lab; `evenkeel-koupleless`
//! runs modules in bases.
#![allow(
    clippy::disallowed_methods,
    reason = "shells own clocks, tasks and randomness; the core below is checked"
)]

// The library's own tests share a provider with those of its users, who call it by its name.
#[cfg(test)]
extern crate self as evenkeel_vnode;

#[cfg(feature = "cli")]
pub mod cli;
#[warn(clippy::disallowed_methods)]
pub mod core;
pub mod fleet;
pub mod node;
pub mod objects;
pub mod ownership;
pub mod pods;
pub mod provider;

pub use fleet::{Fleet, Options};
pub use provider::Provider;
