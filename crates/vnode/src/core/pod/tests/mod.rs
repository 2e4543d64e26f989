//! A bench: a machine, its pod, an API server that takes every status, and a provider that does as it is
//! told.
//!
//! What others test, and where it is tested here. virtual-kubelet 1.13, `node/`:
//!
//! | upstream | here |
//! |---|---|
//! | PodLifecycle createStartDeleteScenario | `lifecycle::a_pod_is_created_started_and_deleted` |
//! | ...WithDeletionErrorNotFound | `lifecycle::a_provider_that_does_not_know_the_deleted_pod_has_deleted_it` |
//! | ...WithDeletionRandomError | `lifecycle::a_deletion_that_fails_is_tried_again_until_it_is_done`, `deletion::a_stop_that_fails_is_tried_again_and_never_lost` |
//! | danglingPodScenarioWithDeletionTimestamp | `lifecycle::a_pod_that_came_deleted_and_was_run_is_asked_for_stopped_and_removed`, `..._was_never_run_is_removed_without_the_provider` |
//! | failedPodScenario, succeededPodScenario | `lifecycle::a_pod_that_is_over_is_left_alone` |
//! | updatePodWhileRunningScenario, TestPodUpdateExisting | `lifecycle::what_a_change_of_the_object_asks_for` |
//! | TestPodsEqual, TestPodsDifferent, TestPodsDifferentIgnoreValue, TestPodNoSpecChange, TestPodNoSpecChangeWithResolvedEnvOrderDifference | `lifecycle::what_a_change_of_the_object_asks_for` |
//! | TestPodShouldEnqueueDifferent{Label,Annotation}, TestCompareLabels | `lifecycle::what_a_change_of_the_object_asks_for` |
//! | TestPodShouldEnqueueDifferentDeleteTimeStamp | `lifecycle::a_pod_is_created_started_and_deleted` |
//! | TestPodShouldEnqueueDifferentDeleteGraceTime, ...GraceTimeChanged | `deletion::a_second_deletion_with_less_grace_hurries_the_stop` |
//! | TestPodShouldNotEnqueueDifferentStatus, TestCompareStatus | `lifecycle::a_status_that_another_wrote_is_nothing_to_the_provider` |
//! | TestPodCreateNewPod | `adoption::a_new_pod_is_not_asked_for` |
//! | TestPodStatusDelete | `deletion::a_pod_whose_object_is_gone_*`, `deletion::the_terminal_status_comes_with_the_last_end_and_before_the_removal` |
//! | TestUpdatePodStatusUsesKubernetesResourceVersion, TestCompareResourceVersion | `posting::an_object_older_than_what_was_written_says_nothing_of_the_status` |
//! | TestUpdatePodStatusRejectsZeroResourceVersion | `posting::an_object_without_a_version_is_not_taken_for_a_newer_one` |
//! | TestReCreatePodRace | `posting::a_pod_that_was_made_again_under_its_name_is_not_touched_by_the_old_one_s_end` |
//! | TestUpdatePodStatusWithNilProviderStatus | `adoption::a_state_that_is_empty_harms_nobody` |
//! | TestDeletedPodsMapCleansUpOnSyncProvider | `Forget` is the last thing that is said: `random::whatever_happens_a_pod_is_run_rightly_and_ends` |
//!
//! Not decidable here: danglingPodScenario without an object, TestPodControllerExitOnContextCancel,
//! TestPodEventFilter (the fleet's), TestPodCreateNewPodWithNoDownwardAPIResolution (the environment's).
//!
//! Kubernetes 1.36:
//!
//! | upstream | here |
//! |---|---|
//! | computePodActions | `containers::*` |
//! | getPhase | `containers::a_container_runs_again_by_policy`, `..._init_container_that_fails_...`, `deletion::sidecars_stop_...` |
//! | status/generate | `status::*`, `containers::init_containers_run_one_after_the_other_...` |
//! | status manager: needsReconcile, checkContainerStateTransition, TerminatePod | `posting::*`, `deletion::the_terminal_status_...` |
//! | doBackOff | `containers::restarts_wait_longer_and_longer_and_start_afresh_after_a_quiet_time` |
//! | setTerminationGracePeriod, minimum of 2 s, termination ordering | `probes::a_probe_that_fails_restarts_the_container`, `deletion::two_seconds_are_the_least_grace`, `deletion::a_forced_deletion_gives_the_least_time`, `deletion::a_pod_whose_object_is_gone_has_the_time_that_it_names`, `deletion::sidecars_stop_...` |
//! | setReadyStateOnKubeletRestart | `adoption::a_taken_over_container_is_ready_until_its_probe_says_otherwise` |
//! | e2e container_probe: readiness never restarts, failing readiness is never ready | `probes::a_container_starts_and_is_ready_as_its_probes_say` |
//! | e2e container_probe: liveness or startup restarts, own grace period | `probes::a_probe_that_fails_restarts_the_container` |
//! | e2e container_probe: restart count grows monotonically | `probes::restart_counts_only_grow_while_a_probe_goes_on_failing` |
//! | e2e container_probe: the same for sidecars | `probes::a_sidecar_whose_probe_fails_runs_again_even_where_nothing_restarts`, `containers::what_follows_a_sidecar_...` |
//! | e2e container_probe: terminating pods are not probed for liveness and startup | `probes::the_prober_hears_of_the_pod_its_status_and_its_end` |

