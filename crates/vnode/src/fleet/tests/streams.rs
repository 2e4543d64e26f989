//! What clients ask of a node while it changes hands.

use super::Bench;
use super::fake::Trick;
use axum::body::Body;
use evenkeel_kubelet_api::{Node, Settings, routes};
use evenkeel_testkit::until;
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_a_client_ends_before_its_node_is_given_back_and_none_is_begun_after() {
    let bench = Bench::new(&["virtual-1"]).await;
    bench.pod("web", "virtual-1", json!({})).await;
    bench.ready::<Pod>("web").await;
    let app = routes(bench.fleet.backend(), Settings::default()).layer(axum::Extension(Node {
        name: "virtual-1".into(),
        term: bench.handle("virtual-1").term.part(),
        streams: TaskTracker::new(),
    }));
    let run = || {
        let request = Request::post("/run/default/web/app?cmd=sleep");
        app.clone().oneshot(request.body(Body::empty()).unwrap())
    };
    bench.world.trick("exec", "default/web", &[Trick::Hang]);
    let running = tokio::spawn(run());
    until("the command runs", async || bench.world.under_way("exec") == 1).await;
    bench.fleet.remove("virtual-1", false);
    let answer = running.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX)
        .await
        .unwrap();
    assert_eq!(&body[..], b"node \"virtual-1\" is no longer served here");
    until("the node is given back", async || {
        bench.world.count("release", "virtual-1") == 1
    })
    .await;
    assert_eq!(
        bench.world.trespasses(),
        Vec::<String>::new(),
        "nothing was under way"
    );
    // The same node, served anew, is not to be had by the listener of before.
    bench.fleet.add("virtual-1");
    until("it is served again", async || {
        let served = bench.fleet.inner.common.directory.node("virtual-1");
        served.is_some_and(|node| node.is_listed())
    })
    .await;
    assert_eq!(run().await.unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(bench.world.count("exec", "default/web"), 1);
    bench.end().await;
}
