//! One life of a base, from its start to its end: the engine, and the tasks that drive it.

use super::engine::{Command, Engine, Ground, Pause, Processed, Step, Ticket};
use super::heartbeat::{Endpoint, Heartbeats};
use super::world::{Carrier, Moment, World};
use super::{Identity, MqttTunnel, http, locked};
use futures::future::{BoxFuture, join_all};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::net::TcpListener;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A request that a base received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Milliseconds since 1970 by the base's clock.
    pub time: i64,
    /// The tunnel it came by: `EventLoop` for HTTP, `Mqtt`.
    pub carrier: Carrier,
    /// The command asked for, known or not.
    pub command: String,
    /// Its body.
    pub body: String,
}

/// What outlives a base's end.
pub(crate) struct Inner {
    pub(crate) identity: Identity,
    pub(crate) told_port: u16,
    pub(crate) address: SocketAddr,
    pub(crate) ground: Ground,
    pub(crate) loops: usize,
    /// Locked after the engine, never before.
    pub(crate) world: Mutex<Box<dyn World>>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) conduct: watch::Sender<Conduct>,
    pub(crate) released: watch::Sender<BTreeSet<String>>,
    pub(crate) heartbeat: watch::Sender<Option<Endpoint>>,
    pub(crate) mqtt: watch::Sender<Option<MqttTunnel>>,
    /// A change is a heartbeat that the test wants now.
    pub(crate) beats: watch::Sender<()>,
    pub(crate) live: Mutex<Option<Arc<Live>>>,
}

/// How requests are treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    Serve,
    /// Of one command, or of all.
    Hang(Option<String>),
    Garble(Vec<u8>),
}

impl Conduct {
    pub(crate) fn hangs(&self, command: &str) -> bool {
        match self {
            Self::Hang(None) => true,
            Self::Hang(Some(only)) => only == command,
            Self::Serve | Self::Garble(_) => false,
        }
    }
}

/// What happened to a base.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) log: VecDeque<Request>,
    pub(crate) heartbeats: Heartbeats,
}

/// So many requests are kept.
const LOG: usize = 1000;

impl Inner {
    pub(crate) fn live(&self) -> MutexGuard<'_, Option<Arc<Live>>> {
        locked(&self.live)
    }

    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        self.live().clone()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        locked(&self.ledger)
    }

    /// The time by the base's clock.
    pub(crate) fn at(&self, moment: Moment, about: &str) -> i64 {
        locked(&self.world).at(moment, about)
    }

    /// Writes a request down.
    pub(crate) fn note(&self, carrier: Carrier, command: &str, body: &str) {
        let time = self.at(Moment::Asked, command);
        let mut ledger = self.ledger();
        *ledger.counts.entry(command.to_owned()).or_default() += 1;
        if ledger.log.len() == LOG {
            ledger.log.pop_front();
        }
        ledger.log.push_back(Request {
            time,
            carrier,
            command: command.to_owned(),
            body: body.to_owned(),
        });
    }
}

/// A base that is up.
pub(crate) struct Live {
    pub(crate) inner: Arc<Inner>,
    engine: Mutex<Engine>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Ends the listener alone, and waits for it.
    listening: Mutex<Option<(CancellationToken, TaskTracker)>>,
    loops: Vec<Arc<tokio::sync::Mutex<()>>>,
    connections: AtomicUsize,
}

impl Live {
    pub(crate) fn new(inner: Arc<Inner>) -> Arc<Self> {
        let engine = Engine::new(
            inner.ground.clone(),
            &mut **locked(&inner.world),
            &inner.identity.id,
        );
        Arc::new(Self {
            engine: Mutex::new(engine),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            listening: Mutex::new(None),
            loops: (0..inner.loops).map(|_| Arc::default()).collect(),
            connections: AtomicUsize::new(0),
            inner,
        })
    }

    /// Looks at the engine together with its world.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Engine, &mut dyn World) -> T) -> T {
        let mut engine = locked(&self.engine);
        let mut world = locked(&self.inner.world);
        act(&mut engine, &mut **world)
    }

    /// Serves connections of this listener from now on.
    pub(crate) fn listen(self: &Arc<Self>, listener: TcpListener) {
        let (stop, tasks) = (self.stop.child_token(), TaskTracker::new());
        tasks.spawn(http::serve(listener, self.clone(), stop.clone()));
        tasks.close();
        let before = locked(&self.listening).replace((stop, tasks));
        if let Some((before, _)) = before {
            before.cancel();
        }
    }

    /// Serves no more new connections.
    pub(crate) async fn close(&self) {
        let listening = locked(&self.listening).take();
        if let Some((stop, tasks)) = listening {
            stop.cancel();
            tasks.wait().await;
        }
    }

    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    /// Ends everything, and waits until it has.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.close().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs a task that ends with the base.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// The event loop of the next connection: they take turns.
    pub(crate) fn next_loop(&self) -> usize {
        self.connections.fetch_add(1, Ordering::Relaxed) % self.loops.len()
    }

    /// Waits until an event loop is free, and takes it.
    pub(crate) async fn event_loop(&self, number: usize) -> OwnedMutexGuard<()> {
        self.loops[number].clone().lock_owned().await
    }

    /// Begins a command.
    pub(crate) fn begin(&self, command: Command, content: Option<&Value>, carrier: Carrier) -> Step {
        self.with(|engine, world| engine.process(world, command, content, carrier))
    }

    fn advance(&self, ticket: Ticket) -> Step {
        self.with(|engine, world| engine.advance(world, ticket))
    }

    /// Drives a command to its end; what is asynchronous goes on by itself.
    pub(crate) fn drive(self: &Arc<Self>, mut step: Step) -> BoxFuture<'static, Processed> {
        let live = self.clone();
        Box::pin(async move {
            loop {
                let ticket = match step {
                    Step::Done(result) => return result,
                    Step::Pause(pause, ticket) => {
                        live.wait(pause).await;
                        ticket
                    }
                    Step::All(parts, ticket) => {
                        let parts = parts.into_iter().map(|part| live.drive(live.advance(part)));
                        join_all(parts).await;
                        ticket
                    }
                    Step::Background(output, ticket) => {
                        let beside = live.clone();
                        live.spawn(async move {
                            let step = beside.advance(ticket);
                            // Its record tells the result.
                            let _result = beside.drive(step).await;
                        });
                        return Ok(output);
                    }
                };
                step = live.advance(ticket);
            }
        })
    }

    async fn wait(&self, pause: Pause) {
        match pause {
            Pause::For(time) => tokio::time::sleep(time).await,
            Pause::Release(url) => {
                let mut released = self.inner.released.subscribe();
                // The sender lives as long as this does.
                let _released = released.wait_for(|urls| urls.contains(&url)).await;
            }
            Pause::Ever => std::future::pending().await,
        }
    }
}
