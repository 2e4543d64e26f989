//! Modules come.

use super::base::{Bound, CLAIMED, Running};
use super::{Activation, Inner, LATELY, invalid, journal};
use crate::core::claims::Sharing;
use crate::core::module::{self, Module as Wanted};
use crate::core::profile::FailedInstall;
use crate::core::{Connection, Modules};
use evenkeel_arklet::{ErrorKind, Install, Module, ModuleId, ModuleState, Outcome, Tunnel};
use evenkeel_vnode::provider::{
    ContainerId, Doing, Fault, FaultKind, PodId, PodRequest, Report, Sandbox, StartRequest, Started,
};
use jiff::Timestamp;
use std::pin::pin;
use std::time::{Duration, Instant};
use tracing::Instrument as _;

/// Pauses while another operation, or a module's start, is waited for.
const PAUSE: Duration = Duration::from_millis(500);
/// How often it is checked whether a base has moved.
const MOVES: Duration = Duration::from_secs(1);

impl Inner {
    /// Claims a pod's modules, and notes that before any is installed.
    pub(super) async fn create(&self, request: &PodRequest) -> Result<Sandbox, Fault> {
        let bound = self.bound(&request.id.node)?;
        let modules = Modules::of(&request.pod, &self.settings.profile).map_err(invalid)?;
        self.claim(&bound, &request.id, &modules.0).await?;
        Ok(Self::sandbox(&bound.base))
    }

    /// Claims modules for a pod, which waits where another has one that it cannot share.
    pub(super) async fn claim(&self, bound: &Bound, pod: &PodId, modules: &[Wanted]) -> Result<(), Fault> {
        self.read_journal(bound).await?;
        {
            let mut state = bound.memory.state();
            let sharing = self.settings.sharing;
            let mut wanted = modules.iter().filter(|_| sharing == Sharing::Shared);
            if let Some(fault) = wanted.find_map(|module| state.cannot_share(&bound.base, &pod.uid, module)) {
                return Err(fault);
            }
            let ids: Vec<_> = modules.iter().map(|module| module.key.clone()).collect();
            match state.claims.claim(&journal::owner(pod), &ids, sharing) {
                Ok(false) => {}
                Ok(true) => state.changed(),
                Err((module, other)) => {
                    let leaving = state.leaving.contains(&other.uid);
                    let kind = if leaving {
                        FaultKind::Later
                    } else {
                        FaultKind::Never
                    };
                    let message = format!("module {module} on {} belongs to pod {}", bound.base, other.pod);
                    return Err(Fault::new(kind, CLAIMED, message));
                }
            }
            for module in modules {
                // Where pods share it, it is the first one's; a former version has noted none.
                if !state.jars.contains_key(&module.key) {
                    state.note_jar(module);
                }
            }
            // It comes, whatever of it went before.
            state.leaving.remove(&pod.uid);
            state.unmet.remove(&pod.uid);
        }
        self.write_journal(bound).await
    }

    /// Installs a module, unless it is there.
    pub(super) async fn start(&self, request: &StartRequest) -> Result<Started, Fault> {
        let pod = &request.pod.id;
        let bound = self.bound(&pod.node)?;
        let module = module::module(&request.container, &self.settings.profile).map_err(|problem| {
            Fault::new(FaultKind::Later, module::INVALID, format!("container{problem}"))
        })?;
        let span = tracing::info_span!("install", %pod, uid = %pod.uid, base = %bound.base.identity, module = %module.key);
        let began = Instant::now();
        let result = self
            .install(&bound, pod, &module, request)
            .instrument(span.clone())
            .await
            .map_err(|fault| about(std::slice::from_ref(&module.key), fault));
        span.in_scope(|| match &result {
            Ok(_) => tracing::info!(took = ?began.elapsed(), "module installed"),
            Err(fault) => {
                tracing::warn!(took = ?began.elapsed(), reason = fault.reason, error = fault.message, "a module is not installed");
            }
        });
        if let (Err(fault), Some(observer)) = (&result, self.observer.get()) {
            observer.not_installed(&bound.base, &module.key, fault);
        }
        result
    }

