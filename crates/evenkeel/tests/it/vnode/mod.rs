//! `evenkeel vnode` from outside: real processes, real sockets, real kubectl.

mod koupleless;
mod koupleless_sample;
mod kubectl;
mod outages;
mod replicas;
mod restart;
mod world;
