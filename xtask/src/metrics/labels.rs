//! Where the values of labels come from that are no enum of their own, and what they mean.

use super::declared::{Label, Metric, Value};
use super::places::Place::{self, Arguments, Function, Variable};
use anyhow::{Context, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What is known of a label.
struct Known {
    /// How the names of the metrics begin.
    metrics: &'static [&'static str],
    label: &'static str,
    places: &'static [Place],
    /// What the values mean, if the code does not say it. Without `places`: one row, in which the name is
    /// empty, that says what any value is.
    meanings: &'static [(&'static str, &'static str)],
}

const PROBES: &[&str] = &["prober_probe", "evenkeel_probe_"];

/// Of a label that may have any value.
const fn any(
    metrics: &'static [&'static str],
    label: &'static str,
    meaning: &'static [(&'static str, &'static str)],
) -> Known {
    Known {
        metrics,
        label,
        places: &[],
        meanings: meaning,
    }
}

/// Why an agent refuses a datagram.
const REFUSALS: &[(&str, &str)] = &[
    (
        "addressee",
        "It is addressed to another agent, so it was sent to the wrong place.",
    ),
    ("base64", "Evidence in a report is not base64."),
    ("askers", "Too many agents of other cells ask at the same time."),
    (
        "budget",
        "The sender sends more than is acted on (docs/zone.md, Floods).",
    ),
    (
        "carries-enough",
        "This agent writes for enough other cells. It named others that can be asked.",
    ),
    (
        "code",
        "The code is wrong. The sender has another key than the one in this agent's roster, or the datagram is forged.",
    ),
    ("field", "A field has an impossible value. No agent sends this."),
    ("key", "The key in a request of another cell is no key."),
    (
        "kind",
        "The kind of the datagram is unknown, or does not belong here.",
    ),
    ("magic", "It does not begin as datagrams of agents begin."),
    (
        "no-link",
        "This agent cannot write for another cell, because it does not reach the API server itself.",
    ),
    (
        "own",
        "This agent sent it itself, and it came back. Look for a loop in the network, or for two agents with one identity.",
    ),
    (
        "own-cell",
        "A member of this agent's own cell asked it to write for another cell.",
    ),
    (
        "readings",
        "Another cell asks to read Leases more often than is served.",
    ),
    (
        "relay",
        "The sender asks to pass on more than is served, or something that is not its own.",
    ),
    (
        "replay",
        "It was received before, or it is from an earlier start of the sender. A few at each start are normal.",
    ),
    ("report", "The report of another cell makes no sense."),
    (
        "report-budget",
        "Parts of a report are asked for more often than is served.",
    ),
    (
        "roster",
        "What was passed on is no roster of this cell, or it is not signed.",
    ),
    ("roster-budget", "More than 30 parts of rosters in a second."),
    (
        "signature",
        "The signature is wrong. The sender has another key than the one in this agent's roster, or the datagram is forged.",
    ),
    (
        "stale-ack",
        "An answer came too late, or answers nothing that was asked.",
    ),
    (
        "stranger",
        "The sender is not in the roster. It is normal for a short time after a node joins or leaves.",
    ),
    (
        "stranger-budget",
        "Agents of other cells ask more often than is served.",
    ),
    ("truncated", "It ends too early."),
    ("unasked", "An answer or a ballot that nobody waits for."),
    (
        "version",
        "The sender speaks another version. Upgrade the older agents.",
    ),
];

