//! The server for tests of other programs.

mod faults;
mod lifecycle;
mod recorded;

use evenkeel_apiserver::TestServer;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use std::pin::Pin;

/// How a client reaches the server.
#[derive(Clone, Copy, Debug)]
enum Way {
    Process,
    Socket,
}

async fn start() -> TestServer {
    evenkeel_net::init_crypto();
    TestServer::start().await.expect("a server")
}

impl Way {
    async fn client(self, api: &TestServer) -> Client {
        match self {
            Self::Process => api.client(),
            Self::Socket => {
                let kubeconfig = api.kubeconfig().await.expect("a listener");
                crate::served::client(&kubeconfig).await
            }
        }
    }

    async fn maps(self, api: &TestServer) -> Api<ConfigMap> {
        Api::default_namespaced(self.client(api).await)
    }
}

/// What is really there.
fn truth(api: &TestServer) -> Api<ConfigMap> {
    Api::default_namespaced(api.observer())
}

type Events = Pin<Box<dyn futures::Stream<Item = Result<WatchEvent<ConfigMap>, kube::Error>> + Send>>;

/// A watch from now on, and the version from which it is.
async fn watch(maps: &Api<ConfigMap>) -> (Events, String) {
    let list = maps.list(&Default::default()).await.expect("a list");
    let version = list.metadata.resource_version.expect("a version");
    (watch_from(maps, &version).await, version)
}

async fn watch_from(maps: &Api<ConfigMap>, version: &str) -> Events {
    let events = maps.watch(&WatchParams::default(), version).await;
    Box::pin(events.expect("a watch"))
}

/// The name of the object of the next event.
async fn next(events: &mut Events) -> String {
    match futures::StreamExt::next(events).await {
        Some(Ok(WatchEvent::Added(map) | WatchEvent::Modified(map))) => map.name_any(),
        other => unreachable!("no event of an object: {other:?}"),
    }
}
