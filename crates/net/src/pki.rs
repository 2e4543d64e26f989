//! A small certificate authority for the lab, for the webhook and for tests.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SanType,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use x509_parser::prelude::{FromDer as _, X509Certificate};

pub use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose};
pub use request::{Signing, signing_request};

/// Why a certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of a variant says what its fields are")]
pub enum PkiError {
    /// Key or certificate could not be generated.
    #[error("cannot issue a certificate for {subject}")]
    Issue {
        subject: String,
        #[source]
        source: rcgen::Error,
    },
    /// PEM text does not hold what it should.
    #[error("cannot read {what}: {reason}")]
    Read {
        what: String,
        /// What is wrong.
        reason: String,
    },
}

/// A certificate with its key, PEM.
#[derive(Clone)]
pub struct Identity {
    /// The chain in PEM, the leaf first.
    pub certificate_pem: String,
    /// PKCS#8. Secret: never logged, `Debug` hides it.
    pub key_pem: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("certificate_pem", &self.certificate_pem)
            .field("key_pem", &"(hidden)")
            .finish()
    }
}

/// A certificate authority. The clock is the caller's: every `issue` takes the validity it shall have.
pub struct Ca {
    certificate_pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca")
            .field("certificate_pem", &self.certificate_pem)
            .field("key_pem", &"(hidden)")
            .finish_non_exhaustive()
    }
}

/// Names in a serving certificate.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    /// DNS names that the certificate is valid for.
    pub dns: Vec<String>,
    /// IP addresses that the certificate is valid for.
    pub ips: Vec<IpAddr>,
}

/// Not before and not after, seconds since the epoch. X.509 ends with the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second of validity, since the Unix epoch.
    pub from: i64,
    /// Last second of validity, since the Unix epoch.
    pub until: i64,
}

impl Ca {
    /// A new authority with an ECDSA P-256 key.
    pub fn new(common_name: &str, validity: Validity) -> Result<Self, PkiError> {
        let make = || -> Result<Self, rcgen::Error> {
            let key = new_key()?;
            let key_pem = key.serialize_pem();
            let mut params = base_params(common_name, validity)?;
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![
                KeyUsagePurpose::DigitalSignature,
                KeyUsagePurpose::KeyCertSign,
                KeyUsagePurpose::CrlSign,
            ];
            let certificate_pem = params.self_signed(&key)?.pem();
            Ok(Self {
                certificate_pem,
                key_pem,
                issuer: Issuer::new(params, key),
            })
        };
        make().map_err(|source| PkiError::Issue {
            subject: common_name.to_owned(),
            source,
        })
    }

