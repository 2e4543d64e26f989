//! SPDY/3.1, as far as Kubernetes' clients speak it.
//!
//! [`frame`] is pure: bytes in, frames out, and back. [`Connection`] runs one over any socket and hands out
//! [`Stream`]s.
//!
//! Every known client of a kubelet uses one implementation, which neither keeps SPDY's flow control windows
//! nor reads them, and drops what it does not know. Windows are therefore kept towards a peer only once it
//! shows that it keeps them (it sends SETTINGS or WINDOW_UPDATE). Towards all others TCP holds back who is
//! too fast: we stop reading while a stream that nobody reads is full.

mod connection;
mod dictionary;
pub mod frame;
mod header;
mod state;
mod stream;

pub use connection::{Connection, Limits};
pub use header::Headers;
pub use state::Ended;
pub use stream::{Offer, Stream};
