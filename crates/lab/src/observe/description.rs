//! Changes in words, for the timeline. Pure.

use super::{
    facts::{Change, Kind, Watched},
    moment::Moment,
};
use std::collections::BTreeMap;

/// What a change means, in lines for the timeline; empty if it is not worth one. `before` is the state before
/// the change.
pub fn describe(before: &Moment, change: &Change) -> Vec<String> {
    match &change.what {
        Watched::Node(node) => {
            let old = before.nodes().find(|old| old.uid == node.uid);
            let mut lines = Vec::new();
            if old.is_none_or(|old| old.ready != node.ready) && !node.ready.is_empty() {
                lines.push(format!("node {} is Ready={}", node.name, node.ready));
            }
            let added = |taint: &&String| old.is_none_or(|old| !old.taints.contains(taint));
            lines.extend(
                node.taints
                    .iter()
                    .filter(added)
                    .map(|taint| format!("node {} tainted {taint}", node.name)),
            );
            let removed = old
                .into_iter()
                .flat_map(|old| &old.taints)
                .filter(|taint| !node.taints.contains(taint));
            lines.extend(removed.map(|taint| format!("node {} no longer tainted {taint}", node.name)));
            lines
        }
        Watched::Incident(incident) => {
            let old = before.open_incidents().find(|old| old.uid == incident.uid);
            if incident.closed {
                return old
                    .map(|_| format!("incident of {} is closed", incident.node))
                    .into_iter()
                    .collect();
            }
            let is_news = !incident.state.is_empty() && old.is_none_or(|old| old.state != incident.state);
            is_news
                .then(|| format!("{} is judged {}", incident.node, incident.state))
                .into_iter()
                .collect()
        }
        Watched::Pod(pod) => {
            let old = before.pod(&pod.uid);
            let name = format!("pod {} on {}", pod.name, pod.node);
            if pod.deleting && old.is_some_and(|old| !old.deleting) {
                vec![format!("{name} is told to go")]
            } else if pod.ready && !pod.deleting && old.is_none_or(|old| !old.ready) {
                vec![format!("{name} is ready")]
            } else if !pod.ready && old.is_some_and(|old| old.ready) {
                vec![format!("{name} is marked not ready")]
            } else {
                Vec::new()
            }
        }
        Watched::Gone(Kind::Pod, uid) => before
            .pod(uid)
            .map(|pod| format!("pod {} on {} is gone", pod.name, pod.node))
            .into_iter()
            .collect(),
        Watched::Slice(slice) => {
            let mut after = before.clone();
            after.apply(&change.what);
            let (old, new) = (
                ready_by_node(before, &slice.service),
                ready_by_node(&after, &slice.service),
            );
            let nodes: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            nodes
                .into_iter()
                .filter_map(|node| {
                    let (was, is) = (old.get(node).unwrap_or(&0), new.get(node).unwrap_or(&0));
                    (was != is)
                        .then(|| format!("{}: ready endpoints on {node}: {is} (had {was})", slice.service))
                })
                .collect()
        }
        Watched::Workload(_) | Watched::Service(_) | Watched::Gone(..) => Vec::new(),
    }
}

fn ready_by_node(moment: &Moment, service: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (_, endpoint) in moment
        .endpoints()
        .filter(|(name, endpoint)| *name == service && endpoint.ready)
    {
        *counts.entry(endpoint.node.clone()).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::facts::{EndpointFact, IncidentFact, NodeFact, PodFact, SliceFact};
    use std::time::Duration;

    fn described(changes: &[Watched]) -> Vec<String> {
        let mut moment = Moment::default();
        let mut lines = Vec::new();
        for what in changes {
            lines = describe(
                &moment,
                &Change {
                    at: Duration::ZERO,
                    what: what.clone(),
                },
            );
            moment.apply(what);
        }
        lines
    }

    #[test]
    fn what_happens_to_a_node() {
        let node = |ready: &str, taints: &[&str]| {
            Watched::Node(NodeFact {
                uid: "n".into(),
                name: "a".into(),
                ready: ready.into(),
                taints: taints.iter().map(|&taint| taint.into()).collect(),
                marked: false,
            })
        };
        assert_eq!(
            described(&[node("True", &[]), node("Unknown", &["x:NoSchedule"])]),
            ["node a is Ready=Unknown", "node a tainted x:NoSchedule"]
        );
        assert_eq!(
            described(&[node("True", &["x:NoSchedule"]), node("True", &[])]),
            ["node a no longer tainted x:NoSchedule"]
        );
        assert_eq!(described(&[node("True", &[]), node("True", &[])]), [""; 0]);
    }

    #[test]
    fn what_happens_to_a_pod() {
        let pod = |ready, deleting| {
            let (uid, name, node) = ("p".into(), "web".into(), "a".into());
            Watched::Pod(PodFact {
                uid,
                name,
                node,
                ready,
                deleting,
                ..PodFact::default()
            })
        };
        assert_eq!(
            described(&[pod(false, false), pod(true, false)]),
            ["pod web on a is ready"]
        );
        assert_eq!(
            described(&[pod(true, false), pod(false, false)]),
            ["pod web on a is marked not ready"]
        );
        assert_eq!(
            described(&[pod(true, false), pod(true, true)]),
            ["pod web on a is told to go"]
        );
        assert_eq!(
            described(&[pod(true, true), Watched::Gone(Kind::Pod, "p".into())]),
            ["pod web on a is gone"]
        );
    }

    #[test]
    fn what_happens_to_endpoints_and_incidents() {
        let slice = |ready| {
            let endpoint = EndpointFact {
                target: "p".into(),
                name: "web".into(),
                node: "a".into(),
                ready,
            };
            Watched::Slice(SliceFact {
                uid: "s".into(),
                service: "default/web".into(),
                endpoints: vec![endpoint],
            })
        };
        assert_eq!(
            described(&[slice(true), slice(false)]),
            ["default/web: ready endpoints on a: 0 (had 1)"]
        );
        let incident = |state: &str, closed| {
            let (uid, node, state) = ("i".into(), "a".into(), state.into());
            Watched::Incident(IncidentFact {
                uid,
                node,
                state,
                closed,
                missing: String::new(),
            })
        };
        assert_eq!(
            described(&[incident("", false), incident("Dead", false)]),
            ["a is judged Dead"]
        );
        assert_eq!(
            described(&[incident("Dead", false), incident("Dead", true)]),
            ["incident of a is closed"]
        );
    }
}
