//! What a path and a method ask for.

use crate::request::RequestInfo;
use crate::request::query::{Query, decode_segment};
use http::Method;

/// Reads a request line as upstream's `RequestInfo` factory does.
pub(crate) fn request_info(method: &Method, path: &str, query: &Query) -> RequestInfo {
    let plain = || RequestInfo {
        path: path.to_owned(),
        verb: method.as_str().to_ascii_lowercase(),
        ..RequestInfo::default()
    };
    let mut parts: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(decode_segment)
        .collect();
    let (group, version) = match parts.first().map(String::as_str) {
        Some("api") if parts.len() >= 3 => (String::new(), parts[1].clone()),
        Some("apis") if parts.len() >= 4 => (parts[1].clone(), parts[2].clone()),
        _ => return plain(),
    };
    parts.drain(..if group.is_empty() { 2 } else { 3 });
    let legacy_watch = parts[0] == "watch" && parts.len() > 1;
    if legacy_watch {
        parts.remove(0);
    }
    let mut namespace = String::new();
    if parts[0] == "namespaces" && parts.len() > 1 {
        namespace.clone_from(&parts[1]);
        if parts.len() > 2 && !matches!(parts[2].as_str(), "status" | "finalize") {
            parts.drain(..2);
        }
    }
    let mut parts = parts.into_iter();
    let resource = parts.next().unwrap_or_default();
    let mut name = parts.next().unwrap_or_default();
    let subresource = parts.next().unwrap_or_default();
    // What follows a subresource is the path of a proxy, which reads it for itself.
    let mut verb = match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    };
    if legacy_watch {
        verb = "watch";
    } else if name.is_empty() && verb == "get" {
        verb = if query.flag("watch") { "watch" } else { "list" };
    } else if name.is_empty() && verb == "delete" {
        verb = "deletecollection";
    }
    if name.is_empty() && matches!(verb, "list" | "watch" | "deletecollection") {
        query
            .get("fieldSelector")
            .and_then(named)
            .unwrap_or_default()
            .clone_into(&mut name);
    }
    RequestInfo {
        is_resource: true,
        path: path.to_owned(),
        verb: verb.to_owned(),
        group,
        version,
        resource,
        subresource,
        namespace,
        name,
    }
}

/// The name that a field selector demands: rules by name then hold for lists and watches of one object.
fn named(selector: &str) -> Option<&str> {
    selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (!value.is_empty()).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("GET", "/api/v1/pods", "", "list||v1|pods|||")]
    #[case("GET", "/api/v1/namespaces/a/pods/b/status", "", "get||v1|pods|status|a|b")]
    #[case(
        "GET",
        "/apis/apps/v1/namespaces/a/deployments",
        "watch=true",
        "watch|apps|v1|deployments||a|"
    )]
    #[case("GET", "/api/v1/watch/namespaces/a/pods/b", "", "watch||v1|pods||a|b")]
    #[case("GET", "/api/v1/namespaces/a", "", "get||v1|namespaces||a|a")]
    #[case(
        "PUT",
        "/api/v1/namespaces/a/finalize",
        "",
        "update||v1|namespaces|finalize|a|a"
    )]
    #[case("GET", "/api/v1/namespaces", "", "list||v1|namespaces|||")]
    #[case("DELETE", "/api/v1/nodes", "", "deletecollection||v1|nodes|||")]
    #[case("GET", "/api/v1/pods", "fieldSelector=metadata.name%3Dx", "list||v1|pods|||x")]
    fn paths_are_read(#[case] method: &str, #[case] path: &str, #[case] query: &str, #[case] expected: &str) {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let info = request_info(&method, path, &Query::parse(query));
        let found = [
            &info.verb,
            &info.group,
            &info.version,
            &info.resource,
            &info.subresource,
            &info.namespace,
            &info.name,
        ]
        .map(String::as_str)
        .join("|");
        assert!(info.is_resource);
        assert_eq!(found, expected);
    }

    #[test]
    fn other_paths_are_no_resources() {
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
            "/healthz/ping",
            "/version",
        ] {
            assert!(
                !request_info(&Method::GET, path, &Query::default()).is_resource,
                "{path}"
            );
        }
    }
}
