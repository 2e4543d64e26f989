//! The pure prober: specifications, status, outcomes and times go in; attempts and what is published come out.

mod attempt;
mod back_off;
pub mod engine;
mod outcome;
mod pod;
mod restart;
mod spec;
mod worker;

pub use attempt::{Attempt, Event, Key, Target};
pub use back_off::{BackOff, LEAST_GRACE, kill_grace};
pub use outcome::{Outcome, Reading, Verdict};
pub use pod::{
    Container, ContainerState, ContainerStatus, Phase, Pod, PodStatus, RestartAction, RestartPolicy,
    RestartRule, Role,
};
pub use restart::{all_restart, runs_again, runs_again_when_killed};
pub use spec::{Extras, Handler, HttpGet, Kind, Port, Probe, Scheme, Tls, Window};
pub use worker::{Compat, Now, Policy, Settled, Step, Worker, World};
