//! Leases and LeaseCandidates.

use super::errors::{Errors, has, text};
use crate::names;
use semver::Version;
use serde_json::Value;

const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";

pub(super) fn lease(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if spec["leaseDurationSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds <= 0)
    {
        errors.invalid(
            "spec.leaseDurationSeconds",
            &spec["leaseDurationSeconds"],
            "must be greater than 0",
        );
    }
    if spec["leaseTransitions"].as_i64().is_some_and(|number| number < 0) {
        errors.invalid(
            "spec.leaseTransitions",
            &spec["leaseTransitions"],
            "must be greater than or equal to 0",
        );
    }
    if has(spec, "strategy") {
        strategy(spec, errors);
    }
    if !text(spec, "preferredHolder").is_empty() && text(spec, "strategy").is_empty() {
        errors.forbidden(
            "spec.preferredHolder",
            "may only be specified if `strategy` is defined",
        );
    }
}

pub(super) fn candidate(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if text(spec, "leaseName").is_empty() {
        errors.required("spec.leaseName", "");
    }
    let emulation = version(spec, "emulationVersion", errors);
    if text(spec, "binaryVersion").is_empty() {
        errors.required("spec.binaryVersion", "");
    }
    let binary = version(spec, "binaryVersion", errors);
    let given = |name| !text(spec, name).is_empty();
    if given("binaryVersion") && given("emulationVersion") && binary.cmp_precedence(&emulation).is_lt() {
        errors.invalid(
            "spec.binaryVersion",
            &spec["binaryVersion"],
            "must be greater than or equal to `emulationVersion`",
        );
    }
    if !given("strategy") {
        errors.required("spec.strategy", "");
        return;
    }
    let none = emulation.cmp_precedence(&Version::new(0, 0, 0)).is_eq();
    if text(spec, "strategy") == OLDEST_EMULATION_VERSION && none {
        errors.required(
            "spec.emulationVersion",
            "must be specified when `strategy` is 'OldestEmulationVersion'",
        );
    }
    strategy(spec, errors);
}

pub(super) fn candidate_update(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, new) = (&old["spec"]["leaseName"], &new["spec"]["leaseName"]);
    errors.immutable("spec.leaseName", old, new);
}

/// A version, zero if there is none or it is not one.
fn version(spec: &Value, name: &str, errors: &mut Errors) -> Version {
    let zero = Version::new(0, 0, 0);
    let text = text(spec, name);
    if text.is_empty() {
        return zero;
    }
    Version::parse(text).unwrap_or_else(|_| {
        errors.invalid(
            &format!("spec.{name}"),
            &spec[name],
            "must be a valid semantic version",
        );
        zero
    })
}

/// Upstream names the field twice in its path.
fn strategy(spec: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.strategy.strategy";
    let strategy = text(spec, "strategy");
    if strategy.contains('/') {
        errors.invalid_text(FIELD, strategy, names::qualified(strategy));
    } else if strategy != OLDEST_EMULATION_VERSION {
        errors.not_supported(FIELD, &spec["strategy"], &[OLDEST_EMULATION_VERSION]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn told(validate: impl FnOnce(&mut Errors)) -> Vec<String> {
        let mut errors = Errors::default();
        validate(&mut errors);
        let line = |error: super::super::FieldError| format!("{}: {}", error.field, error.message);
        errors.list.into_iter().map(line).collect()
    }

    #[rstest]
    #[case::empty(json!({}), &[])]
    #[case::released(json!({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}), &[])]
    #[case::coordinated(json!({"strategy": "OldestEmulationVersion", "preferredHolder": "a", "holderIdentity": "b"}), &[])]
    #[case::third_party(json!({"strategy": "foo.com/bar"}), &[])]
    #[case::numbers(json!({"leaseDurationSeconds": 0, "leaseTransitions": -1}), &[
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
    ])]
    #[case::preferred_without_strategy(json!({"preferredHolder": "a"}), &[
        "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
    ])]
    #[case::unknown_strategy(json!({"strategy": "Youngest"}), &[
        "spec.strategy.strategy: Unsupported value: \"Youngest\": supported values: \"OldestEmulationVersion\"",
    ])]
    fn leases(#[case] spec: Value, #[case] expected: &[&str]) {
        assert_eq!(told(|errors| lease(&json!({"spec": spec}), errors)), expected);
    }

    #[rstest]
    #[case::good(json!({"leaseName": "l", "binaryVersion": "1.2.0", "emulationVersion": "1.1.0",
        "strategy": "OldestEmulationVersion"}), &[])]
    #[case::third_party_needs_no_emulation_version(
        json!({"leaseName": "l", "binaryVersion": "1.2.0", "strategy": "foo.com/bar"}), &[])]
    #[case::empty(json!({}), &[
        "spec.leaseName: Required value", "spec.binaryVersion: Required value", "spec.strategy: Required value",
    ])]
    #[case::versions(json!({"leaseName": "l", "binaryVersion": "v1", "emulationVersion": "1.1",
        "strategy": "foo.com/bar"}), &[
        "spec.emulationVersion: Invalid value: \"1.1\": must be a valid semantic version",
        "spec.binaryVersion: Invalid value: \"v1\": must be a valid semantic version",
    ])]
    #[case::emulates_the_future(json!({"leaseName": "l", "binaryVersion": "1.9.0", "emulationVersion": "1.10.0",
        "strategy": "OldestEmulationVersion"}), &[
        "spec.binaryVersion: Invalid value: \"1.9.0\": must be greater than or equal to `emulationVersion`",
    ])]
    #[case::oldest_of_what(
        json!({"leaseName": "l", "binaryVersion": "1.2.0", "strategy": "OldestEmulationVersion"}), &[
        "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'",
    ])]
    #[case::unknown_strategy(json!({"leaseName": "l", "binaryVersion": "1.2.0", "strategy": "Youngest"}), &[
        "spec.strategy.strategy: Unsupported value: \"Youngest\": supported values: \"OldestEmulationVersion\"",
    ])]
    fn candidates(#[case] spec: Value, #[case] expected: &[&str]) {
        assert_eq!(told(|errors| candidate(&json!({"spec": spec}), errors)), expected);
    }

    #[test]
    fn a_candidate_stands_for_one_lease() {
        let named = |name: &str| json!({"spec": {"leaseName": name}});
        assert_eq!(
            told(|errors| candidate_update(&named("a"), &named("a"), errors)),
            [""; 0]
        );
        assert_eq!(
            told(|errors| candidate_update(&named("a"), &named("b"), errors)),
            ["spec.leaseName: Invalid value: \"b\": field is immutable"]
        );
    }
}
