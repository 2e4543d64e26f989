//! Upstream's recovery scenarios on the whole candidate (elector, gate, callbacks, health check, a lock in
//! memory) in virtual time, exact to the millisecond. The tables of `core::machine` have more of each; here
//! is what takes a shell.
//!
//! 15/10/2 s, requests time out after 5 s, the API is away from 5 s on unless a test says otherwise.

mod cancel;
mod check;
mod outage;
mod rivals;
mod stage;