    /// Certificate of the authority, PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Private key of the authority, PEM; for writing it where the operator asked for it.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// The authority again from its PEM parts. Refused: a certificate that is no authority, and a key that is
    /// not the certificate's.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let der = first_certificate(certificate_pem)?;
        let (_, parsed) = X509Certificate::from_der(&der)
            .map_err(|error| unreadable("the CA certificate", &error.to_string()))?;
        if !parsed.is_ca() {
            return Err(unreadable(
                "the CA certificate",
                "it is not marked as a certificate authority",
            ));
        }
        let key = KeyPair::from_pem(key_pem).map_err(|error| unreadable("the CA key", &error.to_string()))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(unreadable(
                "the CA key",
                "it does not belong to the CA certificate",
            ));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key)
            .map_err(|error| unreadable("the CA certificate", &error.to_string()))?;
        Ok(Self {
            certificate_pem: certificate_pem.to_owned(),
            key_pem: key_pem.to_owned(),
            issuer,
        })
    }

    /// A serving certificate.
    pub fn issue_server(
        &self,
        common_name: &str,
        names: &ServerNames,
        validity: Validity,
    ) -> Result<Identity, PkiError> {
        self.issue(
            common_name,
            &[],
            names,
            ExtendedKeyUsagePurpose::ServerAuth,
            validity,
        )
    }

    /// A client certificate: user = common name, groups = organisations.
    pub fn issue_client(
        &self,
        user: &str,
        groups: &[&str],
        validity: Validity,
    ) -> Result<Identity, PkiError> {
        self.issue(
            user,
            groups,
            &ServerNames::default(),
            ExtendedKeyUsagePurpose::ClientAuth,
            validity,
        )
    }

    fn issue(
        &self,
        common_name: &str,
        organisations: &[&str],
        names: &ServerNames,
        usage: ExtendedKeyUsagePurpose,
        validity: Validity,
    ) -> Result<Identity, PkiError> {
        let make = || -> Result<Identity, rcgen::Error> {
            let key = new_key()?;
            let mut params = base_params(common_name, validity)?;
            params.subject_alt_names = subject_alt_names(names)?;
            params.is_ca = IsCa::ExplicitNoCa;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![usage];
            params.use_authority_key_identifier_extension = true;
            let certificate = params.signed_by(&key, &self.issuer)?;
            let certificate_pem = if organisations.is_empty() {
                certificate.pem()
            } else {
                subject::with_subject(
                    certificate.der(),
                    &subject::name(common_name, organisations),
                    self.issuer.key(),
                )?
            };
            Ok(Identity {
                certificate_pem,
                key_pem: key.serialize_pem(),
            })
        };
        make().map_err(|source| PkiError::Issue {
            subject: common_name.to_owned(),
            source,
        })
    }
}

fn subject_alt_names(names: &ServerNames) -> Result<Vec<SanType>, rcgen::Error> {
    let dns = names
        .dns
        .iter()
        .map(|name| Ok(SanType::DnsName(name.as_str().try_into()?)));
    let ips = names.ips.iter().copied().map(SanType::IpAddress).map(Ok);
    dns.chain(ips).collect()
}

/// SHA-256 of the DER of the first certificate in a PEM text, lower-case hex: the pin of a kubelet.
pub fn certificate_sha256(certificate_pem: &str) -> Result<String, PkiError> {
    Ok(der_sha256(&first_certificate(certificate_pem)?))
}

/// SHA-256 of a DER certificate, lower-case hex.
pub fn der_sha256(der: &[u8]) -> String {
    use fmt::Write as _;
    Sha256::digest(der)
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// The authorities of a PEM text, of which there must be one at least. `what` names the text in errors.
pub fn authorities(what: &str, pem: &str) -> Result<RootCertStore, PkiError> {
    let refuse = |reason: &dyn fmt::Display| unreadable(what, &reason.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots
            .add(certificate.map_err(|error| refuse(&error))?)
            .map_err(|error| refuse(&error))?;
    }
    if roots.is_empty() {
        return Err(refuse(&"no CERTIFICATE in the PEM text"));
    }
    Ok(roots)
}

/// The first certificate of a PEM text.
pub(crate) fn first_certificate(pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| {
        unreadable(
            "a certificate",
            &format!("no CERTIFICATE in the PEM text ({error})"),
        )
    })
}

pub(crate) fn unreadable(what: &str, reason: &str) -> PkiError {
    PkiError::Read {
        what: what.to_owned(),
        reason: reason.to_owned(),
    }
}

fn new_key() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

fn base_params(common_name: &str, validity: Validity) -> Result<CertificateParams, rcgen::Error> {
    /// 9999-12-31T23:59:59Z, the last moment that X.509 can express (RFC 5280, 4.1.2.5).
    const LAST: i64 = 253_402_300_799;
    if validity.from < 0 || validity.until < validity.from || validity.until > LAST {
        return Err(rcgen::Error::Time);
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.not_before = epoch + Duration::from_secs(validity.from.unsigned_abs());
    params.not_after = epoch + Duration::from_secs(validity.until.unsigned_abs());
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

mod request;
mod subject;
#[cfg(test)]
mod tests;
