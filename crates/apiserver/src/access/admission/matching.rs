//! Which requests a webhook, a policy or a binding is for.

use crate::access::errors::internal;
use crate::request::{Attributes, Operation, Reader};
use evenkeel_kube_rules::gvk::Gvr;
use evenkeel_kube_rules::selector::LabelSelector;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use serde_json::Value;
use std::sync::Arc;

/// API group of webhook configurations and policies.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// Webhooks and policies are never asked about each other: nobody could repair a cluster whose webhook
/// refuses that.
pub(super) fn exempt(gvr: &Gvr) -> bool {
    gvr.group == GROUP
}

/// All objects of a resource of that group, by name.
pub(super) fn by_name(reader: &dyn Reader, resource: &str) -> Vec<Arc<Value>> {
    let mut all = reader.list(GROUP, resource, None);
    let name = |object: &Arc<Value>| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    all.sort_by_key(name);
    all
}

/// A label selector as it was stored.
type Selector = Result<LabelSelector, String>;

/// Without a selector everything is selected.
fn selector(selector: &Value) -> Selector {
    if selector.is_null() {
        Ok(LabelSelector::default())
    } else {
        LabelSelector::from_object(selector)
    }
}

/// What requests have to be like.
pub(super) struct Constraints {
    /// `None`: any request.
    rules: Option<Vec<Rule>>,
    excluded: Vec<Rule>,
    /// `Err`: the selector cannot be read; nothing is known to match.
    namespace_selector: Selector,
    object_selector: Selector,
    equivalent: bool,
}

impl Constraints {
    /// Of a webhook, which is for nothing without rules.
    pub(super) fn of_webhook(webhook: &Value) -> Self {
        Self {
            rules: Some(Rule::list(&webhook["rules"])),
            excluded: Vec::new(),
            ..Self::of_resources(webhook)
        }
    }

    /// Of `matchConstraints` or `matchResources`, which are about everything where they have no rules.
    pub(super) fn of_resources(resources: &Value) -> Self {
        let rules = Rule::list(&resources["resourceRules"]);
        Self {
            rules: (!rules.is_empty()).then_some(rules),
            excluded: Rule::list(&resources["excludeResourceRules"]),
            namespace_selector: selector(&resources["namespaceSelector"]),
            object_selector: selector(&resources["objectSelector"]),
            equivalent: resources["matchPolicy"] != "Exact",
        }
    }

    /// The version in which the object is wanted, if the request is such a one: that of the request, or
    /// another version of the same custom resource where `matchPolicy` is `Equivalent`.
    pub(super) fn version_for(&self, attributes: &Attributes, reader: &dyn Reader) -> ApiResult<Option<Gvr>> {
        if self.version_of(&self.excluded, attributes, reader).is_some() {
            return Ok(None);
        }
        let version = match &self.rules {
            Some(rules) => self.version_of(rules, attributes, reader),
            None => Some(attributes.gvr.clone()),
        };
        let Some(version) = version else {
            return Ok(None);
        };
        let selected = namespace_selected(readable(&self.namespace_selector)?, attributes, reader)?
            && object_selected(readable(&self.object_selector)?, attributes);
        Ok(selected.then_some(version))
    }

    fn version_of(&self, rules: &[Rule], attributes: &Attributes, reader: &dyn Reader) -> Option<Gvr> {
        let one = |gvr: &Gvr| rules.iter().any(|rule| rule.matches(attributes, gvr));
        if one(&attributes.gvr) {
            return Some(attributes.gvr.clone());
        }
        if !self.equivalent || rules.is_empty() {
            return None;
        }
        equivalents(&attributes.gvr, reader).into_iter().find(one)
    }
}

/// The other served versions of a custom resource.
fn equivalents(gvr: &Gvr, reader: &dyn Reader) -> Vec<Gvr> {
    let name = format!("{}.{}", gvr.resource, gvr.group);
    let Some(definition) = reader.get("apiextensions.k8s.io", "customresourcedefinitions", "", &name) else {
        return Vec::new();
    };
    definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true)
        .filter_map(|version| version["name"].as_str())
        .filter(|version| *version != gvr.version)
        .map(|version| Gvr {
            version: version.to_owned(),
            ..gvr.clone()
        })
        .collect()
}

/// By the labels of the object's namespace; a Namespace by its own; other cluster-scoped objects always.
fn namespace_selected(
    selector: &LabelSelector,
    attributes: &Attributes,
    reader: &dyn Reader,
) -> ApiResult<bool> {
    if selector.is_empty() {
        return Ok(true);
    }
    if attributes.gvr.group.is_empty()
        && attributes.gvr.resource == "namespaces"
        && attributes.subresource.is_empty()
    {
        let own = attributes.object.as_ref().or(attributes.old_object.as_ref());
        return Ok(own.is_some_and(|namespace| selector.matches_object(namespace)));
    }
    let name = attributes.namespace.as_str();
    if name.is_empty() {
        return Ok(true);
    }
    let namespace = reader
        .get("", "namespaces", "", name)
        .ok_or_else(|| ApiError::not_found("", "namespaces", name))?;
    Ok(selector.matches_object(&namespace))
}

/// Either the new or the old object is enough.
fn object_selected(selector: &LabelSelector, attributes: &Attributes) -> bool {
    let selected = |object: &Option<Value>| {
        object
            .as_ref()
            .is_some_and(|object| selector.matches_object(object))
    };
    selector.is_empty() || selected(&attributes.object) || selected(&attributes.old_object)
}

fn readable(selector: &Selector) -> ApiResult<&LabelSelector> {
    selector.as_ref().map_err(|error| internal(error))
}

/// Which requests somebody wants to see (upstream's `RuleWithOperations` and `NamedRuleWithOperations`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    /// Empty: any name.
    names: Vec<String>,
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
            names: texts("resourceNames"),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    fn list(rules: &Value) -> Vec<Self> {
        rules.as_array().into_iter().flatten().map(Self::new).collect()
    }

    /// Whether the rule is about the request, as if it were for that resource.
    pub(super) fn matches(&self, attributes: &Attributes, gvr: &Gvr) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let namespaced = !attributes.namespace.is_empty() && attributes.gvr.resource != "namespaces";
        let scope = match self.scope.as_str() {
            "Namespaced" => namespaced,
            "Cluster" => !namespaced,
            _ => true,
        };
        scope
            && any(&self.operations, operation_name(attributes.operation))
            && any(&self.groups, &gvr.group)
            && any(&self.versions, &gvr.version)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
            && self.resources.iter().any(|rule| {
                // `*` is every resource without its subresources, `*/*` everything.
                let (resource, sub) = rule.split_once('/').unwrap_or((rule, ""));
                (resource == "*" || resource == gvr.resource) && (sub == "*" || sub == attributes.subresource)
            })
    }
}

/// As webhooks and policies know it.
pub(super) fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}
