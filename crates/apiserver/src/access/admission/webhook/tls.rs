//! Which serving certificates are accepted: those that `caBundle` vouches for, and, as in Go, a certificate
//! that stands in the bundle itself, even where it calls itself an authority. WebPKI would refuse the latter,
//! which is what `openssl req -x509` makes.

use evenkeel_net::verify::{Presented, verifier};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use std::sync::Arc;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The configuration for a `caBundle` in PEM.
pub(super) fn config(bundle: &[u8]) -> Result<Arc<ClientConfig>, String> {
    let mut pinned = Vec::new();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate =
            certificate.map_err(|error| format!("unable to load root certificates: {error}"))?;
        // One that is no authority is only pinned.
        if roots.add(certificate.clone()).is_err() {
            tracing::debug!("a certificate of a caBundle is no authority");
        }
        pinned.push(certificate);
    }
    if pinned.is_empty() {
        return Err("unable to load root certificates: no certificate in caBundle".to_owned());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let inner = if roots.is_empty() {
        None
    } else {
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        Some(built.map_err(|error| format!("unable to load root certificates: {error}"))?)
    };
    let accept = move |peer: &Presented<'_>| {
        if pinned.contains(peer.certificate) {
            return is_valid(peer.certificate, peer.name, peer.now);
        }
        let Some(inner) = &inner else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let verified = inner.verify_server_cert(
            peer.certificate,
            peer.intermediates,
            peer.name,
            peer.ocsp,
            peer.now,
        );
        verified.map(|_| ())
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier(accept))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Nobody need vouch for a certificate of the bundle, but it must be for this name and this time.
fn is_valid(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < certificate.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > certificate.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let names = certificate
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|extension| extension.value.general_names.as_slice())
        .unwrap_or_default();
    if names.iter().any(|have| covers(have, name)) {
        Ok(())
    } else {
        Err(CertificateError::NotValidForName.into())
    }
}

fn covers(have: &GeneralName<'_>, wanted: &ServerName<'_>) -> bool {
    match (have, wanted) {
        (GeneralName::DNSName(have), ServerName::DnsName(wanted)) => {
            let wanted = wanted.as_ref();
            match have.strip_prefix("*.") {
                Some(suffix) => wanted
                    .split_once('.')
                    .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(suffix)),
                None => have.eq_ignore_ascii_case(wanted),
            }
        }
        (GeneralName::IPAddress(have), ServerName::IpAddress(wanted)) => {
            match std::net::IpAddr::from(*wanted) {
                std::net::IpAddr::V4(wanted) => *have == wanted.octets(),
                std::net::IpAddr::V6(wanted) => *have == wanted.octets(),
            }
        }
        _ => false,
    }
}
