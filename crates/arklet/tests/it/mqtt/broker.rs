//! A small broker: QoS 0 and 1, retained messages, wildcards, and manners that a test may spoil.

use futures::{SinkExt as _, StreamExt as _};
use rumqttc::{
    Codec, ConnAck, ConnectAuth, ConnectReturnCode, Packet, PubAck, Publish, QoS, SubAck, SubscribeFilter,
    SubscribeReasonCode, matches,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::codec::Framed;

/// What the broker does unlike others.
#[derive(Clone, Default)]
pub(crate) struct Manners {
    /// Who may connect; all if `None`. An empty password stands for none: one that is sent is refused.
    pub(crate) credentials: Option<(String, String)>,
    /// What it answers to all who connect.
    pub(crate) code: Option<ConnectReturnCode>,
    /// Takes connections and says nothing.
    pub(crate) hangs: bool,
    /// Refuses subscriptions whose filter ends so.
    pub(crate) refuse: Option<&'static str>,
    /// Takes commands under topics that end so, and drops the connection instead of confirming them.
    pub(crate) swallow: Option<&'static str>,
    /// Says nothing any more, and reads on.
    pub(crate) mute: bool,
    /// TLS.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
}

#[derive(Default)]
struct State {
    manners: Manners,
    next: u64,
    clients: Vec<Client>,
    retained: Vec<Publish>,
    published: Vec<Publish>,
    connected: usize,
    farewells: usize,
}

struct Client {
    number: u64,
    id: String,
    filters: Vec<SubscribeFilter>,
    out: mpsc::UnboundedSender<Packet>,
}

/// The broker; [`Broker::stop`] and [`Broker::again`] make it restart on its port, without memory of
/// subscriptions.
pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Broker {
    pub(crate) async fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut broker = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
            task: None,
        };
        broker.state().manners = manners;
        broker.task = Some(serve(listener, Arc::clone(&broker.state)));
        broker
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Ends the broker and all connections.
    pub(crate) async fn stop(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        let _ = task.await;
        self.state().clients.clear();
    }

    /// Starts it again.
    pub(crate) async fn again(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.task = Some(serve(listener, Arc::clone(&self.state)));
    }

    pub(crate) fn set_manners(&self, manners: Manners) {
        self.state().manners = manners;
    }

    /// Everything that clients have published.
    pub(crate) fn published(&self) -> Vec<Publish> {
        self.state().published.clone()
    }

    /// How many connections were accepted, and how many said farewell.
    pub(crate) fn connections(&self) -> (usize, usize) {
        let state = self.state();
        (state.connected, state.farewells)
    }

    /// Filters of a client, as long as it is connected.
    pub(crate) fn filters(&self, id: &str) -> Vec<String> {
        let state = self.state();
        let client = state.clients.iter().find(|client| client.id == id);
        let filters = client.into_iter().flat_map(|client| &client.filters);
        filters.map(|filter| filter.path.clone()).collect()
    }

    /// Sends a message to a client as it is, whatever it has subscribed to.
    pub(crate) fn inject(&self, id: &str, topic: &str, payload: &str, retain: bool) {
        let mut publish = Publish::new(topic, QoS::AtMostOnce, payload);
        publish.retain = retain;
        let state = self.state();
        let client = state.clients.iter().find(|client| client.id == id).unwrap();
        client.out.send(Packet::Publish(publish)).unwrap();
    }
}

fn serve(listener: TcpListener, state: Arc<Mutex<State>>) -> JoinHandle<()> {
    tokio::spawn(async move {
        // Aborting this task drops the set, which ends all connections.
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let state = Arc::clone(&state);
            connections.spawn(async move {
                let tls = state.lock().unwrap().manners.tls.clone();
                match tls {
                    None => client(stream, &state).await,
                    Some(config) => {
                        if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
                            client(stream, &state).await;
                        }
                    }
                }
            });
        }
    })
}

