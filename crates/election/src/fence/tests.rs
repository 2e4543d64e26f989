use super::*;
use evenkeel_testkit::api_server;
use evenkeel_testkit::cluster::Objects as _;
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{DeleteParams, PatchParams, PostParams};
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::sync::oneshot;

fn token(uid: &str, transitions: i32) -> FencingToken {
    FencingToken {
        lease_uid: uid.to_owned(),
        transitions,
    }
}

/// The fence of the leader of a term.
fn fence(token: FencingToken) -> Fence {
    let gate = Gate::new();
    gate.open(token, Duration::MAX);
    Fence::new(gate)
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

/// An object nobody has stamped.
async fn unstamped(client: &Client) {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "a", "labels": {"team": "blue"}}, "data": {"by": "nobody"}
    }))
    .unwrap();
    maps(client).add(&map).await;
}

/// What the object says, and its stamp as text.
async fn state(client: &Client) -> (String, Option<String>) {
    let map = maps(client).get("a").await.unwrap();
    let stamp = map.metadata.annotations.unwrap_or_default().remove(FENCING_TOKEN);
    (map.data.unwrap()["by"].clone(), stamp)
}

fn by(whom: &str) -> Value {
    json!({"data": {"by": whom}})
}

async fn patch(fence: &Fence, client: &Client, whom: &str) -> Result<ConfigMap, FenceError> {
    fence
        .patch(&maps(client), "a", &PatchParams::default(), &by(whom))
        .await
}

/// A write that was sent and has not arrived.
struct Late {
    go_on: oneshot::Sender<()>,
}

/// A client whose writes lie in the network until the test lets them arrive, and the codes that they were
/// answered with.
fn delayed(client: &Client) -> (Client, mpsc::UnboundedReceiver<Late>, Arc<Mutex<Vec<u16>>>) {
    let (sent, late) = mpsc::unbounded_channel();
    let codes = Arc::new(Mutex::new(Vec::new()));
    let (inner, seen) = (client.clone(), Arc::clone(&codes));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, sent, seen) = (inner.clone(), sent.clone(), Arc::clone(&seen));
        async move {
            let is_write = request.method() != http::Method::GET;
            if is_write {
                let (go_on, arrives) = oneshot::channel();
                // A test that is over lets everything pass.
                if sent.send(Late { go_on }).is_ok() {
                    let _let_go = arrives.await.is_err();
                }
            }
            let response = inner.send(request).await?;
            if is_write {
                seen.lock().unwrap().push(response.status().as_u16());
            }
            Ok::<_, kube::Error>(response)
        }
    });
    (Client::new(service, "default"), late, codes)
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Patch,
    Replace,
    Delete,
    Claim,
}

async fn act(verb: Verb, fence: Fence, client: Client) -> Result<(), FenceError> {
    // A second write that should not have been sent would lie in the network for ever.
    let result = tokio::time::timeout(Duration::from_secs(60), attempt(verb, fence, client)).await;
    result.expect("it ends")
}

async fn attempt(verb: Verb, fence: Fence, client: Client) -> Result<(), FenceError> {
    let maps = maps(&client);
    match verb {
        Verb::Patch => patch(&fence, &client, "old").await.map(drop),
        Verb::Replace => {
            let change = |map: &mut ConfigMap| {
                map.data.get_or_insert_default().insert("by".into(), "old".into());
            };
            fence
                .replace(&maps, "a", &PostParams::default(), change)
                .await
                .map(drop)
        }
        Verb::Delete => fence.delete(&maps, "a", &DeleteParams::default()).await,
        Verb::Claim => fence.claim(&maps, "a").await.map(drop),
    }
}

