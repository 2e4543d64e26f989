//! An embedded Kubernetes API server: an `envtest` for Rust, and the API of the lab.
//!
//! Kinds are data; one generic pipeline serves them all. It is for tests and for the lab, never for
//! production. The rules on objects (schemas, patches, selectors, defaults, validation, tables) are those of
//! `evenkeel-kube-rules`.
//!
//! # Testing with it
//! ```
//! use evenkeel_apiserver::{Fault, RequestFilter, TestServer};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use kube::api::{ListParams, PostParams};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let api = TestServer::start().await?;
//! let maps: Api<ConfigMap> = Api::namespaced(api.client(), "default");
//! let map: ConfigMap = serde_json::from_str(r#"{"metadata": {"name": "settings"}}"#)?;
//! maps.create(&PostParams::default(), &map).await?;
//!
//! // The next list fails.
//! let lists = RequestFilter::any().verb("list").resource("configmaps");
//! let fault = api.intercept(lists.clone(), Fault::status(503, "ServiceUnavailable").times(1));
//! assert!(maps.list(&ListParams::default()).await.is_err());
//! assert_eq!(fault.hits(), 1);
//! assert!(maps.list(&ListParams::default()).await.is_ok());
//!
//! // What was asked is recorded.
//! assert_eq!(api.count(&lists), 2);
//! assert_eq!(api.requests()[0].verb, "create");
//! # Ok(())
//! # }
//! ```
//!
//! A controller is tested as it runs in a cluster. This one, made with `kube::runtime`, counts the keys of
//! each ConfigMap in a label:
//! ```
//! use evenkeel_apiserver::{Fault, RequestFilter, TestServer};
//! use futures::StreamExt as _;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Patch, PatchParams};
//! use kube::runtime::controller::Action;
//! use kube::runtime::wait::await_condition;
//! use kube::runtime::{Controller, watcher};
//! use kube::{Api, Client, ResourceExt as _};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
//!     let maps: Api<ConfigMap> =
//!         Api::namespaced((*client).clone(), &map.namespace().unwrap_or_default());
//!     let keys = map.data.as_ref().map_or(0, |data| data.len()).to_string();
//!     if map.labels().get("keys") != Some(&keys) {
//!         let patch = serde_json::json!({"metadata": {"labels": {"keys": keys}}});
//!         maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
//!     }
//!     Ok(Action::await_change())
//! }
//!
//! // It starts with an object, and nobody waits: the retry after ten seconds comes at once in paused time.
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let map = serde_json::json!({
//!     "apiVersion": "v1", "kind": "ConfigMap",
//!     "metadata": {"name": "settings", "namespace": "default"}, "data": {"a": "1", "b": "2"},
//! });
//! let api = TestServer::builder().object(map).start().await?;
//! let patches = RequestFilter::any().verb("patch").resource("configmaps").name("settings");
//! let fault = api.intercept(patches.clone(), Fault::conflict().times(1));
//!
//! let client = api.client_as("controller", &["system:masters"]);
//! let controller = Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
//!     .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(10)), Arc::new(client))
//!     .for_each(|_| std::future::ready(()));
//! let counted = await_condition(
//!     Api::<ConfigMap>::namespaced(api.client(), "default"),
//!     "settings",
//!     |map: Option<&ConfigMap>| map.is_some_and(|map| map.labels().get("keys") == Some(&"2".to_owned())),
//! );
//! tokio::select! {
//!     () = controller => unreachable!("it runs until it is dropped"),
//!     counted = counted => { counted?; }
//! }
//! assert_eq!(fault.hits(), 1);
//! assert_eq!(api.count(&patches), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//! What one client can cost the server and the others. The numbers are Kubernetes' own unless something else
//! is said.
//!
//! | what | limit | beyond it | where |
//! |---|---|---|---|
//! | body of a request | 3 MiB | 413 `RequestEntityTooLarge` | `http::body` |
//! | nesting of a body in JSON, patches included | 500 (Kubernetes: 10,000) | 400 | `strict::json` of `evenkeel-kube-rules` |
//! | nesting of a body in YAML; its nodes, aliases replayed | 64; 250,000 (ours) | 400 | `serde-saphyr` |
//! | nesting of a body in protobuf | 100 | 400 | `protobuf` of `evenkeel-kube-rules` |
//! | operations of a JSON patch | 10,000 | 413 | `patch::json` of `evenkeel-kube-rules` |
//! | what the copies of a JSON patch add up to; nesting of its result | 3 MiB; 500 (Kubernetes: 10,000) | 422 | `patch::json` of `evenkeel-kube-rules` |
//! | annotations of an object; data of a ConfigMap or Secret | 256 KiB; 1 MiB | 422 | `validate` of `evenkeel-kube-rules` |
//! | brackets and conditions within each other in a CEL expression; its operators, blanks and separators | 50 (Kubernetes: 250); 1,000 (ours) | 422 | `cel` of `evenkeel-kube-rules` |
//! | steps of one CEL expression, of policies, match conditions and custom resources | 1,000,000 | what the policy says for errors; 422 | `cost` of `evenkeel-kube-rules` |
//! | steps of all rules of one custom resource | 10,000,000 | 422 | `cost` of `evenkeel-kube-rules` |
//! | answer of a webhook | 3 MiB (Kubernetes: none) | as a webhook that fails | `access::admission::webhook` |
//! | events that are kept for watches, of each resource | [`Options::watch_history`], 65,536 (ours) | the watch gets 410 `Expired` and ends | `store` |
//! | what is encoded for a watch whose client does not read | 1 MiB and one event, then 128 events at most (ours) | it waits; when the client reads again it goes on, or gets 410 | `verbs::watch` |
//! | life of a watch that sets no time-out | 30 to 60 minutes | it ends | `verbs::watch` |
//! | requests at a time on one HTTP/2 connection | 100 | they wait | `serve` of `evenkeel-net` |
//! | time for a TLS handshake; for a request head | 10 s; 120 s (ours) | the connection is closed | `serve` of `evenkeel-net` |
//!
//! A watch holds no events of its own: it holds a position in the history, which all watches share. One that
//! begins with the present state shares the objects with the store, and lets go of each when it has sent it.
//!
//! # Using this crate alone
//! It opens no socket until [`TestServer::kubeconfig`] or [`ApiServer::serve`], and needs neither a command
//! line nor TLS of kube's.
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
//! | `traffic` | the requests of a test, recorded, and faults that act on them |
//! | `lifetime`, `state` | whether the server runs, and what its requests share |
//! | `verbs` | what a request does to the store |
//! | `http` | requests in, answers out |
//! | `server` | the server as its users hold it |
//! | `test_server` | the server as tests hold it |
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
mod test_server;
mod traffic;
mod verbs;

pub use access::tokens::KeyError;
pub use options::{Options, PodRoutes, StaticToken};
pub use server::{ApiServer, ServerError};
pub use test_server::{Outage, TestServer, TestServerBuilder, TestServerError};
pub use traffic::{Fault, Interception, RecordedRequest, RequestFilter};
