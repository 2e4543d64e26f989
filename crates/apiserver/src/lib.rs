//! An embedded Kubernetes API server: an `envtest` for Rust, and the API of the lab.
//!
//! Kinds are data; one generic pipeline serves them all. It is for tests and for the lab, never for production. The rules
//! on objects (schemas, patches, selectors, defaults, validation, tables) are those of `evenkeel-kube-rules`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`request`] | what a request is: user, verb, resource; what admission sees |
//! | `access` | who may do what: authentication, RBAC, admission webhooks; discovery and OpenAPI documents |
//! | [`kinds`] | which resources exist: the built-in ones as data, custom ones as they come and go |
//! | [`store`] | the objects and their history |
//! | `verbs`, `watch`, `http` | the verbs on the store, the HTTP face |
//! | [`kubelet`] | the server as a client of kubelets: logs, exec, proxies, usage |
//! | `signing` | certificates for those who ask by CertificateSigningRequests |
//! | [`server`] | the server as its users hold it |
//! | [`cli`] | the server as a command |

pub mod access;
pub mod cli;
mod dial;
mod http;
pub mod kinds;
pub mod kubelet;
pub mod request;
pub mod server;
mod signing;
pub mod store;
mod verbs;
mod watch;

pub use server::{ApiServer, Options, ServerError, StaticToken};
