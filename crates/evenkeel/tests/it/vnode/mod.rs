//! `evenkeel vnode` from outside: real processes, real sockets, real kubectl.

mod koupleless;
mod koupleless_sample;
pub(crate) mod kubectl;
mod outages;
mod replicas;
mod restart;
pub(crate) mod world;
