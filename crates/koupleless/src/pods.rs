//! Selects the pods that are modules, by one selector for running, listing and evicting them.

use evenkeel_api::names::koupleless::{COMPONENT_LABEL, MODULE};
use kube::api::ListParams;

/// The label selector of modules' pods. Others nobody runs here, and so nobody could end them.
pub(crate) fn selector() -> String {
    format!("{COMPONENT_LABEL}={MODULE}")
}

/// The modules' pods that are on a node.
pub(crate) fn on(node: &str) -> ListParams {
    ListParams::default()
        .fields(&format!("spec.nodeName={node}"))
        .labels(&selector())
}
