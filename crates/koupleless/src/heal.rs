//! Carries out the healing of bases that run out of metaspace; what is done, and when, [`core::heal`](crate::core::heal) decides.
//!
//! A healing belongs to whoever serves the base's node. One that stops serving it drops its [`Healing`]: taint and place in the budget
//! stay, and the next one goes on from there.

mod node;
mod places;

pub use places::PlacesError;

use crate::core::PodRef;
use crate::core::budget::{Limit, Verdict};
use crate::core::heal::{Action, Answer, Input, Machine, Note, Output, Phase, Reading, Settings};
use crate::events::{self, Events};
use evenkeel_api::names::koupleless::healing::COMPONENT;
use evenkeel_net::log::causes;
use evenkeel_vnode::ownership::Term;
use futures::future::BoxFuture;
use kube::Client;
use places::Places;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// For how long one action may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// First looks at nodes at a time: ten thousand nodes that are taken up must not be asked for at once.
const LOOKS: usize = 16;
/// Between two tries of a first look.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What is done for a healing by those who know the base.
pub trait Modules: Send + Sync + 'static {
    /// Uninstalls what is left of our modules, and returns how many remain. Called again while some do. It may be given up while it is
    /// under way. Modules of pods that are on the node, because they tolerate the taint or came since, stay and do not count.
    fn uninstall(&self) -> BoxFuture<'static, Result<usize, String>>;
}

/// Who else wants to hear of healings.
pub trait Listener: Send + Sync + 'static {
    /// A step of a node's healing. Must not block.
    fn told(&self, node: &str, note: &Note);
}

/// How healings are done.
#[derive(Clone)]
pub struct Options {
    /// Marks and times.
    pub settings: Settings,
    /// How many bases at a time, over all replicas.
    pub limit: Limit,
    /// Namespace of the ConfigMap that all replicas count by.
    pub namespace: String,
    /// This replica's name, for people.
    pub holder: String,
    /// Who else hears of it.
    pub listener: Option<Arc<dyn Listener>>,
}

/// The healings of one replica. Cheap to clone.
#[derive(Clone)]
pub struct Healer {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    options: Options,
    places: Places,
    events: Events,
    looks: Semaphore,
    stop: CancellationToken,
}

/// The healing of one base. Dropping it ends this replica's part in it, and leaves everything as it is.
pub struct Healing {
    told: mpsc::UnboundedSender<Told>,
}

enum Told {
    Health(Option<Reading>),
    Base(bool, Option<PodRef>),
    Gone,
}

