//! ValidatingAdmissionPolicies (`admissionregistration.k8s.io/v1`).
//!
//! Built: bindings, `matchConstraints` and `matchResources`, `matchConditions`, `variables`,
//! `namespaceObject`, `messageExpression`, reasons, `failurePolicy`, and the actions `Deny` and `Warn`.
//! `Audit` and `auditAnnotations` change nothing, because this server writes no audit log. A policy with
//! `paramKind` is taken for one that fails.

use super::expression::{Conditions, Expression, Scope, named};
use super::matching::{Constraints, GROUP, by_name, exempt};
use super::versioned::Versioned;
use super::{Warnings, merge};
use crate::access::errors::refused;
use crate::request::{Attributes, Reader};
use arc_swap::ArcSwapOption;
use evenkeel_kube_rules::status::{ApiError, ApiResult};
use kube_cel::cel::Value as Cel;
use serde_json::{Value, json};
use std::sync::Arc;

const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";
/// The longest message that an expression may make, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// The policies of one server.
#[derive(Default)]
pub(super) struct Policies(ArcSwapOption<Compiled>);

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
    has_parameters: bool,
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
    denies: bool,
    warns: bool,
}

/// Why a request is not to pass.
#[derive(Clone)]
struct Objection {
    message: String,
    reason: (&'static str, u16),
}

const INVALID: (&str, u16) = ("Invalid", 422);

impl Policies {
    /// Asks all policies; the first objection by name of policy and binding is the answer.
    pub(super) fn validate(&self, attributes: &Attributes, reader: &dyn Reader) -> ApiResult<Warnings> {
        let mut warnings = Warnings::new();
        if exempt(&attributes.gvr) {
            return Ok(warnings);
        }
        let mut denial = None;
        for policy in &self.current(reader).policies {
            for (binding, objection) in policy.objections(attributes, reader) {
                let by = binding.map_or(String::new(), |by| format!(" with binding '{}'", by.name));
                let by = format!("ValidatingAdmissionPolicy '{}'{by}", policy.name);
                let Objection { message, reason } = objection;
                if binding.is_some_and(|binding| binding.warns) {
                    merge(
                        &mut warnings,
                        vec![format!("Validation failed for {by}: {message}")],
                    );
                }
                if denial.is_none() && binding.is_none_or(|binding| binding.denies) {
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
        if let Some(compiled) = self.0.load_full()
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
        self.0.store(Some(Arc::clone(&compiled)));
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
            has_parameters: !spec["paramKind"].is_null(),
            ignore_failures: spec["failurePolicy"] == "Ignore",
            bindings: bindings
                .iter()
                .filter(|binding| binding["spec"]["policyName"] == name)
                .map(|binding| Binding::new(binding))
                .collect(),
        }
    }

    /// What the policy has against the request, by binding. Without one: what keeps it from telling.
    fn objections(&self, attributes: &Attributes, reader: &dyn Reader) -> Vec<(Option<&Binding>, Objection)> {
        let version = match self.constraints.version_for(attributes, reader) {
            Ok(None) => return Vec::new(),
            Ok(Some(version)) => version,
            Err(error) => {
                let why = format!("failed to configure policy: {}", error.message);
                return self.failure(why).map(|why| (None, why)).into_iter().collect();
            }
        };
        let mut bound = Vec::new();
        let mut objections = Vec::new();
        for binding in &self.bindings {
            match binding.is_for(attributes, reader) {
                Ok(true) => bound.push(binding),
                Ok(false) => {}
                Err(error) => {
                    let why = format!("failed to configure binding: {}", error.message);
                    objections.extend(self.failure(why).map(|why| (Some(binding), why)));
                }
            }
        }
        // Without parameters all bindings ask the same.
        if !bound.is_empty() {
            for objection in self.ask(attributes, reader, &Versioned::new(attributes, &version)) {
                objections.extend(bound.iter().map(|binding| (Some(*binding), objection.clone())));
            }
        }
        objections
    }

    /// What the validations have against the request.
    fn ask(&self, attributes: &Attributes, reader: &dyn Reader, versioned: &Versioned) -> Vec<Objection> {
        if self.has_parameters {
            let why = "failed to configure policy: this server does not have paramKind".to_owned();
            return self.failure(why).into_iter().collect();
        }
        let namespace = match attributes.namespace.as_str() {
            "" => None,
            name => reader.get("", "namespaces", "", name),
        };
        let mut scope = Scope::new(versioned);
        scope.add("namespaceObject", namespace.as_deref().unwrap_or(&Value::Null));
        match self.conditions.hold(&scope) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(error) => return self.failure(error).into_iter().collect(),
        }
        scope.add_variables(&self.variables);
        let one = |validation: &Validation| match validation.expression.holds(&scope) {
            Ok(true) => None,
            Ok(false) => Some(validation.objection(&scope)),
            Err(error) => self.failure(error),
        };
        self.validations.iter().filter_map(one).collect()
    }

    /// What a failure means under the policy's `failurePolicy`.
    fn failure(&self, message: String) -> Option<Objection> {
        (!self.ignore_failures).then_some(Objection {
            message,
            reason: INVALID,
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
            denies: acts("Deny"),
            warns: acts("Warn"),
        }
    }

    fn is_for(&self, attributes: &Attributes, reader: &dyn Reader) -> ApiResult<bool> {
        match &self.constraints {
            None => Ok(true),
            Some(constraints) => Ok(constraints.version_for(attributes, reader)?.is_some()),
        }
    }
}
