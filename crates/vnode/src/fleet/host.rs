//! What the framework does for its provider.

use super::common::Common;
use crate::core::env::Location;
use crate::core::pod::Trouble;
use crate::core::volume::{TokenSource, Volumes};
use crate::ownership::Term;
use crate::pods::{Message, Query};
use crate::provider::{Fault, FaultKind, Host, PodId, Report};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::oneshot;

/// The fleet, as its provider sees it. The provider is told of it before there are actors, and may keep it
/// beyond them.
#[derive(Default)]
pub(crate) struct FleetHost {
    common: OnceLock<Weak<Common>>,
}

impl FleetHost {
    pub(crate) fn begin(&self, common: &Arc<Common>) {
        // Set once, by who made it.
        let _ = self.common.set(Arc::downgrade(common));
    }

    fn common(&self) -> Option<Arc<Common>> {
        self.common.get().and_then(Weak::upgrade)
    }

    async fn pod(&self, pod: &PodId) -> Result<(Arc<Common>, Arc<Pod>, Location), Fault> {
        let not_here = || {
            let message = format!("pod {pod} (UID {}) is not served here", pod.uid);
            Fault::new(FaultKind::NotFound, "PodNotFound", message)
        };
        let common = self.common().ok_or_else(not_here)?;
        let handle = common.directory.node(&pod.node).ok_or_else(not_here)?;
        let (answer, answered) = oneshot::channel();
        handle.send(Message::Query(Box::new(Query::Location {
            uid: pod.uid.clone(),
            answer,
        })));
        let (object, location) = answered.await.ok().flatten().ok_or_else(not_here)?;
        Ok((common, object, location))
    }
}

impl Host for FleetHost {
    fn report(&self, report: Report) {
        let Some(common) = self.common() else {
            return;
        };
        let (node, message) = match report {
            Report::Container { pod, name, observed } => (
                pod.node.clone(),
                Message::Observed(Box::new((pod, name, observed))),
            ),
            Report::Node { name } => (name, Message::Stirred),
        };
        // A node that is not served here is another replica's business.
        if let Some(handle) = common.directory.node(&node) {
            handle.send(message);
        }
    }

    fn client(&self, node: &str) -> Option<kube::Client> {
        self.common()?.directory.node(node)?.client()
    }

    fn term(&self, node: &str) -> Option<Term> {
        Some(self.common()?.directory.node(node)?.term.clone())
    }

    fn volumes<'a>(&'a self, pod: &'a PodId) -> BoxFuture<'a, Result<Arc<Volumes>, Fault>> {
        Box::pin(async move {
            let (common, object, location) = self.pod(pod).await?;
            let (volumes, events) = common.objects.volumes(&object, &location).await;
            common.events.about_pod(pod, events);
            match volumes {
                Ok(volumes) => Ok(Arc::new(volumes)),
                Err(Trouble::Fault(fault)) => Err(fault),
                Err(Trouble::Refused(refusal)) => {
                    Err(Fault::new(FaultKind::Never, &refusal.reason, refusal.message))
                }
                Err(Trouble::Config(message) | Trouble::Volume(message)) => {
                    Err(Fault::new(FaultKind::Later, "FailedMount", message))
                }
            }
        })
    }

    fn token<'a>(&'a self, pod: &'a PodId, of: &'a TokenSource) -> BoxFuture<'a, Result<Arc<str>, Fault>> {
        Box::pin(async move {
            let (common, object, _) = self.pod(pod).await?;
            let spec = object.spec.as_ref();
            let account = spec.and_then(|spec| spec.service_account_name.as_deref());
            let account = account.filter(|account| !account.is_empty()).unwrap_or("default");
            common.objects.token(pod, account, of).await
        })
    }
}
