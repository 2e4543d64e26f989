//! Faults, carried out on a running lab; and how the lab is.

use super::{
    Lab,
    node::{LabNode, TroubleKind},
};
use crate::{
    control::{
        Fault, Orders, find_node,
        status::{NodeStatus, Status},
    },
    scenario::crash::Replica,
    supervise::{ChildState, Supervised},
    switch::links::{self, End},
};
use evenkeel_api::names;
use k8s_openapi::api::coordination::v1::Lease;
use std::{sync::Arc, time::Duration};

/// Does what a fault asks for, and says what was done.
pub(super) async fn inflict(lab: &Lab, fault: &Fault) -> Result<String, String> {
    let nodes = lab.node_names();
    match fault {
        Fault::Cut {
            node,
            link,
            way,
            delay_ms,
            drop_percent,
        } => {
            let index = find_node(&nodes, node)?;
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
                    let other = find_node(&nodes, other)?;
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
            let node = &lab.nodes[find_node(&nodes, node)?];
            // The network falls silent first, so that nobody sees the end of a connection.
            lab.switch.change(|links| links.power_off(node.index()));
            node.power_off().await;
            Ok(fault.to_string())
        }
        Fault::CrashAgent { node } => {
            let node = &lab.nodes[find_node(&nodes, node)?];
            if node.trouble() == Some(TroubleKind::Frozen) {
                return Err(format!("{} is frozen; heal it first, or wait", node.name()));
            }
            if !node.has_agent() {
                return Err("this lab runs without agents".to_owned());
            }
            node.crash_agent();
            Ok(fault.to_string())
        }
        Fault::CrashController { which } => {
            if lab.control.is_empty() {
                for controller in controllers(lab, *which).await? {
                    controller.crash();
                }
            } else {
                crash_pods(lab, *which).await?;
            }
            Ok(fault.to_string())
        }
        Fault::CrashApiServer { for_ms, stock } => {
            lab.begin_outage(Duration::from_millis(*for_ms), *stock).await?;
            Ok(fault.to_string())
        }
        Fault::Stall { node, for_ms } => {
            let node = &lab.nodes[find_node(&nodes, node)?];
            lab.stall(node, Duration::from_millis(*for_ms)).await?;
            Ok(fault.to_string())
        }
        Fault::RestartAgent { node, for_ms } => {
            let node = &lab.nodes[find_node(&nodes, node)?];
            lab.restart_agent(node, Duration::from_millis(*for_ms))?;
            Ok(fault.to_string())
        }
        Fault::RestartKubelet { node, for_ms } => {
            let node = &lab.nodes[find_node(&nodes, node)?];
            lab.restart_kubelet(node, Duration::from_millis(*for_ms)).await?;
            Ok(fault.to_string())
        }
        Fault::Heal { node } => {
            heal(lab, node.as_deref()).await?;
            Ok(fault.to_string())
        }
    }
}

