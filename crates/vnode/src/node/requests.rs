//! The requests.

use crate::core::lease::{Answer, Request};
use crate::core::merge;
use crate::core::node::Refused;
use evenkeel_api::names::vnode::FLEET_LABEL;
use evenkeel_election::gate::is_gate_closed;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::Value;

/// Reads and merges in one registration, where others write between.
const TRIES: usize = 5;

/// Reads the Node; creates it, or makes it what is wanted.
pub(super) async fn register(nodes: &Api<Node>, name: &str, wanted: &Node) -> Result<Node, Refused> {
    let mut last = Refused::Conflict;
    for _ in 0..TRIES {
        let written = match nodes.get_opt(name).await {
            Ok(None) => {
                nodes
                    .create(&PostParams::default(), &merge::creation(wanted))
                    .await
            }
            Ok(Some(current)) if merge::is_foreign(&current) => {
                let why = foreign(name);
                tracing::warn!(node = name, "{why}");
                return Err(Refused::Failed(why));
            }
            Ok(Some(current)) => match merge::patch(&current, wanted) {
                None => return Ok(current),
                Some(patch) => {
                    nodes
                        .patch_status(name, &strategic(), &Patch::Strategic(patch))
                        .await
                }
            },
            Err(error) => Err(error),
        };
        match written.map_err(|error| refused(name, "register", &error)) {
            Err(refused @ (Refused::Conflict | Refused::NotFound)) => last = refused,
            done => return done,
        }
    }
    Err(last)
}

/// What is said of a Node that is not ours.
pub(super) fn foreign(name: &str) -> String {
    format!(
        "the Node {name} is another kubelet's and is left alone: no label {FLEET_LABEL} makes it a virtual one; give one of the two another name"
    )
}

/// Patches the status.
pub(super) async fn post(nodes: &Api<Node>, name: &str, patch: &Value) -> Result<Node, Refused> {
    let written = nodes
        .patch_status(name, &strategic(), &Patch::Strategic(patch))
        .await;
    written.map_err(|error| refused(name, "post the status of", &error))
}

/// Does what is asked about the Lease.
pub(super) async fn lease(leases: &Api<Lease>, name: &str, request: Request) -> Answer {
    let result = match request {
        Request::Get => leases.get(name).await,
        Request::Create(lease) => leases.create(&PostParams::default(), &lease).await,
        Request::Update(lease) => leases.replace(name, &PostParams::default(), &lease).await,
    };
    match result {
        Ok(lease) => Answer::Done(Box::new(lease)),
        Err(error) => match refused(name, "renew the Lease of", &error) {
            Refused::NotFound => Answer::NotFound,
            Refused::Conflict => Answer::Conflict,
            Refused::Failed(why) => Answer::Failed(why),
        },
    }
}

/// A deletion of what is not there has succeeded, and one of what another has made anew since is not ours to
/// make.
pub(super) fn gone<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 409 || is_absent(&status) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Whether the API server says that there is no such object. A proxy between, or a server that does not know
/// the kind yet, says 404 as well, and means something else.
pub(crate) fn is_absent(status: &kube::core::Status) -> bool {
    status.code == 404 && status.reason == "NotFound"
}

fn strategic() -> PatchParams {
    PatchParams::apply(evenkeel_api::names::FIELD_MANAGER)
}

/// What an error means. A closed gate is expected where another replica takes over, and is not complained
/// about.
fn refused(name: &str, what: &str, error: &kube::Error) -> Refused {
    match error {
        kube::Error::Api(status) if is_absent(status) => Refused::NotFound,
        // 422: the UID of a patch is not that of the Node, which was made anew.
        kube::Error::Api(status) if status.code == 409 || is_of_another(status) => Refused::Conflict,
        _ if is_gate_closed(error) => Refused::Failed("another replica may serve this node".to_owned()),
        _ => {
            tracing::warn!(node = name, %error, "cannot {what} the node; it is tried again");
            Refused::Failed(error.to_string())
        }
    }
}

fn is_of_another(status: &kube::core::Status) -> bool {
    status.code == 422 && status.message.contains("metadata.uid")
}
