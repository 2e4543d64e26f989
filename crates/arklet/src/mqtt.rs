//! The client over MQTT 3.1.1: one connection to a broker, to which all bases are connected too.
//!
//! Commands go out at QoS 1 and are **never retained**: a base that reconnects would carry out a retained one
//! again. Replies carry no identity of the request, so they are matched by base, command and module; callers
//! hold one operation per base and module at a time. A reply that was published while this side was not
//! connected is lost; the call ends at its deadline.
//!
//! Times inside messages are those of other machines' clocks and decide nothing: what arrives counts from its
//! arrival. What was retained says nothing about now and is ignored.

mod back_off;
mod link;
mod message;
mod options;
mod topic;
mod waiting;

pub use link::MqttLink;
pub use options::{Credentials, MqttError, MqttOptions, Password, SettingNames, TlsFiles};

use crate::biz::ModuleList;
use crate::command::{Command, HealthQuery, Install, InvalidRequest, ModuleId, Request};
use crate::health::Health;
use crate::heartbeat::{Heartbeat, Metadata};
use crate::outcome::{BatchOutcome, Outcome};
use crate::traced::traced;
use crate::tunnel::{Answer, Base, ErrorKind, Tunnel, TunnelError, answered};
use futures::FutureExt as _;
use link::Shared;
use rumqttc::PublishOptions;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use waiting::{Expect, Key, Reply};

/// A message that a base published by itself, or that is of interest to others than who asked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The environment in its topic, in lower case.
    pub environment: String,
    /// The base, by its topic: a broker with access rules vouches for it.
    pub identity: String,
    /// When it came, by this machine's clock.
    pub received: Instant,
    /// When it was published by the base's clock, milliseconds since the epoch. For showing skew; decides
    /// nothing.
    pub published_ms: Option<i64>,
    /// What the base says.
    pub kind: EventKind,
}

/// Kinds of [`Event`].
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// A sign of life, every 10 s.
    Heart(Heartbeat),
    /// The base has connected for the first time and wants to know what to install.
    BaselineWanted(Metadata),
    /// An answer to `health`, whoever asked.
    Health(Box<Health>),
}

/// What has been dropped since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that the broker had kept.
    pub retained: u64,
    /// Messages that could not be read, or came under a topic that is none of ours.
    pub malformed: u64,
    /// Replies for which nobody waited (any more).
    pub unclaimed: u64,
    /// Events that found the channel full.
    pub overflowed: u64,
    /// Connections that were lost or not made.
    pub disconnects: u64,
}

/// Calls bases through a broker. Clones share one connection, which [`MqttLink::run`] keeps.
#[derive(Clone)]
pub struct MqttTunnel {
    shared: Arc<Shared>,
}

impl MqttTunnel {
    /// A client, its connection, and the messages that bases publish by themselves. Nothing happens before
    /// the connection is run.
    pub fn new(options: MqttOptions) -> Result<(Self, MqttLink, mpsc::Receiver<Event>), MqttError> {
        let (events, receiver) = mpsc::channel(options.events.max(1));
        let (link, shared) = MqttLink::new(options, events)?;
        Ok((Self { shared }, link, receiver))
    }

    /// The first environment that is subscribed to.
    pub fn environment(&self) -> &str {
        self.shared
            .options
            .environments
            .first()
            .map_or("", String::as_str)
    }

