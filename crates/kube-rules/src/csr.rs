//! Certificate signing requests: the signers and usages that Kubernetes knows, and the PKCS#10 request (RFC
//! 2986) inside.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::net::IpAddr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

/// API group of CertificateSigningRequests.
pub const GROUP: &str = "certificates.k8s.io";
/// Plural of CertificateSigningRequests.
pub const RESOURCE: &str = "certificatesigningrequests";

/// Signer of the serving certificates of kubelets.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Signer of the client certificates of kubelets.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of client certificates for any user.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signer without rules, for requests from before `signerName` existed.
pub const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// Usages that a request may ask for, in alphabetical order, as messages list them.
pub const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// A request whose signature was verified, which proves that the requester holds the private key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// SubjectPublicKeyInfo in DER.
    pub public_key: Vec<u8>,
    /// Common name of the subject; empty if it has none.
    pub common_name: String,
    /// Organizations of the subject: the groups of a client.
    pub organizations: Vec<String>,
    /// DNS names and addresses among the subject alternative names.
    pub names: Names,
    /// E-mail addresses among the subject alternative names.
    pub emails: Vec<String>,
    /// URIs among the subject alternative names.
    pub uris: Vec<String>,
}

/// The DNS names and addresses that a certificate is to be valid for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// DNS names, as they were asked for.
    pub dns: Vec<String>,
    /// IP addresses, of either family.
    pub ips: Vec<IpAddr>,
}

/// Reads `spec.request` of a CertificateSigningRequest: PEM, encoded in base64. The error says why it cannot
/// be read.
pub fn parse(request: &Value) -> Result<Request, String> {
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
