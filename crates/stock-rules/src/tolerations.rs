//! Which taints a pod tolerates, and for how long: the rules of Kubernetes' taint eviction controller.
//!
//! Source: Kubernetes 1.36, `ToleratesTaint`, `GetMatchingTolerations` and `DefaultTolerationSeconds`. Shared
//! by the planner, which evicts pods of dead nodes, by Koupleless' healing, by the lab's scheduler, and by
//! the stand-in for the stock controllers.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// `NoExecute`: pods that do not tolerate it have to leave.
pub const NO_EXECUTE: &str = "NoExecute";
/// `NoSchedule`: no new pods.
pub const NO_SCHEDULE: &str = "NoSchedule";

/// For how long a pod may stay under a set of taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// Some taint is not tolerated at all: it has to leave now.
    NotTolerated,
    /// For this many seconds from when the taint was set; never negative.
    Seconds(i64),
    /// For ever: every taint is tolerated without a limit.
    Forever,
}

/// Whether one toleration matches one taint.
///
/// The effect must be equal or left out; the key must be equal, or left out with operator `Exists`, which
/// matches every taint; `Equal` (the default) compares values, `Exists` does not look at them. Any other
/// operator (`Lt` and `Gt` are alpha) matches nothing.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = toleration.key.as_deref().unwrap_or_default();
    let operator = toleration.operator.as_deref().unwrap_or_default();
    if key.is_empty() {
        return operator == "Exists";
    }
    if key != taint.key {
        return false;
    }
    match operator {
        "Exists" => true,
        "" | "Equal" => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

/// The first toleration that matches the taint: the one that counts.
pub fn first_match<'a>(tolerations: &'a [Toleration], taint: &Taint) -> Option<&'a Toleration> {
    tolerations.iter().find(|toleration| tolerates(toleration, taint))
}

/// For how long a pod with these tolerations may stay under these `NoExecute` taints: every taint needs a
/// match, and the shortest limit among the matches counts. No taints: for ever.
///
/// Taints with other effects are not looked at.
pub fn stay(tolerations: &[Toleration], taints: &[Taint]) -> Stay {
    stay_with(tolerations, taints, |toleration| toleration.toleration_seconds)
}

/// As [`stay`], with the limit of a matching toleration read through `seconds`: a policy may put another
/// number in place of the one that admission added.
pub fn stay_with(
    tolerations: &[Toleration],
    taints: &[Taint],
    seconds: impl Fn(&Toleration) -> Option<i64>,
) -> Stay {
    let mut limit: Option<i64> = None;
    for taint in taints.iter().filter(|taint| taint.effect == NO_EXECUTE) {
        let Some(used) = first_match(tolerations, taint) else {
            return Stay::NotTolerated;
        };
        if let Some(seconds) = seconds(used) {
            let seconds = seconds.max(0);
            limit = Some(limit.map_or(seconds, |shortest| shortest.min(seconds)));
        }
    }
    limit.map_or(Stay::Forever, Stay::Seconds)
}

