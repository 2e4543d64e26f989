use super::*;
use crate::core::{ContainerStatus, Phase, RestartRule, Role};
use RestartAction::{Restart, RestartAllContainers};
use RestartPolicy::{Always, Never, OnFailure};
use rstest::rstest;
use std::sync::Arc;

fn pod(policy: RestartPolicy, containers: Vec<Container>) -> Pod {
    Pod {
        uid: "uid".into(),
        namespace: "default".into(),
        name: "pod".into(),
        deleting: false,
        restart_policy: policy,
        containers: containers.into_iter().map(Arc::new).collect(),
    }
}

fn rule(action: RestartAction, among: bool, values: &[i32]) -> RestartRule {
    RestartRule {
        action,
        among,
        values: values.to_vec(),
    }
}

fn container(policy: Option<RestartPolicy>, rules: Vec<RestartRule>) -> Container {
    Container {
        name: "app".into(),
        restart_policy: policy,
        restart_rules: rules,
        ..Container::default()
    }
}

/// The pod's policy, the container's own, its rules, and whether it runs again after 0, 1 and 2.
#[rstest]
#[case::the_pods_always(Always, None, vec![], [true, true, true])]
#[case::the_pods_on_failure(OnFailure, None, vec![], [false, true, true])]
#[case::the_pods_never(Never, None, vec![], [false, false, false])]
#[case::its_own_comes_first(Always, Some(Never), vec![], [false, false, false])]
#[case::its_own_on_failure(Never, Some(OnFailure), vec![], [false, true, true])]
#[case::a_rule_comes_before_its_own(Never, Some(Never), vec![rule(Restart, true, &[1])], [false, true, false])]
#[case::a_rule_of_codes_that_are_not_meant(Never, Some(Never), vec![rule(Restart, false, &[1])], [true, false, true])]
#[case::a_rule_takes_nothing_away(Never, Some(Always), vec![rule(Restart, true, &[1])], [true, true, true])]
#[case::a_rule_without_a_policy_is_none(Never, None, vec![rule(Restart, true, &[1])], [false, false, false])]
#[case::a_later_rule(
    Never, Some(Never), vec![rule(Restart, true, &[7]), rule(Restart, true, &[2, 1])], [false, true, true]
)]
#[case::a_rule_for_all_is_one_for_itself(
    Never, Some(Never), vec![rule(RestartAllContainers, true, &[2])], [false, false, true]
)]
#[case::no_codes_match_none(Never, Some(Never), vec![rule(Restart, true, &[])], [false, false, false])]
fn a_container_runs_again(
    #[case] of_pod: RestartPolicy,
    #[case] own: Option<RestartPolicy>,
    #[case] rules: Vec<RestartRule>,
    #[case] after: [bool; 3],
) {
    let container = container(own, rules);
    let pod = pod(of_pod, vec![container.clone()]);
    let again = [0, 1, 2].map(|code| runs_again(&pod, &container, code, &PodStatus::default()));
    assert_eq!(again, after);
}

fn seen(name: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        name: name.into(),
        id: "test://1".into(),
        state,
        started: None,
        ready: false,
        taken_over: false,
    }
}

/// Rules of a container, in which state it is, and whether all restart. The container's own policy does not
/// matter.
#[rstest]
#[case::asked_for(vec![rule(RestartAllContainers, true, &[1])], "app", 1, true)]
#[case::other_code(vec![rule(RestartAllContainers, true, &[1])], "app", 2, false)]
#[case::by_exclusion(vec![rule(RestartAllContainers, false, &[1])], "app", 2, true)]
#[case::the_first_match_decides(
    vec![rule(Restart, true, &[1]), rule(RestartAllContainers, true, &[1])], "app", 1, false
)]
#[case::a_container_that_is_not_of_the_pod(vec![rule(RestartAllContainers, true, &[1])], "ghost", 1, false)]
fn all_containers_restart(
    #[case] rules: Vec<RestartRule>,
    #[case] ended: &str,
    #[case] exit_code: i32,
    #[case] all: bool,
) {
    let init = Container {
        role: Role::Init,
        ..container(None, rules)
    };
    let pod = pod(Never, vec![init]);
    let mut status = PodStatus {
        phase: Phase::Running,
        containers: vec![
            seen("other", ContainerState::Waiting),
            seen(ended, ContainerState::Terminated { exit_code }),
        ],
        ..PodStatus::default()
    };
    assert_eq!(all_restart(&pod, &status), all);
    status.containers[1].state = ContainerState::Waiting;
    assert!(!all_restart(&pod, &status));
    status.restarting_all = true;
    assert!(all_restart(&pod, &status));
}

/// Rules speak of exit codes, and a container that is killed has none yet.
#[rstest]
#[case::always(Always, None, true)]
#[case::on_failure(OnFailure, None, true)]
#[case::never(Never, None, false)]
#[case::its_own_comes_first(Never, Some(OnFailure), true)]
#[case::its_own_never(Always, Some(Never), false)]
fn a_killed_container_runs_again(
    #[case] of_pod: RestartPolicy,
    #[case] own: Option<RestartPolicy>,
    #[case] again: bool,
) {
    let container = container(own, vec![rule(Restart, false, &[])]);
    assert_eq!(runs_again_when_killed(&pod(of_pod, vec![]), &container), again);
}
