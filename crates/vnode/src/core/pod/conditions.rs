//! The kubelet's conditions of a pod (its `status/generate.go`).

use super::machine::{Machine, World};
use super::record::Life;
use super::settings::{Extra, Holds};
use super::spec::{Role, generation};
use super::transitions::{OWN, Since, Times};
use super::words::list;
use evenkeel_probe::core::{Phase, RestartAction};
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Status, reason and message.
#[derive(Clone)]
struct Finding {
    holds: bool,
    reason: String,
    message: String,
}

impl Finding {
    fn yes() -> Self {
        Self {
            holds: true,
            reason: String::new(),
            message: String::new(),
        }
    }

    fn no(reason: &str, message: String) -> Self {
        Self {
            holds: false,
            reason: reason.to_owned(),
            message,
        }
    }
}

impl Machine {
    /// The conditions, with the times since when they are as they are.
    pub(super) fn conditions(&self, world: &World<'_>, phase: Phase) -> (Vec<PodCondition>, Times) {
        let wall = i64::try_from(world.now.wall.as_secs()).unwrap_or(i64::MAX);
        let mut times = self.since.clone();
        let extras = &world.settings.conditions;
        let mut conditions = Vec::with_capacity(OWN.len() + extras.len());
        let containers = self.containers_ready(world, phase);
        let extra: Vec<Finding> = extras
            .iter()
            .map(|extra| match extra.holds {
                Holds::ContainersReady => containers.clone(),
                Holds::ContainersRunning => self.containers_running(world, phase),
            })
            .collect();
        let ready = || ready(world, &containers, extras.iter().zip(&extra));
        let findings = if self.has_containers_to_show() {
            [
                Some(Finding {
                    holds: self.presence.is_up() && self.end.over().is_none(),
                    ..Finding::yes()
                }),
                Some(self.initialized(world, phase)),
                Some(ready()),
                Some(containers.clone()),
                Some(Finding::yes()),
                self.restarting(phase),
            ]
        } else {
            [None, None, None, None, Some(Finding::yes()), None]
        };
        let mut push = |kind: &str, finding: Finding, since: &mut Since| {
            *since = since.at(finding.holds, wall);
            let text = |text: String| (!text.is_empty()).then_some(text);
            conditions.push(PodCondition {
                type_: kind.to_owned(),
                status: if finding.holds { "True" } else { "False" }.to_owned(),
                reason: text(finding.reason),
                message: text(finding.message),
                last_probe_time: None,
                last_transition_time: jiff::Timestamp::from_second(since.at).ok().map(Time),
                observed_generation: generation(world.pod),
            });
        };
        for ((kind, finding), since) in OWN.iter().zip(findings).zip(&mut times.own) {
            if let Some(finding) = finding {
                push(kind, finding, since);
            }
        }
        if self.has_containers_to_show() {
            times.extra.resize_with(extras.len(), Since::default);
            for ((kind, finding), since) in extras.iter().zip(extra).zip(&mut times.extra) {
                if since.known.is_none() {
                    *since = Since::recorded(world.pod, &kind.kind);
                }
                push(&kind.kind, finding, since);
            }
        }
        (conditions, times)
    }

    /// All that are to run do, ready or not.
    fn containers_running(&self, world: &World<'_>, phase: Phase) -> Finding {
        if matches!(phase, Phase::Failed | Phase::Succeeded) {
            return self.containers_ready(world, phase);
        }
        let both = self.records.iter().zip(world.specs);
        let idle = both.filter(|(record, _)| {
            matches!(record.role, Role::Sidecar | Role::Regular) && record.run().is_none()
        });
        let mut names = Vec::new();
        let mut why = String::new();
        for (record, spec) in idle {
            names.push(spec.name);
            if let Some(wait) = record.wait.as_deref().filter(|wait| !wait.message.is_empty()) {
                for text in [", ", spec.name, ": ", &wait.message] {
                    why.push_str(text);
                }
            }
        }
        if names.is_empty() {
            return Finding::yes();
        }
        let message = format!("containers that do not run: {}{why}", list(&names));
        Finding::no("ContainersNotRunning", message)
    }

