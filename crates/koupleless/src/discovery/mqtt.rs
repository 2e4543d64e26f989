//! What bases say by way of the MQTT broker.

use super::Hub;
use super::heartbeat::announcement;
use crate::core::registry::Observation;
use crate::core::{Connection, Identity};
use evenkeel_arklet::heartbeat::Metadata;
use evenkeel_arklet::mqtt::{Event, EventKind};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Called when a base asks for its baseline.
pub type Wanted = Arc<dyn Fn(Metadata) + Send + Sync>;

/// What the client of the broker hears.
pub struct MqttHeartbeats {
    /// As [`MqttTunnel::new`](evenkeel_arklet::mqtt::MqttTunnel::new) gives it.
    pub events: mpsc::Receiver<Event>,
    /// Whether the broker is connected:
    /// [`MqttTunnel::connected`](evenkeel_arklet::mqtt::MqttTunnel::connected).
    pub connected: watch::Receiver<bool>,
    /// Who answers bases that ask for their baseline. Returns at once.
    pub wanted: Option<Wanted>,
}

impl std::fmt::Debug for MqttHeartbeats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MqttHeartbeats").finish_non_exhaustive()
    }
}

/// Tells whether the broker is reached, until the client has ended.
pub(super) async fn watch_link(hub: Arc<Hub>, mut connected: watch::Receiver<bool>) {
    loop {
        let stands = *connected.borrow_and_update();
        hub.report(Observation::Broker { stands });
        if connected.changed().await.is_err() {
            return;
        }
    }
}

/// Listens until the client has ended.
pub(super) async fn listen(hub: Arc<Hub>, mut hearts: MqttHeartbeats) {
    while let Some(event) = hearts.events.recv().await {
        if !event.environment.eq_ignore_ascii_case(&hub.env) {
            continue;
        }
        let identity = match Identity::new(&event.identity) {
            Ok(identity) => identity,
            Err(error) => {
                tracing::debug!(%error, "a base on MQTT is passed over");
                continue;
            }
        };
        match event.kind {
            // A broker with access rules vouches for the topic, for nothing else.
            EventKind::Heart(heartbeat) if heartbeat.metadata.identity == event.identity => {
                match announcement(&heartbeat) {
                    Ok(announcement) => hub.report(Observation::MqttHeartbeat(announcement)),
                    Err(error) => tracing::debug!(%identity, %error, "a heart is passed over"),
                }
            }
            EventKind::BaselineWanted(metadata) if metadata.identity == event.identity => {
                if let Some(wanted) = &hearts.wanted {
                    wanted(metadata);
                }
            }
            EventKind::Heart(_) | EventKind::BaselineWanted(_) => {
                tracing::debug!(%identity, "a message in the name of another base is passed over");
            }
            EventKind::Health(_) => hub.answered_by_broker(&identity),
        }
    }
}

impl Hub {
    /// A base that is reached by the broker has answered.
    fn answered_by_broker(&self, identity: &Identity) {
        let endpoint = {
            let state = self.lock();
            let node = state.registry.node_of(identity);
            let base = node.and_then(|node| state.registry.base(node));
            base.map(|base| base.endpoint.clone())
        };
        if let Some(endpoint) = endpoint.filter(|endpoint| endpoint.by == Connection::Mqtt) {
            self.report(Observation::Answered {
                identity: identity.clone(),
                endpoint,
                says: None,
            });
        }
    }
}
