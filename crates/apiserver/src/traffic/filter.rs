//! Which requests are meant.

use super::RecordedRequest;

/// Which requests are meant. Without any condition these are all; with several, those that fit all of them.
///
/// ```
/// use evenkeel_apiserver::RequestFilter;
///
/// let of_pods = RequestFilter::any().resource("pods");
/// let writes_of_pods = of_pods.clone().verbs(["create", "update", "patch", "delete"]);
/// let of_one_pod = of_pods.namespace("default").name("web");
/// let of_its_status = of_one_pod.clone().resource("pods/status");
/// let of_a_controller = RequestFilter::any().user("system:serviceaccount:shop:controller");
/// # let _ = (writes_of_pods, of_one_pod, of_its_status, of_a_controller);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a filter selects nothing by itself"]
pub struct RequestFilter {
    verbs: Vec<String>,
    api_group: Option<String>,
    /// Resource and subresource; `*` is any.
    resource: Option<(String, String)>,
    namespace: Option<String>,
    name: Option<String>,
    path: Option<String>,
    user: Option<String>,
    user_group: Option<String>,
}

impl RequestFilter {
    /// All requests.
    pub fn any() -> Self {
        Self::default()
    }

    /// Those of a verb, as RBAC names them: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`. Given again, those of either.
    pub fn verb(self, verb: &str) -> Self {
        self.verbs([verb])
    }

    /// Those of any of these verbs.
    pub fn verbs<'a>(mut self, verbs: impl IntoIterator<Item = &'a str>) -> Self {
        self.verbs.extend(verbs.into_iter().map(str::to_owned));
        self
    }

    /// Those of an API group; the core group is empty.
    pub fn api_group(mut self, group: &str) -> Self {
        self.api_group = Some(group.to_owned());
        self
    }

    /// Those of a resource, as RBAC names it: `pods` is without subresources, `pods/status` the subresource
    /// alone, `pods/*` a resource with all that is below it, `*/scale` that subresource of any.
    pub fn resource(mut self, resource: &str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        self.resource = Some((resource.to_owned(), subresource.to_owned()));
        self
    }

    /// Those in a namespace. Lists and watches over all namespaces are in none, so their namespace is empty.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Those about the object of this name: by the path, by a field selector for `metadata.name`, and for
    /// `create` by the body.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Those of exactly this path, as in `/healthz`.
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Those of a user.
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Those of the users in a group: groups may tell clients apart that have one user name.
    pub fn user_group(mut self, group: &str) -> Self {
        self.user_group = Some(group.to_owned());
        self
    }

    /// Whether a request is meant.
    pub fn matches(&self, request: &RecordedRequest) -> bool {
        self.matches_object(request, &request.namespace, &request.name)
    }

    /// Whether a request is meant where it is about this object.
    pub(super) fn matches_object(&self, request: &RecordedRequest, namespace: &str, name: &str) -> bool {
        let fits = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|text| text == found);
        let part = |wanted: &str, found: &str| wanted == "*" || wanted == found;
        (self.verbs.is_empty() || self.verbs.contains(&request.verb))
            && fits(&self.api_group, &request.api_group)
            && self.resource.as_ref().is_none_or(|(resource, subresource)| {
                !request.resource.is_empty()
                    && part(resource, &request.resource)
                    && part(subresource, &request.subresource)
            })
            && fits(&self.namespace, namespace)
            && fits(&self.name, name)
            && fits(&self.path, &request.path)
            && fits(&self.user, &request.user)
            && self
                .user_group
                .as_ref()
                .is_none_or(|group| request.user_groups.contains(group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> RecordedRequest {
        let text = str::to_owned;
        RecordedRequest {
            verb: text("patch"),
            path: text("/api/v1/namespaces/default/pods/web/status"),
            resource: text("pods"),
            subresource: text("status"),
            namespace: text("default"),
            name: text("web"),
            user: text("bob"),
            user_groups: vec![text("system:authenticated")],
            ..RecordedRequest::default()
        }
    }

    #[rstest::rstest]
    #[case::everything(RequestFilter::any(), true)]
    #[case::one_of_the_verbs(RequestFilter::any().verb("get").verb("patch"), true)]
    #[case::another_verb(RequestFilter::any().verb("update"), false)]
    #[case::no_subresource(RequestFilter::any().resource("pods"), false)]
    #[case::the_subresource(RequestFilter::any().resource("pods/status"), true)]
    #[case::any_subresource(RequestFilter::any().resource("pods/*"), true)]
    #[case::of_any_resource(RequestFilter::any().resource("*/status"), true)]
    #[case::the_core_group(RequestFilter::any().api_group(""), true)]
    #[case::another_group(RequestFilter::any().api_group("apps"), false)]
    #[case::the_object(RequestFilter::any().namespace("default").name("web"), true)]
    #[case::another_namespace(RequestFilter::any().namespace("other").name("web"), false)]
    #[case::another_object(RequestFilter::any().name("db"), false)]
    #[case::the_path(RequestFilter::any().path("/api/v1/namespaces/default/pods/web/status"), true)]
    #[case::another_path(RequestFilter::any().path("/healthz"), false)]
    #[case::the_user(RequestFilter::any().user("bob").user_group("system:authenticated"), true)]
    #[case::another_user(RequestFilter::any().user("eve"), false)]
    #[case::another_user_group(RequestFilter::any().user_group("system:masters"), false)]
    fn every_condition_must_fit(#[case] filter: RequestFilter, #[case] expected: bool) {
        assert_eq!(filter.matches(&asked()), expected);
    }

    #[test]
    fn a_path_that_is_no_resource_is_of_none() {
        let health = RecordedRequest {
            path: "/healthz".to_owned(),
            verb: "get".to_owned(),
            ..RecordedRequest::default()
        };
        assert!(!RequestFilter::any().resource("*/*").matches(&health));
        assert!(RequestFilter::any().path("/healthz").matches(&health));
    }
}