    fn containers_ready(&self, world: &World<'_>, phase: Phase) -> Finding {
        if phase == Phase::Failed {
            return Finding::no("PodFailed", String::new());
        }
        if phase == Phase::Succeeded {
            return Finding::no("PodCompleted", String::new());
        }
        let (mut unready, mut stalls) = (Vec::new(), Vec::new());
        let both = [Role::Sidecar, Role::Regular];
        for role in both {
            for (record, spec) in self.records.iter().zip(world.specs) {
                if record.role != role || record.run().is_some_and(|run| run.is_ready(spec)) {
                    continue;
                }
                unready.push(spec.name);
                if let Some(stalled) = record.run().and_then(|run| run.stalled.as_deref()) {
                    stalls.push((spec.name, stalled));
                }
            }
        }
        if unready.is_empty() {
            return Finding::yes();
        }
        let mut message = format!("containers with unready status: {}", list(&unready));
        for (name, (reason, why)) in &stalls {
            for text in [", ", name, ": ", reason, ": ", why] {
                message.push_str(text);
            }
        }
        // A provider's own reason is the better one, where it explains all.
        let reason = match stalls.first() {
            Some((_, (reason, _))) if stalls.len() == unready.len() => reason,
            _ => "ContainersNotReady",
        };
        Finding::no(reason, message)
    }

    fn initialized(&self, world: &World<'_>, phase: Phase) -> Finding {
        if phase == Phase::Succeeded {
            return Finding {
                reason: "PodCompleted".to_owned(),
                ..Finding::yes()
            };
        }
        // Who was initialised once stays so, whatever starts again.
        if self.initialised || self.since.own[1].known == Some(true) {
            return Finding::yes();
        }
        let mut incomplete = Vec::new();
        for (record, spec) in self.records.iter().zip(world.specs) {
            let done = match (record.role, &record.life) {
                (Role::Sidecar, Life::Running(run)) => run.is_started(spec),
                (Role::Sidecar, _) => false,
                (Role::Init, Life::Idle) => record.ended.as_ref().is_some_and(|ended| ended.code == 0),
                (Role::Init, _) => false,
                (Role::Regular | Role::Ephemeral, _) => true,
            };
            if !done {
                incomplete.push(spec.name);
            }
        }
        if incomplete.is_empty() {
            return Finding::yes();
        }
        let message = format!("containers with incomplete status: {}", list(&incomplete));
        Finding::no("ContainersNotInitialized", message)
    }

    /// Only pods that may restart as a whole have this one.
    fn restarting(&self, phase: Phase) -> Option<Finding> {
        let mut rules = self.rules.iter().flat_map(|(_, rules)| rules);
        rules
            .any(|rule| rule.action == RestartAction::RestartAllContainers)
            .then_some(())?;
        Some(match (phase, self.presence.is_restarting_all()) {
            (Phase::Succeeded, _) => Finding::no("PodCompleted", String::new()),
            (Phase::Failed, _) => Finding::no("PodFailed", String::new()),
            (_, false) => Finding::no("", String::new()),
            (_, true) => Finding {
                holds: true,
                reason: "RestartAllContainersStarted".to_owned(),
                message: "container exited with restart policy rule".to_owned(),
            },
        })
    }
}

/// `Ready`: what `ContainersReady` says, and the readiness gates. Of the extra conditions the object may show
/// old ones.
fn ready<'a>(
    world: &World<'_>,
    containers: &Finding,
    extra: impl Iterator<Item = (&'a Extra, &'a Finding)> + Clone,
) -> Finding {
    if !containers.holds {
        return Finding::no(&containers.reason, containers.message.clone());
    }
    let spec = world.pod.spec.as_ref();
    let status = world.pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut missing = Vec::new();
    for gate in spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten()) {
        let gate = &gate.condition_type;
        let ours = extra.clone().find(|(one, _)| one.kind == *gate);
        if let Some((_, finding)) = ours {
            if !finding.holds {
                missing.push(format!(
                    "the status of pod readiness gate {gate:?} is not \"True\", but False"
                ));
            }
            continue;
        }
        let found = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == *gate);
        match found {
            None => missing.push(format!(
                "corresponding condition of pod readiness gate {gate:?} does not exist."
            )),
            Some(condition) if condition.status != "True" => missing.push(format!(
                "the status of pod readiness gate {gate:?} is not \"True\", but {}",
                condition.status
            )),
            Some(_) => {}
        }
    }
    if missing.is_empty() {
        return Finding::yes();
    }
    Finding::no("ReadinessGatesNotReady", missing.join(", "))
}
