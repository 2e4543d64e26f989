//! The verbs: what a request does to the store.
//!
//! | module | what it holds |
//! |---|---|
//! | `context` | one request on its way, and its answer |
//! | `rules` | the rules of a kind, built-in or custom |
//! | `convert` | between the version served and the version stored |
//! | `read`, `write`, `patch`, `delete` | the verbs |
//! | `naming` | the metadata of what is written: names, owners, identity |
//! | `ownership` | who owns which fields; server-side apply |
//! | `scale`, `binding`, `eviction`, `finalize` | subresources with a verb of their own |
//! | `connect` | subresources behind which a kubelet or a pod answers |
//! | `watch` | the events of a resource as a stream |
//! | `usage` | what kubelets measure |
//! | `present` | objects as table rows, or by their metadata alone |
//! | `services` | addresses and ports of a Service, claimed for one write |
//! | `hooks` | what a write to some kinds brings with it |

pub(crate) mod binding;
pub(crate) mod connect;
pub(crate) mod context;
pub(crate) mod delete;
pub(crate) mod eviction;
pub(crate) mod finalize;
pub(crate) mod hooks;
pub(crate) mod naming;
mod ownership;
pub(crate) mod patch;
pub(crate) mod present;
pub(crate) mod read;
pub(crate) mod rules;
pub(crate) mod scale;
pub(crate) mod services;
mod usage;
mod watch;
pub(crate) mod write;

use crate::access::review;
use crate::kinds::METRICS_GROUP;
use crate::kinds::Resource;
use crate::request::RequestInfo;
use context::{Answer, Context};
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use rules::Part;
use std::sync::Arc;

/// Whether a path is served, and its method allowed there: 404 or 405 where not.
pub(crate) fn check_path(resource: &Resource, info: &RequestInfo) -> ApiResult<()> {
    let verb = info.verb.as_str();
    let of_collection = matches!(verb, "list" | "watch" | "deletecollection");
    // Collections may carry a name that comes from a field selector.
    let has_name = !of_collection && !info.name.is_empty();
    if !resource.namespaced && !info.namespace.is_empty() && resource.gvr.resource != "namespaces" {
        return Err(ApiError::no_such_resource());
    }
    if resource.namespaced && info.namespace.is_empty() {
        return match verb {
            "list" | "watch" => Ok(()),
            _ if has_name => Err(ApiError::no_such_resource()),
            _ => Err(ApiError::method_not_allowed()),
        };
    }
    if !info.subresource.is_empty() {
        let sub = resource.subresource(&info.subresource).ok_or_else(|| {
            if resource.custom.is_some() {
                ApiError::not_found(&info.group, &info.resource, &info.name)
            } else {
                ApiError::no_such_resource()
            }
        })?;
        if !sub.verbs.iter().any(|have| have == verb) {
            return Err(ApiError::method_not_allowed());
        }
        return Ok(());
    }
    let fits = match verb {
        "create" => !has_name,
        "update" | "patch" | "delete" => has_name,
        "get" => true,
        _ => of_collection,
    };
    if fits && resource.has_verb(verb) {
        Ok(())
    } else {
        Err(ApiError::method_not_allowed())
    }
}

/// Does what a request asks for. Path, user and permission have been checked.
pub(crate) async fn run(context: &Arc<Context>) -> ApiResult<Answer> {
    let info = &context.info;
    let (group, resource) = (info.group.as_str(), info.resource.as_str());
    match (info.subresource.as_str(), info.verb.as_str()) {
        ("", "create") if review::is_review(group, resource) => hooks::review(context),
        ("", "create") if (group, resource) == ("", "bindings") => binding::create(context).await,
        ("", "create") => write::create(context).await,
        ("", "get") if group == METRICS_GROUP => usage::get(context).await,
        ("", "list") if group == METRICS_GROUP => usage::list(context).await,
        ("", "get") => read::get(context),
        ("", "list") => read::list(context),
        ("", "watch") => watch::watch(context),
        ("", "update") => write::update(context, Part::Main).await,
        ("", "patch") => patch::patch(context, Part::Main).await,
        ("", "delete") => delete::delete(context).await,
        ("", "deletecollection") => delete::delete_collection(context).await,
        ("scale", "get") => scale::get(context),
        ("scale", "update") => scale::update(context).await,
        ("scale", "patch") => scale::patch(context).await,
        ("binding", "create") => binding::create(context).await,
        ("eviction", "create") => eviction::create(context).await,
        ("token", "create") => hooks::token(context),
        ("finalize", "update") => finalize::update(context),
        (sub, verb) => match (part(sub), verb) {
            (Some(_), "get") => read::get(context),
            (Some(part), "update") => write::update(context, part).await,
            (Some(part), "patch") => patch::patch(context, part).await,
            _ => Err(ApiError::new(
                501,
                "NotImplemented",
                format!(
                    "the embedded API server does not serve {resource}/{sub}: there is no kubelet or proxy behind it"
                ),
            )),
        },
    }
}

fn part(subresource: &str) -> Option<Part> {
    match subresource {
        "status" => Some(Part::Status),
        "ephemeralcontainers" => Some(Part::EphemeralContainers),
        "resize" => Some(Part::Resize),
        "approval" => Some(Part::Approval),
        _ => None,
    }
}
