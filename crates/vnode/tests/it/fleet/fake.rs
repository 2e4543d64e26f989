//! A provider without anything behind it, which does what a test tells it and remembers what it was asked.

use evenkeel_vnode::Provider;
use evenkeel_vnode::provider::{
    ContainerId, Doing, Duplex, ExecIo, Exit, Fault, FaultKind, Host, LogOptions, LogStream, NodeHealth,
    NodeStats, NodeTemplate, Observed, PodId, PodRequest, PodState, Refusal, Report, Runtime, Sandbox,
    Served, StartRequest, Started,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What a call does instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trick {
    /// An error that may pass.
    Later,
    /// An error for good.
    Never,
    /// Never answers.
    Hang,
    /// Panics.
    Panic,
    /// An answer that cannot be.
    Nonsense,
    /// A start whose container has the ID of another container of the pod.
    Taken,
    /// A start whose container has the ID of another runtime.
    Foreign,
}

/// What several providers, one per replica, have in common.
#[derive(Debug, Default)]
pub(crate) struct World {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<Arc<str>, Running>,
    /// Replica, call and subject (`NAMESPACE/NAME`, `NAMESPACE/NAME/CONTAINER` or a node).
    calls: Vec<(u32, &'static str, String)>,
    tricks: HashMap<(&'static str, String), VecDeque<Trick>>,
    /// What calls are under way: replica, call, node.
    under_way: Vec<(u32, &'static str, String)>,
    /// Of a call that is watched: how often it gives way to others before it goes on, and how many of it
    /// there were at a time.
    watched: HashMap<&'static str, (usize, usize)>,
    containers: u32,
    /// Who serves a node.
    owners: BTreeMap<String, u32>,
    /// Calls about nodes that another replica had not given back, and nodes given back amid calls.
    trespasses: Vec<String>,
}

#[derive(Clone, Debug)]
struct Running {
    id: PodId,
    state: PodState,
}

/// The provider of one replica.
pub(crate) struct Fake {
    world: Arc<World>,
    replica: u32,
    host: Mutex<Option<Arc<dyn Host>>>,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What the next calls about a subject do, in their order; after that they go well.
    pub(crate) fn trick(&self, call: &'static str, subject: &str, tricks: &[Trick]) {
        let tricks = tricks.iter().copied().collect();
        self.lock().tricks.insert((call, subject.to_owned()), tricks);
    }

    /// From now on so many calls of a kind could be under way at a time, if they were let: each gives way to
    /// others.
    pub(crate) fn watch(&self, call: &'static str) {
        self.lock().watched.insert(call, (20, 0));
    }

    /// How many of a call that is watched have been under way at a time.
    pub(crate) fn most(&self, call: &str) -> usize {
        self.lock().watched.get(call).map_or(0, |(_, most)| *most)
    }

    /// How many of a call are under way.
    pub(crate) fn under_way(&self, call: &str) -> usize {
        let state = self.lock();
        let under_way = state.under_way.iter().filter(|(_, made, _)| *made == call);
        under_way.count()
    }

    /// How often something was asked, by whom ever.
    pub(crate) fn count(&self, call: &str, subject: &str) -> usize {
        let state = self.lock();
        let asked = |(_, made, about): &&(u32, &'static str, String)| *made == call && about == subject;
        state.calls.iter().filter(asked).count()
    }

    /// How often a replica asked what has become of a pod.
    pub(crate) fn asked_by(&self, replica: u32, subject: &str) -> usize {
        let state = self.lock();
        let asked = |(by, call, about): &&(u32, &'static str, String)| {
            *by == replica && *call == "status" && about == subject
        };
        state.calls.iter().filter(asked).count()
    }

    /// What one replica asked for, without pings, lists and questions.
    pub(crate) fn changes_by(&self, replica: u32) -> Vec<(&'static str, String)> {
        let state = self.lock();
        let changes = state
            .calls
            .iter()
            .filter(|(by, call, _)| *by == replica && !matches!(*call, "ping" | "list" | "status"));
        changes
            .map(|(_, call, subject)| (*call, subject.clone()))
            .collect()
    }

    /// Names of pods that exist.
    pub(crate) fn pods(&self) -> Vec<String> {
        self.lock().pods.values().map(|pod| pod.id.to_string()).collect()
    }

    /// Who serves which node.
    pub(crate) fn owners(&self) -> BTreeMap<String, u32> {
        self.lock().owners.clone()
    }

    pub(crate) fn trespasses(&self) -> Vec<String> {
        self.lock().trespasses.clone()
    }

    /// A pod that nobody asked for.
    pub(crate) fn plant(&self, id: PodId) {
        let state = PodState::default();
        self.lock().pods.insert(id.uid.clone(), Running { id, state });
    }
}

impl Fake {
    pub(crate) fn new(world: &Arc<World>, replica: u32) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            replica,
            host: Mutex::default(),
        })
    }

    /// Ends a container by itself.
    pub(crate) fn exit(&self, uid: &str, container: &str, code: i32) {
        let (id, observed) = {
            let mut state = self.world.lock();
            let pod = state.pods.get_mut(uid).unwrap();
            let known = pod.state.containers.get_mut(container).unwrap();
            known.doing = Doing::Ended(exit(code));
            (pod.id.clone(), known.clone())
        };
        self.report(Report::Container {
            pod: id,
            name: container.into(),
            observed,
        });
    }

    pub(crate) fn report(&self, report: Report) {
        let host = self.host.lock().unwrap().clone().unwrap();
        host.report(report);
    }

    /// Notes a call; does its trick, if it has one. Tells what nonsense the answer must be.
    async fn asked(&self, call: &'static str, subject: String, node: &str) -> Result<Option<Trick>, Fault> {
        let under_way = UnderWay {
            world: self.world.clone(),
            what: (self.replica, call, node.to_owned()),
        };
        let (trick, pauses) = {
            let mut state = self.world.lock();
            state.calls.push((self.replica, call, subject.clone()));
            let owner = *state.owners.entry(node.to_owned()).or_insert(self.replica);
            if owner != self.replica {
                let trespass = format!("{call} {subject} by {} on {node} of {owner}", self.replica);
                state.trespasses.push(trespass);
            }
            state.under_way.push(under_way.what.clone());
            let count = state
                .under_way
                .iter()
                .filter(|(_, made, _)| *made == call)
                .count();
            let pauses = state.watched.get_mut(call).map_or(0, |(pauses, most)| {
                *most = count.max(*most);
                *pauses
            });
            let tricks = state.tricks.get_mut(&(call, subject.clone()));
            (tricks.and_then(VecDeque::pop_front), pauses)
        };
        for _ in 0..pauses {
            tokio::task::yield_now().await;
        }
        match trick {
            None => Ok(None),
            Some(nonsense @ (Trick::Nonsense | Trick::Taken | Trick::Foreign)) => Ok(Some(nonsense)),
            Some(Trick::Later) => Err(Fault::new(FaultKind::Later, "ErrFake", "it may work later")),
            Some(Trick::Never) => Err(Fault::new(FaultKind::Never, "ErrFake", "it never will")),
            Some(Trick::Hang) => std::future::pending().await,
            Some(Trick::Panic) => panic!("told to panic in {call} {subject}"),
        }
    }
}

/// A call that has not ended.
struct UnderWay {
    world: Arc<World>,
    what: (u32, &'static str, String),
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        if let Some(at) = state.under_way.iter().position(|what| *what == self.what) {
            state.under_way.swap_remove(at);
        }
    }
}

fn exit(code: i32) -> Exit {
    Exit {
        code,
        reason: String::new(),
        message: String::new(),
        started_at: None,
        at: Timestamp::now(),
    }
}

fn unsupported<T: Send + 'static>() -> BoxFuture<'static, Result<T, Fault>> {
    let fault = Fault::new(FaultKind::Unsupported, "Unsupported", "the fake cannot do that");
    Box::pin(std::future::ready(Err(fault)))
}

impl Provider for Fake {
    fn runtime(&self) -> Runtime {
        Runtime {
            name: "fake".to_owned(),
            version: "1".to_owned(),
        }
    }

    fn connect(&self, host: Arc<dyn Host>) {
        *self.host.lock().unwrap() = Some(host);
    }

    fn node(&self, _: &str) -> NodeTemplate {
        let capacity = [("cpu", "8"), ("memory", "16Gi"), ("pods", "110")];
        NodeTemplate {
            capacity: capacity
                .map(|(name, quantity)| (name.to_owned(), quantity.to_owned()))
                .into(),
            ..NodeTemplate::default()
        }
    }

    fn ping<'a>(&'a self, node: &'a str) -> Served<'a, NodeHealth> {
        Box::pin(async move {
            self.asked("ping", node.to_owned(), node).await?;
            Ok(NodeHealth::default())
        })
    }

    fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        let annotations = pod.metadata.annotations.as_ref();
        match annotations.and_then(|annotations| annotations.get("refuse")) {
            Some(why) => Err(Refusal {
                reason: "Refused".to_owned(),
                message: why.clone(),
            }),
            None => Ok(()),
        }
    }

    fn list<'a>(&'a self, node: &'a str) -> Served<'a, Vec<PodId>> {
        Box::pin(async move {
            self.asked("list", node.to_owned(), node).await?;
            let state = self.world.lock();
            let pods = state.pods.values().map(|pod| pod.id.clone());
            Ok(pods.filter(|pod| *pod.node == *node).collect())
        })
    }

    fn status<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Option<PodState>> {
        Box::pin(async move {
            let nonsense = self.asked("status", pod.id.to_string(), &pod.id.node).await?;
            let state = self.world.lock();
            let mut known = state.pods.get(&pod.id.uid).map(|pod| pod.state.clone());
            if nonsense.is_some() {
                let observed = Observed {
                    id: ContainerId("fake://nobody".into()),
                    doing: Doing::Running {
                        since: Timestamp::now(),
                    },
                };
                let state = known.get_or_insert_default();
                state.containers.insert("nobody".to_owned(), observed);
            }
            Ok(known)
        })
    }

    fn create<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, Sandbox> {
        Box::pin(async move {
            let nonsense = self.asked("create", pod.id.to_string(), &pod.id.node).await?;
            if nonsense.is_some() {
                let addresses = vec![Ipv4Addr::UNSPECIFIED.into()];
                return Ok(Sandbox { addresses });
            }
            let mut state = self.world.lock();
            let number = u8::try_from(state.pods.len() % 250 + 1).unwrap();
            let sandbox = Sandbox {
                addresses: vec![Ipv4Addr::new(10, 77, 0, number).into()],
            };
            let running = state.pods.entry(pod.id.uid.clone()).or_insert_with(|| Running {
                id: pod.id.clone(),
                state: PodState {
                    sandbox,
                    containers: BTreeMap::new(),
                },
            });
            Ok(running.state.sandbox.clone())
        })
    }

    fn update<'a>(&'a self, pod: &'a PodRequest) -> Served<'a, ()> {
        Box::pin(async move {
            self.asked("update", pod.id.to_string(), &pod.id.node).await?;
            Ok(())
        })
    }

    fn start<'a>(&'a self, request: &'a StartRequest) -> Served<'a, Started> {
        Box::pin(async move {
            let id = &request.pod.id;
            let subject = format!("{id}/{}", request.container.name);
            let nonsense = self.asked("start", subject, &id.node).await?;
            let mut state = self.world.lock();
            state.containers += 1;
            let number = state.containers;
            let at = Timestamp::now();
            let pod = state.pods.get_mut(&id.uid);
            let name = match nonsense {
                None => format!("fake://{number}"),
                Some(Trick::Foreign) => format!("docker://{number}"),
                Some(Trick::Taken) => {
                    let others = pod.iter().flat_map(|pod| &pod.state.containers);
                    let mut others = others.filter(|(name, _)| **name != request.container.name);
                    let (_, other) = others.next().expect("another container runs");
                    other.id.to_string()
                }
                Some(_) => number.to_string(),
            };
            let container = ContainerId(name.into());
            if nonsense.is_none()
                && let Some(pod) = pod
            {
                let observed = Observed {
                    id: container.clone(),
                    doing: Doing::Running { since: at },
                };
                pod.state
                    .containers
                    .insert(request.container.name.clone(), observed);
            }
            Ok(Started {
                id: container,
                image_id: String::new(),
                at,
            })
        })
    }

    fn stop<'a>(&'a self, pod: &'a PodId, container: &'a ContainerId, _: Duration) -> Served<'a, Exit> {
        Box::pin(async move {
            self.asked("stop", pod.to_string(), &pod.node).await?;
            let mut state = self.world.lock();
            if let Some(pod) = state.pods.get_mut(&pod.uid) {
                for known in pod.state.containers.values_mut() {
                    if known.id == *container {
                        known.doing = Doing::Ended(exit(0));
                    }
                }
            }
            Ok(exit(0))
        })
    }

    fn release(&self, node: &str) {
        let mut state = self.world.lock();
        state.calls.push((self.replica, "release", node.to_owned()));
        let amid = state
            .under_way
            .iter()
            .filter(|(by, _, on)| *by == self.replica && on == node);
        let amid: Vec<String> = amid
            .map(|(_, call, _)| format!("{node} was released amid {call}"))
            .collect();
        state.trespasses.extend(amid);
        if state.owners.get(node) == Some(&self.replica) {
            state.owners.remove(node);
        }
    }

    fn delete<'a>(&'a self, pod: &'a PodId) -> Served<'a, ()> {
        Box::pin(async move {
            self.asked("delete", pod.to_string(), &pod.node).await?;
            self.world.lock().pods.remove(&pod.uid);
            Ok(())
        })
    }

    fn logs<'a>(&'a self, _: &'a PodId, _: &'a ContainerId, _: &'a LogOptions) -> Served<'a, LogStream> {
        unsupported()
    }

    fn exec<'a>(
        &'a self,
        pod: &'a PodId,
        _: &'a ContainerId,
        command: &'a [String],
        _: ExecIo,
    ) -> Served<'a, i32> {
        Box::pin(async move {
            self.asked("exec", pod.to_string(), &pod.node).await?;
            Ok(i32::from(command.first().is_some_and(|word| word == "false")))
        })
    }

    fn attach<'a>(&'a self, _: &'a PodId, _: &'a ContainerId, _: ExecIo) -> Served<'a, i32> {
        unsupported()
    }

    fn port_forward<'a>(&'a self, _: &'a PodId, _: u16) -> Served<'a, Box<dyn Duplex>> {
        unsupported()
    }

    fn stats<'a>(&'a self, _: &'a str) -> Served<'a, NodeStats> {
        unsupported()
    }
}
