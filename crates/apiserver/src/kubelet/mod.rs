//! The server as a client of kubelets.
//!
//! | module | what it holds |
//! |---|---|
//! | `options` | how kubelets are reached |
//! | `address` | **pure**: where a node's kubelet is, which addresses may be proxied to |
//! | `transport` | which certificates are shown and accepted |
//! | `measure` | what kubelets measure, asked for and shared |
//! | `relay` | requests passed on: plain ones as streams, upgraded ones byte by byte |

pub(crate) mod address;
pub(crate) mod measure;
mod options;
pub(crate) mod relay;
mod transport;

pub use options::{KubeletOptions, KubeletTrust};
#[cfg(feature = "cli")]
pub(crate) use transport::check_authority;
pub(crate) use transport::{Endpoint, Kubelets, Transport};

/// User of the certificate that the server shows kubelets.
pub(crate) const USER: &str = "kube-apiserver-kubelet-client";
/// Groups of the certificate that the server shows kubelets.
pub(crate) const GROUPS: &[&str] = &["system:masters"];
