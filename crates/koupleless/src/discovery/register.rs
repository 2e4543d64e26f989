//! Writes down what is known of bases whose nodes other replicas serve, and corrects what our own Nodes
//! record.
//!
//! Heartbeats come to one replica, the node may be served by another: that one finds it by its Node. A node
//! that is served here is registered by the fleet, not here.

use super::{Hub, nodes};
use crate::core::Base;
use evenkeel_api::names::koupleless::{COMPONENT_LABEL, DISCOVERY, ENV_LABEL, VNODE};
use evenkeel_api::names::vnode::VIRTUAL_NODE_LABEL;
use evenkeel_net::log::causes;
use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// A node that is new is served within this time if it is ours.
const NEW: Duration = Duration::from_secs(3);
/// Pause before a Node is corrected: what is known settles meanwhile, and the fleet may write it itself.
const SETTLE: Duration = Duration::from_secs(2);
/// Pause between two tries to create a Node, or to correct one of ours.
const AGAIN: Duration = Duration::from_secs(10);
/// Pause between two proposals about a node that another replica serves, which may know better.
const PROPOSE: Duration = Duration::from_secs(60);
/// Most writes at a time.
const WRITES: usize = 8;
/// Deadline of one write.
const REQUEST: Duration = Duration::from_secs(10);

pub(super) struct Registrar {
    hub: Arc<Hub>,
    client: Client,
    /// When the next write of a node is due, and whether it is to be created.
    due: HashMap<(Arc<str>, Kind), Instant>,
    under_way: HashMap<(Arc<str>, Kind), JoinHandle<()>>,
    permits: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Create,
    Correct,
    Propose,
}

impl Registrar {
    pub(super) fn new(hub: Arc<Hub>, client: Client) -> Self {
        Self {
            hub,
            client,
            due: HashMap::new(),
            under_way: HashMap::new(),
            permits: Arc::new(Semaphore::new(WRITES)),
        }
    }

    /// Begins the writes that are due. Of one that is under way still, because the API server does not
    /// answer, there is no second.
    pub(super) fn reconcile(&mut self) {
        self.under_way.retain(|_, write| !write.is_finished());
        let wanted = self.wanted();
        let now = Instant::now();
        let mut due = HashMap::new();
        for (node, base, kind) in wanted {
            let (first, again) = match kind {
                Kind::Create => (NEW, AGAIN),
                Kind::Correct => (SETTLE, AGAIN),
                Kind::Propose => (SETTLE, PROPOSE),
            };
            let key = (node.clone(), kind);
            let mut at = self.due.get(&key).copied().unwrap_or(now + first);
            if at <= now {
                at = now + again;
                if !self.under_way.contains_key(&key) {
                    let write = self.write(node, base, kind);
                    self.under_way.insert(key.clone(), write);
                }
            }
            due.insert(key, at);
        }
        // What has just been written stays known, lest it be written at once when the watch is late; others
        // are forgotten.
        self.due.retain(|_, at| *at > now);
        self.due.extend(due);
    }

    fn wanted(&self) -> Vec<(Arc<str>, Arc<Base>, Kind)> {
        let state = self.hub.lock();
        let unseen = state.registry.unseen().filter(|(_, _, ours)| !ours);
        let unseen = unseen.map(|(node, base, _)| (node.clone(), base.clone(), Kind::Create));
        let outdated = state.registry.outdated().map(|(node, base, ours)| {
            let kind = if ours { Kind::Correct } else { Kind::Propose };
            (node.clone(), base.clone(), kind)
        });
        unseen.chain(outdated).collect()
    }

    fn write(&self, node: Arc<str>, base: Arc<Base>, kind: Kind) -> JoinHandle<()> {
        let (hub, permits) = (self.hub.clone(), self.permits.clone());
        let api: Api<Node> = Api::all(self.client.clone());
        // Short and harmless: not waited for at the shutdown.
        tokio::spawn(async move {
            let Ok(_permit) = permits.acquire().await else {
                return;
            };
            let write = async {
                match kind {
                    Kind::Create => create(&api, &hub, &node, &base).await,
                    Kind::Correct | Kind::Propose => patch(&api, &node, &base).await,
                }
            };
            let error = match timeout(REQUEST, write).await {
                Ok(Ok(())) => {
                    tracing::debug!(%node, ?kind, "what is known of a base was written to its Node");
                    return;
                }
                Ok(Err(error)) => causes(&error),
                Err(_) => format!("no answer within {REQUEST:?}"),
            };
            tracing::warn!(%node, ?kind, error, "cannot write what is known of a base to its Node");
        })
    }
}

async fn create(api: &Api<Node>, hub: &Hub, name: &str, base: &Base) -> kube::Result<()> {
    let params = PostParams {
        field_manager: Some(DISCOVERY.to_owned()),
        ..PostParams::default()
    };
    match api.create(&params, &node(hub, name, base)).await {
        // Somebody was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(|_| ()),
    }
}

async fn patch(api: &Api<Node>, name: &str, base: &Base) -> kube::Result<()> {
    let (key, value) = nodes::annotation(base);
    let patch = json!({"metadata": {"annotations": {key: value}}});
    let params = PatchParams::apply(DISCOVERY);
    match api.patch_metadata(name, &params, &Patch::Merge(&patch)).await {
        // It will be registered with it.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        patched => patched.map(|_| ()),
    }
}

/// The Node of a base before anybody serves it: by whom it is, that nobody may be scheduled to it unasked,
/// and how it is reached.
fn node(hub: &Hub, name: &str, base: &Base) -> Node {
    let mut labels = hub.profile.labels(base, &hub.env);
    let nodes = hub.lock().nodes.clone();
    let kind = nodes.as_ref().map_or("", |nodes| nodes.type_label());
    let more = [
        (COMPONENT_LABEL, VNODE),
        (ENV_LABEL, &*hub.env),
        (VIRTUAL_NODE_LABEL.0, kind),
        ("kubernetes.io/role", "agent"),
    ];
    for (key, value) in more.into_iter().filter(|(_, value)| !value.is_empty()) {
        labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    let taint = |(key, value, effect): (String, String, String)| Taint {
        key,
        value: Some(value).filter(|value| !value.is_empty()),
        effect,
        time_added: None,
    };
    let taints: Vec<Taint> = hub
        .profile
        .taints(base, &hub.env)
        .into_iter()
        .map(taint)
        .collect();
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            annotations: Some([nodes::annotation(base)].into()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(taints),
            ..NodeSpec::default()
        }),
        status: None,
    }
}
