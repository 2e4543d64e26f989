//! What becomes of a node that went silent: decided by the zone's verdict, carried out step by step.
//!
//! | module | what it holds |
//! |---|---|
//! | [`core`] | **pure**: the decision table, policies, rosters, the storm guard, and the planner |
//! | [`controller`] | the process: watches, election, writes, Events, metrics; the webhook runs beside it |
//! | [`stock`] | a stand-in for the stock node lifecycle and taint eviction controllers |
//!
//! ```
//! use evenkeel_failover::core::evidence::{Evidence, Life, Reporting, Timing, WatchProof, ZoneEvidence};
//! use evenkeel_failover::core::state::{Dead, Memory, NodeState, decide};
//! use evenkeel_zone::{Millis, verdict::Verdict};
//!
//! // Renewed at 10 s, voted dead in a round that began at 14 s, looked at 15 s after the renewal.
//! let mut watch = WatchProof::default();
//! (0..=25).for_each(|second| watch.progress(Millis(second * 1000)));
//! let life = Life { first_seen: Some(Millis(0)), renewed: Some(Millis(10_000)), stock_mark: None };
//! let evidence = Evidence {
//!     life,
//!     watch,
//!     verdict: Verdict::Dead { round_began: Millis(14_000) },
//!     zone: ZoneEvidence { reporting: Reporting::Talking, some_member_fresh: true },
//!     one_short: None,
//!     agent_write: None,
//! };
//! let decision = decide(&evidence, &Memory::default(), &Timing::default(), Millis(25_000));
//! assert_eq!(decision.memory.state, NodeState::Dead(Dead::Confirmed));
//! ```

pub mod controller;
pub mod core;
pub mod stock;

pub use controller::{ControllerArgs, ControllerError, run};
