//! Faults, each inside the process and over a socket.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails where something is not as it should be"
)]

use super::{Way, next, start, truth, watch, watch_from};
use crate::{code, config_map};
use evenkeel_apiserver::{Fault, RequestFilter};
use evenkeel_testkit::cluster::Objects as _;
use evenkeel_testkit::{ends, eventually};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use rstest::rstest;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);
/// Nobody waits for so long in real time.
const LONG: Duration = Duration::from_secs(3_600);

fn creates() -> RequestFilter {
    RequestFilter::any().verb("create").resource("configmaps")
}

#[rstest]
#[tokio::test]
async fn an_error_is_answered_in_place_of_the_server(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let fault = Fault::status(500, "InternalError").message("etcd is away");
    let fault = api.intercept(creates().name("a"), fault.times(2));
    for _ in 0..2 {
        let refused = maps.create(&PostParams::default(), &config_map("a")).await;
        let kube::Error::Api(status) = refused.expect_err("a fault") else {
            panic!("the server answers")
        };
        let told = (status.code, status.reason.as_str(), status.message.as_str());
        assert_eq!(told, (500, "InternalError", "etcd is away"));
    }
    assert!(
        truth(&api).get_opt("a").await.unwrap().is_none(),
        "nothing was done"
    );
    maps.add(&config_map("b")).await;
    assert_eq!(fault.hits(), 2);
    maps.add(&config_map("a")).await;
    assert_eq!(fault.hits(), 2, "its times are over");
}

#[rstest]
#[tokio::test]
async fn a_retry_after_is_a_header(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let client = way.client(&api).await;
    let fault = Fault::status(500, "InternalError").retry_after(7);
    let _fault = api.intercept(RequestFilter::any().path("/version"), fault);
    let request = http::Request::get("/version").body(kube::client::Body::empty());
    let answer = client.send(request.unwrap()).await.expect("an answer");
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (500, &"7".parse().unwrap())
    );
}

#[tokio::test]
async fn a_client_over_a_socket_tries_again_by_itself() {
    let api = start().await;
    let maps = Way::Socket.maps(&api).await;
    let busy = Fault::status(429, "TooManyRequests").retry_after(1).times(1);
    let fault = api.intercept(creates(), busy);
    maps.add(&config_map("a")).await;
    assert_eq!((fault.hits(), api.count(&creates())), (1, 2));
}

#[rstest]
#[tokio::test]
async fn a_conflict_reads_as_a_real_one(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let old = maps.add(&config_map("a")).await;
    maps.merge("a", serde_json::json!({"data": {"k": "new"}})).await;
    let real = maps
        .replace("a", &PostParams::default(), &old)
        .await
        .expect_err("it is old");
    let now = maps.get("a").await.unwrap();
    let updates = RequestFilter::any().verb("update").resource("configmaps");
    let fault = api.intercept(updates, Fault::conflict());
    let played = maps
        .replace("a", &PostParams::default(), &now)
        .await
        .expect_err("a fault");
    assert_eq!(format!("{played:?}"), format!("{real:?}"));
    drop(fault);
    maps.replace("a", &PostParams::default(), &now)
        .await
        .expect("the fault is over");
}

#[rstest]
#[case::delayed(Fault::delay_before(LONG))]
#[case::held(Fault::hold())]
#[tokio::test]
async fn a_request_that_waits_before_the_server_has_done_nothing(
    #[values(Way::Process, Way::Socket)] way: Way,
    #[case] fault: Fault,
) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let fault = api.intercept(creates(), fault);
    let waiting = tokio::spawn(async move { maps.add(&config_map("a")).await });
    ends("the request has come", fault.wait_for_hits(1)).await;
    assert!(truth(&api).get_opt("a").await.unwrap().is_none());
    assert_eq!(api.requests().last().unwrap().status, None);
    drop(fault);
    ends("it goes on", waiting).await.expect("it is created");
    assert_eq!(api.requests().last().unwrap().status, Some(201));
}

#[rstest]
#[tokio::test]
async fn an_answer_that_waits_comes_after_the_work(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let fault = api.intercept(creates(), Fault::delay_after(LONG));
    let waiting = tokio::spawn(async move { maps.add(&config_map("a")).await });
    let there = || async { truth(&api).get_opt("a").await.unwrap().map(|_| ()) };
    eventually("the work is done", SOON, there).await;
    assert!(!waiting.is_finished());
    drop(fault);
    ends("the answer comes", waiting).await.expect("it is created");
}

