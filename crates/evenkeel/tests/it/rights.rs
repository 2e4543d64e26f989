//! Whether every right of `deploy/rbac.yaml` is used, and no other one was wanted. With a rule less, who
//! needs it is refused, and that is seen; with a rule more, nobody is seen to use it.

use serde_json::Value;
use std::{collections::BTreeSet, path::Path};

/// Has the API server of a lab tell of every request whose sender's rights were looked at.
pub(crate) const TOLD: [&str; 4] = [
    "--log",
    "warn,evenkeel_apiserver::access::rbac=trace",
    "--log-format",
    "json",
];
const USER: &str = "system:serviceaccount:evenkeel-system:";

/// What the API server was asked, as it tells it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked {
    user: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    allowed: bool,
}

/// The requests of Evenkeel's accounts.
fn asked(log: &Path) -> BTreeSet<Asked> {
    let text = std::fs::read_to_string(log).expect("the lab has a log");
    let lines = text
        .lines()
        .filter(|line| line.contains("evenkeel_apiserver::access::rbac"));
    let requests = lines.map(|line| {
        let line: Value = serde_json::from_str(line).expect("lines are JSON");
        let text = |name: &str| line[name].as_str().map(str::to_owned).expect("it is told");
        Asked {
            user: text("user"),
            verb: text("verb"),
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            allowed: line["allowed"].as_bool().expect("it is told"),
        }
    });
    requests.filter(|asked| asked.user.starts_with(USER)).collect()
}

/// One verb on one resource, as `deploy/rbac.yaml` grants it.
#[derive(Debug)]
struct Right {
    account: String,
    /// `None`: in all of them.
    namespace: Option<String>,
    group: String,
    resource: String,
    verb: String,
    /// Empty: all.
    names: Vec<String>,
}

impl Right {
    fn covers(&self, asked: &Asked) -> bool {
        let resource = match asked.subresource.as_str() {
            "" => asked.resource.clone(),
            subresource => format!("{}/{subresource}", asked.resource),
        };
        asked.user.strip_prefix(USER) == Some(&self.account)
            && (&asked.group, &resource, &asked.verb) == (&self.group, &self.resource, &self.verb)
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == asked.namespace)
            && (self.names.is_empty() || self.names.contains(&asked.name))
    }
}

fn texts(value: &Value) -> Vec<String> {
    let texts = value.as_array().into_iter().flatten();
    texts
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

/// The rights that a rule gives to an account.
fn of_rule(rule: &Value, account: &str, namespace: Option<&str>) -> Vec<Right> {
    let mut rights = Vec::new();
    for group in texts(&rule["apiGroups"]) {
        for resource in texts(&rule["resources"]) {
            rights.extend(texts(&rule["verbs"]).into_iter().map(|verb| Right {
                account: account.to_owned(),
                namespace: namespace.map(str::to_owned),
                group: group.clone(),
                resource: resource.clone(),
                verb,
                names: texts(&rule["resourceNames"]),
            }));
        }
    }
    rights
}

/// All rights, each for itself.
fn rights() -> Vec<Right> {
    let text = include_str!("../../../../deploy/rbac.yaml");
    let objects = evenkeel_install::manifest::parse(text, "rbac.yaml").expect("it is YAML");
    let mut rights = Vec::new();
    for binding in objects.iter().filter(|object| object["roleRef"].is_object()) {
        let role = objects.iter().find(|role| {
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
                && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
        });
        let rules = role.expect("the role is there")["rules"].as_array();
        let namespace = binding["metadata"]["namespace"].as_str();
        for subject in binding["subjects"].as_array().into_iter().flatten() {
            let account = subject["name"].as_str().unwrap_or_default();
            let of_rules = rules
                .into_iter()
                .flatten()
                .flat_map(|rule| of_rule(rule, account, namespace));
            rights.extend(of_rules);
        }
    }
    rights
}

/// Rights that no request needed so far, by the log of a lab, and requests that were refused.
pub(crate) fn differences(log: &Path) -> Vec<String> {
    let asked = asked(log);
    let unused = rights()
        .into_iter()
        .filter(|right| !asked.iter().any(|asked| right.covers(asked)));
    let refused = asked.iter().filter(|asked| !asked.allowed);
    let unused = unused.map(|right| format!("nobody needed {right:?}"));
    unused
        .chain(refused.map(|asked| format!("refused: {asked:?}")))
        .collect()
}
