//! Which pods the taint drives away.

use evenkeel_api::names::koupleless::healing::TAINT;
use k8s_openapi::api::core::v1::{Pod, Toleration};

/// Whether a pod has to leave a node with the taint: it runs, and does not tolerate the taint for ever.
///
/// The rules are those of Kubernetes' taint eviction: effect equal or left out, key equal or left out with
/// `Exists`, value equal unless `Exists`; the first toleration that matches counts, and one with a time
/// drives the pod away later. Pods that have ended hold no module.
pub(crate) fn must_leave(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return false;
    }
    let spec = pod.spec.iter();
    let mut tolerations = spec.flat_map(|spec| spec.tolerations.iter().flatten());
    match tolerations.find(|toleration| tolerates(toleration)) {
        None => true,
        Some(toleration) => toleration.toleration_seconds.is_some(),
    }
}

fn tolerates(toleration: &Toleration) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    if !effect.is_empty() && effect != TAINT.2 {
        return false;
    }
    let exists = text(&toleration.operator) == "Exists";
    if key.is_empty() {
        return exists;
    }
    let is_equal = matches!(text(&toleration.operator).as_str(), "" | "Equal");
    key == TAINT.0 && (exists || (is_equal && text(&toleration.value) == TAINT.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::none(json!([]), true)]
    #[case::ours_of_another_value(json!([{"key": "schedule.koupleless.io/metaspace-overload", "value": "true", "effect": "NoExecute"}]), true)]
    #[case::tolerated(json!([{"key": "schedule.koupleless.io/metaspace-overload", "value": "True", "effect": "NoExecute"}]), false)]
    #[case::of_any_value(json!([{"key": "schedule.koupleless.io/metaspace-overload", "operator": "Exists"}]), false)]
    #[case::of_another_effect(json!([{"key": "schedule.koupleless.io/metaspace-overload", "operator": "Exists", "effect": "NoSchedule"}]), true)]
    #[case::everything(json!([{"operator": "Exists"}]), false)]
    #[case::for_a_time(json!([{"operator": "Exists", "tolerationSeconds": 60}]), true)]
    #[case::another_key(json!([{"key": "schedule.koupleless.io/virtual-node", "operator": "Exists"}]), true)]
    fn pods_leave_that_do_not_tolerate_the_taint(
        #[case] tolerations: serde_json::Value,
        #[case] leaves: bool,
    ) {
        let pod = |phase: &str| -> Pod {
            let spec = json!({"containers": [], "tolerations": tolerations});
            serde_json::from_value(json!({"spec": spec, "status": {"phase": phase}})).unwrap()
        };
        assert_eq!(must_leave(&pod("Running")), leaves);
        assert!(!must_leave(&pod("Succeeded")), "it holds no module");
    }
}
