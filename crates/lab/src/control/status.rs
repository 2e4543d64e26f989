//! How a lab is, as data and as a table.

use evenkeel_kube_values::terminal::table;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a lab is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Where the API server answers.
    pub server: String,
    pub kubeconfig: String,
    /// `running` or `down`.
    pub api_server: String,
    /// Name of each controller and how it is: `running`, `down (…)`. Empty in a lab without agents.
    pub controllers: Vec<(String, String)>,
    /// The stand-in for the stock controllers.
    pub stock: String,
    /// The nodes, in order.
    pub nodes: Vec<NodeStatus>,
}

/// How a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    pub name: String,
    /// Whether it has power.
    pub power: bool,
    /// What is wrong with the machine for a time: `frozen`, `kubelet down`; empty if nothing is.
    #[serde(default)]
    pub trouble: String,
    /// Faults of its links, for people.
    pub links: Vec<String>,
    /// How its agent is.
    pub agent: String,
    /// Ready condition as the API server has it.
    pub ready: String,
    /// State of its open incident, empty without one.
    pub incident: String,
    /// Taints, `key:effect`.
    pub taints: Vec<String>,
    /// Pods bound to it that stay.
    pub pods: usize,
    /// Of those, ready ones.
    pub ready_pods: usize,
    /// Ready endpoints on it.
    pub endpoints: usize,
}

impl NodeStatus {
    /// `wide`: taints with their full keys.
    fn cells(&self, wide: bool) -> [String; 8] {
        let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        let taints = self.taints.iter().map(|taint| match taint.rsplit('/').next() {
            Some(short) if !wide => short.to_owned(),
            _ => taint.clone(),
        });
        [
            self.name.clone(),
            match (self.power, self.trouble.as_str()) {
                (false, _) => "off".to_owned(),
                (true, "") => "on".to_owned(),
                (true, trouble) => trouble.to_owned(),
            },
            or_dash(self.links.join("; ")),
            self.agent.clone(),
            or_dash(self.ready.clone()),
            or_dash(self.incident.clone()),
            format!(
                "{}/{} pods, {} endpoints",
                self.ready_pods, self.pods, self.endpoints
            ),
            or_dash(taints.collect::<Vec<_>>().join(",")),
        ]
    }
}

impl Status {
    /// For people.
    pub fn table(&self, wide: bool) -> String {
        if wide {
            format!("{self:#}")
        } else {
            self.to_string()
        }
    }
}

/// The alternate form (`{:#}`) is the wide one.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "api server {} {}", self.server, self.api_server)?;
        if self.controllers.is_empty() {
            f.write_str("   controller none")?;
        }
        for (name, state) in &self.controllers {
            write!(f, "   {name} {state}")?;
        }
        writeln!(f, "   stock stand-in {}", self.stock)?;
        writeln!(f, "kubeconfig {}", self.kubeconfig)?;
        let head = [
            "NODE", "POWER", "LINKS", "AGENT", "READY", "STATE", "WORK", "TAINTS",
        ]
        .map(str::to_owned);
        let rows: Vec<[String; 8]> = std::iter::once(head)
            .chain(self.nodes.iter().map(|node| node.cells(f.alternate())))
            .collect();
        f.write_str(&table(&rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_as_a_table() {
        let node = NodeStatus {
            name: "shore-2".to_owned(),
            power: true,
            trouble: String::new(),
            links: vec!["cloud cut (both ways)".to_owned()],
            agent: "running".to_owned(),
            ready: "Unknown".to_owned(),
            incident: "Disconnected".to_owned(),
            taints: vec!["node.kubernetes.io/unreachable:NoSchedule".to_owned()],
            pods: 3,
            ready_pods: 2,
            endpoints: 2,
        };
        let status = Status {
            server: "https://127.0.0.1:1".to_owned(),
            kubeconfig: "/lab/kubeconfig".to_owned(),
            api_server: "running".to_owned(),
            controllers: vec![
                ("controller-1".to_owned(), "running".to_owned()),
                ("controller-2".to_owned(), "down (SIGKILL)".to_owned()),
            ],
            stock: "running".to_owned(),
            nodes: vec![node],
        };
        let text = status.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "api server https://127.0.0.1:1 running   controller-1 running   controller-2 down (SIGKILL)   stock stand-in running"
        );
        assert_eq!(
            lines[3],
            "shore-2  on     cloud cut (both ways)  running  Unknown  Disconnected  2/3 pods, 2 endpoints  unreachable:NoSchedule"
        );
        assert_eq!(lines[2].find("POWER"), lines[3].find("on"));
        let wide = status.table(true);
        assert!(
            wide.ends_with("  node.kubernetes.io/unreachable:NoSchedule\n"),
            "{wide}"
        );
    }
}
