mod adoption;
pub(crate) mod fixture;
mod lives;
mod logs;
mod memory;
mod probes;
mod remote;
