//! Passes on what happens to bases: to healing, and to people by alerts.

use crate::alert::Alerts;
use crate::core::alert::{Alert, Scene};
use crate::core::heal::Reading;
use crate::core::registry::{Change, Event};
use crate::core::{Base, PodRef};
use crate::discovery::Discovery;
use crate::heal::{Healer, Healing, Modules};
use crate::provider::{Koupleless, Observer};
use evenkeel_arklet::ModuleId;
use evenkeel_arklet::health::{Health, Limit};
use evenkeel_vnode::provider::Fault;
use futures::future::BoxFuture;
use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Observes bases for healing and alerts.
pub(super) struct BaseObserver {
    alerts: Option<Alerts>,
    healer: Option<Healer>,
    /// The cluster of the bases' pods, where those are watched.
    bases: Option<kube::Client>,
    provider: Koupleless,
    discovery: Discovery,
    /// Of nodes that are served here.
    healings: Mutex<HashMap<Arc<str>, Healing>>,
}

impl BaseObserver {
    pub(super) fn new(
        alerts: Option<Alerts>,
        healer: Option<Healer>,
        bases: Option<kube::Client>,
        provider: Koupleless,
        discovery: Discovery,
    ) -> Self {
        Self {
            alerts,
            healer,
            bases,
            provider,
            discovery,
            healings: Mutex::default(),
        }
    }

    /// What became of a base.
    pub(super) fn follow(&self, event: &Event) {
        let mut healings = self.healings();
        match &event.change {
            Change::Gone(_) => {
                if let Some(healing) = healings.remove(&event.node) {
                    healing.gone();
                }
            }
            Change::Left => {
                healings.remove(&event.node);
            }
            change => {
                if let Some(healing) = healings.get(&event.node) {
                    let silent = matches!(change, Change::Silent | Change::Lost(_));
                    healing.base(silent, self.pod(&event.base));
                }
            }
        }
    }

    /// The pod of a base, where somebody watches pods.
    fn pod(&self, base: &Base) -> Option<PodRef> {
        self.bases.as_ref().and(base.pod.clone())
    }

    fn healings(&self) -> MutexGuard<'_, HashMap<Arc<str>, Healing>> {
        self.healings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for BaseObserver {
    fn health(&self, node: &str, health: &Health) {
        let Some(healer) = &self.healer else { return };
        let Some(term) = self.provider.term(node) else {
            return;
        };
        let mut healings = self.healings();
        let node: Arc<str> = node.into();
        let healing = healings.entry(node.clone()).or_insert_with(|| {
            let modules = Arc::new(Left {
                provider: self.provider.clone(),
                node: node.clone(),
            });
            let healing = healer.base(&node, self.bases.clone(), modules, term);
            let pod = self.discovery.base(&node).and_then(|base| self.pod(&base));
            healing.base(false, pod);
            healing
        });
        healing.health(health.jvm.as_ref().map(|jvm| Reading {
            used: jvm.metaspace_used,
            committed: jvm.metaspace_committed,
            max: jvm.metaspace_max.map(|max| match max {
                Limit::Unlimited => -1,
                Limit::Bytes(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
            }),
            uptime: jvm.uptime,
        }));
    }

    fn not_installed(&self, base: &Base, module: &ModuleId, fault: &Fault) {
        let scene = match fault.reason.as_str() {
            "ManifestMismatch" => Scene::ManifestMismatch,
            "InstallFailed" | "InstallTimeout" => Scene::InstallFailed,
            // A fault of the base or of the pod, which is reported elsewhere.
            _ => return,
        };
        if let Some(alerts) = &self.alerts {
            alerts.raise(Alert {
                scene,
                base: base.identity.to_string(),
                module: Some(module.to_string()),
                message: fault.message.clone(),
                at: Timestamp::now(),
            });
        }
    }

    fn released(&self, node: &str) {
        self.healings().remove(node);
    }
}

/// What is left of our modules on a base.
struct Left {
    provider: Koupleless,
    node: Arc<str>,
}

impl Modules for Left {
    fn uninstall(&self) -> BoxFuture<'static, Result<usize, String>> {
        let (provider, node) = (self.provider.clone(), self.node.clone());
        Box::pin(async move { provider.purge(&node).await.map_err(|fault| fault.message) })
    }
}
