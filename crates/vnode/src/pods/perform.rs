//! What a provider's call is made of: what the pod refers to, the call itself, what is made of its end.

use super::check;
use super::entry::Call;
use super::packed::Packed;
use super::{Calls, panic_text};
use crate::core::admit;
use crate::core::env::Location;
use crate::core::pod::{Input, Trouble, was_let_in};
use crate::fleet::common::{Common, timestamp};
use crate::provider::{
    ContainerId, Exit, Fault, FaultKind, PodId, PodRequest, PodState, Provider, Refusal, Sandbox,
    StartRequest, Started,
};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument as _;

/// What a call needs. The pod is unpacked when it is its turn: a hundred thousand may wait.
pub(super) struct Errand {
    pub(super) common: Arc<Common>,
    pub(super) calls: Calls,
    pub(super) id: PodId,
    pub(super) packed: Packed<Pod>,
    pub(super) sandbox: Sandbox,
    pub(super) location: Location,
    /// IDs that the pod's containers have, by name, where one is to be started.
    pub(super) taken: Vec<(Arc<str>, ContainerId)>,
}

impl Errand {
    /// Does it, whatever happens; the answer for the machine.
    pub(super) async fn run(self, call: &Call) -> Input {
        let id = self.id.clone();
        let span =
            tracing::debug_span!("pod", otel.name = call.name(), pod = %id, uid = %id.uid, node = %id.node);
        let attempt = AssertUnwindSafe(self.attempt(call).instrument(span)).catch_unwind();
        attempt.await.unwrap_or_else(|panic| {
            let panic = panic_text(&*panic);
            tracing::error!(pod = %id, uid = %id.uid, ?call, panic, "a call of the provider was not made, there is a defect");
            fault(call, defect(format!("cannot be done: {panic}")))
        })
    }

    /// What is done is boxed: of the many that wait for their turn each would have room for all of it.
    async fn attempt(self, call: &Call) -> Input {
        let common = self.common.clone();
        match call {
            Call::Create | Call::Start { .. } => common.limit.run(|| Box::pin(self.perform(call))).await,
            Call::Adopt | Call::Update => common.looks.run(|| Box::pin(self.perform(call))).await,
            Call::Stop { .. } | Call::Delete => Box::pin(self.perform(call)).await,
        }
    }

    async fn perform(self, call: &Call) -> Input {
        let provider = self.common.provider.clone();
        match call {
            Call::Adopt => Input::Adopted(self.adopt(provider).await),
            Call::Create => Input::Created(self.create(provider).await),
            Call::Update => Input::Updated(self.update(provider).await),
            Call::Start { container, attempt } => Input::Started {
                container: container.clone(),
                result: self.start(provider, container, *attempt).await,
            },
            Call::Stop { container, id, grace } => Input::Stopped {
                container: container.clone(),
                result: self.stop(provider, ContainerId(id.clone()), *grace).await,
            },
            Call::Delete => {
                let (deadline, id) = (self.common.options.call, self.id);
                let call = async move { provider.delete(&id).await };
                Input::Deleted(self.calls.run("delete", deadline, call).await)
            }
        }
    }

    fn request(&self) -> Result<PodRequest, Fault> {
        let pod = self.packed.open().map_err(|error| defect(error.to_string()))?;
        Ok(PodRequest {
            id: self.id.clone(),
            pod: Arc::new(pod),
        })
    }

    async fn adopt(self, provider: Arc<dyn Provider>) -> Result<Option<PodState>, Fault> {
        let (request, clock) = (self.request()?, self.common.clock);
        let call = async move {
            let mut state = provider.status(&request).await?;
            if let Some(state) = &mut state {
                check::state(&request.pod, state, timestamp(clock.now()))
                    .map_err(|why| check::fault("status", &request.id, why))?;
            }
            Ok(state)
        };
        self.calls.run("status", self.common.options.call, call).await
    }

    async fn update(self, provider: Arc<dyn Provider>) -> Result<(), Fault> {
        let request = self.request()?;
        let call = async move { provider.update(&request).await };
        self.calls.run("update", self.common.options.call, call).await
    }

