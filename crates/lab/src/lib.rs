//! The lab: a zone of simulated nodes with real agents around an embedded API server, and faults on demand.
//!
//! | module | what it holds |
//! |---|---|
//! | [`command`] | `evenkeel lab`: its flags, and what each command does |
//! | [`running`] | a running lab, started in order and stopped in order |
//! | [`switch`] | the network: every packet between nodes, or between a node and the cloud, crosses it |
//! | [`cluster`] | workload controllers, and the nodes' kubelets |
//! | [`join`] | a control plane that is not the lab's own: checks, certificates, removal |
//! | [`supervise`] | agents, controller and stand-in as child processes that never outlive the lab |
//! | [`directory`] | the lab's directory: one lab at a time, files that only their owner reads |
//! | [`control`] | orders to a running lab over a Unix socket |
//! | [`observe`] | what happened: every change with its time |
//! | [`scenario`] | **pure** scenarios as data, and the judging of their assertions |
//! | [`play`], [`report`] | playing a scenario; the table and the JSON at its end |
#![allow(
    missing_docs,
    reason = "the lab is a program, no library: names say what most fields are"
)]

pub mod cluster;
pub mod command;
pub mod console;
pub mod control;
pub mod directory;
pub mod join;
mod kubeconfig;
pub mod observe;
pub mod play;
pub mod report;
pub mod running;
pub mod scenario;
pub mod supervise;
pub mod switch;

pub use command::{LabArgs, LabError, Outcome, run};
pub use supervise::stop_with_parent;

/// What a user could deploy: a Deployment of six with its Service, and a StatefulSet of three.
pub const SAMPLE: &str = include_str!("../manifests/sample.yaml");
