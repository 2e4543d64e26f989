//! Differences that stay, each with its reason. `docs/differential.md` says more of them.

use super::case::{Case, Payload, Step};
use super::compare::Difference;

/// A difference that stays.
pub(super) struct Known {
    /// The kinds that show it, as in `v1 Pod`; a group of kinds by its beginning.
    kinds: &'static [&'static str],
    /// How the pattern of the difference begins, in one of these ways.
    patterns: &'static [&'static str],
    /// What a request of the case has to hold, one of these.
    holds: &'static [&'static str],
    /// Why it stays.
    pub(super) reason: &'static str,
}

const AGGREGATED: &str = "Kubernetes' controller manager, which does not run here, writes the rules of an aggregated role; the \
                          embedded server adds them on reading";
const MAP_ORDER: &str = "Kubernetes goes through a Go map, in another order each time";
const EMPTY_MAP: &str = "Kubernetes tells an empty map of data from none until it stores the object";
const WRITTEN_OTHERWISE: &str = "Kubernetes counts an amount that is written otherwise as a change";
const EMPTY_LIST: &str =
    "Kubernetes tells a list or map that was sent empty from none until it stores the object";
const FIRST_FAULT: &str =
    "of several values that do not fit, Kubernetes names the first in the order of its Go structure";
/// Stands for a request that creates an object without a name.
const NO_NAME: &str = "(no name)";
/// A Service without a name.
const NAMELESS: &str = "Kubernetes hands an address to a Service before it looks for its name, and tells that the record of \
                        that address is wrong";

