//! The settings that hold for a node: its policies, where they are silent the profile. The most cautious
//! value wins.
//!
//! | setting | most cautious | why |
//! |---|---|---|
//! | `mode` | `observe` | nothing is changed |
//! | `autonomySeconds` | the longest | evictions are held for longer |
//! | `evictAfterSeconds` | the longest | pods are deleted later |
//! | `endpoints` | `stock` | no deviation from Kubernetes |
//! | `isolated` | `report` | it does nothing |
//! | `fencing` | `off`, then `observe` | it does nothing |
//!
//! Values that nothing acts upon yet (`endpoints: keep-local`, `fencing: enforce`, `statefulFailover: true`)
//! are refused by the schema. A stored policy that holds one is read as its cautious value, and told so in
//! its status.

use evenkeel_api::policy::{
    EndpointsPolicy, FailoverPolicySpec, FencingPolicy, IsolatedPolicy, ModePolicy, Profile,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// The settings of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether anything is changed at all.
    pub mode: ModePolicy,
    /// Seconds for which evictions are held while the whole zone is silent.
    pub autonomy_seconds: i64,
    /// Seconds from the taint of a dead node to the eviction of pods that carry only the default toleration.
    pub evict_after_seconds: i64,
    /// Endpoints of a Disconnected node.
    pub endpoints: EndpointsPolicy,
    /// What is done about an Isolated node.
    pub isolated: IsolatedPolicy,
    /// Whether fencing is recorded; nothing fences yet.
    pub fencing: FencingPolicy,
}

impl Settings {
    /// The defaults of a profile, as docs/failover.md lists them.
    pub fn of(profile: Profile) -> Self {
        let builtin = Self {
            mode: ModePolicy::Act,
            autonomy_seconds: 0,
            evict_after_seconds: 30,
            endpoints: EndpointsPolicy::Keep,
            isolated: IsolatedPolicy::Report,
            fencing: FencingPolicy::Observe,
        };
        match profile {
            Profile::Builtin => builtin,
            Profile::Edge => Self {
                autonomy_seconds: 24 * 3600,
                evict_after_seconds: 0,
                ..builtin
            },
        }
    }
}

/// A policy as it stands in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Name of the FailoverPolicy.
    pub name: String,
    /// Generation of the object.
    pub generation: i64,
    /// The fields of the object.
    pub spec: FailoverPolicySpec,
}

/// One value of a policy that another policy's more cautious one overrules, on at least one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overruled {
    /// The policy that loses.
    pub policy: String,
    /// In words: which field, which value, and whose value holds.
    pub text: String,
}

/// Whether the policy speaks of a node with these labels.
pub fn selects(spec: &FailoverPolicySpec, labels: &BTreeMap<String, String>) -> bool {
    spec.node_labels
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

/// The settings of a node with these labels, and which policies were overruled on it.
///
/// Negative seconds count as 0: the schema refuses them, an object from before it may still carry them.
pub fn effective<'a>(
    policies: impl IntoIterator<Item = &'a Policy>,
    labels: &BTreeMap<String, String>,
    profile: Profile,
) -> (Settings, Vec<Overruled>) {
    let matching: Vec<&Policy> = policies
        .into_iter()
        .filter(|policy| selects(&policy.spec, labels))
        .collect();
    let defaults = Settings::of(profile);
    let mut overruled = Vec::new();
    let mut pick = Picker {
        matching: &matching,
        overruled: &mut overruled,
    };
    let settings = Settings {
        mode: pick
            .most_cautious("mode", |spec| spec.mode, |mode| *mode)
            .unwrap_or(defaults.mode),
        autonomy_seconds: pick
            .most_cautious(
                "autonomySeconds",
                |spec| spec.autonomy_seconds,
                |seconds| *seconds,
            )
            .map_or(defaults.autonomy_seconds, |seconds| seconds.max(0)),
        evict_after_seconds: pick
            .most_cautious(
                "evictAfterSeconds",
                |spec| spec.evict_after_seconds,
                |seconds| *seconds,
            )
            .map_or(defaults.evict_after_seconds, |seconds| seconds.max(0)),
        endpoints: pick
            .most_cautious(
                "endpoints",
                |spec| spec.endpoints.map(acted_endpoints),
                |endpoints| *endpoints,
            )
            .unwrap_or(defaults.endpoints),
        isolated: pick
            .most_cautious("isolated", |spec| spec.isolated, |isolated| Reverse(*isolated))
            .unwrap_or(defaults.isolated),
        fencing: pick
            .most_cautious(
                "fencing",
                |spec| spec.fencing.map(acted_fencing),
                |fencing| *fencing == FencingPolicy::Off,
            )
            .unwrap_or(defaults.fencing),
    };
    (settings, overruled)
}

