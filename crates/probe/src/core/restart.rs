//! Whether a container that has ended runs again.

use super::{Container, ContainerState, Pod, PodStatus, RestartAction, RestartPolicy};

/// Whether this container, which ended with `exit_code`, runs again: by its own rules, by its or its pod's
/// policy, or because all containers of the pod are about to.
pub fn runs_again(pod: &Pod, container: &Container, exit_code: i32, status: &PodStatus) -> bool {
    by_itself(pod, container, exit_code) || all_restart(pod, status)
}

/// By the container's own rules, else its policy, else the pod's. Rules without a policy of its own are not
/// valid, and ignored.
fn by_itself(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    let ruled = container.restart_rules.iter().any(|rule| rule.matches(exit_code));
    match container.restart_policy {
        Some(_) if ruled => true,
        own => match own.unwrap_or(pod.restart_policy) {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        },
    }
}

/// Whether all containers of the pod restart: the status says so, or some container has ended in a way that
/// asks for it.
pub fn all_restart(pod: &Pod, status: &PodStatus) -> bool {
    status.restarting_all
        || status.containers.iter().any(|ended| {
            let ContainerState::Terminated { exit_code } = ended.state else {
                return false;
            };
            let rules = pod
                .container(&ended.name)
                .map(|container| &container.restart_rules);
            rules
                .into_iter()
                .flatten()
                .find(|rule| rule.matches(exit_code))
                .is_some_and(|rule| rule.action == RestartAction::RestartAllContainers)
        })
}

/// Whether a container that is killed for a failed probe runs again: by its own policy, else its pod's. Its
/// rules speak of exit codes, and it has none yet.
pub fn runs_again_when_killed(pod: &Pod, container: &Container) -> bool {
    container.restart_policy.unwrap_or(pod.restart_policy) != RestartPolicy::Never
}

#[cfg(test)]
mod tests;