/// Repairs one node, or everything.
async fn heal(lab: &Lab, node: Option<&str>) -> Result<(), String> {
    let healed: Vec<usize> = match node {
        Some(node) => vec![find_node(&lab.node_names(), node)?],
        None => (0..lab.nodes.len()).collect(),
    };
    if node.is_none() {
        lab.end_outage().await?;
    }
    for index in &healed {
        lab.end_trouble(&lab.nodes[*index])
            .await
            .map_err(|error| error.to_string())?;
    }
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
        lab.nodes[index].boot().await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The controllers that a fault is about.
async fn controllers(lab: &Lab, which: Replica) -> Result<Vec<&Supervised>, String> {
    let all = &lab.cloud.controllers;
    if all.is_empty() {
        return Err("this lab runs without the controller".to_owned());
    }
    match which {
        Replica::All => Ok(all.iter().collect()),
        Replica::Number(number) => {
            let found = usize::from(number)
                .checked_sub(1)
                .and_then(|index| all.get(index));
            let count = all.len();
            found
                .map(|controller| vec![controller])
                .ok_or_else(|| format!("there is no controller {number}; this lab has {count}"))
        }
        Replica::Leader => {
            let name = leader(lab).await?;
            let leads = |controller: &&Supervised| controller.spec().name == name;
            all.iter()
                .find(leads)
                .map(|controller| vec![controller])
                .ok_or_else(nobody_leads)
        }
    }
}

/// Kills controllers that are pods. They are counted in the order of their machines.
async fn crash_pods(lab: &Lab, which: Replica) -> Result<(), String> {
    let on = |node: &Arc<LabNode>| {
        let pods = node.controllers().into_iter();
        pods.map(|pod| (Arc::clone(node), pod)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = lab.control.iter().flat_map(on).collect();
    match which {
        Replica::All => {}
        Replica::Number(number) => {
            let count = all.len();
            let index = usize::from(number).checked_sub(1).filter(|index| *index < count);
            let index = index.ok_or_else(|| format!("there is no controller {number}; {count} run"))?;
            all = vec![all.swap_remove(index)];
        }
        Replica::Leader => {
            let name = leader(lab).await?;
            all.retain(|(_, pod)| *pod == name);
            if all.is_empty() {
                return Err(nobody_leads());
            }
        }
    }
    if all.is_empty() {
        return Err("no controller runs at the moment; try again in a few seconds".to_owned());
    }
    for (node, pod) in all {
        node.crash_controller(&pod);
    }
    Ok(())
}

fn nobody_leads() -> String {
    "no controller leads at the moment; try again in a few seconds".to_owned()
}

/// Name of the controller that leads.
async fn leader(lab: &Lab) -> Result<String, String> {
    let leases: kube::Api<Lease> = kube::Api::namespaced(lab.plane.observer(), names::NAMESPACE);
    let lease = leases.get(names::CONTROLLER_LEASE).await;
    let lease = lease.map_err(|error| format!("cannot find out which controller leads: {error}"))?;
    let holder = lease
        .spec
        .and_then(|spec| spec.holder_identity)
        .unwrap_or_default();
    // The part after the last `_` is the number of this start.
    Ok(holder
        .rsplit_once('_')
        .map_or(holder.as_str(), |(name, _)| name)
        .to_owned())
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
                trouble: match node.trouble() {
                    None => String::new(),
                    Some(TroubleKind::Frozen) => "frozen".to_owned(),
                    Some(TroubleKind::KubeletDown) => "kubelet down".to_owned(),
                    // The agent's own column says so.
                    Some(TroubleKind::AgentDown) => String::new(),
                },
                links: links
                    .faults_of(node.index())
                    .into_iter()
                    .map(|(end, way, fault)| match end {
                        End::Cloud => format!("cloud {fault} ({way})"),
                        End::Node(other) => {
                            let other = usize::from(other).checked_sub(1);
                            let other = other.and_then(|index| self.nodes.get(index));
                            format!("{} {fault} ({way})", other.map_or("?", |node| node.name()))
                        }
                    })
                    .collect(),
                agent: node.agent_state(),
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
            kubeconfig: self.kubeconfig().display().to_string(),
            api_server: match (self.is_down(), self.plane.joined()) {
                (true, _) => "down".to_owned(),
                (false, None) => "running".to_owned(),
                (false, Some(cluster)) => format!("joined ({})", cluster.context()),
            },
            controllers: self
                .cloud
                .controllers
                .iter()
                .map(|controller| (controller.spec().name.clone(), state_of(Some(controller))))
                .chain(self.control.iter().flat_map(|node| {
                    let pods = node.controllers().into_iter();
                    pods.map(|pod| (pod, "running".to_owned()))
                }))
                .collect(),
            stock: state_of(self.cloud.stock.as_ref()),
            nodes: nodes.collect(),
        }
    }
}

pub(super) fn state_of(child: Option<&Supervised>) -> String {
    match child.map(Supervised::state) {
        None => "none".to_owned(),
        Some(ChildState::Running { restarts: 0, .. }) => "running".to_owned(),
        Some(ChildState::Running { restarts, .. }) => format!("running (restarted {restarts})"),
        Some(ChildState::Crashed { how, .. }) => format!("down ({how})"),
        Some(ChildState::Off) => "off".to_owned(),
        Some(ChildState::Stopped) => "stopped".to_owned(),
    }
}