/// Whether the toleration is letter by letter what admission adds by default for `key`:
/// `{key, Exists, NoExecute, seconds}`. One that a person wrote in the same words cannot be told apart.
pub fn is_admission_default(toleration: &Toleration, key: &str, seconds: i64) -> bool {
    toleration.key.as_deref() == Some(key)
        && toleration.operator.as_deref() == Some("Exists")
        && toleration.effect.as_deref() == Some(NO_EXECUTE)
        && toleration.value.as_deref().unwrap_or_default().is_empty()
        && toleration.toleration_seconds == Some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::names::taints::{NOT_READY, UNREACHABLE};
    use rstest::rstest;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.to_owned(),
            value: (!value.is_empty()).then(|| value.to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str, seconds: Option<i64>) -> Toleration {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: text(key),
            operator: text(operator),
            value: text(value),
            effect: text(effect),
            toleration_seconds: seconds,
        }
    }

    #[rstest]
    #[case::same_key_and_effect(toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, None), true)]
    #[case::any_effect(toleration(UNREACHABLE, "Exists", "", "", None), true)]
    #[case::other_effect(toleration(UNREACHABLE, "Exists", "", NO_SCHEDULE, None), false)]
    #[case::other_key(toleration(NOT_READY, "Exists", "", NO_EXECUTE, None), false)]
    #[case::everything(toleration("", "Exists", "", "", None), true)]
    #[case::everything_of_one_effect(toleration("", "Exists", "", NO_EXECUTE, None), true)]
    #[case::no_key_needs_exists(toleration("", "Equal", "", NO_EXECUTE, None), false)]
    #[case::no_key_no_operator(toleration("", "", "", NO_EXECUTE, None), false)]
    #[case::equal_empty_values(toleration(UNREACHABLE, "Equal", "", NO_EXECUTE, None), true)]
    #[case::equal_is_the_default(toleration(UNREACHABLE, "", "", NO_EXECUTE, None), true)]
    #[case::equal_other_value(toleration(UNREACHABLE, "Equal", "x", NO_EXECUTE, None), false)]
    #[case::exists_ignores_value(toleration(UNREACHABLE, "Exists", "x", NO_EXECUTE, None), true)]
    #[case::alpha_operator(toleration(UNREACHABLE, "Gt", "1", NO_EXECUTE, None), false)]
    fn a_toleration_matches_as_in_kubernetes(#[case] toleration: Toleration, #[case] expected: bool) {
        assert_eq!(
            tolerates(&toleration, &taint(UNREACHABLE, "", NO_EXECUTE)),
            expected
        );
    }

    #[rstest]
    #[case::nothing_tolerated(vec![], Stay::NotTolerated)]
    #[case::no_limit(vec![toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, None)], Stay::Forever)]
    #[case::a_limit(vec![toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, Some(300))], Stay::Seconds(300))]
    #[case::zero(vec![toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, Some(0))], Stay::Seconds(0))]
    #[case::negative_is_zero(vec![toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, Some(-5))], Stay::Seconds(0))]
    #[case::the_first_match_counts(
        vec![
            toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, Some(7)),
            toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, Some(3)),
        ],
        Stay::Seconds(7)
    )]
    fn a_pod_stays_as_long_as_it_tolerates(#[case] tolerations: Vec<Toleration>, #[case] expected: Stay) {
        assert_eq!(
            stay(&tolerations, &[taint(UNREACHABLE, "", NO_EXECUTE)]),
            expected
        );
    }

    #[rstest]
    #[case::shortest_of_two(Some(1), Some(2), Stay::Seconds(1))]
    #[case::limit_beside_none(Some(1), None, Stay::Seconds(1))]
    #[case::none_beside_limit(None, Some(1), Stay::Seconds(1))]
    #[case::none_at_all(None, None, Stay::Forever)]
    fn with_several_taints_the_shortest_limit_counts(
        #[case] first: Option<i64>,
        #[case] second: Option<i64>,
        #[case] expected: Stay,
    ) {
        let taints = [taint("a", "", NO_EXECUTE), taint("b", "", NO_EXECUTE)];
        let tolerations = [
            toleration("a", "Exists", "", NO_EXECUTE, first),
            toleration("b", "Exists", "", NO_EXECUTE, second),
        ];
        assert_eq!(stay(&tolerations, &taints), expected);
    }

    #[test]
    fn one_taint_that_is_not_tolerated_is_enough_to_leave() {
        let taints = [taint("a", "", NO_EXECUTE), taint("b", "", NO_EXECUTE)];
        let tolerations = [toleration("a", "Exists", "", NO_EXECUTE, None)];
        assert_eq!(stay(&tolerations, &taints), Stay::NotTolerated);
    }

    #[test]
    fn no_taint_and_other_effects_evict_nobody() {
        assert_eq!(stay(&[], &[]), Stay::Forever);
        assert_eq!(stay(&[], &[taint("a", "", NO_SCHEDULE)]), Stay::Forever);
    }

    #[rstest]
    #[case::as_added(toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, Some(300)), true)]
    #[case::other_seconds(toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, Some(299)), false)]
    #[case::no_seconds(toleration(UNREACHABLE, "Exists", "", NO_EXECUTE, None), false)]
    #[case::any_effect(toleration(UNREACHABLE, "Exists", "", "", Some(300)), false)]
    #[case::other_key(toleration(NOT_READY, "Exists", "", NO_EXECUTE, Some(300)), false)]
    fn what_admission_added_is_recognised(#[case] toleration: Toleration, #[case] expected: bool) {
        assert_eq!(is_admission_default(&toleration, UNREACHABLE, 300), expected);
    }
}
