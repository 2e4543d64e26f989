//! The broker on TCP.

use super::sessions::{Act, Connection, Published, Sessions};
use crate::ports;
use futures::{SinkExt as _, StreamExt as _};
use rumqttc::{Codec, Packet, Publish, QoS};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_util::codec::Framed;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The largest packet.
const LARGEST: usize = 16 << 20;

/// How a broker is set up.
#[derive(Clone, Debug)]
pub struct BrokerSetup {
    /// Where it listens; port 0 for a free one, which it keeps when it restarts.
    pub address: SocketAddr,
    /// User name and password that clients must give.
    pub credentials: Option<(String, String)>,
    /// Sessions and retained messages outlive a restart.
    pub persistent: bool,
}

impl Default for BrokerSetup {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            credentials: None,
            persistent: false,
        }
    }
}

/// An MQTT 3.1.1 broker: QoS 0 and 1, retained messages, wildcards, last wills, clean and kept sessions. Ends
/// when it is dropped.
pub struct Broker {
    shared: Arc<Shared>,
    address: SocketAddr,
    run: Mutex<Option<(CancellationToken, TaskTracker)>>,
}

struct Shared {
    persistent: bool,
    state: Mutex<State>,
}

struct State {
    sessions: Sessions,
    connections: BTreeMap<Connection, UnboundedSender<Packet>>,
    next: Connection,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the sessions decide, and does what they say.
    fn with(&self, decide: impl FnOnce(&mut Sessions) -> Vec<Act>) {
        let mut state = self.state();
        for act in decide(&mut state.sessions) {
            match act {
                Act::Send(connection, packet) => {
                    if let Some(sender) = state.connections.get(&connection) {
                        // A connection that ended meanwhile says so itself.
                        let _gone = sender.send(packet);
                    }
                }
                // Its task sends what is queued, and ends.
                Act::Close(connection) => drop(state.connections.remove(&connection)),
            }
        }
    }
}

impl Broker {
    /// Starts a broker that takes everybody, on a free port of 127.0.0.1. Call it within a runtime.
    pub fn start() -> Self {
        Self::with(BrokerSetup::default())
    }

    /// The same with a set-up. Fails the test if it cannot listen.
    pub fn with(setup: BrokerSetup) -> Self {
        let listener = ports::listen_at(setup.address).expect("the broker's port is free");
        let broker = Self {
            address: listener.local_addr().expect("it is bound"),
            shared: Arc::new(Shared {
                persistent: setup.persistent,
                state: Mutex::new(State {
                    sessions: Sessions::new(setup.credentials),
                    connections: BTreeMap::new(),
                    next: 0,
                }),
            }),
            run: Mutex::new(None),
        };
        broker.serve(listener);
        broker
    }

    fn serve(&self, listener: TcpListener) {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accepting = accept(listener, self.shared.clone(), stop.clone(), tasks.clone());
        tasks.spawn(accepting);
        let before = self.run().replace((stop, tasks));
        debug_assert!(before.is_none(), "a broker runs once at a time");
    }

    fn run(&self) -> MutexGuard<'_, Option<(CancellationToken, TaskTracker)>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it as a crash does: all connections break, no last wills are sent.
    pub async fn stop(&self) {
        let run = self.run().take();
        if let Some((stop, tasks)) = run {
            stop.cancel();
            tasks.close();
            tasks.wait().await;
        }
        let mut state = self.shared.state();
        state.connections.clear();
        let persistent = self.shared.persistent;
        state.sessions.crash(persistent);
    }

    /// Starts it again on its port; after [`Broker::stop`], or as one act.
    pub async fn restart(&self) {
        self.stop().await;
        let listener = ports::listen_again(self.address)
            .await
            .expect("the broker's port is still free");
        self.serve(listener);
    }

    /// Breaks a client's connection; its last will is sent. False if it is not connected.
    pub fn cut(&self, client: &str) -> bool {
        let connection = self.shared.state().sessions.connection(client);
        let Some(connection) = connection else {
            return false;
        };
        self.shared.with(|sessions| {
            let mut acts = sessions.lost(connection, false);
            acts.push(Act::Close(connection));
            acts
        });
        true
    }

    /// Publishes a message as a client would, with QoS 1.
    pub fn publish(&self, topic: &str, payload: &str, retain: bool) {
        let mut publish = Publish::new(topic, QoS::AtLeastOnce, payload);
        publish.retain = retain;
        self.shared.with(|sessions| sessions.publish("", publish, false));
    }

    /// What was published, oldest first; at most the last 100,000 messages.
    pub fn published(&self) -> Vec<Published> {
        self.shared.state().sessions.log()
    }

    /// What was published to one topic.
    pub fn published_to(&self, topic: &str) -> Vec<Published> {
        let mut log = self.published();
        log.retain(|message| message.topic == topic);
        log
    }

    /// Forgets what was published.
    pub fn forget(&self) {
        self.shared.state().sessions.forget();
    }

    /// Ids of the clients that are connected.
    pub fn clients(&self) -> Vec<String> {
        self.shared.state().sessions.connected()
    }

    /// Filters that a client subscribes to, and with which QoS.
    pub fn subscriptions(&self, client: &str) -> Vec<(String, u8)> {
        self.shared.state().sessions.subscriptions(client)
    }

    /// The retained message of a topic.
    pub fn retained(&self, topic: &str) -> Option<Vec<u8>> {
        self.shared.state().sessions.retained(topic)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some((stop, _)) = self.run().take() {
            stop.cancel();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken, tasks: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return ports::close(listener),
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // The peer is gone already, or the process is out of descriptors and has to wait for some.
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let serving = serve(stream, shared.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(serving));
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Small packets in both directions: none is to wait for another's acknowledgement.
    let _optional = stream.set_nodelay(true);
    let codec = Codec {
        max_incoming_size: LARGEST,
        max_outgoing_size: LARGEST,
    };
    let mut framed = Framed::new(stream, codec);
    let Ok(Some(Ok(Packet::Connect(connect)))) = timeout(Duration::from_secs(10), framed.next()).await else {
        return;
    };
    // The standard's one and a half times the interval; without one, a client may be silent for ever.
    let patience = match connect.keep_alive {
        0 => Duration::MAX,
        seconds => Duration::from_secs(seconds.into()).mul_f32(1.5),
    };
    let (sender, receiver) = unbounded_channel();
    let connection = {
        let mut state = shared.state();
        state.next += 1;
        let connection = state.next;
        state.connections.insert(connection, sender);
        connection
    };
    shared.with(|sessions| sessions.connect(connection, connect));
    relay(&mut framed, receiver, &shared, connection, patience).await;
    shared.state().connections.remove(&connection);
    shared.with(|sessions| sessions.lost(connection, false));
}

/// Until either side ends.
async fn relay(
    framed: &mut Framed<TcpStream, Codec>,
    mut receiver: UnboundedReceiver<Packet>,
    shared: &Shared,
    connection: Connection,
    patience: Duration,
) {
    loop {
        tokio::select! {
            biased;
            packet = receiver.recv() => {
                let Some(packet) = packet else { return };
                if framed.send(packet).await.is_err() {
                    return;
                }
            }
            packet = timeout(patience, framed.next()) => {
                let Ok(Some(Ok(packet))) = packet else { return };
                shared.with(|sessions| sessions.packet(connection, packet));
            }
        }
    }
}
