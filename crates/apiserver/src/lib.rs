//! An embedded Kubernetes API server: an `envtest` for Rust, and the API of the lab.
//!
//! Kinds are data; one generic pipeline serves them all. It is for tests and for the lab, never for
//! production. The rules on objects (schemas, patches, selectors, defaults, validation, tables) are those of
//! `evenkeel-kube-rules`.
//!
//! ```
//! use evenkeel_apiserver::{ApiServer, Options};
//! use k8s_openapi::api::core::v1::Namespace;
//! use kube::{Api, api::ListParams};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let server = ApiServer::new(Options::default()).unwrap();
//! let namespaces: Api<Namespace> = Api::all(server.client());
//! assert_eq!(namespaces.list(&ListParams::default()).await.unwrap().items.len(), 4);
//! # });
//! ```
//!
//! # Using this crate alone
//! It opens no socket until [`ApiServer::serve`], and needs neither a command line nor TLS of kube's.
//! `interop/outside/api-server` is a whole program. The feature `cli` adds what `evenkeel apiserver` is
//! made of.
//!
//! # Modules
//! In their order: each uses those above it alone.
//!
//! | module | what it holds |
//! |---|---|
//! | `request` | what a request is: user, verb, resource, query, form of the answer; what admission sees |
//! | `kinds` | which resources exist: the built-in ones as data, custom ones as they come and go |
//! | `store` | the objects and their history |
//! | [`kubelet`] | the server as a client of kubelets: relayed requests, measurements |
//! | `options` | how a server is set up |
//! | `access` | who may do what: authentication, RBAC, admission webhooks; discovery and OpenAPI documents |
//! | `allocator` | addresses and ports of Services |
//! | `signing` | certificates for those who ask by CertificateSigningRequests |
//! | `lifetime`, `state` | whether the server runs, and what its requests share |
//! | `verbs` | what a request does to the store |
//! | `http` | requests in, answers out |
//! | `server` | the server as its users hold it |
//! | `cli` | the server as a command (feature `cli`) |

#[cfg(feature = "cli")]
pub mod cli;
pub mod kubelet;

mod access;
mod allocator;
mod dial;
mod http;
mod kinds;
mod lifetime;
mod options;
mod request;
mod server;
mod signing;
mod state;
mod store;
mod verbs;
mod websocket;

pub use access::tokens::KeyError;
pub use options::{Options, StaticToken};
pub use server::{ApiServer, ServerError};
