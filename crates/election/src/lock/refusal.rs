//! Turns a failed request into the error of a lock.

use super::LockError;
use super::memory::Op;
use super::target::Target;
use kube::core::Status;
use std::error::Error as _;

/// The message of an API server for an update of an object that does not exist any more.
const CREATED_WITH_VERSION: &str = "resourceVersion should not be set on objects to be created";

/// The error of the lock for a failed request.
pub(super) fn lock_error(target: &Target, op: Op, error: kube::Error) -> LockError {
    match error {
        kube::Error::Api(status) => from_status(target, op, &status),
        kube::Error::SerdeError(error) => LockError::Malformed(format!(
            "cannot {op} {target}: the answer cannot be read ({error}); check that the client talks to a \
             Kubernetes API server"
        )),
        error => LockError::Unreachable(format!("cannot {op} {target}: {}", chain(&error))),
    }
}

fn from_status(target: &Target, op: Op, status: &Status) -> LockError {
    let (said, namespace) = (detail(status), &target.namespace);
    let refused = |text: String| LockError::Refused(format!("cannot {op} {target}: {text}"));
    match (status.code, op) {
        // Other conflicts on create, for example with a change of a quota, are not about the lock.
        (409, Op::Create) if status.is_already_exists() => LockError::Conflict,
        // 404: the object was deleted since it was read, which also is a write in between.
        (409 | 404, Op::Update) => LockError::Conflict,
        // The same, for kinds that an update may create, such as Leases and Endpoints.
        (500, Op::Update) if status.message.contains(CREATED_WITH_VERSION) => LockError::Conflict,
        (404, Op::Create) if is_namespace_missing(status) => refused(format!(
            "namespace `{namespace}` does not exist ({said}); create it, or put the lock into another"
        )),
        (404, _) => refused(format!(
            "the API server does not know {} in {} ({said}); check its version and address",
            target.plural(),
            target.resource.api_version,
        )),
        (403, _) if is_namespace_terminating(status) => refused(format!(
            "namespace `{namespace}` is being deleted ({said}); put the lock into another, or wait and create it anew"
        )),
        (403, _) => refused(format!(
            "forbidden ({said}); allow get, create and update on {} in namespace `{namespace}` to this account \
             (list and watch are optional: with them a change is noticed at once)",
            target.plural(),
        )),
        (401, _) => refused(format!(
            "the API server does not accept our credentials ({said}); check token or client certificate"
        )),
        (422, _) => refused(format!(
            "invalid ({said}); correct the configuration of this candidate"
        )),
        // After a 5xx a write may have been made all the same.
        (429 | 500.., _) => LockError::Unreachable(format!(
            "cannot {op} {target}: the API server cannot serve it now ({said})"
        )),
        _ => refused(said),
    }
}

fn detail(status: &Status) -> String {
    match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("status {}", status.code),
        ("", reason) => format!("status {}: {reason}", status.code),
        (message, _) => format!("status {}: {message}", status.code),
    }
}

fn is_namespace_missing(status: &Status) -> bool {
    let by_details = status
        .details
        .as_ref()
        .is_some_and(|details| details.kind == "namespaces");
    by_details || status.message.starts_with("namespaces \"")
}

fn is_namespace_terminating(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| {
        let mut causes = details.causes.iter();
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    })
}

/// The text of an error and its causes. A cause that the text contains already is left out.
pub(super) fn chain(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::core::ApiResource;
    use rstest::rstest;
    use serde_json::json;

    fn target() -> Target {
        Target::new(ApiResource::erase::<Lease>(&()), "ns", "name").unwrap()
    }

    fn answer(op: Op, code: u16, reason: &str, message: &str) -> LockError {
        let status = Status::failure(message, reason).with_code(code);
        lock_error(&target(), op, kube::Error::Api(status.boxed()))
    }

    #[rstest]
    #[case::created_before(Op::Create, 409, "AlreadyExists", true)]
    #[case::quota_changed(Op::Create, 409, "Conflict", false)]
    #[case::written_before(Op::Update, 409, "Conflict", true)]
    #[case::no_reason_given(Op::Update, 409, "", true)]
    #[case::deleted_before(Op::Update, 404, "NotFound", true)]
    #[case::no_such_namespace(Op::Create, 404, "NotFound", false)]
    #[case::forbidden(Op::Update, 403, "Forbidden", false)]
    fn a_conflict_is_a_write_of_somebody_else(
        #[case] op: Op,
        #[case] code: u16,
        #[case] reason: &str,
        #[case] conflict: bool,
    ) {
        let error = answer(op, code, reason, "so it is");
        assert_eq!(error == LockError::Conflict, conflict, "{error}");
    }

    #[test]
    fn forbidden_names_what_was_asked_and_which_rights_are_missing() {
        let LockError::Refused(text) = answer(Op::Update, 403, "Forbidden", "User \"me\" cannot") else {
            panic!("not a refusal")
        };
        let expected = "cannot update Lease ns/name: forbidden (status 403: User \"me\" cannot); allow get, create \
             and update on leases.coordination.k8s.io in namespace `ns` to this account (list and watch are \
             optional: with them a change is noticed at once)";
        assert_eq!(text, expected);
    }

    #[rstest]
    #[case::namespace(
        404,
        "namespaces \"ns\" not found",
        "namespace `ns` does not exist (status 404"
    )]
    #[case::kind(
        404,
        "page not found",
        "does not know leases.coordination.k8s.io in coordination.k8s.io/v1"
    )]
    #[case::credentials(401, "Unauthorized", "check token or client certificate")]
    #[case::invalid(
        422,
        "spec.leaseDurationSeconds: must be greater than 0",
        "must be greater than 0"
    )]
    #[case::other(400, "no way", "cannot create Lease ns/name: status 400: no way")]
    fn a_refusal_says_what_to_do(#[case] code: u16, #[case] message: &str, #[case] expected: &str) {
        let LockError::Refused(text) = answer(Op::Create, code, "", message) else {
            panic!("not a refusal")
        };
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_namespace_being_deleted_is_told_from_missing_rights() {
        let status: Status = serde_json::from_value(json!({
            "status": "Failure", "code": 403, "reason": "Forbidden", "message": "unable to create new content",
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "being terminated", "field": ""}]},
        }))
        .unwrap();
        let error = lock_error(&target(), Op::Create, kube::Error::Api(status.boxed()));
        assert!(error.to_string().contains("is being deleted"), "{error}");
    }

    #[rstest]
    #[case(429)]
    #[case(500)]
    #[case(503)]
    #[case(504)]
    fn a_server_that_cannot_say_is_not_a_refusal(#[case] code: u16) {
        let error = answer(Op::Update, code, "", "etcd timed out");
        assert!(
            matches!(&error, LockError::Unreachable(text) if text.contains("etcd timed out")),
            "{error}"
        );
    }

    #[test]
    fn what_lies_behind_a_failed_connection_is_told() {
        let refused = std::io::Error::other("no route to host");
        let error = lock_error(&target(), Op::Get, kube::Error::ReadEvents(refused));
        assert!(
            matches!(&error, LockError::Unreachable(text) if text.starts_with("cannot get Lease ns/name: ")
                && text.matches("no route to host").count() == 1),
            "{error}"
        );
    }
}
