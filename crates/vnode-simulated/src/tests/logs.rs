use super::fixture::{pod, provider, start};
use crate::Simulated;
use evenkeel_vnode::provider::{ContainerId, LogOptions, PodRequest, Provider};
use futures::StreamExt;
use std::time::Duration;
use tokio::time::advance;

const SECOND: Duration = Duration::from_secs(1);

pub(crate) async fn read(
    provider: &Simulated,
    pod: &PodRequest,
    id: &ContainerId,
    options: LogOptions,
) -> String {
    let stream = provider.logs(&pod.id, id, &options).await.unwrap();
    let chunks: Vec<_> = stream.map(|chunk| chunk.unwrap()).collect().await;
    String::from_utf8(chunks.concat()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_log_has_its_options() {
    let (provider, _) = provider();
    let pod = pod("a", &[("log", "line {n}"), ("log-interval", "1s")]);
    let started = start(&provider, &pod, "web").await.unwrap();
    advance(SECOND * 3 + SECOND / 2).await;
    let options = LogOptions::default;
    let all = read(&provider, &pod, &started.id, options()).await;
    assert_eq!(all, "line 1\nline 2\nline 3\nline 4\n");
    let tail = LogOptions {
        tail: Some(1),
        timestamps: true,
        ..options()
    };
    let tail = read(&provider, &pod, &started.id, tail).await;
    assert_eq!(tail, "2027-01-15T08:00:03.000000000Z line 4\n");
    let since = LogOptions {
        since: Some(started.at + SECOND * 2),
        ..options()
    };
    assert_eq!(
        read(&provider, &pod, &started.id, since).await,
        "line 3\nline 4\n"
    );
    let limit = LogOptions {
        limit: Some(9),
        ..options()
    };
    assert_eq!(read(&provider, &pod, &started.id, limit).await, "line 1\nli");
}

#[tokio::test(start_paused = true)]
async fn who_follows_is_told_until_the_container_ends() {
    let (provider, _) = provider();
    let pod = pod("a", &[("log-interval", "1s"), ("exit-after", "3s")]);
    let started = start(&provider, &pod, "web").await.unwrap();
    let follow = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let log = read(&provider, &pod, &started.id, follow).await;
    assert_eq!(log, "line 1\nline 2\nline 3\nline 4\n");
}

#[tokio::test(start_paused = true)]
async fn who_follows_a_quiet_container_is_told_of_its_end() {
    let (provider, _) = provider();
    let pod = pod("a", &[]);
    let started = start(&provider, &pod, "web").await.unwrap();
    let follow = LogOptions {
        follow: true,
        tail: Some(0),
        ..LogOptions::default()
    };
    let reading = read(&provider, &pod, &started.id, follow);
    let stopping = async {
        tokio::time::sleep(SECOND).await;
        provider.stop(&pod.id, &started.id, SECOND).await.unwrap();
    };
    let (log, ()) = tokio::join!(reading, stopping);
    assert_eq!(log, "");
}

#[tokio::test(start_paused = true)]
async fn the_log_of_the_life_before_is_kept() {
    let (provider, _) = provider();
    let pod = pod("a", &[("crash-after", "1s"), ("log", "run {n}")]);
    let first = start(&provider, &pod, "web").await.unwrap();
    tokio::time::sleep(SECOND * 2).await;
    let second = start(&provider, &pod, "web").await.unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(
        read(&provider, &pod, &first.id, LogOptions::default()).await,
        "run 1\n"
    );
    tokio::time::sleep(SECOND * 2).await;
    start(&provider, &pod, "web").await.unwrap();
    assert!(
        provider
            .logs(&pod.id, &first.id, &LogOptions::default())
            .await
            .is_err()
    );
}
