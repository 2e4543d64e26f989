//! The life of a pod on a simulated node, as a pure state machine.
//!
//! A pod starts after [`START_DELAY`], is ready at once, and ends [`STOP_DELAY`] after it was asked to, or with
//! its grace period if that is shorter. The annotation `simulated.evenkeel.io/ready: "false"` makes a pod that
//! runs and never becomes ready, `simulated.evenkeel.io/start-seconds: "N"` one that takes its time.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Time from binding to running: image there, container started.
pub const START_DELAY: SignedDuration = SignedDuration::from_millis(800);
/// Time a well-behaved container needs to end.
pub const STOP_DELAY: SignedDuration = SignedDuration::from_millis(500);
/// A pod that runs and is never ready.
pub const READY_ANNOTATION: &str = "simulated.evenkeel.io/ready";
/// Seconds a pod needs to start.
pub const START_ANNOTATION: &str = "simulated.evenkeel.io/start-seconds";
/// A status that the API server does not show is written again after this long.
const REPOST: SignedDuration = SignedDuration::from_secs(2);

/// Where a pod stands on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Its containers are being made.
    Starting {
        /// Since then.
        since: Timestamp,
    },
    /// Its containers run.
    Running {
        /// Since then.
        since: Timestamp,
    },
    /// Its containers were asked to end.
    Stopping {
        /// Since then.
        since: Timestamp,
    },
}

/// What to do about a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// Write this status.
    PostStatus(Value),
    /// Write this last status and confirm the deletion.
    Remove(Value),
}

struct Local {
    phase: Phase,
    ip: String,
    posted: Option<Timestamp>,
}

/// The pods of one boot of one node.
pub struct Runtime {
    index: u8,
    next_host: u8,
    pods: BTreeMap<String, Local>,
}

impl Runtime {
    /// No pods yet.
    pub fn new(index: u8) -> Self {
        Self {
            index,
            next_host: 2,
            pods: BTreeMap::new(),
        }
    }

    /// Forgets pods that the API server no longer has.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.pods.retain(|uid, _| keep(uid));
    }

    /// Looks at one pod. With `reconcile` a status that somebody else changed is put right as well.
    pub fn step(&mut self, pod: &Pod, now: Timestamp, reconcile: bool) -> Step {
        let Some(uid) = pod.metadata.uid.clone() else {
            return Step::Nothing;
        };
        if matches!(api_phase(pod), "Succeeded" | "Failed") && pod.metadata.deletion_timestamp.is_none() {
            return Step::Nothing;
        }
        let terminating = pod.metadata.deletion_timestamp.is_some();
        if !self.pods.contains_key(&uid) {
            let local = self.admit(pod, now, terminating);
            self.pods.insert(uid.clone(), local);
        }
        let Some(local) = self.pods.get_mut(&uid) else {
            return Step::Nothing;
        };
        if terminating && !matches!(local.phase, Phase::Stopping { .. }) {
            // A container that is not running yet has nothing to wait for.
            let since = if matches!(local.phase, Phase::Starting { .. }) {
                now - STOP_DELAY
            } else {
                now
            };
            local.phase = Phase::Stopping { since };
        }
        match local.phase {
            Phase::Stopping { since } => {
                let grace = pod
                    .metadata
                    .deletion_grace_period_seconds
                    .map_or(STOP_DELAY, SignedDuration::from_secs);
                if now.duration_since(since) < STOP_DELAY.min(grace) || recently(local.posted, now) {
                    return Step::Nothing;
                }
                local.posted = Some(now);
                Step::Remove(ended(pod, local, now))
            }
            Phase::Starting { since } if now.duration_since(since) < start_delay(pod) => Step::Nothing,
            Phase::Starting { .. } => {
                local.phase = Phase::Running { since: now };
                local.posted = Some(now);
                Step::PostStatus(running(pod, local, now, now))
            }
            Phase::Running { since } => {
                let differs = !shows(pod, local);
                let unseen = api_phase(pod) == "Pending";
                if differs && (reconcile || unseen) && !recently(local.posted, now) {
                    local.posted = Some(now);
                    Step::PostStatus(running(pod, local, since, now))
                } else {
                    Step::Nothing
                }
            }
        }
    }

    fn admit(&mut self, pod: &Pod, now: Timestamp, terminating: bool) -> Local {
        // After a boot the address that the pod had is kept, so that its endpoints need no change.
        let had = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.clone())
            .filter(|ip| !ip.is_empty());
        let ip = had.unwrap_or_else(|| {
            let ip = format!("10.244.{}.{}", self.index, self.next_host);
            self.next_host = if self.next_host == 254 {
                2
            } else {
                self.next_host + 1
            };
            ip
        });
        let phase = if terminating {
            Phase::Stopping {
                since: now - STOP_DELAY,
            }
        } else {
            Phase::Starting { since: now }
        };
        Local {
            phase,
            ip,
            posted: None,
        }
    }
}

