//! A deterministic simulator of the whole system.
//!
//! It drives the shipping cores: zone engines, the controller's World with its judge, planner and webhook
//! core, and the rules of the stock controllers. Around them stand small models of kubelets, agents' shells,
//! two controller replicas and the API server. Time is virtual; one seed decides everything, and the same
//! seed plays the same run.
//!
//! | module | what it holds |
//! |---|---|
//! | [`script`], [`groups`] | scenarios as data, and how a seed becomes one |
//! | `sim`, `event`, `queue` | the run and its queue of events |
//! | `network`, `faults`, `clock` | links between nodes, what a step of a script does, clocks of machines |
//! | `machine`, `agent`, `kubelet` | a node |
//! | [`malice`], `hostile` | a member that breaks the rules |
//! | `cells` | the cells of zones, as a run begins with them |
//! | `replica`, `execute` | the controller |
//! | `stock` | the stock controllers |
//! | [`api`], `serve`, `watch`, `delivery` | the API server |
//! | [`promise`], [`ledger`], `found` | what is promised, what happened, and which promise was broken |
//! | [`sight`] | who can honestly find whom silent, by the script alone |
//! | [`zones`], [`measure`] | zones alone, for thousands of nodes: a reader, its promises, and numbers |
//! | [`agreement`] | whether two replicas agree |
//! | [`run`](mod@run) | playing a script, and making a failing one small |
//!
//! ```
//! use evenkeel_sim::{Group, run};
//!
//! let outcome = run::run(Group::PowerOff, 1);
//! println!("{:?}", outcome.broken);
//! ```
#![allow(
    missing_docs,
    reason = "a simulator for this tree alone, no library: names say what most fields are"
)]

mod agent;
pub mod agreement;
pub mod api;
mod candidate;
mod carrying;
mod cells;
mod clock;
mod delivery;
mod event;
mod execute;
mod faults;
mod follow;
mod found;
pub mod groups;
mod hostile;
mod kubelet;
pub mod ledger;
mod leftovers;
mod machine;
pub mod malice;
pub mod measure;
mod network;
pub mod promise;
mod queue;
mod replica;
pub mod rng;
pub mod run;
pub mod script;
mod serve;
pub mod sight;
mod sim;
mod stock;
mod trace;
mod uncarried;
mod votes;
mod watch;
pub mod zones;

pub use malice::Malice;
pub use run::{Failure, Outcome};
pub use script::{Fault, Group, Level, Script, Step};
pub use sim::Sim;