#[tokio::test(start_paused = true)]
async fn delays_pass_in_paused_time() {
    let api = start().await;
    let maps = Way::Process.maps(&api).await;
    let began = tokio::time::Instant::now();
    let before = api.intercept(creates(), Fault::delay_before(LONG));
    maps.add(&config_map("a")).await;
    assert_eq!(began.elapsed().as_secs(), LONG.as_secs());
    let abandoned = tokio::time::timeout(LONG / 2, maps.add(&config_map("b"))).await;
    assert!(abandoned.is_err());
    drop(before);
    let _after = api.intercept(creates(), Fault::delay_after(LONG));
    let abandoned = tokio::time::timeout(LONG / 2, maps.add(&config_map("c"))).await;
    assert!(abandoned.is_err());
    let there = truth(&api);
    assert!(there.get_opt("b").await.unwrap().is_none() && there.get_opt("c").await.unwrap().is_some());
}

#[rstest]
#[tokio::test]
async fn a_broken_connection_ends_watches_and_nothing_is_done(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let (mut events, version) = watch(&maps).await;
    let all = RequestFilter::any().resource("configmaps");
    let fault = api.intercept(all, Fault::disconnect());
    let cut = ends("the watch is cut", events.next()).await;
    // Over a socket, kube takes a broken watch for one that ended.
    assert!(!matches!(cut, Some(Ok(_))), "{cut:?}");
    assert!(events.next().await.is_none());
    assert_eq!(fault.hits(), 1, "the watch");
    let error = maps.create(&PostParams::default(), &config_map("a")).await;
    let error = error.expect_err("no connection");
    assert!(!matches!(error, kube::Error::Api(_)), "{error}");
    assert!(maps.watch(&Default::default(), &version).await.is_err());
    assert!(truth(&api).get_opt("a").await.unwrap().is_none());
    drop(fault);
    maps.add(&config_map("b")).await;
    assert_eq!(next(&mut watch_from(&maps, &version).await).await, "b");
}

#[rstest]
#[tokio::test]
async fn one_watch_is_cut_and_the_next_is_not(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let (mut events, version) = watch(&maps).await;
    let watches = RequestFilter::any().verb("watch");
    let fault = api.intercept(watches, Fault::disconnect().times(1));
    assert!(!matches!(ends("it is cut", events.next()).await, Some(Ok(_))));
    let mut events = watch_from(&maps, &version).await;
    maps.add(&config_map("a")).await;
    assert_eq!(next(&mut events).await, "a");
    assert_eq!(fault.hits(), 1);
}

#[rstest]
#[tokio::test]
async fn an_answer_is_lost_after_the_write(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let _fault = api.intercept(creates(), Fault::lose_answer().times(1));
    let error = maps.create(&PostParams::default(), &config_map("a")).await;
    assert!(!matches!(error.expect_err("no answer"), kube::Error::Api(_)));
    assert!(truth(&api).get_opt("a").await.unwrap().is_some());
    assert_eq!(api.requests().last().unwrap().status, None);
    let again = maps.create(&PostParams::default(), &config_map("a")).await;
    assert_eq!(code(again), 409, "who tries again finds its own object");
}

/// A stream of HTTP/2 is cut, and the connection and its other streams are not.
#[tokio::test]
async fn one_stream_of_many_is_cut() {
    let api = start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), api.kubeconfig().await.unwrap()).unwrap();
    let args = evenkeel_net::client::ClientArgs {
        kubeconfig: Some(file.path().to_owned()),
        ..Default::default()
    };
    let client = args.access().await.unwrap().client("test").unwrap();
    let (everywhere, maps) = (
        Api::<ConfigMap>::all(client.clone()),
        Api::default_namespaced(client),
    );
    let (mut cut, version) = watch(&everywhere).await;
    let mut other = watch_from(&maps, &version).await;
    let watches = RequestFilter::any().verb("watch").namespace("");
    let _fault = api.intercept(watches, Fault::disconnect());
    assert!(!matches!(ends("it is cut", cut.next()).await, Some(Ok(_))));
    let _fault = api.intercept(creates(), Fault::lose_answer().times(1));
    let lost = maps.create(&PostParams::default(), &config_map("a")).await;
    assert!(!matches!(lost.expect_err("no answer"), kube::Error::Api(_)));
    assert_eq!(next(&mut other).await, "a");
}