async fn client(stream: impl AsyncRead + AsyncWrite + Unpin, state: &Mutex<State>) {
    let codec = Codec {
        max_incoming_size: 16 << 20,
        max_outgoing_size: 16 << 20,
    };
    let mut framed = Framed::new(stream, codec);
    let Some(Ok(Packet::Connect(connect))) = framed.next().await else {
        return;
    };
    let (wanted, refusal, hangs) = {
        let manners = &state.lock().unwrap().manners;
        (manners.credentials.clone(), manners.code, manners.hangs)
    };
    if hangs {
        // Until the other side has had enough.
        while framed.next().await.is_some_and(|packet| packet.is_ok()) {}
        return;
    }
    let known = wanted.is_none_or(|(user, secret)| match &connect.auth {
        ConnectAuth::UsernamePassword { username, password } => {
            *username == user && password[..] == *secret.as_bytes() && !secret.is_empty()
        }
        ConnectAuth::Username { username } => *username == user && secret.is_empty(),
        ConnectAuth::None => false,
    });
    let code = match refusal {
        Some(code) => code,
        None if known => ConnectReturnCode::Success,
        None => ConnectReturnCode::BadUserNamePassword,
    };
    if framed
        .send(Packet::ConnAck(ConnAck::new(code, false)))
        .await
        .is_err()
        || code != ConnectReturnCode::Success
    {
        return;
    }
    let (out, mut to_send) = mpsc::unbounded_channel();
    let number = {
        let mut state = state.lock().unwrap();
        state.next += 1;
        state.connected += 1;
        let number = state.next;
        state.clients.push(Client {
            number,
            id: connect.client_id,
            filters: Vec::new(),
            out,
        });
        number
    };
    loop {
        tokio::select! {
            packet = to_send.recv() => {
                let Some(packet) = packet else { break };
                if framed.send(packet).await.is_err() {
                    break;
                }
            }
            packet = framed.next() => {
                let Some(Ok(packet)) = packet else { break };
                if !state.lock().unwrap().take(number, packet) {
                    break;
                }
            }
        }
    }
    state
        .lock()
        .unwrap()
        .clients
        .retain(|client| client.number != number);
}

impl State {
    /// False ends the connection.
    fn take(&mut self, number: u64, packet: Packet) -> bool {
        match packet {
            _ if self.manners.mute => {}
            Packet::PingReq => self.send(number, Packet::PingResp),
            Packet::Subscribe(subscribe) => {
                let refused = |filter: &SubscribeFilter| {
                    self.manners.refuse.is_some_and(|end| filter.path.ends_with(end))
                };
                let codes = subscribe.filters.iter().map(|filter| {
                    if refused(filter) {
                        SubscribeReasonCode::Failure
                    } else {
                        SubscribeReasonCode::Success(filter.qos)
                    }
                });
                let ack = SubAck::new(subscribe.pkid, codes.collect());
                let accepted: Vec<SubscribeFilter> = subscribe
                    .filters
                    .iter()
                    .filter(|filter| !refused(filter))
                    .cloned()
                    .collect();
                self.send(number, Packet::SubAck(ack));
                let kept: Vec<Publish> = self
                    .retained
                    .iter()
                    .filter(|publish| {
                        accepted
                            .iter()
                            .any(|filter| matches(topic(publish), &filter.path))
                    })
                    .cloned()
                    .collect();
                for publish in kept {
                    self.send(number, Packet::Publish(publish));
                }
                let client = self.clients.iter_mut().find(|client| client.number == number);
                client.unwrap().filters.extend(accepted);
            }
            Packet::Publish(publish) => {
                self.published.push(publish.clone());
                if self
                    .manners
                    .swallow
                    .is_some_and(|end| topic(&publish).ends_with(end))
                {
                    return false;
                }
                if publish.qos == QoS::AtLeastOnce {
                    self.send(number, Packet::PubAck(PubAck::new(publish.pkid)));
                }
                let mut out = publish.clone();
                out.qos = QoS::AtMostOnce;
                out.dup = false;
                out.pkid = 0;
                if publish.retain {
                    self.retained.push(out.clone());
                }
                out.retain = false;
                for client in &self.clients {
                    if client
                        .filters
                        .iter()
                        .any(|filter| matches(topic(&out), &filter.path))
                    {
                        let _ = client.out.send(Packet::Publish(out.clone()));
                    }
                }
            }
            Packet::Disconnect => {
                self.farewells += 1;
                return false;
            }
            _ => {}
        }
        true
    }

    fn send(&self, number: u64, packet: Packet) {
        let client = self.clients.iter().find(|client| client.number == number);
        let _ = client.unwrap().out.send(packet);
    }
}

pub(crate) fn topic(publish: &Publish) -> &str {
    std::str::from_utf8(&publish.topic).unwrap()
}
