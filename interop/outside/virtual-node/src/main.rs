//! A virtual node whose containers are names in a list: they run until they are stopped, and do nothing.

use evenkeel_vnode::provider::{
    ContainerId, Doing, Exit, Fault, NodeTemplate, Observed, PodId, PodRequest, PodState, Provider, Runtime,
    Sandbox, StartRequest, Started,
};
use evenkeel_vnode::{Fleet, Options};
use futures::future::{BoxFuture, FutureExt as _, ready};
use jiff::Timestamp;
use kube::Client;
use std::collections::HashMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct Names {
    pods: Mutex<HashMap<PodId, PodState>>,
}

impl Names {
    fn pods(&self) -> MutexGuard<'_, HashMap<PodId, PodState>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sandbox() -> Sandbox {
    Sandbox {
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
    }
}

impl Provider for Names {
    fn runtime(&self) -> Runtime {
        Runtime {
            name: "names".to_owned(),
            version: "1".to_owned(),
        }
    }

    fn node(&self, _: &str) -> NodeTemplate {
        let capacity = [("pods", "110"), ("cpu", "4"), ("memory", "8Gi")];
        NodeTemplate {
            capacity: capacity
                .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
                .into(),
            ..NodeTemplate::default()
        }
    }

    fn list<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Vec<PodId>, Fault>> {
        let pods = self.pods();
        let here = pods.keys().filter(|pod| &*pod.node == node).cloned().collect();
        ready(Ok(here)).boxed()
    }

    fn status<'a>(&'a self, pod: &'a PodRequest) -> BoxFuture<'a, Result<Option<PodState>, Fault>> {
        ready(Ok(self.pods().get(&pod.id).cloned())).boxed()
    }

    fn create<'a>(&'a self, pod: &'a PodRequest) -> BoxFuture<'a, Result<Sandbox, Fault>> {
        let mut pods = self.pods();
        let state = pods.entry(pod.id.clone()).or_default();
        state.sandbox = sandbox();
        ready(Ok(sandbox())).boxed()
    }

    fn start<'a>(&'a self, request: &'a StartRequest) -> BoxFuture<'a, Result<Started, Fault>> {
        let (pod, name) = (&request.pod.id, &request.container.name);
        let id = ContainerId(format!("names://{}/{name}/{}", pod.uid, request.attempt).into());
        let at = Timestamp::now();
        let observed = Observed {
            id: id.clone(),
            doing: Doing::Running { since: at },
        };
        let mut pods = self.pods();
        pods.entry(pod.clone())
            .or_default()
            .containers
            .insert(name.clone(), observed);
        let image_id = String::new();
        ready(Ok(Started { id, image_id, at })).boxed()
    }

    fn stop<'a>(
        &'a self,
        pod: &'a PodId,
        container: &'a ContainerId,
        _: Duration,
    ) -> BoxFuture<'a, Result<Exit, Fault>> {
        let exit = Exit {
            code: 0,
            reason: String::new(),
            message: String::new(),
            started_at: None,
            at: Timestamp::now(),
        };
        let mut pods = self.pods();
        let stopped = pods
            .get_mut(pod)
            .into_iter()
            .flat_map(|pod| pod.containers.values_mut());
        for observed in stopped.filter(|observed| observed.id == *container) {
            observed.doing = Doing::Ended(exit.clone());
        }
        ready(Ok(exit)).boxed()
    }

    fn delete<'a>(&'a self, pod: &'a PodId) -> BoxFuture<'a, Result<(), Fault>> {
        self.pods().remove(pod);
        ready(Ok(())).boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::try_default().await?;
    let provider = Arc::new(Names::default());
    let options = Options::new("outside", &*provider, vec![Ipv4Addr::LOCALHOST.into()]);
    let fleet = Fleet::start(client, provider, options, CancellationToken::new());
    fleet.add("outside-1");
    tokio::signal::ctrl_c().await?;
    fleet.shutdown();
    fleet.stopped().await;
    Ok(())
}