const KNOWN: &[Known] = &[
    Known {
        metrics: &["evenkeel_agent_datagrams_refused_total"],
        label: "reason",
        places: &[
            Function("crates/zone/src/wire/mod.rs", "WireError::reason"),
            Arguments("crates/zone/src/engine", &["Err", "Refused", "ok_or", "map_err"]),
        ],
        meanings: REFUSALS,
    },
    Known {
        metrics: &["evenkeel_agent_checks_total"],
        label: "result",
        places: &[Variable("crates/agent/src/zone.rs", "check", "name")],
        meanings: &[
            (
                "failed",
                "Nothing answered that counts (docs/agent.md). The vote may be \"dead\".",
            ),
            (
                "identity",
                "The kubelet showed its own certificate: the node lives.",
            ),
            (
                "inconclusive",
                "Something answered that could be somebody else. The agent abstains.",
            ),
            (
                "unavailable",
                "The check could not be made: no certificate of the kubelet is known, too many checks run, or the agent lacks something.",
            ),
        ],
    },
    Known {
        metrics: &["evenkeel_agent_confirm_rounds_total"],
        label: "result",
        places: &[Function(
            "crates/zone/src/engine/reporter/rounds.rs",
            "Outcome::words",
        )],
        meanings: &[],
    },
    Known {
        metrics: &["evenkeel_agent_reports_total"],
        label: "result",
        places: &[Variable("crates/agent/src/reporter.rs", "write", "result")],
        meanings: &[],
    },
    Known {
        metrics: &["evenkeel_agent_link_proofs_total"],
        label: "result",
        places: &[Variable(
            "crates/agent/src/cloud/statements.rs",
            "write_statements",
            "result",
        )],
        meanings: &[],
    },
    Known {
        metrics: &["evenkeel_failover_actions_total"],
        label: "action",
        places: &[Function("crates/failover/src/shell/execute/mod.rs", "kind")],
        meanings: &[],
    },
    Known {
        metrics: &["evenkeel_failover_actions_total"],
        label: "outcome",
        places: &[Variable(
            "crates/failover/src/shell/execute/mod.rs",
            "perform",
            "label",
        )],
        meanings: &[
            ("done", "It is written, or there was nothing left to do."),
            (
                "failed",
                "The API server could not be asked, or refused it. It is tried again, and the log says why.",
            ),
            (
                "refused",
                "The last look before a step that cannot be undone found a sign of life, or this replica leads no longer.",
            ),
            (
                "stale",
                "The object changed meanwhile. The controller decides again.",
            ),
        ],
    },
    Known {
        metrics: &["evenkeel_failover_nodes"],
        label: "state",
        places: &[Function("crates/judge/src/state.rs", "NodeState::name")],
        meanings: &[],
    },
    Known {
        metrics: &["evenkeel_webhook_decisions_total"],
        label: "kind",
        places: &[Function("crates/failover/src/webhook/metrics.rs", "kind")],
        meanings: &[],
    },
    Known {
        metrics: &["evenkeel_webhook_decisions_total"],
        label: "result",
        places: &[
            Function(
                "crates/failover-rules/src/admission/decision.rs",
                "PassReason::label",
            ),
            Variable("crates/failover/src/webhook/metrics.rs", "decided", "result"),
        ],
        meanings: &[
            (
                "malformed",
                "The request was no review that can be read. It was answered with 400.",
            ),
            (
                "pass_not_ours",
                "Not a write of a controller of Kubernetes to something that Evenkeel corrects.",
            ),
            (
                "pass_not_protected",
                "The node's state asks for no correction, or it is another node with the same name.",
            ),
            (
                "pass_nothing",
                "The write changes nothing that has to be corrected.",
            ),
            (
                "pass_own_account",
                "The pod is not ready for a reason of its own, or the write changes more than its readiness.",
            ),
            (
                "pass_view_not_live",
                "What this replica knows of the cluster is too old to act upon. While it grows, the webhook corrects nothing.",
            ),
            (
                "patched",
                "The write was corrected, so that the node or pod stays as it was.",
            ),
        ],
    },
    Known {
        metrics: &["evenkeel_vnode_provider_call"],
        label: "call",
        places: &[
            Arguments("crates/vnode/src/pods/queries.rs", &["run"]),
            Arguments("crates/vnode/src/pods/perform.rs", &["run"]),
            Arguments("crates/vnode/src/pods/node.rs", &["run"]),
        ],
        meanings: &[],
    },
    any(
        &["evenkeel_vnode_api_requests_total"],
        "method",
        &[("", "the HTTP method")],
    ),
    any(
        &["evenkeel_vnode_api_requests_total"],
        "code",
        &[("", "the HTTP status; 0 if no answer came")],
    ),
    Known {
        metrics: &["evenkeel_koupleless_base_call"],
        label: "command",
        places: &[Function("crates/arklet/src/command.rs", "Command::id")],
        meanings: &[],
    },
    any(&["leader_election_"], "name", &[("", "the name of the lock")]),
    Known {
        metrics: &["leader_election_request_duration_seconds"],
        label: "verb",
        places: &[
            Function("crates/election/src/shell.rs", "get"),
            Arguments("crates/election/src/shell.rs", &["write"]),
        ],
        meanings: &[],
    },
    Known {
        metrics: &["leader_election_request_duration_seconds"],
        label: "result",
        places: &[Variable("crates/election/src/shell.rs", "answered", "result")],
        meanings: &[],
    },
    Known {
        metrics: PROBES,
        label: "probe_type",
        places: &[Function("crates/probe-handlers/src/spec.rs", "Kind::name")],
        meanings: &[],
    },
    Known {
        metrics: PROBES,
        label: "result",
        places: &[Function("crates/probe/src/metrics.rs", "result")],
        meanings: &[],
    },
    any(PROBES, "container", &[("", "the container's name")]),
    any(PROBES, "pod", &[("", "the pod's name")]),
    any(PROBES, "namespace", &[("", "the pod's namespace")]),
    any(PROBES, "pod_uid", &[("", "the pod's UID")]),
    any(&["node_collector_"], "zone", &[("", "the zone of the nodes")]),
    any(
        &["evenkeel_build_info"],
        "component",
        &[("", "the process, as in `controller`")],
    ),
    any(&["evenkeel_build_info"], "version", &[("", "its version")]),
];

