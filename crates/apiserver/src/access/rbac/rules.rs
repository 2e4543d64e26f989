//! One PolicyRule.

use crate::request::RequestInfo;
use serde::Deserialize;
use serde_json::{Value, json};

/// A PolicyRule; the names are those of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Rule {
    verbs: Vec<String>,
    #[serde(rename = "apiGroups")]
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(rename = "resourceNames")]
    resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
}

impl Rule {
    /// Whether the rule alone lets the request pass.
    pub(super) fn allows(&self, info: &RequestInfo) -> bool {
        if !any(&self.verbs, &info.verb) {
            return false;
        }
        if !info.is_resource {
            return self.non_resource_urls.iter().any(|url| covers(url, &info.path));
        }
        any(&self.api_groups, &info.group) && self.names_resource(info) && self.names_object(&info.name)
    }

    fn names_resource(&self, info: &RequestInfo) -> bool {
        self.resources.iter().any(|rule| {
            if rule == "*" {
                return true;
            }
            match rule.split_once('/') {
                None => info.subresource.is_empty() && *rule == info.resource,
                Some((resource, subresource)) => {
                    !info.subresource.is_empty()
                        && subresource == info.subresource
                        && (resource == "*" || resource == info.resource)
                }
            }
        })
    }

    /// A rule with names says nothing of requests without a name (list, create, deletecollection).
    fn names_object(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|rule| rule == name)
    }

    /// As SelfSubjectRulesReview shows it.
    pub(super) fn describe(&self) -> Value {
        let mut rule = json!({"verbs": self.verbs});
        for (key, values) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !values.is_empty() {
                rule[key] = json!(values);
            }
        }
        rule
    }
}

fn any(rule: &[String], wanted: &str) -> bool {
    rule.iter().any(|item| item == "*" || item == wanted)
}

/// `*` covers every path, a final `*` everything that begins like it.
fn covers(rule: &str, path: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => rule == path,
    }
}
