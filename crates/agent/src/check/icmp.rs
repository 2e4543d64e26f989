//! The ICMP check: does anything answer an echo request? It proves no identity.

use super::outcome::{Failure, Outcome};
use super::plugin::{Attempt, Plugin, Suspect};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use surge_ping::{Client, Config, ICMP, PingIdentifier, PingSequence, SurgeError};

const PAYLOAD: [u8; 16] = *b"evenkeel check..";
/// Echo sockets of users: groups of this range may open them.
const GROUPS: &str = "net.ipv4.ping_group_range";

/// One echo request for each attempt.
#[derive(Debug)]
pub(super) struct Icmp;

/// A socket for echo requests: the kind that needs no right where the system allows it, else the one that
/// needs a capability.
fn client(address: IpAddr, source: Option<IpAddr>) -> io::Result<Client> {
    let config = |kind| {
        let protocol = if address.is_ipv4() { ICMP::V4 } else { ICMP::V6 };
        let config = Config::builder().kind(protocol).sock_type_hint(kind);
        let config = match source.filter(|source| source.is_ipv4() == address.is_ipv4()) {
            Some(source) => config.bind(SocketAddr::new(source, 0)),
            None => config,
        };
        config.build()
    };
    Client::new(&config(socket2::Type::DGRAM)).or_else(|_| Client::new(&config(socket2::Type::RAW)))
}

async fn ask(suspect: &Suspect, within: Duration) -> Outcome {
    let address = suspect.kubelet.ip();
    let client = match client(address, suspect.source) {
        Ok(client) => client,
        Err(error) => return Outcome::Failed(Failure::Local(error.to_string())),
    };
    let mut pinger = client.pinger(address, PingIdentifier(rand::random())).await;
    pinger.timeout(within);
    match pinger.ping(PingSequence(0), &PAYLOAD).await {
        Ok(_answer) => Outcome::Alive { identity: false },
        Err(SurgeError::Timeout { .. }) => Outcome::Failed(Failure::Timeout),
        Err(SurgeError::IOError(error)) => Outcome::Failed(Failure::of_connect(&error)),
        Err(error) => Outcome::Failed(Failure::Local(error.to_string())),
    }
}

impl Plugin for Icmp {
    fn attempt<'a>(&'a self, suspect: &'a Suspect, within: Duration) -> Attempt<'a> {
        Box::pin(ask(suspect, within))
    }

    fn lacks(&self) -> Option<String> {
        let error = client(IpAddr::from([127, 0, 0, 1]), None).err()?;
        Some(format!(
            "{error}: give the agent the capability NET_RAW, or put its group into the node's {GROUPS}"
        ))
    }
}