#[rstest]
#[tokio::test]
async fn what_an_old_leader_sends_late_is_refused_by_the_server_and_then_by_the_stamp(
    #[values(Verb::Patch, Verb::Replace, Verb::Delete, Verb::Claim)] verb: Verb,
) {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    let (slow, mut late, codes) = delayed(&client);
    let old = tokio::spawn(act(verb, fence(token("lease", 1)), slow));
    let write = late.recv().await.unwrap();
    // Stopped here, with the write under way. Meanwhile:
    let new = fence(token("lease", 2));
    new.claim(&maps(&client), "a").await.unwrap();
    write.go_on.send(()).unwrap();
    let error = old.await.unwrap().unwrap_err();
    assert!(error.is_overtaken());
    assert_eq!(
        error.to_string(),
        "api/v1/namespaces/default/configmaps/a belongs to a later leader: its term is lease/2, ours is lease/1"
    );
    assert_eq!(
        *codes.lock().unwrap(),
        [409],
        "refused by the server, and not sent again"
    );
    assert_eq!(state(&client).await, ("nobody".into(), Some("lease/2".into())));
    patch(&new, &client, "new").await.unwrap();
    assert_eq!(state(&client).await, ("new".into(), Some("lease/2".into())));
}

#[rstest]
#[tokio::test]
async fn without_a_late_write_each_verb_does_what_it_says(
    #[values(Verb::Patch, Verb::Replace, Verb::Delete, Verb::Claim)] verb: Verb,
) {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    let me = fence(token("lease", 1));
    act(verb, me.clone(), client.clone()).await.unwrap();
    let expected = match verb {
        Verb::Delete => {
            assert!(maps(&client).get_opt("a").await.unwrap().is_none());
            return;
        }
        Verb::Claim => "nobody",
        Verb::Patch | Verb::Replace => "old",
    };
    assert_eq!(state(&client).await, (expected.into(), Some("lease/1".into())));
    let map = maps(&client).get("a").await.unwrap();
    assert_eq!(map.metadata.labels.clone().unwrap()["team"], "blue");
    assert_eq!(stamp_of(&map), Ok(Some(token("lease", 1))));
    // Of the same term, a claim writes nothing more; the next term takes it over.
    let again = me.claim(&maps(&client), "a").await.unwrap();
    assert_eq!(again.metadata.resource_version, map.metadata.resource_version);
    let next = fence(token("lease", 2)).claim(&maps(&client), "a").await.unwrap();
    assert_eq!(stamp_of(&next), Ok(Some(token("lease", 2))));
}

#[tokio::test]
async fn a_later_stamp_is_refused_before_anything_is_sent() {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    fence(token("lease", 7)).claim(&maps(&client), "a").await.unwrap();
    let (slow, mut late, _) = delayed(&client);
    for verb in [Verb::Patch, Verb::Replace, Verb::Delete, Verb::Claim] {
        let error = act(verb, fence(token("lease", 6)), slow.clone())
            .await
            .unwrap_err();
        assert!(matches!(error, FenceError::Stale { .. }), "{verb:?}: {error}");
    }
    let error = fence(token("lease", 6))
        .read(&maps(&slow), "a")
        .await
        .unwrap_err();
    assert!(error.is_overtaken());
    assert!(late.try_recv().is_err());
}

#[tokio::test]
async fn writes_of_others_are_kept_and_do_not_stop_ours() {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    let (slow, mut late, codes) = delayed(&client);
    let ours = tokio::spawn(act(Verb::Replace, fence(token("lease", 1)), slow));
    let first = late.recv().await.unwrap();
    let label = json!({"metadata": {"labels": {"team": "red"}}});
    maps(&client).merge("a", label).await;
    first.go_on.send(()).unwrap();
    late.recv().await.unwrap().go_on.send(()).unwrap();
    ours.await.unwrap().unwrap();
    assert_eq!(*codes.lock().unwrap(), [409, 200]);
    assert_eq!(state(&client).await, ("old".into(), Some("lease/1".into())));
    let labels = maps(&client).get("a").await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels["team"], "red");
}

