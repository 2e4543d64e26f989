//! Exec, attach and port-forward, as kubectl and bare clients speak them.

mod kubectl;
mod raw;
mod spdy;
mod stand_in;
mod terminal;
mod websocket;
