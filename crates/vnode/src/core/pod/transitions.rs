//! Since when the pod's conditions are as they are.

use k8s_openapi::api::core::v1::Pod;

/// Conditions that are a kubelet's, in the order in which it writes them.
pub(super) const OWN: [&str; 6] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "AllContainersRestarting",
];

/// What a condition says, and since when (seconds since 1970).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Since {
    pub(super) known: Option<bool>,
    pub(super) at: i64,
}

/// Of the kubelet's conditions, and of the extra ones in the order of the settings.
#[derive(Clone, Debug)]
pub(super) struct Times {
    pub(super) own: [Since; 6],
    pub(super) extra: Vec<Since>,
}

impl Since {
    /// As the status has it.
    pub(super) fn recorded(pod: &Pod, name: &str) -> Self {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let found = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == name);
        let time = found.and_then(|condition| condition.last_transition_time.as_ref());
        match (found, time) {
            (Some(condition), Some(time)) => Self {
                known: Some(condition.status == "True"),
                at: time.0.as_second(),
            },
            _ => Self::default(),
        }
    }

    pub(super) fn at(self, now: bool, wall: i64) -> Self {
        if self.known == Some(now) {
            return self;
        }
        Self {
            known: Some(now),
            at: wall,
        }
    }
}

impl Times {
    /// As the status has them.
    pub(super) fn recorded(pod: &Pod) -> Self {
        Self {
            own: OWN.map(|name| Since::recorded(pod, name)),
            extra: Vec::new(),
        }
    }
}
