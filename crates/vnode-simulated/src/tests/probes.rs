use super::fixture::{own_addresses, pod, pod_with, provider, start, with};
use evenkeel_probe::core::{
    Attempt, Compat, Container, Handler, HttpGet, Key, Kind, Outcome, Port, Probe, Role, Scheme, Target,
    Verdict,
};
use evenkeel_probe::handler::grpc;
use evenkeel_vnode::provider::{PodRequest, Provider, Started};
use rstest::rstest;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, advance};

const SECOND: Duration = Duration::from_secs(1);

fn http() -> Handler {
    Handler::HttpGet(HttpGet {
        scheme: Scheme::Http,
        host: None,
        port: Port::Number(80),
        path: "/ready".to_owned(),
        headers: Vec::new(),
    })
}

fn attempt(pod: &PodRequest, started: &Started, kind: Kind, handler: Handler) -> Attempt {
    let container = Container {
        name: "web".into(),
        role: Role::Regular,
        restart_policy: None,
        restart_rules: Vec::new(),
        ports: Vec::new(),
        env: Vec::new(),
        startup: None,
        readiness: None,
        liveness: None,
    };
    Attempt {
        ticket: 1,
        key: Key {
            pod: pod.id.uid.clone(),
            container: "web".into(),
            kind,
        },
        target: Target {
            address: None,
            source: None,
            container: Arc::new(container),
            container_id: started.id.0.clone(),
        },
        probe: Arc::new(Probe::new(handler)),
        compat: Compat::Kubelet,
        lag: Duration::ZERO,
    }
}

#[tokio::test(start_paused = true)]
async fn scripts_answer_by_the_time_since_the_start() {
    let (provider, _) = provider();
    let pod = pod(
        "a",
        &[
            ("readiness", "not-ready 5s, ready 5s, broken"),
            ("liveness", "ok 1s, silent"),
        ],
    );
    let started = start(&provider, &pod, "web").await.unwrap();
    let ask = async |kind| {
        let attempt = attempt(&pod, &started, kind, http());
        provider.probe(&pod.id, &attempt).unwrap().await
    };
    assert_eq!(
        ask(Kind::Readiness).await,
        Outcome::failure("HTTP probe failed with statuscode: 503")
    );
    assert_eq!(ask(Kind::Liveness).await.verdict, Verdict::Success);
    assert_eq!(ask(Kind::Startup).await.verdict, Verdict::Success);
    advance(SECOND * 5).await;
    assert_eq!(ask(Kind::Readiness).await.verdict, Verdict::Success);
    let began = Instant::now();
    let late = ask(Kind::Liveness).await;
    assert_eq!((late.verdict, began.elapsed()), (Verdict::Failure, SECOND));
    advance(SECOND * 5).await;
    assert!(ask(Kind::Readiness).await.output.contains("connection refused"));
    provider.stop(&pod.id, &started.id, SECOND).await.unwrap();
    assert_eq!(ask(Kind::Startup).await.verdict, Verdict::Failure);
}

#[tokio::test(start_paused = true)]
async fn commands_are_left_to_exec() {
    let (provider, _) = provider();
    let pod = pod("a", &[]);
    let started = start(&provider, &pod, "web").await.unwrap();
    let exec = Handler::Exec {
        command: vec!["true".to_owned()],
    };
    assert!(
        provider
            .probe(&pod.id, &attempt(&pod, &started, Kind::Liveness, exec))
            .is_none()
    );
}

#[rstest]
#[case("ok", Verdict::Success, "service healthy")]
#[case("fail", Verdict::Failure, "NOT_SERVING")]
#[tokio::test]
async fn real_sockets_speak_grpc_health(#[case] script: &str, #[case] verdict: Verdict, #[case] said: &str) {
    let (provider, _) = with(own_addresses());
    let web = json!({"livenessProbe": {"grpc": {"port": 18_090, "service": "shop"}}});
    let pod = pod_with(
        "a",
        &[("serve", "true"), ("liveness", script), ("start-error", "0")],
        web,
    );
    let started = start(&provider, &pod, "web").await.unwrap();
    let handler = Handler::Grpc {
        port: 18_090,
        service: "shop".to_owned(),
    };
    let mut attempt = attempt(&pod, &started, Kind::Liveness, handler);
    assert!(
        provider.probe(&pod.id, &attempt).is_none(),
        "whoever has sockets is dialled"
    );
    attempt.target.address = Some(provider.create(&pod).await.unwrap().addresses[0]);
    let probe = Probe {
        timeout: SECOND * 10,
        ..Probe::clone(&attempt.probe)
    };
    let outcome = grpc::probe(18_090, "shop", &attempt.target, &probe, Compat::Kubelet).await;
    assert_eq!(outcome.verdict, verdict, "{outcome:?}");
    assert!(outcome.output.contains(said), "{outcome:?}");
}
