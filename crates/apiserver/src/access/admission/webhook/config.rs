//! The configurations, compiled once per generation.

use super::client::WebhookClient;
use super::conditions::Conditions;
use crate::request::{Operation, Reader};
use arc_swap::ArcSwapOption;
use evenkeel_kube_rules::gvk::Gvr;
use evenkeel_kube_rules::selector::LabelSelector;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "admissionregistration.k8s.io";
const DEFAULT_SECONDS: u64 = 10;

/// Which kind of webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mutating,
    Validating,
}

impl Kind {
    fn resource(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }
}

/// Webhooks and policies are never asked about each other: nobody could repair a cluster whose webhook
/// refuses that.
pub(super) fn exempt(gvr: &Gvr) -> bool {
    gvr.group == GROUP
}

/// All webhooks of a kind in the order of their calls.
pub(super) struct Compiled {
    of: u64,
    pub(super) webhooks: Vec<Webhook>,
}

impl Compiled {
    /// That of the present generation; made anew if a configuration changed, with the connections of before.
    pub(super) fn current(cache: &ArcSwapOption<Self>, kind: Kind, reader: &dyn Reader) -> Arc<Self> {
        let of = reader.generation(GROUP, kind.resource());
        let cached = cache.load_full();
        if let Some(cached) = &cached
            && cached.of == of
        {
            return cached.clone();
        }
        let before = cached.as_ref().map_or(&[][..], |cached| &cached.webhooks);
        let mut configurations = reader.list(GROUP, kind.resource(), None);
        configurations.sort_by(|a, b| {
            a["metadata"]["name"]
                .as_str()
                .cmp(&b["metadata"]["name"].as_str())
        });
        let webhooks = configurations
            .iter()
            .flat_map(|configuration| configuration["webhooks"].as_array().into_iter().flatten())
            .map(|webhook| Webhook::new(webhook, before))
            .collect();
        let compiled = Arc::new(Self { of, webhooks });
        cache.store(Some(compiled.clone()));
        compiled
    }
}

/// What a webhook says of side effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffects {
    /// Has none, or none on dry runs: may be called on a dry run.
    NoneOnDryRun,
    /// May have some.
    Some,
}

/// One webhook of a configuration.
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    /// `Err`: the selector cannot be read; nothing is known to match.
    pub(super) namespace_selector: Selector,
    pub(super) object_selector: Selector,
    pub(super) conditions: Conditions,
    pub(super) ignore_failures: bool,
    pub(super) equivalent: bool,
    pub(super) reinvoke: bool,
    pub(super) side_effects: SideEffects,
    pub(super) timeout: Duration,
    pub(super) client: Arc<WebhookClient>,
}

/// A label selector as it was stored.
pub(super) type Selector = Result<LabelSelector, String>;

impl Webhook {
    fn new(webhook: &Value, before: &[Self]) -> Self {
        let text = |key: &str| webhook[key].as_str().unwrap_or_default();
        let client = before
            .iter()
            .map(|other| &other.client)
            .find(|client| client.is_for(&webhook["clientConfig"]))
            .cloned()
            .unwrap_or_else(|| Arc::new(WebhookClient::new(&webhook["clientConfig"])));
        Self {
            name: text("name").to_owned(),
            rules: webhook["rules"]
                .as_array()
                .into_iter()
                .flatten()
                .map(Rule::new)
                .collect(),
            namespace_selector: selector(&webhook["namespaceSelector"]),
            object_selector: selector(&webhook["objectSelector"]),
            conditions: Conditions::new(&webhook["matchConditions"]),
            ignore_failures: text("failurePolicy") == "Ignore",
            equivalent: text("matchPolicy") != "Exact",
            reinvoke: text("reinvocationPolicy") == "IfNeeded",
            side_effects: match text("sideEffects") {
                "None" | "NoneOnDryRun" => SideEffects::NoneOnDryRun,
                _ => SideEffects::Some,
            },
            timeout: Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_SECONDS)),
            client,
        }
    }
}

/// Without a selector everything is selected.
fn selector(selector: &Value) -> Selector {
    if selector.is_null() {
        Ok(LabelSelector::default())
    } else {
        LabelSelector::from_object(selector)
    }
}

/// Which requests a webhook wants to see (upstream's `RuleWithOperations`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

impl Rule {
    pub(super) fn new(rule: &Value) -> Self {
        let texts = |key: &str| -> Vec<String> {
            rule[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    /// Whether the rule is about such a request.
    pub(super) fn matches(
        &self,
        operation: Operation,
        gvr: &Gvr,
        subresource: &str,
        namespaced: bool,
    ) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let scope = match self.scope.as_str() {
            "Namespaced" => namespaced,
            "Cluster" => !namespaced,
            _ => true,
        };
        scope
            && any(&self.operations, operation_name(operation))
            && any(&self.groups, &gvr.group)
            && any(&self.versions, &gvr.version)
            && self.resources.iter().any(|rule| {
                // `*` is every resource without its subresources, `*/*` everything.
                let (resource, sub) = rule.split_once('/').unwrap_or((rule, ""));
                (resource == "*" || resource == gvr.resource) && (sub == "*" || sub == subresource)
            })
    }
}

/// As webhooks know it.
pub(super) fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}
