//! Datagrams between agents.

use super::{
    Fabric,
    links::{End, Verdict},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use std::{net::SocketAddr, sync::Arc};
use tokio::net::UdpSocket;

/// Starts one task per outer address; `sockets` are in the order of the nodes.
pub(super) fn spawn(sockets: Vec<UdpSocket>, seed: u64, fabric: &Fabric) {
    let sockets: Arc<[UdpSocket]> = sockets.into();
    for node in 1..=fabric.plan.nodes {
        let dice = StdRng::seed_from_u64(seed.wrapping_add(u64::from(node)));
        fabric
            .tasks
            .spawn(forward(node, sockets.clone(), dice, fabric.clone()));
    }
}

/// Forwards what arrives for one node.
async fn forward(node: u8, sockets: Arc<[UdpSocket]>, mut dice: StdRng, fabric: Fabric) {
    let own = &sockets[usize::from(node) - 1];
    let target = SocketAddr::from((fabric.plan.inner(node), fabric.plan.agent_port));
    let mut buffer = vec![0; 65_536];
    loop {
        let received = tokio::select! {
            () = fabric.shutdown.cancelled() => return,
            received = own.recv_from(&mut buffer) => received,
        };
        let (length, sender) = match received {
            Ok(received) => received,
            Err(error) => {
                // An earlier datagram was refused by an agent that is down; the socket itself is fine.
                tracing::debug!(node, %error, "datagram refused");
                continue;
            }
        };
        let End::Node(from) = fabric.plan.source(sender.ip()) else {
            tracing::debug!(node, %sender, "datagram from outside the lab dropped");
            continue;
        };
        let verdict = fabric
            .links
            .borrow()
            .verdict_of_datagram(End::Node(from), End::Node(node));
        let Verdict::Deliver { delay, drop_percent } = verdict else {
            continue;
        };
        if dice.random_range(0..100) < drop_percent {
            continue;
        }
        let datagram = buffer[..length].to_vec();
        if delay.is_zero() {
            send(&sockets, from, &datagram, target).await;
        } else {
            let (sockets, shutdown) = (sockets.clone(), fabric.shutdown.clone());
            fabric.tasks.spawn(async move {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = tokio::time::sleep(delay) => send(&sockets, from, &datagram, target).await,
                }
            });
        }
    }
}

/// Delivers from the sender's outer address, so that an answer crosses the switch too.
async fn send(sockets: &[UdpSocket], from: u8, datagram: &[u8], target: SocketAddr) {
    if let Err(error) = sockets[usize::from(from) - 1].send_to(datagram, target).await {
        tracing::debug!(%target, %error, "datagram not delivered");
    }
}
