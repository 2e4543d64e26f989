//! Probes of all pods, by one manager.

use super::directory::{Directory, Handle};
use super::events::{Events, OfProbes};
use crate::core::pod::{Input, ProbeOrder, Spec, specs};
use crate::pods::{Message, panic_text};
use crate::provider::{ContainerId, ExecIo, PodId, Provider};
use evenkeel_kubelet_api::Kept;
use evenkeel_probe::core::engine::Config;
use evenkeel_probe::core::{Attempt, Handler, Outcome, Target, Verdict};
use evenkeel_probe::handler::exec::{Execute, Ran, timed_out};
use evenkeel_probe::handler::{Handlers, Prober};
use evenkeel_probe::manager::Manager;
use evenkeel_probe::manifest;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::registry::Registry;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The prober, as actors use it.
#[derive(Clone, Debug)]
pub(crate) struct Probes {
    manager: Manager,
    directory: Arc<Directory>,
}

impl Probes {
    /// Starts the prober, and a task that reports to actors what it publishes.
    pub(crate) fn start(
        provider: Arc<dyn Provider>,
        directory: Arc<Directory>,
        config: Config,
        events: Events,
        stop: CancellationToken,
    ) -> Self {
        let asks = Asks {
            provider,
            directory: directory.clone(),
        };
        let sink = OfProbes {
            events,
            directory: directory.clone(),
        };
        let manager = Manager::builder(config).events(Arc::new(sink)).start(asks, stop);
        let mut changes = manager.subscribe();
        let told = directory.clone();
        // Ends with the manager.
        tokio::spawn(async move {
            while let Some(change) = changes.next().await {
                let Some((pod, handle)) = told.probed(&change.key.pod) else {
                    continue;
                };
                let input = Input::Probed {
                    container: change.key.container,
                    id: change.container_id,
                    kind: change.key.kind,
                    reading: change.reading,
                };
                handle.send(Message::Told(pod.uid, Box::new(input)));
            }
        });
        Self { manager, directory }
    }

    /// What a pod's machine wants of the prober. Pods without probes are never given to it.
    pub(crate) fn order(&self, id: &PodId, pod: &Pod, handle: &Arc<Handle>, order: ProbeOrder) {
        match order {
            ProbeOrder::Watch => self.watch(id, pod, handle),
            ProbeOrder::Status(status) => {
                if self.directory.probed(&id.uid).is_some() {
                    // What comes of it is told like every change.
                    self.manager.update_status(&id.uid, status);
                }
            }
            ProbeOrder::Terminating => self.manager.stop_liveness_and_startup(&id.uid),
            ProbeOrder::Forget => self.forget(id),
        }
    }

    fn watch(&self, id: &PodId, pod: &Pod, handle: &Arc<Handle>) {
        if !specs(pod).iter().any(Spec::has_probes) {
            return;
        }
        let converted = match manifest::convert(pod) {
            Ok(converted) => Arc::new(converted),
            Err(error) => {
                tracing::warn!(pod = %id, uid = %id.uid, %error, "the probes of a pod cannot be read, none of them is made");
                return;
            }
        };
        if self.directory.probed(&id.uid).is_some() {
            self.manager.update_pod(converted);
        } else {
            self.directory.probe(id.clone(), handle.clone());
            self.manager.add_pod(converted);
        }
    }

