//! ValidatingAdmissionPolicies (`admissionregistration.k8s.io/v1`).
//!
//! The action `Audit` changes nothing, because this server writes no audit log. `auditAnnotations` are
//! evaluated, because a request is refused where that fails.

use super::expression::{Conditions, Expression, Scope, named};
use super::matching::{Constraints, GROUP, by_name, exempt};
use super::parameters::{ParamKind, ParamRef};
use super::versioned::Versioned;
use super::{Warnings, merge};
use crate::access::errors::refused;
use crate::kinds::{Registry, Resource};
use crate::request::{Attributes, Reader};
use arc_swap::ArcSwapOption;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use kube_cel::cel::Value as Cel;
use serde_json::{Value, json};
use std::cell::{LazyCell, OnceCell};
use std::sync::Arc;

const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";
/// The longest message that an expression may make, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// The policies of one server.
#[derive(Default)]
pub(super) struct Policies {
    kinds: Arc<Registry>,
    compiled: ArcSwapOption<Compiled>,
}

/// All policies with their bindings, by name.
struct Compiled {
    /// Generations of policies and bindings.
    of: (u64, u64),
    policies: Vec<Policy>,
}

struct Policy {
    name: String,
    constraints: Constraints,
    conditions: Conditions,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
    annotations: Vec<Expression>,
    param_kind: Option<ParamKind>,
    ignore_failures: bool,
    bindings: Vec<Binding>,
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    /// Reason and code of the answer.
    reason: (&'static str, u16),
}

struct Binding {
    name: String,
    constraints: Option<Constraints>,
    param_ref: Option<ParamRef>,
    denies: bool,
    warns: bool,
}

/// Why a request is not to pass.
#[derive(Clone)]
struct Objection {
    message: String,
    reason: (&'static str, u16),
    /// It refuses the request, whatever the binding does with what its policy finds.
    always: bool,
}

impl Objection {
    fn always(self) -> Self {
        Self { always: true, ..self }
    }
}

const INVALID: (&str, u16) = ("Invalid", 422);

impl Policies {
    /// `kinds`: what may be parameters.
    pub(super) fn new(kinds: Arc<Registry>) -> Self {
        Self {
            kinds,
            compiled: ArcSwapOption::default(),
        }
    }

    /// Asks all policies; the first objection by name of policy and binding is the answer.
    pub(super) fn validate(&self, attributes: &Attributes, reader: &dyn Reader) -> ApiResult<Warnings> {
        let mut warnings = Warnings::new();
        if exempt(&attributes.gvr) {
            return Ok(warnings);
        }
        let mut denial = None;
        for policy in &self.current(reader).policies {
            for (binding, objection) in policy.objections(attributes, reader, &self.kinds) {
                let by = binding.map_or(String::new(), |by| format!(" with binding '{}'", by.name));
                let by = format!("ValidatingAdmissionPolicy '{}'{by}", policy.name);
                let Objection {
                    message,
                    reason,
                    always,
                } = objection;
                if !always && binding.is_some_and(|binding| binding.warns) {
                    merge(
                        &mut warnings,
                        vec![format!("Validation failed for {by}: {message}")],
                    );
                }
                if denial.is_none() && (always || binding.is_some_and(|binding| binding.denies)) {
                    denial = Some((format!("{by} denied request: {message}"), reason));
                }
            }
        }
        match denial {
            None => Ok(warnings),
            Some((text, reason)) => Err(denied(attributes, &text, reason)),
        }
    }