fn recently(posted: Option<Timestamp>, now: Timestamp) -> bool {
    posted.is_some_and(|posted| now.duration_since(posted) < REPOST)
}

fn start_delay(pod: &Pod) -> SignedDuration {
    annotation(pod, START_ANNOTATION)
        .and_then(|text| text.parse::<u32>().ok())
        .map_or(START_DELAY, |seconds| {
            SignedDuration::from_secs(i64::from(seconds))
        })
}

fn is_to_be_ready(pod: &Pod) -> bool {
    annotation(pod, READY_ANNOTATION) != Some("false")
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn api_phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_deref()?
        .iter()
        .find(|condition| condition.type_ == kind)
}

/// Whether the API server shows the pod as this node knows it.
fn shows(pod: &Pod, local: &Local) -> bool {
    let wanted = if is_to_be_ready(pod) { "True" } else { "False" };
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    api_phase(pod) == "Running"
        && ip == Some(local.ip.as_str())
        && ["Ready", "ContainersReady"]
            .iter()
            .all(|kind| condition(pod, kind).is_some_and(|condition| condition.status == wanted))
}

fn running(pod: &Pod, local: &Local, since: Timestamp, now: Timestamp) -> Value {
    let ready = is_to_be_ready(pod);
    let containers: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": format!("simulated://{}", container.image.as_deref().unwrap_or_default()),
                "containerID": format!("simulated://{}/{}", pod.metadata.uid.as_deref().unwrap_or_default(), container.name),
                "ready": ready, "started": true, "restartCount": restarts(pod, &container.name),
                "state": {"running": {"startedAt": seconds(since)}},
            })
        })
        .collect();
    let value = if ready { "True" } else { "False" };
    let conditions: Vec<Value> = [
        ("PodReadyToStartContainers", "True"),
        ("Initialized", "True"),
        ("Ready", value),
        ("ContainersReady", value),
        ("PodScheduled", "True"),
    ]
    .iter()
    .map(|(kind, value)| {
        let kept = condition(pod, kind).filter(|condition| condition.status == *value);
        let since = kept
            .and_then(|condition| condition.last_transition_time.as_ref())
            .map_or(now, |time| time.0);
        let mut entry = json!({
            "type": kind, "status": value, "lastTransitionTime": seconds(since), "lastProbeTime": null,
            "reason": null, "message": null,
        });
        if *value == "False" {
            entry["reason"] = json!("ContainersNotReady");
            entry["message"] = json!("containers with unready status");
        }
        entry
    })
    .collect();
    let started = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref())
        .map_or(since, |time| time.0);
    json!({
        "phase": "Running", "podIP": local.ip, "podIPs": [{"ip": local.ip}], "startTime": seconds(started),
        "conditions": conditions, "containerStatuses": containers,
    })
}

/// A restart is counted when the API server remembers an earlier run of the container.
fn restarts(pod: &Pod, container: &str) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_deref())
        .unwrap_or_default();
    statuses
        .iter()
        .find(|status| status.name == container)
        .map_or(0, |status| status.restart_count)
}

