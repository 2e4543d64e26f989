//! What runner and keeper decide: events and a time go in, actions come out. No process, clock or lease is
//! touched here.

pub(crate) mod command_deadline;
pub(crate) mod deadlines;
pub(crate) mod event;
pub(crate) mod orders;
pub(crate) mod runner;
pub(crate) mod status;
