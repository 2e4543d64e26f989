//! The connection: kept up, subscribed, and read.

use super::back_off::BackOff;
use super::message::{Body, Message};
use super::options::{MqttError, MqttOptions, SettingNames};
use super::waiting::{Expect, Key, Reply, Waiting};
use super::{Counts, Event, EventKind, topic};
use crate::envelope::DecodeError;
use crate::health::Health;
use rumqttc::{
    AsyncClient, ConnectReturnCode, ConnectionError, EventLoop, Packet, Publish, QoS, SubscribeFilter,
    SubscribeReasonCode,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long a broker may take to confirm subscriptions.
const SUBSCRIBING: Duration = Duration::from_secs(10);
/// How long a broker may take to read our DISCONNECT.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a broker may take to accept a connection, seconds.
const CONNECTING: u64 = 10;

/// What the connection and the callers share.
pub(super) struct Shared {
    pub(super) options: MqttOptions,
    pub(super) client: AsyncClient,
    pub(super) connected: watch::Sender<bool>,
    pub(super) permits: Semaphore,
    counts: Mutex<Counts>,
    waiting: Mutex<Waiting<oneshot::Sender<Reply>>>,
}

/// A call that waits for its reply. Dropping it ends the waiting.
pub(super) struct Pending<'a> {
    shared: &'a Shared,
    key: Key,
    number: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.shared.waiting().remove(&self.key, self.number);
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting<oneshot::Sender<Reply>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more; true whenever the number is a power of two, which is often enough to log it.
    fn one_more(&self, of: impl FnOnce(&mut Counts) -> &mut u64) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = of(&mut counts);
        *count += 1;
        count.is_power_of_two()
    }

    /// Waits for a reply until what is returned is dropped. `None`: the reply could not be distinguished from
    /// another call's.
    pub(super) fn wait(&self, key: Key, sender: oneshot::Sender<Reply>) -> Option<Pending<'_>> {
        let number = self.waiting().add(key.clone(), sender)?;
        Some(Pending {
            shared: self,
            key,
            number,
        })
    }

    fn hand_out(&self, key: &Key, reply: Reply) {
        let mut waiting = self.waiting().take(key);
        let last = waiting.pop();
        for other in waiting {
            if let Some(reply) = reply.again() {
                // Whoever has left since does not mind.
                let _ = other.send(reply);
            }
        }
        let taken = last.is_some_and(|last| last.send(reply).is_ok());
        // Events are news for others, too.
        if !taken && self.one_more(|counts| &mut counts.unclaimed) {
            tracing::info!(
                base = key.identity,
                answer = ?key.expect,
                "ignoring an answer for which nobody waits: it came twice or too late, or another replica had asked"
            );
        }
    }
}

/// The connection to the broker. [`MqttLink::run`] must run for anything to happen.
pub struct MqttLink {
    eventloop: EventLoop,
    shared: Arc<Shared>,
    events: mpsc::Sender<Event>,
}

/// Why a session ended.
enum End {
    Shutdown,
    Lost(String),
}

/// Why there is no connection, and which setting to check.
fn reason(error: &ConnectionError, names: &SettingNames) -> String {
    let ConnectionError::ConnectionRefused(code) = error else {
        return match error {
            ConnectionError::NetworkTimeout => {
                format!(
                    "the broker does not answer within {CONNECTING} s; is it MQTT that is spoken at this port?"
                )
            }
            other => other.to_string(),
        };
    };
    let why = match code {
        ConnectReturnCode::RefusedProtocolVersion => {
            "it demands another protocol level than 4 (MQTT 3.1.1), the one that bases speak, too".to_owned()
        }
        ConnectReturnCode::BadClientId => format!("it does not accept the client ID ({})", names.client_id),
        ConnectReturnCode::ServiceUnavailable => "it is not ready".to_owned(),
        ConnectReturnCode::BadUserNamePassword => format!(
            "user name or password are wrong or missing ({}, {})",
            names.username, names.password
        ),
        ConnectReturnCode::NotAuthorized => format!("the user may not connect ({})", names.username),
        ConnectReturnCode::Success => "it gives no reason".to_owned(),
    };
    format!("the broker refuses the connection: {why}")
}

impl MqttLink {
    pub(super) fn new(
        options: MqttOptions,
        events: mpsc::Sender<Event>,
    ) -> Result<(Self, Arc<Shared>), MqttError> {
        let options = options.checked()?;
        let (client, mut eventloop) = AsyncClient::builder(options.wire()?)
            .capacity(options.calls)
            .try_build()
            .map_err(|_| MqttError::Option("settings contradict each other"))?;
        eventloop.network_options.set_connection_timeout(CONNECTING);
        eventloop.network_options.set_tcp_nodelay(true);
        let shared = Arc::new(Shared {
            permits: Semaphore::new(options.calls.min(Semaphore::MAX_PERMITS)),
            options,
            client,
            connected: watch::Sender::new(false),
            counts: Mutex::default(),
            waiting: Mutex::default(),
        });
        let link = Self {
            eventloop,
            shared: Arc::clone(&shared),
            events,
        };
        Ok((link, shared))
    }

