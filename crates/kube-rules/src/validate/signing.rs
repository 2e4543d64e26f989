//! CertificateSigningRequests.

use super::errors::{Errors, text};
use crate::csr::{self, LEGACY, USAGES};
use crate::names;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What may be written by which way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The request itself.
    Main,
    /// The subresource `/status`.
    Status,
    /// The subresource `/approval`.
    Approval,
}

/// What is checked of every version of a request. `old` is what was stored before: faults of which an update
/// is not the cause are let pass.
pub(super) fn request(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &object["spec"];
    if let Err(why) = csr::parse(&spec["request"]) {
        errors.invalid("spec.request", &spec["request"], &why);
    }
    let usages = spec["usages"].as_array().map_or(&[][..], Vec::as_slice);
    if usages.is_empty() {
        errors.required("spec.usages", "");
    }
    for (index, usage) in usages.iter().enumerate() {
        if !USAGES.contains(&usage.as_str().unwrap_or_default()) {
            errors.not_supported(&format!("spec.usages[{index}]"), usage, &USAGES);
        }
    }
    for (index, usage) in usages.iter().enumerate() {
        if usages[..index].contains(usage) {
            errors.duplicate(&format!("spec.usages[{index}]"), usage);
        }
    }
    let signer = text(spec, "signerName");
    if signer == LEGACY && old.is_none_or(|old| text(&old["spec"], "signerName") != LEGACY) {
        let why = "the legacy signerName is not allowed via this API version";
        errors.invalid("spec.signerName", &spec["signerName"], why);
    } else {
        signer_name(signer, errors);
    }
    if spec["expirationSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds < 600)
    {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid("spec.expirationSeconds", &spec["expirationSeconds"], why);
    }
    conditions(object, old, errors);
    let before = old.map_or("", |old| text(&old["status"], "certificate"));
    let certificate_text = text(&object["status"], "certificate");
    if certificate_text != before
        && let Err(why) = certificate(certificate_text)
    {
        errors.invalid("status.certificate", &json!("<certificate data>"), &why);
    }
}

fn signer_name(name: &str, errors: &mut Errors) {
    const FIELD: &str = "spec.signerName";
    const MOST_DOMAIN: usize = 253;
    const MOST: usize = MOST_DOMAIN + 1 + 253 + 1 + 63;
    if name.is_empty() {
        errors.required(FIELD, "");
        return;
    }
    let segments: Vec<&str> = name.split('/').collect();
    let [domain, path] = segments[..] else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(FIELD, &json!(name), why);
        return;
    };
    if domain.len() > MOST_DOMAIN {
        errors.too_long(FIELD, MOST_DOMAIN);
    }
    let labels = |segment: &str, check: fn(&str) -> Vec<String>, errors: &mut Errors| {
        let bad = segment.split('.').find_map(|label| {
            let wrong = check(label);
            (!wrong.is_empty()).then_some((label, wrong))
        });
        if let Some((label, wrong)) = bad {
            let details = wrong
                .iter()
                .map(|why| format!("validating label {label:?}: {why}"))
                .collect();
            errors.invalid_text(FIELD, segment, details);
        }
    };
    labels(domain, names::dns_label, errors);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.invalid(FIELD, &json!(domain), why);
    }
    labels(path, names::dns_subdomain, errors);
    if name.len() > MOST {
        errors.too_long(FIELD, MOST);
    }
}

fn list(object: &Value) -> &[Value] {
    object["status"]["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice)
}

fn of_type<'a>(object: &'a Value, kind: &str) -> Vec<&'a Value> {
    list(object)
        .iter()
        .filter(|one| text(one, "type") == kind)
        .collect()
}

fn conditions(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    const FIELD: &str = "status.conditions";
    let both =
        |object: &Value| !of_type(object, "Approved").is_empty() && !of_type(object, "Denied").is_empty();
    let had_both = old.is_some_and(both);
    let twice = |object: &Value| {
        let all = list(object);
        (0..all.len()).any(|at| {
            all[..at]
                .iter()
                .any(|one| text(one, "type") == text(&all[at], "type"))
        })
    };
    let had_twice = old.is_some_and(twice);
    let had_empty = old.is_some_and(|old| list(old).iter().any(|one| text(one, "type").is_empty()));
    let (mut approved, mut denied) = (false, false);
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in list(object).iter().enumerate() {
        let kind = text(condition, "type");
        if kind.is_empty() && !had_empty {
            errors.required(&format!("{FIELD}[{index}].type"), "");
        }
        let supported: &[&str] = match kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        errors.one_of(
            &format!("{FIELD}[{index}].status"),
            &condition["status"],
            supported,
        );
        approved |= kind == "Approved";
        denied |= kind == "Denied";
        if approved && denied && matches!(kind, "Approved" | "Denied") && !had_both {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.invalid(FIELD, &condition["type"], why);
        }
        if seen.contains(&kind) && !had_twice {
            errors.duplicate(&format!("{FIELD}[{index}].type"), &condition["type"]);
        }
        seen.push(kind);
    }
}

/// PEM, base64; empty is fine.
fn certificate(encoded: &str) -> Result<(), String> {
    if encoded.is_empty() {
        return Ok(());
    }
    let pem = STANDARD.decode(encoded).map_err(|error| error.to_string())?;
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(&pem).map_while(Result::ok) {
        if block.label != "CERTIFICATE" {
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {:?}",
                block.label
            ));
        }
        blocks += 1;
        let (rest, _) = X509Certificate::from_der(&block.contents)
            .map_err(|error| format!("x509: malformed certificate: {error}"))?;
        if !rest.is_empty() {
            return Err("x509: trailing data".to_owned());
        }
    }
    if blocks == 0 {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    Ok(())
}

/// What an update may not do.
pub(super) fn update(way: Way, old: &Value, new: &Value, errors: &mut Errors) {
    const FIELD: &str = "status.conditions";
    for kind in ["Approved", "Denied", "Failed"] {
        if of_type(new, kind).len() < of_type(old, kind).len() {
            errors.forbidden(
                FIELD,
                &format!("updates may not remove a condition of type {kind:?}"),
            );
        }
    }
    if way != Way::Approval {
        for kind in ["Approved", "Denied"] {
            let (before, after) = (of_type(old, kind), of_type(new, kind));
            if after.len() > before.len() {
                errors.forbidden(
                    FIELD,
                    &format!("updates may not add a condition of type {kind:?}"),
                );
            } else if after.len() == before.len() && before != after {
                errors.forbidden(
                    FIELD,
                    &format!("updates may not modify a condition of type {kind:?}"),
                );
            }
        }
    }
    let (before, after) = (
        text(&old["status"], "certificate"),
        text(&new["status"], "certificate"),
    );
    if before != after {
        let why = if way != Way::Status {
            "updates may not set certificate content"
        } else if before.is_empty() {
            return;
        } else {
            "updates may not modify existing certificate content"
        };
        errors.forbidden("status.certificate", why);
    }
}
