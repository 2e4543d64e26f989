//! A candidate on virtual time, and everything it tells.

use evenkeel_election::clock::Clock;
use evenkeel_election::lock::{Fault, MemoryLock, Op, Rule};
use evenkeel_election::{
    Callbacks, Compat, Config, Election, Elector, Gate, HealthAdaptor, Metrics, OnLoss, State, StopReason,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// tokio's clock, which stands still until everybody waits.
pub(crate) struct VirtualClock {
    origin: Instant,
    random: f64,
}

/// Boot time when a test begins: not zero, where mistakes would not show.
const BOOTED: Duration = Duration::from_secs(1_000);

impl Clock for VirtualClock {
    fn boot(&self) -> Duration {
        BOOTED + self.origin.elapsed()
    }

    fn wall(&self) -> Timestamp {
        let micros = 1_790_000_000_000_000 + i64::try_from(self.origin.elapsed().as_micros()).unwrap();
        Timestamp::from_microsecond(micros).unwrap()
    }

    fn random(&self) -> f64 {
        self.random
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        match at.checked_sub(BOOTED) {
            Some(at) => Box::pin(tokio::time::sleep_until(self.origin + at)),
            None => Box::pin(std::future::ready(())),
        }
    }
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// client-go's rules and times, with recovery.
pub(crate) fn client_go(identity: &str) -> Config {
    Config {
        on_loss: OnLoss::Recover,
        ..Config::client_go(identity)
    }
}

/// Our rules at the same times.
pub(crate) fn ours(identity: &str) -> Config {
    Config {
        compat: Compat::Evenkeel,
        ..client_go(identity)
    }
}

/// What the candidate told, in the order of the telling, with the milliseconds since the test began.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Started,
    /// The work's context ended.
    Cancelled,
    /// `on_stopped_leading`, and whether the gate was open then.
    Stopped(bool),
    NewLeader(String),
}

#[derive(Clone)]
pub(crate) struct Log<T> {
    origin: Instant,
    entries: Arc<Mutex<Vec<(u64, T)>>>,
}

impl<T: Clone> Log<T> {
    fn new(origin: Instant) -> Self {
        Self {
            origin,
            entries: Arc::default(),
        }
    }

    fn push(&self, entry: T) {
        let at = u64::try_from(self.origin.elapsed().as_millis()).unwrap();
        self.entries.lock().unwrap().push((at, entry));
    }

    pub(crate) fn all(&self) -> Vec<(u64, T)> {
        self.entries.lock().unwrap().clone()
    }
}

pub(crate) struct Stage {
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) lock: MemoryLock,
    pub(crate) gate: Gate,
    pub(crate) stop: CancellationToken,
    pub(crate) health: HealthAdaptor,
    pub(crate) told: Log<Told>,
    pub(crate) states: Log<State>,
    metrics: Registry,
    watcher: tokio::task::JoinHandle<()>,
}

/// What is not the same in every scenario.
pub(crate) struct Setting {
    pub(crate) config: Config,
    pub(crate) random: f64,
    pub(crate) timeout: Duration,
    pub(crate) tolerance: Duration,
    /// How long `on_stopped_leading` takes.
    pub(crate) slow_stop: Duration,
    /// How long the work takes to end.
    pub(crate) slow_work: Duration,
}

impl From<Config> for Setting {
    fn from(config: Config) -> Self {
        Self {
            config,
            random: 0.5,
            timeout: ms(5_000),
            tolerance: ms(20_000),
            slow_stop: Duration::ZERO,
            slow_work: Duration::ZERO,
        }
    }
}

impl Stage {
    /// A candidate alone at an empty lock.
    pub(crate) fn new(setting: impl Into<Setting>) -> Self {
        let setting = setting.into();
        let clock = Arc::new(VirtualClock {
            origin: Instant::now(),
            random: setting.random,
        });
        let lock = MemoryLock::new(clock.clone(), &setting.config.identity);
        Self::start(setting, clock, lock)
    }

