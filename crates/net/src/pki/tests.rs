use super::*;

const YEAR: Validity = Validity {
    from: 1_760_000_000,
    until: 1_791_536_000,
};

fn parsed(pem: &str) -> CertificateDer<'static> {
    first_certificate(pem).unwrap()
}

#[test]
fn a_client_certificate_carries_its_user_and_every_group() {
    let ca = Ca::new("test-ca", YEAR).unwrap();
    for groups in [
        &[][..],
        &["one"],
        &["system:nodes", "system:masters", "drei & vier"],
    ] {
        let id = ca.issue_client("alice", groups, YEAR).unwrap();
        let der = parsed(&id.certificate_pem);
        let (_, cert) = X509Certificate::from_der(&der).unwrap();
        let names: Vec<_> = cert
            .subject()
            .iter_common_name()
            .map(|n| n.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["alice"]);
        let found: Vec<_> = cert
            .subject()
            .iter_organization()
            .map(|n| n.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(found, groups);
        assert!(!cert.is_ca());
        assert_eq!(cert.validity().not_before.timestamp(), YEAR.from);
        assert_eq!(cert.validity().not_after.timestamp(), YEAR.until);
        assert!(id.key_pem.starts_with("-----BEGIN PRIVATE KEY-----"));
    }
}

#[test]
fn long_groups_are_encoded_with_long_lengths() {
    let ca = Ca::new("test-ca", YEAR).unwrap();
    let long = "g".repeat(300);
    let id = ca.issue_client("alice", &[&long, "short"], YEAR).unwrap();
    let der = parsed(&id.certificate_pem);
    let (rest, cert) = X509Certificate::from_der(&der).unwrap();
    assert!(rest.is_empty());
    let found: Vec<_> = cert
        .subject()
        .iter_organization()
        .map(|n| n.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(found, [long.as_str(), "short"]);
}

#[test]
fn an_authority_survives_its_pem_form() {
    let ca = Ca::new("test-ca", YEAR).unwrap();
    let again = Ca::from_pem(ca.certificate_pem(), ca.key_pem()).unwrap();
    let names = ServerNames {
        dns: vec!["localhost".into()],
        ips: vec!["127.0.0.1".parse().unwrap()],
    };
    let id = again.issue_server("server", &names, YEAR).unwrap();
    let der = parsed(&id.certificate_pem);
    let (_, cert) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(cert.issuer().to_string(), "CN=test-ca");
    let ca_der = parsed(ca.certificate_pem());
    let (_, ca_cert) = X509Certificate::from_der(&ca_der).unwrap();
    assert_eq!(cert.issuer().as_raw(), ca_cert.subject().as_raw());
    let san = cert.subject_alternative_name().unwrap().unwrap();
    assert_eq!(san.value.general_names.len(), 2);
}

#[test]
fn what_is_no_authority_is_refused_with_the_reason() {
    let ca = Ca::new("test-ca", YEAR).unwrap();
    let other = Ca::new("other", YEAR).unwrap();
    let leaf = ca.issue_client("alice", &[], YEAR).unwrap();
    for (certificate, key, expected) in [
        (
            ca.certificate_pem(),
            other.key_pem(),
            "cannot read the CA key: it does not belong to the CA certificate",
        ),
        (
            &*leaf.certificate_pem,
            &*leaf.key_pem,
            "cannot read the CA certificate: it is not marked as a certificate authority",
        ),
        (
            "nonsense",
            ca.key_pem(),
            "cannot read a certificate: no CERTIFICATE in the PEM text",
        ),
        (ca.certificate_pem(), "nonsense", "cannot read the CA key: "),
    ] {
        let error = Ca::from_pem(certificate, key).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn impossible_validities_are_errors() {
    for (from, until) in [(-1, 5), (5, 4), (0, i64::MAX), (i64::MIN, i64::MAX)] {
        let error = Ca::new("test-ca", Validity { from, until }).unwrap_err();
        assert!(
            matches!(
                error,
                PkiError::Issue {
                    source: rcgen::Error::Time,
                    ..
                }
            ),
            "{error:?}"
        );
    }
}

#[test]
fn names_that_are_not_ascii_are_errors() {
    let ca = Ca::new("test-ca", YEAR).unwrap();
    let names = ServerNames {
        dns: vec!["zürich".into()],
        ips: vec![],
    };
    let error = ca.issue_server("server", &names, YEAR).unwrap_err();
    assert_eq!(error.to_string(), "cannot issue a certificate for server");
}

#[test]
fn debug_output_hides_keys() {
    let ca = Ca::new("test-ca", YEAR).unwrap();
    let id = ca.issue_client("alice", &[], YEAR).unwrap();
    for text in [format!("{ca:?}"), format!("{id:?}")] {
        assert!(text.contains("(hidden)"), "{text}");
        assert!(!text.contains("PRIVATE"), "{text}");
    }
}

#[test]
fn the_pin_is_the_digest_of_the_certificate_not_of_the_text() {
    let ca = Ca::new("test-ca", YEAR).unwrap();
    let pin = certificate_sha256(ca.certificate_pem()).unwrap();
    assert_eq!(pin.len(), 64);
    let commented = format!("a comment\n{}{}", ca.certificate_pem(), ca.key_pem());
    assert_eq!(certificate_sha256(&commented).unwrap(), pin);
    // FIPS 180-4's example for "abc".
    assert_eq!(
        der_sha256(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    assert!(certificate_sha256("").is_err());
}
