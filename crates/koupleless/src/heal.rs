//! Carries out the healing of bases that run out of metaspace; what is done, and when,
//! [`core::heal`](crate::core::heal) decides.
//!
//! A healing belongs to whoever serves the base's node. One that stops serving it drops its [`Healing`]:
//! taint and permit stay, and the next one goes on from there.

mod node;
mod permits;

pub use permits::PermitError;

use crate::core::PodRef;
use crate::core::budget::{Limit, Verdict};
use crate::core::heal::{Action, Answer, Input, Machine, Note, Output, Phase, Reading, Settings};
use crate::events::{self, Events};
use evenkeel_api::names::koupleless::healing::COMPONENT;
use evenkeel_net::log::causes;
use evenkeel_vnode::ownership::Term;
use futures::future::BoxFuture;
use kube::Client;
use permits::Permits;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// For how long one action may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How many nodes are inspected for the first time at once: a replica that takes over ten thousand nodes must
/// not read all of them at the same time.
const INSPECTIONS: usize = 16;
/// Pause before a first inspection that failed is repeated.
const INSPECT_AGAIN: Duration = Duration::from_secs(2);

/// What is done for a healing by those who know the base.
pub trait Modules: Send + Sync + 'static {
    /// Uninstalls what is left of our modules, and returns how many remain. Called again while some do. It
    /// may be given up while it is under way. Modules of pods that are on the node, because they tolerate the
    /// taint or came since, stay and do not count.
    fn uninstall(&self) -> BoxFuture<'static, Result<usize, String>>;
}

/// Is notified of healings.
pub trait Observer: Send + Sync + 'static {
    /// A node's healing has taken this step. Must not block.
    fn notify(&self, node: &str, note: &Note);
}

/// How healings are done.
#[derive(Clone)]
pub struct Options {
    pub settings: Settings,
    /// How many bases at a time, over all replicas.
    pub limit: Limit,
    /// Namespace of the ConfigMap that all replicas count by.
    pub namespace: String,
    /// This replica's name, for people.
    pub holder: String,
    /// Is notified of each step.
    pub observer: Option<Arc<dyn Observer>>,
}

/// The healings of one replica. Cheap to clone.
#[derive(Clone)]
pub struct Healer {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    options: Options,
    permits: Permits,
    events: Events,
    inspections: Semaphore,
    stop: CancellationToken,
}

/// The healing of one base. Dropping it ends this replica's part in it, and leaves everything as it is.
pub struct Healing {
    mailbox: mpsc::UnboundedSender<Update>,
}

enum Update {
    Health(Option<Reading>),
    Base(bool, Option<PodRef>),
    Gone,
}

impl Healer {
    /// Healings by way of `client`, which reaches the cluster of the virtual nodes, until `stop`.
    pub fn new(client: Client, options: Options, stop: CancellationToken) -> Self {
        let shared = Shared {
            permits: Permits::new(client.clone(), &options.namespace, &options.holder, options.limit),
            events: Events::start(client.clone(), COMPONENT, stop.clone()),
            inspections: Semaphore::new(INSPECTIONS),
            client,
            options,
            stop,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Begins to watch over a base, whose node is served during `term`: nothing is done for it after that,
    /// but its permit is given back. `bases` reaches the cluster that its pod is in, which may be another
    /// one; `None`: no pod is known to anybody.
    pub fn base(&self, node: &str, bases: Option<Client>, modules: Arc<dyn Modules>, term: Term) -> Healing {
        let (sender, mailbox) = mpsc::unbounded_channel();
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
        tokio::spawn(stop.run_until_cancelled_owned(keeper.run(mailbox)));
        Healing { mailbox: sender }
    }
}

impl Healing {
    /// What the base said of its metaspace; `None`: it could not measure itself.
    pub fn health(&self, reading: Option<Reading>) {
        self.send(Update::Health(reading));
    }

    /// Whether the base has been silent for too long, and the pod that it runs in, where that is known.
    pub fn base(&self, silent: bool, pod: Option<PodRef>) {
        self.send(Update::Base(silent, pod));
    }

    /// The base's node was deleted for good: gives its permit back.
    pub fn gone(self) {
        self.send(Update::Gone);
    }

    fn send(&self, update: Update) {
        // The receiver is gone after the stop, when nothing is done any more.
        let _ = self.mailbox.send(update);
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
    async fn run(mut self, mut mailbox: mpsc::UnboundedReceiver<Update>) {
        let tainted = tokio::select! {
            tainted = self.found() => tainted,
            () = closed(&mailbox) => return,
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
                update = mailbox.recv(), if !self.is_gone() => match update {
                    Some(update) => self.input(update),
                    // Nobody serves the node here any more. What is under way may have been done or not: the
                    // next one inspects the node.
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
            let Ok(permit) = self.shared.inspections.acquire().await else {
                return false;
            };
            let found =
                tokio::time::timeout(DEADLINE, node::is_tainted(&self.shared.client, &self.node)).await;
            let error = match found {
                Ok(Ok(Some(tainted))) => return tainted,
                // It is about to be registered.
                Ok(Ok(None)) => None,
                Ok(Err(error)) => Some(causes(&error)),
                Err(_elapsed) => Some(format!("no answer within {DEADLINE:?}")),
            };
            if let Some(error) = error {
                tracing::warn!(node = %self.node, error, "cannot see whether the node is tainted, trying again");
            }
            drop(permit);
            tokio::time::sleep(INSPECT_AGAIN).await;
        }
    }

    fn input(&mut self, update: Update) -> Input {
        match update {
            Update::Health(reading) => Input::Health(reading),
            Update::Base(silent, pod) => {
                let uid = pod.as_ref().map(|pod| Arc::clone(&pod.uid));
                self.pod = pod;
                Input::Base { silent, pod: uid }
            }
            Update::Gone => Input::Gone,
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
            if let Some(observer) = &self.shared.options.observer {
                observer.notify(&self.node, note);
            }
        }
        output
    }

    fn carry_out(&self, action: Action) -> BoxFuture<'static, Answer> {
        let shared = Arc::clone(&self.shared);
        let (node, bases) = (Arc::clone(&self.node), self.bases.clone());
        let (pod, modules) = (self.pod.clone(), Arc::clone(&self.modules));
        // The permit of a node that is gone for good is given back although nobody serves that node any more.
        let term = (!self.is_gone()).then(|| self.term.clone());
        let acting = async move {
            let client = &shared.client;
            match action {
                Action::Acquire => match shared.permits.acquire(&node).await {
                    Ok(Verdict::Granted) => Answer::Done,
                    Ok(Verdict::Full(by)) => Answer::Full(by.join(", ")),
                    Err(error) => Answer::Failed(causes(&error)),
                },
                Action::Release => done(shared.permits.release(&node).await),
                Action::Taint => done(node::set(client, &node, true).await),
                Action::Untaint => done(node::set(client, &node, false).await),
                Action::Inspect => match node::inspect(client, &node).await {
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

async fn closed(mailbox: &mpsc::UnboundedReceiver<Update>) {
    // Updates that come before the first inspection stay in the mailbox; here only its end is noticed.
    while !mailbox.is_closed() {
        tokio::time::sleep(INSPECT_AGAIN).await;
    }
}
