use super::fixture::{pod, provider, start};
use evenkeel_vnode::provider::{Doing, PodRequest, PodState, Provider, Started};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{advance, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// The pod as the API server has it once the container `web` was reported.
fn recorded(pod: &PodRequest, web: Value) -> PodRequest {
    let mut object = serde_json::to_value(pod.pod.as_ref()).unwrap();
    object["status"] = json!({
        "podIP": "10.64.7.99",
        "podIPs": [{"ip": "10.64.7.99"}, {"ip": "fd00::99"}],
        "containerStatuses": [web],
    });
    PodRequest {
        id: pod.id.clone(),
        pod: Arc::new(serde_json::from_value(object).unwrap()),
    }
}

fn running(started: &Started) -> Value {
    json!({
        "name": "web", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": started.id.0, "state": {"running": {"startedAt": started.at.to_string()}},
    })
}

async fn state(provider: &crate::Simulated, pod: &PodRequest) -> PodState {
    provider.status(pod).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_never_here_is_not_known() {
    let (provider, _) = provider();
    assert_eq!(provider.status(&pod("a", &[])).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_container_goes_on_where_it_was_and_the_rest_of_its_script_counts_from_its_start() {
    let pod = pod("a", &[("crash-after", "60s")]);
    let (first, _) = provider();
    let started = start(&first, &pod, "web").await.unwrap();
    let (second, framework) = provider();
    advance(SECOND * 50).await;
    let state = state(&second, &recorded(&pod, running(&started))).await;
    assert_eq!(state.sandbox.addresses.len(), 2);
    let web = &state.containers["web"];
    assert_eq!(
        (&web.id, &web.doing),
        (&started.id, &Doing::Running { since: started.at })
    );
    sleep(SECOND * 9).await;
    assert_eq!(framework.ends(), []);
    sleep(SECOND * 2).await;
    assert_eq!(framework.ends().len(), 1);
    let other = super::fixture::pod("b", &[]);
    assert_eq!(
        second.create(&other).await.unwrap().addresses[0].to_string(),
        "10.64.7.2"
    );
}

#[tokio::test(start_paused = true)]
async fn an_address_that_was_adopted_is_given_to_nobody_else() {
    let pod = pod("a", &[]);
    let (first, _) = provider();
    let started = start(&first, &pod, "web").await.unwrap();
    let (second, _) = provider();
    let mut adopted = recorded(&pod, running(&started));
    Arc::make_mut(&mut adopted.pod).status.as_mut().unwrap().pod_ip = Some("10.64.7.2".to_owned());
    state(&second, &adopted).await;
    let other = super::fixture::pod("b", &[]);
    assert_eq!(
        second.create(&other).await.unwrap().addresses[0].to_string(),
        "10.64.7.3"
    );
}

#[tokio::test(start_paused = true)]
async fn what_ended_while_nobody_looked_has_ended_at_its_time() {
    let pod = pod("a", &[("crash-after", "60s"), ("exit-code", "42")]);
    let (first, _) = provider();
    let started = start(&first, &pod, "web").await.unwrap();
    let (second, _) = provider();
    advance(SECOND * 600).await;
    let state = state(&second, &recorded(&pod, running(&started))).await;
    let Doing::Ended(exit) = &state.containers["web"].doing else {
        panic!("{state:?}");
    };
    assert_eq!((exit.code, exit.at), (42, started.at + SECOND * 60));
}

#[tokio::test(start_paused = true)]
async fn ends_and_former_lives_are_remembered() {
    let pod = pod("a", &[("log", "hello"), ("log-interval", "1s")]);
    let (first, _) = provider();
    let started = start(&first, &pod, "web").await.unwrap();
    let earlier = started
        .id
        .0
        .replace(|c: char| c.is_ascii_hexdigit() && c != '0', "0");
    let earlier = format!(
        "{}/00000000000000ff",
        started
            .id
            .0
            .rsplit_once('/')
            .map_or(earlier.as_str(), |(boot, _)| boot)
    );
    let (second, _) = provider();
    let mut web = running(&started);
    let (from, to) = (started.at - SECOND * 60, started.at - SECOND * 58);
    web["lastState"] = json!({"terminated": {
        "containerID": earlier, "exitCode": 1, "reason": "Error",
        "startedAt": from.to_string(), "finishedAt": to.to_string(),
    }});
    state(&second, &recorded(&pod, web)).await;
    let log = super::logs::read(
        &second,
        &pod,
        &evenkeel_vnode::provider::ContainerId(earlier.into()),
        Default::default(),
    )
    .await;
    assert_eq!(log, "hello\nhello\nhello\n");
}

#[tokio::test(start_paused = true)]
async fn containers_of_another_boot_are_lost() {
    let pod = pod("a", &[]);
    let (first, _) = provider();
    first.power_off("node-7");
    let started = start(&first, &pod, "web").await.unwrap();
    let (second, _) = provider();
    let state = state(&second, &recorded(&pod, running(&started))).await;
    assert_eq!(state.containers.len(), 0);
    assert_eq!(second.list("node-7").await.unwrap(), vec![pod.id]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_released_is_forgotten_in_silence() {
    let pod = pod("a", &[("exit-after", "5s")]);
    let (provider, framework) = provider();
    start(&provider, &pod, "web").await.unwrap();
    provider.release("node-7");
    sleep(SECOND * 10).await;
    assert_eq!(framework.ends(), []);
    assert_eq!(provider.list("node-7").await.unwrap(), vec![]);
}