    /// Those of the present generation; made anew if a policy or a binding changed.
    fn current(&self, reader: &dyn Reader) -> Arc<Compiled> {
        let of = (
            reader.generation(GROUP, POLICIES),
            reader.generation(GROUP, BINDINGS),
        );
        if let Some(compiled) = self.compiled.load_full()
            && compiled.of == of
        {
            return compiled;
        }
        let bindings = by_name(reader, BINDINGS);
        let policies = by_name(reader, POLICIES);
        let policies = policies.iter().map(|policy| Policy::new(policy, &bindings));
        let compiled = Arc::new(Compiled {
            of,
            policies: policies.filter(|policy| !policy.bindings.is_empty()).collect(),
        });
        self.compiled.store(Some(Arc::clone(&compiled)));
        compiled
    }
}

fn denied(attributes: &Attributes, text: &str, (reason, code): (&'static str, u16)) -> ApiError {
    let mut error = refused(attributes, text);
    error.reason = reason;
    error.code = code;
    error.details["causes"] = json!([{"message": text}]);
    error
}

impl Policy {
    fn new(policy: &Value, bindings: &[Arc<Value>]) -> Self {
        let (name, spec) = (
            policy["metadata"]["name"].as_str().unwrap_or_default(),
            &policy["spec"],
        );
        let validations = spec["validations"].as_array().into_iter().flatten();
        Self {
            name: name.to_owned(),
            constraints: Constraints::of_resources(&spec["matchConstraints"]),
            conditions: Conditions::new(&spec["matchConditions"]),
            variables: named(&spec["variables"]),
            validations: validations.map(Validation::new).collect(),
            annotations: spec["auditAnnotations"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|one| one["valueExpression"].as_str())
                .map(Expression::new)
                .collect(),
            param_kind: ParamKind::new(&spec["paramKind"]),
            ignore_failures: spec["failurePolicy"] == "Ignore",
            bindings: bindings
                .iter()
                .filter(|binding| binding["spec"]["policyName"] == name)
                .map(|binding| Binding::new(binding))
                .collect(),
        }
    }

    /// What the policy has against the request, by binding. Without one: what keeps it from telling.
    fn objections(
        &self,
        attributes: &Attributes,
        reader: &dyn Reader,
        kinds: &Registry,
    ) -> Vec<(Option<&Binding>, Objection)> {
        let unconfigured = |what: &str, why: &str| {
            let failure = self.failure(format!("failed to configure {what}: {why}"));
            failure.map(Objection::always)
        };
        let policy = |why: &str| unconfigured("policy", why).map(|why| (None, why));
        let version = match self.constraints.version_for(attributes, reader) {
            Ok(None) => return Vec::new(),
            Ok(Some(version)) => version,
            Err(error) => return policy(&error.message).into_iter().collect(),
        };
        let resource = self
            .param_kind
            .as_ref()
            .map(|kind| kind.resource(&kinds.snapshot()));
        let resource = match resource.transpose() {
            Ok(resource) => resource,
            Err(why) => return policy(&why).into_iter().collect(),
        };
        let versioned = LazyCell::new(|| Versioned::new(attributes, &version));
        let namespace = LazyCell::new(|| namespace_object(attributes, reader));
        let plain = OnceCell::new();
        let mut objections = Vec::new();
        for binding in &self.bindings {
            match binding.inputs(attributes, resource.as_deref(), reader) {
                Ok(Inputs::None) => {}
                // All bindings without parameters ask the same.
                Ok(Inputs::Plain) => {
                    let found = plain.get_or_init(|| self.ask(&versioned, &namespace, &Value::Null));
                    objections.extend(found.iter().map(|one| (Some(binding), one.clone())));
                }
                Ok(Inputs::Parameters(all)) => {
                    for params in all {
                        let found = self.ask(&versioned, &namespace, &params);
                        objections.extend(found.into_iter().map(|one| (Some(binding), one)));
                    }
                }
                Err(why) => {
                    objections.extend(unconfigured("binding", &why).map(|why| (Some(binding), why)));
                }
            }
        }
        objections
    }

    /// What the expressions have against the request with these parameters.
    fn ask(&self, versioned: &Versioned, namespace: &Value, params: &Value) -> Vec<Objection> {
        let mut scope = Scope::new(versioned);
        scope.add("namespaceObject", namespace);
        if self.param_kind.is_some() {
            scope.add("params", params);
        }
        match self.conditions.hold(&scope) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(error) => return self.failure(error).into_iter().collect(),
        }
        scope.add_variables(&self.variables);
        let validation = |validation: &Validation| match validation.expression.holds(&scope) {
            Ok(true) => None,
            Ok(false) => Some(validation.objection(&scope)),
            Err(error) => self.failure(error),
        };
        let annotation = |expression: &Expression| match expression.evaluate(&scope) {
            Ok(Cel::String(_) | Cel::Null) => None,
            Ok(other) => Some(Objection {
                message: format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either \
                     string or null.",
                    expression.text(),
                    other.type_of()
                ),
                reason: INVALID,
                always: true,
            }),
            Err(error) => self.failure(error).map(Objection::always),
        };
        let validations = self.validations.iter().filter_map(validation);
        let annotations = self.annotations.iter().filter_map(annotation);
        validations.chain(annotations).collect()
    }

