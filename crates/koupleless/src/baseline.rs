//! The baseline: modules that a base gets when it (re)starts, before pods are scheduled to it.
//!
//! A base on MQTT asks for its baseline once, after its first connection; the answer is an array of modules,
//! published with QoS 1 and not retained (what is retained would be installed again at each reconnection).
//! Bases on HTTP never ask: there the provider reinstalls what the pods of the node need.
//!
//! **Modules of the baseline belong to pods that are still to come.** Between the answer and the scheduling
//! of those pods a base has modules that no pod has asked for. They must not be taken for strays: who removes
//! modules that nobody owns removes only what this controller installed for a pod, and a baseline is not
//! that.

use crate::core::baseline::{self, BaselineEntry, replay};
use crate::core::{Base, Identity, Profile};
use evenkeel_api::names::koupleless::ENV_LABEL;
use evenkeel_net::watch::{Delta, Key, Unreadable, deltas, key};
use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use kube::runtime::watcher;
use kube::{Api, Client};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often an answer is sent anew that could not be sent: a base asks once.
const ATTEMPTS: u32 = 6;
/// Before the first repetition; doubled for each.
const AGAIN: Duration = Duration::from_secs(1);
/// For how long the first list of Deployments is waited for.
const LISTED: Duration = Duration::from_secs(60);

/// Knows the baselines of bases.
pub trait Baseline: Send + Sync + 'static {
    /// The baseline of the bases of a cluster, oldest Deployment first, no module twice. Empty before
    /// anything is known.
    fn of(&self, cluster: Option<&str>) -> Vec<BaselineEntry>;

    /// Ends when what [`Baseline::of`] says is complete.
    fn listed(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// Sends baselines to bases over MQTT.
pub trait Publisher: Send + Sync + 'static {
    /// Publishes the array to the topic `base/baseline` of a base, with QoS 1, not retained. `Err`: why not;
    /// may be tried again.
    fn publish<'a>(
        &'a self,
        identity: &'a Identity,
        baseline: &'a [BaselineEntry],
    ) -> BoxFuture<'a, Result<(), String>>;
}

/// Why a base did not get its baseline.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The Deployments are not known yet.
    #[error("the Deployments of modules have not been listed within {} s", LISTED.as_secs())]
    NotListed,
    /// It could not be sent, however often it was tried.
    #[error("cannot send the baseline to base {identity}: {why}")]
    NotSent {
        /// The base that asked.
        identity: Identity,
        why: String,
    },
}

/// Answers a base that asks for its baseline. Returns how many modules it was sent. Takes up to two minutes:
/// await it in a task of its own.
pub async fn answer(
    baseline: &dyn Baseline,
    publisher: &dyn Publisher,
    base: &Base,
) -> Result<usize, AnswerError> {
    tokio::time::timeout(LISTED, baseline.listed())
        .await
        .map_err(|_| AnswerError::NotListed)?;
    let mut wait = AGAIN;
    let mut attempt = 1;
    loop {
        // Anew each time: it may have changed meanwhile.
        let Some(entries) = replay(base.endpoint.by, baseline.of(base.cluster.as_deref())) else {
            return Ok(0);
        };
        match publisher.publish(&base.identity, &entries).await {
            Ok(()) => {
                tracing::info!(base = %base.identity, modules = entries.len(), "baseline sent");
                return Ok(entries.len());
            }
            Err(why) if attempt >= ATTEMPTS => {
                let identity = base.identity.clone();
                return Err(AnswerError::NotSent { identity, why });
            }
            Err(why) => {
                tracing::warn!(base = %base.identity, why, "baseline not sent, trying again");
                tokio::time::sleep(wait).await;
                (wait, attempt) = (wait * 2, attempt + 1);
            }
        }
    }
}

/// The baselines that Deployments make, kept up to date by a watch.
#[derive(Debug)]
pub struct Deployments {
    env: String,
    profile: &'static Profile,
    known: RwLock<HashMap<Key, Deployment>>,
    listed: watch::Sender<bool>,
}

impl Deployments {
    /// Watches the Deployments of an environment until `stop`.
    pub fn watch(client: Client, env: &str, profile: &'static Profile, stop: CancellationToken) -> Arc<Self> {
        let deployments = Arc::new(Self {
            env: env.to_owned(),
            profile,
            known: RwLock::default(),
            listed: watch::Sender::new(false),
        });
        let config = watcher::Config::default().labels(&format!("{ENV_LABEL}={env}"));
        let seen = deltas(
            "Deployments of modules",
            Api::all(client),
            config,
            Unreadable::StaysAsKnown,
        );
        let keeper = Arc::clone(&deployments);
        let keeping = async move {
            let mut seen = Box::pin(seen);
            while let Some(seen) = seen.next().await {
                keeper.take(seen);
            }
        };
        tokio::spawn(stop.run_until_cancelled_owned(keeping));
        deployments
    }

    fn take(&self, seen: Delta<Deployment>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        match seen {
            Delta::Put(mut deployment) => {
                // The largest parts, which nobody reads here.
                deployment.metadata.managed_fields = None;
                deployment.status = None;
                known.insert(key(&*deployment), *deployment);
            }
            Delta::Gone(key) => {
                known.remove(&key);
            }
            Delta::Listed(keys) => {
                known.retain(|key, _| keys.contains(key));
                self.listed.send_replace(true);
            }
            Delta::Broken => {}
        }
    }
}

impl Baseline for Deployments {
    fn of(&self, cluster: Option<&str>) -> Vec<BaselineEntry> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        baseline::baseline(known.values(), cluster, &self.env, self.profile)
    }

    fn listed(&self) -> BoxFuture<'_, ()> {
        let mut listed = self.listed.subscribe();
        async move {
            // The sender lives in `self`, which this future borrows.
            let _ = listed.wait_for(|listed| *listed).await;
        }
        .boxed()
    }
}
