//! The client over MQTT, against a broker of the test's own and against Mosquitto.

mod base;
mod broker;
mod conversation;
mod misfortune;
mod security;

use evenkeel_arklet::mqtt::{Event, EventKind, MqttOptions};
use evenkeel_arklet::{Base, MqttTunnel};
use evenkeel_testkit::becomes;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SECONDS: Duration = Duration::from_secs(30);

/// A client that runs.
struct Controller {
    tunnel: MqttTunnel,
    events: mpsc::Receiver<Event>,
    shutdown: CancellationToken,
    link: JoinHandle<()>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.link.abort();
    }
}

fn options(broker: SocketAddr) -> MqttOptions {
    let mut options = MqttOptions::new(broker.ip().to_string(), broker.port(), "controller-0", "DEV");
    options.reconnect = Duration::from_millis(20);
    options.reconnect_most = Duration::from_millis(100);
    options
}

impl Controller {
    fn start(options: MqttOptions) -> Self {
        let (tunnel, link, events) = MqttTunnel::new(options).unwrap();
        let shutdown = CancellationToken::new();
        Self {
            tunnel,
            events,
            link: tokio::spawn(link.run(shutdown.clone())),
            shutdown,
        }
    }

    /// Until it is connected or not.
    async fn until(&self, up: bool) {
        becomes("the connection", SECONDS, self.tunnel.connected(), |connected| {
            *connected == up
        })
        .await;
    }

    async fn event(&mut self) -> Event {
        evenkeel_testkit::ends("it ends", self.events.recv())
            .await
            .unwrap()
    }

    /// The next sign of life.
    async fn heart(&mut self) -> Event {
        loop {
            let event = self.event().await;
            if matches!(event.kind, EventKind::Heart(_)) {
                return event;
            }
        }
    }
}

fn base(identity: &str) -> Base {
    Base {
        identity: identity.to_owned(),
        environment: "Dev".to_owned(),
        address: None,
    }
}

fn heart(identity: &str) -> String {
    json!({"data": {"baseMetadata": {"clusterName": "default", "identity": identity, "name": "TO_BE_IMPLEMENTED",
        "version": "1.0.0"}, "localHostName": "h", "localIP": "192.0.2.2", "port": 0, "state": "activated"},
        "publishTimestamp": 1})
    .to_string()
}

/// A reply to an operation.
fn operation(command: &str, body: &Value, response: &Value) -> (&'static str, String) {
    let data = json!({"command": command, "bizName": body["bizName"], "bizVersion": body["bizVersion"], "response": response});
    (
        "bizOperation",
        json!({"data": data, "publishTimestamp": 1}).to_string(),
    )
}

fn done(body: &Value) -> Value {
    json!({"code": "SUCCESS", "data": {"code": "SUCCESS", "message": "", "bizInfos": [
        {"bizName": body["bizName"], "bizVersion": body["bizVersion"], "bizState": "ACTIVATED"}]}})
}
