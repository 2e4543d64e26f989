//! Answers to who wants to know something of a node's pods, and what the provider has that nobody wants.

use super::actor::Actor;
use super::entry::{Entry, with_status};
use super::message::{Message, Query};
use crate::fleet::metrics::StrayResult;
use crate::fleet::wheel::Timer;
use crate::node::is_absent;
use crate::provider::{Fault, FaultKind, PodId};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Actor {
    /// Who asked may have gone away meanwhile; then nobody hears the answer.
    pub(super) fn answer(&self, query: Query) {
        match query {
            Query::Pods(answer) => {
                let pods = self.pods.values().filter_map(|entry| self.as_it_is(entry));
                let _ = answer.send(pods.collect());
            }
            Query::Pod {
                namespace,
                name,
                uid,
                answer,
            } => {
                let found = self.find(&namespace, &name, uid.as_deref());
                let found = found.and_then(|entry| Some((entry.id.clone(), self.as_it_is(entry)?)));
                let _ = answer.send(found.ok_or_else(|| no_pod(&self.handle.name, &namespace, &name)));
            }
            Query::Container { wanted, answer } => {
                let found = self.find(&wanted.namespace, &wanted.pod, wanted.uid.as_deref());
                let result = match found {
                    None => Err(no_pod(&self.handle.name, &wanted.namespace, &wanted.pod)),
                    Some(entry) => {
                        let id = entry.machine.container_id(&wanted.container, wanted.previous);
                        id.map(|id| (entry.id.clone(), id)).ok_or_else(|| {
                            let which = if wanted.previous { "previous " } else { "" };
                            let message = format!(
                                "{which}container {:?} of pod {} has not run",
                                wanted.container, entry.id
                            );
                            Fault::new(FaultKind::NotFound, "ContainerNotFound", message)
                        })
                    }
                };
                let _ = answer.send(result);
            }
            Query::Location { uid, answer } => {
                let entry = self.pods.get(&uid);
                let found = entry.and_then(|entry| Some((entry.object()?, self.location_of(entry))));
                let _ = answer.send(found);
            }
        }
    }

    fn find(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<&Entry> {
        let named = |entry: &&Entry| {
            *entry.id.namespace == *namespace
                && *entry.id.name == *name
                && uid.is_none_or(|uid| *entry.id.uid == *uid)
        };
        // One that is gone and still ends, and one of its name that came after it.
        let entries = self.pods.values().map(|entry| &**entry).filter(named);
        entries.min_by_key(|entry| entry.gone)
    }

    fn as_it_is(&self, entry: &Entry) -> Option<Arc<Pod>> {
        let pod = entry.object()?;
        let status = entry
            .machine
            .status(self.settings(), &pod, self.common.clock.now());
        Some(Arc::new(with_status(&pod, status)))
    }

    /// Asks the provider what it has.
    pub(super) fn list_for_strays(&self) {
        let (provider, node) = (self.common.provider.clone(), self.handle.name.clone());
        let (calls, handle) = (self.calls.clone(), self.handle.clone());
        let deadline = self.common.options.call;
        self.calls.spawn("a list for strays", async move {
            let call = async move { provider.list(&node).await };
            let list = calls.run("list", deadline, call).await;
            handle.send(Message::Strays(Box::new(list)));
        });
    }

    /// Compares what the provider has with what the API server knows.
    pub(super) fn compare(&mut self, list: Result<Vec<PodId>, Fault>) {
        let strays = self.common.options.strays;
        let live = self.common.watch.is_live();
        match list {
            Err(fault) => tracing::warn!(
                node = %self.handle.name,
                reason = fault.reason,
                %fault,
                "cannot compare the provider's pods with the API server's"
            ),
            // Nobody knows whether they are unknown.
            Ok(_) if !live => {}
            Ok(pods) => self.inspect_for_strays(pods),
        }
        let next = if live && self.strays.pending() {
            strays.apart
        } else {
            self.spread(strays.every)
        };
        self.common.wheel.set(&self.handle, Timer::Strays, next);
    }

    fn inspect_for_strays(&mut self, pods: Vec<PodId>) {
        let mut seen = BTreeSet::new();
        let mut unknown = Vec::new();
        for pod in pods {
            if pod.node != self.handle.name {
                tracing::warn!(%pod, node = %self.handle.name, named = %pod.node, "the provider lists a pod of another node, it is passed over");
            } else if !self.knows(&pod.uid) && seen.insert(pod.uid.clone()) {
                unknown.push(pod);
            }
        }
        let uids: Vec<Arc<str>> = unknown.iter().map(|pod| pod.uid.clone()).collect();
        let now = self.common.clock.now().mono;
        let found = self.strays.inspect(&uids, now, self.common.options.strays.apart);
        for index in found.new {
            let pod = &unknown[index];
            self.common.metrics.stray(StrayResult::Sighted);
            tracing::info!(%pod, uid = %pod.uid, node = %pod.node, "the provider has a pod that the API server does not know");
        }
        for index in found.due {
            self.clear(unknown[index].clone());
        }
    }

    /// Deletes a pod that nobody wants, once the API server itself has said so.
    fn clear(&self, pod: PodId) {
        let (common, calls, handle) = (self.common.clone(), self.calls.clone(), self.handle.clone());
        self.calls.spawn("the end of a stray", async move {
            let uid = pod.uid.clone();
            let deleted = is_unknown(&common.client, &pod).await && {
                tracing::warn!(%pod, %uid, node = %pod.node, "deleting a pod that the API server does not know from the provider");
                let provider = common.provider.clone();
                let call = async move { provider.delete(&pod).await };
                calls.run("delete", common.options.call, call).await.is_ok()
            };
            handle.send(Message::Stray(uid, deleted));
        });
    }

    pub(super) fn stray(&mut self, uid: &str, deleted: bool) {
        self.strays.dealt(uid);
        if deleted {
            self.common.metrics.stray(StrayResult::Deleted);
        }
    }
}

/// Asks the API server itself; what is not an answer is none.
async fn is_unknown(client: &kube::Client, pod: &PodId) -> bool {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    match api.get_metadata(&pod.name).await {
        Ok(found) => found.metadata.uid.as_deref() != Some(&*pod.uid),
        Err(kube::Error::Api(status)) if is_absent(&status) => true,
        Err(error) => {
            tracing::warn!(%pod, uid = %pod.uid, %error, "cannot ask the API server for a pod that it may not know");
            false
        }
    }
}

fn no_pod(node: &str, namespace: &str, name: &str) -> Fault {
    let message = format!("pod {namespace}/{name} is not on node {node}");
    Fault::new(FaultKind::NotFound, "PodNotFound", message)
}
