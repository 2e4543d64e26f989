//! The entry point of the rules: it finds the rule for a request and applies it.

use super::{Operation, Request, View, endpoints, nodes, pods, slices};
use evenkeel_api::names;
use evenkeel_zone::Millis;
use json_patch::jsonptr::PointerBuf;
use json_patch::{PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use serde_json::Value;

/// What becomes of a write. It is always allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It passes unchanged.
    Pass(PassReason),
    Patch(Correction),
}

/// Why a write passes as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassReason {
    /// Not a write of a stock controller to something that we correct; our own writes among them.
    NotOurs,
    /// The view is too old to act upon.
    ViewNotLive,
    /// Nothing of the kind is kept on the node, or it is another one under the same name.
    NotProtected,
    /// The pod is not ready on its own account, or more than its readiness changes.
    OwnAccount,
    /// There is nothing to correct.
    Nothing,
}

impl PassReason {
    /// Value of the metric label `result`.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotOurs => "pass_not_ours",
            Self::ViewNotLive => "pass_view_not_live",
            Self::NotProtected => "pass_not_protected",
            Self::OwnAccount => "pass_own_account",
            Self::Nothing => "pass_nothing",
        }
    }
}

/// A correction with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Correction {
    /// JSON patch: one `test` and one replacement of a whole list, never an index, so that it either fits the
    /// object as it was judged or does not apply at all.
    pub patch: json_patch::Patch,
    /// The nodes that the correction protects.
    pub nodes: Vec<String>,
    /// For people: what was kept.
    pub what: String,
}

impl Correction {
    /// Replaces the list at `path`, which reads `old` now; an empty `new` removes it.
    pub(super) fn of_list(path: &[&str], old: Value, new: Value, nodes: Vec<String>, what: String) -> Self {
        let path = PointerBuf::from_tokens(path.iter().copied());
        let change = if new.as_array().is_some_and(Vec::is_empty) {
            PatchOperation::Remove(RemoveOperation { path: path.clone() })
        } else {
            PatchOperation::Replace(ReplaceOperation {
                path: path.clone(),
                value: new,
            })
        };
        let test = PatchOperation::Test(TestOperation { path, value: old });
        Self {
            patch: json_patch::Patch(vec![test, change]),
            nodes,
            what,
        }
    }
}

/// Decides about a write at `now`. Idempotent: a corrected object is not corrected again.
pub fn decide(request: &Request, view: &View, now: Millis) -> Decision {
    let Some(rule) = rule_for(request) else {
        return Decision::Pass(PassReason::NotOurs);
    };
    if !view.is_live(now) {
        return Decision::Pass(PassReason::ViewNotLive);
    }
    match rule(request, view) {
        Ok(correction) => Decision::Patch(correction),
        Err(reason) => Decision::Pass(reason),
    }
}

type Rule = fn(&Request, &View) -> Result<Correction, PassReason>;

fn rule_for(request: &Request) -> Option<Rule> {
    let user = request.user_info.username.as_str();
    // The lists of stock users never contain an account of ours; this holds even if somebody adds one to
    // them.
    if is_our_own(user) {
        return None;
    }
    let node_controller = names::STOCK_NODE_CONTROLLER_USERS.contains(&user);
    let endpoint_controller = names::STOCK_ENDPOINT_CONTROLLER_USERS.contains(&user);
    let create = request.operation == Operation::Create;
    let update = request.operation == Operation::Update;
    let resource = &request.resource;
    match (
        resource.group.as_str(),
        resource.resource.as_str(),
        request.sub_resource.as_str(),
    ) {
        ("", "pods", "status") if node_controller && update => Some(pods::keep_readiness),
        ("", "nodes", "") if node_controller && update => Some(nodes::strip_no_execute),
        ("discovery.k8s.io", "endpointslices", "") if endpoint_controller && (create || update) => {
            Some(slices::keep_ready)
        }
        ("", "endpoints", "") if endpoint_controller && (create || update) => Some(endpoints::keep_ready),
        _ => None,
    }
}

fn is_our_own(user: &str) -> bool {
    user.strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'))
        .is_some_and(|(_, account)| account == names::service_accounts::CONTROLLER)
}
