//! The webhook's certificate: made, shared and rotated by the replicas themselves, without a leader.
//!
//! It is kept in one Secret. The replica that finds it missing or due for replacement writes a new one by
//! compare-and-swap, and the others read that. The authority's private key is thrown away after it has signed
//! one certificate, so that nobody can sign anything with a leaked Secret. `ca.crt` holds the newest
//! authority and the one before it, so that replicas that still serve the old certificate stay trusted until
//! they have read the new one.

use evenkeel_net::pki::{Ca, Identity, PkiError, ServerNames, Validity};
use evenkeel_net::serve::ServerTls;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::collections::BTreeMap;
use x509_parser::pem::Pem;
use x509_parser::prelude::GeneralName;

/// Name of the Secret, in Evenkeel's namespace.
pub(crate) const SECRET: &str = "evenkeel-webhook";
const SECRET_TYPE: &str = "kubernetes.io/tls";
/// How long a certificate is valid, and when it is replaced: a month is left for replicas that cannot.
const LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Valid from a little earlier, for API servers whose clock is behind.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);
/// Attempts to win or lose a race for the Secret.
const ATTEMPTS: usize = 5;

/// Why there is no certificate. Worth a retry, except `Pki`.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The Secret could not be read.
    #[error("cannot read Secret {SECRET} of Evenkeel's namespace")]
    Read(#[source] kube::Error),
    /// The Secret could not be written.
    #[error("cannot write Secret {SECRET} (does the namespace of --namespace exist?)")]
    Write(#[source] kube::Error),
    /// Other replicas kept changing it.
    #[error("Secret {SECRET} was changed by others {ATTEMPTS} times in a row")]
    Contended,
    /// A certificate could not be made.
    #[error("cannot make a certificate for the webhook")]
    Pki(#[source] PkiError),
}

/// What a replica serves with, and what the API server shall trust.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) identity: Identity,
    /// PEM, newest authority first.
    pub(crate) ca_bundle: String,
}

impl PartialEq for Serving {
    fn eq(&self, other: &Self) -> bool {
        self.identity.certificate_pem == other.identity.certificate_pem && self.ca_bundle == other.ca_bundle
    }
}

pub(crate) struct Certificates {
    secrets: Api<Secret>,
    names: ServerNames,
}

impl Certificates {
    pub(crate) fn new(client: Client, namespace: &str, names: ServerNames) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            names,
        }
    }

    /// The certificate to serve with at `now`: the one in the Secret, or a new one if that is missing, due,
    /// unreadable, or made for other names.
    pub(crate) async fn ensure(&self, now: Timestamp) -> Result<Serving, CertificateError> {
        for _ in 0..ATTEMPTS {
            let existing = self
                .secrets
                .get_opt(SECRET)
                .await
                .map_err(CertificateError::Read)?;
            let why = match &existing {
                None => "there is none".to_owned(),
                Some(secret) => match usable(secret, &self.names, now) {
                    Ok(serving) => return Ok(serving),
                    Err(why) => why,
                },
            };
            tracing::info!(why, "making a new certificate for the webhook");
            let serving = issue(&self.names, existing.as_ref(), now).map_err(CertificateError::Pki)?;
            let secret = secret(&serving, existing.as_ref());
            let written = match existing {
                None => self.secrets.create(&PostParams::default(), &secret).await,
                Some(_) => {
                    self.secrets
                        .replace(SECRET, &PostParams::default(), &secret)
                        .await
                }
            };
            match written {
                Ok(_) => return Ok(serving),
                // Somebody else was faster: theirs counts.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(kube::Error::Api(status))
                    if status.code == 404 && secret.metadata.resource_version.is_some() => {}
                Err(error) => return Err(CertificateError::Write(error)),
            }
        }
        Err(CertificateError::Contended)
    }
}

