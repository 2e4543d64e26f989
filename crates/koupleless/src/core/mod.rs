//! What is decided without clock, socket or API server.

pub mod alert;
pub mod base;
pub mod baseline;
pub mod budget;
pub mod claims;
pub mod heal;
pub mod identity;
pub mod module;
pub mod peer;
pub mod profile;
pub mod registry;

pub use base::{Base, Connection, Endpoint, PodRef};
pub use claims::Claims;
pub use identity::Identity;
pub use module::Modules;
pub use profile::Profile;
pub use registry::Registry;
