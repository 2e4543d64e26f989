//! CertificateApproval, CertificateSigning, CertificateSubjectRestriction.

use crate::access::errors::refused;
use crate::access::rbac::Authorizer;
use crate::request::{Attributes, Operation, Reader, RequestInfo};
use evenkeel_kube_rules::csr::{self, CLIENT, GROUP, RESOURCE};
use evenkeel_kube_rules::status::ApiResult;
use serde_json::Value;

/// Who approves or signs a request needs that right on its signer; nobody gets a certificate of
/// `system:masters`.
pub(super) fn validate(
    attributes: &Attributes,
    authorizer: &Authorizer,
    reader: &dyn Reader,
) -> ApiResult<()> {
    if attributes.gvr.group != GROUP || attributes.gvr.resource != RESOURCE {
        return Ok(());
    }
    let (new, old) = (attributes.object.as_ref(), attributes.old_object.as_ref());
    let (Some(new), old) = (new, old.unwrap_or(&Value::Null)) else {
        return Ok(());
    };
    match (attributes.operation, attributes.subresource.as_str()) {
        (Operation::Create, "") => restrict_subject(attributes, new),
        (Operation::Update, "approval") => has_right(attributes, old, "approve", authorizer, reader),
        (Operation::Update, "status") => {
            let same = |member: &str| {
                let (old, new) = (&old["status"][member], &new["status"][member]);
                old == new
            };
            if same("certificate") && same("conditions") {
                Ok(())
            } else {
                has_right(attributes, old, "sign", authorizer, reader)
            }
        }
        _ => Ok(()),
    }
}

/// A right on a signer, as the authorizer is asked for it.
pub(crate) fn on_signer(verb: &str, signer: &str) -> RequestInfo {
    RequestInfo {
        is_resource: true,
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        version: "*".to_owned(),
        resource: "signers".to_owned(),
        name: signer.to_owned(),
        ..RequestInfo::default()
    }
}

/// The right on the signer itself, or on all signers of its domain.
fn has_right(
    attributes: &Attributes,
    old: &Value,
    verb: &str,
    authorizer: &Authorizer,
    reader: &dyn Reader,
) -> ApiResult<()> {
    let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
    let domain = signer.split('/').next().unwrap_or_default();
    let any = format!("{domain}/*");
    let allowed = [signer, any.as_str()].iter().any(|name| {
        authorizer
            .authorize(&attributes.user, &on_signer(verb, name), reader)
            .allowed
    });
    if allowed {
        return Ok(());
    }
    Err(refused(
        attributes,
        &format!("user not permitted to {verb} requests with signerName {signer:?}"),
    ))
}

fn restrict_subject(attributes: &Attributes, object: &Value) -> ApiResult<()> {
    if object["spec"]["signerName"] != CLIENT {
        return Ok(());
    }
    let parsed = csr::parse(&object["spec"]["request"])
        .map_err(|error| refused(attributes, &format!("failed to parse CSR: {error}")))?;
    if parsed.organizations.iter().any(|group| group == "system:masters") {
        let why = format!("use of {CLIENT} signer with system:masters group is not allowed");
        return Err(refused(attributes, &why));
    }
    Ok(())
}
