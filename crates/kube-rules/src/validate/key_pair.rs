//! The certificate and the private key of a Secret, which are to belong together.

use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Rsa,
    Ecdsa,
    Ed25519,
}

/// What is wrong with the pair in `tls.crt` and `tls.key`, in the words of Go's TLS library.
pub(super) fn check(secret: &Value) -> Result<(), String> {
    let blocks = |name: &str| -> Vec<Pem> {
        let text = secret["data"][name].as_str().unwrap_or_default();
        let bytes = STANDARD.decode(text).unwrap_or_default();
        Pem::iter_from_buffer(&bytes).filter_map(Result::ok).collect()
    };
    let certificate = certificate(&blocks("tls.crt"))?;
    let key = private_key(&blocks("tls.key"))?;
    let malformed = |_| "x509: malformed certificate".to_owned();
    let (_, certificate) = X509Certificate::from_der(&certificate).map_err(malformed)?;
    let (algorithm, public) =
        public_key(&key).ok_or_else(|| "tls: failed to parse private key".to_owned())?;
    let certified = certificate.public_key();
    let wanted = match certified.algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.1" => Algorithm::Rsa,
        "1.2.840.10045.2.1" => Algorithm::Ecdsa,
        "1.3.101.112" => Algorithm::Ed25519,
        _ => return Err("tls: unknown public key algorithm".to_owned()),
    };
    if algorithm != wanted {
        return Err("tls: private key type does not match public key type".to_owned());
    }
    if *certified.subject_public_key.data != *public {
        return Err("tls: private key does not match public key".to_owned());
    }
    Ok(())
}

/// The first certificate in DER.
fn certificate(blocks: &[Pem]) -> Result<Vec<u8>, String> {
    if let Some(found) = blocks.iter().find(|block| block.label == "CERTIFICATE") {
        return Ok(found.contents.clone());
    }
    Err(match labels(blocks).as_slice() {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [one] if one.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
        skipped => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", skipped.join(" ")),
    })
}

/// The first private key in DER.
fn private_key(blocks: &[Pem]) -> Result<Vec<u8>, String> {
    let is_key = |block: &&Pem| block.label == "PRIVATE KEY" || block.label.ends_with(" PRIVATE KEY");
    if let Some(found) = blocks.iter().find(is_key) {
        return Ok(found.contents.clone());
    }
    Err(match labels(blocks).as_slice() {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        ["CERTIFICATE"] => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        skipped => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
            skipped.join(" ")
        ),
    })
}

fn labels(blocks: &[Pem]) -> Vec<&str> {
    blocks.iter().map(|block| block.label.as_str()).collect()
}

/// The public half of a private key in any of the three forms that Go reads, as a certificate holds it.
fn public_key(key: &[u8]) -> Option<(Algorithm, Vec<u8>)> {
    let rsa = || {
        let pair = rsa::KeyPair::from_der(key).or_else(|_| rsa::KeyPair::from_pkcs8(key));
        Some((Algorithm::Rsa, pair.ok()?.public_key().as_ref().to_vec()))
    };
    let ecdsa = || {
        [
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            &ECDSA_P384_SHA384_ASN1_SIGNING,
            &ECDSA_P521_SHA512_ASN1_SIGNING,
        ]
        .into_iter()
        .find_map(|curve| EcdsaKeyPair::from_private_key_der(curve, key).ok())
        .map(|pair| (Algorithm::Ecdsa, pair.public_key().as_ref().to_vec()))
    };
    let ed25519 = || {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key).ok()?;
        Some((Algorithm::Ed25519, pair.public_key().as_ref().to_vec()))
    };
    rsa().or_else(ecdsa).or_else(ed25519)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
    use rstest::rstest;
    use serde_json::json;

    fn secret(certificate: &str, key: &str) -> Value {
        json!({"data": {"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)}})
    }

    fn issued(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[rstest]
    #[case::p256(&PKCS_ECDSA_P256_SHA256)]
    #[case::p384(&PKCS_ECDSA_P384_SHA384)]
    #[case::ed25519(&PKCS_ED25519)]
    fn a_pair_is_good(#[case] algorithm: &'static rcgen::SignatureAlgorithm) {
        let (certificate, key) = issued(algorithm);
        assert_eq!(check(&secret(&certificate, &key)), Ok(()));
        let (_, other) = issued(algorithm);
        let wrong = "tls: private key does not match public key";
        assert_eq!(check(&secret(&certificate, &other)), Err(wrong.to_owned()));
    }

    #[test]
    fn what_is_no_pair_is_named() {
        let (certificate, key) = issued(&PKCS_ED25519);
        let (_, other) = issued(&PKCS_ECDSA_P256_SHA256);
        let broken = "-----BEGIN PRIVATE KEY-----\nYQ==\n-----END PRIVATE KEY-----\n";
        let block = "-----BEGIN X-----\nYQ==\n-----END X-----\n";
        for (certificate, key, why) in [
            ("", "", "failed to find any PEM data in certificate input"),
            (key.as_str(), "", "PEM inputs may have been switched"),
            (block, "", "of the following types: [X]"),
            (&certificate, "", "failed to find any PEM data in key input"),
            (
                &certificate,
                &certificate,
                "found a certificate rather than a key in the PEM for the private key",
            ),
            (&certificate, broken, "tls: failed to parse private key"),
            (
                &certificate,
                &other,
                "tls: private key type does not match public key type",
            ),
            (
                &broken.replace("PRIVATE KEY", "CERTIFICATE"),
                &key,
                "x509: malformed certificate",
            ),
        ] {
            let said = check(&secret(certificate, key)).unwrap_err();
            assert!(said.ends_with(why), "{said}");
        }
    }
}
