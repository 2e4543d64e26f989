//! The binary from outside: real processes, real sockets, real kubectl.

#![expect(
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests fail and tell as tests do"
)]

mod command_line;
mod crash;
mod documented;
mod elect;
mod errors;
mod helm;
mod images;
mod installed;
mod kubectl;
mod netns;
mod newcomer;
mod packages;
mod probe;
mod real;
mod requests;
mod rights;
mod support;
mod vnode;
