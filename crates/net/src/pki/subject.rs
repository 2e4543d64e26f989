//! Subjects with several organisations.
//!
//! Kubernetes reads the groups of a user from the organisations of the certificate's subject, one attribute
//! each. rcgen keeps a subject as a map, one value per attribute type, so a subject with two groups is
//! written here: the subject is put into the finished certificate's signed part, which is then signed again.

use rcgen::SigningKey;
use x509_parser::prelude::{FromDer as _, X509Certificate};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const BIT_STRING: u8 = 0x03;
const UTF8_STRING: u8 = 0x0c;
/// OBJECT IDENTIFIER 2.5.4.10, organizationName, encoded.
const ORGANISATION: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0a];
/// OBJECT IDENTIFIER 2.5.4.3, commonName, encoded.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];

/// A Name of a common name, unless that is empty, and organisations, DER.
pub(super) fn name(common_name: &str, organisations: &[&str]) -> Vec<u8> {
    let mut names = Vec::new();
    for organisation in organisations {
        names.extend(attribute(&ORGANISATION, organisation));
    }
    if !common_name.is_empty() {
        names.extend(attribute(&COMMON_NAME, common_name));
    }
    element(SEQUENCE, &names)
}

/// The same certificate for another subject (a Name in DER), signed again by `key`, the issuer's; PEM.
pub(super) fn with_subject(
    certificate_der: &[u8],
    subject: &[u8],
    key: &impl SigningKey,
) -> Result<String, rcgen::Error> {
    let (_, certificate) =
        X509Certificate::from_der(certificate_der).map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
    let signed_part = certificate.tbs_certificate.as_ref();
    let old = certificate.tbs_certificate.subject.as_raw();
    // The subject's bytes are a slice of the signed part's; their distance is the subject's place in it.
    let at = (old.as_ptr() as usize).checked_sub(signed_part.as_ptr() as usize);
    let (Some(at), Some(header)) = (at, header_length(signed_part)) else {
        return Err(rcgen::Error::CouldNotParseCertificate);
    };
    let (Some(before), Some(after)) = (signed_part.get(header..at), signed_part.get(at + old.len()..)) else {
        return Err(rcgen::Error::CouldNotParseCertificate);
    };

    let signed_part = element(SEQUENCE, &[before, subject, after].concat());

    let signature = key.sign(&signed_part)?;
    // A BIT STRING starts with the number of unused bits in its last byte.
    let signature = element(BIT_STRING, &[&[0], signature.as_slice()].concat());
    let algorithm = signature_algorithm(certificate_der).ok_or(rcgen::Error::CouldNotParseCertificate)?;
    let der = element(SEQUENCE, &[&signed_part, algorithm, &signature].concat());
    Ok(pem(&der))
}

/// RelativeDistinguishedName with one attribute.
fn attribute(oid: &[u8], value: &str) -> Vec<u8> {
    let text = element(UTF8_STRING, value.as_bytes());
    element(SET, &element(SEQUENCE, &[oid, &text].concat()))
}

/// Tag, definite length, content (X.690, 8.1).
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if let Ok(short @ 0..=0x7f) = u8::try_from(length) {
        out.push(short);
    } else {
        let bytes = length.to_be_bytes();
        let significant = &bytes[length.leading_zeros() as usize / 8..];
        // At most eight length bytes follow.
        out.push(0x80 | significant.len() as u8);
        out.extend_from_slice(significant);
    }
    out.extend_from_slice(content);
    out
}

/// Bytes of tag and length of the element at the start of `der`.
fn header_length(der: &[u8]) -> Option<usize> {
    let length = *der.get(1)?;
    Some(if length < 0x80 {
        2
    } else {
        2 + usize::from(length & 0x7f)
    })
}

/// Length of the whole element at the start of `der`.
fn element_length(der: &[u8]) -> Option<usize> {
    let header = header_length(der)?;
    let content = if header == 2 {
        usize::from(*der.get(1)?)
    } else {
        der.get(2..header)?.iter().try_fold(0_usize, |sum, byte| {
            sum.checked_mul(256).map(|sum| sum + usize::from(*byte))
        })?
    };
    header.checked_add(content)
}

/// The AlgorithmIdentifier between signed part and signature.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let content = certificate.get(header_length(certificate)?..)?;
    let rest = content.get(element_length(content)?..)?;
    rest.get(..element_length(rest)?)
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = tail;
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}
