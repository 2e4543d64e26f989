//! The elector on a real Lease: requests, timers, and the state as others see it.

use crate::core::{Action, Config, ConfigError, Elector, Event, Now, State};
use crate::leadership::{Leadership, boot_time};
use crate::lease;
use crate::requests::Leases;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running candidate.
pub struct Candidate {
    /// The state as it changes. A leader that can no longer prove it leaves `Leading` by itself.
    pub state: watch::Receiver<State>,
    /// To be asked before each write; see [`Leadership::token`].
    pub leadership: Leadership,
    /// Ends when the candidate has stopped and, where asked for, released.
    pub done: JoinHandle<()>,
}

/// Starts a candidate. It campaigns until `shutdown`, also after a loss. The Lease is given back right at
/// `shutdown`, so cancel that only once the work that leadership guards has ended.
///
/// The account needs `get`, `create` and `update` on the Lease; with `list` and `watch` a free Lease is noticed at
/// once, without them by asking.
///
/// # Errors
/// The configuration is refused with client-go's texts.
pub fn run(client: Client, config: Config, shutdown: CancellationToken) -> Result<Candidate, ConfigError> {
    let elector = Elector::new(config.clone())?;
    let (publish, state) = watch::channel(elector.state().clone());
    let leadership = Leadership::default();
    let shell = Shell {
        leases: Leases::new(client, &config),
        elector,
        publish,
        leadership: leadership.clone(),
        wake: None,
        request: None,
    };
    Ok(Candidate {
        state,
        leadership,
        done: tokio::spawn(shell.run(shutdown)),
    })
}

/// An identity that no other candidate has: host name and random number.
pub fn unique_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() {
        "unknown-host"
    } else {
        host.trim()
    };
    format!("{host}_{:016x}", rand::random::<u64>())
}

struct Shell {
    leases: Leases,
    elector: Elector,
    publish: watch::Sender<State>,
    leadership: Leadership,
    /// When the elector wants to be woken, in boot time.
    wake: Option<Duration>,
    /// The one request under way.
    request: Option<BoxFuture<'static, Event>>,
}

impl Shell {
    async fn run(mut self, shutdown: CancellationToken) {
        let mut changes = self.leases.changes();
        let mut cancelled = false;
        self.feed(Event::Wake);
        while *self.elector.state() != State::Stopped {
            let deadline = self.elector.valid_until();
            let next = [self.wake, deadline].into_iter().flatten().min();
            let timer = OptionFuture::from(next.map(|at| tokio::time::sleep(at.saturating_sub(boot_time()))));
            let event = tokio::select! {
                biased;
                () = shutdown.cancelled(), if !cancelled => {
                    cancelled = true;
                    self.request = None;
                    Event::Cancel
                }
                Some(()) = timer => Event::Wake,
                Some(answer) = OptionFuture::from(self.request.as_mut()) => {
                    self.request = None;
                    answer
                }
                Some(change) = changes.next() => Event::Seen(change),
                else => {
                    // Neither a wait nor a request: the elector never leaves us so.
                    tracing::error!(lease = %self.leases.describe(), "the elector waits for nothing; asking again");
                    self.wake = Some(boot_time() + self.leases.timeout());
                    continue;
                }
            };
            self.feed(event);
        }
        self.leadership.set(None);
    }

    fn feed(&mut self, event: Event) {
        let at = boot_time();
        // Only the wake itself uses it up: what else happens in the same moment must not swallow it.
        if event == Event::Wake && self.wake.is_some_and(|wake| at >= wake) {
            self.wake = None;
        }
        let now = Now {
            at,
            wall: lease::micros(Timestamp::now()),
            random: rand::random::<f64>(),
        };
        let actions = self.elector.step(now, event);
        let proof = match (self.elector.state(), self.elector.valid_until()) {
            (State::Leading { token }, Some(valid_until)) => Some((token.clone(), valid_until)),
            _ => None,
        };
        // Before anybody hears of the new state.
        self.leadership.set(proof);
        for action in actions {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Get => self.request = Some(self.leases.get()),
            Action::Create(record) => self.request = Some(self.leases.create(&record)),
            Action::Update { record, version } => self.request = Some(self.leases.update(&record, version)),
            Action::Wait { until } => self.wake = Some(until),
            Action::Lost(loss) => {
                tracing::warn!(lease = %self.leases.describe(), reason = %loss, "stopped leading");
            }
            Action::Publish(state) => {
                let lease = self.leases.describe();
                match &state {
                    State::Leading { token } => {
                        tracing::info!(%lease, transitions = token.transitions, "became leader");
                    }
                    State::Following { leader } => {
                        tracing::info!(%lease, leader = leader.as_deref().unwrap_or("(none)"), "following");
                    }
                    State::Stopped => tracing::debug!(%lease, "candidate stopped"),
                }
                self.publish.send_replace(state);
            }
        }
    }
}