    async fn create(self, provider: Arc<dyn Provider>) -> Result<Sandbox, Trouble> {
        let request = self.request().map_err(Trouble::Fault)?;
        if let Some(refusal) = self.refused(&request.pod) {
            return Err(Trouble::Refused(refusal));
        }
        if has_volumes(&request.pod) {
            let (volumes, events) = self.common.objects.volumes(&request.pod, &self.location).await;
            self.common.events.about_pod(&self.id, events);
            volumes?;
        }
        let call = async move {
            let sandbox = provider.create(&request).await?;
            check::sandbox(&sandbox).map_err(|why| check::fault("create", &request.id, why))?;
            Ok(sandbox)
        };
        let created = self.calls.run("create", self.common.options.call, call).await;
        created.map_err(Trouble::Fault)
    }

    /// Why the pod cannot run here. What was let in once runs on, whatever is let in today.
    fn refused(&self, pod: &Pod) -> Option<Refusal> {
        if was_let_in(pod) {
            return None;
        }
        if let Err(refusal) = admit::admit(pod, &self.common.options.features) {
            return Some(refusal);
        }
        let admit = AssertUnwindSafe(|| self.common.provider.admit(pod));
        match std::panic::catch_unwind(admit) {
            Ok(answer) => answer.err(),
            Err(panic) => {
                // Refusing over a defect would be worse than trying.
                let (id, panic) = (&self.id, panic_text(&*panic));
                tracing::error!(call = "admit", pod = %id, uid = %id.uid, panic, "the provider has panicked");
                None
            }
        }
    }

    async fn start(
        self,
        provider: Arc<dyn Provider>,
        container: &str,
        attempt: u32,
    ) -> Result<Started, Trouble> {
        let pod = self.request().map_err(Trouble::Fault)?;
        let (resolved, events) = self
            .common
            .objects
            .container(&pod.pod, container, &self.location)
            .await;
        self.common.events.about_pod(&self.id, events);
        let request = StartRequest {
            pod,
            container: Arc::new(resolved?),
            attempt,
            sandbox: self.sandbox,
        };
        let (taken, clock) = (self.taken, self.common.clock);
        let call = async move {
            let mut started = provider.start(&request).await?;
            let scheme = provider.runtime().name;
            check::started(
                &mut started,
                &request.container.name,
                &scheme,
                &taken,
                timestamp(clock.now()),
            )
            .map_err(|why| check::fault("start", &request.pod.id, why))?;
            Ok(started)
        };
        let started = self.calls.run("start", self.common.options.call, call).await;
        started.map_err(Trouble::Fault)
    }

    async fn stop(
        self,
        provider: Arc<dyn Provider>,
        container: ContainerId,
        grace: Duration,
    ) -> Result<Exit, Fault> {
        let (id, clock) = (self.id, self.common.clock);
        let deadline = self.common.options.call.saturating_add(grace);
        let call = async move {
            let mut exit = provider.stop(&id, &container, grace).await?;
            check::exit(&mut exit, timestamp(clock.now())).map_err(|why| check::fault("stop", &id, why))?;
            Ok(exit)
        };
        self.calls.run("stop", deadline, call).await
    }
}

/// Something that cannot happen has happened here, not at the provider.
fn defect(message: String) -> Fault {
    Fault::new(FaultKind::Later, "InternalError", message)
}

fn has_volumes(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.volumes.as_ref())
        .is_some_and(|volumes| !volumes.is_empty())
}

/// The answer to a call that is not waited for any more, since its pod ends.
pub(super) fn interrupted(call: &Call) -> Input {
    let message = "the pod ends, the call is not waited for any more";
    fault(call, Fault::new(FaultKind::Later, "PodEnds", message))
}

/// The answer to a call that was not made.
fn fault(call: &Call, fault: Fault) -> Input {
    match call {
        Call::Adopt => Input::Adopted(Err(fault)),
        Call::Create => Input::Created(Err(Trouble::Fault(fault))),
        Call::Update => Input::Updated(Err(fault)),
        Call::Start { container, .. } => Input::Started {
            container: container.clone(),
            result: Err(Trouble::Fault(fault)),
        },
        Call::Stop { container, .. } => Input::Stopped {
            container: container.clone(),
            result: Err(fault),
        },
        Call::Delete => Input::Deleted(Err(fault)),
    }
}
