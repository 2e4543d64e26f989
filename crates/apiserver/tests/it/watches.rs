//! Watches.

use super::{config_map, server};
use evenkeel_apiserver::{ApiServer, Options};
use evenkeel_testkit::cluster::Objects as _;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::watcher;
use serde_json::json;

fn shown(event: &WatchEvent<ConfigMap>) -> String {
    let name = |map: &ConfigMap| map.metadata.name.clone().unwrap_or_default();
    match event {
        WatchEvent::Added(map) => format!("+{}", name(map)),
        WatchEvent::Modified(map) => format!("~{}", name(map)),
        WatchEvent::Deleted(map) => format!("-{}", name(map)),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

async fn label(api: &Api<ConfigMap>, name: &str, value: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"in": value}}}));
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .expect("a label");
}

#[tokio::test]
async fn an_object_enters_and_leaves_a_selection() {
    let api = Api::<ConfigMap>::default_namespaced(server().client());
    let created = api.add(&config_map("a")).await;
    let version = created.metadata.resource_version.expect("a version");
    let params = WatchParams::default().labels("in=yes");
    let events = api.watch(&params, &version).await.expect("a watch");
    label(&api, "a", "yes").await;
    label(&api, "a", "no").await;
    label(&api, "a", "yes").await;
    api.remove("a").await;
    let seen: Vec<String> = events
        .take(4)
        .map_ok(|event| shown(&event))
        .try_collect()
        .await
        .expect("events");
    assert_eq!(seen, ["+a", "-a", "+a", "-a"]);
}

#[tokio::test]
async fn a_past_that_is_forgotten_is_gone() {
    evenkeel_net::init_crypto();
    let options = Options {
        watch_history: 2,
        ..Options::default()
    };
    let api = Api::<ConfigMap>::default_namespaced(ApiServer::new(options).expect("a server").client());
    let mut versions = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let created = api.add(&config_map(name)).await;
        versions.extend(created.metadata.resource_version);
    }
    let mut seen = Vec::new();
    for version in &versions {
        let events = api
            .watch(&WatchParams::default(), version)
            .await
            .expect("a watch");
        let mut events = events.boxed();
        let first = events.try_next();
        // The watch from the newest version has nothing to say yet.
        if version != versions.last().expect("four versions") {
            seen.push(shown(&first.await.expect("an event").expect("an event")));
        }
    }
    assert_eq!(seen, ["error 410", "+c", "+d"]);
}

#[tokio::test]
async fn a_streamed_list_ends_with_a_mark() {
    let api = crate::config_maps(server().client()).await;
    api.add(&config_map("a")).await;
    let config = watcher::Config::default().streaming_lists();
    let mut events = watcher(api.clone(), config).boxed();
    let mut seen = Vec::new();
    while let Some(event) = events.try_next().await.expect("events") {
        match event {
            watcher::Event::Init => seen.push("init".to_owned()),
            watcher::Event::InitApply(map) => {
                seen.push(format!("has {}", map.metadata.name.unwrap_or_default()));
            }
            watcher::Event::InitDone => {
                seen.push("done".to_owned());
                api.add(&config_map("b")).await;
            }
            watcher::Event::Apply(map) => {
                seen.push(format!("new {}", map.metadata.name.unwrap_or_default()));
                break;
            }
            watcher::Event::Delete(_) => seen.push("deleted".to_owned()),
        }
    }
    assert_eq!(seen, ["init", "has a", "done", "new b"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_time_with_a_bookmark_before() {
    let api = crate::config_maps(server().client()).await;
    let params = WatchParams::default().timeout(200);
    let before = tokio::time::Instant::now();
    let seen: Vec<String> = api
        .watch(&params, "0")
        .await
        .expect("a watch")
        .map_ok(|event| shown(&event))
        .try_collect()
        .await
        .expect("events");
    // One each minute, and the last two seconds before the end.
    assert_eq!(seen, ["bookmark", "bookmark", "bookmark", "bookmark"]);
    assert_eq!(before.elapsed().as_secs(), 200);
}

#[tokio::test]
async fn every_watcher_sees_every_event() {
    const WATCHERS: usize = 200;
    let server = server();
    let api = crate::config_maps(server.client()).await;
    let mut streams = Vec::new();
    for _ in 0..WATCHERS {
        streams.push(
            api.watch(&WatchParams::default(), "0")
                .await
                .expect("a watch")
                .boxed(),
        );
    }
    for name in ["a", "b"] {
        api.add(&config_map(name)).await;
    }
    for stream in streams {
        let seen: Vec<String> = stream
            .take(2)
            .map_ok(|event| shown(&event))
            .try_collect()
            .await
            .expect("events");
        assert_eq!(seen, ["+a", "+b"]);
    }
}
