//! Which sightings are believed.

use super::{Life, Registry};
use crate::core::{Endpoint, Identity};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long a base that has answered is held to be there: somewhat longer than the pause between two polls.
const ANSWERS: Duration = Duration::from_secs(15);

/// Why a sighting is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// It cannot be reached.
    #[error("base {0} does not say its address, and it is not known otherwise")]
    NoAddress(Identity),
    /// Nobody can have this address.
    #[error("base {identity} says that its address is {address}, which no base can have")]
    Unusable {
        /// The base that the message is about.
        identity: Identity,
        address: IpAddr,
    },
    /// It speaks for another address.
    #[error(
        "base {identity} says that its address is {address}, but speaks from {peer}, and no base pod has that address; \
         if addresses are translated on the way, let base pods be watched or switch off the check of addresses"
    )]
    NotItsAddress {
        /// The base that the message is about.
        identity: Identity,
        address: IpAddr,
        /// The address that the message came from.
        peer: IpAddr,
    },
    /// The pod at its address is declared to be another base.
    #[error("base {identity} speaks for {address}, but the pod {pod} there is declared to be another base")]
    PodOfAnother {
        /// The base that the message is about.
        identity: Identity,
        /// The address that it claims.
        address: IpAddr,
        /// `NAMESPACE/NAME` of the pod.
        pod: String,
    },
    /// Its identity is the address of another pod.
    #[error("{identity} is the address of the base pod {pod}, and {address} speaks")]
    AddressOfAnother {
        /// The identity that is claimed.
        identity: Identity,
        /// The address that claims it.
        address: IpAddr,
        /// `NAMESPACE/NAME` of the pod.
        pod: String,
    },
    /// A base of this identity answers at another port of that address.
    #[error(
        "base {identity} answers at {at}; port {port} takes it over once nobody answers there; if these are two bases give them \
         two identities"
    )]
    AnswersElsewhere {
        /// The identity that is claimed.
        identity: Identity,
        /// Where the base of this identity answers.
        at: SocketAddr,
        /// The port that is claimed.
        port: u16,
    },
    /// A base of this identity lives elsewhere.
    #[error(
        "base {identity} lives at {at}; {address} takes it over once that one is silent, or if it is a base pod's \
         address; if these are two bases give them two identities"
    )]
    LivesElsewhere {
        /// The identity that is claimed.
        identity: Identity,
        /// Where the base of this identity lives.
        at: IpAddr,
        /// The address that claims it.
        address: IpAddr,
    },
    /// Two identities make one name of a node.
    #[error("base {identity} would have the node {node}, which is the node of base {other}")]
    SameNode {
        /// Name of the node.
        node: Arc<str>,
        /// The base that came second.
        identity: Identity,
        /// The base that has the node.
        other: Identity,
    },
    /// Two Nodes record the same base.
    #[error(
        "base {identity} has the node {node}; the Node {other} says that it is its own and is left alone"
    )]
    TwoNodes {
        /// The base that both record.
        identity: Identity,
        /// The node that it has.
        node: Arc<str>,
        other: Arc<str>,
    },
    /// There are too many bases.
    #[error("there are {0} bases already, no more are taken on")]
    Full(usize),
    /// One peer speaks for more new bases than it can have.
    #[error("{peer} has spoken for {most} unknown bases within a minute, no more are taken on from there")]
    Flood {
        /// The address of the peer.
        peer: IpAddr,
        /// How many new bases a peer may speak for within a minute.
        most: u32,
    },
}

impl Registry {
    /// Whether who is at `address` may speak for a base. `peer`: from where it speaks, where that can be
    /// told.
    pub(super) fn may_announce(
        &self,
        identity: &Identity,
        address: IpAddr,
        peer: Option<IpAddr>,
    ) -> Result<(), Refused> {
        let identity = || identity.clone();
        if address.is_unspecified() || address.is_multicast() || is_broadcast(address) {
            return Err(Refused::Unusable {
                identity: identity(),
                address,
            });
        }
        let is_pods = self.pods.is_address(address);
        if let Some(peer) = peer.filter(|_| self.settings.check_addresses)
            && peer != address
            && !is_pods
        {
            return Err(Refused::NotItsAddress {
                identity: identity(),
                address,
                peer,
            });
        }
        if let Some(pod) = self.pods.other_at(address, &identity()) {
            return Err(Refused::PodOfAnother {
                identity: identity(),
                address,
                pod,
            });
        }
        if let Ok(named) = identity().as_str().parse::<IpAddr>()
            && named.to_canonical() != address
            && let Some(pod) = self.pods.at(named.to_canonical())
        {
            return Err(Refused::AddressOfAnother {
                identity: identity(),
                address,
                pod: pod.path(),
            });
        }
        self.may_move(&identity(), address)
    }

    /// Whether a base may have this port from now on: not while it answers at another one of the same
    /// address. Two processes of one host that were given one identity would be served by turns.
    pub(super) fn may_have(&self, identity: &Identity, endpoint: &Endpoint) -> Result<(), Refused> {
        let Some(entry) = self.bases.get(identity) else {
            return Ok(());
        };
        let (Some(at), Some(claimed)) = (entry.base.socket(), endpoint.socket()) else {
            return Ok(());
        };
        let Some((when, place)) = &entry.answered else {
            return Ok(());
        };
        let is_there = *place == entry.base.endpoint && self.now.saturating_sub(*when) < ANSWERS;
        if at.ip() != claimed.ip() || at == claimed || !is_there || entry.life != Life::Alive {
            return Ok(());
        }
        Err(Refused::AnswersElsewhere {
            identity: identity.clone(),
            at,
            port: claimed.port(),
        })
    }

    /// Whether a base may be at this address from now on.
    fn may_move(&self, identity: &Identity, address: IpAddr) -> Result<(), Refused> {
        let Some(entry) = self.bases.get(identity) else {
            return Ok(());
        };
        let at = entry.base.endpoint.address;
        let quiet = self.now.saturating_sub(entry.heard) >= self.settings.silent;
        if at == address || quiet || entry.life != Life::Alive || entry.deactivated.is_some() {
            return Ok(());
        }
        let holder = entry.base.pod.as_ref().and_then(|pod| self.pods.get(&pod.uid));
        let holder_is_proven = holder.is_some_and(|pod| pod.ready && pod.address == Some(at));
        if self.pods.is_address(address) && !holder_is_proven {
            return Ok(());
        }
        Err(Refused::LivesElsewhere {
            identity: identity.clone(),
            at,
            address,
        })
    }
}

fn is_broadcast(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_broadcast())
}
