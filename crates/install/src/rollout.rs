//! How far the workloads of an installation are. Pure.

use serde_json::Value;

/// What is to be seen of the two workloads and their pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    pub(crate) deployment: Value,
    pub(crate) daemon_set: Value,
    /// Pods of the namespace.
    pub(crate) pods: Vec<Value>,
    /// Events of the namespace.
    pub(crate) events: Vec<Value>,
}

/// How far they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything runs.
    Done(String),
    /// A controller and an agent run, and something is missing.
    Enough(String),
    /// It may still come.
    Waiting(String),
    /// It will not come by itself.
    Failed(String),
}

/// Reasons of Events that say why there is no pod, or why one does not begin.
const REFUSALS: [&str; 2] = ["FailedCreate", "FailedMount"];

/// Reasons for which a container waits that no time mends by itself.
const HOPELESS_IMAGE: [&str; 3] = ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"];

/// Looks at both workloads.
pub(crate) fn progress(sight: &Sight) -> Progress {
    let controller = Workload::new(sight, "controller", &sight.deployment, Counts::DEPLOYMENT);
    let agents = Workload::new(sight, "agent", &sight.daemon_set, Counts::DAEMON_SET);
    for workload in [&controller, &agents] {
        if workload.running() == 0
            && let Some(why) = workload.all_hopeless()
        {
            return Progress::Failed(why);
        }
    }
    let told = format!("{}; {}", controller.told(), agents.told());
    let why = || {
        let of_pods = controller.trouble().or_else(|| agents.trouble());
        of_pods.or_else(|| refused(sight))
    };
    let with_reason = || match why() {
        Some(why) => format!("{told}; {why}"),
        None => told.clone(),
    };
    match (controller.state(), agents.state()) {
        (State::All, State::All) => Progress::Done(told),
        (State::None, _) | (_, State::None) => Progress::Waiting(with_reason()),
        _ => Progress::Enough(with_reason()),
    }
}

/// Where a kind of workload has its numbers.
struct Counts {
    wanted: &'static str,
    /// Pods of any version.
    all: &'static str,
    updated: &'static str,
    available: &'static str,
}

impl Counts {
    const DEPLOYMENT: Self = Self {
        wanted: "/spec/replicas",
        all: "/status/replicas",
        updated: "/status/updatedReplicas",
        available: "/status/availableReplicas",
    };
    const DAEMON_SET: Self = Self {
        wanted: "/status/desiredNumberScheduled",
        all: "/status/currentNumberScheduled",
        updated: "/status/updatedNumberScheduled",
        available: "/status/numberAvailable",
    };
}

enum State {
    None,
    Some,
    All,
}

struct Workload<'a> {
    component: &'static str,
    pods: Vec<&'a Value>,
    /// The numbers below are of the present specification.
    observed: bool,
    wanted: u64,
    all: u64,
    updated: u64,
    available: u64,
}

