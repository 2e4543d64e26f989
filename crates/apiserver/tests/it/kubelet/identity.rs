//! What a kubelet does as itself: tokens for its pods, reviews of those who call it.

use evenkeel_testkit::api_server;
use serde_json::{Value, json};

const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Result<Value, u16> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .body(body.to_string().into_bytes())
        .expect("as the test made it");
    match client.request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(other) => unreachable!("in the process every answer is the server's: {other}"),
    }
}

fn token_for(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "audiences": ["https://kubernetes.default.svc", "vault"],
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
    }})
}

#[tokio::test]
async fn a_token_for_a_pod_says_where_it_runs_and_ends_with_it() {
    let server = api_server();
    let (admin, kubelet) = (
        server.client(),
        server.client_as("system:node:n1", &["system:nodes"]),
    );
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    send(&kubelet, "POST", "/api/v1/nodes", &node).await.unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    let pod = send(&admin, "POST", pods, &pod).await.unwrap();
    let token = send(&kubelet, "POST", ACCOUNT, &token_for(&pod)).await.unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token["status"]["token"], "audiences": ["vault", "another"]}});
    let status = send(&kubelet, "POST", REVIEWS, &review).await.unwrap()["status"].clone();
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    let user = &status["user"];
    assert_eq!(user["username"], "system:serviceaccount:default:default");
    assert_eq!(
        user["extra"]["authentication.kubernetes.io/node-name"],
        json!(["n1"])
    );
    assert_eq!(
        user["extra"]["authentication.kubernetes.io/pod-name"],
        json!(["p"])
    );

    let mut foreign = review.clone();
    foreign["spec"]["audiences"] = json!(["another"]);
    let status = send(&kubelet, "POST", REVIEWS, &foreign).await.unwrap()["status"].clone();
    assert_ne!(status["authenticated"], true, "{status}");

    let mut stale = token_for(&pod);
    stale["spec"]["boundObjectRef"]["uid"] = json!("another");
    assert_eq!(send(&kubelet, "POST", ACCOUNT, &stale).await, Err(409));

    let now = json!({"gracePeriodSeconds": 0});
    send(&kubelet, "DELETE", &format!("{pods}/p"), &now)
        .await
        .unwrap();
    let status = send(&kubelet, "POST", REVIEWS, &review).await.unwrap()["status"].clone();
    assert_ne!(status["authenticated"], true, "{status}");
    assert_eq!(
        status["error"],
        "[invalid bearer token, service account token has been invalidated]"
    );
    assert_eq!(send(&kubelet, "POST", ACCOUNT, &token_for(&pod)).await, Err(404));
}

#[tokio::test]
async fn a_kubelet_finds_the_authority_of_its_clients_and_asks_what_they_may() {
    let server = api_server();
    let kubelet = server.client_as("system:node:n1", &["system:nodes"]);
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let map = send(&kubelet, "GET", path, &Value::Null).await.unwrap();
    assert_eq!(map["data"]["client-ca-file"], server.ca().certificate_pem());
    let review = |user: &str, groups: &[&str]| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
            "user": user, "groups": groups,
            "resourceAttributes": {"verb": "create", "resource": "nodes", "subresource": "proxy", "name": "n1"},
        }})
    };
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (user, groups, allowed) in [
        ("kube-apiserver-kubelet-client", &["system:masters"][..], true),
        ("bob", &[][..], false),
    ] {
        let answer = send(&kubelet, "POST", reviews, &review(user, groups))
            .await
            .unwrap();
        assert_eq!(answer["status"]["allowed"], allowed, "{user}");
    }
}
