//! Through `kube::Client`, as controllers will use it.

use super::wire::{Seen, next, server};
use super::*;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::{Api, Client, Config};
use serde_json::json;

async fn client(gate: &Gate) -> (Client, mpsc::UnboundedReceiver<Seen>) {
    evenkeel_net::init_crypto();
    let (address, seen) = server().await;
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let client = ClientBuilder::try_from(config)
        .unwrap()
        .with_layer(&gate.layer())
        .build();
    (client, seen)
}

#[tokio::test]
async fn no_verb_that_writes_reaches_the_server() {
    let gate = Gate::with_clock(TestClock::at(0));
    let (client, mut seen) = client(&gate).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "ns");
    let map = ConfigMap {
        metadata: kube::api::ObjectMeta {
            name: Some("a".into()),
            ..Default::default()
        },
        ..ConfigMap::default()
    };
    let raw = || {
        Request::post("/api/v1/namespaces/ns/pods/a/eviction")
            .body(b"{}".to_vec())
            .unwrap()
    };
    let merge = Patch::Merge(json!({}));
    let results = [
        (
            "create",
            maps.create(&PostParams::default(), &map).await.map(drop),
        ),
        (
            "update",
            maps.replace("a", &PostParams::default(), &map).await.map(drop),
        ),
        (
            "patch",
            maps.patch("a", &PatchParams::default(), &merge).await.map(drop),
        ),
        (
            "delete",
            maps.delete("a", &DeleteParams::default()).await.map(drop),
        ),
        (
            "deletecollection",
            maps.delete_collection(&DeleteParams::default(), &ListParams::default())
                .await
                .map(drop),
        ),
        ("raw", client.request_text(raw()).await.map(drop)),
        ("raw stream", client.request_stream(raw()).await.map(drop)),
    ];
    let count = results.len() as u64;
    for (verb, result) in results {
        let error = result.unwrap_err();
        assert!(is_gate_closed(&error), "{verb}: {error}");
    }
    assert_eq!(gate.rejections(), count, "one attempt each");
    client
        .request_text(Request::get("/read").body(Vec::new()).unwrap())
        .await
        .unwrap();
    assert_eq!(next(&mut seen).await, Seen::Request("GET /read".into()));

    gate.open(term(1), Duration::MAX);
    client.request_text(raw()).await.unwrap();
    assert_eq!(
        next(&mut seen).await,
        Seen::Request("POST /api/v1/namespaces/ns/pods/a/eviction".into())
    );
    assert_eq!(gate.in_flight(), 0);
}

#[tokio::test]
async fn a_write_cut_half_way_tells_its_reason_through_kubes_errors() {
    let gate = open_gate();
    let (client, mut seen) = client(&gate).await;
    for path in ["/never", "/half"] {
        gate.open(term(1), Duration::MAX);
        let post = Request::post(path).body(Vec::new()).unwrap();
        let call = client.clone();
        let answer = tokio::spawn(async move { call.request_text(post).await });
        assert_eq!(next(&mut seen).await, Seen::Request(format!("POST {path}")));
        gate.close();
        assert_eq!(next(&mut seen).await, Seen::GivenUp);
        let error = ended(answer).await.unwrap_err();
        assert!(is_gate_closed(&error), "{path}: {error:?}");
    }
    // As lines, where the error travels inside an I/O error.
    gate.open(term(1), Duration::MAX);
    let post = Request::post("/half").body(Vec::new()).unwrap();
    let mut lines = Box::pin(client.request_stream(post).await.unwrap());
    gate.close();
    let mut text = String::new();
    let error = futures::AsyncReadExt::read_to_string(&mut lines, &mut text)
        .await
        .unwrap_err();
    assert!(is_gate_closed(&kube::Error::ReadEvents(error)));
}