    async fn install(
        &self,
        bound: &Bound,
        pod: &PodId,
        wanted: &Wanted,
        request: &StartRequest,
    ) -> Result<Started, Fault> {
        // A new image of a pod that runs is a module that it has not claimed yet.
        self.claim(bound, pod, std::slice::from_ref(wanted)).await?;
        let mut turn = bound.memory.turn(&wanted.key.name).await;
        // It may have been installed for another pod since it was claimed.
        let other = {
            let mut state = bound.memory.state();
            let other = state.other_jar(&bound.base, &pod.uid, wanted);
            if other.is_some() {
                state.forget(&pod.uid, &wanted.key);
            }
            other
        };
        if let Some(fault) = other {
            self.write_journal(bound).await?;
            // Nothing has ended: it waits, as if it had come later.
            let kind = FaultKind::Later;
            return Err(Fault { kind, ..fault });
        }
        if let Some(found) = self.shared(bound, pod, &wanted.key).await? {
            return Ok(self.runs(bound, request, wanted, &found));
        }
        // The noted one may be another pod's, which claimed the module first and has left since.
        bound.memory.state().note_jar(wanted);
        self.write_journal(bound).await?;
        let install = Install {
            args: request.container.args.clone().unwrap_or_default(),
            envs: environment(request),
            ..Install::new(wanted.key.clone(), &*wanted.url)
        };
        let deadline = Instant::now() + self.settings.install;
        let mut found = {
            let asked = async {
                tokio::select! {
                    found = self.request(bound, &install, deadline) => found,
                    () = self.moves(bound) => {
                        let message = format!("{} has gone elsewhere while a module was installed", bound.base);
                        Err(Fault::new(FaultKind::Later, "BaseRestarted", message))
                    }
                }
            };
            let mut asked = pin!(asked);
            if let Ok(found) = tokio::time::timeout(self.settings.permit, &mut asked).await {
                found?
            } else {
                turn.release_permit();
                asked.await?
            }
        };
        if found.state == ModuleState::Deactivated && self.settings.activation == Activation::Switch {
            found = self.activate(bound, found).await?;
        }
        Ok(self.runs(bound, request, wanted, &found))
    }

    /// A module that runs for another pod already, as it is: whether it serves, or another version does, was
    /// said by then.
    async fn shared(&self, bound: &Bound, pod: &PodId, id: &ModuleId) -> Result<Option<Module>, Fault> {
        if bound.memory.state().anothers(&pod.uid, id).is_none() {
            return Ok(None);
        }
        let list = self.inspect(bound).await?;
        let there =
            |module: &&Module| matches!(module.state, ModuleState::Activated | ModuleState::Deactivated);
        Ok(list.get(id).filter(there).cloned())
    }