impl Healer {
    /// Healings by way of `client`, which reaches the cluster of the virtual nodes, until `stop`.
    pub fn new(client: Client, options: Options, stop: CancellationToken) -> Self {
        let shared = Shared {
            places: Places::new(client.clone(), &options.namespace, &options.holder, options.limit),
            events: Events::start(client.clone(), COMPONENT, stop.clone()),
            looks: Semaphore::new(LOOKS),
            client,
            options,
            stop,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Begins to look after a base, whose node is served during `term`: nothing is done for it after that, but its place in the
    /// budget is given back. `bases` reaches the cluster that its pod is in, which may be another one; `None`: no pod is known to anybody.
    pub fn base(&self, node: &str, bases: Option<Client>, modules: Arc<dyn Modules>, term: Term) -> Healing {
        let (told, hears) = mpsc::unbounded_channel();
        let keeper = Keeper {
            shared: Arc::clone(&self.shared),
            node: node.into(),
            bases,
            modules,
            term,
            machine: Machine::new(self.shared.options.settings.clone()),
            start: Instant::now(),
            pod: None,
        };
        let stop = self.shared.stop.clone();
        tokio::spawn(stop.run_until_cancelled_owned(keeper.run(hears)));
        Healing { told }
    }
}

impl Healing {
    /// What the base said of its metaspace; `None`: it could not measure itself.
    pub fn health(&self, reading: Option<Reading>) {
        self.tell(Told::Health(reading));
    }

    /// Whether the base has been silent for too long, and the pod that it runs in, where that is known.
    pub fn base(&self, silent: bool, pod: Option<PodRef>) {
        self.tell(Told::Base(silent, pod));
    }

    /// The base's node was deleted for good: gives its place back.
    pub fn gone(self) {
        self.tell(Told::Gone);
    }

    fn tell(&self, told: Told) {
        // After the stop nobody hears, and nobody needs to.
        let _ = self.told.send(told);
    }
}

struct Keeper {
    shared: Arc<Shared>,
    node: Arc<str>,
    bases: Option<Client>,
    modules: Arc<dyn Modules>,
    term: Term,
    machine: Machine,
    start: Instant,
    pod: Option<PodRef>,
}

impl Keeper {
    async fn run(mut self, mut hears: mpsc::UnboundedReceiver<Told>) {
        let tainted = tokio::select! {
            tainted = self.found() => tainted,
            () = hears_no_more(&hears) => return,
        };
        let mut under_way: Option<BoxFuture<'static, Answer>> = None;
        let mut output = self.take(Input::Found { tainted });
        loop {
            if let Some(action) = output.action.take() {
                under_way = Some(self.carry_out(action));
            }
            if output.finished {
                return;
            }
            let wake = output.wake.map(|wake| self.start + wake);
            let input = tokio::select! {
                told = hears.recv(), if !self.is_gone() => match told {
                    Some(told) => self.input(told),
                    // Nobody serves the node here any more. What is under way may have been done or not: the next one looks.
                    None => return,
                },
                answer = answer(&mut under_way) => {
                    under_way = None;
                    Input::Answer(answer)
                }
                () = until(wake) => Input::Tick,
            };
            output = self.take(input);
        }
    }

    fn is_gone(&self) -> bool {
        *self.machine.phase() == Phase::Gone
    }

    /// Whether the node has the taint already.
    async fn found(&self) -> bool {
        loop {
            let Ok(place) = self.shared.looks.acquire().await else {
                return false;
            };
            let found =
                tokio::time::timeout(DEADLINE, node::is_tainted(&self.shared.client, &self.node)).await;
            match found {
                Ok(Ok(Some(tainted))) => return tainted,
                // It is about to be registered.
                Ok(Ok(None)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(node = %self.node, error = causes(&error), "cannot see whether the node is tainted, trying again");
                }
                Err(_elapsed) => {
                    tracing::warn!(node = %self.node, "cannot see in time whether the node is tainted, trying again");
                }
            }
            drop(place);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn input(&mut self, told: Told) -> Input {
        match told {
            Told::Health(reading) => Input::Health(reading),
            Told::Base(silent, pod) => {
                let uid = pod.as_ref().map(|pod| Arc::clone(&pod.uid));
                self.pod = pod;
                Input::Base { silent, pod: uid }
            }
            Told::Gone => Input::Gone,
        }
    }

    fn take(&mut self, input: Input) -> Output {
        let output = self.machine.on(self.start.elapsed(), input);
        for note in &output.notes {
            tracing::info!(node = %self.node, scene = ?note.scene, "{}", note.message);
            let warning = note.scene.is_warning();
            self.shared.events.put(
                events::node(&self.node),
                warning,
                note.scene.reason(),
                "Heal",
                note.message.clone(),
            );
            if let Some(listener) = &self.shared.options.listener {
                listener.told(&self.node, note);
            }
        }
        output
    }

    fn carry_out(&self, action: Action) -> BoxFuture<'static, Answer> {
        let shared = Arc::clone(&self.shared);
        let (node, bases) = (Arc::clone(&self.node), self.bases.clone());
        let (pod, modules) = (self.pod.clone(), Arc::clone(&self.modules));
        // The place of a node that is gone for good is given back: nobody serves that node.
        let term = (!self.is_gone()).then(|| self.term.clone());
        let acting = async move {
            let client = &shared.client;
            match action {
                Action::Acquire => match shared.places.acquire(&node).await {
                    Ok(Verdict::Granted) => Answer::Done,
                    Ok(Verdict::Full(by)) => Answer::Full(by.join(", ")),
                    Err(error) => Answer::Failed(causes(&error)),
                },
                Action::Release => done(shared.places.release(&node).await),
                Action::Taint => done(node::set(client, &node, true).await),
                Action::Untaint => done(node::set(client, &node, false).await),
                Action::Look => match node::look(client, &node).await {
                    Ok((pods, tainted)) => Answer::Seen { pods, tainted },
                    Err(error) => Answer::Failed(causes(&error)),
                },
                Action::Uninstall => match modules.uninstall().await {
                    Ok(left) => Answer::Left(left),
                    Err(why) => Answer::Failed(why),
                },
                Action::Replace(uid) => match pod.filter(|pod| pod.uid == uid).zip(bases) {
                    Some((pod, bases)) => node::evict(bases, &pod).await,
                    None => Answer::Failed("another pod is known meanwhile".to_owned()),
                },
            }
        };
        let acting = Box::pin(async move {
            let Some(term) = term else { return acting.await };
            let answer = term.run(acting).await;
            answer.unwrap_or_else(|| Answer::Failed("another replica may serve the node".to_owned()))
        });
        Box::pin(async move {
            let answered = tokio::time::timeout(DEADLINE, acting).await;
            answered.unwrap_or_else(|_| Answer::Failed(format!("no answer within {} s", DEADLINE.as_secs())))
        })
    }
}

fn done<E: std::error::Error + 'static>(result: Result<(), E>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Failed(causes(&error)),
    }
}

async fn answer(under_way: &mut Option<BoxFuture<'static, Answer>>) -> Answer {
    match under_way {
        Some(acting) => acting.await,
        None => std::future::pending().await,
    }
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn hears_no_more(hears: &mpsc::UnboundedReceiver<Told>) {
    // What is told before the first look waits; only the other side's end is looked for.
    while !hears.is_closed() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