    /// Connects, and connects again, until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let options = self.shared.options.clone();
        let mut back_off = BackOff::new(options.reconnect, options.reconnect_most);
        loop {
            let begin = Instant::now();
            let end = self.session(&shutdown).await;
            self.shared.connected.send_replace(false);
            let why = match end {
                End::Shutdown => return self.leave().await,
                End::Lost(why) => why,
            };
            self.eventloop.clean();
            let pause = back_off.pause(begin.elapsed(), rand::random());
            let (host, port) = (&options.host, options.port);
            self.shared.one_more(|counts| &mut counts.disconnects);
            tracing::warn!(
                host,
                port,
                reason = why,
                ?pause,
                "no connection to the MQTT broker, trying again"
            );
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = sleep(pause) => {}
            }
            // Certificates and passwords are replaced while we run.
            match options.wire() {
                Ok(wire) => self.eventloop.mqtt_options = wire,
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the certificates or the password for the MQTT broker cannot be read: those read before are used"
                ),
            }
        }
    }

    async fn session(&mut self, shutdown: &CancellationToken) -> End {
        let patience = sleep(Duration::ZERO);
        let mut patience = std::pin::pin!(patience);
        let mut subscribing = false;
        loop {
            let event = tokio::select! {
                biased;
                () = shutdown.cancelled() => return End::Shutdown,
                () = &mut patience, if subscribing => {
                    return End::Lost(format!("subscriptions not confirmed within {SUBSCRIBING:?}"));
                }
                event = self.eventloop.poll() => event,
            };
            match event {
                Err(error) => return End::Lost(reason(&error, &self.shared.options.names)),
                Ok(rumqttc::Event::Incoming(Packet::ConnAck(_))) => {
                    // Sessions are clean: the broker has forgotten all subscriptions, if ever it had any.
                    if let Err(error) = self.shared.client.try_subscribe_many(self.filters()) {
                        return End::Lost(error.to_string());
                    }
                    subscribing = true;
                    patience.as_mut().reset(tokio::time::Instant::now() + SUBSCRIBING);
                }
                Ok(rumqttc::Event::Incoming(Packet::SubAck(ack))) => {
                    let refused = |code: &SubscribeReasonCode| *code == SubscribeReasonCode::Failure;
                    if let Some(nth) = ack.return_codes.iter().position(refused) {
                        let filter = self.filters().nth(nth).map(|filter| filter.path);
                        return End::Lost(format!("subscription refused: {}", filter.unwrap_or_default()));
                    }
                    subscribing = false;
                    self.shared.connected.send_replace(true);
                    tracing::info!(host = self.shared.options.host, "connected to the MQTT broker");
                }
                Ok(rumqttc::Event::Incoming(Packet::Publish(publish))) => self.receive(&publish),
                Ok(_) => {}
            }
        }
    }

    fn filters(&self) -> impl Iterator<Item = SubscribeFilter> {
        let environments = &self.shared.options.environments;
        environments
            .iter()
            .flat_map(|environment| topic::filters(environment))
            .map(|filter| SubscribeFilter::new(filter, QoS::AtLeastOnce))
    }

    async fn leave(&mut self) {
        if self.shared.client.try_disconnect().is_err() {
            return;
        }
        let farewell = async { while self.eventloop.poll().await.is_ok() {} };
        // A broker that does not read is left without.
        let _ = timeout(FAREWELL, farewell).await;
    }

    /// Takes one message. One that cannot be read is counted and has no other effect.
    fn receive(&self, publish: &Publish) {
        let name = String::from_utf8_lossy(&publish.topic);
        if publish.retain {
            if self.shared.one_more(|counts| &mut counts.retained) {
                tracing::warn!(topic = %name, "ignoring a retained message");
            }
            return;
        }
        let read = topic::parse(&name)
            .ok_or(DecodeError::Missing("a known topic"))
            .and_then(|from| {
                let message = Message::decode(from.kind, &publish.payload)?;
                if message
                    .identity()
                    .is_some_and(|identity| identity != from.identity)
                {
                    return Err(DecodeError::Shape {
                        what: "the identity",
                        wanted: "that of the topic",
                    });
                }
                Ok((from, message))
            });
        match read {
            Ok((from, message)) => self.dispatch(from, message),
            Err(error) => self.malformed(&name, &error),
        }
    }

    fn malformed(&self, topic: &str, error: &DecodeError) {
        if self.shared.one_more(|counts| &mut counts.malformed) {
            let error = error as &dyn std::error::Error;
            tracing::warn!(topic, error, "ignoring a message that cannot be read");
        }
    }

    fn dispatch(&self, from: topic::From<'_>, message: Message) {
        let key = |expect| Key {
            environment: from.environment.to_owned(),
            identity: from.identity.to_owned(),
            expect,
        };
        let published_ms = message.published_ms;
        let emit = |kind| {
            self.emit(Event {
                environment: from.environment.to_owned(),
                identity: from.identity.to_owned(),
                received: Instant::now(),
                published_ms,
                kind,
            });
        };
        match message.body {
            Body::Heart(heartbeat) => emit(EventKind::Heart(heartbeat)),
            Body::QueryBaseline(metadata) => emit(EventKind::BaselineWanted(metadata)),
            Body::Health(envelope) => {
                if let Some(Ok(health)) = envelope.data.as_ref().map(Health::read) {
                    emit(EventKind::Health(Box::new(health)));
                }
                self.shared
                    .hand_out(&key(Expect::Health), Reply::Envelope(Ok(envelope)));
            }
            Body::Modules(list) => self.shared.hand_out(&key(Expect::Modules), Reply::Modules(list)),
            Body::Operation { command, id, answer } => self
                .shared
                .hand_out(&key(Expect::Operation { command, id }), Reply::Envelope(answer)),
            Body::Batch(answer) => self.shared.hand_out(&key(Expect::Batch), Reply::Envelope(answer)),
        }
    }

    /// Reading from the broker never waits for the receiver of events: signs of life come again.
    fn emit(&self, event: Event) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.events.try_send(event)
            && self.shared.one_more(|counts| &mut counts.overflowed)
        {
            tracing::warn!(
                base = event.identity,
                "too many messages of bases wait, one is dropped"
            );
        }
    }
}
