use super::*;
use rstest::rstest;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
const DAY: SignedDuration = SignedDuration::from_hours(24);

fn names() -> ServerNames {
    ServerNames {
        dns: vec!["evenkeel-webhook.evenkeel-system.svc".to_owned()],
        ips: vec!["127.0.0.1".parse().unwrap()],
    }
}

fn stored() -> Secret {
    evenkeel_net::init_crypto();
    secret(&issue(&names(), None, NOW).unwrap(), None)
}

#[test]
fn what_is_stored_is_served_until_a_month_before_its_end() {
    let stored = stored();
    assert_eq!(stored.type_.as_deref(), Some("kubernetes.io/tls"));
    let serving = usable(&stored, &names(), NOW).unwrap();
    assert!(serving.identity.key_pem.contains("PRIVATE KEY"));
    assert!(usable(&stored, &names(), NOW + DAY * 59).is_ok());
    let why = usable(&stored, &names(), NOW + DAY * 60).err().unwrap();
    assert!(why.contains("ends at"), "{why}");
}

#[test]
fn a_clock_that_is_behind_by_less_than_an_hour_is_tolerated() {
    let stored = stored();
    assert!(usable(&stored, &names(), NOW - SignedDuration::from_mins(59)).is_ok());
    let why = usable(&stored, &names(), NOW - SignedDuration::from_mins(61))
        .err()
        .unwrap();
    assert!(why.contains("begins only"), "{why}");
}

#[rstest]
#[case::another_name("other.evenkeel-system.svc", None)]
#[case::another_address("evenkeel-webhook.evenkeel-system.svc", Some("10.0.0.1"))]
fn a_certificate_for_other_names_is_replaced(#[case] dns: &str, #[case] ip: Option<&str>) {
    let asked = ServerNames {
        dns: vec![dns.to_owned()],
        ips: ip.into_iter().map(|ip| ip.parse().unwrap()).collect(),
    };
    let why = usable(&stored(), &asked, NOW).err().unwrap();
    assert!(why.contains("not made for"), "{why}");
}

#[rstest]
#[case::no_certificate("tls.crt")]
#[case::no_key("tls.key")]
#[case::no_authority("ca.crt")]
fn a_secret_that_lacks_a_part_is_replaced(#[case] part: &str) {
    let mut stored = stored();
    stored.data.as_mut().unwrap().remove(part);
    assert_eq!(
        usable(&stored, &names(), NOW).err().unwrap(),
        format!("{part} is missing")
    );
    stored
        .data
        .as_mut()
        .unwrap()
        .insert(part.to_owned(), ByteString(b"\xff".to_vec()));
    assert!(usable(&stored, &names(), NOW).is_err());
}

#[test]
fn rotation_keeps_trust_in_the_one_before_and_no_more() {
    let first = stored();
    let first_ca = text(&first, "ca.crt").unwrap();
    let second = secret(
        &issue(&names(), Some(&first), NOW + DAY * 60).unwrap(),
        Some(&first),
    );
    let second_bundle = text(&second, "ca.crt").unwrap();
    assert!(second_bundle.contains(first_ca.trim_end()));
    assert_eq!(second_bundle.matches("BEGIN CERTIFICATE").count(), 2);
    let third = issue(&names(), Some(&second), NOW + DAY * 120).unwrap();
    assert!(!third.ca_bundle.contains(first_ca.trim_end()));
    assert!(
        third
            .ca_bundle
            .contains(first_certificate(&second_bundle).unwrap())
    );
    assert_eq!(third.ca_bundle.matches("BEGIN CERTIFICATE").count(), 2);
}

#[test]
fn a_key_that_is_not_the_certificates_is_replaced_and_never_told() {
    let mut mixed = stored();
    let key = stored().data.unwrap()["tls.key"].clone();
    let secret_text = String::from_utf8(key.0.clone()).unwrap();
    mixed.data.as_mut().unwrap().insert("tls.key".to_owned(), key);
    let why = usable(&mixed, &names(), NOW).err().unwrap();
    assert!(why.starts_with("tls.crt and tls.key"), "{why}");
    let inner = secret_text.lines().nth(1).unwrap();
    assert!(!why.contains(inner), "the key is in the message");
}