fn ended(pod: &Pod, local: &Local, now: Timestamp) -> Value {
    let containers: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "", "ready": false, "started": false,
                "restartCount": restarts(pod, &container.name),
                "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": seconds(now)}},
            })
        })
        .collect();
    let conditions: Vec<Value> = ["Ready", "ContainersReady"]
        .iter()
        .map(|kind| {
            json!({
                "type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": seconds(now),
            })
        })
        .collect();
    json!({
        "phase": "Succeeded", "podIP": local.ip, "podIPs": [{"ip": local.ip}],
        "conditions": conditions, "containerStatuses": containers,
    })
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(extra: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
            "spec": {"containers": [{"name": "c", "image": "web:1"}]},
            "status": {"phase": "Pending"},
        });
        json_patch::merge(&mut pod, &extra);
        serde_json::from_value(pod).unwrap()
    }

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + milliseconds).unwrap()
    }

    fn status_of(step: Step) -> Value {
        match step {
            Step::PostStatus(status) | Step::Remove(status) => status,
            Step::Nothing => panic!("expected a status"),
        }
    }

    fn ready(status: &Value) -> &str {
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().find(|c| c["type"] == "Ready").unwrap()["status"]
            .as_str()
            .unwrap()
    }

    #[test]
    fn a_pod_runs_and_is_ready_after_its_start_delay() {
        let mut runtime = Runtime::new(3);
        assert_eq!(runtime.step(&pod(json!({})), at(0), false), Step::Nothing);
        assert_eq!(runtime.step(&pod(json!({})), at(799), false), Step::Nothing);
        let status = status_of(runtime.step(&pod(json!({})), at(800), false));
        assert_eq!(
            (status["phase"].as_str(), ready(&status)),
            (Some("Running"), "True")
        );
        assert_eq!(status["podIP"], "10.244.3.2");
    }

    #[test]
    fn a_status_that_was_lost_is_written_again_but_not_at_once() {
        let mut runtime = Runtime::new(1);
        runtime.step(&pod(json!({})), at(0), false);
        runtime.step(&pod(json!({})), at(1000), false);
        assert_eq!(runtime.step(&pod(json!({})), at(1200), false), Step::Nothing);
        assert!(matches!(
            runtime.step(&pod(json!({})), at(3200), false),
            Step::PostStatus(_)
        ));
    }

    #[test]
    fn readiness_that_somebody_else_took_away_is_restored_at_the_next_sync() {
        let mut runtime = Runtime::new(1);
        runtime.step(&pod(json!({})), at(0), false);
        let mut status = status_of(runtime.step(&pod(json!({})), at(1000), false));
        for condition in status["conditions"].as_array_mut().unwrap() {
            if condition["type"] == "Ready" {
                condition["status"] = json!("False");
            }
        }
        let marked = pod(json!({ "status": status }));
        assert_eq!(runtime.step(&marked, at(5000), false), Step::Nothing);
        assert_eq!(ready(&status_of(runtime.step(&marked, at(10_000), true))), "True");
    }

    #[test]
    fn a_terminating_pod_is_confirmed_once_its_containers_ended() {
        let mut runtime = Runtime::new(1);
        runtime.step(&pod(json!({})), at(0), false);
        runtime.step(&pod(json!({})), at(1000), false);
        let leaving = pod(json!({
            "metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z", "deletionGracePeriodSeconds": 30},
            "status": {"phase": "Running"},
        }));
        assert_eq!(runtime.step(&leaving, at(5000), false), Step::Nothing);
        assert_eq!(runtime.step(&leaving, at(5499), false), Step::Nothing);
        assert!(matches!(runtime.step(&leaving, at(5500), false), Step::Remove(_)));
    }

    #[test]
    fn after_a_boot_terminating_pods_go_at_once_and_others_keep_their_address() {
        let mut runtime = Runtime::new(1);
        let leaving = pod(json!({
            "metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z", "deletionGracePeriodSeconds": 30},
            "status": {"phase": "Running", "podIP": "10.244.1.9"},
        }));
        assert!(matches!(runtime.step(&leaving, at(0), false), Step::Remove(_)));

        let mut runtime = Runtime::new(1);
        let staying = pod(json!({"status": {"phase": "Running", "podIP": "10.244.1.9"}}));
        runtime.step(&staying, at(0), false);
        assert_eq!(
            status_of(runtime.step(&staying, at(900), false))["podIP"],
            "10.244.1.9"
        );
    }

    #[test]
    fn a_pod_may_run_without_ever_being_ready() {
        let mut runtime = Runtime::new(1);
        let sick = pod(json!({"metadata": {"annotations": {READY_ANNOTATION: "false"}}}));
        runtime.step(&sick, at(0), false);
        let status = status_of(runtime.step(&sick, at(1000), false));
        assert_eq!(
            (status["phase"].as_str(), ready(&status)),
            (Some("Running"), "False")
        );
    }

    #[test]
    fn a_finished_pod_is_left_alone() {
        let mut runtime = Runtime::new(1);
        let done = pod(json!({"status": {"phase": "Failed"}}));
        assert_eq!(runtime.step(&done, at(0), true), Step::Nothing);
        assert_eq!(runtime.step(&done, at(60_000), true), Step::Nothing);
    }
}
