use super::*;
use crate::core::{
    Attempt, Container, ContainerState, ContainerStatus, Event, Handler, Key, Outcome, Phase, Policy, Port,
    Probe, Role, Verdict,
};
use crate::events::EventAbout;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

mod attempts;
mod restart;
mod starvation;
mod subscribers;

/// A wall clock for paused time.
pub(crate) const WALL: Duration = Duration::from_secs(1_700_000_000);

/// Does what a closure says.
pub(crate) struct Fake<F>(pub(crate) F);

impl<F: Fn(&Attempt) -> BoxFuture<'static, Outcome> + Send + Sync + 'static> Prober for Fake<F> {
    async fn probe(&self, attempt: &Attempt) -> Outcome {
        (self.0)(attempt).await
    }
}

/// Answers at once, by the number of the attempt (from 0, over all workers).
pub(crate) fn answers(answer: impl Fn(usize) -> Outcome + Send + Sync + 'static) -> impl Prober {
    let number = AtomicUsize::new(0);
    Fake(move |_: &Attempt| {
        let outcome = answer(number.fetch_add(1, Ordering::Relaxed));
        async move { outcome }.boxed()
    })
}

pub(crate) fn config(compat: crate::core::Compat) -> Config {
    Config {
        policy: Policy {
            compat,
            ..Policy::default()
        },
        concurrency: 1000,
        exec_concurrency: 10,
        source: None,
        seed: 1,
    }
}

pub(crate) fn kubelet() -> Config {
    config(crate::core::Compat::Kubelet)
}

/// Every second, and each result counts.
pub(crate) fn probe() -> Probe {
    let handler = Handler::TcpSocket {
        host: None,
        port: Port::Number(80),
    };
    Probe {
        period: Duration::from_secs(1),
        failure_threshold: 1,
        ..Probe::new(handler)
    }
}

/// With a container `app` that has this probe.
pub(crate) fn pod(uid: &str, kind: Kind, probe: Probe) -> Arc<Pod> {
    let probe = Some(Arc::new(probe));
    let [mut startup, mut readiness, mut liveness] = [None, None, None];
    match kind {
        Kind::Startup => startup = probe,
        Kind::Readiness => readiness = probe,
        Kind::Liveness => liveness = probe,
    }
    Arc::new(Pod {
        uid: uid.into(),
        namespace: "shop".into(),
        name: format!("web-{uid}").into(),
        deleting: false,
        restart_policy: Default::default(),
        containers: vec![Arc::new(Container {
            name: "app".into(),
            startup,
            readiness,
            liveness,
            ..Container::default()
        })],
    })
}

/// Its container runs since `age` before [`WALL`].
pub(crate) fn running(age: Duration) -> PodStatus {
    PodStatus {
        phase: Phase::Running,
        containers: vec![ContainerStatus {
            name: "app".into(),
            id: "c://1".into(),
            state: ContainerState::Running {
                started_at: WALL.saturating_sub(age),
            },
            started: Some(true),
            ready: false,
            taken_over: false,
        }],
        ..PodStatus::default()
    }
}

/// A manager on the clock of paused time, with one pod whose container has just started.
pub(crate) fn start(config: Config, prober: impl Prober, pod: &Arc<Pod>) -> (Manager, CancellationToken) {
    let shutdown = CancellationToken::new();
    let manager = Manager::builder(config)
        .clock(Clock::steady(WALL))
        .start(prober, shutdown.clone());
    introduce(&manager, pod);
    (manager, shutdown)
}

pub(crate) fn introduce(manager: &Manager, pod: &Arc<Pod>) {
    manager.add_pod(pod.clone());
    manager.update_status(&pod.uid, running(Duration::ZERO));
}

pub(crate) fn key(uid: &str, kind: Kind) -> Key {
    Key {
        pod: uid.into(),
        container: "app".into(),
        kind,
    }
}

/// Waits in virtual time.
pub(crate) async fn until(what: &str, met: impl Fn() -> bool) {
    let waiting = async {
        while !met() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(3600), waiting).await;
    assert!(waited.is_ok(), "{what}");
}

pub(crate) fn reading(manager: &Manager, uid: &str, kind: Kind) -> Option<Reading> {
    manager.reading(uid, "app", kind, "c://1")
}

/// Remembers events.
#[derive(Default)]
pub(crate) struct Recorded(Mutex<Vec<(EventAbout, Event)>>);

impl EventSink for Recorded {
    fn record(&self, about: EventAbout, event: Event) {
        self.0.lock().unwrap().push((about, event));
    }
}

#[tokio::test(start_paused = true)]
async fn events_name_the_container_and_reach_the_sink() {
    let sink = Arc::new(Recorded::default());
    let manager = Manager::builder(kubelet())
        .clock(Clock::steady(WALL))
        .events(sink.clone())
        .start(answers(|_| Outcome::failure("no")), CancellationToken::new());
    introduce(&manager, &pod("1", Kind::Liveness, probe()));
    until("an event", || !sink.0.lock().unwrap().is_empty()).await;
    let (about, event) = sink.0.lock().unwrap()[0].clone();
    let expected = EventAbout {
        uid: "1".into(),
        namespace: "shop".into(),
        name: "web-1".into(),
        container: "app".into(),
        role: Role::Regular,
    };
    assert_eq!(about, expected);
    assert_eq!(
        (event.warning, event.reason, &*event.message),
        (true, "Unhealthy", "Liveness probe failed: no")
    );
}

#[tokio::test(start_paused = true)]
async fn everything_is_told_to_who_wants_to_see_everything() {
    let (manager, shutdown) = start(
        kubelet(),
        answers(|number| {
            if number == 0 {
                Outcome::success("up")
            } else {
                Outcome::failure("down")
            }
        }),
        &pod("1", Kind::Readiness, probe()),
    );
    let mut notices = manager.notices();
    let mut seen = Vec::new();
    while seen.len() < 6 {
        let line = match &*notices.recv().await.unwrap() {
            Notice::Published { reading, .. } => format!("published {reading}"),
            Notice::Ended { outcome, starved, .. } => {
                assert!(!starved);
                format!("ended {}", outcome.output)
            }
            Notice::Event { event, .. } => event.message.clone(),
            Notice::Stopped { key } => format!("stopped {key}"),
        };
        seen.push(line);
        if seen.len() == 5 {
            manager.remove_pod("1");
        }
    }
    assert!(
        seen.join("; ")
            .contains("ended up; published Success; ended down; Readiness probe failed: down"),
        "{seen:?}"
    );
    shutdown.cancel();
    manager.stopped().await;
}