impl<'a> Workload<'a> {
    fn new(sight: &'a Sight, component: &'static str, object: &Value, counts: Counts) -> Self {
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let is_ours = |pod: &&Value| {
            pod["metadata"]["labels"]["app.kubernetes.io/component"] == component
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        Self {
            component,
            pods: sight.pods.iter().filter(is_ours).collect(),
            observed: number("/status/observedGeneration") >= number("/metadata/generation").max(1),
            wanted: number(counts.wanted),
            all: number(counts.all),
            updated: number(counts.updated),
            available: number(counts.available),
        }
    }

    /// Pods of the new version that run, at least: those of the former one may be all that is available.
    fn running(&self) -> u64 {
        let former = self.all.saturating_sub(self.updated);
        self.available.saturating_sub(former).min(self.updated)
    }

    fn state(&self) -> State {
        let running = self.running();
        if !self.observed || running == 0 {
            State::None
        } else if running >= self.wanted {
            State::All
        } else {
            State::Some
        }
    }

    fn told(&self) -> String {
        let what = if self.component == "agent" {
            "agents"
        } else {
            "controllers"
        };
        format!("{} of {} {what} run", self.running(), self.wanted)
    }

    /// Why none of its pods will run by itself; `None` as long as one may.
    fn all_hopeless(&self) -> Option<String> {
        let whys: Option<Vec<String>> = self.pods.iter().map(|pod| self.hopeless(pod)).collect();
        whys?.into_iter().next()
    }

    /// Why a pod will not run by itself.
    fn hopeless(&self, pod: &Value) -> Option<String> {
        let status = container(pod)?;
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"].as_str()?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or("its node");
        if HOPELESS_IMAGE.contains(&reason) {
            let image = status["image"].as_str().filter(|image| !image.is_empty());
            let asked = pod.pointer("/spec/containers/0/image").and_then(Value::as_str);
            return Some(format!(
                "{node} cannot pull image {}: {}; load it there, or name another with --image",
                asked.or(image).unwrap_or_default(),
                words(&waiting["message"], reason)
            ));
        }
        if reason != "CrashLoopBackOff" {
            return None;
        }
        let ended = &status["lastState"]["terminated"];
        Some(format!(
            "the {} on {node} ends again and again with exit code {}: {}",
            self.component,
            ended["exitCode"],
            words(&ended["message"], "it says nothing; look at its log")
        ))
    }

    /// Why one of its pods does not run yet.
    fn trouble(&self) -> Option<String> {
        let pods = || self.pods.iter();
        pods()
            .find_map(|pod| self.hopeless(pod))
            .or_else(|| pods().find_map(|pod| unscheduled(pod)))
            .or_else(|| pods().find_map(|pod| self.unready(pod)))
    }

    /// Why a pod that runs does not count.
    fn unready(&self, pod: &Value) -> Option<String> {
        let status = container(pod).filter(|status| status["ready"] == false)?;
        status["state"]["running"].as_object()?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or("its node");
        let look = if self.component == "agent" {
            "see that UDP 7959 passes between the nodes, and what its log says"
        } else {
            "see what its log says"
        };
        Some(format!(
            "the {} on {node} runs and is not ready: {look}",
            self.component
        ))
    }
}

/// Why pods are not made, or do not begin: admission, a quota, or what they mount.
fn refused(sight: &Sight) -> Option<String> {
    let mut conditions = sight.deployment["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let failure = |condition: &&Value| condition["type"] == "ReplicaFailure" && condition["status"] == "True";
    if let Some(failed) = conditions.find(failure) {
        let why = words(
            &failed["message"],
            "Deployment evenkeel-controller does not say why",
        );
        return Some(format!("no pod of the controllers can be made: {why}"));
    }
    let parts = || sight.pods.iter().chain([&sight.daemon_set]);
    let is_of_ours = |event: &&Value| {
        let of = &event["involvedObject"]["uid"];
        let reason = event["reason"].as_str().unwrap_or_default();
        REFUSALS.contains(&reason) && parts().any(|part| !of.is_null() && part["metadata"]["uid"] == *of)
    };
    let newest = sight.events.iter().filter(is_of_ours);
    let newest = newest.max_by_key(|event| event["lastTimestamp"].as_str().unwrap_or_default())?;
    let object = &newest["involvedObject"];
    let name = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let why = words(&newest["message"], "it does not say why");
    Some(format!("{} {}: {why}", name("kind"), name("name")))
}

/// Why no node takes a pod.
fn unscheduled(pod: &Value) -> Option<String> {
    let mut conditions = pod["status"]["conditions"].as_array()?.iter();
    let unscheduled =
        conditions.find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False")?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    Some(format!(
        "no node takes pod {name}: {}",
        words(&unscheduled["message"], "the scheduler says nothing")
    ))
}

fn container(pod: &Value) -> Option<&Value> {
    pod["status"]["containerStatuses"].as_array()?.first()
}

