//! Acting as somebody else: the `Impersonate-*` headers, each of which RBAC must allow with verb
//! `impersonate`.

use crate::access::authn::{ANONYMOUS, UNAUTHENTICATED, authenticated};
use crate::access::errors::internal;
use crate::access::rbac::Authorizer;
use crate::request::query::decode_segment;
use crate::request::{Reader, RequestInfo, UserInfo};
use evenkeel_kube_rules::status::ApiResult;
use http::HeaderMap;
use std::collections::BTreeMap;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// What the headers ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Impersonation {
    user: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

/// The user that the request is to be served as: `user` itself without these headers, 403 where `user` may
/// not.
pub(crate) fn apply(
    user: UserInfo,
    headers: &HeaderMap,
    authorizer: &Authorizer,
    reader: &dyn Reader,
) -> ApiResult<UserInfo> {
    let Some(wanted) = parse(headers) else {
        return Ok(user);
    };
    if wanted.user.is_empty() {
        return Err(internal(
            "impersonation of groups, uid or extra needs Impersonate-User as well",
        ));
    }
    for info in questions(&wanted) {
        authorizer.check(&user, &info, reader)?;
    }
    Ok(become_user(wanted))
}

fn parse(headers: &HeaderMap) -> Option<Impersonation> {
    let texts = |name: &str| -> Vec<String> {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok().map(str::to_owned))
            .collect()
    };
    let mut wanted = Impersonation {
        user: texts(USER).into_iter().next().unwrap_or_default(),
        groups: texts(GROUP),
        uid: texts(UID).into_iter().next().unwrap_or_default(),
        extra: BTreeMap::new(),
    };
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let key = decode_segment(key).to_lowercase();
            wanted.extra.insert(key, texts(name.as_str()));
        }
    }
    (wanted != Impersonation::default()).then_some(wanted)
}

/// One question to the authorizer for each thing that is asked for.
fn questions(wanted: &Impersonation) -> Vec<RequestInfo> {
    let question =
        |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| RequestInfo {
            is_resource: true,
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            path: String::new(),
        };
    let mut all = vec![match service_account(&wanted.user) {
        Some((namespace, name)) => question("", "serviceaccounts", "", namespace, name),
        None => question("", "users", "", "", &wanted.user),
    }];
    all.extend(
        wanted
            .groups
            .iter()
            .map(|group| question("", "groups", "", "", group)),
    );
    if !wanted.uid.is_empty() {
        all.push(question("authentication.k8s.io", "uids", "", "", &wanted.uid));
    }
    for (key, values) in &wanted.extra {
        all.extend(
            values
                .iter()
                .map(|value| question("authentication.k8s.io", "userextras", key, "", value)),
        );
    }
    all
}

fn service_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

fn become_user(wanted: Impersonation) -> UserInfo {
    let mut groups = wanted.groups;
    if groups.is_empty()
        && let Some((namespace, _)) = service_account(&wanted.user)
    {
        groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    if wanted.user == ANONYMOUS && !groups.iter().any(|group| group == UNAUTHENTICATED) {
        groups.push(UNAUTHENTICATED.to_owned());
    }
    authenticated(UserInfo {
        name: wanted.user,
        uid: wanted.uid,
        groups,
        extra: wanted.extra,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::Objects;
    use rstest::rstest;
    use serde_json::json;

    /// `boss` may impersonate user jane, group devs, service account ns/robot, and extra `scope` of any
    /// value.
    fn world() -> Objects {
        let rule = |group: &str, resource: &str, names: &[&str]| json!({"verbs": ["impersonate"], "apiGroups": [group], "resources": [resource], "resourceNames": names});
        Objects::with([
            (
                "rbac.authorization.k8s.io",
                "clusterroles",
                json!({"metadata": {"name": "boss"}, "rules": [
                    rule("", "users", &["jane"]), rule("", "groups", &["devs"]), rule("", "serviceaccounts", &["robot"]),
                    rule("authentication.k8s.io", "userextras/scope", &[]),
                ]}),
            ),
            (
                "rbac.authorization.k8s.io",
                "clusterrolebindings",
                json!({"metadata": {"name": "boss"}, "roleRef": {"kind": "ClusterRole", "name": "boss"},
                    "subjects": [{"kind": "User", "name": "boss"}]}),
            ),
        ])
    }

    fn ask(user: &str, lines: &[(&'static str, &'static str)]) -> ApiResult<UserInfo> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let user = UserInfo {
            name: user.to_owned(),
            ..UserInfo::default()
        };
        apply(user, &headers, &Authorizer::new(true), &world())
    }

    #[rstest]
    #[case::nothing_asked(&[], Ok(("boss", vec![])))]
    #[case::a_user(&[("Impersonate-User", "jane")], Ok(("jane", vec!["system:authenticated"])))]
    #[case::with_group(
        &[("Impersonate-User", "jane"), ("Impersonate-Group", "devs")],
        Ok(("jane", vec!["devs", "system:authenticated"]))
    )]
    #[case::an_account(
        &[("Impersonate-User", "system:serviceaccount:ns:robot")],
        Ok(("system:serviceaccount:ns:robot", vec!["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]))
    )]
    #[case::another_user(
        &[("Impersonate-User", "root")],
        Err((403, "users \"root\" is forbidden: User \"boss\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"))
    )]
    #[case::another_group(
        &[("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")],
        Err((403, "groups \"system:masters\" is forbidden: User \"boss\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope"))
    )]
    #[case::extra_of_another_key(
        &[("Impersonate-User", "jane"), ("Impersonate-Extra-Other", "x")],
        Err((403, "userextras.authentication.k8s.io \"x\" is forbidden: User \"boss\" cannot impersonate resource \"userextras/other\" in API group \"authentication.k8s.io\" at the cluster scope"))
    )]
    #[case::group_alone(
        &[("Impersonate-Group", "devs")],
        Err((500, "Internal error occurred: impersonation of groups, uid or extra needs Impersonate-User as well"))
    )]
    fn headers_are_authorized_one_by_one(
        #[case] lines: &[(&'static str, &'static str)],
        #[case] expected: Result<(&str, Vec<&str>), (u16, &str)>,
    ) {
        let got = ask("boss", lines);
        match (got, expected) {
            (Ok(user), Ok((name, groups))) => assert_eq!(
                (user.name.as_str(), user.groups),
                (name, groups.into_iter().map(str::to_owned).collect())
            ),
            (Err(error), Err((code, text))) => assert_eq!((error.code, error.message.as_str()), (code, text)),
            (got, expected) => panic!("{got:?} is not {expected:?}"),
        }
    }

    #[test]
    fn extra_keys_are_unescaped() {
        let user = ask(
            "boss",
            &[
                ("Impersonate-User", "jane"),
                ("Impersonate-Extra-Sc%6Fpe", "a"),
                ("Impersonate-Extra-Sc%6Fpe", "b"),
            ],
        )
        .unwrap();
        assert_eq!(user.extra["scope"], ["a", "b"]);
        // A sign is no digit.
        let user = ask(
            "boss",
            &[("Impersonate-User", "jane"), ("Impersonate-Extra-%+f", "a")],
        );
        let message = user.unwrap_err().message;
        assert!(message.contains("resource \"userextras/%+f\""), "{message}");
    }

    #[test]
    fn a_user_without_the_right_may_not() {
        assert_eq!(
            ask("jane", &[("Impersonate-User", "boss")]).unwrap_err().code,
            403
        );
    }
}
