//! Which pods the taint drives away.

use evenkeel_api::names::koupleless::healing::TAINT;
use evenkeel_stock_rules::tolerations::{Stay, stay};
use k8s_openapi::api::core::v1::{Pod, Taint};

/// Whether a pod has to leave a node with the taint: it runs, and does not tolerate the taint for ever. A
/// toleration with a time drives the pod away later. Pods that have ended hold no module.
pub(crate) fn must_leave(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return false;
    }
    let (key, value, effect) = TAINT;
    let taint = Taint {
        key: key.to_owned(),
        value: Some(value.to_owned()),
        effect: effect.to_owned(),
        time_added: None,
    };
    let spec = pod.spec.as_ref();
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
    stay(tolerations.unwrap_or_default(), &[taint]) != Stay::Forever
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