fn acted_endpoints(asked: EndpointsPolicy) -> EndpointsPolicy {
    match asked {
        EndpointsPolicy::KeepLocal => EndpointsPolicy::Stock,
        asked => asked,
    }
}

fn acted_fencing(asked: FencingPolicy) -> FencingPolicy {
    match asked {
        FencingPolicy::Enforce => FencingPolicy::Observe,
        asked => asked,
    }
}

/// Values of a policy that nothing acts upon: which, what holds in their place, and why; for its status.
pub fn refused(spec: &FailoverPolicySpec) -> Vec<String> {
    let mut refused = Vec::new();
    if spec.endpoints == Some(EndpointsPolicy::KeepLocal) {
        refused.push(
            "endpoints: keep-local is refused, and stock is used: nothing can restrict endpoints to consumers in the \
             zone yet; set keep or stock"
                .to_owned(),
        );
    }
    if spec.fencing == Some(FencingPolicy::Enforce) {
        refused.push(
            "fencing: enforce is refused, and observe is used: no fencing method exists yet; set observe or off".to_owned(),
        );
    }
    if spec.stateful_failover == Some(true) {
        refused.push(
            "statefulFailover: true is refused, and false is used: stateful pods move only with a fence proof, and \
             nothing produces one yet; remove it"
                .to_owned(),
        );
    }
    for (field, seconds) in [
        ("autonomySeconds", spec.autonomy_seconds),
        ("evictAfterSeconds", spec.evict_after_seconds),
    ] {
        if let Some(seconds) = seconds.filter(|seconds| *seconds < 0) {
            refused.push(format!(
                "{field}: {seconds} is refused, and 0 is used: it must not be negative"
            ));
        }
    }
    refused
}

/// Picks values among the policies that select a node, and notes who is overruled.
struct Picker<'a> {
    matching: &'a [&'a Policy],
    overruled: &'a mut Vec<Overruled>,
}

impl Picker<'_> {
    /// The value with the most `caution`; of equals, the first policy's.
    fn most_cautious<T, C>(
        &mut self,
        field: &str,
        value: impl Fn(&FailoverPolicySpec) -> Option<T>,
        caution: impl Fn(&T) -> C,
    ) -> Option<T>
    where
        T: Copy + PartialEq + fmt::Debug,
        C: Ord,
    {
        let said: Vec<(&Policy, T)> = self
            .matching
            .iter()
            .filter_map(|policy| Some((*policy, value(&policy.spec)?)))
            .collect();
        let mut holds: Option<(&Policy, T)> = None;
        for (policy, value) in &said {
            if holds.is_none_or(|(_, held)| caution(value) > caution(&held)) {
                holds = Some((policy, *value));
            }
        }
        let (by, held) = holds?;
        for (policy, value) in said.iter().filter(|(_, value)| *value != held) {
            self.overruled.push(Overruled {
                policy: policy.name.clone(),
                text: format!(
                    "{field} {value:?}: overruled by the more cautious {held:?} of {}",
                    by.name
                ),
            });
        }
        Some(held)
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