    /// Requests the install until the module is there, or the base has refused it.
    async fn request(&self, bound: &Bound, install: &Install, deadline: Instant) -> Result<Module, Fault> {
        let id = install.id.as_ref().expect("a container has a name and a version");
        let base = &bound.base;
        let target = self.target(base);
        let advised = |message: String| match module::advice(&install.url) {
            Some(advice) => format!("{message}; {advice}"),
            None => message,
        };
        let tunnel = self.way(bound, LATELY).await?;
        let mut removed = false;
        loop {
            let outcome = tokio::select! {
                outcome = tunnel.install(&target, install) => outcome,
                module = self.comes(bound, id) => return Ok(module),
            };
            let why = match outcome {
                Ok(Outcome::Done { modules }) => {
                    if let Some(module) = modules.into_iter().find(|module| module.id == *id) {
                        return Ok(module);
                    }
                    "the base says that it is installed, and does not list it".to_owned()
                }
                Ok(Outcome::Mismatch { found, .. }) => {
                    return Err(self.mismatch(bound, tunnel, id, &found).await);
                }
                Ok(Outcome::Failed(failure)) => {
                    let message = format!("module {id} could not be installed on {base}: {failure}");
                    return Err(self.failed("InstallFailed", advised(message)));
                }
                Ok(other) => other.to_string(),
                Err(error) if error.may_have_run() => evenkeel_net::log::causes(&error),
                Err(error) => return Err(self.fault(bound, &error)),
            };
            // It may be there already: installed by an earlier process, by an answer that got lost, or by
            // somebody else.
            let list = self.inspect(bound).await?;
            match list.get(id).map(|module| (module, &module.state)) {
                Some((module, ModuleState::Activated | ModuleState::Deactivated)) => {
                    return Ok(module.clone());
                }
                Some((_, ModuleState::Broken)) if !removed => {
                    // Its identity is blocked until it is removed.
                    removed = true;
                    self.remove(bound, id).await?;
                    continue;
                }
                Some((module, ModuleState::Broken)) => {
                    let cause = module.latest().map(|record| record.message.as_str());
                    let cause = cause.and_then(evenkeel_arklet::cause::of_trace).unwrap_or(why);
                    let message = format!("module {id} is broken on {base}: {cause}");
                    return Err(self.failed("InstallFailed", advised(message)));
                }
                Some(_) | None => tracing::debug!(%base, module = %id, why, "not there yet"),
            }
            if Instant::now() + PAUSE >= deadline {
                let message = format!("module {id} did not come to be on {base} in time: {why}");
                return Err(Fault::new(FaultKind::Later, "InstallTimeout", message));
            }
            tokio::time::sleep(jitter(PAUSE)).await;
        }
    }

    /// Waits until a base is known to be elsewhere: nobody answers any more where it was asked.
    async fn moves(&self, bound: &Bound) {
        loop {
            tokio::time::sleep(MOVES).await;
            let known = self.bases.base(&bound.node);
            if known.is_some_and(|base| base.endpoint != bound.base.endpoint) {
                return;
            }
        }
    }

    /// Waits until a base's list shows a module installed. Over MQTT the reply to an install is lost when the
    /// broker restarts meanwhile; over HTTP installs are asked about until they end.
    async fn comes(&self, bound: &Bound, id: &ModuleId) -> Module {
        if bound.base.endpoint.by != Connection::Mqtt {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(jitter(self.settings.resync)).await;
            let list = match self.inspect(bound).await {
                Ok(list) => list,
                Err(fault) => {
                    tracing::debug!(reason = fault.reason, "{}", fault.message);
                    continue;
                }
            };
            let module = list.get(id);
            let there =
                |module: &&Module| matches!(module.state, ModuleState::Activated | ModuleState::Deactivated);
            if let Some(module) = module.filter(there) {
                return module.clone();
            }
        }
    }

    /// The jar holds another module: what it is goes again, unless it is somebody's. Of several that came
    /// meanwhile only one is the jar's, and nobody can tell which: they stay.
    async fn mismatch(
        &self,
        bound: &Bound,
        tunnel: &dyn Tunnel,
        asked: &ModuleId,
        found: &[ModuleId],
    ) -> Fault {
        let target = self.target(&bound.base);
        for stray in found.iter().filter(|_| found.len() == 1) {
            if !bound.memory.state().claims.owners(stray).is_empty() {
                continue;
            }
            let why = match tunnel.uninstall(&target, stray).await {
                Ok(outcome) if outcome.is_gone() => continue,
                Ok(outcome) => outcome.to_string(),
                Err(error) => evenkeel_net::log::causes(&error),
            };
            tracing::warn!(base = %bound.base, module = %stray, why, "the module of a wrong jar could not be uninstalled");
        }
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let found = if found.is_empty() {
            "something else".to_owned()
        } else {
            found.join(", ")
        };
        let message = format!(
            "the jar's manifest says {found}, the container {asked}: name it as Ark-Biz-Name and set its version to Ark-Biz-Version"
        );
        // Another try would find the same jar: whether there is one the pod's restart policy says.
        let kind = match self.settings.profile.failed_install {
            FailedInstall::Waits => FaultKind::Never,
            FailedInstall::FailsPod => FaultKind::Fatal,
        };
        Fault::new(kind, "ManifestMismatch", message)
    }