fn issue(names: &ServerNames, before: Option<&Secret>, now: Timestamp) -> Result<Serving, PkiError> {
    let validity = Validity {
        from: (now - BACKDATED).as_second(),
        until: (now + LIFETIME).as_second(),
    };
    let ca = Ca::new("evenkeel-webhook-ca", validity)?;
    let identity = ca.issue_server(SECRET, names, validity)?;
    let mut ca_bundle = ca.certificate_pem().trim_end().to_owned();
    ca_bundle.push('\n');
    // Only the newest of the old ones: the bundle does not grow for ever.
    if let Some(old) = before
        .and_then(|secret| text(secret, "ca.crt"))
        .as_deref()
        .and_then(first_certificate)
    {
        ca_bundle.push_str(old.trim_end());
        ca_bundle.push('\n');
    }
    Ok(Serving { identity, ca_bundle })
}

fn secret(serving: &Serving, before: Option<&Secret>) -> Secret {
    let data = [
        ("tls.crt", &serving.identity.certificate_pem),
        ("tls.key", &serving.identity.key_pem),
        ("ca.crt", &serving.ca_bundle),
    ];
    let data: BTreeMap<String, ByteString> = data
        .into_iter()
        .map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())))
        .collect();
    // The type of a Secret cannot be changed; one that somebody made with another type keeps it.
    let type_ = before.map_or_else(|| Some(SECRET_TYPE.to_owned()), |before| before.type_.clone());
    let metadata = before.map_or_else(
        || ObjectMeta {
            name: Some(SECRET.to_owned()),
            ..ObjectMeta::default()
        },
        |before| before.metadata.clone(),
    );
    Secret {
        metadata,
        type_,
        data: Some(data),
        ..Secret::default()
    }
}

/// The Secret's certificate if it can be served with at `now`, else why not.
fn usable(secret: &Secret, names: &ServerNames, now: Timestamp) -> Result<Serving, String> {
    let certificate_pem = text(secret, "tls.crt").ok_or("tls.crt is missing")?;
    let key_pem = text(secret, "tls.key").ok_or("tls.key is missing")?;
    let ca_bundle = text(secret, "ca.crt").ok_or("ca.crt is missing")?;
    let pem = Pem::iter_from_buffer(certificate_pem.as_bytes())
        .next()
        .ok_or("tls.crt holds no certificate")?
        .map_err(|error| format!("tls.crt cannot be read: {error}"))?;
    let certificate = pem
        .parse_x509()
        .map_err(|error| format!("tls.crt cannot be read: {error}"))?;
    let until = certificate.validity().not_after.timestamp();
    if (now + RENEW_BEFORE).as_second() >= until {
        return Err(format!("it ends at {}", certificate.validity().not_after));
    }
    if certificate.validity().not_before.timestamp() > now.as_second() {
        return Err(format!("it begins only at {}", certificate.validity().not_before));
    }
    let carried: Vec<&GeneralName> = match certificate.subject_alternative_name() {
        Ok(Some(extension)) => extension.value.general_names.iter().collect(),
        Ok(None) => Vec::new(),
        Err(error) => return Err(format!("its names cannot be read: {error}")),
    };
    for dns in &names.dns {
        if !carried
            .iter()
            .any(|name| matches!(name, GeneralName::DNSName(carried) if carried == dns))
        {
            return Err(format!("it is not made for {dns}"));
        }
    }
    for ip in &names.ips {
        let octets = match ip {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        if !carried
            .iter()
            .any(|name| matches!(name, GeneralName::IPAddress(carried) if *carried == octets))
        {
            return Err(format!("it is not made for {ip}"));
        }
    }
    let identity = Identity {
        certificate_pem,
        key_pem,
    };
    // A key of another certificate could not be served with, at every start anew.
    ServerTls::new(&identity, None).map_err(|error| format!("tls.crt and tls.key: {error}"))?;
    Ok(Serving { identity, ca_bundle })
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok()
}

/// The first certificate of a bundle, PEM.
fn first_certificate(bundle: &str) -> Option<&str> {
    const END: &str = "-----END CERTIFICATE-----";
    let start = bundle.find("-----BEGIN CERTIFICATE-----")?;
    let end = bundle[start..].find(END)? + start + END.len();
    Some(&bundle[start..end])
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
mod tests;
