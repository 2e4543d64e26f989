//! Reviews: virtual resources that are only ever created, and answered at once.

use crate::access::Access;
use crate::access::tokens::TokenError;
use crate::request::{Reader, RequestInfo, UserInfo};
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use evenkeel_kube_rules::validate;
use jiff::Timestamp;
use serde_json::{Value, json};

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Whether `POST` on this resource is a review: `authorization.k8s.io` (selfsubjectaccessreviews,
/// subjectaccessreviews, localsubjectaccessreviews, selfsubjectrulesreviews), `authentication.k8s.io`
/// (tokenreviews, selfsubjectreviews).
pub(crate) fn is_review(group: &str, resource: &str) -> bool {
    match group {
        AUTHORIZATION => matches!(
            resource,
            "selfsubjectaccessreviews"
                | "subjectaccessreviews"
                | "localsubjectaccessreviews"
                | "selfsubjectrulesreviews"
        ),
        AUTHENTICATION => matches!(resource, "tokenreviews" | "selfsubjectreviews"),
        _ => false,
    }
}

/// A review as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Review<'a> {
    pub(crate) resource: &'a str,
    /// Namespace of the path, or empty.
    pub(crate) namespace: &'a str,
    /// The decoded object.
    pub(crate) body: Value,
    /// The user that makes the review.
    pub(crate) user: &'a UserInfo,
}

