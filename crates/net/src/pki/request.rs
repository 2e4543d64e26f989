//! Certificates for keys of others, as a signing request (RFC 2986) asks for them.

use super::{Ca, PkiError, ServerNames, Validity, base_params, new_key, subject, subject_alt_names};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType,
    SubjectPublicKeyInfo,
};

/// What a certificate shall say of somebody else's key.
#[derive(Clone, Debug)]
pub struct Signing<'a> {
    /// Common name of the subject; the subject has none where it is empty.
    pub common_name: &'a str,
    /// Organisations of the subject. It has no other attributes.
    pub organisations: Vec<&'a str>,
    /// The key: a SubjectPublicKeyInfo in DER.
    pub public_key: &'a [u8],
    /// DNS names and addresses.
    pub names: ServerNames,
    /// E-mail addresses that are asked for.
    pub emails: Vec<String>,
    /// URIs that are asked for.
    pub uris: Vec<String>,
    /// The extension `keyUsage`.
    pub key_usages: Vec<KeyUsagePurpose>,
    /// The extension `extendedKeyUsage`.
    pub extended_key_usages: Vec<ExtendedKeyUsagePurpose>,
    /// Not before and not after.
    pub validity: Validity,
}

/// A request for a certificate of one organisation and a new ECDSA P-256 key, both PEM: the request, the key.
pub fn signing_request(
    common_name: &str,
    organisation: &str,
    names: &ServerNames,
) -> Result<(String, String), PkiError> {
    let make = || -> Result<(String, String), rcgen::Error> {
        let key = new_key()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, organisation);
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names = subject_alt_names(names)?;
        Ok((params.serialize_request(&key)?.pem()?, key.serialize_pem()))
    };
    make().map_err(|source| PkiError::Issue {
        subject: common_name.to_owned(),
        source,
    })
}

impl Ca {
    /// A certificate for somebody else's key, PEM. What it says is not questioned here.
    pub fn sign(&self, signing: &Signing<'_>) -> Result<String, PkiError> {
        let make = || -> Result<String, rcgen::Error> {
            let key = SubjectPublicKeyInfo::from_der(signing.public_key)?;
            // The subject is put in afterwards, with all organisations.
            let mut params = base_params("", signing.validity)?;
            params.is_ca = IsCa::ExplicitNoCa;
            params.key_usages.clone_from(&signing.key_usages);
            params
                .extended_key_usages
                .clone_from(&signing.extended_key_usages);
            params.use_authority_key_identifier_extension = true;
            params.subject_alt_names = subject_alt_names(&signing.names)?;
            let names = &mut params.subject_alt_names;
            for email in &signing.emails {
                names.push(SanType::Rfc822Name(email.as_str().try_into()?));
            }
            for uri in &signing.uris {
                names.push(SanType::URI(uri.as_str().try_into()?));
            }
            let certificate = params.signed_by(&key, &self.issuer)?;
            let subject = subject::name(signing.common_name, &signing.organisations);
            subject::with_subject(certificate.der(), &subject, self.issuer.key())
        };
        make().map_err(|source| PkiError::Issue {
            subject: "a signing request".to_owned(),
            source,
        })
    }

    /// When the authority's own certificate ends, in seconds since the epoch.
    pub fn expires(&self) -> Result<i64, PkiError> {
        use x509_parser::prelude::{FromDer as _, X509Certificate};
        let der = super::first_certificate(self.certificate_pem())?;
        let (_, parsed) = X509Certificate::from_der(&der)
            .map_err(|error| super::unreadable("the CA certificate", &error.to_string()))?;
        Ok(parsed.validity().not_after.timestamp())
    }
}