/// A message on one line.
fn words(message: &Value, otherwise: &str) -> String {
    let text = message.as_str().unwrap_or_default();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        otherwise.to_owned()
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn pod(component: &str, status: Value) -> Value {
        json!({
            "metadata": {"name": format!("{component}-x"), "labels": {"app.kubernetes.io/component": component}},
            "spec": {"nodeName": "shore-1", "containers": [{"image": "evenkeel:7"}]},
            "status": status,
        })
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"containerStatuses": [{
            "image": "", "state": {"waiting": {"reason": reason, "message": message}},
            "lastState": {"terminated": {"exitCode": 2, "message": "evenkeel: --mode x\n"}},
        }]})
    }

    /// Of (wanted, updated, available) controllers and agents.
    fn sight(controllers: [u64; 3], agents: [u64; 3], pods: Vec<Value>) -> Sight {
        Sight {
            deployment: json!({
                "metadata": {"generation": 2}, "spec": {"replicas": controllers[0]},
                "status": {"observedGeneration": 2, "replicas": controllers[0], "updatedReplicas": controllers[1], "availableReplicas": controllers[2]},
            }),
            daemon_set: json!({"metadata": {"generation": 1}, "status": {
                "observedGeneration": 1, "desiredNumberScheduled": agents[0], "currentNumberScheduled": agents[0], "updatedNumberScheduled": agents[1],
                "numberAvailable": agents[2],
            }}),
            pods,
            events: Vec::new(),
        }
    }

    /// The API server refuses pods, or a node cannot mount what they need.
    #[test]
    fn why_there_are_no_pods_is_told() {
        let waits = |sight: &Sight| match progress(sight) {
            Progress::Waiting(told) => told,
            other => panic!("{other:?}"),
        };
        let mut seen = sight([2, 2, 2], [3, 0, 0], Vec::new());
        assert_eq!(waits(&seen), "2 of 2 controllers run; 0 of 3 agents run");
        seen.daemon_set["metadata"]["uid"] = json!("7");
        let event = |uid: &str, reason: &str, at: &str, message: &str| {
            json!({
                "involvedObject": {"kind": "DaemonSet", "name": "evenkeel-agent", "uid": uid},
                "reason": reason, "message": message, "lastTimestamp": at,
            })
        };
        seen.events = vec![
            event(
                "7",
                "FailedCreate",
                "2026-11-29T10:00:01Z",
                "pods are forbidden:\nno host network",
            ),
            event("7", "FailedCreate", "2026-11-29T10:00:00Z", "older"),
            event("8", "FailedCreate", "2026-11-29T10:00:02Z", "of a former one"),
            event("7", "SuccessfulDelete", "2026-11-29T10:00:03Z", "no reason"),
        ];
        let told = "2 of 2 controllers run; 0 of 3 agents run; DaemonSet evenkeel-agent: pods are forbidden: no host network";
        assert_eq!(waits(&seen), told);
        seen.deployment["status"]["conditions"] =
            json!([{"type": "ReplicaFailure", "status": "True", "message": "over quota"}]);
        assert!(waits(&seen).ends_with("; no pod of the controllers can be made: over quota"));
    }

    #[test]
    fn it_is_done_when_everything_runs_in_the_new_form() {
        let done = progress(&sight([2, 2, 2], [5, 5, 5], vec![]));
        assert_eq!(
            done,
            Progress::Done("2 of 2 controllers run; 5 of 5 agents run".to_owned())
        );
        let mut old = sight([2, 2, 2], [5, 5, 5], vec![]);
        old.deployment["status"]["observedGeneration"] = json!(1);
        assert!(
            matches!(progress(&old), Progress::Waiting(_)),
            "numbers of the former version"
        );
        let half = progress(&sight([2, 1, 2], [5, 2, 5], vec![]));
        assert_eq!(
            half,
            Progress::Enough("1 of 2 controllers run; 2 of 5 agents run".to_owned())
        );
    }

    /// Ten of a hundred are of the new version and do not run, and ninety of the former one do.
    #[test]
    fn what_runs_of_the_former_version_does_not_count() {
        let pods = vec![
            pod("agent", waiting("ImagePullBackOff", "")),
            pod("agent", json!({})),
        ];
        let some = progress(&sight([2, 2, 2], [100, 10, 90], pods));
        assert!(
            matches!(&some, Progress::Waiting(told) if told.contains("0 of 100 agents run")),
            "{some:?}"
        );
        let half = progress(&sight([2, 2, 2], [100, 10, 95], vec![]));
        assert!(
            matches!(&half, Progress::Enough(told) if told.contains("5 of 100 agents run")),
            "{half:?}"
        );
    }

    #[rstest]
    #[case([2, 0, 0], [5, 5, 5])]
    #[case([2, 2, 2], [5, 0, 0])]
    #[case([2, 2, 2], [0, 0, 0])]
    fn it_waits_for_the_first_of_each(#[case] controllers: [u64; 3], #[case] agents: [u64; 3]) {
        assert!(matches!(
            progress(&sight(controllers, agents, vec![])),
            Progress::Waiting(_)
        ));
    }

    #[test]
    fn nothing_is_known_of_workloads_that_nobody_looks_after() {
        assert!(matches!(progress(&Sight::default()), Progress::Waiting(_)));
    }

    #[rstest]
    #[case(
        "ImagePullBackOff",
        "no such host",
        "shore-1 cannot pull image evenkeel:7: no such host; load it"
    )]
    #[case(
        "InvalidImageName",
        "",
        "shore-1 cannot pull image evenkeel:7: InvalidImageName"
    )]
    #[case(
        "CrashLoopBackOff",
        "back-off",
        "the agent on shore-1 ends again and again with exit code 2: evenkeel: --mode x"
    )]
    fn what_does_not_mend_itself_is_named(#[case] reason: &str, #[case] message: &str, #[case] said: &str) {
        let pods = vec![pod("agent", waiting(reason, message))];
        let Progress::Failed(why) = progress(&sight([2, 2, 2], [5, 5, 0], pods.clone())) else {
            panic!("nobody runs, and it will not change")
        };
        assert!(why.starts_with(said), "{why}");
        let Progress::Enough(why) = progress(&sight([2, 2, 2], [5, 5, 4], pods)) else {
            panic!("four run")
        };
        assert!(why.contains(said), "{why}");
    }

    #[test]
    fn what_may_pass_is_waited_for_and_told() {
        let pulling = vec![pod("agent", waiting("ErrImagePull", "slow"))];
        assert!(matches!(
            progress(&sight([2, 2, 2], [5, 5, 0], pulling)),
            Progress::Waiting(_)
        ));
        let condition =
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]});
        let told = progress(&sight([2, 2, 1], [5, 5, 5], vec![pod("controller", condition)]));
        assert_eq!(
            told,
            Progress::Enough(
                "1 of 2 controllers run; 5 of 5 agents run; no node takes pod controller-x: 0/1 nodes"
                    .to_owned()
            )
        );
    }

    #[test]
    fn who_runs_and_is_not_ready_is_told() {
        let status = |ready| json!({"containerStatuses": [{"ready": ready, "state": {"running": {"startedAt": "t"}}}]});
        let pods = vec![pod("agent", status(true)), pod("agent", status(false))];
        let Progress::Enough(told) = progress(&sight([2, 2, 2], [2, 2, 1], pods)) else {
            panic!("one of each is ready")
        };
        let why = "1 of 2 agents run; the agent on shore-1 runs and is not ready: see that UDP 7959 passes";
        assert!(told.contains(why), "{told}");
    }
}