const KNOWN: &[Known] = &[
    Known {
        kinds: &["v1 PersistentVolumeClaim"],
        patterns: &["/metadata/resourceVersion differs"],
        holds: &[""],
        reason: "Kubernetes stores a claim without the default of its phase and adds that on reading, so that the first \
                 write that changes nothing is one that it stores",
    },
    Known {
        kinds: &["diff.example.com/"],
        patterns: &["/metadata/resourceVersion differs"],
        holds: &["\"labels\":"],
        reason: "Kubernetes stores nulls and empty maps in the metadata of a custom resource, so that the next write that changes \
                 nothing is one that it stores",
    },
    Known {
        kinds: &["rbac.authorization.k8s.io/v1 ClusterRole"],
        patterns: &[
            "/rules differs",
            "/*/object/rules differs",
            "/items/*/rules differs",
        ],
        holds: &["aggregationRule"],
        reason: AGGREGATED,
    },
    Known {
        kinds: &["v1 Service"],
        patterns: &["cause missing: spec.clusterIPs: Invalid value: {}: failed to allocate IP: IPAddress"],
        holds: &[""],
        reason: NAMELESS,
    },
    Known {
        kinds: &["v1 Service"],
        patterns: &["cause extra: "],
        holds: &[NO_NAME],
        reason: NAMELESS,
    },
    Known {
        kinds: &[
            "v1 Endpoints",
            "discovery.k8s.io/v1 EndpointSlice",
            "networking.k8s.io/v1 NetworkPolicy",
        ],
        patterns: &["/metadata/"],
        holds: &["[]"],
        reason: EMPTY_LIST,
    },
    Known {
        kinds: &["discovery.k8s.io/v1 EndpointSlice"],
        patterns: &["/metadata/"],
        holds: &["deprecatedTopology"],
        reason: "Kubernetes counts a field that it drops as a change of an EndpointSlice",
    },
    Known {
        kinds: &["v1 Namespace"],
        patterns: &["/metadata/finalizers"],
        holds: &[""],
        reason: MAP_ORDER,
    },
    Known {
        kinds: &["autoscaling/v2 "],
        patterns: &["/metadata/"],
        holds: &["\"0.5\""],
        reason: WRITTEN_OTHERWISE,
    },
    Known {
        kinds: &["apps/v1 StatefulSet"],
        patterns: &["/metadata/"],
        holds: &["\"2000m\""],
        reason: WRITTEN_OTHERWISE,
    },
    Known {
        kinds: &["v1 ConfigMap", "v1 Secret"],
        patterns: &[
            "status: 422 binaryData: Forbidden: field is immutable",
            "cause missing: binaryData: Forbidden: field is immutable",
        ],
        holds: &["{}"],
        reason: EMPTY_MAP,
    },
    Known {
        kinds: &["v1 Secret"],
        patterns: &["/metadata/resourceVersion differs"],
        holds: &["{\"k\":null}"],
        reason: EMPTY_MAP,
    },
    Known {
        kinds: &["storage.k8s.io/v1 CSINode"],
        patterns: &[""],
        holds: &["\"$patch\":\"delete\""],
        reason: "Kubernetes adds an item of a list with its directives where there is nothing to merge it with",
    },
    Known {
        kinds: &["autoscaling/"],
        patterns: &[
            "cause missing: spec.behavior.scale",
            "status: 422 spec.behavior.scale",
        ],
        holds: &["\"policies\":[]"],
        reason: EMPTY_LIST,
    },
    Known {
        kinds: &["v1 LimitRange", "autoscaling/"],
        patterns: &["cause: order"],
        holds: &[""],
        reason: MAP_ORDER,
    },
    Known {
        kinds: &[""],
        patterns: &["cause: order"],
        holds: &["\"Bad Key!\"", "\"unknownField\""],
        reason: MAP_ORDER,
    },
    Known {
        kinds: &["diff.example.com/"],
        patterns: &["/metadata/resourceVersion differs"],
        holds: &["\"finalizers\":[]"],
        reason: EMPTY_LIST,
    },
    Known {
        kinds: &["v1 Service"],
        patterns: &["cause missing: spec.ports[*].nodePort: Duplicate value"],
        holds: &[""],
        reason: "Kubernetes gives node ports to a Service before it looks for ports that are there twice",
    },
    Known {
        kinds: &["apps/v1 StatefulSet"],
        patterns: &[
            "cause missing: spec.template.spec.volumes[*]",
            "cause extra: spec.template.spec.volumes[*]",
        ],
        holds: &["\"volumeClaimTemplates\""],
        reason: MAP_ORDER,
    },
    Known {
        kinds: &[
            "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration",
            "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
        ],
        patterns: &["/metadata/"],
        holds: &["[]", "\"matchLabels\":{}"],
        reason: EMPTY_LIST,
    },
    Known {
        kinds: &[""],
        patterns: &[
            "cause missing: patch: Invalid value: Q: unrecognized type",
            "cause extra: patch: Invalid value: Q: unrecognized type",
        ],
        holds: &["\"$patch\":\""],
        reason: "Kubernetes shows a patch without the directives that it has followed by then",
    },
    Known {
        kinds: &[""],
        patterns: &["/items differs"],
        holds: &["resourceVersion=0"],
        reason: "Kubernetes lists from a cache, which may be late, where any state will do",
    },
    Known {
        kinds: &[""],
        patterns: &["/metadata/selfLink missing"],
        holds: &["dryRun=All"],
        reason: "Kubernetes takes a selfLink out when it stores an object, which a dry run does not",
    },
    Known {
        kinds: &["v1 Service"],
        patterns: &["cause missing: spec.", "cause extra: spec.", "status: 422 spec."],
        holds: &["/status"],
        reason: "Kubernetes creates a Service that is put to /status, and forgets to give it addresses and ports",
    },
    Known {
        kinds: &[""],
        patterns: &["/message differs"],
        holds: &["unknownField"],
        reason: MAP_ORDER,
    },
    Known {
        kinds: &["diff.example.com/"],
        patterns: &["/message differs: QTCPQ / QTCPQ", "cause: order"],
        holds: &[""],
        reason: MAP_ORDER,
    },
    Known {
        kinds: &[""],
        patterns: &[
            "cause missing: patch: Invalid value: {}: json: cannot unmarshal",
            "cause extra: patch: Invalid value: {}: json: cannot unmarshal",
        ],
        holds: &["\"op\":\"move\""],
        reason: FIRST_FAULT,
    },
    Known {
        kinds: &[""],
        patterns: &["/message differs"],
        holds: &["(application/yaml)"],
        reason: "errors of YAML are worded by another library",
    },
    Known {
        kinds: &["batch/v1 Job"],
        patterns: &["/metadata/resourceVersion differs"],
        holds: &[""],
        reason: "Kubernetes stores a job without labels without those of its template and adds them on reading, so that the \
                 first write that changes nothing is one that it stores",
    },
    Known {
        kinds: &["admissionregistration.k8s.io/v1 "],
        patterns: &[
            "status: 422 spec.validations[*].expression: Invalid value: Q: must evaluate to bool",
            "cause missing: spec.validations[*].expression: Invalid value: Q: must evaluate to bool",
        ],
        holds: &[""],
        reason: "the types of CEL expressions are not checked",
    },
    Known {
        kinds: &["autoscaling/v1 HorizontalPodAutoscaler"],
        patterns: &["/metadata/"],
        holds: &["currentCPUUtilizationPercentage"],
        reason: "Kubernetes shows the status of an autoscaler in annotations of version 1, beside its fields",
    },
    Known {
        kinds: &["admissionregistration.k8s.io/v1 "],
        patterns: &["cause "],
        holds: &[":\"é\""],
        reason: "Kubernetes' parser of CEL marks the place of an error with wide signs where the text has wide letters",
    },
    Known {
        kinds: &["networking.k8s.io/v1 NetworkPolicy"],
        patterns: &["/metadata/generation differs"],
        holds: &["null"],
        reason: "Kubernetes counts a map that became empty in place of none as a change of a NetworkPolicy",
    },
];

