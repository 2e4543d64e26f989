//! The MQTT tunnel: a base as a client of a broker, with the topics and payloads of arklet-tunnel-mqtt.

use super::bean::bean;
use super::engine::{Command, Output, Processed, name_constants};
use super::heartbeat::{metadata, status};
use super::live::Live;
use super::world::{Carrier, Moment};
use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, Packet, Publish, PublishOptions, QoS};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How a base reaches its broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqttTunnel {
    /// The broker.
    pub broker: SocketAddr,
    /// `koupleless.arklet.mqtt.client.prefix`: the client id is this, `@@@` and the identity.
    pub client_prefix: String,
    /// User name and password; arklet cannot do without, a broker may not look.
    pub credentials: (String, String),
    /// Between two heartbeats; arklet's are 10 s apart.
    pub heart: Duration,
    /// Before the next attempt to connect.
    pub retry: Duration,
}

impl MqttTunnel {
    /// arklet's intervals, and anybody's credentials.
    pub fn to(broker: SocketAddr) -> Self {
        Self {
            broker,
            client_prefix: "koupleless".to_owned(),
            credentials: ("user".to_owned(), "password".to_owned()),
            heart: Duration::from_secs(10),
            retry: Duration::from_millis(100),
        }
    }
}

/// The largest packet.
const LARGEST: usize = 16 << 20;