/// Completes the labels of metrics with the values that their types do not list.
pub(super) fn complete(root: &Path, metrics: &mut [Metric]) -> anyhow::Result<()> {
    let mut used = BTreeSet::new();
    for metric in metrics {
        for label in &mut metric.labels {
            let found = KNOWN
                .iter()
                .position(|known| known.label == label.name && known.is_of(metric.name.as_str()));
            let enumerated = label.values.iter().any(|value| !value.meaning.is_empty());
            let Some(at) = found else {
                if !label.values.is_empty() {
                    continue;
                }
                bail!(
                    "{}: nothing is known of the values of `{}` of `{}`: make them an enum, or add a row to \
                     xtask/src/metrics/labels.rs",
                    metric.file,
                    label.name,
                    metric.name
                );
            };
            used.insert(at);
            if enumerated {
                bail!(
                    "{}: `{}` is an enum with meanings, take its row out of xtask/src/metrics/labels.rs",
                    metric.name,
                    label.name
                );
            }
            KNOWN[at].fill(root, label).with_context(|| {
                format!(
                    "the row of `{}` of `{}` in xtask/src/metrics/labels.rs",
                    label.name, metric.name
                )
            })?;
        }
    }
    for (at, known) in KNOWN.iter().enumerate() {
        if !used.contains(&at) {
            bail!(
                "no metric {:?} has the label `{}`: take its row out of xtask/src/metrics/labels.rs",
                known.metrics,
                known.label
            );
        }
    }
    Ok(())
}

impl Known {
    fn is_of(&self, metric: &str) -> bool {
        self.metrics.iter().any(|start| metric.starts_with(start))
    }

    fn fill(&self, root: &Path, label: &mut Label) -> anyhow::Result<()> {
        let mut values: BTreeMap<String, String> = label
            .values
            .drain(..)
            .map(|value| (value.name, value.meaning))
            .collect();
        for place in self.places {
            let found = place.values(root)?;
            if found.is_empty() {
                bail!("{} has no values", place.file());
            }
            for value in found {
                let meaning = values.entry(value.name).or_default();
                if meaning.is_empty() {
                    *meaning = value.meaning;
                }
            }
        }
        for (name, meaning) in self.meanings {
            match values.get_mut(*name) {
                Some(known) => (*meaning).clone_into(known),
                None if self.places.is_empty() => {
                    values.insert((*name).to_owned(), (*meaning).to_owned());
                }
                None => bail!("no value is called `{name}` any more"),
            }
        }
        if let Some((name, _)) = values.iter().find(|(_, meaning)| meaning.is_empty())
            && !self.meanings.is_empty()
        {
            bail!("the meaning of the value `{name}` is missing");
        }
        let value = |(name, meaning)| Value { name, meaning };
        label.values = values.into_iter().map(value).collect();
        Ok(())
    }
}
