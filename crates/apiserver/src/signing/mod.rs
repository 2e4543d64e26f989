//! CertificateSigningRequests: who signs what, and the certificates.
//!
//! | module | what it holds |
//! |---|---|
//! | `signers` | **pure**: what the `kubernetes.io` signers permit, usages, lifetimes, when a request is old |
//! | `own` | **pure**: whose names those of a request are |
//! | `controller` | approval, signing and removal, right after each write of a request |

pub(crate) mod controller;
mod own;
pub(crate) mod signers;