/// Keeps a connection to the broker the base is told of, for as long as the base lives.
pub(crate) fn run(live: &Arc<Live>) {
    let serving = live.clone();
    live.spawn(async move {
        let mut told = serving.inner.mqtt.subscribe();
        loop {
            let setup = told.borrow_and_update().clone();
            let tunnel = async {
                match setup {
                    Some(setup) => tunnel(&serving, &setup).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = told.changed() => if changed.is_err() { return },
                () = tunnel => {}
            }
        }
    });
}

/// What publishes.
#[derive(Clone)]
struct Outlet {
    live: Arc<Live>,
    client: AsyncClient,
    connected: Arc<AtomicBool>,
    /// `koupleless_<env>/<identity>`.
    prefix: String,
}

async fn tunnel(live: &Arc<Live>, setup: &MqttTunnel) {
    let identity = &live.inner.identity;
    let broker = (setup.broker.ip().to_string(), setup.broker.port());
    let mut options = MqttOptions::new(format!("{}@@@{}", setup.client_prefix, identity.id), broker);
    options
        .set_clean_session(true)
        .set_keep_alive(60)
        .set_inflight(1000)
        .set_max_packet_size(LARGEST, LARGEST)
        .set_credentials(&setup.credentials.0, setup.credentials.1.clone().into_bytes());
    let (client, events) = AsyncClient::builder(options).unbounded().build();
    let outlet = Outlet {
        live: live.clone(),
        client,
        connected: Arc::default(),
        prefix: format!("koupleless_{}/{}", identity.env.to_lowercase(), identity.id),
    };
    let (first, connected) = tokio::sync::oneshot::channel();
    let hearts = async {
        // MqttHeartbeats begin with the first connection, and go on without one.
        if connected.await.is_ok() {
            outlet.hearts(setup.heart).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = hearts => {}
        () = outlet.serve(events, first, setup.retry) => {}
    }
}

impl Outlet {
    async fn serve(&self, mut events: EventLoop, first: tokio::sync::oneshot::Sender<()>, retry: Duration) {
        let mut first = Some(first);
        loop {
            match events.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(_))) => {
                    self.connected.store(true, Ordering::Release);
                    self.subscribe("+");
                    self.subscribe("base/baseline");
                    if let Some(first) = first.take() {
                        let identity = &self.live.inner.identity;
                        self.publish("queryBaseline", metadata(identity));
                        // The hearts end with this.
                        let _ended = first.send(());
                    }
                }
                Ok(Event::Incoming(Packet::Publish(message))) => {
                    let outlet = self.clone();
                    self.live.spawn(async move { outlet.handle(&message).await });
                }
                Ok(_) => {}
                Err(_) => {
                    self.connected.store(false, Ordering::Release);
                    tokio::time::sleep(retry).await;
                }
            }
        }
    }

    fn subscribe(&self, below: &str) {
        let filter = format!("{}/{below}", self.prefix);
        // The queue has no end; the event loop is this task's own.
        let _queued = self.client.try_subscribe(filter, QoS::AtLeastOnce);
    }

    /// Publishes with QoS 1; while there is no connection, to nobody, as Paho does.
    fn publish(&self, topic: &str, data: Value) {
        if !self.connected.load(Ordering::Acquire) {
            return;
        }
        let mut message = bean([
            ("data", data),
            (
                "publishTimestamp",
                json!(self.live.inner.at(Moment::Published, topic)),
            ),
        ]);
        name_constants(&mut message);
        let topic = format!("{}/base/{topic}", self.prefix);
        let payload = message.to_string();
        let _queued = self
            .client
            .try_publish(topic, payload, PublishOptions::at_least_once());
    }

    async fn hearts(&self, every: Duration) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut beats = self.live.inner.beats.subscribe();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = beats.changed() => if changed.is_err() { return },
            }
            // The tunnel does not know the port.
            self.publish("heart", status(&self.live.inner.identity, 0));
        }
    }

    async fn handle(&self, message: &Publish) {
        let topic = String::from_utf8_lossy(&message.topic).into_owned();
        let command = topic.rsplit('/').next().unwrap_or_default();
        let payload = String::from_utf8_lossy(&message.payload).into_owned();
        self.live.inner.note(Carrier::Mqtt, command, &payload);
        let hangs = || self.live.inner.conduct.borrow().hangs(command);
        if hangs() {
            return;
        }
        // What cannot be read is thrown away with the exception.
        let Ok(content) = serde_json::from_str::<Value>(&payload) else {
            return;
        };
        let answer = match (command, &content) {
            ("installBiz" | "uninstallBiz", Value::Object(_)) => self.operate(command, &content).await,
            ("baseline", Value::Array(_)) => {
                let batch = json!({ "bizList": content });
                let result = self.process(Command::Batch, &batch).await;
                let data = bean([
                    ("command", json!(Command::Batch.id())),
                    ("response", response(result)),
                ]);
                Some(("batchInstallBizResponse", data))
            }
            ("health", Value::Object(_)) => match self.process(Command::Health, &content).await {
                Ok(output) => Some(("health", response(Ok(output)))),
                Err(_) => None,
            },
            ("queryAllBiz", _) => {
                let list = self.live.with(|engine, _| engine.simple_all());
                Some(("simpleBiz", list))
            }
            // Thrown, and told to nobody.
            _ => None,
        };
        if let Some((topic, data)) = answer.filter(|_| !hangs()) {
            self.publish(topic, data);
        }
    }

    async fn operate(&self, command: &str, content: &Value) -> Option<(&'static str, Value)> {
        let known = Command::named(command)?;
        let result = self.process(known, content).await;
        let data = bean([
            ("command", json!(command)),
            ("bizName", json!(content["bizName"].as_str())),
            ("bizVersion", json!(content["bizVersion"].as_str())),
            ("response", response(result)),
        ]);
        Some(("bizOperation", data))
    }

    async fn process(&self, command: Command, content: &Value) -> Processed {
        let step = self.live.begin(command, Some(content), Carrier::Mqtt);
        self.live.drive(step).await
    }
}

/// A result as this tunnel tells it; unlike over HTTP, what was thrown is a failure like others.
fn response(result: Processed) -> Value {
    match result {
        Ok(Output::Success(data)) => bean([("code", json!("SUCCESS")), ("data", data)]),
        Ok(Output::Failed { data, message }) => bean([
            ("code", json!("FAILED")),
            ("data", data),
            ("message", json!(message)),
        ]),
        Err(thrown) => {
            let data = bean([("code", json!("FAILED")), ("message", json!(thrown.trace()))]);
            bean([
                ("code", json!("FAILED")),
                ("data", data),
                ("message", json!(thrown.message.as_deref())),
            ])
        }
    }
}