#[tokio::test]
async fn it_gives_up_when_others_are_always_first() {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    let (slow, mut late, codes) = delayed(&client);
    let ours = tokio::spawn(act(Verb::Patch, fence(token("lease", 1)), slow));
    let mut count = 0;
    while let Some(write) = late.recv().await {
        count += 1;
        let label = json!({"metadata": {"labels": {"count": count.to_string()}}});
        maps(&client).merge("a", label).await;
        write.go_on.send(()).unwrap();
        if count == 5 {
            break;
        }
    }
    let error = ours.await.unwrap().unwrap_err();
    assert!(
        matches!(error, FenceError::Contended { attempts: 5, .. }),
        "{error}"
    );
    assert!(!error.is_overtaken());
    assert_eq!(*codes.lock().unwrap(), [409; 5]);
}

#[tokio::test]
async fn an_object_of_the_same_name_is_another_object() {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    let (slow, mut late, _) = delayed(&client);
    let ours = tokio::spawn(act(Verb::Delete, fence(token("lease", 1)), slow));
    let write = late.recv().await.unwrap();
    maps(&client).remove("a").await;
    unstamped(&client).await;
    write.go_on.send(()).unwrap();
    let error = ours.await.unwrap().unwrap_err();
    assert!(matches!(error, FenceError::Replaced { .. }), "{error}");
    assert_eq!(state(&client).await.0, "nobody");
}

/// A Lease in some term, and its token.
async fn lease(client: &Client, transitions: i32) -> FencingToken {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "leader"}, "spec": {"holderIdentity": "me", "leaseTransitions": transitions}
    }))
    .unwrap();
    let leases = Api::<Lease>::namespaced(client.clone(), "default");
    let _there_was_none = leases.delete("leader", &DeleteParams::default()).await.is_err();
    token_of(&leases.add(&lease).await).unwrap()
}

#[tokio::test]
async fn of_two_leases_the_one_that_exists_counts() {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    let leases = Api::<Lease>::namespaced(client.clone(), "default");
    let with_lease = |token: &FencingToken| fence(token.clone()).with_lease(leases.clone(), "leader");

    let first = lease(&client, 5).await;
    with_lease(&first).claim(&maps(&client), "a").await.unwrap();
    // Somebody deletes the Lease, and it is made again: the tokens have no order any more.
    let second = lease(&client, 0).await;
    assert_eq!(first.compare(&second), None);
    let error = fence(second.clone())
        .claim(&maps(&client), "a")
        .await
        .unwrap_err();
    assert!(
        matches!(error, FenceError::ForeignLease { .. }),
        "does not know where to ask: {error}"
    );
    with_lease(&second).claim(&maps(&client), "a").await.unwrap();
    assert_eq!(state(&client).await.1, Some(second.to_string()));

    let error = patch(&with_lease(&first), &client, "first").await.unwrap_err();
    assert!(matches!(error, FenceError::ForeignLease { .. }), "{error}");
    assert!(error.is_overtaken());
    // Of the Lease that exists, but of a term that is over; and of one that has never been.
    let third = lease(&client, 3).await;
    for (transitions, stale) in [(2, true), (4, false)] {
        let mut other = third.clone();
        other.transitions = transitions;
        let error = patch(&with_lease(&other), &client, "other").await.unwrap_err();
        assert_eq!(matches!(error, FenceError::Stale { .. }), stale, "{error}");
        assert!(error.is_overtaken());
    }
    leases.remove("leader").await;
    let error = patch(&with_lease(&third), &client, "third").await.unwrap_err();
    assert!(matches!(error, FenceError::ForeignLease { .. }), "{error}");
    assert_eq!(state(&client).await, ("nobody".into(), Some(second.to_string())));
}

