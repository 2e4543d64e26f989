//! A stand-in for two stock controllers of kube-controller-manager 1.36: node lifecycle and taint eviction.
//!
//! Same flags, taints, conditions, reasons, events and timing, known defects included: it is what Evenkeel is
//! compared with in the lab, where no controller manager runs. It writes as user
//! `system:serviceaccount:kube-system:node-controller`, so that the webhook corrects it as it corrects the
//! original.
//!
//! | module | what it holds |
//! |---|---|
//! | [`args`] | the flags |
//! | [`process`] | the process: watches, workers, writes |
//!
//! Its rules are in the crate `stock-rules`.
#![allow(
    missing_docs,
    reason = "a stand-in for the lab, no library: names say what most fields are"
)]

pub mod args;
mod cache;
mod eviction_worker;
mod lifecycle_worker;
mod metrics;
pub mod process;
mod writes;

pub use args::NodeLifecycleArgs;
pub use process::{NodeLifecycleError, run};