#[rstest]
#[tokio::test]
async fn a_held_watch_shows_everything_afterwards(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let (mut events, _) = watch(&maps).await;
    let fault = api.intercept(RequestFilter::any().verb("watch"), Fault::hold());
    // In the process a stream does what it does while it is polled.
    assert!(events.next().now_or_never().is_none());
    ends("the watch is held", fault.wait_for_hits(1)).await;
    for name in ["a", "b"] {
        maps.add(&config_map(name)).await;
    }
    assert!(events.next().now_or_never().is_none());
    drop(fault);
    assert_eq!([next(&mut events).await, next(&mut events).await], ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn events_are_delayed_one_by_one() {
    let api = start().await;
    let maps = Way::Process.maps(&api).await;
    let watches = RequestFilter::any().verb("watch");
    let fault = api.intercept(watches, Fault::delay_after(Duration::from_secs(40)));
    let (mut events, _) = watch(&maps).await;
    let began = tokio::time::Instant::now();
    let written = tokio::spawn(async move {
        for name in ["a", "b", "c", "d"] {
            maps.add(&config_map(name)).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        maps
    });
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push((next(&mut events).await, began.elapsed().as_secs()));
    }
    assert_eq!(
        seen,
        [("a".to_owned(), 40), ("b".to_owned(), 50), ("c".to_owned(), 60)]
    );
    drop(fault);
    assert_eq!(
        (next(&mut events).await.as_str(), began.elapsed().as_secs()),
        ("d", 60)
    );
    written.await.unwrap().add(&config_map("e")).await;
    assert_eq!(
        (next(&mut events).await.as_str(), began.elapsed().as_secs()),
        ("e", 60)
    );
}

#[rstest]
#[tokio::test]
async fn a_watch_hides_the_changes_of_an_object(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let (mut events, _) = watch(&maps).await;
    let of_a = RequestFilter::any()
        .resource("configmaps")
        .namespace("default")
        .name("a");
    let fault = api.intercept(of_a, Fault::hide_events());
    for name in ["a", "b"] {
        maps.add(&config_map(name)).await;
    }
    assert_eq!(next(&mut events).await, "b");
    assert_eq!(fault.hits(), 1);
    drop(fault);
    maps.merge("a", serde_json::json!({"data": {"k": "new"}})).await;
    assert_eq!(next(&mut events).await, "a");
}

#[tokio::test]
async fn the_first_fault_that_fits_acts_alone() {
    let api = start().await;
    let maps = Way::Process.maps(&api).await;
    let first = api.intercept(creates(), Fault::status(503, "ServiceUnavailable").times(1));
    let second = api.intercept(creates(), Fault::status(500, "InternalError"));
    let mut codes = Vec::new();
    for _ in 0..2 {
        codes.push(code(maps.create(&PostParams::default(), &config_map("a")).await));
    }
    assert_eq!(
        (codes.as_slice(), first.hits(), second.hits()),
        (&[503, 500][..], 1, 1)
    );
}

#[tokio::test]
async fn a_fault_concerns_the_users_that_it_names() {
    let api = start().await;
    let of = |client| Api::<ConfigMap>::default_namespaced(client);
    let one = of(api.client_as("controller", &["system:masters", "replica-1"]));
    let two = of(api.client_as("controller", &["system:masters", "replica-2"]));
    let cut = RequestFilter::any().user("controller").user_group("replica-1");
    let _fault = api.intercept(cut, Fault::disconnect());
    assert!(one.list(&Default::default()).await.is_err());
    assert!(two.list(&Default::default()).await.is_ok());
    let denied = of(api.client_as("nobody", &[])).list(&Default::default()).await;
    assert_eq!(code(denied), 403, "authorization is Kubernetes'");
}

#[rstest]
#[tokio::test]
async fn an_outage_refuses_ends_watches_and_keeps_the_history(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let (mut events, version) = watch(&maps).await;
    let (outage, another) = (api.outage(), api.outage());
    let cut = async { while let Some(Ok(_)) = events.next().await {} };
    ends("the watch ends", cut).await;
    let error = maps.list(&Default::default()).await.expect_err("nobody is there");
    assert!(!matches!(error, kube::Error::Api(_)), "{error}");
    truth(&api).add(&config_map("a")).await;
    outage.end().await;
    assert!(
        maps.list(&Default::default()).await.is_err(),
        "the other one goes on"
    );
    another.end().await;
    assert_eq!(next(&mut watch_from(&maps, &version).await).await, "a");
}

#[rstest]
#[tokio::test]
async fn a_past_that_is_forgotten_is_gone(#[values(Way::Process, Way::Socket)] way: Way) {
    let api = start().await;
    let maps = way.maps(&api).await;
    let (_, version) = watch(&maps).await;
    maps.add(&config_map("a")).await;
    api.expire_history();
    let mut events = watch_from(&maps, &version).await;
    let Some(Ok(kube::api::WatchEvent::Error(status))) = events.next().await else {
        panic!("the past was told")
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}

#[tokio::test]
async fn a_held_request_ends_with_an_outage() {
    let api = start().await;
    let maps = Way::Process.maps(&api).await;
    let (mut events, _) = watch(&maps).await;
    let fault = api.intercept(RequestFilter::any(), Fault::hold());
    let list = tokio::spawn({
        let maps = maps.clone();
        async move { maps.list(&Default::default()).await }
    });
    let watching = tokio::spawn(async move { events.next().await });
    ends("both are held", fault.wait_for_hits(2)).await;
    let _outage = api.outage();
    assert!(ends("the request fails", list).await.unwrap().is_err());
    assert!(ends("the watch ends", watching).await.unwrap().is_none());
}
