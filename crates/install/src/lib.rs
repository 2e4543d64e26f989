//! What Evenkeel is on a cluster, and how it gets there and away again.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@objects`] | **pure**: every object of an installation, made of the files under `deploy/` |
//! | [`manifest`] | **pure**: YAML documents in and out |
//! | `command`, `settings` | the commands and their flags (feature `cli`, like all that follow) |
//! | `preflight` | what has to hold before anything is changed |
//! | `install`, `uninstall` | what the commands do, step by step |
//! | `rollout` | **pure**: how far the workloads are |
//! | `debts` | **pure**: what Evenkeel has put on nodes |
//! | `roster` | the key that signs rosters |
//! | `doctor` | what is wrong with a cluster or an installation |
//! | `cluster` | objects by kind and name, on an API server |

#[cfg(feature = "cli")]
mod cluster;
#[cfg(feature = "cli")]
pub mod command;
#[cfg(feature = "cli")]
mod debts;
#[cfg(feature = "cli")]
pub mod doctor;
#[cfg(feature = "cli")]
mod error;
#[cfg(feature = "cli")]
mod install;
pub mod manifest;
pub mod objects;
#[cfg(feature = "cli")]
mod preflight;
#[cfg(feature = "cli")]
mod rollout;
#[cfg(feature = "cli")]
mod roster;
#[cfg(feature = "cli")]
pub mod settings;
#[cfg(feature = "cli")]
#[cfg(test)]
mod steps_tests;
#[cfg(feature = "cli")]
mod uninstall;

#[cfg(feature = "cli")]
pub use error::InstallError;
#[cfg(feature = "cli")]
pub use install::install;
pub use objects::{Options, objects};
#[cfg(feature = "cli")]
pub use uninstall::uninstall;
