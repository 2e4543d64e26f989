//! What is decided without clock, socket or API server.

pub mod alert;
mod base;
pub mod baseline;
pub(crate) mod budget;
pub mod claims;
pub mod heal;
pub(crate) mod identity;
pub(crate) mod module;
pub(crate) mod peer;
pub mod profile;
pub mod registry;

pub use base::{Base, Connection, Endpoint, PodRef};
pub(crate) use claims::Claims;
pub use identity::Identity;
pub(crate) use module::Modules;
pub use profile::Profile;
pub(crate) use registry::Registry;