#![allow(
    clippy::option_option,
    reason = "an answer may be the usual one, none, or this"
)]

mod adoption;
mod containers;
mod deletion;
mod extra;
mod lifecycle;
mod posting;
mod probes;
mod random;
mod status;

use super::*;
use crate::core::Now;
use crate::core::reported::{ContainerId, Doing, Exit, Fault, FaultKind, Observed, Sandbox, Started};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const EPOCH: u64 = 1_767_225_600;

struct Bench {
    machine: Machine,
    settings: Settings,
    pod: Pod,
    now: Now,
    /// Everything that was asked for so far.
    log: Vec<Action>,
}

fn settings() -> Settings {
    Settings {
        runtime: "sim".to_owned(),
        host_addresses: vec!["10.0.0.1".parse().unwrap()],
        back_off: Duration::from_secs(10),
        back_off_max: Duration::from_secs(300),
        reconcile: Duration::from_secs(10),
        conditions: Vec::new(),
        fail_refused: false,
    }
}

fn pod(spec: &Value) -> Pod {
    let mut spec = spec.clone();
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "web", "image": "web:1"}]);
    }
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-1", "resourceVersion": "1", "generation": 1},
        "spec": spec,
    }))
    .unwrap()
}

fn web() -> Pod {
    pod(&json!({}))
}

fn time(after: u64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(i64::try_from(EPOCH + after).unwrap()).unwrap()
}

fn exit(code: i32) -> Exit {
    Exit {
        code,
        reason: String::new(),
        message: String::new(),
        started_at: None,
        at: time(0),
    }
}

fn sandbox() -> Sandbox {
    Sandbox {
        addresses: vec!["10.1.0.7".parse().unwrap()],
    }
}

fn fault(kind: FaultKind, reason: &str) -> Fault {
    Fault::new(kind, reason, format!("{reason} it says"))
}

fn started(id: &str) -> Started {
    Started {
        id: ContainerId(id.into()),
        image_id: "sha256:1".to_owned(),
        at: time(0),
    }
}

impl Bench {
    fn new(pod: Pod) -> Self {
        Self::of(Machine::new(&pod), pod)
    }

    fn of(machine: Machine, pod: Pod) -> Self {
        Self {
            machine,
            settings: settings(),
            pod,
            now: Now {
                mono: Duration::from_secs(1000),
                wall: Duration::from_secs(EPOCH),
            },
            log: Vec::new(),
        }
    }

    /// A pod whose containers all run.
    fn running(pod: Pod) -> Self {
        let mut bench = Self::new(pod);
        bench.play(Input::Seen);
        bench
    }

    fn step(&mut self, input: Input) -> Vec<Action> {
        let actions = self.machine.step(&self.settings, &self.pod, input, self.now);
        self.log.extend(actions.iter().cloned());
        actions
    }

    /// Steps, and answers everything that is asked for as a willing world does. Tells what was asked for in
    /// all.
    fn play(&mut self, input: Input) -> Vec<Action> {
        self.play_but(input, |_| None)
    }

    /// Likewise, but for what `but` answers: `Some(None)` leaves it unanswered.
    fn play_but(
        &mut self,
        input: Input,
        mut but: impl FnMut(&Action) -> Option<Option<Input>>,
    ) -> Vec<Action> {
        let from = self.log.len();
        let mut inputs = VecDeque::from([input]);
        let mut turns = 0;
        while let Some(input) = inputs.pop_front() {
            turns += 1;
            assert!(turns < 1000, "it never settles: {:?}", &self.log[from..]);
            for action in self.step(input) {
                match but(&action) {
                    Some(answer) => inputs.extend(answer),
                    None => inputs.extend(self.answer(&action)),
                }
            }
        }
        self.log[from..].to_vec()
    }

    fn answer(&mut self, action: &Action) -> Vec<Input> {
        match action {
            Action::Adopt => vec![Input::Adopted(Ok(None))],
            Action::Create => vec![Input::Created(Ok(sandbox()))],
            Action::Update => vec![Input::Updated(Ok(()))],
            Action::Start { container, attempt } => vec![Input::Started {
                container: container.clone(),
                result: Ok(Started {
                    at: time(self.now.mono.as_secs() - 1000),
                    ..started(&format!("sim://{container}/{attempt}"))
                }),
            }],
            Action::Stop { container, .. } => vec![Input::Stopped {
                container: container.clone(),
                result: Ok(exit(0)),
            }],
            Action::Delete => vec![Input::Deleted(Ok(()))],
            Action::Post(status) => vec![Input::Posted(Posted::Done(self.write(status))), Input::Seen],
            Action::Remove => vec![Input::Removed(true)],
            Action::Record { .. } | Action::Probe(_) | Action::Wake(_) | Action::Forget => Vec::new(),
        }
    }

