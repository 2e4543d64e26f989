//! When a node counts as silent, and what is written on it then.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Conditions that turn Unknown with a silent kubelet. NetworkUnavailable is not the kubelet's.
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
const NEVER: (&str, &str) = ("NodeStatusNeverUpdated", "Kubelet never posted node status.");
const STOPPED: (&str, &str) = ("NodeStatusUnknown", "Kubelet stopped posting node status.");

/// For how long a node may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// `--node-monitor-grace-period`.
    pub monitor: SignedDuration,
    /// `--node-startup-grace-period`: while the node has no Ready condition.
    pub startup: SignedDuration,
}

impl Default for Grace {
    fn default() -> Self {
        Self {
            monitor: SignedDuration::from_secs(50),
            startup: SignedDuration::from_secs(60),
        }
    }
}

/// What is remembered of a node. Times are when *we* noticed a change, never what the node says, except for a
/// node that never reported, which counts from its creation.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// Ready condition as last seen or written.
    pub ready: Option<NodeCondition>,
    /// `renewTime` of the Lease as last seen.
    lease: Option<Timestamp>,
    /// Last sign of life.
    pub probe: Timestamp,
    /// Last change of the Ready condition.
    pub transition: Timestamp,
}

impl Health {
    fn fresh(ready: Option<&NodeCondition>, at: Timestamp) -> Self {
        Self {
            ready: ready.cloned(),
            lease: None,
            probe: at,
            transition: at,
        }
    }

    /// The grace starts over.
    pub fn restart(&mut self, now: Timestamp) {
        self.probe = now;
        self.transition = now;
    }
}

/// What a look at a node found.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Status of the Ready condition before; `Unknown` where there is none.
    pub observed: String,
    /// Ready condition after `write`.
    pub current: Option<NodeCondition>,
    /// Conditions to write, if the node went silent: only those that change.
    pub write: Vec<NodeCondition>,
    lease: Option<Timestamp>,
}

impl Check {
    /// Status of the Ready condition after the write.
    pub fn current_status(&self) -> Option<&str> {
        self.current.as_ref().map(|condition| condition.status.as_str())
    }
}

/// Looks at a node, with the `renewTime` of its Lease if it has one.
pub fn check(
    memory: &mut Option<Health>,
    node: &Node,
    lease: Option<Timestamp>,
    grace: Grace,
    now: Timestamp,
) -> Check {
    let ready = condition(node, "Ready");
    let created = node
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(now, |time| time.0);
    let saved = memory.as_ref().and_then(|health| health.lease);
    let health = remember(memory, ready, created, now);
    // A Lease that is renewed without a status ever being posted is a sign of life too.
    if lease.is_some_and(|renewed| saved.is_none_or(|saved| saved < renewed)) {
        health.lease = lease;
        health.probe = now;
    }
    let observed = ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.clone());
    let grace = if ready.is_some() {
        grace.monitor
    } else {
        grace.startup
    };
    let mut check = Check {
        observed,
        current: ready.cloned(),
        write: Vec::new(),
        lease,
    };
    if now.duration_since(health.probe) <= grace {
        return check;
    }
    let unknown: Vec<NodeCondition> = KUBELET_CONDITIONS
        .into_iter()
        .filter_map(|kind| silenced(kind, condition(node, kind), created, now))
        .collect();
    if let Some(ready) = unknown.iter().find(|condition| condition.type_ == "Ready") {
        check.current = Some(ready.clone());
        // Other conditions are written along with Ready, never alone.
        check.write = unknown;
    }
    check
}

/// The conditions of `check` were written.
pub fn written(memory: &mut Option<Health>, check: &Check, now: Timestamp) {
    if let Some(health) = memory {
        *health = Health {
            ready: check.current.clone(),
            lease: check.lease,
            probe: health.probe,
            transition: now,
        };
    }
}

/// The condition of a node by type.
pub fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

fn remember<'a>(
    memory: &'a mut Option<Health>,
    ready: Option<&NodeCondition>,
    created: Timestamp,
    now: Timestamp,
) -> &'a mut Health {
    let next = match memory.take() {
        None => Health::fresh(ready, if ready.is_some() { now } else { created }),
        Some(health) => match (&health.ready, ready) {
            (None, None) => health,
            // Ready appeared or disappeared.
            (None, Some(_)) | (Some(_), None) => Health::fresh(ready, now),
            (Some(_), Some(current)) => heard(health, current, now),
        },
    };
    memory.insert(next)
}

/// A new heartbeat starts the record over, and with it what was known of the Lease: the next look counts an
/// old Lease as fresh once more, at most one monitor period longer. Stock does the same.
fn heard(health: Health, current: &NodeCondition, now: Timestamp) -> Health {
    let saved = health.ready.as_ref();
    if saved.is_some_and(|saved| saved.last_heartbeat_time == current.last_heartbeat_time) {
        return health;
    }
    let moved = saved.is_none_or(|saved| saved.last_transition_time != current.last_transition_time);
    Health {
        ready: Some(current.clone()),
        lease: None,
        probe: now,
        transition: if moved { now } else { health.transition },
    }
}

/// What becomes of a condition of a silent node; `None` if it is Unknown already.
fn silenced(
    kind: &str,
    current: Option<&NodeCondition>,
    created: Timestamp,
    now: Timestamp,
) -> Option<NodeCondition> {
    let Some(current) = current else {
        return Some(NodeCondition {
            type_: kind.to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(NEVER.0.to_owned()),
            message: Some(NEVER.1.to_owned()),
            last_heartbeat_time: Some(Time(created)),
            last_transition_time: Some(Time(now)),
        });
    };
    (current.status != "Unknown").then(|| NodeCondition {
        status: "Unknown".to_owned(),
        reason: Some(STOPPED.0.to_owned()),
        message: Some(STOPPED.1.to_owned()),
        last_transition_time: Some(Time(now)),
        ..current.clone()
    })
}
