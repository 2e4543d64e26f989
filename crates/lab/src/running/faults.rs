//! Faults, carried out on a running lab; and how the lab is.

use super::Lab;
use crate::{
    control::{
        Fault, Orders, find_node,
        status::{NodeStatus, Status},
    },
    supervise::{ChildState, Supervised},
    switch::links::{self, End},
};
use std::time::Duration;

/// Does what a fault asks for, and says what was done.
pub(super) async fn inflict(lab: &Lab, fault: &Fault) -> Result<String, String> {
    let names = lab.node_names();
    match fault {
        Fault::Cut {
            node,
            link,
            way,
            delay_ms,
            drop_percent,
        } => {
            let index = find_node(&names, node)?;
            let number = lab.nodes[index].index();
            let others: Vec<End> = match link.as_str() {
                "cloud" => vec![End::Cloud],
                "peers" => lab
                    .switch
                    .links()
                    .nodes()
                    .filter(|other| *other != number)
                    .map(End::Node)
                    .collect(),
                other => {
                    let other = find_node(&names, other)?;
                    if other == index {
                        return Err(format!(
                            "{node} has no link to itself; name another node or `cloud`"
                        ));
                    }
                    vec![End::Node(lab.nodes[other].index())]
                }
            };
            let impaired = delay_ms.is_some() || drop_percent.is_some();
            let state = links::Fault {
                cut: !impaired,
                delay: Duration::from_millis(delay_ms.unwrap_or(0)),
                drop_percent: drop_percent.unwrap_or(0).min(100),
            };
            lab.switch.change(|links| {
                for other in &others {
                    links.set(number, *other, *way, state);
                }
            });
            Ok(format!("{fault}: {state} ({way})"))
        }
        Fault::Kill { node } => {
            let node = &lab.nodes[find_node(&names, node)?];
            // First the silence, so that nobody sees the end of a connection.
            lab.switch.change(|links| links.power_off(node.index()));
            node.power_off().await;
            Ok(fault.to_string())
        }
        Fault::CrashAgent { node } => match &lab.nodes[find_node(&names, node)?].agent {
            Some(agent) => {
                agent.crash();
                Ok(fault.to_string())
            }
            None => Err("this lab runs without agents".to_owned()),
        },
        Fault::CrashController => match &lab.cloud.controller {
            Some(controller) => {
                controller.crash();
                Ok(fault.to_string())
            }
            None => Err("this lab runs without the controller".to_owned()),
        },
        Fault::Heal { node } => {
            let healed: Vec<usize> = match node {
                Some(node) => vec![find_node(&names, node)?],
                None => (0..lab.nodes.len()).collect(),
            };
            let links = lab.switch.links();
            let only = node
                .as_ref()
                .and(healed.first())
                .map(|index| lab.nodes[*index].index());
            let off: Vec<usize> = healed
                .into_iter()
                .filter(|index| !links.is_on(End::Node(lab.nodes[*index].index())))
                .collect();
            lab.switch.change(|links| {
                links.repair(only);
                for index in &off {
                    links.power_on(lab.nodes[*index].index());
                }
            });
            for index in off {
                lab.nodes[index]
                    .boot(lab)
                    .await
                    .map_err(|error| error.to_string())?;
            }
            Ok(fault.to_string())
        }
    }
}

impl Orders for Lab {
    async fn inflict(&self, fault: Fault) -> Result<String, String> {
        let done = Self::inflict(self, &fault).await;
        tracing::info!(?fault, ?done, "order");
        done
    }

    fn status(&self) -> Status {
        let (links, now) = (self.switch.links(), self.observer.now());
        let nodes = self.nodes.iter().map(|node| {
            let name = node.name();
            let fact = now.nodes().find(|fact| fact.name == name);
            let pods: Vec<_> = now
                .pods()
                .filter(|pod| pod.node == name && !pod.deleting)
                .collect();
            NodeStatus {
                name: name.to_owned(),
                power: links.is_on(End::Node(node.index())),
                links: links
                    .faults_of(node.index())
                    .into_iter()
                    .map(|(end, way, fault)| match end {
                        End::Cloud => format!("cloud {fault} ({way})"),
                        End::Node(other) => format!("{}-{other} {fault} ({way})", self.settings.prefix),
                    })
                    .collect(),
                agent: told(node.agent.as_ref()),
                ready: fact.map(|fact| fact.ready.clone()).unwrap_or_default(),
                incident: now
                    .open_incidents()
                    .find(|incident| incident.node == name)
                    .map(|incident| incident.state.clone())
                    .unwrap_or_default(),
                taints: fact.map(|fact| fact.taints.clone()).unwrap_or_default(),
                pods: pods.len(),
                ready_pods: pods.iter().filter(|pod| pod.ready).count(),
                endpoints: now
                    .endpoints()
                    .filter(|(_, endpoint)| endpoint.ready && endpoint.node == name)
                    .count(),
            }
        });
        Status {
            server: self.url.clone(),
            kubeconfig: self.directory.kubeconfig().display().to_string(),
            controller: told(self.cloud.controller.as_ref()),
            stock: told(self.cloud.stock.as_ref()),
            nodes: nodes.collect(),
        }
    }
}

fn told(child: Option<&Supervised>) -> String {
    match child.map(Supervised::state) {
        None => "none".to_owned(),
        Some(ChildState::Running { restarts: 0, .. }) => "running".to_owned(),
        Some(ChildState::Running { restarts, .. }) => format!("running (restarted {restarts})"),
        Some(ChildState::Crashed { how, .. }) => format!("down ({how})"),
        Some(ChildState::Off) => "off".to_owned(),
        Some(ChildState::Stopped) => "stopped".to_owned(),
    }
}