/// Answers a review; the answer's HTTP status is 201.
pub(crate) fn create(
    access: &Access,
    review: Review<'_>,
    reader: &dyn Reader,
    now: Timestamp,
) -> ApiResult<Value> {
    let Review {
        resource,
        namespace,
        mut body,
        user,
        ..
    } = review;
    let metadata = body.get("metadata").cloned().unwrap_or_else(|| json!({}));
    body["metadata"] = metadata;
    let status = match resource {
        "selfsubjectaccessreviews" => {
            check("SelfSubjectAccessReview", &body)?;
            access_review(access, &body["spec"], user, reader)
        }
        "subjectaccessreviews" => {
            check("SubjectAccessReview", &body)?;
            access_review(access, &body["spec"], &subject(&body["spec"]), reader)
        }
        "localsubjectaccessreviews" => {
            let stated = body["metadata"]["namespace"].as_str().unwrap_or_default();
            if !stated.is_empty() && stated != namespace {
                return Err(ApiError::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            body["metadata"]["namespace"] = json!(namespace);
            check("LocalSubjectAccessReview", &body)?;
            access_review(access, &body["spec"], &subject(&body["spec"]), reader)
        }
        "selfsubjectrulesreviews" => {
            let rules = rules_review(access, &body["spec"], user, reader)?;
            // Upstream answers with a new object, which holds the rules alone.
            body["metadata"] = json!({});
            body["spec"] = json!({});
            rules
        }
        "tokenreviews" => token_review(access, &body["spec"], reader, now)?,
        "selfsubjectreviews" => {
            body["metadata"]["creationTimestamp"] = json!(whole_second(now));
            json!({"userInfo": describe(user)})
        }
        other => {
            return Err(ApiError::internal(format!("{other} is not a review")));
        }
    };
    body["status"] = status;
    Ok(body)
}

fn whole_second(now: Timestamp) -> String {
    // The second of a timestamp is a timestamp: both have the same range.
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// A `UserInfo` without empty members, as authentication.k8s.io/v1 has it.
pub(crate) fn describe(user: &UserInfo) -> Value {
    let mut info = json!({});
    for (key, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            info[key] = json!(text);
        }
    }
    if !user.groups.is_empty() {
        info["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// Upstream names no kind in what it refuses.
fn check(kind: &str, body: &Value) -> ApiResult<()> {
    let errors = validate::access_review(kind, body);
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(AUTHORIZATION, "", "", errors))
}

/// The user that a SubjectAccessReview asks about.
fn subject(spec: &Value) -> UserInfo {
    let text = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
    UserInfo {
        name: text("user"),
        uid: text("uid"),
        groups: Vec::deserialize_or_default(&spec["groups"]),
        extra: std::collections::BTreeMap::deserialize_or_default(&spec["extra"]),
    }
}

/// Null and absent are empty; the body was decoded against the schema before, so nothing else occurs.
trait DeserializeOrDefault: Default + serde::de::DeserializeOwned {
    fn deserialize_or_default(value: &Value) -> Self {
        serde_json::from_value(value.clone()).unwrap_or_default()
    }
}

impl<T: Default + serde::de::DeserializeOwned> DeserializeOrDefault for T {}

/// Of a review that was checked.
fn access_review(access: &Access, spec: &Value, user: &UserInfo, reader: &dyn Reader) -> Value {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let info = if resource.is_object() {
        resource_info(resource)
    } else {
        RequestInfo {
            path: path["path"].as_str().unwrap_or_default().to_owned(),
            verb: path["verb"].as_str().unwrap_or_default().to_owned(),
            ..RequestInfo::default()
        }
    };
    let decision = access.authorizer.authorize(user, &info, reader);
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    status
}

fn resource_info(attributes: &Value) -> RequestInfo {
    let text = |key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
    RequestInfo {
        is_resource: true,
        path: String::new(),
        verb: text("verb"),
        group: text("group"),
        version: text("version"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
    }
}

fn rules_review(access: &Access, spec: &Value, user: &UserInfo, reader: &dyn Reader) -> ApiResult<Value> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (resources, paths) = access.authorizer.rules(user, namespace, reader);
    Ok(json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}))
}

fn token_review(access: &Access, spec: &Value, reader: &dyn Reader, now: Timestamp) -> ApiResult<Value> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let audiences: Vec<String> = Vec::deserialize_or_default(&spec["audiences"]);
    Ok(match access.authenticator.token(token, &audiences, reader, now) {
        Ok(verified) => json!({
            "authenticated": true, "user": describe(&verified.user), "audiences": verified.audiences,
        }),
        Err(TokenError::Foreign) => json!({"user": {}, "error": TokenError::Foreign.to_string()}),
        Err(error) => json!({"user": {}, "error": format!("[{}, {error}]", TokenError::Foreign)}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::Objects;
    use crate::options::Options;
    use rstest::rstest;
    use std::sync::Arc;

    fn ask(resource: &str, namespace: &str, body: Value, user: &UserInfo) -> ApiResult<Value> {
        let access = Access::new(&Options::default(), Arc::default()).unwrap();
        let group = if resource.contains("access") || resource.contains("rules") {
            AUTHORIZATION
        } else {
            AUTHENTICATION
        };
        assert!(is_review(group, resource));
        let review = Review {
            resource,
            namespace,
            body,
            user,
        };
        create(&access, review, &Objects::default(), Timestamp::UNIX_EPOCH)
    }

    fn admin() -> UserInfo {
        UserInfo {
            name: "admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
            ..UserInfo::default()
        }
    }

    const POD: &str = r#"{"verb": "get", "resource": "pods", "namespace": "ns"}"#;

    fn pod() -> Value {
        serde_json::from_str(POD).unwrap()
    }

    #[rstest]
    #[case::myself("selfsubjectaccessreviews", json!({"spec": {"resourceAttributes": pod()}}), Ok(json!({"allowed": true})))]
    #[case::a_path("selfsubjectaccessreviews", json!({"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}}), Ok(json!({"allowed": true})))]
    #[case::another("subjectaccessreviews", json!({"spec": {"user": "jane", "resourceAttributes": pod()}}), Ok(json!({"allowed": false})))]
    #[case::a_group("subjectaccessreviews", json!({"spec": {"groups": ["system:masters"], "resourceAttributes": pod()}}), Ok(json!({"allowed": true})))]
    #[case::local("localsubjectaccessreviews", json!({"metadata": {"namespace": "ns"}, "spec": {"user": "jane", "resourceAttributes": pod()}}), Ok(json!({"allowed": false})))]
    #[case::nothing_asked("selfsubjectaccessreviews", json!({"spec": {}}), Err("spec.resourceAttributes"))]
    #[case::both_asked("selfsubjectaccessreviews", json!({"spec": {"resourceAttributes": pod(), "nonResourceAttributes": {"path": "/x"}}}), Err("spec.nonResourceAttributes"))]
    #[case::named("subjectaccessreviews", json!({"metadata": {"name": "x"}, "spec": {"user": "u", "resourceAttributes": pod()}}), Err("metadata"))]
    #[case::nobody("subjectaccessreviews", json!({"spec": {"resourceAttributes": pod()}}), Err("spec.user"))]
    fn access(#[case] resource: &str, #[case] body: Value, #[case] expected: Result<Value, &str>) {
        let got = ask(resource, "ns", body, &admin());
        match (got, expected) {
            (Ok(got), Ok(status)) => assert_eq!(got["status"], status),
            (Err(error), Err(field)) => {
                assert_eq!(
                    (error.code, error.details["causes"][0]["field"].as_str()),
                    (422, Some(field))
                );
            }
            (got, expected) => panic!("{got:?} is not {expected:?}"),
        }
    }

    #[test]
    fn a_local_review_of_another_namespace_is_refused() {
        let body = json!({"metadata": {"namespace": "other"}, "spec": {"user": "jane", "resourceAttributes": pod()}});
        let refused = ask("localsubjectaccessreviews", "ns", body, &admin()).unwrap_err();
        assert_eq!(refused.code, 400);
        assert!(refused.message.contains("namespace"), "{}", refused.message);
    }

    #[test]
    fn a_user_sees_what_the_server_takes_them_for() {
        let got = ask("selfsubjectreviews", "", json!({}), &admin()).unwrap();
        assert_eq!(
            got["status"]["userInfo"],
            json!({"username": "admin", "groups": ["system:masters"]})
        );
        assert_eq!(got["metadata"]["creationTimestamp"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn an_administrator_may_everything() {
        let got = ask(
            "selfsubjectrulesreviews",
            "",
            json!({"spec": {"namespace": "ns"}}),
            &admin(),
        )
        .unwrap();
        assert_eq!(got["status"]["resourceRules"][0]["verbs"], json!(["*"]));
        assert_eq!(got["status"]["incomplete"], false);
    }

    #[test]
    fn a_bad_token_is_an_answer_not_an_error() {
        let got = ask("tokenreviews", "", json!({"spec": {"token": "bad"}}), &admin()).unwrap();
        assert_eq!(
            got["status"],
            json!({"user": {}, "error": "invalid bearer token"})
        );
        assert_eq!(
            ask("tokenreviews", "", json!({"spec": {}}), &admin())
                .unwrap_err()
                .code,
            400
        );
    }
}
