//! Addresses and node ports of the Service that a request writes.

use super::context::Context;
use crate::allocator::Claim;
use evenkeel_kube_rules::status::ApiResult;
use serde_json::Value;

fn is_service(context: &Context) -> bool {
    context.resource.gvr.group.is_empty() && context.resource.gvr.resource == "services"
}

/// Fills in a new Service.
pub(crate) fn claim_for_create<'a>(context: &'a Context, object: &mut Value) -> ApiResult<Claim<'a>> {
    claim(context, &Value::Null, object)
}

/// Fills in a changed Service.
pub(crate) fn claim_for_update<'a>(
    context: &'a Context,
    old: &Value,
    new: &mut Value,
) -> ApiResult<Claim<'a>> {
    claim(context, old, new)
}

fn claim<'a>(context: &'a Context, old: &Value, new: &mut Value) -> ApiResult<Claim<'a>> {
    let allocator = &context.server.services;
    if is_service(context) {
        allocator.claim(old, new)
    } else {
        Ok(allocator.nothing())
    }
}
