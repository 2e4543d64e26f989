//! What a request to a kubelet is about, in the API server's terms.
//!
//! Kubernetes 1.36 with fine-grained authorization (KEP-2862): some paths are looked up under a subresource
//! of their own first and under `proxy` after.

use http::Method;

/// The verb: `create` for POST, `get` for GET and so on; empty for all others, HEAD among them.
pub fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The subresources of `nodes`, one of which the user must be allowed; never empty. `path` is the request's
/// as it is routed, percent-encoding left alone: what cannot be routed is never taken for something else
/// here.
pub fn subresources(path: &str) -> &'static [&'static str] {
    /// Path, and what stands for it and all below it.
    const TABLE: [(&str, &[&str]); 10] = [
        ("/pods", &["pods", "proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/configz", &["configz", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/statusz", &["statusz"]),
        ("/flagz", &["configz"]),
    ];
    let below = |top: &str| {
        path.strip_prefix(top)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    TABLE
        .iter()
        .find(|(top, _)| below(top))
        .map_or(&["proxy"], |(_, subresources)| subresources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("/attach/ns/pod/c", &["proxy"])]
    #[case("/checkpoint/ns/pod/c", &["checkpoint"])]
    #[case("/configz", &["configz", "proxy"])]
    #[case("/flagz", &["configz"])]
    #[case("/statusz", &["statusz"])]
    #[case("/containerLogs/ns/pod/c", &["proxy"])]
    #[case("/debug/pprof/heap", &["proxy"])]
    #[case("/exec/ns/pod/c", &["proxy"])]
    #[case("/exec/ns/pod/uid/c", &["proxy"])]
    #[case("/healthz", &["healthz", "proxy"])]
    #[case("/healthz/syncloop", &["healthz", "proxy"])]
    #[case("/logs/", &["log"])]
    #[case("/logs/messages", &["log"])]
    #[case("/metrics", &["metrics"])]
    #[case("/metrics/resource", &["metrics"])]
    #[case("/pods", &["pods", "proxy"])]
    #[case("/pods/", &["pods", "proxy"])]
    #[case("/podsandmore", &["proxy"])]
    #[case("/portForward/ns/pod", &["proxy"])]
    #[case("/run/ns/pod/c", &["proxy"])]
    #[case("/runningpods", &["pods", "proxy"])]
    #[case("/runningpods/", &["pods", "proxy"])]
    #[case("/stats/", &["stats"])]
    #[case("/stats/summary", &["stats"])]
    #[case("/statsandmore", &["proxy"])]
    #[case("/%70ods", &["proxy"])]
    #[case("/", &["proxy"])]
    #[case("", &["proxy"])]
    fn a_path_is_looked_up_as_the_kubelet_does(#[case] path: &str, #[case] expected: &[&str]) {
        assert_eq!(subresources(path), expected);
    }

    #[test]
    fn verbs_are_those_of_the_api() {
        let verbs = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
            .map(|method| verb(&Method::from_bytes(method.as_bytes()).unwrap()));
        assert_eq!(verbs, ["get", "create", "update", "patch", "delete", "", ""]);
    }
}