    pub(crate) fn forget(&self, id: &PodId) {
        if self.directory.unprobe(&id.uid) {
            self.manager.remove_pod(&id.uid);
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.manager.register(registry);
    }

    /// Waits until nothing is probed any more, after the stop.
    pub(crate) async fn stopped(&self) {
        self.manager.stopped().await;
    }
}

/// Makes attempts: the provider's way where it has one, else a kubelet's; commands run in the provider's
/// container.
struct Asks {
    provider: Arc<dyn Provider>,
    directory: Arc<Directory>,
}

/// What an attempt may take beyond its time, until it counts as lost.
const SLACK: Duration = Duration::from_secs(2);

impl Prober for Asks {
    async fn probe(&self, attempt: &Attempt) -> Outcome {
        let Some((pod, handle)) = self.directory.probed(&attempt.key.pod) else {
            return Outcome::error(Verdict::Unknown, "the pod is over");
        };
        let most = attempt.probe.timeout.saturating_mul(attempt.tries()) + SLACK;
        let asking = AssertUnwindSafe(self.attempt(pod, attempt)).catch_unwind();
        let asking = handle.term.run(tokio::time::timeout(most, asking));
        match asking.await {
            // It counts for nothing, and the pod is forgotten in a moment.
            None => Outcome::error(Verdict::Unknown, "its node is not served here any more"),
            Some(Ok(Ok(outcome))) => outcome,
            Some(Ok(Err(panic))) => {
                let panic = panic_text(&*panic);
                tracing::error!(call = "probe", probe = %attempt.key, panic, "the provider has panicked");
                Outcome::error(Verdict::Unknown, format!("the provider panicked: {panic}"))
            }
            Some(Err(_)) => Outcome::error(
                Verdict::Unknown,
                format!("the provider did not answer within {most:?}"),
            ),
        }
    }
}

impl Asks {
    async fn attempt(&self, pod: PodId, attempt: &Attempt) -> Outcome {
        if !matches!(attempt.probe.handler, Handler::Exec { .. })
            && let Some(asked) = self.provider.probe(&pod, attempt)
        {
            return asked.await;
        }
        let exec = InContainer {
            provider: self.provider.clone(),
            pod,
        };
        Handlers::new(Arc::new(exec)).probe(attempt).await
    }
}

/// Runs commands in a pod's containers.
struct InContainer {
    provider: Arc<dyn Provider>,
    pod: PodId,
}

impl Execute for InContainer {
    fn execute<'a>(
        &'a self,
        target: &'a Target,
        command: &'a [String],
        timeout: Duration,
    ) -> BoxFuture<'a, Ran> {
        Box::pin(async move {
            let container = ContainerId(target.container_id.clone());
            let (stdout, stderr) = (Kept::up_to(Outcome::OUTPUT), Kept::up_to(Outcome::OUTPUT));
            let io = ExecIo {
                stdin: None,
                stdout: Some(Box::new(stdout.clone())),
                stderr: Some(Box::new(stderr.clone())),
                terminal: None,
            };
            let running = self.provider.exec(&self.pod, &container, command, io);
            match tokio::time::timeout(timeout, running).await {
                Err(_) => timed_out(command, timeout),
                Ok(Err(fault)) => Ran::Failed { error: fault.message },
                Ok(Ok(code)) => {
                    let mut output = stdout.take();
                    output.extend(stderr.take());
                    output.truncate(Outcome::OUTPUT);
                    Ran::Exited { code, output }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::fake::{Fake, Trick, World};
    use crate::ownership;
    use evenkeel_election::{FencingToken, Gate};
    use evenkeel_probe::core::{Compat, Container, Key, Kind, Probe, Role};
    use std::pin::pin;

    fn attempt() -> Attempt {
        let handler = Handler::Exec {
            command: vec!["true".to_owned()],
        };
        let container = Container {
            name: "app".into(),
            role: Role::Regular,
            restart_policy: None,
            restart_rules: Vec::new(),
            ports: Vec::new(),
            env: Vec::new(),
            startup: None,
            readiness: None,
            liveness: None,
        };
        Attempt {
            ticket: 0,
            key: Key {
                pod: "uid".into(),
                container: "app".into(),
                kind: Kind::Liveness,
            },
            target: Target {
                address: None,
                source: None,
                container: Arc::new(container),
                container_id: "fake://1".into(),
            },
            probe: Arc::new(Probe::new(handler)),
            compat: Compat::Kubelet,
            lag: Duration::ZERO,
        }
    }

    #[tokio::test]
    async fn no_probe_is_begun_or_goes_on_for_a_node_that_another_replica_may_serve() {
        let (world, gate) = (Arc::new(World::default()), Gate::new());
        let term = ownership::term(CancellationToken::new(), Some(gate.clone()));
        let (handle, _mailbox) = Handle::during(1, "node".into(), term.clone());
        let asks = Asks {
            provider: Fake::new(&world, 1),
            directory: Arc::default(),
        };
        let id = PodId {
            uid: "uid".into(),
            namespace: "default".into(),
            name: "web".into(),
            node: "node".into(),
        };
        asks.directory.probe(id, handle);
        let begun = || world.count("exec", "default/web");
        let outcome = asks.probe(&attempt()).await;
        assert_eq!((outcome.verdict, begun()), (Verdict::Unknown, 0));
        assert!(outcome.error.is_some(), "it counts for nothing");
        let token = FencingToken {
            lease_uid: "uid".to_owned(),
            transitions: 1,
        };
        gate.open(token, Duration::MAX);
        assert_eq!(
            (asks.probe(&attempt()).await.verdict, begun()),
            (Verdict::Success, 1)
        );
        world.trick("exec", "default/web", &[Trick::Hang]);
        let attempt = attempt();
        let mut probing = pin!(asks.probe(&attempt));
        assert!(probing.as_mut().now_or_never().is_none());
        assert_eq!(world.under_way("exec"), 1);
        term.stop().cancel();
        assert_eq!(probing.await.verdict, Verdict::Unknown);
        assert_eq!((world.under_way("exec"), begun()), (0, 2));
    }
}
