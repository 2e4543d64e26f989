//! Coordinated election at an API server: candidates that publish themselves, and a coordinator that chooses.
//!
//! The rules are in [`crate::core::coordinated`]. A candidate consists of two tasks under one identity:
//! [`stand`] keeps its LeaseCandidate up to date, and an elector in coordinated mode holds the Lease once the
//! coordinator has written its name there. The coordinator is Kubernetes' own where the API server has the
//! feature gate `CoordinatedLeaderElection`, or a [`Coordinator`] run by one replica of anything under the
//! Lease [`crate::core::coordinated::COORDINATOR_LEASE`]. The API `coordination.k8s.io/v1beta1` must be
//! served, which is Kubernetes 1.33 with `--runtime-config=coordination.k8s.io/v1beta1=true`.
//!
//! ```no_run
//! use evenkeel_election::coordinated::{Candidacy, Coordinator, stand};
//! use evenkeel_election::core::coordinated::{COORDINATOR_LEASE, HighestWeight, Strategies};
//! use evenkeel_election::lock::LeaseLock;
//! use evenkeel_election::{Config, Elector, unique_identity};
//! use tokio_util::sync::CancellationToken;
//!
//! // In each replica. When the election has ended, cancel the token that ends `stand`.
//! async fn replica(
//!     client: kube::Client,
//!     version: semver::Version,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let (shutdown, gone) = (CancellationToken::new(), CancellationToken::new());
//!     let candidacy = Candidacy::new("kube-system", "my-controller", &unique_identity(), version);
//!     let config = Config { coordinated: true, ..Config::new(&candidacy.identity) };
//!     let lock = LeaseLock::new(client.clone(), "kube-system", "my-controller")?;
//!     let mut election = Elector::new(lock, config)?.run(shutdown);
//!     let standing = tokio::spawn(stand(client, candidacy, gone.clone()));
//!     while let Some(state) = election.next().await {
//!         println!("{state:?}"); // As in any election.
//!     }
//!     gone.cancel();
//!     Ok(standing.await??)
//! }
//!
//! // In two or three replicas, if the API server does not run a coordinator.
//! async fn coordinator(
//!     client: kube::Client,
//!     shutdown: CancellationToken,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let lock = LeaseLock::new(client.clone(), "kube-system", COORDINATOR_LEASE)?;
//!     let election = Elector::new(lock, Config::new(&unique_identity()))?.run(shutdown);
//!     let strategies = Strategies::default().with(HighestWeight);
//!     let coordinator = Coordinator::new(client).in_namespace("kube-system").with_strategies(strategies);
//!     coordinator.run_while_leading(election).await;
//!     Ok(())
//! }
//! ```

mod candidacy;
mod coordinator;
mod object;
mod requests;
mod standing;
mod state;

pub use candidacy::{Candidacy, CandidacyError};
pub use coordinator::Coordinator;
pub use standing::stand;
