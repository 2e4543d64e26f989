//! The lab's network: everything between two nodes, or between a node and the API server, passes here.
//!
//! It lives on the loopback range and needs no privileges. Node *i* binds its *inner* address; what is
//! published is its *outer* address, which the switch owns. A datagram that arrives at outer *j* from inner
//! *i* is delivered to inner *j* from outer *i*; a connection to outer *j* is proxied to inner *j*; the API
//! server is reached by node *i* at a port of outer *i*. A client that does not bind an inner address counts
//! as the cloud.
//!
//! A control plane on another machine reaches no loopback address. For it the switch owns one port per node
//! at an address that it does reach; what arrives there is from the cloud.

pub mod links;
mod silence;
mod tcp;
mod udp;

pub(crate) use tcp::reset;

use links::{End, Links};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};
use tokio::{net::UdpSocket, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Port of every kubelet that has an address of its own, and of the first one that has not.
const KUBELET_PORT: u16 = 10_250;
/// Distance between the first ports of two labs at one address: a lab has at most 50 nodes. Subnet 255 ends
/// at 26 619, below the ports that Linux gives to clients (32 768 and on).
const PORTS_OF_A_LAB: u16 = 64;

/// Where the pods of all labs of a machine are that have joined Kubernetes' own API server with Evenkeel
/// installed: addresses for benchmarks of networks (RFC 2544), which no network of an organisation uses.
pub const ROUTED_PODS: &str = "198.18.0.0/15";
/// Its first address, which no pod has.
pub const FIRST_ROUTED: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// Who has which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub nodes: u8,
    /// Third octet of all addresses, so that several labs fit on one machine.
    pub subnet: u8,
    /// Address of this machine at which a control plane elsewhere reaches the kubelets.
    pub outside: Option<IpAddr>,
    /// UDP port of the agents.
    pub agent_port: u16,
    /// TCP port on a node's outer address at which that node reaches the API server.
    pub cloud_port: u16,
    /// Whether pods are reached at the addresses that are published: the API server is Kubernetes' own, and
    /// knows of no others.
    pub routed_pods: bool,
}

impl Plan {
    /// The usual ports.
    pub fn new(nodes: u8, subnet: u8) -> Self {
        Self {
            nodes,
            subnet,
            outside: None,
            agent_port: 7959,
            cloud_port: 6443,
            routed_pods: false,
        }
    }

    /// The address that the processes of a node bind.
    pub fn inner(&self, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 77, self.subnet, node)
    }

    /// The address that is published for a node.
    pub fn outer(&self, node: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 78, self.subnet, node)
    }

    /// TCP port of a node's kubelet, at all its addresses.
    pub fn kubelet_port(&self, node: u8) -> u16 {
        match self.outside {
            None => KUBELET_PORT,
            // All nodes of all labs share the address.
            Some(_) => {
                KUBELET_PORT + PORTS_OF_A_LAB * u16::from(self.subnet) + u16::from(node).saturating_sub(1)
            }
        }
    }

    /// Where the API server reaches a node's kubelet, as it is published.
    pub fn kubelet(&self, node: u8) -> SocketAddr {
        let address = self.outside.unwrap_or(self.outer(node).into());
        (address, self.kubelet_port(node)).into()
    }

    /// Where the agents of other nodes reach a node's kubelet.
    pub fn kubelet_of_peers(&self, node: u8) -> SocketAddr {
        (self.outer(node), self.kubelet_port(node)).into()
    }

    /// Where a node's kubelet listens.
    pub fn kubelet_inside(&self, node: u8) -> SocketAddr {
        (self.inner(node), self.kubelet_port(node)).into()
    }

    /// Where a node reaches the API server.
    pub fn cloud_link(&self, node: u8) -> SocketAddr {
        (self.outer(node), self.cloud_port).into()
    }

    /// The range of the addresses of a node's pods. Where pods are routed, a node has 64 of [`ROUTED_PODS`],
    /// and a lab 64 times these; so the addresses of labs differ whose subnets differ by less than 32.
    pub fn pods(&self, node: u8) -> String {
        if !self.routed_pods {
            return format!("10.244.{node}.0/24");
        }
        let number = u32::from(self.subnet % 32) << 12 | u32::from(node % 64) << 6;
        format!("{}/26", Ipv4Addr::from(u32::from(FIRST_ROUTED) + number))
    }

    /// Where a pod of this address is in truth, if it is a process: nobody may bind the addresses of pods
    /// without privileges, and nobody may publish loopback addresses in an EndpointSlice.
    pub fn pod(&self, address: IpAddr) -> IpAddr {
        match address {
            _ if self.routed_pods => address,
            IpAddr::V4(ip) => match ip.octets() {
                [10, 244, node, pod] if (1..=self.nodes).contains(&node) => {
                    Ipv4Addr::new(127, 128 + node.min(127), self.subnet, pod).into()
                }
                _ => address,
            },
            IpAddr::V6(_) => address,
        }
    }

    /// Whose address this is, as the source of traffic.
    pub fn source(&self, address: IpAddr) -> End {
        match address {
            IpAddr::V4(address) => match address.octets() {
                [127, 77, subnet, node] if subnet == self.subnet && (1..=self.nodes).contains(&node) => {
                    End::Node(node)
                }
                _ => End::Cloud,
            },
            IpAddr::V6(_) => End::Cloud,
        }
    }
}

