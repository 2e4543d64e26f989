//! `deploy/koupleless.yaml`: what `evenkeel vnode --provider koupleless` may do, flag by flag.

use evenkeel_api::names::koupleless::healing;
use evenkeel_api::names::{NAMESPACE, NODE_LEASE_NAMESPACE};
use std::fmt::Write as _;

/// The ServiceAccount, and what the roles are called after.
const ACCOUNT: &str = "evenkeel-koupleless";

/// A role with its binding.
struct Role {
    /// What is added to the account's name.
    suffix: &'static str,
    /// `None`: in the whole cluster.
    namespace: Option<&'static str>,
    /// What it is for, in lines of a comment.
    why: &'static [&'static str],
    /// One that every cluster has: it is bound only.
    builtin: Option<&'static str>,
    rules: &'static [Rule],
}

struct Rule {
    why: Option<&'static str>,
    groups: &'static str,
    resources: &'static str,
    /// Of these objects alone.
    name: Option<&'static str>,
    verbs: &'static str,
}

const fn rule(groups: &'static str, resources: &'static str, verbs: &'static str) -> Rule {
    Rule {
        why: None,
        groups,
        resources,
        name: None,
        verbs,
    }
}

const fn rule_for(
    why: &'static str,
    groups: &'static str,
    resources: &'static str,
    verbs: &'static str,
) -> Rule {
    Rule {
        why: Some(why),
        ..rule(groups, resources, verbs)
    }
}

const CORE: &str = "\"\"";
const LEASES: &str = "coordination.k8s.io";

/// Where the kubelet API's certificate and key outlive the process.
const SERVING: &str = "evenkeel-koupleless-serving";

const ROLES: [Role; 9] = [
    Role {
        suffix: "",
        namespace: None,
        why: &[],
        builtin: None,
        rules: &[
            rule(CORE, "nodes", "get, list, watch, create, patch, delete"),
            rule(CORE, "nodes/status", "patch"),
            rule(CORE, "pods", "get, list, watch, delete"),
            rule(CORE, "pods/status", "patch"),
            rule_for("What pods refer to.", CORE, "configmaps, secrets", "get"),
            rule(CORE, "services", "get, list"),
            rule(CORE, "serviceaccounts/token", "create"),
            rule("\"\", events.k8s.io", "events", "create, patch"),
            rule_for("Baselines.", "apps", "deployments", "list, watch"),
            rule_for(
                "The serving certificate of the kubelet API.",
                "certificates.k8s.io",
                "certificatesigningrequests",
                "get, create",
            ),
        ],
    },
    Role {
        suffix: "-reviews",
        namespace: None,
        why: &["Who asks the kubelet API, and whether they may."],
        builtin: Some("system:auth-delegator"),
        rules: &[],
    },
    Role {
        suffix: "",
        namespace: Some("kube-system"),
        why: &["Who signs certificates of clients."],
        builtin: None,
        rules: &[Rule {
            name: Some("extension-apiserver-authentication"),
            ..rule(CORE, "configmaps", "get, list, watch")
        }],
    },
    Role {
        suffix: "",
        namespace: Some(NODE_LEASE_NAMESPACE),
        why: &[
            "The nodes' Leases, those by which replicas share the nodes, and that of the replica which keeps peers.",
        ],
        builtin: None,
        rules: &[rule(
            LEASES,
            "leases",
            "get, list, watch, create, update, patch, delete",
        )],
    },
    Role {
        suffix: "-serving",
        namespace: Some(NAMESPACE),
        why: &[
            "--certificate-secret: the kubelet API's certificate and key outlive the process in the Secret above.",
        ],
        builtin: None,
        rules: &[Rule {
            name: Some(SERVING),
            ..rule(CORE, "secrets", "get, patch")
        }],
    },
    Role {
        suffix: "-base-pods",
        namespace: None,
        why: &[
            "--base-pod-selector: logs and commands of modules go to the pods of their bases. Better bound by a RoleBinding in",
            "the bases' namespaces: who may exec into every pod may do everything.",
        ],
        builtin: None,
        rules: &[
            rule(CORE, "pods", "get, list, watch"),
            rule(CORE, "pods/log", "get"),
            rule(CORE, "pods/exec, pods/attach", "get, create"),
        ],
    },
    Role {
        suffix: "-heal",
        namespace: None,
        why: &["--heal: pods of bases that run out of metaspace are evicted."],
        builtin: None,
        rules: &[rule(CORE, "pods/eviction", "create")],
    },
    Role {
        suffix: "-heal",
        namespace: Some(NAMESPACE),
        why: &["--heal: which bases are being healed. Who creates an object is not asked for its name."],
        builtin: None,
        rules: &[
            rule(CORE, "configmaps", "create"),
            Rule {
                name: Some(healing::CONFIG_MAP),
                ..rule(CORE, "configmaps", "get, update")
            },
        ],
    },
    Role {
        suffix: "-peers",
        namespace: None,
        why: &["--peers: replicas follow bases, and pods of lost bases go first."],
        builtin: None,
        rules: &[rule("apps", "deployments", "patch"), rule(CORE, "pods", "patch")],
    },
];

