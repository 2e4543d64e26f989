//! The cluster around the API server: those controllers and kubelets that failover needs.
//!
//! Every controller is a pure function of a [`view::Snapshot`] and a time that returns [`action::Action`]s;
//! the shell runs it on change, executes what it says, and waits until its own writes are visible before it
//! asks again.

pub mod action;
pub mod controllers;
pub mod kubelet;
pub mod native;
pub mod view;