/// Why the switch could not start.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// An address is taken. Worth a retry only once its owner is gone.
    #[error(
        "cannot listen on {address} ({what}): {source}; stop what uses it (another lab, a kubelet), or choose \
         other addresses with --subnet"
    )]
    Bind {
        what: String,
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// The running switch. Ends with the shutdown token it was started with.
pub struct Switch {
    links: watch::Sender<Links>,
    plan: Plan,
    tasks: TaskTracker,
}

/// What each forwarding task needs.
#[derive(Clone)]
struct Fabric {
    plan: Plan,
    links: watch::Receiver<Links>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl Switch {
    /// Binds every outer address, and the outside one where there is one, and starts to forward; the API
    /// server is at `api`. `seed` decides which datagrams are lost on lossy links.
    pub async fn start(
        plan: Plan,
        api: SocketAddr,
        seed: u64,
        shutdown: CancellationToken,
    ) -> Result<Self, SwitchError> {
        let (links, receiver) = watch::channel(Links::new(plan.nodes));
        let tasks = TaskTracker::new();
        let fabric = Fabric {
            plan,
            links: receiver,
            shutdown,
            tasks: tasks.clone(),
        };
        let mut sockets = Vec::new();
        let mut listeners = Vec::new();
        for node in 1..=plan.nodes {
            let address = SocketAddr::from((plan.outer(node), plan.agent_port));
            let bind_error = |what: &str, address, source| SwitchError::Bind {
                what: format!("{what} of node {node}"),
                address,
                source,
            };
            sockets.push(
                UdpSocket::bind(address)
                    .await
                    .map_err(|error| bind_error("agent", address, error))?,
            );
            let inner = plan.kubelet_inside(node);
            let outer = plan.kubelet_of_peers(node);
            let listener = silence::listen(outer).map_err(|error| bind_error("kubelet", outer, error))?;
            listeners.push((listener, tcp::Route::Kubelet { node, inner }));
            if plan.outside.is_some() {
                let kubelet = plan.kubelet(node);
                let listener =
                    silence::listen(kubelet).map_err(|error| bind_error("kubelet", kubelet, error))?;
                listeners.push((listener, tcp::Route::Outside { node, inner }));
            }
            let cloud = plan.cloud_link(node);
            let listener = silence::listen(cloud).map_err(|error| bind_error("cloud link", cloud, error))?;
            listeners.push((listener, tcp::Route::Cloud { node, api }));
        }
        for (listener, route) in listeners {
            tasks.spawn(tcp::serve(listener, route, fabric.clone()));
        }
        udp::spawn(sockets, seed, &fabric);
        tasks.close();
        Ok(Self { links, plan, tasks })
    }

    /// Who has which address.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A copy of the table as it is now.
    pub fn links(&self) -> Links {
        self.links.borrow().clone()
    }

    /// Changes the table. Nothing that arrives after this call is forwarded by the old one.
    pub fn change(&self, change: impl FnOnce(&mut Links)) {
        self.links.send_modify(change);
    }

    /// Waits until every task has ended, after the shutdown token was cancelled.
    pub async fn stopped(&self) {
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::the_first(0, 1, "198.18.0.64/26")]
    #[case::the_last_node(0, 63, "198.18.15.192/26")]
    #[case::the_next_lab(1, 1, "198.18.16.64/26")]
    #[case::the_last_lab(31, 52, "198.19.253.0/26")]
    #[case::as_32_before_it(32, 1, "198.18.0.64/26")]
    fn routed_pods_have_addresses_that_no_other_node_has(
        #[case] subnet: u8,
        #[case] node: u8,
        #[case] range: &str,
    ) {
        let own = Plan::new(63, subnet);
        assert_eq!(own.pods(node), format!("10.244.{node}.0/24"));
        let routed = Plan {
            routed_pods: true,
            ..own
        };
        assert_eq!(routed.pods(node), range);
        let address: IpAddr = "10.244.1.7".parse().expect("an address");
        assert_eq!(routed.pod(address), address, "pods are where they are said to be");
        assert_ne!(own.pod(address), address);
    }
}
