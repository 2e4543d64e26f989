use super::*;
use crate::core::{Observation, Record, State};
use crate::lock::{LockError, MemoryLock, Op};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use prometheus_client::registry::Registry;
use rstest::rstest;

/// Long enough for any machine.
const DEADLINE: Duration = Duration::from_secs(60);

fn config() -> Config {
    Config {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(50),
        ..Config::new("me")
    }
}

fn lock() -> MemoryLock {
    MemoryLock::new(Arc::new(SystemClock), "me")
}

async fn leading(election: &Election) {
    let mut states = election.watch();
    let leads = tokio::time::timeout(DEADLINE, states.wait_for(State::leads)).await;
    leads.expect("it leads").unwrap();
}

#[tokio::test]
async fn a_gate_of_an_electors_own_is_no_other_electors() {
    let election = Elector::new(lock(), config())
        .unwrap()
        .run(CancellationToken::new());
    let other = Elector::new(lock(), config()).unwrap();
    assert!(other.with_gate(election.gate()).is_err());
}

#[tokio::test]
async fn a_candidate_that_dies_ends_its_work_and_does_not_claim_to_lead() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let lock = lock();
    let name = lock.describe();
    let election = Elector::new(lock, config())
        .unwrap()
        .with_metrics(&metrics)
        .run(CancellationToken::new());
    leading(&election).await;
    let work = election.work().unwrap();
    election.abort();
    let told = tokio::time::timeout(DEADLINE, work.stopped()).await;
    told.expect("the work is told to end");
    let mut states = election.watch();
    let follows = tokio::time::timeout(DEADLINE, states.wait_for(|state| !state.leads())).await;
    follows.expect("it does not lead").unwrap();
    assert!(!election.gate().is_open());
    assert!(election.work().is_none());
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = format!("leader_election_master_status{{name=\"{name}\"}} 0");
    assert!(text.contains(&line), "{text}");
}

/// A lock whose watch ends, and must not be asked again: it would panic.
struct WatchEnds(MemoryLock);

impl Lock for WatchEnds {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn get(&self) -> BoxFuture<'static, Result<Option<Observation>, LockError>> {
        self.0.get()
    }

    fn create(&self, record: Record) -> BoxFuture<'static, Result<Observation, LockError>> {
        self.0.create(record)
    }

    fn update(&self, record: Record, version: String) -> BoxFuture<'static, Result<Observation, LockError>> {
        self.0.update(record, version)
    }

    fn changes(&self) -> BoxStream<'static, Option<Observation>> {
        stream::unfold((), |()| async { None }).boxed()
    }

    fn announce(&self, message: String) -> BoxFuture<'static, ()> {
        self.0.announce(message)
    }
}

#[tokio::test]
async fn a_watch_that_ends_is_not_the_end() {
    let shutdown = CancellationToken::new();
    let election = Elector::new(WatchEnds(lock()), config())
        .unwrap()
        .run(shutdown.clone());
    leading(&election).await;
    shutdown.cancel();
    assert!(election.stopped().await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_that_blocks_holds_up_no_renewal() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let mut held = Some(held);
    let callbacks = Callbacks::new(|_work| async {}, || async {}).on_new_leader(move |_name| {
        if let Some(held) = held.take() {
            // Until the test lets go, or has failed.
            let _ = held.recv();
        }
        async {}
    });
    let shutdown = CancellationToken::new();
    let lock = lock();
    let election = Elector::new(lock.clone(), config())
        .unwrap()
        .with_callbacks(callbacks)
        .run(shutdown.clone());
    let renewed = tokio::time::timeout(DEADLINE, async {
        while lock.ops().iter().filter(|op| **op == Op::Update).count() < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let renewed = renewed.await;
    drop(release);
    renewed.expect("renewals go on");
    shutdown.cancel();
    election.stopped().await;
}

/// Nobody would do its work.
#[rstest]
#[case::before_its_future(true)]
#[case::in_its_future(false)]
#[tokio::test]
async fn a_leader_whose_work_panics_hands_over(#[case] at_once: bool) {
    let callbacks = Callbacks::new(
        move |_work| {
            assert!(!at_once, "on purpose");
            async { panic!("on purpose") }
        },
        || async {},
    );
    let shutdown = CancellationToken::new();
    let lock = lock();
    let mut election = Elector::new(lock.clone(), config())
        .unwrap()
        .with_callbacks(callbacks)
        .run(shutdown.clone());
    let handed_over = tokio::time::timeout(DEADLINE, async {
        let mut led = false;
        loop {
            match election.next().await.expect("the candidate runs") {
                State::Following { .. } if led => break,
                state => led |= state.leads(),
            }
        }
    });
    handed_over.await.expect("it hands over");
    assert_eq!(lock.peek().unwrap().record.holder, "");
    shutdown.cancel();
    election.stopped().await;
}

/// The candidate goes on without its handle, and so does what watches its work.
#[tokio::test]
async fn a_leader_without_a_handle_whose_work_panics_hands_over() {
    let lock = lock();
    let begin = Arc::new(tokio::sync::Notify::new());
    let begun = Arc::clone(&begin);
    let callbacks = Callbacks::new(
        move |_work| {
            let begun = Arc::clone(&begun);
            async move {
                begun.notified().await;
                panic!("on purpose")
            }
        },
        || async {},
    );
    let shutdown = CancellationToken::new();
    let election = Elector::new(lock.clone(), config())
        .unwrap()
        .with_callbacks(callbacks)
        .run(shutdown.clone());
    leading(&election).await;
    drop(election);
    begin.notify_one();
    let released = async {
        while !lock.peek().unwrap().record.holder.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, released)
        .await
        .expect("it hands over");
    shutdown.cancel();
}

#[tokio::test]
async fn a_health_check_looks_at_the_candidate_that_runs_now() {
    let watchdog = HealthAdaptor::new(Duration::ZERO);
    let start = |timing: Config| {
        let shutdown = CancellationToken::new();
        let election = Elector::new(lock(), timing)
            .unwrap()
            .with_watchdog(&watchdog)
            .run(shutdown.clone());
        (election, shutdown)
    };
    let (first, shutdown) = start(config());
    leading(&first).await;
    shutdown.cancel();
    first.stopped().await;
    let (second, _shutdown) = start(config());
    leading(&second).await;
    second.abort();
    let told = tokio::time::timeout(DEADLINE, async {
        while watchdog.check().is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    told.await
        .expect("a leader that does not renew any more is unhealthy");
}
