//! Zones alone: agents with the shipping engine, the API server with reports and Leases, and a reader with
//! the shipping book of verdicts. There are no kubelets that write, no pods, planners and stock controllers,
//! so a run of thousands of nodes takes seconds. Network, clocks, faults, scripts and the model of an agent's
//! shell are those of the whole system.
//!
//! | module | what it holds |
//! |---|---|
//! | `reader` | what a reader concludes from reports, and what is promised about that |
//! | `rosters` | what the controller writes: rosters, and whom rounds are wanted about |
//! | [`rules`] | deliberately broken rules, which tests play to see that they are caught |
//! | [`measured`] | runs that measure |

pub mod measured;
mod reader;
mod rosters;
pub mod rules;

pub(crate) use reader::Reader;
pub use rules::Rules;
