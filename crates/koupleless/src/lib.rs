//! Koupleless modules as pods: each base (a JVM that runs modules) is a virtual node, each module a container
//! on it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`core`] | **pure** rules: names, profiles, bases and their lives, modules of a pod, claims, healing, peers, baselines |
//! | [`discovery`] | how bases are found, and when they are held to be gone |
//! | [`provider`] | modules as containers: what the virtual nodes ask, asked of bases |
//! | [`heal`] | carries out the healing of bases that run out of metaspace |
//! | [`peer`] | sets replicas of peer Deployments to the number of bases |
//! | [`baseline`] | answers bases that (re)start with the modules of their cluster |
//! | [`alert`] | notifies people by webhooks |
//!
//! With the feature `cli` there are `cli`, the flags of `evenkeel vnode --provider koupleless`, and
//! `process`, which joins all of this.
#![allow(
    missing_docs,
    reason = "a provider for the program alone: names say what most fields are"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "shells own clocks, tasks and randomness; the core below is checked"
)]

pub mod alert;
pub mod baseline;
#[cfg(feature = "cli")]
pub mod cli;
#[warn(clippy::disallowed_methods)]
pub mod core;
pub mod discovery;
mod events;
pub mod heal;
#[cfg(feature = "cli")]
mod metrics;
pub mod peer;
mod pods;
#[cfg(feature = "cli")]
pub mod process;
pub mod provider;