    /// Whether the broker is connected and all subscriptions stand.
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.shared.connected.subscribe()
    }

    /// What has been dropped so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    async fn call(&self, base: &Base, call: Call) -> Result<Reply, TunnelError> {
        traced(base, call.command, "MQTT", self.exchange(base, call)).await
    }

    async fn exchange(&self, base: &Base, call: Call) -> Result<Reply, TunnelError> {
        let command = call.command;
        let shared = &*self.shared;
        let error = |kind| base.error(command, kind);
        let busy = |reason| error(ErrorKind::Busy { reason });
        let invalid = |source| error(ErrorKind::Invalid(source));
        topic::check("identity", &base.identity).map_err(invalid)?;
        let environment = base.environment.to_lowercase();
        if !shared.options.environments.contains(&environment) {
            let over = "MQTT (its environment is not subscribed to)";
            return Err(error(ErrorKind::Unsupported { over }));
        }
        let body = call.body.to_string();
        if body.len() > options::MOST_REQUEST {
            return Err(invalid(InvalidRequest::TooLong(body.len())));
        }
        let Ok(_permit) = shared.permits.try_acquire() else {
            return Err(busy("too many calls wait"));
        };

        let mut connected = shared.connected.subscribe();
        let patience = shared.options.query.min(call.within);
        if !matches!(timeout(patience, connected.wait_for(|up| *up)).await, Ok(Ok(_))) {
            return Err(error(ErrorKind::NoBroker));
        }

        let key = Key {
            environment,
            identity: base.identity.clone(),
            expect: call.expect,
        };
        let expected = topic::answer(&key.environment, &key.identity, key.expect.kind());
        let topic = match command {
            Command::BatchInstallBiz => topic::baseline(&key.environment, &key.identity),
            _ => topic::command(&key.environment, &key.identity, command),
        };
        let (sender, reply) = oneshot::channel();
        let _waiting = shared
            .wait(key, sender)
            .ok_or_else(|| busy("one for the same module waits for its reply"))?;
        // Published in the same step as the connection was seen up: nothing is left in a queue by a caller
        // that has gone.
        let sent = shared
            .client
            .try_publish_tracked(topic, body, PublishOptions::at_least_once())
            .map_err(|_| busy("the broker does not keep up"))?;
        let answer = async {
            let mut reply = reply;
            tokio::select! {
                biased;
                reply = &mut reply => return reply.ok(),
                sent = sent.wait_completion_async() => if let Err(error) = sent { return Some(Reply::Lost(error.into())) },
            }
            reply.await.ok()
        };
        match timeout(call.within, answer).await {
            Ok(Some(Reply::Lost(source))) => Err(error(ErrorKind::Broken(source))),
            Ok(Some(reply)) => Ok(reply),
            // The sender lives as long as the guard.
            Ok(None) | Err(_) => Err(error(ErrorKind::Silent {
                topic: Some(expected),
                after: call.within,
            })),
        }
    }

    async fn operation(
        &self,
        base: &Base,
        request: &Request<'_>,
        id: &ModuleId,
        within: Duration,
    ) -> Result<Outcome, TunnelError> {
        let command = request.command();
        base.check(request)?;
        let call = Call {
            command,
            body: request.body(),
            expect: Expect::Operation {
                command: command.id().to_owned(),
                id: id.clone(),
            },
            within,
        };
        let envelope = self.call(base, call).await?.envelope(base, command)?;
        let asked = (command == Command::InstallBiz).then_some(id);
        Ok(Outcome::of(&envelope, asked))
    }
}

/// What is published, and what is waited for.
struct Call {
    command: Command,
    body: Value,
    expect: Expect,
    within: Duration,
}

impl Tunnel for MqttTunnel {
    /// A base that cannot measure itself publishes nothing, which ends as [`ErrorKind::Silent`].
    fn health<'a>(&'a self, base: &'a Base) -> Answer<'a, Health> {
        async move {
            let call = Call {
                command: Command::Health,
                body: Request::Health(HealthQuery::default()).body(),
                expect: Expect::Health,
                within: self.shared.options.query,
            };
            let envelope = self.call(base, call).await?.envelope(base, Command::Health)?;
            answered(base, Command::Health, &envelope, Health::read)
        }
        .boxed()
    }

    /// Of each module the latest record alone.
    fn modules<'a>(&'a self, base: &'a Base) -> Answer<'a, ModuleList> {
        async move {
            let call = Call {
                command: Command::QueryAllBiz,
                body: Request::Modules.body(),
                expect: Expect::Modules,
                within: self.shared.options.query,
            };
            self.call(base, call).await?.modules(base, Command::QueryAllBiz)
        }
        .boxed()
    }

    fn install<'a>(&'a self, base: &'a Base, install: &'a Install) -> Answer<'a, Outcome> {
        async move {
            let Some(id) = &install.id else {
                let anonymous = ErrorKind::Invalid(InvalidRequest::Anonymous);
                return Err(base.error(Command::InstallBiz, anonymous));
            };
            let request = Request::Install {
                install,
                request_id: None,
            };
            self.operation(base, &request, id, self.shared.options.install)
                .await
        }
        .boxed()
    }

    fn uninstall<'a>(&'a self, base: &'a Base, module: &'a ModuleId) -> Answer<'a, Outcome> {
        async move {
            let request = Request::Uninstall(module);
            self.operation(base, &request, module, self.shared.options.uninstall)
                .await
        }
        .boxed()
    }

    /// Bases have no such command over MQTT.
    fn switch<'a>(&'a self, base: &'a Base, _module: &'a ModuleId) -> Answer<'a, Outcome> {
        async move {
            let unsupported = ErrorKind::Unsupported { over: "MQTT" };
            Err(base.error(Command::SwitchBiz, unsupported))
        }
        .boxed()
    }

    /// The baseline: an array, which the base installs as a batch.
    fn batch<'a>(&'a self, base: &'a Base, installs: &'a [Install]) -> Answer<'a, BatchOutcome> {
        async move {
            base.check(&Request::Batch(installs))?;
            let list = installs.iter().map(|install| Value::Object(install.body()));
            let call = Call {
                command: Command::BatchInstallBiz,
                body: Value::Array(list.collect()),
                expect: Expect::Batch,
                within: self.shared.options.batch,
            };
            let reply = self.call(base, call).await?;
            let envelope = reply.envelope(base, Command::BatchInstallBiz)?;
            Ok(BatchOutcome::of(&envelope, installs))
        }
        .boxed()
    }
}