    /// What a failure means under the policy's `failurePolicy`.
    fn failure(&self, message: String) -> Option<Objection> {
        (!self.ignore_failures).then_some(Objection {
            message,
            reason: INVALID,
            always: false,
        })
    }
}

impl Validation {
    fn new(validation: &Value) -> Self {
        let text = |key: &str| validation[key].as_str().unwrap_or_default();
        let message_expression = text("messageExpression");
        Self {
            expression: Expression::new(text("expression")),
            message: text("message").trim().to_owned(),
            message_expression: (!message_expression.is_empty()).then(|| Expression::new(message_expression)),
            reason: match text("reason") {
                "Unauthorized" => ("Unauthorized", 401),
                "Forbidden" => ("Forbidden", 403),
                "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
                _ => INVALID,
            },
        }
    }

    /// Upstream takes no message that is long or has several lines.
    fn objection(&self, scope: &Scope) -> Objection {
        let made = match self
            .message_expression
            .as_ref()
            .map(|expression| expression.evaluate(scope))
        {
            Some(Ok(Cel::String(text))) => text.trim().to_owned(),
            _ => String::new(),
        };
        let message = if !made.is_empty() && made.len() <= LONGEST_MESSAGE && !made.contains('\n') {
            made
        } else if !self.message.is_empty() {
            self.message.clone()
        } else {
            format!("failed expression: {}", self.expression.text())
        };
        Objection {
            message,
            reason: self.reason,
            always: false,
        }
    }
}

impl Binding {
    fn new(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let acts = |action: &str| {
            let mut actions = spec["validationActions"].as_array().into_iter().flatten();
            actions.any(|one| one == action)
        };
        Self {
            name: binding["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            constraints: spec["matchResources"]
                .is_object()
                .then(|| Constraints::of_resources(&spec["matchResources"])),
            param_ref: ParamRef::new(&spec["paramRef"]),
            denies: acts("Deny"),
            warns: acts("Warn"),
        }
    }

    /// With what the policy is to be asked. `resource`: where its parameters are, if it has some.
    fn inputs(
        &self,
        attributes: &Attributes,
        resource: Option<&Resource>,
        reader: &dyn Reader,
    ) -> Result<Inputs, String> {
        if let Some(constraints) = &self.constraints {
            let version = constraints.version_for(attributes, reader);
            if version.map_err(|error| error.message)?.is_none() {
                return Ok(Inputs::None);
            }
        }
        // Upstream passes over a reference to parameters that the policy does not have.
        match (resource, &self.param_ref) {
            (Some(resource), Some(reference)) => reference
                .find(resource, &attributes.namespace, reader)
                .map(Inputs::Parameters),
            _ => Ok(Inputs::Plain),
        }
    }
}

/// With what a policy is asked for a binding.
enum Inputs {
    /// It is not asked: the binding is not for such a request.
    None,
    /// Without parameters.
    Plain,
    /// With each of them.
    Parameters(Vec<Arc<Value>>),
}

/// The namespace of the request as expressions know it; `null` for what is in none, and for namespaces.
fn namespace_object(attributes: &Attributes, reader: &dyn Reader) -> Value {
    let is_namespace = attributes.gvk.group.is_empty() && attributes.gvk.kind == "Namespace";
    if attributes.namespace.is_empty() || is_namespace {
        return Value::Null;
    }
    let Some(namespace) = reader.get("", "namespaces", "", &attributes.namespace) else {
        return Value::Null;
    };
    let member = |name: &str| namespace.get(name).map(|value| (name.to_owned(), value.clone()));
    let members = ["metadata", "spec", "status"].into_iter().filter_map(member);
    let mut shown = Value::Object(members.collect());
    if let Some(metadata) = shown["metadata"].as_object_mut() {
        for hidden in ["managedFields", "ownerReferences"] {
            metadata.remove(hidden);
        }
    }
    shown
}
