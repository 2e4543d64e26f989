//! What is recorded of requests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails where something is not as it should be"
)]

use super::{Way, start};
use crate::config_map;
use evenkeel_apiserver::{Options, RecordedRequest, RequestFilter, StaticToken, TestServer};
use evenkeel_kube_rules::protobuf;
use evenkeel_testkit::cluster::Objects as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::client::Body;
use rstest::rstest;
use serde_json::json;

#[rstest]
#[tokio::test]
async fn a_request_is_recorded_with_its_answer(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    maps.add(&config_map("a")).await;
    maps.list(&ListParams::default().labels("x=y")).await.unwrap();
    maps.get("b").await.unwrap_err();
    let [create, list, get] = &api.requests()[..] else {
        panic!("three requests: {:?}", api.requests())
    };
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(
        (
            create.method.as_str(),
            create.path.as_str(),
            create.query.as_str()
        ),
        ("POST", path, "")
    );
    let object = (
        create.verb.as_str(),
        create.api_group.as_str(),
        create.api_version.as_str(),
        create.resource.as_str(),
        create.namespace.as_str(),
        create.name.as_str(),
    );
    assert_eq!(object, ("create", "", "v1", "configmaps", "default", "a"));
    assert_eq!(
        (create.user.as_str(), create.status),
        ("kubernetes-admin", Some(201))
    );
    assert!(create.user_groups.contains(&"system:masters".to_owned()));
    assert_eq!(create.headers["content-type"], "application/json");
    assert_eq!(create.json().unwrap()["data"], json!({"k": "v"}));
    assert_eq!((list.verb.as_str(), list.status), ("list", Some(200)));
    assert!(list.query.contains("labelSelector=x%3Dy"), "{}", list.query);
    assert_eq!(
        (get.verb.as_str(), get.name.as_str(), get.status),
        ("get", "b", Some(404))
    );

    assert_eq!(api.count(&RequestFilter::any()), 3);
    assert_eq!(api.count(&RequestFilter::any().verbs(["get", "list"])), 2);
    api.clear_requests();
    assert_eq!(api.count(&RequestFilter::any()), 0);
}

async fn post(api: &TestServer, media: &str, body: Vec<u8>) -> RecordedRequest {
    let request = http::Request::post("/api/v1/namespaces/default/configmaps")
        .header("content-type", media)
        .body(Body::from(body))
        .unwrap();
    let answer = api.client().send(request).await.unwrap();
    let recorded = api.requests().pop().unwrap();
    assert_eq!(recorded.status, Some(answer.status().as_u16()));
    recorded
}

#[tokio::test]
async fn a_body_is_read_in_every_encoding() {
    let api = start().await;
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\n".to_vec();
    let bodies = [
        ("application/json", map("json").to_string().into_bytes(), "json"),
        ("application/yaml", yaml, "yaml"),
        (
            protobuf::MEDIA,
            protobuf::encode(&map("protobuf")).unwrap(),
            "protobuf",
        ),
    ];
    for (media, body, name) in bodies {
        let recorded = post(&api, media, body.clone()).await;
        assert_eq!((recorded.status, recorded.name.as_str()), (Some(201), name));
        assert_eq!(recorded.json().unwrap()["metadata"]["name"], name);
        assert_eq!(recorded.body, body);
    }
    let broken = post(&api, "application/json", b"{".to_vec()).await;
    assert_eq!(
        (broken.status, broken.json(), broken.name.as_str()),
        (Some(400), None, "")
    );
    let large = post(&api, "application/json", vec![b' '; 4 << 20]).await;
    assert_eq!((large.status, large.body.len()), (Some(413), 0));
}

#[tokio::test]
async fn who_is_refused_is_recorded_and_no_credential_is_shown() {
    evenkeel_net::init_crypto();
    let options = Options {
        tokens: vec![StaticToken {
            token: "s3cret".to_owned(),
            user: "bob".to_owned(),
            groups: Vec::new(),
        }],
        ..Options::default()
    };
    let api = TestServer::builder().options(options).start().await.unwrap();
    let kubeconfig = api.kubeconfig().await.unwrap();
    for (token, user, status) in [("s3cret", "bob", 403), ("wr0ng", "", 401)] {
        let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&kubeconfig).unwrap();
        let auth = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
        *auth = kube::config::AuthInfo {
            token: Some(token.into()),
            ..Default::default()
        };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
        let client = kube::Client::try_from(config.unwrap()).unwrap();
        let refused = Api::<ConfigMap>::default_namespaced(client).get("a").await;
        assert_eq!(crate::code(refused), status);
        let recorded = api.requests().pop().unwrap();
        assert_eq!((recorded.user.as_str(), recorded.status), (user, Some(status)));
        let shown = format!("{recorded:?}");
        assert!(
            shown.contains("authorization") && !shown.contains(token),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn an_observer_leaves_no_trace() {
    let api = start().await;
    let everything = evenkeel_apiserver::Fault::disconnect();
    let fault = api.intercept(RequestFilter::any(), everything);
    let _outage = api.outage();
    let maps = Api::<ConfigMap>::default_namespaced(api.observer());
    maps.add(&config_map("a")).await;
    assert_eq!((fault.hits(), api.requests().len()), (0, 0));
}
