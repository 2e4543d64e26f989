//! Containers start and end.

use super::identity;
use super::plan::Failing;
use super::shape::{Shape, find, volumes};
use super::table::{Instance, Record, exit};
use super::timers::Due;
use super::{Inner, Simulated, no_container, no_pod};
use evenkeel_api::names::simulated as names;
use evenkeel_vnode::core::pod::Role;
use evenkeel_vnode::provider::{
    ContainerId, Exit, Fault, FaultKind, PodId, PodRequest, Report, Sandbox, StartRequest, Started,
};
use jiff::Timestamp;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

impl Simulated {
    /// Waits for deadlines until the provider is gone.
    pub(super) fn wait_for_deadlines(&self) {
        let timers = self.0.timers.clone();
        let shutdown = self.0.shutdown.clone();
        let inner = Arc::downgrade(&self.0);
        let clock = self.0.settings.clock.clone();
        tokio::spawn(shutdown.run_until_cancelled_owned(async move {
            loop {
                let now = clock.now();
                for due in timers.take(now) {
                    let Some(inner) = inner.upgrade() else {
                        return;
                    };
                    inner.fire(&due, now);
                }
                // Spans between times of day can be off when somebody sets the clock: look again now and
                // then.
                let wait = timers.next().map_or(Duration::from_secs(60), |next| {
                    Duration::try_from(next.duration_since(clock.now()))
                        .unwrap_or_default()
                        .clamp(Duration::from_millis(1), Duration::from_secs(60))
                });
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = timers.sooner() => {}
                }
            }
        }));
    }

    pub(super) fn create_pod(&self, request: &PodRequest) -> Result<Sandbox, Fault> {
        let inner = &self.0;
        let now = inner.now();
        let mut table = inner.table();
        if let Some(record) = table.pods.get(&request.id.uid) {
            return Ok(record.sandbox());
        }
        let serves = request
            .pod
            .metadata
            .annotations
            .iter()
            .flatten()
            .any(|(key, value)| {
                let name = key.strip_prefix(names::PREFIX).unwrap_or("");
                name.split('.').next() == Some(names::SERVE) && value.trim() != "false"
            });
        let node = table.node(&request.id.node, &inner.settings, now);
        let address = node.pool.take().ok_or_else(|| {
            let message = format!(
                "no address is left in {} of node {}",
                node.pool.range(),
                request.id.node
            );
            Fault::new(FaultKind::Later, "FailedCreatePodSandBox", message)
        })?;
        let address = if serves {
            super::address::Cidr::loopback(address)
        } else {
            address
        };
        let mut record = Record::new(request.id.clone());
        record.address = Some(IpAddr::V4(address));
        note_hostname(&mut record, request);
        let sandbox = record.sandbox();
        table.insert(record);
        Ok(sandbox)
    }

    pub(super) fn update_pod(&self, request: &PodRequest) -> Result<(), Fault> {
        let inner = &self.0;
        super::plan::admit(&request.pod)
            .map_err(|refusal| Fault::new(FaultKind::Invalid, &refusal.reason, refusal.message))?;
        let mut table = inner.table();
        let (record, _) = table.pod(&request.id.uid).ok_or_else(|| no_pod(&request.id))?;
        let uid = record.id.uid.clone();
        for instance in record
            .containers
            .iter_mut()
            .filter(|instance| instance.ended.is_none())
        {
            let plan = super::plan::plan(&request.pod, &instance.shape.name, instance.shape.part)
                .map_err(|error| Fault::new(FaultKind::Invalid, "InvalidSimulation", error))?;
            if plan == instance.shape.plan {
                continue;
            }
            let shape = Shape {
                plan,
                ..instance.shape.as_ref().clone()
            };
            instance.shape = inner.shapes.share(shape);
            if let Some(at) = instance.end() {
                inner.timers.add(at, due(&uid, instance.number));
            }
            if let Some(live) = &instance.live {
                live.changed.notify_waiters();
            }
        }
        Ok(())
    }

    pub(super) async fn start_container(&self, request: &StartRequest) -> Result<Started, Fault> {
        let inner = &self.0;
        let id = &request.pod.id;
        let part = find(&request.pod.pod, &request.container.name).map_or(Role::Regular, |(_, part)| part);
        let shape = Shape::of(&request.pod.pod, &request.container, part)
            .map_err(|error| Fault::new(FaultKind::Never, "InvalidSimulation", error))?;
        let shape = inner.shapes.share(shape);
        {
            let mut table = inner.table();
            let (record, boot) = table.pod(&id.uid).ok_or_else(|| no_pod(id))?;
            if let Some(running) = record.newest(&shape.name).filter(|c| c.ended.is_none()) {
                // An answer that got lost: there is no second one beside it.
                return Ok(started(&boot, running));
            }
            fail(record, &shape)?;
        }
        let delay = shape.plan.start_delay.unwrap_or(inner.settings.start_delay);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let number: u64 = rand::random();
        let volumes = volumes(&request.container);
        let instance = Instance::new(number, inner.now(), shape.clone(), volumes);
        let started = {
            let mut table = inner.table();
            let (record, boot) = table.pod(&id.uid).ok_or_else(|| no_pod(id))?;
            let started = started(&boot, &instance);
            record.add(instance);
            started
        };
        if let Err(fault) = self.enliven(&id.uid, number) {
            let mut table = inner.table();
            if let Some((record, _)) = table.pod(&id.uid) {
                record.containers.retain(|instance| instance.number != number);
            }
            return Err(fault);
        }
        Ok(started)
    }

    /// Gives a container that runs whatever it needs to do something: sockets, a process, a deadline.
    pub(super) fn enliven(&self, uid: &Arc<str>, number: u64) -> Result<(), Fault> {
        let inner = &self.0;
        let mut table = inner.table();
        let Some((record, _)) = table.pod(uid) else {
            return Ok(());
        };
        let address = record.address;
        let Some(instance) = record.instance(number) else {
            return Ok(());
        };
        if let Some(at) = instance.end() {
            inner.timers.add(at, due(uid, number));
        }
        let shape = instance.shape.clone();
        if let Some(serve) = &shape.plan.serve {
            let sockets = super::serve::listen(self, uid, number, address, &shape, serve)?;
            instance.live().sockets = Some(sockets);
        }
        if shape.plan.runs {
            drop(table);
            self.run_command(uid, number, &shape);
        }
        Ok(())
    }

    pub(super) async fn stop_container(
        &self,
        pod: &PodId,
        container: &ContainerId,
        grace: Duration,
    ) -> Result<Exit, Fault> {
        let inner = &self.0;
        let number = inner.number(pod, container)?;
        let now = inner.now();
        let (until, code, changed) = {
            let mut table = inner.table();
            let (record, _) = table.pod(&pod.uid).ok_or_else(|| no_pod(pod))?;
            let instance = record
                .instance(number)
                .ok_or_else(|| no_container(pod, &container.0))?;
            if let Some(exit) = &instance.ended {
                return Ok(exit.as_ref().clone());
            }
            let heeds = inner.heeds(&instance.shape.plan);
            let (wait, code) = if heeds <= grace && !grace.is_zero() {
                (heeds, instance.shape.plan.stop_code)
            } else {
                (grace, 137)
            };
            let live = instance.live();
            let mut until = (later(now, wait), code);
            if let Some(dying) = live.dying.filter(|dying| dying.0 < until.0) {
                until = dying;
            }
            (until.0, until.1, live.changed.clone())
        };
        loop {
            // Asked for before the look, so that no end between the two is missed.
            let ended = changed.notified();
            if let Some(exit) = inner.ended(pod, number) {
                return Ok(exit);
            }
            let left = Duration::try_from(until.duration_since(inner.now())).unwrap_or_default();
            if left.is_zero() {
                let at = inner.now();
                return inner
                    .end(&pod.uid, number, |instance| {
                        exit(code, "", Some(instance.started), at)
                    })
                    .map(|(_, _, exit)| exit)
                    .or_else(|| inner.ended(pod, number))
                    .ok_or_else(|| no_container(pod, &container.0));
            }
            tokio::select! {
                () = ended => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }
}

impl Inner {
    /// A container's number; an error where the ID is of another boot, or no ID of ours.
    pub(super) fn number(&self, pod: &PodId, container: &ContainerId) -> Result<u64, Fault> {
        let mut table = self.table();
        let (record, boot) = table.pod(&pod.uid).ok_or_else(|| no_pod(pod))?;
        identity::parse(&container.0)
            .filter(|(of, number)| *of == boot.as_ref() && record.instance(*number).is_some())
            .map(|(_, number)| number)
            .ok_or_else(|| no_container(pod, &container.0))
    }

    /// How a container ended, if it has.
    pub(super) fn ended(&self, pod: &PodId, number: u64) -> Option<Exit> {
        let mut table = self.table();
        let (record, _) = table.pod(&pod.uid)?;
        record.instance(number)?.ended.as_deref().cloned()
    }

    /// Ends a container that runs; `None` if there is no such.
    pub(super) fn end(
        &self,
        uid: &str,
        number: u64,
        exit: impl FnOnce(&Instance) -> Exit,
    ) -> Option<(PodId, Arc<str>, Exit)> {
        let mut table = self.table();
        let (record, _) = table.pod(uid)?;
        let id = record.id.clone();
        let instance = record.instance(number)?;
        if instance.ended.is_some() {
            return None;
        }
        let exit = exit(instance);
        instance.ended = Some(Box::new(exit.clone()));
        if let Some(live) = &mut instance.live {
            live.ring.end_line(exit.at);
            live.end();
        }
        Some((id, instance.shape.name.clone(), exit))
    }

    /// Ends a container and reports it.
    pub(super) fn end_and_report(&self, uid: &str, number: u64, exit: impl FnOnce(&Instance) -> Exit) {
        let Some((pod, name, exit)) = self.end(uid, number, exit) else {
            return;
        };
        let Some((_, boot)) = self
            .table()
            .pod(uid)
            .map(|(record, boot)| (record.id.clone(), boot))
        else {
            return;
        };
        self.report(Report::Container {
            pod,
            name,
            observed: evenkeel_vnode::provider::Observed {
                id: identity::container(&boot, number),
                doing: evenkeel_vnode::provider::Doing::Ended(exit),
            },
        });
    }

    /// A deadline has come. It may be one of a plan that was changed since.
    fn fire(&self, due: &Due, now: Timestamp) {
        let exit = {
            let mut table = self.table();
            let Some((record, _)) = table.pod(&due.pod) else {
                return;
            };
            let Some(instance) = record.instance(due.number) else {
                return;
            };
            let dying = instance.live.as_ref().and_then(|live| live.dying);
            let signalled = dying
                .filter(|(at, _)| *at <= now)
                .map(|(at, code)| exit(code, "", Some(instance.started), at));
            let own = instance.end().filter(|at| *at <= now);
            signalled.or_else(|| own.and_then(|_| instance.own_exit()))
        };
        if let Some(exit) = exit {
            self.end_and_report(&due.pod, due.number, |_| exit);
        }
    }

    /// Time that a container takes to heed TERM.
    fn heeds(&self, plan: &super::plan::Plan) -> Duration {
        plan.stop_delay.unwrap_or(self.settings.stop_delay)
    }

    /// A signal for a container's main process.
    pub(super) fn signal(&self, uid: &Arc<str>, number: u64, signal: i32) {
        let now = self.now();
        let mut table = self.table();
        let Some((record, _)) = table.pod(uid) else {
            return;
        };
        let Some(instance) = record.instance(number) else {
            return;
        };
        let plan = &instance.shape.plan;
        let (after, code) = match signal {
            9 => (Duration::ZERO, 137),
            15 => (self.heeds(plan), plan.stop_code),
            2 | 3 => (self.heeds(plan), 128 + signal),
            _ => return,
        };
        let at = later(now, after);
        let live = instance.live();
        if live.dying.is_none_or(|(sooner, _)| at < sooner) {
            live.dying = Some((at, code));
            live.changed.notify_waiters();
            self.timers.add(at, due(uid, number));
        }
    }

    /// All containers of a node vanish.
    pub(super) fn lose(&self, node: &str) -> Vec<Report> {
        let now = self.now();
        let mut table = self.table();
        let node = table.node(node, &self.settings, now);
        let boot = node.boot.clone();
        node.outages += 1;
        node.boot = identity::boot(&format!("{}/{}", node.pool.range(), boot), node.outages).into();
        node.since = now;
        let pods: Vec<Arc<str>> = node.pods.iter().cloned().collect();
        let mut reports = Vec::new();
        for uid in pods {
            let Some(record) = table.pods.get_mut(&uid) else {
                continue;
            };
            for mut instance in record.containers.drain(..) {
                if let Some(live) = &mut instance.live {
                    live.end();
                }
                if instance.ended.is_some() {
                    continue;
                }
                instance.ended = Some(Box::new(Exit {
                    reason: "ContainerStatusUnknown".to_owned(),
                    ..exit(
                        137,
                        "The container vanished when its node lost power",
                        Some(instance.started),
                        now,
                    )
                }));
                reports.push(Report::Container {
                    pod: record.id.clone(),
                    name: instance.shape.name.clone(),
                    observed: instance.observed(&boot),
                });
            }
            if let Some(extra) = &mut record.extra {
                extra.files = None;
            }
        }
        reports
    }
}

pub(super) fn note_hostname(record: &mut Record, request: &PodRequest) {
    let hostname = request.pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    if let Some(hostname) = hostname.filter(|hostname| !hostname.is_empty()) {
        record.extra().hostname = Some(hostname);
    }
}

fn due(uid: &Arc<str>, number: u64) -> Due {
    Due {
        pod: uid.clone(),
        number,
    }
}

fn later(now: Timestamp, span: Duration) -> Timestamp {
    now.saturating_add(span).unwrap_or(Timestamp::MAX)
}

fn started(boot: &str, instance: &Instance) -> Started {
    Started {
        id: identity::container(boot, instance.number),
        image_id: format!(
            "{}://image/{:016x}",
            identity::RUNTIME,
            identity::number(&instance.shape.image)
        ),
        at: instance.started,
    }
}

/// Whether this start is one of those that fail.
fn fail(record: &mut Record, shape: &Shape) -> Result<(), Fault> {
    let plan = &shape.plan;
    if plan.pull_error.is_none() && plan.start_error.is_none() {
        return Ok(());
    }
    let failures = record.extra().failures.entry(shape.name.clone()).or_default();
    let fails = |failing: &Option<Failing>, count: &mut u32| {
        let failing = failing.as_ref()?;
        if failing.times.is_some_and(|times| *count >= times) {
            return None;
        }
        *count = count.saturating_add(1);
        Some(failing.message.clone())
    };
    if let Some(message) = fails(&plan.pull_error, &mut failures.0) {
        let message = if message.is_empty() {
            "not found".to_owned()
        } else {
            message
        };
        let message = format!("failed to pull image {:?}: {message}", shape.image);
        return Err(Fault::new(FaultKind::Later, "ErrImagePull", message));
    }
    if let Some(message) = fails(&plan.start_error, &mut failures.1) {
        let message = if message.is_empty() {
            "the simulated runtime refuses it".to_owned()
        } else {
            message
        };
        let message = format!("failed to start container {:?}: {message}", shape.name);
        return Err(Fault::new(FaultKind::Later, "RunContainerError", message));
    }
    Ok(())
}
