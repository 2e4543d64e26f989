//! What stands in a PKCS#10 request (RFC 2986).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evenkeel_net::pki::ServerNames;
use serde_json::Value;
use std::net::IpAddr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

/// A request whose signature is good: who asked has the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// SubjectPublicKeyInfo in DER.
    pub(crate) public_key: Vec<u8>,
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
    pub(crate) names: Names,
    pub(crate) emails: Vec<String>,
    pub(crate) uris: Vec<String>,
}

/// DNS names and addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) dns: Vec<String>,
    pub(crate) ips: Vec<IpAddr>,
}

impl From<&Names> for ServerNames {
    fn from(names: &Names) -> Self {
        Self {
            dns: names.dns.clone(),
            ips: names.ips.clone(),
        }
    }
}

/// Reads `spec.request`, base64 of PEM.
pub(crate) fn parse(request: &Value) -> Result<Request, String> {
    let pem = STANDARD
        .decode(request.as_str().unwrap_or_default())
        .map_err(|error| error.to_string())?;
    parse_pem(&pem)
}

fn parse_pem(pem: &[u8]) -> Result<Request, String> {
    let block = Pem::iter_from_buffer(pem).next().and_then(Result::ok);
    let block = block
        .filter(|block| block.label == "CERTIFICATE REQUEST")
        .ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let (rest, parsed) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|error| format!("x509: malformed certificate request: {error}"))?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data".to_owned());
    }
    parsed
        .verify_signature()
        .map_err(|error| format!("x509: the request's signature is not good: {error}"))?;
    let info = &parsed.certification_request_info;
    let text = |value: Result<&str, _>| {
        value
            .map(str::to_owned)
            .map_err(|error: x509_parser::error::X509Error| format!("x509: malformed subject: {error}"))
    };
    let common_names: Vec<String> = info
        .subject
        .iter_common_name()
        .map(|name| text(name.as_str()))
        .collect::<Result<_, _>>()?;
    // Readers differ in which of several is the name, so one could be approved and another let in.
    if common_names.len() > 1 {
        return Err(format!(
            "the subject has {} common names; ask for one",
            common_names.len()
        ));
    }
    let mut request = Request {
        public_key: info.subject_pki.raw.to_vec(),
        common_name: common_names.into_iter().next().unwrap_or_default(),
        organizations: info
            .subject
            .iter_organization()
            .map(|name| text(name.as_str()))
            .collect::<Result<_, _>>()?,
        ..Request::default()
    };
    for extension in parsed.requested_extensions().into_iter().flatten() {
        if let ParsedExtension::SubjectAlternativeName(names) = extension {
            for name in &names.general_names {
                request.add(name)?;
            }
        }
    }
    Ok(request)
}

impl Request {
    /// Takes a name over; those of kinds that Go does not know are left out, as Go does.
    fn add(&mut self, name: &GeneralName<'_>) -> Result<(), String> {
        match name {
            GeneralName::DNSName(name) => self.names.dns.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(uri) => self.uris.push((*uri).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let ip = match bytes.len() {
                    4 => <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from),
                    16 => <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from),
                    _ => None,
                };
                let ip =
                    ip.ok_or_else(|| format!("x509: cannot parse IP address of length {}", bytes.len()))?;
                self.names.ips.push(ip);
            }
            GeneralName::Invalid(..) => return Err("x509: malformed subjectAltName".to_owned()),
            _ => {}
        }
        Ok(())
    }
}
