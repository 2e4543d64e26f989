//! The pure prober: specifications, status, outcomes and times go in; attempts and what is published come
//! out.

mod attempt;
mod back_off;
pub mod engine;
mod pod;
mod reading;
mod restart;
mod worker;

pub use attempt::{Attempt, Event, Key};
pub use back_off::{BackOff, LEAST_GRACE, kill_grace};
pub use evenkeel_probe_handlers::{
    Compat, Container, Extras, Handler, HttpGet, Kind, Outcome, Port, Probe, RestartAction, RestartPolicy,
    RestartRule, Role, Scheme, Target, Tls, Verdict, Window,
};
pub use pod::{ContainerState, ContainerStatus, Phase, Pod, PodStatus};
pub use reading::Reading;
pub use restart::{all_restart, runs_again, runs_again_when_killed};
pub use worker::{Now, Policy, Settled, Step, Worker, World};
