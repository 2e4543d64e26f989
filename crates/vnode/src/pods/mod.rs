//! The pods of one node.
//!
//! Each node has an actor: a task with a mailbox, which drives the node's machine and its pods'. It never
//! waits for anything but its mailbox: what machines ask for is done in tasks of their own, whose ends come
//! back as messages.

mod actor;
mod call;
mod check;
mod entry;
mod limit;
#[cfg(test)]
#[path = "memory_tests.rs"]
mod memory;
mod message;
mod node;
mod packed;
mod perform;
mod queries;
mod report;
mod strays;
mod writer;

pub(crate) use actor::{Actor, Duty};
pub(crate) use call::{Calls, panic_text};
pub(crate) use limit::Limit;
pub(crate) use message::{Message, OwnList, Query, Seen};
pub(crate) use writer::Writers;