    /// A rival at the same lock, from now on.
    pub(crate) fn rival(&self, setting: impl Into<Setting>) -> Self {
        let setting = setting.into();
        let clock = Arc::new(VirtualClock {
            origin: self.clock.origin,
            random: setting.random,
        });
        let lock = self.lock.peer(&setting.config.identity);
        Self::start(setting, clock, lock)
    }

    fn start(setting: Setting, clock: Arc<VirtualClock>, lock: MemoryLock) -> Self {
        let gate = Gate::with_clock(clock.clone());
        let stop = CancellationToken::new();
        let health = HealthAdaptor::new(setting.tolerance);
        let (told, states) = (Log::new(clock.origin), Log::new(clock.origin));
        let mut metrics = Registry::default();
        let elector = Elector::new(lock.clone(), setting.config)
            .unwrap()
            .with_clock(clock.clone())
            .with_gate(&gate)
            .unwrap()
            .with_request_timeout(setting.timeout)
            .with_metrics(&Metrics::register(&mut metrics))
            .with_callbacks(callbacks(&told, &gate, setting.slow_work, setting.slow_stop))
            .with_watchdog(&health);
        let election = elector.run(stop.clone());
        Self {
            watcher: tokio::spawn(watch(election, states.clone())),
            clock,
            lock,
            gate,
            stop,
            health,
            told,
            states,
            metrics,
        }
    }

    /// Adds an outage from 5 s on.
    pub(crate) fn away(self, until: u64, fault: Fault) -> Self {
        self.lock
            .inject(Rule::new(fault).from(ms(5_000)).until(ms(until)));
        self
    }

    /// To this time, and until everybody has done what is due then.
    pub(crate) async fn until(&self, millis: u64) {
        tokio::time::sleep_until(self.clock.origin + ms(millis)).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// To the candidate's end.
    pub(crate) async fn ended(&mut self) -> (u64, StopReason) {
        (&mut self.watcher).await.unwrap();
        match self.states.all().pop() {
            Some((at, State::Stopped { reason })) => (at, reason),
            other => panic!("no end: {other:?}"),
        }
    }

    pub(crate) fn requests(&self) -> Vec<(u64, Op)> {
        let calls = self.lock.calls().into_iter();
        calls
            .map(|call| (u64::try_from(call.at.as_millis()).unwrap(), call.op))
            .collect()
    }

    /// The Events, and when.
    pub(crate) fn events(&self) -> Vec<(u64, String)> {
        let announced = self.lock.announcements().into_iter();
        announced
            .map(|event| (u64::try_from(event.at.as_millis()).unwrap(), event.message))
            .collect()
    }

    /// When callbacks of this kind came.
    pub(crate) fn times(&self, what: impl Fn(&Told) -> bool) -> Vec<u64> {
        let told = self.told.all().into_iter();
        told.filter(|(_, told)| what(told)).map(|(at, _)| at).collect()
    }

    pub(crate) fn stops(&self) -> Vec<u64> {
        self.times(|told| matches!(told, Told::Stopped(_)))
    }

    pub(crate) fn starts(&self) -> Vec<u64> {
        self.times(|told| *told == Told::Started)
    }

    pub(crate) fn holder(&self) -> String {
        self.lock.peek().unwrap().record.holder
    }

    /// `leader_election_master_status`.
    pub(crate) fn gauge(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("leader_election_master_status"))
            .unwrap_or_else(|| panic!("no gauge: {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

async fn watch(mut election: Election, states: Log<State>) {
    while let Some(state) = election.next().await {
        states.push(state);
    }
}

fn callbacks(told: &Log<Told>, gate: &Gate, slow_work: Duration, slow_stop: Duration) -> Callbacks {
    let (started, stopped, led) = (told.clone(), told.clone(), told.clone());
    let gate = gate.clone();
    Callbacks::new(
        move |work| {
            let told = started.clone();
            async move {
                told.push(Told::Started);
                work.stopped().await;
                told.push(Told::Cancelled);
                tokio::time::sleep(slow_work).await;
                drop(work);
            }
        },
        move || {
            stopped.push(Told::Stopped(gate.is_open()));
            tokio::time::sleep(slow_stop)
        },
    )
    .on_new_leader(move |leader| {
        led.push(Told::NewLeader(leader));
        std::future::ready(())
    })
}
