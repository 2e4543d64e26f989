//! The watches of a fleet: one of pods, one of its Nodes.
//!
//! Pods of nodes that are not served here are dropped as they come. When a slot is gained, the pods of its
//! nodes must become known. The watch cannot tell of what has not changed since, so that they are listed: for
//! each node alone, by the field selector `spec.nodeName`, which API servers have an index for (ten thousand
//! small answers, together as large as the pods that are wanted, and served from memory: "not older than what
//! the watch has shown" is as new as it must be). Only where most nodes are new, as at the start, one list of
//! everything is cheaper; then the watch begins anew, with its list.

use super::common::Common;
use super::directory::{Directory, Handle};
use super::read::Read;
use crate::core::node::Input;
use crate::pods::{Message, OwnList};
use evenkeel_net::log::causes;
use evenkeel_net::watch::{Delta, Unreadable, deltas, with_pauses};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, VersionMatch};
use kube::core::Selector;
use kube::runtime::watcher;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Nodes that come within this time are looked at together.
const GATHER: Duration = Duration::from_millis(200);
/// Up to so many new nodes are listed one by one in any case.
const FEW: usize = 32;
/// Lists of single nodes at a time.
const LISTS: usize = 16;
/// Between two tries of such a list, doubled up to [`AGAIN_MOST`].
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MOST: Duration = Duration::from_secs(15);

type Event = watcher::Result<Option<watcher::Event<Read>>>;

/// Watches pods until `stop`. `came`: nodes have come or gone.
pub(crate) async fn pods(common: Arc<Common>, came: Arc<Notify>, alone: bool, stop: CancellationToken) {
    let lists = Arc::new(Semaphore::new(LISTS));
    let mut watch = Watch {
        common,
        alone,
        lists,
        fields: None,
        events: futures::stream::pending().boxed(),
        stop: stop.clone(),
    };
    stop.run_until_cancelled(watch.run(&came)).await;
}

struct Watch {
    common: Arc<Common>,
    alone: bool,
    lists: Arc<Semaphore>,
    /// The field selector of `events`; `None` before there are nodes.
    fields: Option<String>,
    events: BoxStream<'static, Event>,
    stop: CancellationToken,
}

impl Watch {
    async fn run(&mut self, came: &Notify) {
        let mut gathered: Option<Instant> = None;
        loop {
            let gathering = async {
                match gathered {
                    None => std::future::pending().await,
                    Some(at) => tokio::time::sleep_until(at).await,
                }
            };
            tokio::select! {
                () = came.notified() => {
                    gathered.get_or_insert_with(|| Instant::now() + GATHER);
                }
                () = gathering => {
                    gathered = None;
                    self.cover();
                }
                event = self.events.next() => match event {
                    Some(event) => self.take(event),
                    // A watch does not end; should it, it begins anew.
                    None => self.begin(),
                },
            }
        }
    }

    /// Sees that of all nodes that are served the pods become known.
    fn cover(&mut self) {
        let served = self.common.directory.len();
        if served == 0 {
            return;
        }
        let wanted = self.wanted();
        let unlisted = self.common.directory.unlisted();
        if self.fields.as_ref() != Some(&wanted) || (unlisted.len() > FEW && unlisted.len() * 2 > served) {
            self.begin();
            return;
        }
        for handle in unlisted {
            Directory::listing(&handle);
            let listing = list(self.common.clone(), self.lists.clone(), handle);
            tokio::spawn(self.stop.clone().run_until_cancelled_owned(listing));
        }
    }

    /// The field selector that tells of all nodes that are served.
    fn wanted(&self) -> String {
        let only = match &self.common.directory.nodes()[..] {
            [only] if self.alone => only.name.to_string(),
            // What tells of all nodes tells of one, and is not begun anew for it.
            _ => return "spec.nodeName!=".to_owned(),
        };
        match self.fields.as_deref() {
            Some(all @ "spec.nodeName!=") => all.to_owned(),
            _ => format!("spec.nodeName={only}"),
        }
    }

    fn begin(&mut self) {
        let fields = self.wanted();
        let mut config = watcher::Config::default().fields(&fields);
        if let Some(labels) = &self.common.options.selector {
            config = config.labels(labels);
        }
        tracing::debug!(fields, "watching pods");
        let api: Api<Read> = Api::all(self.common.client.clone());
        self.common.watch.set_live(false);
        self.events = with_pauses(watcher(api, config)).boxed();
        self.fields = Some(fields);
    }

