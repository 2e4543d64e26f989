//! Candidates, their clocks, what they log, and somebody who looks at their gates all the time.

use evenkeel_election::clock::Clock;
use evenkeel_election::lock::Lock;
use evenkeel_election::{Config, Election, Elector, FencingToken, Gate, OnLoss, State, StopReason};
use evenkeel_testkit::becomes;
use futures::FutureExt as _;
use futures::future::{self, BoxFuture};
use jiff::{SignedDuration, Timestamp};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Virtual time, longer than anything here takes: a record's duration, an outage of a minute.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A machine's clocks on tokio's time: one can be stepped, the other runs on in a sleep of the machine.
pub(super) struct MachineClock {
    start: Instant,
    slept: watch::Sender<Duration>,
    step: Mutex<SignedDuration>,
}

impl MachineClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            slept: watch::Sender::default(),
            step: Mutex::default(),
        })
    }

    /// Somebody sets the wall clock.
    pub(super) fn step_wall(&self, step: SignedDuration) {
        *self.step.lock().unwrap() += step;
    }

    /// The machine was suspended for so long.
    pub(super) fn sleep(&self, time: Duration) {
        self.slept.send_modify(|slept| *slept += time);
    }
}

impl Clock for MachineClock {
    fn boot(&self) -> Duration {
        self.start.elapsed() + *self.slept.borrow()
    }

    fn wall(&self) -> Timestamp {
        let start: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let run = SignedDuration::try_from(self.boot()).unwrap();
        let now = start + run + *self.step.lock().unwrap();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap()
    }

    fn random(&self) -> f64 {
        0.5
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        let (start, mut slept) = (self.start, self.slept.subscribe());
        async move {
            loop {
                let left = at.saturating_sub(*slept.borrow_and_update());
                let end: BoxFuture<'static, ()> = match start.checked_add(left) {
                    Some(end) => tokio::time::sleep_until(end).boxed(),
                    None => future::pending().boxed(),
                };
                tokio::select! {
                    () = end => return,
                    // Without its clock, a machine sleeps no more.
                    Ok(()) = slept.changed() => {}
                }
            }
        }
        .boxed()
    }
}

/// 5/3/1 s.
pub(super) fn config(identity: &str) -> Config {
    Config::new(identity)
}

/// The same, ending at a loss.
pub(super) fn stopping(identity: &str) -> Config {
    Config {
        on_loss: OnLoss::Stop,
        ..config(identity)
    }
}

pub(super) struct Candidate {
    pub(super) election: Election,
    pub(super) clock: Arc<MachineClock>,
    stop: CancellationToken,
}

pub(super) fn stand(lock: impl Lock, identity: &str) -> Candidate {
    stand_with(lock, config(identity), MachineClock::new())
}

pub(super) fn stand_with(lock: impl Lock, config: Config, clock: Arc<MachineClock>) -> Candidate {
    let elector = Elector::new(lock, config)
        .unwrap()
        .with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let stop = CancellationToken::new();
    Candidate {
        election: elector.run(stop.clone()),
        clock,
        stop,
    }
}

impl Candidate {
    pub(super) fn token(&self) -> Option<FencingToken> {
        self.election.gate().token()
    }

    pub(super) async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) -> State {
        becomes(what, PATIENCE, self.election.watch(), wanted).await
    }

    /// Its gate is open.
    pub(super) async fn leads(&self) -> FencingToken {
        self.until("it leads", State::leads).await;
        self.token().expect("the gate of a leader is open")
    }

    pub(super) async fn follows(&self, leader: &str) {
        let leader = Some(leader.to_owned());
        self.until("it follows", |state| {
            *state
                == State::Following {
                    leader: leader.clone(),
                }
        })
        .await;
    }

    /// Ends it; fails the test if it died of anything else.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let reason = self.ended().await;
        assert_eq!(reason, StopReason::Cancelled { drained: true });
    }

    /// Waits for its end. `None` would be a panic.
    pub(super) async fn ended(self) -> StopReason {
        let gate = self.election.gate().clone();
        let reason = tokio::time::timeout(PATIENCE, self.election.stopped())
            .await
            .expect("it ends");
        assert_eq!(gate.token(), None);
        reason.expect("it ends by itself, not by a panic")
    }
}

/// Which of the candidates leads, once one does.
pub(super) async fn the_leader(candidates: &[&Candidate]) -> usize {
    let found = async {
        loop {
            let mut leading = (0..candidates.len()).filter(|number| candidates[*number].token().is_some());
            if let Some(leader) = leading.next() {
                assert_eq!(leading.next(), None, "two lead");
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found)
        .await
        .expect("somebody leads")
}

/// Looks at all gates every millisecond.
pub(super) struct Guard {
    looks: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    looks: u64,
    overlaps: Vec<String>,
}

impl Guard {
    pub(super) fn over(candidates: &[&Candidate]) -> Self {
        let gates: Vec<Gate> = candidates
            .iter()
            .map(|candidate| candidate.election.gate().clone())
            .collect();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let notes = Arc::clone(&seen);
        let start = Instant::now();
        let looks = tokio::spawn(async move {
            loop {
                look(&gates, start, &mut notes.lock().unwrap());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        Self { looks, seen }
    }

    /// No two gates were open at once, and it did look.
    pub(super) fn saw_no_two(self) {
        self.looks.abort();
        let seen = self.seen.lock().unwrap();
        assert!(seen.looks > 1_000, "looked only {} times", seen.looks);
        assert!(
            seen.overlaps.is_empty(),
            "two gates were open {} times, first {}",
            seen.overlaps.len(),
            seen.overlaps[0]
        );
    }
}

fn look(gates: &[Gate], start: Instant, seen: &mut Seen) {
    let open: Vec<_> = gates.iter().filter_map(Gate::token).collect();
    seen.looks += 1;
    if open.len() > 1 {
        seen.overlaps.push(format!("{open:?} at {:?}", start.elapsed()));
    }
}