/// The manifest.
pub(super) fn manifest() -> String {
    let mut text = format!(
        "# Generated by `cargo xtask gen-manifests`; edit xtask/src/manifests/koupleless.rs instead.\n\
         #\n\
         # What `evenkeel vnode --provider koupleless` may do, with all of its flags: apply it, then run the process as ServiceAccount\n\
         # {NAMESPACE}/{ACCOUNT}. What only some flags need stands in roles of their own, at the end: leave out what you do\n\
         # not use, and bind the one for base pods where bases run.\n\
         apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n\
         ---\n\
         apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {ACCOUNT}\n  namespace: {NAMESPACE}\n\
         ---\n\
         # Empty at first, so that nobody needs the right to create Secrets.\n\
         apiVersion: v1\nkind: Secret\nmetadata:\n  name: {SERVING}\n  namespace: {NAMESPACE}\n"
    );
    for role in &ROLES {
        role.write(&mut text);
    }
    text
}

impl Role {
    fn write(&self, text: &mut String) {
        text.push_str("---\n");
        for line in self.why {
            line_of(text, &format!("# {line}"));
        }
        let kind = if self.namespace.is_some() {
            "Role"
        } else {
            "ClusterRole"
        };
        if self.builtin.is_none() {
            self.head(text, kind);
            text.push_str("rules:\n");
            for rule in self.rules {
                rule.write(text);
            }
            text.push_str("---\n");
        }
        self.head(text, &format!("{kind}Binding"));
        let own = format!("{ACCOUNT}{}", self.suffix);
        let name = self.builtin.unwrap_or(&own);
        for line in [
            "roleRef:",
            "  apiGroup: rbac.authorization.k8s.io",
            &format!("  kind: {kind}"),
            &format!("  name: {name}"),
            "subjects:",
            "  - kind: ServiceAccount",
            &format!("    name: {ACCOUNT}"),
            &format!("    namespace: {NAMESPACE}"),
        ] {
            line_of(text, line);
        }
    }

    fn head(&self, text: &mut String, kind: &str) {
        line_of(text, "apiVersion: rbac.authorization.k8s.io/v1");
        line_of(text, &format!("kind: {kind}"));
        line_of(text, "metadata:");
        line_of(text, &format!("  name: {ACCOUNT}{}", self.suffix));
        if let Some(namespace) = self.namespace {
            line_of(text, &format!("  namespace: {namespace}"));
        }
    }
}

impl Rule {
    fn write(&self, text: &mut String) {
        if let Some(why) = self.why {
            line_of(text, &format!("  # {why}"));
        }
        line_of(text, &format!("  - apiGroups: [{}]", self.groups));
        line_of(text, &format!("    resources: [{}]", self.resources));
        if let Some(name) = self.name {
            line_of(text, &format!("    resourceNames: [{name}]"));
        }
        line_of(text, &format!("    verbs: [{}]", self.verbs));
    }
}

fn line_of(text: &mut String, line: &str) {
    // A String takes everything.
    let _ = writeln!(text, "{line}");
}