    fn take(&self, event: Event) {
        let common = &self.common;
        match event {
            Ok(None) => common.watch.set_live(false),
            Ok(Some(watcher::Event::Init)) => {
                common.watch.set_live(false);
                common.directory.list_begins();
            }
            Ok(Some(watcher::Event::InitApply(pod))) => self.put(pod),
            Ok(Some(watcher::Event::InitDone)) => {
                common.directory.list_ends();
                common.watch.set_live(true);
            }
            Ok(Some(watcher::Event::Apply(pod))) => {
                common.watch.set_live(true);
                self.put(pod);
            }
            Ok(Some(watcher::Event::Delete(pod))) => {
                common.watch.set_live(true);
                common.watch.shown(pod.version());
                let Some(uid) = pod.uid() else {
                    return;
                };
                let uid: Arc<str> = uid.into();
                match pod.node() {
                    Some(node) => {
                        if let Some(handle) = common.directory.node(node) {
                            handle.send(Message::Gone(uid));
                        }
                    }
                    // Of one that cannot be read nobody knows the node.
                    None => {
                        for handle in common.directory.nodes() {
                            handle.send(Message::Gone(uid.clone()));
                        }
                    }
                }
            }
            Err(error) => {
                common.watch.set_live(false);
                tracing::warn!(
                    what = "pods",
                    error = causes(&error),
                    "watch failed, trying again"
                );
            }
        }
    }

    fn put(&self, pod: Read) {
        let common = &self.common;
        common.watch.shown(pod.version());
        let epoch = common.directory.epoch();
        if let Some(node) = pod.node() {
            if let Some(handle) = common.directory.node(node)
                && let Ok(seen) = pod.into_seen()
            {
                handle.send(Message::Pod(Box::new(seen), epoch));
            }
        } else if let Err(unread) = pod.into_seen() {
            let (meta, why) = *unread;
            tracing::warn!(
                namespace = meta.namespace,
                name = meta.name,
                error = why,
                "a pod cannot be read, what was known of it stands"
            );
            let uid: Arc<str> = meta.uid.unwrap_or_default().into();
            for handle in common.directory.nodes() {
                handle.send(Message::Unreadable(uid.clone(), epoch));
            }
        }
    }
}

/// Lists the pods of one node, until that succeeds or nobody wants it any more.
async fn list(common: Arc<Common>, lists: Arc<Semaphore>, handle: Arc<Handle>) {
    let api: Api<Read> = Api::all(common.client.clone());
    let mut pause = AGAIN;
    while handle.is_open() && !handle.is_listed() {
        let Ok(permit) = lists.acquire().await else {
            return;
        };
        let mut params = ListParams::default().fields(&format!("spec.nodeName={}", handle.name));
        if let Some(labels) = &common.options.selector {
            params = params.labels(labels);
        }
        let epoch = common.directory.epoch();
        let shown = common.watch.version();
        if shown > 0 {
            params = params.at(&shown.to_string()).matching(VersionMatch::NotOlderThan);
        }
        let answer = api.list(&params).await;
        drop(permit);
        match answer {
            Ok(list) => {
                let mut pods = Vec::new();
                for pod in list.items {
                    match pod.into_seen() {
                        Ok(seen) => pods.push(seen),
                        Err(unread) => tracing::warn!(
                            namespace = unread.0.namespace,
                            name = unread.0.name,
                            error = unread.1,
                            "a pod cannot be read, it is passed over"
                        ),
                    }
                }
                handle.send(Message::OwnList(Box::new(OwnList { epoch, pods })));
                return;
            }
            Err(error) => {
                tracing::warn!(node = %handle.name, error = causes(&error), "cannot list the pods of a node, trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN_MOST);
            }
        }
    }
}

/// Watches the fleet's Nodes, for those that somebody deletes or changes.
pub(crate) async fn nodes(common: Arc<Common>, stop: CancellationToken) {
    let labels: Selector = common.options.nodes.labels.clone().into_iter().collect();
    let config = watcher::Config::default().labels_from(&labels);
    let nodes = deltas::<Node>(
        "nodes",
        Api::all(common.client.clone()),
        config,
        Unreadable::StaysAsKnown,
    );
    let mut nodes = pin!(nodes);
    let tell = |handle: &Handle, input: Input| handle.send(Message::Node(Box::new(input)));
    while let Some(Some(delta)) = stop.run_until_cancelled(nodes.next()).await {
        match delta {
            Delta::Put(mut node) => {
                let handle = node
                    .metadata
                    .name
                    .as_deref()
                    .map(|name| common.directory.node(name));
                if let Some(handle) = handle.flatten().filter(|handle| handle.is_registered()) {
                    // By far the largest part, and nobody asks for it.
                    node.metadata.managed_fields = None;
                    tell(&handle, Input::Seen(node));
                }
            }
            Delta::Gone((_, name)) => {
                if let Some(handle) = common.directory.node(&name) {
                    tell(&handle, Input::Gone);
                }
            }
            Delta::Listed(listed) => {
                // One that is being registered meanwhile is registered again, which changes nothing.
                for handle in common.directory.nodes() {
                    if !listed.contains(&(String::new(), handle.name.to_string())) && handle.is_registered() {
                        tell(&handle, Input::Gone);
                    }
                }
            }
            Delta::Broken => {}
        }
    }
}