/// The entry that lists a difference, if one does.
pub(super) fn find(case: &Case, difference: &Difference) -> Option<&'static Known> {
    KNOWN.iter().find(|known| {
        known.kinds.iter().any(|kind| case.kind.starts_with(kind))
            && known
                .patterns
                .iter()
                .any(|begin| difference.pattern.starts_with(begin))
            && case.steps.iter().any(|step| {
                let text = step.to_string();
                let holds = |holds: &&str| text.contains(holds) || *holds == NO_NAME && is_nameless(step);
                known.holds.iter().any(holds)
            })
    })
}

fn is_nameless(step: &Step) -> bool {
    let object = match &step.payload {
        Payload::Object(object) => object,
        Payload::Text(text) => return step.method == "POST" && matches!(text.trim(), "" | "null"),
        Payload::None => return false,
    };
    let empty = |name: &str| object["metadata"][name].as_str().is_none_or(str::is_empty);
    step.method == "POST" && empty("name") && empty("generateName")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kind_pattern_and_request_decide() {
        let listed = |kind: &str, pattern: &str, body: serde_json::Value| {
            let case = Case {
                seed: 1,
                number: 1,
                scenario: "apply",
                kind: kind.to_owned(),
                steps: vec![Step::new("PATCH", "/x").with(body)],
                leaves: None,
            };
            let difference = Difference {
                path: String::new(),
                real: String::new(),
                ours: String::new(),
                pattern: pattern.to_owned(),
            };
            find(&case, &difference).is_some()
        };
        let version = "/metadata/resourceVersion differs";
        let claim = "v1 PersistentVolumeClaim";
        assert!(listed(claim, version, json!({})));
        assert!(!listed("v1 PersistentVolume", version, json!({})));
        assert!(!listed(claim, "/metadata/uid differs", json!({})));
        let plate = "diff.example.com/v2 Plate";
        assert!(listed(plate, version, json!({"labels": null})));
        assert!(!listed(plate, version, json!({"name": "x"})));
    }
}
