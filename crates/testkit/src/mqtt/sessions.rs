//! What a broker knows, as a pure machine: packets of connections in, packets to connections out.

use rumqttc::{
    ConnAck, Connect, ConnectAuth, ConnectReturnCode, LastWill, Packet, PubAck, Publish, QoS, SubAck,
    Subscribe, SubscribeReasonCode, UnsubAck, matches, valid_filter, valid_topic,
};
use std::collections::{BTreeMap, VecDeque};

/// A connection, never reused.
pub(crate) type Connection = u64;

/// What to do about a connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    Send(Connection, Packet),
    Close(Connection),
}

/// A message that a client published, or a last will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Client id of who published it; empty if the test did.
    pub client: String,
    /// Its topic.
    pub topic: String,
    /// Its payload.
    pub payload: Vec<u8>,
    /// 0 or 1, as published.
    pub qos: u8,
    /// It replaces the retained message of the topic.
    pub retain: bool,
    /// The client sent it before.
    pub duplicate: bool,
    /// It is the client's last will.
    pub will: bool,
}

impl Published {
    /// The payload as text, with replacement characters where it is none.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// So many messages are logged, and wait for a client that is away.
const MANY: usize = 100_000;

#[derive(Clone, Debug, Default)]
struct Session {
    connection: Option<Connection>,
    clean: bool,
    will: Option<LastWill>,
    subscriptions: BTreeMap<String, QoS>,
    last_id: u16,
    /// Sent with QoS 1 and not acknowledged, oldest first.
    unacknowledged: VecDeque<Publish>,
    /// For when the client is back.
    waiting: VecDeque<Publish>,
}

/// All sessions, retained messages, and what was published.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    credentials: Option<(String, String)>,
    by_client: BTreeMap<String, Session>,
    clients: BTreeMap<Connection, String>,
    retained: BTreeMap<String, Publish>,
    log: VecDeque<Published>,
}

impl Sessions {
    pub(crate) fn new(credentials: Option<(String, String)>) -> Self {
        Self {
            credentials,
            ..Self::default()
        }
    }

    /// All connections are gone and no wills are sent, as when a broker crashes. A broker without persistence
    /// forgets its sessions and retained messages too. The log stays.
    pub(crate) fn crash(&mut self, persistent: bool) {
        self.clients.clear();
        if persistent {
            self.by_client.retain(|_, session| !session.clean);
            for session in self.by_client.values_mut() {
                session.connection = None;
            }
        } else {
            self.by_client.clear();
            self.retained.clear();
        }
    }

    pub(crate) fn log(&self) -> Vec<Published> {
        self.log.iter().cloned().collect()
    }

    pub(crate) fn forget(&mut self) {
        self.log.clear();
    }

    /// Client ids that are connected.
    pub(crate) fn connected(&self) -> Vec<String> {
        self.clients.values().cloned().collect()
    }

    pub(crate) fn connection(&self, client: &str) -> Option<Connection> {
        self.by_client.get(client)?.connection
    }

    /// Filters of a client with their QoS.
    pub(crate) fn subscriptions(&self, client: &str) -> Vec<(String, u8)> {
        let session = self.by_client.get(client);
        session
            .into_iter()
            .flat_map(|session| &session.subscriptions)
            .map(|(filter, qos)| (filter.clone(), *qos as u8))
            .collect()
    }

    pub(crate) fn retained(&self, topic: &str) -> Option<Vec<u8>> {
        self.retained.get(topic).map(|kept| kept.payload.to_vec())
    }

    /// A connection's first packet.
    pub(crate) fn connect(&mut self, connection: Connection, connect: Connect) -> Vec<Act> {
        let refuse = |code| {
            vec![
                Act::Send(connection, Packet::ConnAck(ConnAck::new(code, false))),
                Act::Close(connection),
            ]
        };
        if let Some((user, password)) = &self.credentials {
            match &connect.auth {
                ConnectAuth::None => return refuse(ConnectReturnCode::NotAuthorized),
                auth if !auth.validate(user, password) => {
                    return refuse(ConnectReturnCode::BadUserNamePassword);
                }
                _ => {}
            }
        }
        let mut client = connect.client_id;
        if client.is_empty() {
            if !connect.clean_session {
                return refuse(ConnectReturnCode::BadClientId);
            }
            client = format!("auto-{connection}");
        }
        let mut acts = Vec::new();
        if let Some(old) = self.connection(&client) {
            // One connection per client id: the older one is cut, and that is not a farewell.
            acts.extend(self.lost(old, false));
            acts.push(Act::Close(old));
        }
        let kept = self.by_client.remove(&client).filter(|_| !connect.clean_session);
        let present = kept.is_some();
        let mut session = kept.unwrap_or_default();
        session.connection = Some(connection);
        session.clean = connect.clean_session;
        session.will = connect.last_will;
        let accepted = ConnAck::new(ConnectReturnCode::Success, present);
        acts.push(Act::Send(connection, Packet::ConnAck(accepted)));
        for publish in &mut session.unacknowledged {
            publish.dup = true;
            acts.push(Act::Send(connection, Packet::Publish(publish.clone())));
        }
        for publish in std::mem::take(&mut session.waiting) {
            acts.extend(session.deliver(publish));
        }
        self.clients.insert(connection, client.clone());
        self.by_client.insert(client, session);
        acts
    }

