//! Healing of a base that runs out of metaspace: taint, drain, uninstall, replace, untaint.
//!
//! ```text
//! well -> permit -> tainting -> draining -> uninstalling -> settling -+-> untainting -> giving back -> well
//!                                             |                                   |        ^
//!                                             | (deadline: gives up)              v        |
//!                                             +---------------------------> replacing -> waiting
//! ```
//!
//! The order of steps is that of Koupleless' design article. What is added: hysteresis, a budget over all
//! replicas, respect for disruption budgets, and that a base which recovers by itself is left alone at every
//! step.
//!
//! * The permit is held from before the taint until after it is gone: never more bases are tainted than the
//!   budget has permits.
//! * Up to the end of the drain everything can be undone, and is: a base whose pods do not leave before the
//!   deadline gets its taint taken off. After it the base is empty, and stays tainted until it is a new one
//!   or its metaspace is back: pods would come back to a base that cannot hold them.
//! * A silent base is left alone. Its node vanishes when it is dead, and its permit with it.

mod event;
mod machine;
mod note;
mod reading;
mod settings;
mod toleration;

pub(crate) use event::{Action, Answer, Input, Outcome, Output, Phase};
pub(crate) use machine::Machine;
pub use note::{Note, Scene};
pub(crate) use reading::Judgement;
pub use reading::Reading;
pub use settings::{Measure, Settings, SettingsError};
pub(crate) use toleration::must_leave;

#[cfg(test)]
#[path = "heal/property_tests.rs"]
mod property;
#[cfg(test)]
mod tests;
