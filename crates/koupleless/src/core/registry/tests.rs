//! Tables for each rule, and random histories.

mod forged;
mod life;
mod merge;
mod pods;
mod random;
mod shared;

use super::*;
use crate::core::profile::{KOUPLELESS, V2_DESIGN};
use crate::core::{Base, Connection, Endpoint, PodRef};
use std::net::SocketAddr;

/// A registry under test, with a clock.
struct Fixture {
    registry: Registry,
    now: u64,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Settings::default(), KOUPLELESS)
    }

    fn with(settings: Settings, profile: Profile) -> Self {
        Self {
            registry: Registry::new(settings, profile.into(), "dev"),
            now: 100,
        }
    }

    fn at(&self) -> Duration {
        Duration::from_secs(self.now)
    }

    /// Sees something that is believed; what follows.
    fn observe(&mut self, observation: Observation) -> Vec<Change> {
        changes(self.registry.observe(observation, self.at()).unwrap())
    }

    fn refused(&mut self, observation: Observation) -> Refused {
        let before = self.registry.len();
        let refused = self.registry.observe(observation, self.at()).unwrap_err();
        assert_eq!(self.registry.len(), before, "it changes nothing");
        refused
    }

    /// Lets so many seconds pass; what follows.
    fn pass(&mut self, seconds: u64) -> Vec<Change> {
        let mut all = Vec::new();
        for _ in 0..seconds {
            self.now += 1;
            let (events, refused) = self.registry.tick(self.at());
            assert_eq!(refused, []);
            all.extend(changes(events));
        }
        all
    }

    /// A base that is served here, just heard of.
    fn served(identity: &str) -> Self {
        let mut fixture = Self::new();
        assert_eq!(fixture.observe(heartbeat(identity, identity)), [Change::Online]);
        fixture.serve(identity);
        fixture
    }

    fn serve(&mut self, identity: &str) {
        let node = self.node(identity);
        assert_eq!(self.observe(Observation::Served { node, here: true }), []);
    }

    fn node(&self, identity: &str) -> Arc<str> {
        self.registry.node_of(&id(identity)).unwrap().clone()
    }

    fn base(&self, identity: &str) -> Base {
        let base = self.registry.base(&self.node(identity)).unwrap();
        Base::clone(base)
    }

    fn life(&self, identity: &str) -> Life {
        self.registry.life(&self.node(identity)).unwrap().clone()
    }
}

fn changes(events: Vec<Event>) -> Vec<Change> {
    events.into_iter().map(|event| event.change).collect()
}

fn id(text: &str) -> Identity {
    Identity::new(text).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn announcement(identity: &str, address: &str) -> Announcement {
    Announcement {
        identity: id(identity),
        name: Some(UNNAMED.to_owned()),
        version: Some("1.0.0".to_owned()),
        cluster: Some("default".to_owned()),
        host_name: Some("host".to_owned()),
        address: Some(ip(address)),
        active: true,
    }
}

/// A heartbeat from its own address.
fn heartbeat(identity: &str, address: &str) -> Observation {
    Observation::HttpHeartbeat {
        announcement: announcement(identity, address),
        port: 1238,
        peer: ip(address),
    }
}

fn deactivation(identity: &str, address: &str) -> Observation {
    Observation::HttpHeartbeat {
        announcement: Announcement {
            active: false,
            ..announcement(identity, address)
        },
        port: 1238,
        peer: ip(address),
    }
}

fn pod_ref(uid: &str) -> PodRef {
    PodRef {
        namespace: "shop".into(),
        name: format!("web-{uid}").into(),
        uid: uid.into(),
        container: "base".into(),
    }
}

fn pod_seen(uid: &str, address: &str, state: PodState) -> PodSeen {
    PodSeen {
        pod: pod_ref(uid),
        address: Some(ip(address)),
        identity: None,
        name: None,
        version: None,
        cluster: None,
        port: None,
        state,
    }
}

fn pod(uid: &str, address: &str, state: PodState) -> Observation {
    Observation::Pod(pod_seen(uid, address, state))
}

fn declared(uid: &str, address: &str, identity: &str) -> Observation {
    Observation::Pod(PodSeen {
        identity: Some(id(identity)),
        ..pod_seen(uid, address, PodState::Ready)
    })
}

fn http(address: &str, port: u16) -> Endpoint {
    Endpoint {
        address: ip(address),
        by: Connection::Http(port),
    }
}

fn answered(identity: &str, address: &str, says: Option<&str>) -> Observation {
    Observation::Answered {
        identity: id(identity),
        endpoint: http(address, 1238),
        says: says.map(id),
    }
}

fn port_refused(identity: &str, address: &str) -> Observation {
    Observation::PortRefused {
        identity: id(identity),
        socket: SocketAddr::new(ip(address), 1238),
    }
}

fn silence(seconds: u64) -> Evidence {
    Evidence::Silence(Duration::from_secs(seconds))
}

fn is_changed(change: &Change) -> bool {
    matches!(change, Change::Changed { .. })
}
