//! What is the matter with a node, and what may be done about it: one decision for every replica of the
//! controller, for the webhook, the simulator and `evenkeel status`.
//!
//! This crate is pure: evidence, memory, timing and a time in, a decision out. It reads no clock, knows no
//! Kubernetes client, and starts no task. Times are [`evenkeel_zone::Millis`] on one clock of the caller.
//!
//! | module | what it holds |
//! |---|---|
//! | [`sight`] | how far we can see: watches proven live, and what holds while they are not |
//! | [`evidence`] | what is known of a node; when a Lease is stale, when a zone is silent |
//! | [`state`] | the states and the reasons for them |
//! | [`memory`] | latches: what only evidence takes back |
//! | [`mod@decide`] | the decision table |
//! | [`mod@protection`] | what the webhook keeps from the stock controllers |
//! | [`policy`] | the settings of a node |
//! | [`explain`] | a decision in words |
//!
//! ```
//! use evenkeel_judge::evidence::{AgentWrites, Evidence, Life, Timing, ZoneEvidence};
//! use evenkeel_judge::{Memory, NodeState, Sight, decide};
//! use evenkeel_zone::{Millis, verdict::{Alive, Health, Link, Verdict}};
//!
//! // Last renewed at 10 s, vouched for by its peers at 35 s, looked at at 36 s.
//! let mut sight = Sight::new(Millis(0));
//! for second in 0..=36 {
//!     let now = Millis(second * 1000);
//!     sight.leases.progress(now);
//!     sight.reports.progress(now);
//!     sight.look(now);
//! }
//! let evidence = Evidence {
//!     life: Life { renewed: Some(Millis(10_000)), first_seen: Some(Millis(0)), ..Life::default() },
//!     sight,
//!     verdict: Verdict::Alive(Alive {
//!         received: Millis(35_000),
//!         until: Millis(50_000),
//!         cloud: Link::Down,
//!         kubelet: Health::Ok,
//!         runtime: Health::Ok,
//!     }),
//!     zone: ZoneEvidence::default(),
//!     agent: AgentWrites::default(),
//! };
//! let decision = decide(&evidence, &Memory::default(), &Timing::default(), Millis(36_000));
//! assert_eq!(decision.state(), NodeState::Disconnected);
//! ```

pub mod decide;
pub mod evidence;
pub mod explain;
pub mod memory;
pub mod policy;
pub mod protection;
pub mod sight;
pub mod state;

pub use decide::{Decision, decide, follow};
pub use evenkeel_api::policy::Profile;
pub use evidence::{Evidence, Timing};
pub use memory::{Latch, Memory, Recorded};
pub use policy::Settings;
pub use protection::{Protection, protection};
pub use sight::{Sight, View};
pub use state::{Dead, NodeState, Reason};
