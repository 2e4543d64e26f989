//! Why a container has no logs, in the kubelet's words.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// By the pod's status; there is no instance of the container from which logs could come.
pub(super) fn why(pod: &Pod, container: &str, previous: bool) -> String {
    let of = format!(
        "container {container:?} in pod {:?}",
        pod.metadata.name.as_deref().unwrap_or_default()
    );
    if previous {
        return format!("previous terminated {of} not found");
    }
    let Some(status) = status(pod, container) else {
        return format!("{of} is not available");
    };
    let state = status.state.as_ref();
    let last = status
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    if last.is_some() || state.is_some_and(|state| state.terminated.is_some()) {
        return format!("{of} is terminated");
    }
    match state.and_then(|state| state.waiting.as_ref()) {
        Some(waiting) => match waiting.reason.as_deref().unwrap_or_default() {
            "ErrImagePull" => format!("{of} is waiting to start: image can't be pulled"),
            "ImagePullBackOff" => {
                format!("{of} is waiting to start: trying and failing to pull image")
            }
            reason => format!("{of} is waiting to start: {reason}"),
        },
        None => format!("{of} is waiting to start - no logs yet"),
    }
}

/// Whether the pod's specification has such a container in any of its lists.
pub(super) fn specified(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else {
        return false;
    };
    spec.containers.iter().any(|container| container.name == name)
        || spec
            .init_containers
            .iter()
            .flatten()
            .any(|container| container.name == name)
        || spec
            .ephemeral_containers
            .iter()
            .flatten()
            .any(|container| container.name == name)
}

fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ]
    .into_iter()
    .flatten()
    .flatten()
    .find(|status| status.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn pod(status: Value) -> Pod {
        let pod = json!({
            "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}],
                     "ephemeralContainers": [{"name": "e"}]},
            "status": status,
        });
        serde_json::from_value(pod).unwrap()
    }

    fn container(state: Value, last: Value) -> Value {
        json!({"containerStatuses": [{"name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": state, "lastState": last}]})
    }

    #[rstest]
    #[case(json!({}), "container \"c\" in pod \"web\" is not available")]
    #[case(container(json!({"waiting": {"reason": "ContainerCreating"}}), json!({})),
        "container \"c\" in pod \"web\" is waiting to start: ContainerCreating")]
    #[case(container(json!({"waiting": {"reason": "ErrImagePull"}}), json!({})),
        "container \"c\" in pod \"web\" is waiting to start: image can't be pulled")]
    #[case(container(json!({"waiting": {"reason": "ImagePullBackOff"}}), json!({})),
        "container \"c\" in pod \"web\" is waiting to start: trying and failing to pull image")]
    #[case(container(json!({}), json!({})), "container \"c\" in pod \"web\" is waiting to start - no logs yet")]
    #[case(container(json!({"terminated": {"exitCode": 1}}), json!({})), "container \"c\" in pod \"web\" is terminated")]
    #[case(container(json!({"waiting": {"reason": "CrashLoopBackOff"}}), json!({"terminated": {"exitCode": 1}})),
        "container \"c\" in pod \"web\" is terminated")]
    fn the_reason_is_the_kubelets(#[case] status: Value, #[case] expected: &str) {
        let pod = pod(status);
        assert_eq!(why(&pod, "c", false), expected);
        assert_eq!(
            why(&pod, "c", true),
            "previous terminated container \"c\" in pod \"web\" not found"
        );
    }

    #[test]
    fn all_lists_of_containers_count() {
        let pod = pod(json!({}));
        assert!(["c", "i", "e"].iter().all(|name| specified(&pod, name)));
        assert!(!specified(&pod, "x"));
    }
}