#[tokio::test]
async fn when_nobody_can_say_which_lease_is_current_nothing_is_written() {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    fence(token("lost", 1)).claim(&maps(&client), "a").await.unwrap();
    let broken = fence(token("lease", 1)).with_lookup(|| {
        Box::pin(async { Err(kube::Error::Service(std::io::Error::other("no route").into())) })
    });
    let error = patch(&broken, &client, "me").await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot read the Lease to write api/v1/"),
        "{error}"
    );
    assert!(!error.is_overtaken());
    assert_eq!(state(&client).await, ("nobody".into(), Some("lost/1".into())));
}

#[tokio::test]
async fn a_stamp_that_cannot_be_read_is_not_written_over() {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    let stamp = json!({"metadata": {"annotations": {FENCING_TOKEN: "me"}}});
    maps(&client).merge("a", stamp).await;
    let error = patch(&fence(token("lease", 1)), &client, "me").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "annotation evenkeel.io/fencing-token of api/v1/namespaces/default/configmaps/a cannot be read; correct or remove it"
    );
    assert_eq!(state(&client).await, ("nobody".into(), Some("me".into())));
}

#[tokio::test]
async fn what_is_created_says_who_made_it() {
    let server = api_server();
    let client = server.client();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("a".into());
    map.data = Some([("by".to_owned(), "me".to_owned())].into());
    let me = fence(token("lease", 3));
    me.stamp(&mut map.metadata).unwrap();
    maps(&client).add(&map).await;
    assert_eq!(state(&client).await, ("me".into(), Some("lease/3".into())));
    let error = patch(&fence(token("lease", 2)), &client, "old")
        .await
        .unwrap_err();
    assert!(matches!(error, FenceError::Stale { .. }), "{error}");
    patch(&me, &client, "still me").await.unwrap();
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing() {
    let server = api_server();
    let client = server.client();
    unstamped(&client).await;
    let gate = Gate::new();
    let fence = Fence::new(gate.clone());
    for verb in [Verb::Patch, Verb::Replace, Verb::Delete, Verb::Claim] {
        let error = act(verb, fence.clone(), client.clone()).await.unwrap_err();
        assert!(
            matches!(error, FenceError::Closed(GateClosed)),
            "{verb:?}: {error}"
        );
    }
    assert!(fence.stamp(&mut ObjectMeta::default()).is_err());
    assert_eq!(gate.rejections(), 5);
    assert_eq!(state(&client).await, ("nobody".into(), None));

    // Behind the gate itself, a write that closing cuts is told as that.
    gate.open(token("lease", 1), Duration::MAX);
    let (slow, mut late, codes) = delayed(&client);
    let gated = Client::new(
        tower::Layer::layer(
            &gate.layer(),
            tower::service_fn(move |request| {
                let slow = slow.clone();
                async move { slow.send(request).await }
            }),
        ),
        "default",
    );
    let write = tokio::spawn(act(Verb::Patch, fence, gated));
    let sent = late.recv().await.unwrap();
    gate.close();
    let error = write.await.unwrap().unwrap_err();
    assert!(matches!(error, FenceError::Closed(GateClosed)), "{error}");
    assert!(sent.go_on.is_closed() && codes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_there_cannot_be_written() {
    let server = api_server();
    let client = server.client();
    let error = patch(&fence(token("lease", 1)), &client, "me").await.unwrap_err();
    let FenceError::Api {
        verb: "read",
        source: kube::Error::Api(status),
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(status.is_not_found());
}

#[rstest]
#[case(json!([]))]
#[case(json!("text"))]
#[case(json!({"metadata": null}))]
#[case(json!({"metadata": {"annotations": null}}))]
#[case(json!({"metadata": {"annotations": "all"}}))]
#[tokio::test]
async fn a_patch_that_has_no_room_for_the_stamp_is_refused(#[case] patch: Value) {
    let server = api_server();
    let client = server.client();
    let fence = fence(token("lease", 1));
    let result = fence
        .patch(&maps(&client), "a", &PatchParams::default(), &patch)
        .await;
    let error = result.unwrap_err();
    assert!(matches!(error, FenceError::Patch { .. }), "{error}");
}
