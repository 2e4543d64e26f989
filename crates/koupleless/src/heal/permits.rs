//! The permits of the healing budget, which all replicas share: a ConfigMap, written by compare-and-swap.

use super::node::has_taint;
use crate::core::budget::{Budget, Limit, Nodes, Verdict};
use evenkeel_api::names::koupleless::healing::{CONFIG_MAP, ENTRIES};
use evenkeel_api::names::koupleless::{COMPONENT_LABEL, VNODE};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How often a write is tried that met another replica's.
const ATTEMPTS: usize = 8;
/// A list of nodes is fresh enough to refuse a permit for this long: many bases that wait must not each list
/// all nodes.
const REFUSES: Duration = Duration::from_secs(5);

/// Why a permit was neither granted nor refused. Request it again.
#[derive(Debug, thiserror::Error)]
pub enum PermitError {
    /// The API server has refused, or did not answer.
    #[error("cannot {what} ConfigMap {CONFIG_MAP}")]
    Api {
        /// What was to be done.
        what: &'static str,
        /// Why it was not.
        #[source]
        source: kube::Error,
    },
    /// The nodes of bases cannot be listed.
    #[error("cannot list the nodes of bases")]
    Nodes(#[source] kube::Error),
    /// Somebody else wrote there what cannot be read. Nothing is healed until it is put right.
    #[error(
        "ConfigMap {CONFIG_MAP}: cannot read {ENTRIES:?}; correct it, or delete it while no base is tainted"
    )]
    Unreadable(#[source] serde_json::Error),
    /// Others were faster, each time.
    #[error("ConfigMap {CONFIG_MAP} is written by too many at a time")]
    Contended,
}

pub(super) struct Permits {
    maps: Api<ConfigMap>,
    nodes: Api<Node>,
    holder: String,
    limit: Limit,
    /// The last list of nodes. Whoever requests a permit holds the lock, so that they queue here rather than
    /// at the API server.
    listed: Mutex<Option<(Instant, Nodes)>>,
}

impl Permits {
    pub(super) fn new(client: Client, namespace: &str, holder: &str, limit: Limit) -> Self {
        Self {
            maps: Api::namespaced(client.clone(), namespace),
            nodes: Api::all(client),
            holder: holder.to_owned(),
            limit,
            listed: Mutex::default(),
        }
    }

    pub(super) async fn acquire(&self, node: &str) -> Result<Verdict, PermitError> {
        let mut listed = self.listed.lock().await;
        for _ in 0..ATTEMPTS {
            // Before the nodes: an entry whose node is missing in a list of before it was made would be
            // dropped.
            let (map, mut budget) = self.read().await?;
            if let Some((at, nodes)) = &*listed
                && at.elapsed() < REFUSES
                && let full @ Verdict::Full(_) = self.request(&mut budget.clone(), node, nodes)
            {
                return Ok(full);
            }
            let nodes = self.list().await?;
            let verdict = self.request(&mut budget, node, &nodes);
            *listed = Some((Instant::now(), nodes));
            if matches!(verdict, Verdict::Full(_)) || self.write(map, &budget).await? {
                return Ok(verdict);
            }
        }
        Err(PermitError::Contended)
    }

    pub(super) async fn release(&self, node: &str) -> Result<(), PermitError> {
        for _ in 0..ATTEMPTS {
            let (map, mut budget) = self.read().await?;
            if !budget.release(node) || self.write(map, &budget).await? {
                return Ok(());
            }
        }
        Err(PermitError::Contended)
    }

    fn request(&self, budget: &mut Budget, node: &str, nodes: &Nodes) -> Verdict {
        budget.acquire(node, &self.holder, Timestamp::now(), self.limit, nodes)
    }

    async fn list(&self) -> Result<Nodes, PermitError> {
        let params = ListParams::default().labels(&format!("{COMPONENT_LABEL}={VNODE}"));
        let nodes = self.nodes.list(&params).await.map_err(PermitError::Nodes)?;
        Ok(nodes
            .iter()
            .map(|node| (node.name_any(), has_taint(node)))
            .collect())
    }

    async fn read(&self) -> Result<(Option<ConfigMap>, Budget), PermitError> {
        let map = self.maps.get_opt(CONFIG_MAP).await;
        let map = map.map_err(|source| PermitError::Api { what: "read", source })?;
        let text = map.as_ref().and_then(|map| map.data.as_ref()?.get(ENTRIES));
        let budget = match text {
            Some(text) => serde_json::from_str(text).map_err(PermitError::Unreadable)?,
            None => Budget::default(),
        };
        Ok((map, budget))
    }

    /// Writes the object if it is as it was read; whether it was.
    async fn write(&self, map: Option<ConfigMap>, budget: &Budget) -> Result<bool, PermitError> {
        // Entries are names and times, which can always be written.
        let text = serde_json::to_string(budget).map_err(PermitError::Unreadable)?;
        let params = PostParams::default();
        let written = if let Some(mut map) = map {
            map.data.get_or_insert_default().insert(ENTRIES.to_owned(), text);
            self.maps.replace(CONFIG_MAP, &params, &map).await
        } else {
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(CONFIG_MAP.to_owned()),
                    ..ObjectMeta::default()
                },
                data: Some([(ENTRIES.to_owned(), text)].into()),
                ..ConfigMap::default()
            };
            self.maps.create(&params, &map).await
        };
        match written {
            Ok(_) => Ok(true),
            // Somebody else wrote, created or deleted it.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(source) => Err(PermitError::Api {
                what: "write",
                source,
            }),
        }
    }
}
