//! Values as Kubernetes writes them, for anybody who has the text and no Kubernetes client. Without features
//! it needs no other crate.
//!
//! | module | what it holds |
//! |---|---|
//! | [`quantity`] | `resource.Quantity`: `100m`, `1.5Gi` |
//! | [`duration`] | durations as Go reads and writes them, `1m30s`, and ages as kubectl does |
//! | [`names`] | the syntax of names and labels |
//! | [`qos`] | the quality of service of a pod |
//! | `terminal` | with the feature `terminal`: strangers' text made harmless, and tables |
//!
//! ```
//! use evenkeel_kube_values::{Go, Quantity, duration};
//!
//! assert_eq!(Quantity::parse("1024Mi"), Quantity::parse("1Gi"));
//! assert_eq!(Go(duration::parse("90s").unwrap()).to_string(), "1m30s");
//! ```

pub mod duration;
pub mod names;
pub mod qos;
pub mod quantity;
#[cfg(feature = "terminal")]
pub mod terminal;

pub use duration::Go;
pub use quantity::Quantity;
