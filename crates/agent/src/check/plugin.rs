//! What a check plugin is.

use super::dial::Dial;
use super::outcome::Outcome;
use evenkeel_zone::roster::Member;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

/// Who is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Name of the node.
    pub node: String,
    /// Where peers reach its kubelet.
    pub kubelet: SocketAddr,
    /// SHA-256 of the kubelet's certificate, in hex, where its agent published one.
    pub pin: Option<String>,
    /// The address to ask from; `None`: the system's choice.
    pub source: Option<IpAddr>,
}

impl Suspect {
    /// `moved`: where its agent is reached, if that is not where the roster says. `None`: there is no address
    /// that could be checked.
    pub(crate) fn new(member: &Member, moved: Option<SocketAddr>, source: Option<IpAddr>) -> Option<Self> {
        let endpoint = member.kubelet.as_ref()?;
        let pin = Some(endpoint.certificate_sha256.clone()).filter(|pin| !pin.is_empty());
        let mut kubelet: SocketAddr = endpoint.address.parse().ok()?;
        // Where the machine has another address than the roster says, so has its kubelet.
        if let Some(moved) = moved.filter(|_| kubelet.ip() == member.address.ip()) {
            kubelet.set_ip(moved.ip());
        }
        Some(Self {
            node: member.name.clone(),
            kubelet,
            pin,
            source,
        })
    }

    /// Where to connect: at this port, or at the kubelet's.
    pub(super) fn dial(&self, port: Option<u16>) -> Dial {
        let address = SocketAddr::new(self.kubelet.ip(), port.unwrap_or(self.kubelet.port()));
        Dial {
            address,
            source: self.source,
        }
    }
}

/// One way to find out whether a machine is there.
pub trait Plugin: Send + Sync {
    /// Makes one attempt, which ends within this time.
    fn attempt<'a>(&'a self, suspect: &'a Suspect, within: Duration) -> Attempt<'a>;

    /// What this process lacks to make attempts, and how it gets that; `None`: nothing.
    fn lacks(&self) -> Option<String> {
        None
    }
}

/// An attempt that is going on.
pub type Attempt<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;