    /// Makes a module the version that serves.
    async fn activate(&self, bound: &Bound, module: Module) -> Result<Module, Fault> {
        let target = self.target(&bound.base);
        let tunnel = self.way(bound, Duration::ZERO).await?;
        match tunnel.switch(&target, &module.id).await {
            Ok(Outcome::Done { .. }) => {}
            Ok(outcome) => {
                tracing::warn!(base = %bound.base, module = %module.id, %outcome, "the base does not switch to the new version of a module");
                return Ok(module);
            }
            // Over MQTT there is no such command.
            Err(error) if matches!(error.kind, ErrorKind::Unsupported { .. }) => return Ok(module),
            Err(error) => return Err(self.fault(bound, &error)),
        }
        let list = self.inspect(bound).await?;
        Ok(list.get(&module.id).cloned().unwrap_or(module))
    }

    /// Takes note of a module that is installed; a version that does not serve is reported at once.
    fn runs(&self, bound: &Bound, request: &StartRequest, wanted: &Wanted, module: &Module) -> Started {
        let pod = &request.pod.id;
        let now = Timestamp::now();
        let doing = super::inspect::doing(module, now, now);
        let created = module.created_ms();
        let container = self.container_id(bound, &wanted.key, module, request.attempt);
        let running = Running {
            pod: pod.clone(),
            container: container.clone(),
            created,
            doing: doing.clone(),
            url: wanted.url.clone(),
        };
        let key = (wanted.key.clone(), pod.uid.clone());
        bound.memory.state().running.insert(key, running);
        if matches!(doing, Doing::Stalled { .. })
            && let Some(host) = self.host.get()
        {
            host.report(Report::Container {
                pod: pod.clone(),
                name: wanted.key.name.as_str().into(),
                observed: evenkeel_vnode::provider::Observed {
                    id: container.clone(),
                    doing: doing.clone(),
                },
            });
        }
        Started {
            id: container,
            image_id: wanted.url.to_string(),
            at: doing.since().unwrap_or(now),
        }
    }

    /// A container's ID. Of two starts of a container it is never the same: restarts are counted, since a
    /// module that other pods have goes on, and profiles and bases may give no time.
    pub(super) fn container_id(
        &self,
        bound: &Bound,
        id: &ModuleId,
        module: &Module,
        attempt: u32,
    ) -> ContainerId {
        let since = module.created_ms();
        let profile = &self.settings.profile;
        let address = bound.base.endpoint.address;
        let text = profile.container_id(address, &id.name, &id.version, since.unwrap_or_default());
        let count = if attempt == 0 {
            String::new()
        } else {
            format!(":{attempt}")
        };
        ContainerId(format!("arklet://{text}{count}").into())
    }
}

/// A fault that says which modules it is about.
pub(super) fn about(modules: &[ModuleId], fault: Fault) -> Fault {
    let names: Vec<_> = modules.iter().map(ToString::to_string).collect();
    if names.iter().all(|name| fault.message.contains(name)) {
        return fault;
    }
    let message = format!("module {}: {}", names.join(", "), fault.message);
    Fault { message, ..fault }
}

/// What stands in the container's environment beside the version.
fn environment(request: &StartRequest) -> std::collections::BTreeMap<String, String> {
    let variables = request.container.env.iter().flatten();
    variables
        .filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?)))
        .collect()
}

/// Up to a half more, so that those who wait do not go in lockstep.
fn jitter(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + rand::random::<f64>() / 2.0)
}