    /// The API server takes a status; foreign conditions stay.
    fn write(&mut self, status: &PodStatus) -> String {
        let mut status = status.clone();
        let own: Vec<_> = status
            .conditions
            .iter()
            .flatten()
            .map(|c| c.type_.clone())
            .collect();
        let old = self.pod.status.take().unwrap_or_default();
        let foreign = old
            .conditions
            .into_iter()
            .flatten()
            .filter(|c| !own.contains(&c.type_));
        status.conditions.get_or_insert_default().extend(foreign);
        self.pod.status = Some(status);
        self.bump()
    }

    fn bump(&mut self) -> String {
        let version = self.pod.metadata.resource_version.as_deref().unwrap_or("0");
        let version = (version.parse::<u64>().unwrap() + 1).to_string();
        self.pod.metadata.resource_version = Some(version.clone());
        version
    }

    fn wait(&mut self, seconds: u64) {
        self.now.mono += Duration::from_secs(seconds);
        self.now.wall += Duration::from_secs(seconds);
    }

    /// Goes on to the time that was asked for last, to the second.
    fn wait_for(&mut self, asked: &[Action]) {
        self.wait(wake(asked).expect("a time was asked for") + 1);
    }

    fn delete(&mut self, grace: i64) {
        let at = jiff::Timestamp::from_second(i64::try_from(self.now.wall.as_secs()).unwrap()).unwrap();
        self.pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
        self.pod.metadata.deletion_grace_period_seconds = Some(grace);
        self.bump();
    }

    fn ends(&mut self, container: &str, code: i32) -> Input {
        let id = self.machine.container_id(container, false).expect("it has run");
        Input::Observed {
            container: container.into(),
            observed: Observed {
                id,
                doing: Doing::Ended(Exit {
                    at: time(self.now.mono.as_secs() - 1000),
                    ..exit(code)
                }),
            },
        }
    }

    fn status(&self) -> PodStatus {
        self.machine.status(&self.settings, &self.pod, self.now)
    }

    fn phase(&self) -> String {
        self.status().phase.unwrap_or_default()
    }

    fn container(&self, name: &str) -> ContainerStatus {
        let status = self.status();
        let lists = [
            status.container_statuses,
            status.init_container_statuses,
            status.ephemeral_container_statuses,
        ];
        let found = lists
            .into_iter()
            .flatten()
            .flatten()
            .find(|status| status.name == name);
        found.expect("the status has it")
    }

    /// Status, reason and message of a condition.
    fn condition(&self, name: &str) -> (String, String, String) {
        let conditions = self.status().conditions.unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition.type_ == name);
        let found = found.unwrap_or_else(|| panic!("no condition {name}"));
        (
            found.status,
            found.reason.unwrap_or_default(),
            found.message.unwrap_or_default(),
        )
    }
}

/// Actions in short: what is asked of the provider and the API server, in order.
fn short(actions: &[Action]) -> Vec<String> {
    let words = actions.iter().filter_map(|action| match action {
        Action::Adopt => Some("adopt".to_owned()),
        Action::Create => Some("create".to_owned()),
        Action::Update => Some("update".to_owned()),
        Action::Start { container, attempt } => Some(format!("start {container} {attempt}")),
        Action::Stop { container, grace, .. } => Some(format!("stop {container} {}s", grace.as_secs())),
        Action::Delete => Some("delete".to_owned()),
        Action::Post(status) => Some(format!("post {}", status.phase.as_deref().unwrap_or_default())),
        Action::Remove => Some("remove".to_owned()),
        Action::Forget => Some("forget".to_owned()),
        Action::Record { .. } | Action::Probe(_) | Action::Wake(_) => None,
    });
    words.collect()
}

/// Likewise, without posts.
fn deeds(actions: &[Action]) -> Vec<String> {
    let mut all = short(actions);
    all.retain(|word| !word.starts_with("post"));
    all
}

/// Events: reason and message.
fn events(actions: &[Action]) -> Vec<(&'static str, String)> {
    let events = actions.iter().filter_map(|action| match action {
        Action::Record { event, .. } => Some((event.reason, event.message.clone())),
        _ => None,
    });
    events.collect()
}

/// The last time that was asked for.
fn wake(actions: &[Action]) -> Option<u64> {
    let mut wakes = actions.iter().filter_map(|action| match action {
        Action::Wake(delay) => Some(delay.as_secs()),
        _ => None,
    });
    wakes.next_back()
}

fn waiting(status: &ContainerStatus) -> (String, String) {
    let state = status.state.clone().unwrap_or_default();
    let waiting = state
        .waiting
        .unwrap_or_else(|| panic!("{} does not wait: {status:?}", status.name));
    (
        waiting.reason.unwrap_or_default(),
        waiting.message.unwrap_or_default(),
    )
}

fn terminated(status: &ContainerStatus) -> (i32, String) {
    let state = status.state.clone().unwrap_or_default();
    let ended = state
        .terminated
        .unwrap_or_else(|| panic!("{} has not ended: {status:?}", status.name));
    (ended.exit_code, ended.reason.unwrap_or_default())
}
