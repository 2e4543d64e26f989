//! A pod's life: what a kubelet's pod worker, runtime manager and status manager decide, for one pod.
//!
//! [`Machine`] is level-triggered. Whatever comes in, [`Machine::step`] notes it, then looks at the whole pod
//! and says what is to be done now; what it said before and is still under way is not said again. Source of
//! the rules: kubelet 1.36 (`computePodActions`, `getPhase`, `generateAPIPodStatus`, status manager), KEP-753
//! for sidecars.
//!
//! Life of a pod: *admitted* (or refused: it waits) -> *adopted* (asked of the provider if it runs already)
//! -> *created* -> init containers one after the other, sidecars among them staying -> containers -> restarts
//! with back-off -> ended or deleted: containers stop (sidecars last, in reverse order), the terminal status
//! is posted, then the object removed.

mod action;
mod calls;
mod conditions;
mod containers;
mod end;
mod machine;
mod note;
mod phase;
mod plan;
mod post;
mod presence;
mod prober;
mod qos;
mod record;
mod recorded;
mod settings;
mod spec;
mod status;
#[cfg(test)]
mod tests;
mod transitions;
mod words;

pub use action::{Action, Input, Posted, ProbeOrder, Trouble};
pub use machine::Machine;
pub(crate) use recorded::was_let_in;
pub use settings::{Extra, Holds, Settings};
pub use spec::{Role, Spec, specs};