    /// Any later packet.
    pub(crate) fn packet(&mut self, connection: Connection, packet: Packet) -> Vec<Act> {
        let Some(client) = self.clients.get(&connection).cloned() else {
            return vec![Act::Close(connection)];
        };
        match packet {
            Packet::Publish(publish) if publish.qos == QoS::ExactlyOnce => vec![Act::Close(connection)],
            Packet::Publish(publish) => {
                let id = publish.pkid;
                let acknowledge = publish.qos == QoS::AtLeastOnce;
                let mut acts = self.publish(&client, publish, false);
                if acknowledge {
                    acts.push(Act::Send(connection, Packet::PubAck(PubAck::new(id))));
                }
                acts
            }
            Packet::PubAck(PubAck { pkid }) => {
                if let Some(session) = self.by_client.get_mut(&client) {
                    session.unacknowledged.retain(|publish| publish.pkid != pkid);
                }
                Vec::new()
            }
            Packet::Subscribe(subscribe) => self.subscribe(connection, &client, subscribe),
            Packet::Unsubscribe(unsubscribe) => {
                if let Some(session) = self.by_client.get_mut(&client) {
                    for filter in &unsubscribe.topics {
                        session.subscriptions.remove(filter);
                    }
                }
                let done = UnsubAck::new(unsubscribe.pkid);
                vec![Act::Send(connection, Packet::UnsubAck(done))]
            }
            Packet::PingReq => vec![Act::Send(connection, Packet::PingResp)],
            Packet::Disconnect => {
                let mut acts = self.lost(connection, true);
                acts.push(Act::Close(connection));
                acts
            }
            // QoS 2, and what only brokers send.
            _ => vec![Act::Close(connection)],
        }
    }

    /// A connection is gone; without a farewell its last will is published.
    pub(crate) fn lost(&mut self, connection: Connection, farewell: bool) -> Vec<Act> {
        let Some(client) = self.clients.remove(&connection) else {
            return Vec::new();
        };
        let Some(session) = self.by_client.get_mut(&client) else {
            return Vec::new();
        };
        session.connection = None;
        let will = session.will.take().filter(|_| !farewell);
        if session.clean {
            self.by_client.remove(&client);
        }
        let Some(will) = will else {
            return Vec::new();
        };
        let mut publish = Publish::new(will.topic, will.qos, will.message.to_vec());
        publish.retain = will.retain;
        self.publish(&client, publish, true)
    }

    /// Delivers a message to who wants it.
    pub(crate) fn publish(&mut self, client: &str, publish: Publish, will: bool) -> Vec<Act> {
        let topic = String::from_utf8_lossy(&publish.topic).into_owned();
        if !valid_topic(&topic) {
            return Vec::new();
        }
        if self.log.len() == MANY {
            self.log.pop_front();
        }
        self.log.push_back(Published {
            client: client.to_owned(),
            topic: topic.clone(),
            payload: publish.payload.to_vec(),
            qos: publish.qos as u8,
            retain: publish.retain,
            duplicate: publish.dup,
            will,
        });
        if publish.retain {
            if publish.payload.is_empty() {
                self.retained.remove(&topic);
            } else {
                self.retained.insert(topic.clone(), publish.clone());
            }
        }
        let mut acts = Vec::new();
        for session in self.by_client.values_mut() {
            let granted = session
                .subscriptions
                .iter()
                .filter(|(filter, _)| matches(&topic, filter))
                .map(|(_, qos)| *qos)
                .max_by_key(|qos| *qos as u8);
            if let Some(granted) = granted {
                // A message that is new to a subscriber is never marked as retained.
                acts.extend(session.deliver(copy(&publish, granted, false)));
            }
        }
        acts
    }

    fn subscribe(&mut self, connection: Connection, client: &str, subscribe: Subscribe) -> Vec<Act> {
        let Some(session) = self.by_client.get_mut(client) else {
            return Vec::new();
        };
        let mut codes = Vec::new();
        let mut kept = Vec::new();
        for filter in subscribe.filters {
            if !valid_filter(&filter.path) {
                codes.push(SubscribeReasonCode::Failure);
                continue;
            }
            let granted = lower(filter.qos, QoS::AtLeastOnce);
            codes.push(SubscribeReasonCode::Success(granted));
            let found = self
                .retained
                .iter()
                .filter(|(topic, _)| matches(topic, &filter.path));
            kept.extend(found.map(|(_, publish)| copy(publish, granted, true)));
            session.subscriptions.insert(filter.path, granted);
        }
        let done = SubAck::new(subscribe.pkid, codes);
        let mut acts = vec![Act::Send(connection, Packet::SubAck(done))];
        for publish in kept {
            acts.extend(session.deliver(publish));
        }
        acts
    }
}

impl Session {
    /// Sends a message, or keeps it for later.
    fn deliver(&mut self, mut publish: Publish) -> Option<Act> {
        let Some(connection) = self.connection else {
            if publish.qos == QoS::AtLeastOnce && self.waiting.len() < MANY {
                self.waiting.push_back(publish);
            }
            return None;
        };
        if publish.qos == QoS::AtLeastOnce {
            publish.pkid = self.next_id();
            self.unacknowledged.push_back(publish.clone());
        }
        Some(Act::Send(connection, Packet::Publish(publish)))
    }

    /// The next packet id that is not in use; 0 is none.
    fn next_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            let taken = |publish: &Publish| publish.pkid == self.last_id;
            if self.last_id != 0 && !self.unacknowledged.iter().any(taken) {
                return self.last_id;
            }
        }
    }
}

fn copy(publish: &Publish, granted: QoS, retain: bool) -> Publish {
    Publish {
        dup: false,
        qos: lower(publish.qos, granted),
        retain,
        pkid: 0,
        ..publish.clone()
    }
}

fn lower(a: QoS, b: QoS) -> QoS {
    if (a as u8) < (b as u8) { a } else { b }
}
